"""Demonstrations in one form, whatever they come from.

Frames are upright RGB, commands are those that scenes read (:func:`robogen.specs.canonical`), and
the state is kept part by part, so that every convention can be put on anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robogen.conventions import derivable, derived, drawn, matrix_from_columns, to_scene
from robogen.datasets.demos import DemoDataset
from robogen.datasets.lerobot_reader import LeRobotDataset
from robogen.datasets.schema import DemoMeta
from robogen.errors import ConfigError, RecordsError
from robogen.policies.declared import action_spec
from robogen.probe.frames import Again, held, upright
from robogen.scenes.adapters.family import load_family
from robogen.scenes.base import Scene
from robogen.specs import (
    TOOL_MODES,
    ActionSpec,
    ObservationSpec,
    Orientation,
    SceneSpec,
    canonical,
    turned,
)

Floats = NDArray[np.float64]
_POSE = ("eef_pos", "eef_rot6d")
"""State parts that tell where the tool is; some conventions can only be judged with them."""


class Episode(NamedTuple):
    """One demonstration of T control steps."""

    number: int
    instruction: str
    actions: Floats
    """(T, A), canonical."""
    state: Mapping[str, Floats]
    """(T, D) by state part."""
    frames: Callable[[str, Sequence[int]], NDArray[np.uint8]]
    """Upright frames (n, H, W, 3) of a camera at these steps."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """Demonstrations and their conventions."""

    name: str
    action: ActionSpec
    """How commands were recorded, before they were made canonical."""
    sizes: Mapping[str, int]
    """State parts that are there or follow from what is."""
    cameras: tuple[str, ...]
    orientation: Orientation = "upright"
    """How the frames were recorded, before they were made upright."""
    episodes: Sequence[Episode] = field(default_factory=list)

    @property
    def spec(self) -> SceneSpec:
        """The data as a scene would describe itself, for policies that fit themselves to one."""
        modes = TOOL_MODES if self.action.mode in TOOL_MODES else (self.action.mode,)
        return SceneSpec(
            name=self.name,
            cameras=self.cameras,
            state=self.sizes,
            action_modes=dict.fromkeys(modes, canonical(self.action).dim),
            control_hz=self.action.control_hz,
            horizon=max((len(e.actions) for e in self.episodes), default=1),
            orientation=self.orientation,
        )

    def all_state(self, parts: Sequence[str]) -> Floats:
        """(frames, D) of every episode."""
        rows = [np.hstack([part_of(e.state, part) for part in parts]) for e in self.episodes]
        return np.concatenate(rows)

    def all_actions(self) -> Floats:
        """Canonical commands of every episode."""
        return np.concatenate([episode.actions for episode in self.episodes])


def part_of(state: Mapping[str, Floats], part: str) -> Floats:
    """A state part (T, D) as recorded, or as it follows from what is.

    Raises:
        KeyError: It does not.
    """
    if part in state:
        return state[part]
    length = len(next(iter(state.values())))
    rows = [
        derived(part, {name: values[t] for name, values in state.items()}) for t in range(length)
    ]
    return np.stack(rows)


def poses(state: Mapping[str, Floats]) -> tuple[Floats | None, Floats | None]:
    """Tool positions (T, 3) and rotations (T, 3, 3), where they are known."""
    position = state.get("eef_pos")
    columns = state.get("eef_rot6d")
    rotation = None
    if columns is not None:
        rotation = np.stack([matrix_from_columns(row) for row in columns])
    return position, rotation


# -- sources ---------------------------------------------------------------------------------------


def from_scene(
    scene: Scene,
    spec: ObservationSpec,
    episodes: int,
    *,
    seed: int,
    progress: Callable[[int, int], None],
) -> Data:
    """The scene's expert demonstrates now, seen by the policy's own cameras.

    Raises:
        ConfigError: The scene has no expert, or it hardly ever succeeds.
    """
    from robogen.collect import CollectionRecipe, demonstrate, takes_changes

    if not scene.has_expert:
        raise ConfigError(
            f"Scene '{scene.spec.name}' has no expert that could demonstrate. Give demonstrations: "
            "dataset=FOLDER."
        )
    offered = scene.spec.state
    parts = tuple(dict.fromkeys([*spec.state, *(part for part in _POSE if part in offered)]))
    action = scene.spec.action
    meta = DemoMeta(
        scene=scene.spec.name,
        cameras=tuple(drawn(camera) for camera in spec.cameras),
        state={part: offered[part] for part in parts},
        action=action,
        points=scene.point_names,
        render=scene.spec.render or spec.render,
    )
    # Other episodes than anybody collects: a policy may know those by heart. Disturbed as
    # demonstrations are, where that means something, so that there is something to correct.
    # In the nominal words: a policy need not know others to have its conventions right.
    recipe = CollectionRecipe(seed=2**20 + seed, render=meta.render, paraphrases=False)
    if not takes_changes(scene):
        recipe = replace(recipe, noise_share=0.0)
    later = scene.spec.render == "native"  # where a frame takes as long as a hundred steps
    found: list[Episode] = []
    for index in range(3 * episodes):
        progress(len(found), episodes)
        demo = demonstrate(scene, index, recipe, meta=meta, watched=lambda step: not later)
        if demo is not None:
            frames = held(upright(demo.images, scene.spec.orientation))
            if later:
                frames = Again(scene, demo, recipe, meta)
            found.append(
                Episode(
                    number=index,
                    instruction=demo.info.instruction,
                    actions=_canonical(demo.action, action, {}),
                    state=split(demo.state, meta.state),
                    frames=frames,
                )
            )
        if len(found) == episodes:
            break
    progress(episodes, episodes)
    if len(found) < episodes:
        raise ConfigError(
            f"The expert of scene '{scene.spec.name}' demonstrated {len(found)} of {episodes} "
            f"episodes in {3 * episodes} tries. Ask for fewer, or give dataset=FOLDER."
        )
    return Data(
        name=scene.spec.name,
        action=action,
        sizes=offered,
        cameras=scene.spec.cameras,
        orientation=scene.spec.orientation,
        episodes=found,
    )


def from_dataset(
    folder: Path,
    episodes: int,
    *,
    seed: int,
    cameras: Mapping[str, str] | None = None,
    state: Mapping[str, int] | None = None,
    action: ActionSpec | Mapping[str, Any] | None = None,
    orientation: Orientation | None = None,
) -> Data:
    """Demonstrations from a folder: robogen's own, or any LeRobotDataset.

    Args:
        folder: The dataset.
        episodes: How many to use; they are chosen by the seed.
        seed: Chooses them.
        cameras: For other people's datasets: scene camera to feature.
        state: For other people's datasets: parts of ``observation.state`` and their sizes.
        action: For other people's datasets: how their actions are meant; of fields alone, size
            and control rate are the data's unless given.
        orientation: How their frames are turned; None: as the folder says, or as the scene's
            policies expect where robogen recorded them, else upright.

    Raises:
        ConfigError: The folder is other people's, and it is not said what its numbers mean.
        RecordsError: It is no dataset, or damaged.
    """
    if (folder / "robogen" / "meta.json").exists() or (folder / "meta.json").exists():
        own = DemoDataset(folder)
        return _own(own, episodes, seed, orientation or _recorded(own.meta.scene))
    return _foreign(LeRobotDataset(folder), episodes, seed, cameras, state, action, orientation)


def scene_of(folder: Path) -> str | None:
    """The scene that a folder's demonstrations are of, where robogen recorded them."""
    if (folder / "robogen" / "meta.json").exists() or (folder / "meta.json").exists():
        return DemoDataset(folder).meta.scene
    if not (folder / "meta").is_dir():
        return None
    scene = (LeRobotDataset(folder).conventions or {}).get("scene")
    return None if scene is None else str(scene)


