"""Policies that LeRobot trained, from their pretrained folder, in process and batched.

LeRobot is imported when a policy is made, never before. Chunk queues and observation history are
the harness's: the policy is asked for whole chunks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from robogen.errors import ConfigError, PolicyError
from robogen.policies.base import Normalization, Policy
from robogen.policies.lerobot_folder import Folder, read_folder
from robogen.policies.lerobot_model import SAMPLING, from_hub, load_model
from robogen.policies.lerobot_processors import normalization
from robogen.policies.lerobot_spec import Fitted, asked, fitted, training
from robogen.specs import ActionSpec, Observation, ObservationSpec, PolicySpec, SceneSpec

_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_WINDOWED = ("diffusion", "vqbet")
"""Types whose network has a time axis even where it sees one observation."""
_SETTINGS = (
    "n_obs_steps", "n_action_steps", "chunk_size", "action_chunk_size", "horizon",
    "temporal_ensemble_coeff", "noise_scheduler_type", "num_inference_steps", "num_steps",
    "num_denoising_steps", "num_train_timesteps", "use_amp", "dtype",
)  # fmt: skip
"""Keys of config.json that move results, for the manifest."""


class LeRobotPolicy(Policy):
    """A pretrained folder of LeRobot: ACT, Diffusion, VQ-BeT, or another type with chunks.

    Args:
        checkpoint: The folder, or with ``download`` a name on the Hugging Face hub.
        cameras: Image feature of the policy, or its last word, to scene camera; needed where the
            names differ.
        drawn: Scene camera to the width and height it is rendered at before it is resized to the
            policy's; for a policy trained on frames that had been resized.
        state: State parts, in the order of the training dataset.
        action: How commands are meant: ``mode``, ``frame``, ``rotation``, ``gripper``,
            ``gripper_range``, ``scale_position``, ``scale_rotation``, ``control_hz``.
        observation: ``render``, ``orientation``, ``crop``, ``fit`` and ``channels`` of the frames
            the policy was trained on.
        dataset: Folder of the training dataset, which may say what state and actions are; None
            looks where the folder's train_config.json points.
        execute: Actions of a chunk that are executed before the next query; None takes the
            folder's ``n_action_steps``.
        normalization: ``none`` accepts a folder without processors or statistics.
        temporal_ensemble: False evaluates an ACT policy saved with temporal ensembling without it.
        deterministic: None: as known of the policy's type.
        device: torch device; None: cuda where there is one, else cpu.
        threads: Threads of torch in this process; a worker owns one core.
        download: Whether the hub may be reached: for the folder itself, for tokenizers and for
            backbones.
        revision: Branch, tag or commit on the hub.

    Raises:
        ConfigError: A parameter is wrong.
        PolicyError: The folder is not whole, or LeRobot is not here or refuses it.
    """

    pad: ClassVar[bool] = True
    practical: ClassVar[frozenset[str]] = frozenset(
        {"checkpoint", "dataset", "download", "revision", "threads"}
    )
    explains_checkpoint: ClassVar[bool] = True
    """Whether a checkpoint may be a folder, and what is wrong with one is said here."""

    def __init__(
        self,
        *,
        checkpoint: Path | str | None = None,
        cameras: Mapping[str, str] | None = None,
        drawn: Mapping[str, Sequence[int]] | None = None,
        state: Sequence[str] | None = None,
        action: Mapping[str, Any] | None = None,
        observation: Mapping[str, Any] | None = None,
        dataset: Path | str | None = None,
        execute: int | None = None,
        normalization: str | None = None,
        temporal_ensemble: bool | None = None,
        deterministic: bool | None = None,
        device: str | None = None,
        threads: int = 1,
        download: bool = False,
        revision: str | None = None,
    ) -> None:
        if normalization not in (None, "none"):
            raise ConfigError(
                f"normalization={normalization} is not known. Leave it out, or write "
                "normalization=none to accept a folder without processors."
            )
        path = _place(checkpoint, download=download, revision=revision)
        self._folder = read_folder(path, normalized=normalization is None)
        _check_ensemble(self._folder, temporal_ensemble)
        sampled = SAMPLING.get(self._folder.kind, "alone") != "none"
        self._asked = asked(
            self._folder,
            cameras=cameras,
            drawn=drawn,
            state=state,
            action=action,
            observation=observation,
            execute=execute,
            deterministic=not sampled if deterministic is None else deterministic,
        )
        self._training = training(self._folder, None if dataset is None else Path(dataset))
        torch.set_num_threads(threads)
        self._model = load_model(self._folder, device=device, offline=not download)
        self._hash = self._folder.hash()
        self._seeds: dict[int, int] = {}
        self._fitted: Fitted | None = None
        self.spec = PolicySpec(  # until a scene says what the names and sizes mean
            observation=ObservationSpec(instruction=True),
            action=ActionSpec(
                dim=self._folder.action,
                chunk=self._folder.horizon.chunk,
                execute=self._asked.execute,
            ),
            deterministic=self._asked.deterministic,
        )

    def fit(self, scene: SceneSpec) -> None:
        """Read cameras, state and commands as this scene's.

        Raises:
            SpecError: A name or a size has no reading in the scene, or several.
        """
        self._fitted = fitted(self._folder, self._asked, self._training, scene)
        self.spec = self._fitted.spec

    def reset(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        """Remember the seeds that the rows' noise follows from."""
        self._seeds.update(zip(rows, seeds, strict=True))

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> NDArray[np.float64]:
        """Whole chunks, from the current step on."""
        if self._fitted is None:
            raise PolicyError(
                "The policy was asked to act before it was told its scene. Call fit first."
            )
        cameras = self._fitted.cameras
        if self._model.sampling == "alone":  # padding would cost a forward pass each
            answered = [place for place, row in enumerate(rows) if row >= 0] or [0]
        else:
            answered = list(range(len(rows)))
        asked_for = [observations[place] for place in answered]
        chunks = self._model.chunks(
            images={
                key: self._window(np.stack([o.images[camera] for o in asked_for]), 3)
                for key, camera in cameras.items()
            },
            state=None if self._folder.state is None else self._states(asked_for),
            instructions=[observation.instruction for observation in asked_for],
            seeds=[
                _query_seed(self._seeds.get(rows[place], 0), observations[place].step)
                for place in answered
            ],
        )
        result = np.zeros((len(rows), *chunks.shape[1:]))
        result[answered] = chunks
        return result

    def _states(self, observations: Sequence[Observation]) -> NDArray[np.float32]:
        states = np.stack([observation.state for observation in observations])
        if states.shape[-1] != self._folder.state:
            raise PolicyError(
                f"The policy reads a state of {self._folder.state} numbers "
                f"({', '.join(self.spec.observation.state)}), got {states.shape[-1]}."
            )
        return np.asarray(self._window(states, 1), np.float32)

    def _window(self, values: NDArray[Any], axes: int) -> NDArray[Any]:
        """With a time axis where the policy's network has one."""
        if self._folder.kind in _WINDOWED and values.ndim == axes + 1:
            return values[:, None]
        return values

    def identity(self) -> dict[str, str]:
        """The folder's hash, what of its configuration moves results, and how it was read."""
        config = self._folder.config
        facts = {
            "type": self._folder.kind,
            "checkpoint": self._hash,
            "execute": str(self._asked.execute),
            "actions_per_query": str(self._folder.horizon.chunk),
            **{key: str(config[key]) for key in _SETTINGS if key in config},
            "normalization": "folder" if self._folder.pipelines else "none",
            "device": self._model.device,
            **self._model.versions,
        }
        if self._fitted is not None:
            facts |= self._fitted.sources
            facts["cameras"] = ", ".join(f"{k}: {c}" for k, c in self._fitted.cameras.items())
        return facts

    def normalization(self) -> Mapping[str, Normalization]:
        """From the folder's processors."""
        return normalization(self._folder.pipelines)

    def round_trip(self, actions: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Normalised as for training and back, by the folder's processors."""
        return self._model.round_trip(actions)


def _place(checkpoint: Path | str | None, *, download: bool, revision: str | None) -> Path:
    if checkpoint is None:
        raise ConfigError(
            "Policy 'lerobot' needs checkpoint=FOLDER, the folder that LeRobot saved: "
            "policy.lerobot.checkpoint=outputs/train/NAME/checkpoints/last/pretrained_model."
        )
    path = Path(checkpoint).expanduser()
    if download and not path.exists() and _HUB.fullmatch(str(checkpoint)):
        return from_hub(str(checkpoint), revision)
    return path


def _check_ensemble(folder: Folder, wanted: bool | None) -> None:
    coefficient = folder.config.get("temporal_ensemble_coeff")
    if wanted:
        raise ConfigError(
            "temporal_ensemble=true is not supported: it blends chunks of earlier queries, and "
            "robogen's policies answer each query by its observation alone. Leave it out."
        )
    if coefficient is not None and wanted is None:
        raise PolicyError(
            f"{folder.path} was saved with temporal ensembling (temporal_ensemble_coeff "
            f"{coefficient}): LeRobot then queries at every step and blends the chunks of earlier "
            "queries, which robogen does not. Evaluate the network without it, with execute=1 or "
            "more: policy.lerobot.temporal_ensemble=false. That is another policy than LeRobot's "
            "own evaluation runs; to keep the blend, serve it with the openpi protocol."
        )


def _query_seed(seed: int, step: int) -> int:
    """Seed of one query: a function of the row's seed and the episode's step alone."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)
