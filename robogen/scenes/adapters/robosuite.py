"""robosuite: single-arm tasks under operational-space control, and what LIBERO shares with it."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robogen.mj.world import Pose
from robogen.scenes.adapters.base import Adapter, Start
from robogen.scenes.adapters.skills import Expert, Sight
from robogen.scenes.adapters.skills import expert as make_expert
from robogen.seeding import lent_generators
from robogen.specs import ActionMode, ActionSpec

METRES, RADIANS = 0.05, 0.5
"""Longest translation [m] and largest rotation [rad] that one step of ``OSC_POSE`` commands along
each axis."""
QUIET: Mapping[str, Any] = {
    "has_renderer": False,
    "has_offscreen_renderer": False,
    "use_camera_obs": False,
    "hard_reset": False,
    "control_freq": 20,
    "horizon": 10**9,
    "ignore_done": True,
}
"""An environment that draws nothing, keeps its model from reset to reset, and never ends."""


class SuiteAdapter(Adapter):
    """What robosuite 1.4 and 1.5 have in common.

    Positions and rotations are in the world frame, in which robosuite reports them; the bases of
    its arms are not turned in it, so ``delta_eef`` commands share its axes. What a command asks
    beyond 0.05 m or 0.5 rad an axis, the environment clips.

    Args:
        env: The environment, made with :data:`QUIET`.
        xml: What its model was compiled from.
        site: Grip site.
        hand: Body whose orientation robosuite calls the end effector's.
        fingers: The gripper's joints.
        expert: Who knows how to do the task, if anybody.
    """

    def __init__(
        self,
        env: Any,
        *,
        xml: str,
        site: str,
        hand: str,
        fingers: Sequence[str],
        expert: Expert | None = None,
    ) -> None:
        self._env = env
        self._robot = env.robots[0]
        self._site, self._hand = site, hand
        for name in env.observation_names:  # they cost more than physics, and nobody reads them
            env.modify_observable(name, "enabled", False)
        self._specification = mujoco.MjSpec.from_string(xml)
        self._arm = np.array(self._robot._ref_joint_pos_indexes)
        self._fingers = np.array([self.model.joint(name).qposadr[0] for name in fingers], int)
        self._site_rgba = np.array(self.model.site_rgba)
        self._expert = expert
        self._reached = 0.0
        self._done = False

    # -- the simulator ---------------------------------------------------------------------------

    @property
    def model(self) -> mujoco.MjModel:
        """The model in robosuite's wrapper."""
        return self._env.sim.model._model

    @property
    def data(self) -> mujoco.MjData:
        """The state in robosuite's wrapper."""
        return self._env.sim.data._data

    def specification(self) -> mujoco.MjSpec:
        """Of the XML that robosuite composed."""
        return self._specification.copy()

    def install(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Swap both inside the wrappers that robots, controllers and sensors hold on to."""
        sim = self._env.sim
        sim.model._model, sim.data._data = model, data
        sim.model.make_mappings()

    # -- an episode ------------------------------------------------------------------------------

    def reset(self, start: Start) -> None:
        """Reset on the model as it was compiled, but for what the reset itself writes."""
        self.model.site_rgba[:] = self._site_rgba  # toggled in place from what it was
        self._restart(start)
        self._done, self._reached = False, 0.0
        if self._expert is not None:
            self._expert.reset()

    @abstractmethod
    def _restart(self, start: Start) -> None:
        """The environment's own reset, repeatable."""

    def step(self, action: NDArray[np.float64], spec: ActionSpec) -> None:
        """Execute one action (7,)."""
        command = np.array(action, dtype=np.float64)
        if spec.mode == "delta_eef":
            command = np.clip(command, -1.0, 1.0)
            command[:3] *= spec.scale_position / METRES
            command[3:6] *= spec.scale_rotation / RADIANS
            if spec.gripper == "open_positive":
                command[6:] *= -1.0
        self._advance(command[: self._env.action_dim])

    @abstractmethod
    def _advance(self, command: NDArray[np.float64]) -> None:
        """One control step of the environment; sees to success and progress."""

    def success(self) -> bool:
        """As the environment saw it after the last step."""
        return self._done

    def progress(self) -> float:
        """As it was after the last step."""
        return self._reached

    # -- conventions -----------------------------------------------------------------------------

    @property
    def action_modes(self) -> Mapping[ActionMode, int]:
        """``native`` is ``delta_eef`` at robosuite's own scales."""
        return {"delta_eef": 7, "native": self._env.action_dim}

    def rest(self, spec: ActionSpec) -> NDArray[np.float64]:
        """No motion; a gripper command of 0 leaves the fingers where they are told to be."""
        return np.zeros(spec.dim)

    def state(self) -> Mapping[str, NDArray[np.float64]]:
        """Position [m] of the grip site and orientation of the hand, both in the world frame.

        ``eef_axis_angle`` is computed as robosuite's ``quat2axisangle`` does, which policies were
        trained on: its angle lies in 0 to 2 pi.
        """
        data = self.data
        fingers = np.array(data.qpos[self._fingers])
        found = {
            "eef_pos": np.array(data.site(self._site).xpos),
            "eef_rot6d": np.array(data.body(self._hand).xmat).reshape(3, 3)[:, :2].T.reshape(-1),
            "joint_pos": np.array(data.qpos[self._arm]),
            "eef_axis_angle": axis_angle(np.array(data.body(self._hand).xquat)),
        }
        if fingers.size:
            found["gripper_qpos"] = fingers
        if fingers.size == 2:  # they slide, in opposite directions
            found["gripper_opening"] = np.array([abs(fingers[0] - fingers[1])])
        return found

    @property
    def tool(self) -> Pose:
        """Grip site, between the finger tips: x along their way, z out of the hand."""
        site = self.data.site(self._site)
        return Pose(np.array(site.xpos), np.array(site.xmat).reshape(3, 3))

    def expert(
        self, spec: ActionSpec, pending: Sequence[NDArray[np.float64]]
    ) -> NDArray[np.float64] | None:
        """What the scripted expert of the task does now; None without one."""
        if self._expert is None:
            return None
        if spec.mode == "native":
            spec = ActionSpec()  # whose scales are robosuite's own
        return self._expert.act(Sight(self.model, self.data, self.tool, spec, tuple(pending)))

    def close(self) -> None:
        """Drop the environment's simulator."""
        self._env.close()


class RobosuiteAdapter(SuiteAdapter):
    """One task of robosuite 1.5, by the name of its class there, e.g. ``Lift``.

    Its model is made once: what robosuite draws when it makes a model (the size of Lift's cube)
    is the same in every episode, while placements and the arm's start follow the episode's seed.

    Args:
        task: Name in robosuite's registry.
        robot: A robot with one arm and a fixed base.
        expert: How a scripted expert does the task, see
            :func:`robogen.scenes.adapters.skills.expert`; None for tasks without one.
    """

    def __init__(
        self, task: str, robot: str = "Panda", expert: Mapping[str, str] | None = None
    ) -> None:
        with quietly():
            import robosuite

            env: Any = robosuite.make(task, robots=robot, reward_shaping=True, seed=0, **QUIET)
            env.reset()
        xml = env.model.get_xml()
        for process in env._xml_processors:
            xml = process(xml)
        arm = env.robots[0].arms[0]
        gripper = env.robots[0].gripper[arm]
        super().__init__(
            env,
            xml=xml,
            site=gripper.important_sites["grip_site"],
            hand=env.robots[0].robot_model.eef_name[arm],
            fingers=gripper.joints,
            expert=None if expert is None else make_expert(**expert),
        )
        self._controller_name = arm

    @classmethod
    def tasks(cls) -> tuple[str, ...]:
        """All that robosuite registers, without those for two arms."""
        with quietly():
            import robosuite
        return tuple(
            sorted(name for name in robosuite.ALL_ENVIRONMENTS if not name.startswith("TwoArm"))
        )

    def _restart(self, start: Start) -> None:
        # Samplers hold the environment's generator itself, so it is put into the seed's state.
        fresh = np.random.default_rng(start.seed)
        self._env.rng.bit_generator.state = fresh.bit_generator.state
        self._env.reset()

    def _advance(self, command: NDArray[np.float64]) -> None:
        _, reward, _, _ = self._env.step(command)
        self._done = bool(self._env._check_success())
        self._reached = 1.0 if self._done else float(np.clip(reward, 0.0, 1.0))

    def progress(self) -> float:
        """Robosuite's shaped reward, which is 1 at success."""
        return self._reached

    @property
    def instruction(self) -> str:
        """None of its own: the family file has the words."""
        return ""

    def state(self) -> Mapping[str, NDArray[np.float64]]:
        """As :class:`SuiteAdapter` has it, and robosuite's own ``robot0_proprio-state``."""
        seen: dict[str, Any] = {}  # sensors look up what those before them saw
        for name, observable in self._env._observables.items():
            if observable.modality == "robot0_proprio":
                seen[name] = np.atleast_1d(observable._sensor(seen))
        return {**super().state(), "native": np.concatenate(list(seen.values()))}

    def arm_moved(self) -> None:
        """Tell the controller that the arm starts here: its null space prefers these joints."""
        controller = self._robot.part_controllers[self._controller_name]
        controller.update_initial_joints(self.data.qpos[self._arm])


@contextmanager
def quietly() -> Iterator[None]:
    """Without robosuite's hints on optional packages, and leaving global generators as they are."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with lent_generators():
            yield
    finally:
        logging.disable(level)


def axis_angle(quat_wxyz: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotation vector (3,) [rad] of a unit quaternion (4,), as robosuite computes it."""
    cosine = float(np.clip(quat_wxyz[0], -1.0, 1.0))
    sine = np.sqrt(1.0 - cosine * cosine)
    if sine < 1e-9:
        return np.zeros(3)
    return np.asarray(quat_wxyz[1:] * 2.0 * np.arccos(cosine) / sine)