def _recorded(scene: str) -> Orientation:
    """How robogen records the frames of a scene: as its family's policies expect them."""
    family, _, task = scene.partition("/")
    try:
        return load_family(family, task).orientation if task else "upright"
    except ConfigError:  # a family of somebody's own, which is not here
        return "upright"


def _own(dataset: DemoDataset, episodes: int, seed: int, orientation: Orientation) -> Data:
    meta = dataset.meta
    found = []
    for index in _chosen(dataset.indices, episodes, seed, dataset.folder):
        demo = dataset.read(index)
        parts = split(demo.state, meta.state)
        found.append(
            Episode(
                number=index,
                instruction=demo.info.instruction,
                actions=_canonical(demo.action, meta.action, parts),
                state=parts,
                frames=held(upright(demo.images, orientation)),
            )
        )
    return Data(
        name=meta.scene,
        action=meta.action,
        sizes=derivable(meta.state),
        cameras=tuple(camera.name for camera in meta.cameras),
        orientation=orientation,
        episodes=found,
    )


def _foreign(
    dataset: LeRobotDataset,
    episodes: int,
    seed: int,
    cameras: Mapping[str, str] | None,
    state: Mapping[str, int] | None,
    said: ActionSpec | Mapping[str, Any] | None,
    orientation: Orientation | None,
) -> Data:
    about = dataset.conventions or {}
    size = int(np.prod(dataset.feature("action").shape))
    action = ActionSpec(**about["action"]) if "action" in about else None
    if isinstance(said, ActionSpec):
        action = said
    elif said is not None:
        action = action_spec({"dim": size, "control_hz": dataset.fps, **said})
    if state is None and "state" in about:
        state = {str(name): int(size) for name, size in about["state"]}
    if cameras is None:
        cameras = {name.removeprefix("observation.images."): name for name in dataset.cameras}
    if action is None:
        raise ConfigError(
            f"{dataset.folder} does not say what its actions mean. Say it, e.g. action='{{mode: "
            "delta_eef, gripper: close_positive}' (keys: see docs/probe.md); its frame rate is "
            f"{dataset.fps:g} Hz and its actions have {size} numbers."
        )
    if action.dim != size:
        raise ConfigError(
            f"Actions are said to have {action.dim} numbers, and those of {dataset.folder} have "
            f"{size}. Correct action.dim, or leave it out."
        )
    for feature in cameras.values():
        dataset.feature(feature)
    if state is not None:
        have = int(np.prod(dataset.feature("observation.state").shape))
        if sum(state.values()) != have:
            raise ConfigError(
                f"state names {sum(state.values())} numbers ({dict(state)}), and observation.state "
                f"of {dataset.folder} has {have}. Correct the sizes."
            )
    turn: Orientation = orientation or about.get("orientation", "upright")
    found = []
    indices = [row.index for row in dataset.episodes]
    for index in _chosen(indices, episodes, seed, dataset.folder):
        parts = {}
        if state is not None:
            parts = split(dataset.numeric("observation.state", index), state)
        tasks = dataset.episode(index).tasks

        def frames(camera: str, steps: Sequence[int], index: int = index) -> NDArray[np.uint8]:
            shown = dataset.frames(cameras[camera], index, steps)
            return np.stack([turned(frame, turn) for frame in shown])

        found.append(
            Episode(
                number=index,
                instruction=tasks[0] if tasks else "",
                actions=_canonical(dataset.numeric("action", index), action, parts),
                state=parts,
                frames=frames,
            )
        )
    return Data(
        name=str(about.get("scene", dataset.folder.name)),
        action=action,
        sizes=derivable(state or {}),
        cameras=tuple(cameras),
        orientation=turn,
        episodes=found,
    )


