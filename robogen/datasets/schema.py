"""What a demonstration dataset declares about itself, and what one episode holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from robogen.seeding import Domain
from robogen.specs import ActionSpec, CameraSpec, RenderProfile, Split

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class DemoMeta:
    """Conventions shared by every episode of a dataset.

    Two datasets can be trained on together when everything but ``collection`` and ``command``
    agrees; one folder can be resumed when everything but ``command`` does.
    """

    scene: str
    cameras: tuple[CameraSpec, ...]
    state: Mapping[str, int]
    """Parts of the state vector and their sizes, in the order they are concatenated."""
    action: ActionSpec
    """How the recorded actions are read; holds the control rate."""
    points: tuple[str, ...] = ()
    """Names of the K privileged points, e.g. the task's objects."""
    render: RenderProfile = "fast"
    collection: Mapping[str, Any] = field(default_factory=dict)
    """Settings that decided which episodes were collected: study seed, factors, action noise.
    JSON-able."""
    command: str = ""
    """The command that collected them, for people."""

    @property
    def control_hz(self) -> float:
        """Control rate [Hz]."""
        return self.action.control_hz

    @property
    def state_size(self) -> int:
        """Length D of the state vector."""
        return sum(self.state.values())

    def to_json(self) -> dict[str, Any]:
        """Plain data, as written to ``meta.json``."""
        data: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        # A list, because JSON objects promise no order and the state vector has one.
        data["state"] = [[name, size] for name, size in self.state.items()]
        return {"schema_version": SCHEMA_VERSION, **data}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DemoMeta:
        """Inverse of :meth:`to_json`; raises KeyError, TypeError or ValueError on other data."""
        if data["schema_version"] != SCHEMA_VERSION:
            raise ValueError(
                f"schema version {data['schema_version']}, this robogen reads {SCHEMA_VERSION}"
            )
        values = {item.name: data[item.name] for item in fields(cls)}
        values["cameras"] = tuple(CameraSpec(**camera) for camera in values["cameras"])
        values["state"] = {str(name): int(size) for name, size in values["state"]}
        values["action"] = ActionSpec(**values["action"])
        values["points"] = tuple(values["points"])
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class EpisodeInfo:
    """What is known of an episode besides its arrays; JSON in its file."""

    index: int
    instruction: str
    length: int
    """T, in control steps."""
    success: bool
    domain: Domain = "collect"
    """Seed domain the episode was drawn from."""
    split: Split = "train"
    draws: Mapping[str, Any] = field(default_factory=dict)
    """Value every active factor took, by factor name; empty for a nominal episode."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """What else a recorded evaluation knows of it, e.g. ``policy`` and ``condition``. JSON-able."""

    def to_text(self) -> str:
        """JSON text with sorted keys."""
        data = asdict(self)
        if not self.extras:
            del data["extras"]  # so that demonstrations keep the hashes they are known by
        return json.dumps(data, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> EpisodeInfo:
        """Inverse of :meth:`to_text`; raises KeyError, TypeError or ValueError on other text."""
        data = json.loads(text)
        if {*data, "extras"} != {item.name for item in fields(cls)}:
            raise ValueError(f"episode metadata has the keys {', '.join(sorted(data))}")
        return cls(**data)


@dataclass(frozen=True, kw_only=True, eq=False)
class DemoEpisode:
    """One demonstration of T control steps.

    Attributes:
        images: Frames per camera, (T, H, W, 3) uint8.
        state: Proprioception before each step, (T, D) float32.
        action: The expert's clean action at each step, (T, A) float32; the executed one may have
            carried noise.
        points: Positions of the task's objects relative to the gripper, (T, K, 3) float32 [m].
        info: Everything else.
    """

    images: Mapping[str, NDArray[np.uint8]]
    state: NDArray[np.float32]
    action: NDArray[np.float32]
    points: NDArray[np.float32]
    info: EpisodeInfo

    def problems(self, meta: DemoMeta) -> list[str]:
        """Every way in which this episode does not fit a dataset's conventions, in words."""
        length = self.info.length
        wanted: dict[str, tuple[tuple[int, ...], type[np.generic]]] = {
            f"images.{camera.name}": ((length, camera.height, camera.width, 3), np.uint8)
            for camera in meta.cameras
        }
        wanted["state"] = ((length, meta.state_size), np.float32)
        wanted["action"] = ((length, meta.action.dim), np.float32)
        wanted["points"] = ((length, len(meta.points), 3), np.float32)
        got = self.arrays()
        found = [f"array '{name}' is not declared" for name in sorted(set(got) - set(wanted))]
        for name, (shape, dtype) in wanted.items():
            if name not in got:
                found.append(f"array '{name}' is missing")
                continue
            array = got[name]
            if array.shape != shape or array.dtype != dtype:
                found.append(
                    f"array '{name}' is {array.shape} {array.dtype}, not {shape} {np.dtype(dtype)}"
                )
            elif array.dtype == np.float32 and not np.isfinite(array).all():
                found.append(f"array '{name}' holds NaN or infinity")
        if length < 1:
            found.append("it has no steps")
        if self.info.split not in get_args(Split):
            found.append(f"split '{self.info.split}' is neither train nor eval")
        if self.info.domain not in get_args(Domain):
            found.append(f"seed domain '{self.info.domain}' is unknown")
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array by the name it has in the episode's file."""
        images = {f"images.{name}": frames for name, frames in self.images.items()}
        return {**images, "state": self.state, "action": self.action, "points": self.points}

    def digest(self) -> bytes:
        """BLAKE2 hash of the content, the same however the file was compressed."""
        state = hashlib.blake2b(self.info.to_text().encode(), digest_size=16)
        for name, array in sorted(self.arrays().items()):
            state.update(f"{name}{array.shape}{array.dtype.str}".encode())
            state.update(np.ascontiguousarray(array).data)
        return state.digest()
