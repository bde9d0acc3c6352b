"""A scene at run time: reset, observe, step, and the facts factors may know."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robogen.conventions import derivable, derived
from robogen.errors import ConfigError, unknown
from robogen.mj.roles import CameraKind
from robogen.mj.spec_edit import SpecEdit
from robogen.mj.world import Pose, World
from robogen.scenes.base import StepResult
from robogen.scenes.behaviour import BehaviourMeter
from robogen.scenes.build import ROBOT, assemble, camera_name
from robogen.scenes.controller import Controller
from robogen.scenes.library import load_scene_config
from robogen.scenes.oracle import Oracle
from robogen.scenes.placement import draw_uniforms, occupied, places
from robogen.scenes.schema import Choice, SceneConfig
from robogen.scenes.skill import Situation
from robogen.scenes.task import Referee, TaskState
from robogen.seeding import EpisodeSeed
from robogen.specs import (
    ActionSpec,
    CameraSpec,
    InitialState,
    Orientation,
    RenderProfile,
    SceneFacts,
    SceneSpec,
    Split,
    turned,
)


class TabletopScene:
    """A scene built from a scene file.

    One nominal world lives as long as the scene; an episode whose factors need recompilation runs
    in a world of its own, which is closed when the scene goes back to nominal.

    Args:
        config: Validated scene file.
        file: Where it came from.
    """

    def __init__(self, config: SceneConfig, file: Path) -> None:
        self.config = config
        self._assembly = assemble(config, file)
        self._nominal = World.compiled(
            self._assembly.spec.copy(), self._assembly.roles, self._assembly.paint
        )
        self.world = self._nominal
        robot = self._assembly.robot
        self._controller = Controller(
            robot=robot, kinematics=self._assembly.kinematics, prefix=ROBOT
        )
        self._controller.bind(self.world)
        self._tcp = ROBOT + robot.tcp
        self._joints = [ROBOT + name for name in robot.joints]
        self._fingers = [ROBOT + name for name in robot.gripper.joints]
        names = self.world.camera_names
        self._cameras = {
            name: full for name in config.cameras if (full := camera_name(name, names)) is not None
        }
        self._nstep = max(1, round(1.0 / (config.control_hz * self.world.timestep)))
        self.spec = SceneSpec(
            name=config.name,
            cameras=tuple(n for n, c in config.cameras.items() if c.kind != "human"),
            state=derivable(
                {
                    "eef_pos": 3,
                    "eef_rot6d": 6,
                    "gripper_opening": 1,
                    "joint_pos": len(robot.joints),
                    "gripper_qpos": len(robot.gripper.joints),
                    "gripper_closed": 1,
                }
            ),
            action_modes=self._controller.modes,
            control_hz=config.control_hz,
            horizon=config.horizon,
        )
        self._choice = config.task.choices[0]
        self.placement: dict[str, list[float]] = {}
        """Where each object's base stood at the last reset: x, y [m], yaw [rad]."""
        self.spec_edit: SpecEdit | None = None
        """This episode's edits of the specification, when it was recompiled."""

    # -- episode set-up --------------------------------------------------------------------------

    def prepare(self, seed: EpisodeSeed) -> tuple[InitialState, SceneFacts]:
        """Draw where this episode starts and what it asks, before any factor is looked at."""
        config = self.config
        uniforms = draw_uniforms(config, seed.stream("placement"))
        choices = config.task.choices
        self._choice = choices[int(seed.stream("task").integers(len(choices)))]
        splits: tuple[Split, Split] = ("train", "eval")
        facts = SceneFacts(
            scene=config.name,
            workspace=config.arena.workspace,
            occupied=occupied(config, uniforms),
            robot_qpos=tuple(self._assembly.home.tolist()),
            robot_limits=tuple(
                (float(low), float(high)) for low, high in self._nominal.joint_limits(self._joints)
            ),
            instruction=self._worded(config.task.instruction, self._choice),
            paraphrases={
                split: tuple(
                    self._worded(text, self._choice)
                    for text in config.task.paraphrases.get(split, ())
                )
                for split in splits
            },
            control_hz=config.control_hz,
            can_widen=any(item.wide is not None for item in config.objects.values()),
        )
        initial = InitialState(robot_qpos=self._assembly.home.copy(), uniforms=uniforms)
        return initial, facts

    @staticmethod
    def _worded(template: str, choice: Choice) -> str:
        return template.replace("{target}", choice.words)

    @property
    def target(self) -> str:
        """Object this episode's instruction asks for."""
        return self._choice.target

    def wordings(self, split: Split) -> tuple[str, ...]:
        """The nominal instruction and a split's paraphrases of it."""
        task = self.config.task
        templates = (task.instruction, *task.paraphrases.get(split, ()))
        return tuple(self._worded(text, self._choice) for text in templates)

    @property
    def camera_kinds(self) -> dict[str, CameraKind]:
        """``third_person`` or ``wrist``, by name of each camera offered to policies."""
        return {n: c.kind for n, c in self.config.cameras.items() if c.kind != "human"}

    @property
    def human_cameras(self) -> tuple[str, ...]:
        """Cameras for people and videos, never offered to policies."""
        return tuple(n for n, c in self.config.cameras.items() if c.kind == "human")

    @property
    def point_names(self) -> tuple[str, ...]:
        """Names of the task's points."""
        return self.config.task.points

    def rebuild(self, edit: Callable[[SpecEdit], None] | None) -> None:
        """Recompile for one episode with an edited specification; None goes back to nominal."""
        if self.world is not self._nominal:
            self.world.close()
            self.world = self._nominal
        self.spec_edit = None
        if edit is not None:
            spec = self._assembly.spec.copy()
            change = SpecEdit(spec, self._assembly.roles)
            edit(change)
            self.world = World.compiled(spec, self._assembly.roles, self._assembly.paint)
            self.spec_edit = change
        self._controller.bind(self.world)

    def reset(self, initial: InitialState) -> None:
        """Write the initial state into the current world and let things come to rest."""
        world, config = self.world, self.config
        world.reset()
        world.set_joint_positions(world.qpos_addresses(self._joints), initial.robot_qpos)
        gripper = self._assembly.robot.gripper
        world.set_joint_positions(world.qpos_addresses(self._fingers), gripper.open)
        where = places(config, initial)
        for name, spot in where.items():
            base = self._base_offset(name)
            position = np.array([spot.x, spot.y, -base])
            quat_wxyz = np.array([np.cos(spot.yaw / 2), 0.0, 0.0, np.sin(spot.yaw / 2)])
            root = self._assembly.roots[name]
            if config.objects[name].mount == "free":
                world.set_free_body(root, position, quat_wxyz)
            else:
                world.set_static_body(root, position, quat_wxyz)
        world.forward()
        self._controller.reset(initial.robot_qpos)
        world.set_controls(self._controller.actuators, self._controller.targets)
        world.step(round(config.settle_s / world.timestep))
        world.forward()
        self.placement = {name: [round(v, 6) for v in spot] for name, spot in where.items()}
        self._state = TaskState(
            world=world,
            roots=self._assembly.roots,
            tcp=self._tcp,
            fingers=[ROBOT + name for name in gripper.fingers],
            target=self.target,
        )
        self._referee = Referee(
            state=self._state,
            success=config.task.success,
            stages=config.task.progress,
            control_hz=config.control_hz,
        )
        self._meter = BehaviourMeter(
            world=world,
            state=self._state,
            tcp=self._tcp,
            robot_prefix=ROBOT,
            movable=[name for name, item in config.objects.items() if item.mount == "free"],
            intended=config.task.intended,
            control_hz=config.control_hz,
        )
        self._oracle = Oracle(config.task.oracle)

    def _base_offset(self, name: str) -> float:
        """Height of an object's underside below its root [m], negative downwards."""
        site = f"{name}/base"
        try:
            return float(self.world.site_offset(site)[2])
        except KeyError:
            low, _ = self.world.extent(self._assembly.roots[name])
            return float(low[2])

    def check_task(self) -> None:
        """Evaluate every predicate once, so that a scene file's mistakes surface at once."""
        self._state.check(self.config.task.success.all)
        for stage in self.config.task.progress:
            self._state.check(stage.all)

    # -- observation -----------------------------------------------------------------------------

    def render(
        self, camera: str, *, width: int, height: int, profile: RenderProfile
    ) -> NDArray[np.uint8]:
        """One upright RGB frame (height, width, 3) uint8."""
        if camera not in self._cameras:
            raise ConfigError(unknown("camera", camera, self._cameras))
        return self.world.render(self._cameras[camera], width=width, height=height, profile=profile)

    def images(
        self,
        cameras: Iterable[CameraSpec],
        profile: RenderProfile,
        orientation: Orientation | None = None,
    ) -> dict[str, NDArray[np.uint8]]:
        """Frames by camera name, upright unless asked otherwise."""
        return {
            camera.name: turned(
                self.render(camera.name, width=camera.width, height=camera.height, profile=profile),
                orientation or self.spec.orientation,
            )
            for camera in cameras
        }

    def proprioception(self, parts: Sequence[str]) -> NDArray[np.float32]:
        """Concatenated state parts (D,), see :data:`robogen.specs.STATE_LAYOUT`."""
        tool = self.world.site_pose(self._tcp)
        offered: dict[str, NDArray[np.float64]] = {
            "eef_pos": tool.position,
            "eef_rot6d": tool.rotation[:, :2].T.reshape(-1),
        }
        for part in parts:
            if part == "gripper_opening":
                offered[part] = np.array([self._opening()])
            elif part == "gripper_closed":
                offered[part] = np.array([self._closed()])
            elif part == "gripper_qpos":
                offered[part] = self.world.joint_positions(self.world.qpos_addresses(self._fingers))
            elif part == "joint_pos":
                offered[part] = self.world.joint_positions(self.world.qpos_addresses(self._joints))
            elif part not in self.spec.state:
                raise ConfigError(unknown("state part", part, self.spec.state))
        found = [derived(part, offered) for part in parts]
        return np.concatenate(found).astype(np.float32) if found else np.zeros(0, np.float32)

    def _closed(self) -> float:
        gripper = self._assembly.robot.gripper
        widest = abs(gripper.open - gripper.closed) * len(self._fingers)
        return 1.0 - self._opening() / widest

    def _opening(self) -> float:
        return float(self.world.joint_positions(self.world.qpos_addresses(self._fingers)).sum())

    def points(self) -> NDArray[np.float32]:
        """Positions (K, 3) [m] of the task's points relative to the tool, base frame."""
        tool = self.world.site_pose(self._tcp).position
        return np.array(
            [self._state.position(name) - tool for name in self.config.task.points], np.float32
        )

    def expert_action(
        self, spec: ActionSpec, pending: Sequence[NDArray[np.float64]] = ()
    ) -> NDArray[np.float64]:
        """What the oracle does now (7,), given ``delta_eef`` commands still under way."""
        command = self._controller.target
        position = command.position.copy()
        for action in pending:
            position += spec.scale_position * np.clip(action[:3], -1.0, 1.0)
        now = Situation(
            world=self.world,
            state=self._state,
            tool=self.world.site_pose(self._tcp),
            command=Pose(position, command.rotation),
            spec=spec,
        )
        return self._oracle.act(now)

    @property
    def has_expert(self) -> bool:
        """Every scene file names its oracle."""
        return True

    # -- action ----------------------------------------------------------------------------------

    def rest_action(self, spec: ActionSpec) -> NDArray[np.float64]:
        """The action that means "stay" right now."""
        return self._controller.rest(spec)

    def step(self, action: NDArray[np.float64], spec: ActionSpec) -> StepResult:
        """Execute one action for one control step."""
        self._controller.apply(action, spec)
        self.world.ramp(self._nstep, self._controller.actuators, self._controller.targets)
        if not self.world.is_finite():
            return StepResult(False, self._referee.progress, False)
        self._meter.update()
        success = self._referee.update()
        return StepResult(success, self._referee.progress, True)

    def behaviour(self) -> dict[str, float]:
        """This episode's behaviour measures so far."""
        return self._meter.summary()

    @property
    def stage(self) -> str:
        """Latest progress stage passed."""
        return self._referee.stage

    def notes(self) -> tuple[str, ...]:
        """Nothing: what there is to know of a scene file is in it."""
        return ()

    def identity(self) -> dict[str, str]:
        """Hash of the compiled nominal model and of the scene file's content."""
        digest = hashlib.blake2b(digest_size=12)
        digest.update(self.config.model_dump_json().encode())
        digest.update(self._assembly.spec.to_xml().encode())
        return {"hash": digest.hexdigest()}

    def close(self) -> None:
        """Free what the scene's worlds hold on the device."""
        self.rebuild(None)
        self._nominal.close()


def load_tabletop(
    name: str, *, overrides: Mapping[str, Any] | None = None, extra: Iterable[Path] = ()
) -> TabletopScene:
    """Build a scene from its scene file.

    Args:
        name: File stem in ``scenes/``.
        overrides: Dotted keys of the scene file and their values.
        extra: User's configuration folders.
    """
    config, file = load_scene_config(name, overrides=overrides, extra=extra)
    return TabletopScene(config, file)