def _chosen(indices: Sequence[int], episodes: int, seed: int, folder: Path) -> list[int]:
    if not len(indices):
        raise RecordsError(f"{folder} holds no episode. Collect some first.")
    order = np.random.default_rng(seed).permutation(len(indices))[:episodes]
    return sorted(int(indices[number]) for number in order)


def split(values: NDArray[Any], sizes: Mapping[str, int]) -> dict[str, Floats]:
    """A concatenated state (T, D) by part."""
    found: dict[str, Floats] = {}
    begin = 0
    for part, size in sizes.items():
        found[part] = np.asarray(values[:, begin : begin + size], np.float64)
        begin += size
    return found


def _canonical(actions: NDArray[Any], spec: ActionSpec, state: Mapping[str, Floats]) -> Floats:
    _, rotation = poses(state)
    if spec.frame == "tool" and rotation is None:
        raise ConfigError(
            "The demonstrations' actions are along the tool's axes, and their state does not say "
            "how the tool is turned (eef_rot6d). They cannot be compared."
        )

    def tool(step: int) -> Callable[[], Floats]:
        return lambda: np.eye(3) if rotation is None else rotation[step]

    rows = np.asarray(actions, np.float64)
    return np.stack([to_scene(row, spec, tool(step)) for step, row in enumerate(rows)])
