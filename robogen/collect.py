"""Demonstrations by a scene's oracle: train values of factors, noise on what is executed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robogen.datasets.demos import DemoDataset, DemoWriter
from robogen.datasets.lerobot_writer import LeRobotForm, assemble, episodes_folder
from robogen.datasets.schema import DemoEpisode, DemoMeta, EpisodeInfo
from robogen.errors import ConfigError, unknown
from robogen.perturbations.base import Factor
from robogen.perturbations.engine import Perturbation, Values
from robogen.rollout.start import begin
from robogen.scenes.base import Scene
from robogen.seeding import EpisodeSeed
from robogen.specs import CameraSpec, RenderProfile, Split

STATE = ("eef_pos", "eef_rot6d", "gripper_opening")
"""State parts that are recorded unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class CollectionRecipe:
    """What to collect.

    Each demonstration varies at most one factor: episodes go round over nominal and the factors,
    so a dataset can be cut by factor afterwards.

    Raises:
        ConfigError: A value is out of range.
    """

    episodes: int = 200
    seed: int = 0
    image_size: int = 96
    """Edge of every camera's frames [px]."""
    render: RenderProfile = "fast"
    state: tuple[str, ...] | None = None
    """State parts to record; None: of :data:`STATE`, what the scene offers."""
    noise_share: float = 0.25
    """Share of steps on which the executed action is disturbed; the recorded one never is."""
    noise_translation: float = 0.3
    """Standard deviation of that disturbance on translation, in action units."""
    noise_rotation: float = 0.15
    """The same on rotation."""
    split: Split = "train"
    severity: float = 1.0
    nominal: bool = True
    """Take nominal episodes in turn with those of the factors."""
    values: int | None = None
    """Different values of every factor; None: a new one in each of its episodes."""
    positions: int | None = None
    """Different placements of the objects; None: a new one in every episode."""
    paraphrases: bool = True
    """Word instructions with the split's paraphrases, besides the nominal one."""

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ConfigError(f"episodes must be at least 1, got {self.episodes}.")
        for name in ("values", "positions"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ConfigError(f"{name} must be at least 1, got {number}.")
        if not 0.0 <= self.noise_share <= 1.0:
            raise ConfigError(f"noise_share must lie in 0..1, got {self.noise_share}.")


class Collected(NamedTuple):
    """What a collection came to."""

    written: int
    present: int
    """Episodes that were already there."""
    failed: tuple[int, ...]
    """Episode indices on which the oracle did not succeed; not written."""


def collect_dataset(
    scene: Scene,
    out: Path,
    recipe: CollectionRecipe,
    *,
    form: LeRobotForm | None,
    factors: Sequence[Factor] = (),
    command: str = "",
    progress: Callable[[int, int], None] = lambda done, total: None,
    assembling: Callable[[int, int], None] = lambda done, total: None,
) -> Collected:
    """Write demonstrations as a LeRobotDataset; run again to continue.

    The exact episodes lie in ``out/robogen``, which :class:`~robogen.datasets.DemoDataset` finds.

    Args:
        scene: Where.
        out: Dataset folder.
        recipe: How many and how.
        form: Version and codec; None leaves it at the exact episodes, which then lie in ``out``.
        factors: Factors to vary, see :func:`collect`.
        command: What to write into the dataset as its command.
        progress: Called with (episodes done, total) while collecting.
        assembling: Called with (episodes done, total) while the dataset is put together.
    """
    if form is not None:
        form.check(_cameras(scene, recipe))
    folder = episodes_folder(out, alone=form is None)
    collected = collect(scene, folder, recipe, factors=factors, command=command, progress=progress)
    episodes = DemoDataset(folder)
    if form is not None and len(episodes):
        assemble(episodes, out, form, orientation=scene.spec.orientation, progress=assembling)
    return collected


def collect(
    scene: Scene,
    out: Path,
    recipe: CollectionRecipe,
    *,
    factors: Sequence[Factor] = (),
    command: str = "",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Collected:
    """Write demonstrations of the scene's oracle; run again to continue.

    Args:
        scene: Where.
        out: Folder of the exact episodes.
        recipe: How many and how.
        factors: Factors to vary, one per demonstration; nominal only when empty.
        command: What to write into the dataset as its command.
        progress: Called with (episodes done, total).
    """
    cameras = _cameras(scene, recipe)
    action = scene.spec.action
    state = recipe.state or tuple(part for part in STATE if part in scene.spec.state)
    for part in state:
        if part not in scene.spec.state:
            raise ConfigError(unknown("state part", part, scene.spec.state))
    if recipe.noise_share > 0 and not takes_changes(scene):
        raise ConfigError(
            f"noise_share is {recipe.noise_share:g}, and scene '{scene.spec.name}' takes absolute "
            "commands, for which noise in action units has no meaning. Set noise_share=0."
        )
    meta = DemoMeta(
        scene=scene.spec.name,
        cameras=cameras,
        state={part: scene.spec.state[part] for part in state},
        action=action,
        points=scene.point_names,
        render=scene.spec.render or recipe.render,
        collection={**_settings(recipe), "factors": [factor.name for factor in factors]},
        command=command,
    )
    writer = DemoWriter(out, meta)
    wanted = writer.missing(range(recipe.episodes))
    present = recipe.episodes - len(wanted)
    failed: list[int] = []
    for done, index in enumerate(wanted):
        progress(present + done, recipe.episodes)
        episode = demonstrate(scene, index, recipe, meta=meta, factors=factors)
        if episode is None:
            failed.append(index)
        else:
            writer.write(episode)
    progress(recipe.episodes, recipe.episodes)
    return Collected(len(wanted) - len(failed), present, tuple(failed))


def _cameras(scene: Scene, recipe: CollectionRecipe) -> tuple[CameraSpec, ...]:
    return tuple(
        CameraSpec(name=name, width=recipe.image_size, height=recipe.image_size)
        for name in scene.spec.cameras
    )


def takes_changes(scene: Scene) -> bool:
    """Whether commands are changes: then staying put is zero but for the gripper."""
    scene.reset(scene.prepare(EpisodeSeed(domain="collect", study=0, scene="", episode=0))[0])
    return not scene.rest_action(scene.spec.action)[:-1].any()


def _settings(recipe: CollectionRecipe) -> dict[str, Any]:
    """Recipe fields that decide what an episode looks like; the count does not."""
    settings = asdict(recipe)
    del settings["episodes"]
    for name, plain in (("nominal", True), ("values", None), ("positions", None)):
        if settings[name] == plain:  # so that demonstrations keep the settings they are known by
            del settings[name]
    settings["state"] = list(recipe.state or STATE)
    return settings


def _rounds(factors: Sequence[Factor], recipe: CollectionRecipe) -> Iterator[Perturbation]:
    plain = recipe.nominal or not factors
    if plain:
        yield Perturbation([], split=recipe.split)
    values = recipe.values and Values(
        number=recipe.values, domain="collect", study=recipe.seed, every=plain + len(factors)
    )
    for factor in factors:
        yield Perturbation([(factor, recipe.severity)], split=recipe.split, values=values or None)


def demonstrate(
    scene: Scene,
    index: int,
    recipe: CollectionRecipe,
    *,
    meta: DemoMeta,
    factors: Sequence[Factor] = (),
    watched: Callable[[int], bool] = lambda step: True,
) -> DemoEpisode | None:
    """One demonstration, or None when the oracle does not succeed within the horizon.

    Args:
        scene: Where.
        index: Which; with the recipe's seed it decides everything.
        recipe: How it is demonstrated.
        meta: What is recorded.
        factors: Factors to vary.
        watched: Steps whose frames are taken, told by their number.
    """
    rounds = list(_rounds(factors, recipe))
    perturbation = rounds[index % len(rounds)]
    seed = EpisodeSeed(domain="collect", study=recipe.seed, scene=scene.spec.name, episode=index)
    draws, instruction, _ = begin(scene, perturbation, seed, placement=_placement(seed, recipe))
    if recipe.paraphrases:
        wordings = scene.wordings(recipe.split)
        instruction = wordings[int(seed.stream("wording").integers(len(wordings)))]
    delay = perturbation.action_filter(draws, scene.rest_action(meta.action))
    noise = seed.stream("noise")
    images: dict[str, list[NDArray[np.uint8]]] = {camera.name: [] for camera in meta.cameras}
    state, actions, points = [], [], []
    success = False
    for step in range(scene.spec.horizon):
        seen = scene.images(meta.cameras, meta.render) if watched(step) else {}
        for name, image in seen.items():
            if perturbation.has_image_filter:
                image = perturbation.filter_image(image, draws, seed.stream("image", step, name))
            images[name].append(image)
        state.append(scene.proprioception(list(meta.state)))
        points.append(scene.points())
        action = scene.expert_action(meta.action, delay.pending())
        actions.append(action.astype(np.float32))
        result = scene.step(delay(_disturbed(action, noise, recipe)), meta.action)
        if result.success:
            success = True
            break
    scene.world.edit.restore()
    scene.rebuild(None)
    if not success:
        return None
    return DemoEpisode(
        images={name: np.stack(frames) for name, frames in images.items() if frames},
        state=np.stack(state),
        action=np.stack(actions),
        points=np.stack(points),
        info=EpisodeInfo(
            index=index,
            instruction=instruction,
            length=len(actions),
            success=True,
            domain="collect",
            split=recipe.split,
            draws=draws,
        ),
    )


def _placement(seed: EpisodeSeed, recipe: CollectionRecipe) -> EpisodeSeed | None:
    """Whose placement an episode has where there are only so many."""
    if recipe.positions is None:
        return None
    turn = seed.episode % recipe.positions
    return EpisodeSeed(domain=seed.domain, study=seed.study, scene=seed.scene, episode=turn)


def _disturbed(
    action: NDArray[np.float64], rng: np.random.Generator, recipe: CollectionRecipe
) -> NDArray[np.float64]:
    moving = action.size - 1  # the gripper is left alone
    spread = np.where(np.arange(moving) < 3, recipe.noise_translation, recipe.noise_rotation)
    kick = rng.normal(size=moving) * spread
    if rng.uniform() >= recipe.noise_share:
        return action
    noisy = action.copy()
    noisy[:-1] = np.clip(noisy[:-1] + kick, -1.0, 1.0)
    return noisy
