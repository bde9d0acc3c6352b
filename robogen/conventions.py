"""From the conventions that policies have to those that scenes read, and back.

Specs name a convention (:mod:`robogen.specs`); here is what each name does to the numbers. Scenes
read one form of each: upright RGB frames, tool deltas along the base's axes as rotation vectors, a
gripper that closes at +1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robogen.specs import (
    ROTATION_SIZE,
    TOOL_MODES,
    ActionSpec,
    CameraSpec,
    ObservationSpec,
    Rotation,
    canonical,
)

Floats = NDArray[np.float64]


# -- images ----------------------------------------------------------------------------------------


def drawn(camera: CameraSpec) -> CameraSpec:
    """The camera at the size that the scene draws."""
    width, height = camera.rendered
    return CameraSpec(name=camera.name, width=width, height=height)


def presented(image: NDArray[np.uint8], camera: CameraSpec, spec: ObservationSpec) -> NDArray[Any]:
    """A drawn frame as the policy wants it.

    Args:
        image: (..., H, W, 3) RGB uint8, already turned as ``spec.orientation`` says.
        camera: The size wanted.
        spec: Crop, fit, channel order, layout and pixel type.

    Returns:
        (..., height, width, 3), or (..., 3, height, width) for ``chw``; uint8, or float32 in 0..1.
    """
    frames = image
    if spec.crop < 1.0 or image.shape[-3:-1] != (camera.height, camera.width):
        flat = image.reshape(-1, *image.shape[-3:])
        sized = np.stack([resized(frame, camera, spec) for frame in flat])
        frames = sized.reshape(*image.shape[:-3], *sized.shape[1:])
    if spec.channels == "bgr":
        frames = frames[..., ::-1]
    if spec.layout == "chw":
        frames = np.moveaxis(frames, -1, -3)
    if spec.pixels == "unit":
        return (frames / np.float32(255.0)).astype(np.float32)
    return np.ascontiguousarray(frames)


def resized(
    image: NDArray[np.uint8], camera: CameraSpec, spec: ObservationSpec
) -> NDArray[np.uint8]:
    """One frame (H, W, 3) cropped about its centre and brought to (height, width, 3).

    Bilinear with antialiasing, as published policies are served.
    """
    from PIL import Image

    height, width = image.shape[:2]
    if spec.crop < 1.0:
        rows, columns = round(spec.crop * height), round(spec.crop * width)
        top, left = (height - rows) // 2, (width - columns) // 2
        image = image[top : top + rows, left : left + columns]
        height, width = rows, columns
    wanted = (camera.width, camera.height)
    if spec.fit == "pad":
        ratio = min(camera.width / width, camera.height / height)
        inner = (max(1, int(width * ratio)), max(1, int(height * ratio)))
    else:
        inner = wanted
    if inner == (width, height) == wanted:
        return image
    picture = Image.fromarray(np.ascontiguousarray(image)).resize(inner, Image.Resampling.BILINEAR)
    canvas = np.zeros((camera.height, camera.width, 3), np.uint8)
    top, left = (camera.height - inner[1]) // 2, (camera.width - inner[0]) // 2
    canvas[top : top + inner[1], left : left + inner[0]] = np.asarray(picture)
    return canvas


# -- actions ---------------------------------------------------------------------------------------


def to_scene(action: Floats, spec: ActionSpec, tool: Callable[[], Floats]) -> Floats:
    """A policy's action (spec.dim,) as scenes read it: that of ``canonical(spec)``.

    Args:
        action: In the policy's convention.
        spec: That convention.
        tool: Rotation matrix (3, 3) of the tool in the base frame now; asked only where the
            action is along the tool's axes.
    """
    if spec == canonical(spec):
        return action
    command = np.array(action, dtype=np.float64)
    if spec.mode in TOOL_MODES:
        scale = spec.scale_rotation if spec.mode == "delta_eef" else 1.0
        position, turn = command[:3], rotation_vector(command[3:-1], spec.rotation, scale)
        if spec.frame == "tool":
            axes = tool()
            position, turn = axes @ position, axes @ turn
        command = np.concatenate([position, turn, command[-1:]])
    if spec.gripper_range == "unit":
        command[-1] = 2.0 * command[-1] - 1.0
    if spec.gripper == "open_positive":
        command[-1] = -command[-1]
    return command


def from_scene(action: Floats, spec: ActionSpec, tool: Callable[[], Floats]) -> Floats:
    """Inverse of :func:`to_scene`: what a policy of this convention would have said."""
    if spec == canonical(spec):
        return action
    command = np.array(action, dtype=np.float64)
    if spec.gripper == "open_positive":
        command[-1] = -command[-1]
    if spec.gripper_range == "unit":
        command[-1] = 0.5 * (command[-1] + 1.0)
    if spec.mode not in TOOL_MODES:
        return command
    position, turn = command[:3], command[3:6]
    if spec.frame == "tool":
        axes = tool().T
        position, turn = axes @ position, axes @ turn
    scale = spec.scale_rotation if spec.mode == "delta_eef" else 1.0
    return np.concatenate([position, written(turn, spec.rotation, scale), command[-1:]])


def rotation_vector(values: Floats, rotation: Rotation, scale: float = 1.0) -> Floats:
    """A rotation as a vector (3,) in units of ``scale`` [rad].

    Args:
        values: In the representation; angles are in units of ``scale`` too.
        rotation: The representation.
        scale: Radians per unit.
    """
    if rotation == "axis_angle":
        return values
    from scipy.spatial.transform import Rotation as Turn

    if rotation == "euler_xyz":
        turn = Turn.from_euler("xyz", scale * values)
    elif rotation == "rot6d":
        turn = Turn.from_matrix(matrix_from_columns(values))
    elif rotation == "rot6d_interleaved":
        turn = Turn.from_matrix(matrix_from_columns(np.reshape(values, (3, 2)).T.reshape(-1)))
    else:
        turn = Turn.from_quat(values, scalar_first=rotation == "quat_wxyz")
    return np.asarray(turn.as_rotvec() / scale, dtype=np.float64)


def written(vector: Floats, rotation: Rotation, scale: float = 1.0) -> Floats:
    """Inverse of :func:`rotation_vector`."""
    if rotation == "axis_angle":
        return vector
    from scipy.spatial.transform import Rotation as Turn

    turn = Turn.from_rotvec(scale * vector)
    if rotation == "euler_xyz":
        values = turn.as_euler("xyz") / scale
    elif rotation == "rot6d_interleaved":
        values = turn.as_matrix()[:, :2].reshape(-1)
    elif rotation == "rot6d":
        values = turn.as_matrix()[:, :2].T.reshape(-1)
    else:
        values = turn.as_quat(canonical=True, scalar_first=rotation == "quat_wxyz")
    assert values.size == ROTATION_SIZE[rotation]
    return np.asarray(values, dtype=np.float64)


# -- state -----------------------------------------------------------------------------------------

_SOURCE = "eef_rot6d"
_DERIVED: Mapping[str, Rotation] = {
    "eef_quat_xyzw": "quat_xyzw",
    "eef_quat_wxyz": "quat_wxyz",
    "eef_euler_xyz": "euler_xyz",
    "eef_axis_angle": "axis_angle",
}
"""State parts that follow from the tool's rotation matrix."""


def derivable(sizes: Mapping[str, int]) -> dict[str, int]:
    """State parts on offer with their sizes, and those that follow from them."""
    more = {name: ROTATION_SIZE[kind] for name, kind in _DERIVED.items()}
    return {**(more if _SOURCE in sizes else {}), **sizes}


def derived(part: str, offered: Mapping[str, Floats]) -> Floats:
    """A state part: as offered, or computed from what is.

    Raises:
        KeyError: It does not follow from what is offered.
    """
    if part in offered:
        return offered[part]
    kind = _DERIVED[part]
    return written(rotation_vector(offered[_SOURCE], "rot6d"), kind)


def matrix_from_columns(columns: Floats) -> Floats:
    """Rotation matrix (3, 3) nearest to two columns (6,) one after the other (Gram-Schmidt)."""
    first, second = np.asarray(columns, dtype=np.float64).reshape(2, 3)
    x = first / max(float(np.linalg.norm(first)), 1e-12)
    y = second - (x @ second) * x
    y /= max(float(np.linalg.norm(y)), 1e-12)
    return np.stack([x, y, np.cross(x, y)], axis=1)
