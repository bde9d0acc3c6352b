"""Conventions of a LeRobot policy in a scene: which camera, state part and command is which.

A pretrained folder has names and sizes only. What they mean comes from the user's parameters, else
from the dataset the policy was trained on, else from the scene where only one reading is possible.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from robogen.conventions import derivable
from robogen.datasets.lerobot_format import CONVENTIONS, INFO
from robogen.errors import ConfigError, PolicyError, SpecError, nearest, unknown
from robogen.policies.declared import action_spec, observation_spec, state_parts
from robogen.policies.lerobot_folder import Folder
from robogen.policies.lerobot_processors import STATE
from robogen.specs import (
    STATE_LAYOUT,
    ActionSpec,
    CameraSpec,
    ObservationSpec,
    PolicySpec,
    SceneSpec,
)

IMAGES = "observation.images."
_ACTION_KEYS = tuple(
    item.name for item in fields(ActionSpec) if item.name not in ("dim", "chunk", "execute")
)
_TOGETHER = (
    ("eef_rot6d", "eef_axis_angle", "eef_quat_xyzw", "eef_quat_wxyz", "eef_euler_xyz"),
    ("gripper_opening", "gripper_qpos", "gripper_closed"),
)
"""Parts that say the same thing in two ways; a guess holds at most one of each."""
_SHOWN = 6


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The user's parameters, as written."""

    cameras: Mapping[str, str]
    """Policy's image feature, or its last word, to scene camera."""
    drawn: Mapping[str, tuple[int, int]]
    """Scene camera to width and height it is rendered at, before resizing."""
    state: tuple[str, ...] | None
    action: Mapping[str, Any]
    observation: Mapping[str, Any]
    execute: int
    deterministic: bool


@dataclass(frozen=True, kw_only=True)
class Training:
    """What the dataset a policy was trained on says about its numbers."""

    state: tuple[str, ...] | None = None
    action: Mapping[str, Any] | None = None
    fps: float | None = None
    observation: Mapping[str, Any] = field(default_factory=dict)
    """How its frames were drawn and are turned."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A spec, and where each of its choices comes from."""

    spec: PolicySpec
    cameras: Mapping[str, str]
    """Image feature to scene camera."""
    sources: Mapping[str, str]
    """``state`` and ``action`` in words, for the manifest."""


def asked(
    folder: Folder,
    *,
    cameras: Mapping[str, str] | None,
    drawn: Mapping[str, Sequence[int]] | None,
    state: Sequence[str] | None,
    action: Mapping[str, Any] | None,
    observation: Mapping[str, Any] | None,
    execute: int | None,
    deterministic: bool,
) -> Asked:
    """Parameters checked against the folder and against what specs can hold.

    Raises:
        ConfigError: An unknown name or an impossible value.
    """
    for what, given in (("cameras", cameras), ("drawn", drawn)):
        if given is not None and not isinstance(given, Mapping):
            raise ConfigError(f"{what} must map names to values, got {given!r}.")
    short = {_last(key): key for key in folder.cameras}
    chosen = {}
    for key, camera in (cameras or {}).items():
        if key not in folder.cameras and key not in short:
            names = [*folder.cameras, *short]
            raise ConfigError(unknown("image feature of the policy", str(key), names))
        chosen[short.get(str(key), str(key))] = str(camera)
    for what, values, fixed in (
        ("action", action, ("dim", "chunk", "execute")),
        ("observation", observation, ("history", "layout", "pixels")),
    ):
        for key in fixed:
            if key in (values or {}):
                raise ConfigError(
                    f"{what}.{key} follows from {folder.path} and cannot be chosen. Remove it"
                    f"{'; execute stands beside action' if key == 'execute' else ''}."
                )
    action_spec(action)
    observation_spec(observation)
    horizon = folder.horizon
    steps = horizon.execute if execute is None else execute
    if not isinstance(steps, int) or not 1 <= steps <= horizon.chunk:
        raise ConfigError(
            f"execute must be a whole number from 1 to {horizon.chunk}, the actions that a query "
            f"of {folder.path} gives; got {steps!r}. Its own n_action_steps is {horizon.execute}."
        )
    return Asked(
        cameras=chosen,
        drawn={str(name): _size(name, value) for name, value in (drawn or {}).items()},
        state=None if state is None else state_parts(state),
        action=dict(action or {}),
        observation=dict(observation or {}),
        execute=steps,
        deterministic=deterministic,
    )


