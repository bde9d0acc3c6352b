"""Moments of demonstrations that a policy is asked about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robogen.errors import ConfigError, unknown
from robogen.probe.samples import Data, Episode, part_of, poses
from robogen.specs import ObservationSpec

Floats = NDArray[np.float64]


class Sample(NamedTuple):
    """One moment to ask a policy about."""

    episode: int
    """Position among the episodes used; moments of one episode are not independent."""
    step: int
    frames: Mapping[str, NDArray[np.uint8]]
    """Upright frames (H', height, width, 3) by camera, one per offset of the policy's history."""
    state: Mapping[str, Floats]
    """(H', D) by state part."""
    instruction: str
    wanted: Floats
    """What was demonstrated from ``AHEAD`` steps before this moment on, (K + 2 AHEAD, A)."""
    position: Floats | None
    """Tool position [m] at this moment and after, (K, 3), base frame."""
    rotation: Floats | None
    """The same as rotation matrices (K, 3, 3)."""


AHEAD = 2
"""Steps before and after, to see whether a policy is early or late."""


def sample(
    data: Data, spec: ObservationSpec, *, frames: int, actions: int
) -> tuple[list[Sample], list[str]]:
    """Moments spread over episodes, those where the gripper turns over among them.

    Args:
        data: Demonstrations.
        spec: What the policy observes.
        frames: About how many moments in all.
        actions: K, actions of a chunk that are looked at.

    Returns:
        The moments, and what could not be taken from the data, in words.

    Raises:
        ConfigError: The data lack a camera or state part that the policy reads.
    """
    for camera in spec.cameras:
        if camera.name not in data.cameras:
            raise ConfigError(
                unknown(
                    "camera of the demonstrations",
                    camera.name,
                    data.cameras,
                    "Say which is which: cameras='{NAME: FEATURE}'.",
                )
            )
    for part in spec.state:
        if part not in data.sizes:
            raise ConfigError(
                unknown(
                    "state part of the demonstrations",
                    part,
                    data.sizes,
                    "The policy reads it, so demonstrations must have it; in other people's "
                    "datasets, state='{PART: SIZE, ...}' says what observation.state holds.",
                )
            )
    each = max(2, round(frames / len(data.episodes)))
    found: list[Sample] = []
    for place, episode in enumerate(data.episodes):
        found += _moments(place, episode, spec, each, actions)
    lacks = []
    if "eef_rot6d" not in data.episodes[0].state:
        lacks.append("the demonstrations do not say how the tool is turned")
    if "eef_pos" not in data.episodes[0].state:
        lacks.append("the demonstrations do not say where the tool is")
    return found, lacks


def _moments(
    place: int, episode: Episode, spec: ObservationSpec, each: int, actions: int
) -> Iterator[Sample]:
    length = len(episode.actions)
    steps = _steps(episode.actions[:, -1], each)
    position, rotation = poses(episode.state)
    shown = {t: [max(0, t + offset) for offset in spec.history] for t in steps}
    needed = sorted({s for group in shown.values() for s in group})
    frames = {
        camera.name: dict(zip(needed, episode.frames(camera.name, needed), strict=True))
        for camera in spec.cameras
    }
    for t in steps:
        ahead = np.clip(np.arange(t - AHEAD, t + actions + AHEAD), 0, length - 1)
        inside = np.clip(np.arange(t, t + actions), 0, length - 1)
        yield Sample(
            episode=place,
            step=t,
            frames={name: np.stack([f[s] for s in shown[t]]) for name, f in frames.items()},
            state={part: part_of(episode.state, part)[shown[t]] for part in _parts(spec)},
            instruction=episode.instruction,
            wanted=episode.actions[ahead],
            position=None if position is None else position[inside],
            rotation=None if rotation is None else rotation[inside],
        )


def _parts(spec: ObservationSpec) -> list[str]:
    """What the policy reads, and other words for the same orientation."""
    quaternions = [part for part in ("eef_quat_xyzw", "eef_quat_wxyz") if part in spec.state]
    both = ["eef_quat_xyzw", "eef_quat_wxyz"] if quaternions else []
    return list(dict.fromkeys([*spec.state, *both]))


def _steps(gripper: Floats, each: int) -> list[int]:
    turning = np.flatnonzero(np.abs(np.diff(gripper)) > 0.5)
    near = {int(t) + k for t in turning[: max(1, each // 4)] for k in (0, 1)}
    spread = np.linspace(0, len(gripper) - 1, max(1, each - len(near))).round().astype(int)
    return sorted({int(t) for t in spread} | near)
