"""Assembly: a scene file's parts become one MuJoCo specification with roles."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from robogen.errors import SceneError
from robogen.mj.kinematics import ArmKinematics
from robogen.mj.patterns import pattern
from robogen.mj.roles import CameraKind, Roles
from robogen.scenes.library import load_robot_config, resolve_model
from robogen.scenes.menagerie import dress
from robogen.scenes.schema import RobotConfig, SceneConfig

ROBOT = "robot/"
"""Prefix of the robot's names in an assembled scene."""


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """Everything compiled worlds of one scene are made from."""

    spec: mujoco.MjSpec
    """Nominal specification; copied before it is edited."""
    roles: Roles
    paint: Mapping[str, NDArray[np.uint8]]
    """Nominal pixels by texture name."""
    roots: Mapping[str, str]
    """Root body of each object."""
    robot: RobotConfig
    home: NDArray[np.float64]
    """Arm joint positions (n,) at the start [rad]."""
    kinematics: ArmKinematics


def _load(file: Path) -> mujoco.MjSpec:
    try:
        return mujoco.MjSpec.from_file(str(file))
    except Exception as error:
        raise SceneError(f"MuJoCo cannot read {file}: {error}. Mend the model.") from error


def _only_root(spec: mujoco.MjSpec, file: Path) -> mujoco.MjsBody:
    roots = spec.worldbody.bodies
    if len(roots) != 1 or not roots[0].name:
        names = ", ".join(body.name or "(unnamed)" for body in roots) or "none"
        raise SceneError(
            f"{file} must have exactly one named body directly in worldbody, got {names}. "
            "Wrap the object's parts in one body."
        )
    return roots[0]


def _matching(
    names: list[str], patterns: tuple[str, ...], what: str, file: Path
) -> tuple[str, ...]:
    found: list[str] = []
    for pattern_ in patterns:
        matches = fnmatch.filter(names, pattern_)
        if not matches:
            raise SceneError(
                f"{what} '{pattern_}' matches nothing in {file}. Available: {', '.join(names)}."
            )
        found += [name for name in matches if name not in found]
    return tuple(found)


def assemble(config: SceneConfig, file: Path) -> Assembly:
    """Build the nominal specification of a scene.

    Args:
        config: Validated scene file.
        file: Where it came from; model paths may be relative to it.

    Raises:
        SceneError: A model cannot be read or lacks what the scene file names.
    """
    arena_file = resolve_model(config.arena.model, scene_file=file)
    spec = _load(arena_file)
    geoms = [geom.name for geom in spec.geoms if geom.name]
    surfaces = {
        role: _matching(geoms, getattr(config.arena, role), f"arena.{role}", arena_file)
        for role in ("table", "floor", "background")
    }
    lights = _matching(
        [light.name for light in spec.lights], config.arena.lights, "arena.lights", arena_file
    )

    robot, robot_file = load_robot_config(config.robot.name, scene_file=file)
    robot_model = resolve_model(robot.model, scene_file=robot_file.parent)
    home = np.array(config.robot.home or robot.home, dtype=np.float64)
    if home.shape != (len(robot.joints),):
        raise SceneError(
            f"robot.home of scene '{config.name}' has {home.size} numbers, {config.robot.name} has "
            f"{len(robot.joints)} joints."
        )
    alone = _load(robot_model)
    kinematics = ArmKinematics(
        model=alone.compile(), joints=robot.joints, site=robot.tcp, posture=home
    )
    arm = _load(robot_model)
    if config.robot.source == "menagerie":
        dress(arm, config.robot.name)
    for key in list(arm.keys):
        arm.delete(key)
    spec.attach(arm, prefix=ROBOT, frame=spec.worldbody.add_frame())

    roots: dict[str, str] = {}
    bodies: dict[str, list[str]] = {"robot": [ROBOT + robot.root]}
    for name, item in config.objects.items():
        model_file = resolve_model(item.model, scene_file=file)
        part = _load(model_file)
        root = _only_root(part, model_file)
        if item.mount == "free":
            root.add_freejoint()
        else:
            root.mocap = True
        roots[name] = f"{name}/{root.name}"
        spec.attach(part, prefix=f"{name}/", frame=spec.worldbody.add_frame())
        bodies.setdefault(item.role, []).append(roots[name])

    cameras = [camera.name for camera in spec.cameras]
    kinds: dict[str, CameraKind] = {}
    for name, camera in config.cameras.items():
        full = camera_name(name, cameras)
        if full is None:
            raise SceneError(
                f"Camera '{name}' of scene '{config.name}' is in no model. Available: "
                f"{', '.join(cameras)}."
            )
        if camera.kind != "human":
            kinds[full] = camera.kind
    roles = Roles(
        bodies={role: tuple(names) for role, names in bodies.items()},
        surfaces=surfaces,
        lights=lights,
        cameras=kinds,
    )
    paint = _nominal_paint(spec, config)
    return Assembly(
        spec=spec,
        roles=roles,
        paint=paint,
        roots=roots,
        robot=robot,
        home=home,
        kinematics=kinematics,
    )


def camera_name(name: str, cameras: list[str]) -> str | None:
    """A camera's name in the assembled scene: the robot's own cameras carry its prefix."""
    for candidate in (name, ROBOT + name):
        if candidate in cameras:
            return candidate
    return None


def _nominal_paint(spec: mujoco.MjSpec, config: SceneConfig) -> dict[str, NDArray[np.uint8]]:
    sizes = {texture.name: int(texture.width) for texture in spec.textures}
    paint: dict[str, NDArray[np.uint8]] = {}
    for name, item in config.arena.textures.items():
        if name not in sizes:
            raise SceneError(
                f"arena.textures names '{name}', which no model of scene '{config.name}' has. "
                f"Available: {', '.join(sizes)}."
            )
        paint[name] = pattern(item.pattern, seed=item.seed, size=sizes[name], rgb=item.rgb)
    return paint
