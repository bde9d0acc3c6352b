"""What might be meant instead: one changed convention at a time.

A candidate is how the harness would have to treat the policy for it to be right: frames turned,
parts in another order, commands read in another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from robogen.conventions import presented, to_scene
from robogen.probe.moments import AHEAD, Sample
from robogen.specs import (
    ROTATION_SIZE,
    TOOL_MODES,
    ActionSpec,
    Channels,
    Observation,
    ObservationSpec,
    Orientation,
    Pixels,
    turned,
)

Floats = NDArray[np.float64]
Triple = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Everything the harness assumes of a policy at once; a candidate changes one field."""

    observation: ObservationSpec
    orientation: Orientation
    action: ActionSpec
    cameras: tuple[tuple[str, str], ...] = ()
    """Policy's camera and whose frame it gets."""
    axes: Triple = (0, 1, 2)
    """Which of the policy's position numbers is x, y and z."""
    signs: Triple = (1, 1, 1)
    turns: Triple = (1, 1, 1)
    """Signs of the rotation's numbers."""
    position_scale: float = 1.0
    rotation_scale: float = 1.0
    shift: int = 0
    """Steps by which the first action of a chunk is for a later moment than it is taken for."""

    @property
    def query(self) -> tuple[Any, ...]:
        """What decides the policy's answers; the rest only reads them."""
        return (self.observation, self.orientation, self.cameras)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Another reading."""

    convention: str
    """What it is about, the same for all candidates that exclude each other."""
    name: str
    reading: Reading = field(repr=False)
    remedy: str = ""
    """What to change, in words or as a setting."""


CONVENTIONS = (
    "image orientation",
    "channel order",
    "pixel range",
    "crop",
    "cameras",
    "state order",
    "quaternion order",
    "gripper",
    "action mode",
    "action frame",
    "rotation representation",
    "position axes",
    "rotation axes",
    "position scale",
    "rotation scale",
    "timing",
)
"""In the order in which they are reported, and preferred where two explain the same."""


PIXELS: Mapping[Pixels, str] = {"uint8": "0 to 255", "unit": "0 to 1"}


def configured(reading: Reading, convention: str) -> str:
    """What a reading says of a convention."""
    observation, action = reading.observation, reading.action
    swapped = [f"{a} gets {b}" for a, b in reading.cameras if a != b]
    return {
        "image orientation": reading.orientation,
        "channel order": observation.channels,
        "pixel range": PIXELS[observation.pixels],
        "crop": "whole frame" if observation.crop == 1.0 else f"middle {observation.crop:g}",
        "cameras": ", ".join(swapped) or "as named",
        "state order": ", ".join(observation.state),
        "quaternion order": ", ".join(p for p in observation.state if "quat" in p),
        "gripper": f"{action.gripper}, {action.gripper_range}",
        "action mode": action.mode,
        "action frame": action.frame,
        "rotation representation": action.rotation,
        "position axes": _axes(reading.axes, reading.signs),
        "rotation axes": _axes((0, 1, 2), reading.turns, names=("rx", "ry", "rz")),
        "position scale": f"×{reading.position_scale:g}",
        "rotation scale": f"×{reading.rotation_scale:g}",
        "timing": "on time" if not reading.shift else f"{reading.shift:+d} steps",
    }[convention]


def _axes(
    axes: tuple[int, int, int],
    signs: tuple[int, int, int],
    names: tuple[str, ...] = ("x", "y", "z"),
) -> str:
    return " ".join(("" if s > 0 else "-") + names[a] for a, s in zip(axes, signs, strict=True))


def candidates(reading: Reading, samples: list[Sample]) -> Iterator[Candidate]:
    """Every reading that differs from this one in a single convention."""
    yield from _of_frames(reading)
    yield from _of_state(reading)
    yield from _of_actions(reading, samples)


def _of_frames(reading: Reading) -> Iterator[Candidate]:
    observation = reading.observation
    names = [camera.name for camera in observation.cameras]
    if not names:
        return
    for other in get_args(Orientation):
        if other != reading.orientation:
            yield Candidate(
                convention="image orientation",
                name=other,
                reading=replace(reading, orientation=other),
                remedy=f"observation.orientation={other}",
            )
    channels: Channels = "bgr" if observation.channels == "rgb" else "rgb"
    yield Candidate(
        convention="channel order",
        name=channels,
        reading=replace(reading, observation=replace(observation, channels=channels)),
        remedy=f"observation.channels={channels}",
    )
    pixels: Pixels = "unit" if observation.pixels == "uint8" else "uint8"
    yield Candidate(
        convention="pixel range",
        name=PIXELS[pixels],
        reading=replace(reading, observation=replace(observation, pixels=pixels)),
        remedy=f"observation.pixels={pixels}",
    )
    for crop in (1.0, 0.9, 0.8):
        if abs(crop - observation.crop) > 1e-6:
            yield Candidate(
                convention="crop",
                name="whole frame" if crop == 1.0 else f"middle {crop:g}",
                reading=replace(reading, observation=replace(observation, crop=crop)),
                remedy=f"observation.crop={crop:g}",
            )
    sizes = {c.name: (c.width, c.height) for c in observation.cameras}
    shown = dict(reading.cameras)
    for one, two in combinations(names, 2):
        if sizes[one] == sizes[two]:
            swapped = {**shown, one: shown[two], two: shown[one]}
            yield Candidate(
                convention="cameras",
                name=f"{one} and {two} swapped",
                reading=replace(reading, cameras=tuple(swapped.items())),
                remedy=f"cameras: {one} and {two} are mixed up",
            )


def _of_state(reading: Reading) -> Iterator[Candidate]:
    parts = reading.observation.state
    for one, two in combinations(range(len(parts)), 2):
        order = list(parts)
        order[one], order[two] = order[two], order[one]
        observation = replace(reading.observation, state=tuple(order))
        yield Candidate(
            convention="state order",
            name=", ".join(order),
            reading=replace(reading, observation=observation),
            remedy=f"state=[{','.join(order)}]",
        )
    other = {"eef_quat_xyzw": "eef_quat_wxyz", "eef_quat_wxyz": "eef_quat_xyzw"}
    for place, part in enumerate(parts):
        if part in other:
            order = [*parts[:place], other[part], *parts[place + 1 :]]
            observation = replace(reading.observation, state=tuple(order))
            yield Candidate(
                convention="quaternion order",
                name=other[part],
                reading=replace(reading, observation=observation),
                remedy=f"state=[{','.join(order)}]",
            )


def _of_actions(reading: Reading, samples: list[Sample]) -> Iterator[Candidate]:
    action = reading.action
    tool_known = samples[0].rotation is not None

    def changed(convention: str, name: str, remedy: str = "", **fields: Any) -> Candidate:
        spec = replace(action, **fields)
        return Candidate(
            convention=convention,
            name=name,
            reading=replace(reading, action=spec),
            remedy=remedy or ", ".join(f"action.{k}={v}" for k, v in fields.items()),
        )

    for gripper in ("close_positive", "open_positive"):
        for span in ("signed", "unit"):
            if (gripper, span) != (action.gripper, action.gripper_range):
                yield changed("gripper", f"{gripper}, {span}", gripper=gripper, gripper_range=span)
    for shift in range(-AHEAD, AHEAD + 1):
        if shift != reading.shift:
            word = "later" if shift > 0 else "earlier"
            remedy = f"the first action of a chunk is for {abs(shift)} control steps {word}"
            if shift == 0:
                remedy = "the first action of a chunk is for the moment it is asked"
            yield Candidate(
                convention="timing",
                name=f"{abs(shift)} steps {word}" if shift else "on time",
                reading=replace(reading, shift=shift),
                remedy=remedy,
            )
    if action.mode not in TOOL_MODES:
        return
    if tool_known and samples[0].position is not None:
        mode = "absolute_eef" if action.mode == "delta_eef" else "delta_eef"
        yield changed("action mode", mode, mode=mode, frame="base")
    if tool_known and action.mode == "delta_eef":
        frame = "tool" if action.frame == "base" else "base"
        yield changed("action frame", frame, frame=frame)
    for rotation, size in ROTATION_SIZE.items():
        if rotation != action.rotation and size == ROTATION_SIZE[action.rotation]:
            yield changed("rotation representation", rotation, rotation=rotation)
    yield from _of_axes(reading)


FACTORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Wrong scales that happen: units, normalised against metric commands, a wrong control rate."""


