"""Demonstrations in memory, as the batches that training samples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robogen.datasets import DemoDataset, DemoMeta, EpisodeInfo
from robogen.errors import ConfigError, RecordsError, unknown
from robogen.policies import text
from robogen.policies.checkpoint import POINTS
from robogen.policies.network import NetworkConfig, Statistics
from robogen.seeding import generator
from robogen.train.recipe import BCRecipe

_SMALLEST_STD = 1e-4
"""Below this spread a number is taken as constant and left unscaled (metres, radians)."""


@dataclass(frozen=True, kw_only=True)
class DemoSource:
    """Some episodes of one dataset folder."""

    folder: Path
    episodes: tuple[int, ...] | None = None
    """Indices, None for all of them."""


class Batch(NamedTuple):
    """Inputs and targets of one step."""

    frames: list[Tensor]
    """Per camera (B, H, W, 3) uint8."""
    state: Tensor
    """(B, D), in its own units."""
    text: Tensor
    """(B, text_size)"""
    actions: Tensor
    """(B, chunk, A)"""
    points: Tensor
    """(B, K, 3) [m]"""


class Demos:
    """Every frame of the chosen episodes in memory; frames stay uint8.

    Args:
        sources: What to load, in the order that counts for sampling.
        recipe: Which episodes, state parts and chunk length it is for.

    Attributes:
        meta: Conventions of the demonstrations.
        state: State parts the policy reads and their sizes.
        digest: Hash of the content of every loaded episode, hexadecimal.
        training: Rows that may be sampled.
        held_out: Rows of the held-out episodes.
        episodes: Numbers of training and held-out episodes.

    Raises:
        ConfigError: No episodes are left, or a state part is unknown.
        RecordsError: A dataset is damaged, or the datasets' conventions differ.
    """

    def __init__(self, sources: Sequence[DemoSource], recipe: BCRecipe) -> None:
        self.meta, chosen = _choose(sources, recipe)
        self.recipe = recipe
        self.state, columns = _state_parts(self.meta, recipe.state)
        self._cameras = self.meta.cameras if recipe.inputs == "images" else ()
        lengths = np.array([item.info.length for item in chosen])
        ends = np.cumsum(lengths)
        total = int(ends[-1])
        self._episode = np.repeat(np.arange(len(chosen)), lengths)
        self._last = np.repeat(ends - 1, lengths)
        self._text = np.stack(
            [text.features(item.info.instruction, size=recipe.text_size) for item in chosen]
        )
        self._frames = {
            camera.name: np.empty((total, camera.height, camera.width, 3), np.uint8)
            for camera in self._cameras
        }
        self._state = np.empty((total, len(columns)), np.float32)
        self._action = np.empty((total, self.meta.action.dim), np.float32)
        self._points = np.empty((total, len(self.meta.points), 3), np.float32)
        digest = hashlib.blake2b(digest_size=16)
        for item, end, length in zip(chosen, ends, lengths, strict=True):
            episode = item.dataset.read(item.info.index)
            rows = slice(end - length, end)
            for name, frames in self._frames.items():
                frames[rows] = episode.images[name]
            self._state[rows] = episode.state[:, columns]
            self._action[rows] = episode.action
            self._points[rows] = episode.points
            digest.update(episode.digest())
        self.digest = digest.hexdigest()
        if recipe.inputs == "points":
            self.state[POINTS] = 3 * len(self.meta.points)
            self._state = np.hstack([self._state, self._points.reshape(total, -1)])
        held_out = _held_out(len(chosen), recipe)
        self.episodes = (int((~held_out).sum()), int(held_out.sum()))
        rows_held_out = held_out[self._episode]
        self.held_out = np.flatnonzero(rows_held_out)
        self.training = np.flatnonzero(~rows_held_out)
        self._noise = recipe.state_noise * self._state[self.training].std(axis=0)

    @property
    def binary_gripper(self) -> bool:
        """Whether the expert only ever opened or closed fully."""
        return bool((np.abs(self._action[:, -1]) == 1.0).all())

    def network_config(self) -> NetworkConfig:
        """Sizes of the network for this data and recipe."""
        recipe = self.recipe
        return NetworkConfig(
            cameras=tuple((c.name, c.height, c.width) for c in self._cameras),
            state_size=sum(self.state.values()),
            text_size=recipe.text_size,
            points=len(self.meta.points) if self._predicts_points else 0,
            chunk=recipe.chunk,
            action_size=self.meta.action.dim,
            channels=recipe.channels,
            kernels=recipe.kernels,
            strides=recipe.strides,
            film_from=recipe.film_from,
            camera_features=recipe.camera_features,
            text_features=recipe.text_features,
            hidden=recipe.hidden,
        )

    @property
    def _predicts_points(self) -> bool:
        """Whether the auxiliary head is trained; what is an input need not be predicted."""
        return self.recipe.points_weight > 0.0 and self.recipe.inputs == "images"

    def statistics(self) -> Statistics:
        """Normalisation, from the training rows."""
        points = self._points if self._predicts_points else self._points[:, :0]
        return Statistics(*_moments(self._state[self.training]), *_moments(points[self.training]))

    def sample(self, step: int) -> Batch:
        """The batch of a step: a function of the recipe's seed and the step alone."""
        rng = generator("train", self.recipe.seed, "batch", step)
        rows = self.training[rng.integers(len(self.training), size=self.recipe.batch)]
        batch = self.batch(rows)
        if self.recipe.state_noise > 0.0:
            noise = rng.standard_normal(batch.state.shape) * self._noise
            batch.state.add_(torch.from_numpy(noise.astype(np.float32)))
        if self.recipe.shift > 0:
            for frames in batch.frames:
                _shift(frames.numpy(), self.recipe.shift, rng)
        if self.recipe.jitter > 0.0:
            for frames in batch.frames:
                _jitter(frames.numpy(), self.recipe.jitter, rng)
        return batch

    def batch(self, rows: NDArray[np.integer[Any]]) -> Batch:
        """These rows, each with the actions that follow it."""
        ahead = rows[:, None] + np.arange(self.recipe.chunk)
        ahead = np.minimum(ahead, self._last[rows][:, None])
        points = self._points[rows] if self._predicts_points else self._points[rows, :0]
        return Batch(
            frames=[torch.from_numpy(frames[rows]) for frames in self._frames.values()],
            state=torch.from_numpy(self._state[rows]),
            text=torch.from_numpy(self._text[self._episode[rows]]),
            actions=torch.from_numpy(self._action[ahead]),
            points=torch.from_numpy(points),
        )