def _size(name: str, value: Any) -> tuple[int, int]:
    if not (
        isinstance(value, list | tuple) and len(value) == 2 and all(type(n) is int for n in value)
    ):
        raise ConfigError(f"drawn.{name} must be [width, height] in pixels, got {value!r}.")
    return value[0], value[1]


# -- the training dataset --------------------------------------------------------------------------


def training(folder: Folder, dataset: Path | None) -> Training:
    """What the training dataset says, where it can be read.

    Args:
        folder: The policy; its ``train_config.json`` may name the dataset.
        dataset: The dataset's folder, from the user.

    Raises:
        PolicyError: The user's dataset cannot be read.
    """
    root = dataset if dataset is not None else _named_dataset(folder.path / "train_config.json")
    if root is None:
        return Training()
    file = root / INFO
    try:
        info = json.loads(file.read_text(encoding="utf-8"))
        features = info["features"]
        fps = float(info["fps"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        if dataset is None:
            return Training()
        raise PolicyError(
            f"{dataset} is no LeRobotDataset: {file} cannot be read ({error!r}). Give the folder "
            "that holds meta/, data/ and videos/, or leave dataset out."
        ) from error
    own = _conventions(root)
    return Training(
        state=own.state or _parts((features.get(STATE) or {}).get("names")),
        action=own.action,
        fps=fps,
        observation=own.observation,
    )


def _named_dataset(config: Path) -> Path | None:
    try:
        dataset = json.loads(config.read_text(encoding="utf-8"))["dataset"]
        root = dataset.get("root")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Path(root) if isinstance(root, str) and Path(root).is_dir() else None


def _parts(names: Any) -> tuple[str, ...] | None:
    """State parts in order, of names such as ``eef_pos.x`` or ``eef_pos_0``; None when foreign."""
    if isinstance(names, Mapping):
        names = next(iter(names.values()), None)
    if not isinstance(names, list):
        return None
    found: list[str] = []
    for name in names:
        fitting = [part for part in STATE_LAYOUT if str(name).startswith(part)]
        if not fitting:
            return None
        part = max(fitting, key=len)
        if part not in found:
            found.append(part)
    return tuple(found)


def _conventions(root: Path) -> Training:
    """What robogen wrote beside a dataset of its own; nothing for others."""
    try:
        said = json.loads((root / CONVENTIONS).read_text(encoding="utf-8"))
        action = dict(said["action"])
        parts = tuple(str(part) for part, _ in said["state"])
    except (OSError, ValueError, KeyError, TypeError):
        return Training()
    return Training(
        state=parts,
        action={key: action[key] for key in _ACTION_KEYS if key in action},
        observation={key: said[key] for key in ("render", "orientation") if key in said},
    )


# -- fitting a scene -------------------------------------------------------------------------------


def fitted(folder: Folder, ask: Asked, known: Training, scene: SceneSpec) -> Fitted:
    """The policy's conventions in a scene.

    Raises:
        SpecError: A camera, the state or the command has no reading, or more than one; the message
            offers those there are.
    """
    cameras = _cameras(folder, ask, scene)
    state, state_source = _state(folder, ask, known, scene)
    action, action_source = _action(folder, ask, known, scene)
    observations = folder.horizon.observations
    observation = ObservationSpec(
        cameras=tuple(
            CameraSpec(name=camera, width=width, height=height, drawn=ask.drawn.get(camera))
            for camera, (height, width) in (
                (cameras[key], size) for key, size in folder.cameras.items()
            )
        ),
        state=state,
        instruction=True,
        history=tuple(range(1 - observations, 1)),
    )
    seen = {**known.observation, **ask.observation}
    return Fitted(
        spec=PolicySpec(
            observation=observation_spec(seen, base=observation),
            action=action,
            deterministic=ask.deterministic,
        ),
        cameras=cameras,
        sources={"state": state_source, "action": action_source},
    )


def _cameras(folder: Folder, ask: Asked, scene: SceneSpec) -> dict[str, str]:
    renamed = folder.renamed
    found = {}
    for key in folder.cameras:
        found[key] = ask.cameras.get(key, _last(renamed.get(key, key)))
    foreign = [key for key, camera in found.items() if camera not in scene.cameras]
    if foreign:
        offer = ", ".join(
            f"{key}: {nearest(found[key], scene.cameras) or _free(scene, found)}" for key in foreign
        )
        raise SpecError(
            f"The policy's cameras {', '.join(foreign)} are not in scene '{scene.name}' (it has "
            f"{', '.join(scene.cameras)}). Say which is which, e.g. "
            f'"policy.lerobot.cameras={{{offer}}}", in the file\'s own name if it has another.'
        )
    if len(set(found.values())) < len(found):
        raise SpecError(
            f"Two image features of the policy are one camera of scene '{scene.name}': {found}. "
            f"Map each to its own, of {', '.join(scene.cameras)}."
        )
    return found


def _free(scene: SceneSpec, taken: Mapping[str, str]) -> str:
    """A camera to offer, one that no other feature has where there is one."""
    free = [camera for camera in scene.cameras if camera not in taken.values()]
    return next(iter(free or scene.cameras), "CAMERA")


def _last(key: str) -> str:
    return key.removeprefix(IMAGES).removeprefix("observation.")


def _state(
    folder: Folder, ask: Asked, known: Training, scene: SceneSpec
) -> tuple[tuple[str, ...], str]:
    if folder.state is None:
        return (), "none"
    sizes = derivable(scene.state)
    for parts, source in ((ask.state, "given"), (known.state, "its dataset")):
        if parts is None:
            continue
        missing = [part for part in parts if part not in sizes]
        total = sum(sizes.get(part, 0) for part in parts)
        if missing or total != folder.state:
            raise SpecError(
                f"The policy reads a state of {folder.state} numbers; {', '.join(parts)} "
                f"({source}) have {total} in scene '{scene.name}'"
                f"{', without ' + ', '.join(missing) if missing else ''}. It offers "
                f"{_offered(sizes)}. {_say_state(sizes, folder.state)}"
            )
        return parts, f"{', '.join(parts)} ({source})"
    candidates = _candidates(sizes, folder.state)
    if len(candidates) != 1:
        raise SpecError(
            f"The policy reads a state of {folder.state} numbers and its folder does not say "
            f"which. Scene '{scene.name}' offers {_offered(sizes)}. "
            f"{_say_state(sizes, folder.state)} Or give the training dataset: "
            "policy.lerobot.dataset=FOLDER."
        )
    return candidates[0], f"{', '.join(candidates[0])} (the only parts of that size)"


def _offered(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({size})" for name, size in sizes.items())


def _candidates(sizes: Mapping[str, int], total: int) -> list[tuple[str, ...]]:
    """Choices of parts with that many numbers, in the order they are concatenated."""
    names = [name for name in STATE_LAYOUT if name in sizes]
    return [
        parts
        for count in range(1, len(names) + 1)
        for parts in combinations(names, count)
        if sum(sizes[name] for name in parts) == total
        and all(len(set(parts) & set(same)) <= 1 for same in _TOGETHER)
    ]


def _say_state(sizes: Mapping[str, int], total: int) -> str:
    found = _candidates(sizes, total)
    if not found:
        return f"No choice of them has {total} numbers; the policy is for another robot."
    shown = " or ".join(f"[{','.join(parts)}]" for parts in found[:_SHOWN])
    more = f" or one of {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"Say which, in the dataset's order: policy.lerobot.state={shown}{more}."


def _action(
    folder: Folder, ask: Asked, known: Training, scene: SceneSpec
) -> tuple[ActionSpec, str]:
    horizon = folder.horizon
    base = ActionSpec(
        dim=folder.action,
        control_hz=known.fps or scene.control_hz,
        chunk=horizon.chunk,
        execute=ask.execute,
    )
    said = {**(known.action or {}), **ask.action}
    if "mode" in said:
        source = "given" if "mode" in ask.action else "its dataset"
        return action_spec(said, base=base), f"{said['mode']} ({source})"
    preferred = scene.action
    if preferred.dim != folder.action:
        modes = ", ".join(f"{mode} ({dim})" for mode, dim in scene.action_modes.items())
        fitting = [m for m, dim in scene.action_modes.items() if dim == folder.action]
        raise SpecError(
            f"The policy commands {folder.action} numbers and its folder does not say what they "
            f"are; scene '{scene.name}' reads {modes}. Say how they are meant: "
            f"policy.lerobot.action.mode={fitting[0] if fitting else 'MODE'}, with rotation, "
            "frame, gripper and control_hz where they differ from the scene's."
        )
    action = action_spec(said, base=replace(base, mode=preferred.mode))
    return action, f"{preferred.mode} (the scene's own, the folder does not say)"