def scaled(reading: Reading, what: str, factor: float) -> Candidate:
    """The reading with larger or smaller steps.

    Args:
        reading: What is configured.
        what: ``position`` or ``rotation``.
        factor: By how much larger commands should be.
    """
    now = reading.position_scale if what == "position" else reading.rotation_scale
    changes = {f"{what}_scale": factor * now}
    declared = getattr(reading.action, f"scale_{what}")
    return Candidate(
        convention=f"{what} scale",
        name=f"×{factor * now:g}",
        reading=replace(reading, **changes),  # type: ignore[arg-type]
        remedy=f"action.scale_{what}={factor * declared:g}",
    )


def _of_axes(reading: Reading) -> Iterator[Candidate]:
    flips = [s for n in (1, 2, 3) for s in combinations(range(3), n)]
    for flipped in flips:
        signs = _flipped(reading.signs, flipped)
        names = " and ".join("xyz"[i] for i in flipped)
        yield Candidate(
            convention="position axes",
            name=f"{names} reversed",
            reading=replace(reading, signs=signs),
            remedy=f"the policy's {names} point the other way",
        )
        turns = _flipped(reading.turns, flipped)
        yield Candidate(
            convention="rotation axes",
            name=f"{' and '.join('r' + 'xyz'[i] for i in flipped)} reversed",
            reading=replace(reading, turns=turns),
            remedy="the policy turns the other way about "
            + " and ".join("xyz"[i] for i in flipped),
        )
    for one, two in combinations(range(3), 2):
        axes = list(reading.axes)
        axes[one], axes[two] = axes[two], axes[one]
        yield Candidate(
            convention="position axes",
            name=f"{'xyz'[one]} and {'xyz'[two]} swapped",
            reading=replace(reading, axes=(axes[0], axes[1], axes[2])),
            remedy=f"the policy's {'xyz'[one]} is the scene's {'xyz'[two]}",
        )


