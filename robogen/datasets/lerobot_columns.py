"""What a dataset in robogen's own form becomes in a LeRobotDataset: features, names, columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from robogen.datasets import lerobot_format as fmt
from robogen.datasets.schema import DemoMeta, EpisodeInfo
from robogen.datasets.video import rate
from robogen.specs import ROTATION_SIZE, TOOL_MODES, ActionSpec, Orientation, Rotation

_AXES = ("x", "y", "z")
_ROTATIONS: Mapping[Rotation, tuple[str, ...]] = {
    "axis_angle": ("rx", "ry", "rz"),
    "euler_xyz": ("roll", "pitch", "yaw"),
    "quat_xyzw": ("qx", "qy", "qz", "qw"),
    "quat_wxyz": ("qw", "qx", "qy", "qz"),
    "rot6d": ("r11", "r21", "r31", "r12", "r22", "r32"),
    "rot6d_interleaved": ("r11", "r12", "r21", "r22", "r31", "r32"),
}
_PARTS: Mapping[str, tuple[str, ...]] = {
    "eef_pos": _AXES,
    "eef_rot6d": _ROTATIONS["rot6d"],
    "eef_axis_angle": _ROTATIONS["axis_angle"],
    "eef_quat_xyzw": _ROTATIONS["quat_xyzw"],
    "eef_quat_wxyz": _ROTATIONS["quat_wxyz"],
    "eef_euler_xyz": _ROTATIONS["euler_xyz"],
}
"""Names of the numbers of a state part; others are counted."""

OUTCOMES: Mapping[str, str] = {
    "next.reward": "float32",
    "next.done": "bool",
    "next.success": "bool",
}
"""Columns of what a frame's action led to, with their types."""


def state_names(parts: Mapping[str, int]) -> list[str]:
    """One name per number of the state, e.g. ``eef_pos.x``."""
    names: list[str] = []
    for part, size in parts.items():
        known = _PARTS.get(part, ())
        if size == 1:
            names.append(part)
        else:
            inner = known if len(known) == size else [str(number) for number in range(size)]
            names += [f"{part}.{name}" for name in inner]
    return names


def action_names(spec: ActionSpec) -> list[str]:
    """One name per number of an action."""
    if spec.mode in TOOL_MODES and spec.dim == 4 + ROTATION_SIZE[spec.rotation]:
        prefix = "delta_" if spec.mode == "delta_eef" else ""
        return [f"{prefix}{name}" for name in (*_AXES, *_ROTATIONS[spec.rotation])] + ["gripper"]
    if spec.mode in ("absolute_joint", "delta_joint"):
        prefix = "delta_" if spec.mode == "delta_joint" else ""
        return [f"{prefix}joint_{number + 1}" for number in range(spec.dim - 1)] + ["gripper"]
    return [f"action_{number}" for number in range(spec.dim)]


def frame_rate(meta: DemoMeta) -> float | int:
    """Frames per second; a whole number wherever it is one, as LeRobot expects."""
    hz = meta.control_hz
    return int(hz) if float(hz).is_integer() else hz


def features(meta: DemoMeta, codec: str) -> dict[str, dict[str, Any]]:
    """The features of ``info.json``."""
    found: dict[str, dict[str, Any]] = {}

    def add(name: str, dtype: str, shape: Sequence[int], names: list[str] | None) -> None:
        found[name] = {"dtype": dtype, "shape": list(shape), "names": names}

    if meta.state_size:
        add(fmt.STATE, "float32", [meta.state_size], state_names(meta.state))
    for camera in meta.cameras:
        key, shape = fmt.IMAGE + camera.name, [camera.height, camera.width, 3]
        add(key, "image" if codec == "png" else "video", shape, ["height", "width", "channels"])
        if codec != "png":
            found[key]["info"] = {
                "video.height": camera.height,
                "video.width": camera.width,
                "video.codec": codec,
                "video.pix_fmt": "yuv420p",
                "video.is_depth_map": False,
                "video.fps": frame_rate(meta),
                "video.channels": 3,
                "has_audio": False,
            }
    add(fmt.ACTION, "float32", [meta.action.dim], action_names(meta.action))
    for name, dtype in {**OUTCOMES, **fmt.INDEX_COLUMNS}.items():
        add(name, dtype, [1], None)
    return found


def conventions(meta: DemoMeta, orientation: Orientation) -> dict[str, Any]:
    """How the numbers and pictures are meant: what ``meta/robogen.json`` says."""
    data = meta.to_json()
    return {
        "schema_version": 1,
        "scene": meta.scene,
        "state": data["state"],
        "action": asdict(meta.action),
        "cameras": data["cameras"],
        "orientation": orientation,
        "render": meta.render,
        "collection": data["collection"],
        "command": meta.command,
        "frame_rate": str(rate(meta.control_hz)),
    }


def episode_columns(meta: DemoMeta, info: EpisodeInfo) -> dict[str, Any]:
    """Our columns of an episode; what the episode says of itself goes before what the dataset does.

    ``draw.<factor>.<field>`` are there for factors of the episode only.
    """
    factors = list(info.draws)
    severity = float(meta.collection.get("severity", 1.0)) if factors else 0.0
    condition = "+".join(factors) or "nominal"
    if factors:
        condition += f"@{severity:g}" if severity != 1.0 else ""
        condition += f":{info.split}" if info.split != "eval" else ""
    columns: dict[str, Any] = {
        "scene": meta.scene,
        "policy": "expert",
        "condition": condition,
        "factors": factors,
        "severity": severity,
        "split": info.split,
        "success": info.success,
        "seed": int(meta.collection.get("seed", 0)),
        "source_episode": info.index,
        **info.extras,
        "draws": _text(info.draws),
    }
    _flatten("draw", info.draws, columns)
    return columns


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _flatten(name: str, value: Any, into: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _flatten(f"{name}.{key}", item, into)
    else:
        into[name] = value


def typed(values: list[Any]) -> Any:
    """One Arrow column of what episodes say; what is of several types is kept as JSON text."""
    import pyarrow as pa

    present = [value for value in values if value is not None]

    def all_are(kinds: Any, items: Sequence[Any]) -> bool:
        return all(isinstance(item, kinds) for item in items)

    def numeric(items: Sequence[Any]) -> bool:
        return all_are(int | float, items) and not any(isinstance(item, bool) for item in items)

    if all_are(bool, present):
        return pa.array(values, pa.bool_())
    if numeric(present):
        whole = all_are(int, present)
        return pa.array(values, pa.int64() if whole else pa.float64())
    if all_are(str, present):
        return pa.array(values, pa.string())
    if all_are(list | tuple, present):
        items = [item for value in present for item in value]
        if items and numeric(items):
            return pa.array(values, pa.list_(pa.float64()))
        if all_are(str, items):
            return pa.array(values, pa.list_(pa.string()))
    return pa.array([None if value is None else _text(value) for value in values], pa.string())
