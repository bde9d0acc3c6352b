"""Each action dimension driven alone: which way the arm and the gripper really move."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from robogen.conventions import from_scene, matrix_from_columns, to_scene
from robogen.perturbations.engine import Perturbation
from robogen.probe.agreement import Verdict
from robogen.rollout.start import begin
from robogen.scenes.base import Scene
from robogen.seeding import EpisodeSeed
from robogen.specs import ROTATION_SIZE, TOOL_MODES, ActionSpec, canonical

Floats = NDArray[np.float64]

STEPS = 2
"""Control steps that a dimension is driven for."""
SETTLE = 2
"""Control steps at rest before and after."""
_ALONG = 0.9
"""Cosine from which a motion counts as along an axis."""
_NUDGE = 0.05
"""By how much an absolute command is changed [m or rad]."""


@dataclass(frozen=True, kw_only=True)
class Driven:
    """One dimension, pushed up and then down from the same start."""

    dimension: int
    """1-based."""
    declared: str
    moved: Floats | None
    """Tool displacement, up minus down, halved (3,) [m], base frame."""
    turned: Floats | None
    """Tool rotation (3,) [rad], the same way."""
    opened: float | None
    """Change of the gripper's opening [m], the same way."""
    verdict: Verdict
    note: str


def drive(scene: Scene, spec: ActionSpec, *, seed: int = 0) -> list[Driven]:
    """Push every dimension of a policy's actions alone.

    Args:
        scene: Left at some state.
        spec: The policy's convention; the scene gets what an episode would give it.
        seed: Start of the episode that is pushed from.
    """
    found = []
    for dimension in range(spec.dim):
        up = _pushed(scene, spec, dimension, +1.0, seed)
        down = _pushed(scene, spec, dimension, -1.0, seed)
        found.append(_read(scene, spec, dimension, up, down))
    scene.world.edit.restore()
    scene.rebuild(None)
    return found


@dataclass(frozen=True, kw_only=True)
class _Change:
    position: Floats | None
    rotation: Floats | None
    opening: float | None
    start: Floats | None
    """Tool rotation before."""
    other: Floats | None
    """Joint or native state change, for what has no tool."""


def _pushed(scene: Scene, spec: ActionSpec, dimension: int, sign: float, seed: int) -> _Change:
    begin(
        scene,
        Perturbation(),
        EpisodeSeed(domain="validate", study=seed, scene=scene.spec.name, episode=0),
    )
    ready = canonical(spec)

    def tool() -> Floats:
        return matrix_from_columns(scene.proprioception(["eef_rot6d"]).astype(np.float64))

    def now() -> dict[str, Floats]:
        parts = ("eef_pos", "eef_rot6d", "gripper_opening", "joint_pos", "native")
        return {
            part: scene.proprioception([part]).astype(np.float64)
            for part in parts
            if part in scene.spec.state
        }

    for _ in range(SETTLE):
        scene.step(scene.rest_action(ready), ready)
    before = now()
    base = scene.rest_action(ready)
    absolute = bool(np.any(base[:-1]))
    for _ in range(STEPS):
        rest = from_scene(base if absolute else scene.rest_action(ready), spec, tool)
        action = np.array(rest, dtype=np.float64)
        action[dimension] = _driven_to(spec, dimension, rest, sign, absolute)
        scene.step(to_scene(action, spec, tool), ready)
    for _ in range(SETTLE):
        still = to_scene(action, spec, tool) if absolute else scene.rest_action(ready).copy()
        still[-1] = to_scene(action, spec, tool)[-1]
        scene.step(still, ready)
    after = now()
    turned = None
    start = None
    if "eef_rot6d" in before:
        start = matrix_from_columns(before["eef_rot6d"])
        end = matrix_from_columns(after["eef_rot6d"])
        turned = np.asarray(Rotation.from_matrix(end @ start.T).as_rotvec())

    def changed(part: str) -> Floats | None:
        return after[part] - before[part] if part in before else None

    opening = changed("gripper_opening")
    other = changed("joint_pos")
    return _Change(
        position=changed("eef_pos"),
        rotation=turned,
        opening=None if opening is None else float(opening[0]),
        start=start,
        other=other if other is not None else changed("native"),
    )


def _driven_to(
    spec: ActionSpec, dimension: int, rest: Floats, sign: float, absolute: bool
) -> float:
    if dimension == spec.dim - 1:
        low = 0.0 if spec.gripper_range == "unit" else -1.0
        return 1.0 if sign > 0 else low
    if absolute:
        return float(rest[dimension]) + sign * _NUDGE
    return sign


