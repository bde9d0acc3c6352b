"""Stand-ins for what some policies need behind them: servers on the loopback, a checkpoint.

By the class that a policy's file names; a new kind of remote policy adds its own here, and its
files are then under the laws.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from contract_world import scene_named

from robogen.policies.base import Policy
from robogen.policies.library import available
from robogen.scenes.library import read_yaml
from robogen.specs import ActionSpec, CameraSpec, ObservationSpec, PolicySpec, SceneSpec

sys.path.append(str(Path(__file__).parents[1] / "policies"))  # doubles of the public protocols

OPEN = ExitStack()
"""Closed when the laws are done."""
Overrides = Mapping[str, Any]
NOTHING: Overrides = {}


def numbers(shape: tuple[int, ...], *seen: bytes) -> np.ndarray:
    """Actions in [-1, 1] that depend on every byte that was seen."""
    seed = hashlib.blake2b(b"".join(seen), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(seed, "little")).uniform(-1.0, 1.0, shape)


class Served(Policy):
    """What the stand-in of a policy server serves: it sees a camera and reads the instruction."""

    def __init__(self, scene: SceneSpec) -> None:
        self.spec = PolicySpec(
            observation=ObservationSpec(
                cameras=(CameraSpec(name=scene.cameras[0], width=24, height=16),),
                state=(next(iter(scene.state)),),
                instruction=True,
            ),
            action=replace(scene.action, chunk=4, execute=2),
        )

    def act(self, rows, observations):
        del rows
        spec = self.spec.action
        return np.stack(
            [
                numbers(
                    (spec.chunk, spec.dim),
                    *(image.tobytes() for image in seen.images.values()),
                    seen.state.tobytes(),
                    seen.instruction.encode(),
                )
                for seen in observations
            ]
        )


def openpi(content: Mapping[str, Any], scene: SceneSpec) -> Overrides | None:
    """A ``robogen serve``, or a server of the public protocol for files with a layout."""
    if "action" not in content:
        from robogen.serve import PolicyServer, ServeConfig, serving

        server = PolicyServer(
            Served(scene), name="served", config=ServeConfig(port=0), sizes=scene.state
        )
        return {"servers": OPEN.enter_context(serving(server)), "deterministic": True}
    from openpi_double import Double

    action = {**content["action"], "control_hz": scene.control_hz}
    parts = [
        p
        for given in content["state"].values()
        for p in ([given] * isinstance(given, str) or given)
    ]
    wanted = ActionSpec(**action)
    if scene.action_modes.get(wanted.mode) != wanted.dim or not set(parts) <= set(scene.state):
        return None

    def answer(request: Mapping[str, Any], number: int) -> dict[str, Any]:
        del number
        seen = [np.asarray(request[key]).tobytes() for key in sorted(request)]
        return {"actions": numbers((wanted.chunk, wanted.dim), *seen)}

    double = Double(answer)
    OPEN.callback(double.stop)
    names = {key: scene.cameras[n % len(scene.cameras)] for n, key in enumerate(content["images"])}
    return {
        "servers": double.url,
        "deterministic": True,
        "cameras": names,
        "action.control_hz": scene.control_hz,
    }


def takes_tool_deltas(scene: SceneSpec) -> bool:
    return scene.action_modes.get("delta_eef") == 7


def openvla(content: Mapping[str, Any], scene: SceneSpec) -> Overrides | None:
    """OpenVLA's own server."""
    from openvla_double import OpenVLADouble

    del content
    if not takes_tool_deltas(scene):
        return None

    def answer(request: Mapping[str, Any]) -> np.ndarray:
        return numbers((7,), request["image"].tobytes(), request["instruction"].encode())

    double = OPEN.enter_context(OpenVLADouble(answer))
    return {"servers": double.url, "unnorm_key": "toy", "deterministic": True}


def groot(content: Mapping[str, Any], scene: SceneSpec) -> Overrides | None:
    """GR00T's own server, with the keys of its LIBERO fine-tune."""
    from groot_double import GrootDouble

    cameras = len(content["cameras"]) <= len(scene.cameras)
    parts = {str(piece).partition("[")[0] for piece in content["state"].values()}
    if not takes_tool_deltas(scene) or not cameras or not parts <= set(scene.state):
        return None
    double = OPEN.enter_context(GrootDouble(protocol=content["protocol"]))
    return {"servers": double.url, "deterministic": True}


def lerobot(content: Mapping[str, Any], scene: SceneSpec) -> Overrides | None:
    """An untrained ACT of the scene's sizes, where LeRobot is installed."""
    del content
    if importlib.util.find_spec("lerobot") is None:
        return None
    from lerobot_double import untrained

    folder = Path(OPEN.enter_context(TemporaryDirectory()))
    part = next(iter(scene.state))
    return {"checkpoint": str(untrained(folder, scene, (part,))), "state": [part], "device": "cpu"}


STAND_INS: Mapping[str, Callable[[Mapping[str, Any], SceneSpec], Overrides | None]] = {
    "robogen.policies.groot.GR00TPolicy": groot,
    "robogen.policies.lerobot.LeRobotPolicy": lerobot,
    "robogen.policies.openpi.OpenPIPolicy": openpi,
    "robogen.policies.openvla.OpenVLAPolicy": openvla,
}


@cache
def behind(policy: str, scene: str) -> Overrides | None:
    """Parameters that let a policy's file work here; None: it cannot act in this scene."""
    content = read_yaml(available()[policy])
    make = STAND_INS.get(str(content.get("_target_")))
    return NOTHING if make is None else make(content, scene_named(scene).spec)
