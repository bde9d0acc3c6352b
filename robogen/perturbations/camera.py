# ruff: noqa: D102 - overrides are documented on the base class
"""Third-person cameras: where they stand and how wide they see."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from robogen.mj.edit import CAMERA_DERIVED, ModelEdit
from robogen.mj.world import World
from robogen.perturbations.base import ModelFactor, band_magnitude, ratio, signed_band, unit_vector
from robogen.specs import Draw, SceneFacts, Split

_NONE = "the scene has no third-person camera"


class CameraPose(ModelFactor):
    """Shifts and turns every third-person camera, each in the same way.

    Args:
        name: Factor name.
        max_offset_m: Length of the shift at full dose, in any direction.
        max_rotation_deg: Angle of the turn at full dose, about any axis of the camera.
    """

    kind = "visual"
    channel = "camera"
    fields = ("cam_pos", "cam_quat", "cam_mode")
    derived = CAMERA_DERIVED

    def __init__(self, *, name: str, max_offset_m: float, max_rotation_deg: float) -> None:
        super().__init__(name=name)
        self.max_offset_m = self.number("max_offset_m", max_offset_m, 0, 2)
        self.max_rotation_deg = self.number("max_rotation_deg", max_rotation_deg, 0, 90)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        del facts
        offset = unit_vector(rng, 3) * band_magnitude(rng, split) * self.max_offset_m
        turn = unit_vector(rng, 3) * band_magnitude(rng, split) * self.max_rotation_deg
        return {
            "offset_m": (severity * offset).tolist(),
            "rotation_deg": (severity * turn).tolist(),
        }

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        del facts
        return None if world.edit.cameras("third_person").size else _NONE

    def apply(self, edit: ModelEdit, draw: Draw) -> None:
        cameras = edit.cameras("third_person")
        edit.stop_tracking(cameras)  # a camera that follows a body would turn back to it
        turn = _quaternion(np.radians(draw["rotation_deg"]))
        turned = [_product(quat, turn) for quat in edit.read("cam_quat", cameras)]
        moved = edit.read("cam_pos", cameras) + np.array(draw["offset_m"])
        edit.write("cam_pos", cameras, moved, "replace")
        edit.write("cam_quat", cameras, np.array(turned).reshape(-1, 4), "replace")

    def range_text(self, severity: float) -> str:
        return (
            f"camera moved up to {100 * severity * self.max_offset_m:.1f} cm, "
            f"turned up to {severity * self.max_rotation_deg:.1f}°"
        )


class CameraFov(ModelFactor):
    """Widens or narrows the vertical field of view of every third-person camera.

    Args:
        name: Factor name.
        narrowest_ratio: Factor on the angle at full dose downwards.
        widest_ratio: The same upwards; no angle grows past 140°.
    """

    kind = "visual"
    channel = "camera"
    fields = ("cam_fovy",)

    def __init__(self, *, name: str, narrowest_ratio: float, widest_ratio: float) -> None:
        super().__init__(name=name)
        self.narrowest_ratio = self.number("narrowest_ratio", narrowest_ratio, 0.2, 1)
        self.widest_ratio = self.number("widest_ratio", widest_ratio, 1, 3)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        del facts
        dose = signed_band(rng, split)
        return {"fovy_ratio": ratio(self.narrowest_ratio, self.widest_ratio, severity * dose)}

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        del facts
        edit = world.edit
        cameras = edit.cameras("third_person")
        if not cameras.size:
            return _NONE
        if (edit.read("cam_sensorsize", cameras) > 0).any():
            return "a third-person camera has intrinsics instead of a field of view"
        return None

    def apply(self, edit: ModelEdit, draw: Draw) -> None:
        cameras = edit.cameras("third_person")
        angles = edit.read("cam_fovy", cameras)
        wide = np.minimum(angles * draw["fovy_ratio"], np.maximum(angles, 140.0))
        edit.write("cam_fovy", cameras, wide, "replace")

    def range_text(self, severity: float) -> str:
        return (
            f"field of view ×{self.narrowest_ratio**severity:.2f} to "
            f"×{self.widest_ratio**severity:.2f}"
        )


def _quaternion(rotation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Unit quaternion (w, x, y, z) of a rotation vector (3,) [rad]."""
    angle = float(np.linalg.norm(rotation))
    axis = rotation / angle if angle > 0 else np.zeros(3)
    return np.array([math.cos(angle / 2), *(math.sin(angle / 2) * axis)])


def _product(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Hamilton product of two quaternions (w, x, y, z)."""
    w, v = a[0] * b[0] - a[1:] @ b[1:], a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])
    return np.array([w, *v])