def _read(scene: Scene, spec: ActionSpec, dimension: int, up: _Change, down: _Change) -> Driven:
    def half(a: Floats | None, b: Floats | None) -> Floats | None:
        return None if a is None or b is None else 0.5 * (a - b)

    moved, turned = half(up.position, down.position), half(up.rotation, down.rotation)
    opened = None if up.opening is None or down.opening is None else up.opening - down.opening
    last = dimension == spec.dim - 1
    declared, verdict, note = _judged(spec, dimension, moved, turned, opened, up.start, last=last)
    if not note:
        note = _said(moved, turned, opened, last=last)
    other = half(up.other, down.other)
    if not note and other is not None and np.abs(other).max() > 1e-3:
        note = f"moves number {int(np.abs(other).argmax()) + 1} of the joint or native state"
    return Driven(
        dimension=dimension + 1,
        declared=declared,
        moved=moved,
        turned=turned,
        opened=opened if last else None,
        verdict=verdict,
        note=note or "nothing moves",
    )


def _judged(
    spec: ActionSpec,
    dimension: int,
    moved: Floats | None,
    turned: Floats | None,
    opened: float | None,
    start: Floats | None,
    *,
    last: bool,
) -> tuple[str, Verdict, str]:
    """What the spec declares of a dimension, whether it came true, and what happened instead."""
    if last and spec.mode != "native":
        closes = spec.gripper == "close_positive"
        declared = f"larger {'closes' if closes else 'opens'}"
        if opened is None or abs(opened) < 1e-3:
            return declared, Verdict.CANNOT_TELL, "the gripper's opening does not change or show"
        right = (opened < 0) == closes
        note = f"larger {'closes' if opened < 0 else 'opens'}, by {1e3 * abs(opened):.0f} mm"
        return declared, Verdict.OK if right else Verdict.SUSPICIOUS, note
    linear = dimension < 3
    # Numbers of a rotation that is no small change turn about no axis of their own.
    plain = spec.mode == "delta_eef" and ROTATION_SIZE[spec.rotation] == 3
    if spec.mode not in TOOL_MODES or not (linear or plain):
        return "", Verdict.CANNOT_TELL, ""
    axis = np.eye(3)[dimension % 3]
    declared = ("" if linear else "turns about ") + "xyz"[dimension % 3]
    if spec.frame == "tool":
        declared += " of the tool"
        axis = axis if start is None else start @ axis
    got = moved if linear else turned
    if got is None:
        return declared, Verdict.CANNOT_TELL, "the scene does not say where the tool is"
    size = float(np.linalg.norm(got))
    unit = spec.scale_position if linear else spec.scale_rotation
    wanted = _NUDGE if spec.mode == "absolute_eef" else STEPS * unit
    if size < 0.1 * wanted:
        return declared, Verdict.SUSPICIOUS, f"hardly moves ({_said(moved, turned, None)})"
    cosine = float(got @ axis) / size
    note = _said(moved if linear else None, None if linear else turned, None)
    if cosine < _ALONG:
        return declared, Verdict.SUSPICIOUS, f"{note}, which is another way"
    if not 0.4 < size / wanted < 1.6:
        return declared, Verdict.SUSPICIOUS, f"{note}, where {wanted:.3g} was declared"
    return declared, Verdict.OK, note


def _said(
    moved: Floats | None, turned: Floats | None, opened: float | None, *, last: bool = False
) -> str:
    parts = []
    if moved is not None and np.linalg.norm(moved) > 2e-3 and not last:
        parts.append(f"moves {1e3 * np.linalg.norm(moved):.0f} mm along {_direction(moved)}")
    if turned is not None and np.linalg.norm(turned) > 2e-2 and not last:
        parts.append(f"turns {np.linalg.norm(turned):.2f} rad about {_direction(turned)}")
    if opened is not None and abs(opened) > 1e-3 and last:
        word = "closes" if opened < 0 else "opens"
        parts.append(f"larger {word} the gripper by {1e3 * abs(opened):.0f} mm")
    return ", ".join(parts)


def _direction(vector: Floats) -> str:
    unit = vector / np.linalg.norm(vector)
    best = int(np.abs(unit).argmax())
    if abs(unit[best]) > _ALONG:
        return f"{'+' if unit[best] > 0 else '-'}{'xyz'[best]}"
    return f"({', '.join(f'{value:+.2f}' for value in unit)})"