class _Chosen(NamedTuple):
    dataset: DemoDataset
    info: EpisodeInfo


def _choose(sources: Sequence[DemoSource], recipe: BCRecipe) -> tuple[DemoMeta, list[_Chosen]]:
    """The episodes to load, without their frames, and the conventions they share."""
    datasets = [DemoDataset(source.folder) for source in sources]
    if not datasets:
        raise ConfigError(
            "Training needs demonstrations, got no folder. Give at least one dataset."
        )
    first = datasets[0]
    conventions = _conventions(first.meta)
    for dataset in datasets[1:]:
        other = _conventions(dataset.meta)
        differing = [key for key in conventions if other[key] != conventions[key]]
        if differing:
            raise RecordsError(
                f"{dataset.folder} and {first.folder} cannot be trained on together: they differ "
                f"in {', '.join(differing)}. Collect both with the same scene, cameras and policy."
            )
    chosen = []
    for source, dataset in zip(sources, datasets, strict=True):
        indices = dataset.indices if source.episodes is None else source.episodes
        chosen += [_Chosen(dataset, dataset.info(index)) for index in indices]
    kept = [item for item in chosen if item.info.success or not recipe.successes_only]
    if not kept:
        folders = ", ".join(str(source.folder) for source in sources)
        raise ConfigError(
            f"No demonstration to train on: {folders} offer {len(chosen)} episodes, of which "
            f"{len(kept)} succeeded. Collect some, or train on failures too (successes_only=false)."
        )
    if recipe.episodes is not None:
        if recipe.episodes > len(kept):
            raise ConfigError(
                f"episodes={recipe.episodes} is more than the {len(kept)} demonstrations there "
                "are. Collect more, or ask for fewer."
            )
        order = generator("train", recipe.seed, "subset").permutation(len(kept))
        kept = [kept[index] for index in sorted(order[: recipe.episodes])]
    return first.meta, kept