def _flipped(signs: Triple, which: Sequence[int]) -> Triple:
    x, y, z = (-s if i in which else s for i, s in enumerate(signs))
    return x, y, z


# -- a reading applied -----------------------------------------------------------------------------


def observe(sample: Sample, reading: Reading) -> Observation:
    """A moment as a policy of this reading gets it."""
    spec = reading.observation
    whose = dict(reading.cameras)
    images = {}
    for camera in spec.cameras:
        frames = sample.frames[whose.get(camera.name, camera.name)]
        shown = np.stack([turned(frame, reading.orientation) for frame in frames])
        image = presented(shown, camera, spec)
        images[camera.name] = image if spec.history != (0,) else image[0]
    parts = [sample.state[part] for part in spec.state]
    state = np.hstack(parts) if parts else np.zeros((len(spec.history), 0))
    state = state if spec.history != (0,) else state[0]
    return Observation(
        images=images,
        state=state.astype(np.float32),
        instruction=sample.instruction if spec.instruction else "",
        step=sample.step,
    )


def commands(chunk: Floats, sample: Sample, action: ActionSpec, data: ActionSpec) -> Floats:
    """A policy's answer as commands in the demonstrations' mode and units.

    Args:
        chunk: (K, dim), the policy's own numbers.
        sample: The moment they are for.
        action: How to read them.
        data: How the demonstrated commands are read.

    Returns:
        (K, A), canonical.
    """
    rows = []
    for step, row in enumerate(chunk):
        rotation = np.eye(3) if sample.rotation is None else sample.rotation[step]
        command = np.array(to_scene(row, action, lambda r=rotation: r))  # type: ignore[misc]
        if action.mode in TOOL_MODES and data.mode != action.mode:
            command = _other_mode(command, sample, step, action, data)
        elif data.mode == "delta_eef":
            command[:3] *= action.scale_position / data.scale_position
            command[3:6] *= action.scale_rotation / data.scale_rotation
        rows.append(command)
    return np.stack(rows)


def rearranged(read: Floats, reading: Reading, data: ActionSpec, *, clip: bool = True) -> Floats:
    """Commands (..., A) with a reading's axes, signs and scales.

    Args:
        read: What :func:`commands` gave.
        reading: The reading.
        data: How the demonstrated commands are read.
        clip: To what a scene's controller takes.
    """
    found = read.copy()
    if reading.action.mode in TOOL_MODES:
        found[..., :3] = reading.position_scale * np.array(reading.signs) * read[..., reading.axes]
        found[..., 3:6] *= reading.rotation_scale * np.array(reading.turns)
    if clip and data.mode in ("delta_eef", "delta_joint"):
        np.clip(found, -1.0, 1.0, out=found)
    np.clip(found[..., -1], -1.0, 1.0, out=found[..., -1])
    return found


def _other_mode(
    command: Floats, sample: Sample, step: int, spec: ActionSpec, data: ActionSpec
) -> Floats:
    """A tool command as a change where it was a goal, or the other way round."""
    from scipy.spatial.transform import Rotation

    assert sample.position is not None
    assert sample.rotation is not None
    here, now = sample.position[step], Rotation.from_matrix(sample.rotation[step])
    if spec.mode == "absolute_eef":
        turn = Rotation.from_rotvec(command[3:6]) * now.inv()
        moved = (command[:3] - here) / data.scale_position
        return np.concatenate([moved, turn.as_rotvec() / data.scale_rotation, command[-1:]])
    turn = Rotation.from_rotvec(spec.scale_rotation * command[3:6])
    goal = [here + spec.scale_position * command[:3], (turn * now).as_rotvec()]
    return np.concatenate([*goal, command[-1:]])