def _conventions(meta: DemoMeta) -> dict[str, Any]:
    data = meta.to_json()
    return {key: value for key, value in data.items() if key not in ("collection", "command")}


def _state_parts(
    meta: DemoMeta, wanted: tuple[str, ...] | None
) -> tuple[dict[str, int], NDArray[np.int64]]:
    """The parts a policy reads with their sizes, and their columns in the dataset's state."""
    starts = dict(zip(meta.state, np.cumsum([0, *meta.state.values()]), strict=False))
    parts: dict[str, int] = {}
    columns: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    for name in meta.state if wanted is None else wanted:
        if name not in meta.state:
            raise ConfigError(
                unknown("state part", name, meta.state, "Choose among the dataset's state parts.")
            )
        parts[name] = meta.state[name]
        columns.append(starts[name] + np.arange(parts[name]))
    return parts, np.concatenate(columns)


def _held_out(episodes: int, recipe: BCRecipe) -> NDArray[np.bool_]:
    """Mask of the episodes that are validated on."""
    mask = np.zeros(episodes, dtype=bool)
    if recipe.validation > 0.0 and episodes > 1:
        number = min(max(round(recipe.validation * episodes), 1), episodes - 1)
        order = generator("train", recipe.seed, "held-out").permutation(episodes)
        mask[order[:number]] = True
    return mask


def _moments(values: NDArray[np.float32]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over the first axis; constants are left unscaled."""
    exact = values.astype(np.float64)
    std = exact.std(axis=0)
    std = np.where(std < _SMALLEST_STD, 1.0, std)
    mean = exact.mean(axis=0)
    return torch.from_numpy(mean.astype(np.float32)), torch.from_numpy(std.astype(np.float32))


def _shift(frames: NDArray[np.uint8], most: int, rng: np.random.Generator) -> None:
    """Move each of (B, H, W, 3) frames by up to ``most`` pixels, in place, repeating its border."""
    height, width = frames.shape[1:3]
    for frame, (down, right) in zip(
        frames, rng.integers(-most, most + 1, size=(len(frames), 2)), strict=True
    ):
        rows = np.clip(np.arange(height) - down, 0, height - 1)
        columns = np.clip(np.arange(width) - right, 0, width - 1)
        frame[:] = frame[rows][:, columns]


_LUMA = np.array([0.299, 0.587, 0.114])


def _jitter(frames: NDArray[np.uint8], strength: float, rng: np.random.Generator) -> None:
    """Recolour each of (B, H, W, 3) frames, in place, by an affine map of its own.

    Light in stops, colour balance, saturation and contrast are drawn uniformly; at strength 1 they
    reach one stop, a quarter, and a half either way, brightness a tenth of the range.
    """
    for frame in frames:
        light, contrast, saturation, offset, *balance = rng.uniform(-1.0, 1.0, size=7) * strength
        gain = 2.0**light * (1.0 + 0.25 * np.array(balance))
        grey = np.tile(_LUMA, (3, 1))
        mix = grey + (1.0 + 0.5 * saturation) * (np.eye(3) - grey)
        mix = (1.0 + 0.5 * contrast) * gain[:, None] * mix
        # Contrast turns about mid-grey, or a brighter frame would only saturate.
        shift = 255.0 * 0.1 * offset - 127.5 * 0.5 * contrast
        frame[:] = cv2.transform(frame, np.hstack([mix, np.full((3, 1), shift)]))
