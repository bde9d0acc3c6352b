"""gym-aloha: two ViperX arms over a table, driven by absolute joint positions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robogen.mj.world import Pose
from robogen.scenes.adapters.base import Adapter, Start
from robogen.specs import ActionMode, ActionSpec

if TYPE_CHECKING:
    from robogen.scenes.adapters.aloha_expert import TransferExpert

_ARMS = np.array([*range(6), *range(8, 14)])
"""Arm joints of both arms, left one first, in ``qpos`` and in ``ctrl`` alike."""
_GRIPPERS = np.array([6, 14])
"""One finger of each gripper, in ``qpos`` and in ``ctrl`` alike; the other mirrors it."""
_MOST = 4
"""The reward of a task that is done."""
_TOOL = "cali_right_site1"


class AlohaAdapter(Adapter):
    """One task of gym-aloha, by its name there: ``transfer_cube`` or ``insertion``.

    Actions and the ``native`` state are (14,): for the left arm, then for the right one, six joint
    positions [rad] and the gripper, 0 closed and 1 open.
    """

    def __init__(self, task: str) -> None:
        self._task = task
        self._env: Any = _environment()(task=task)
        self._physics: Any = self._env._env.physics
        # Its own draws three frames of 640 x 480 at every step; the environment passes one on.
        blank = {"images": {"top": np.zeros(0)}}
        self._env._env.task.get_observation = lambda physics: blank
        self._fix_cameras()
        self._spec: mujoco.MjSpec | None = None
        self._expert: TransferExpert | None = None
        self._reward = 0

    @classmethod
    def tasks(cls) -> tuple[str, ...]:
        """The two that gym-aloha registers."""
        return ("insertion", "transfer_cube")

    def _fix_cameras(self) -> None:
        """Let the cameras that are aimed at the table keep their look, bit for bit.

        Aimed anew from a shifted place, the one above it would turn about its axis by any angle.
        """
        for name in ("top", "angle"):
            camera = self.model.camera(name)
            mujoco.mju_mat2Quat(camera.quat, self.data.camera(name).xmat)
            camera.mode[:] = int(mujoco.mjtCamLight.mjCAMLIGHT_FIXED)

    # -- the simulator ---------------------------------------------------------------------------

    @property
    def model(self) -> mujoco.MjModel:
        """The model inside dm_control's physics."""
        return self._physics.model.ptr

    @property
    def data(self) -> mujoco.MjData:
        """The state inside dm_control's physics."""
        return self._physics.data.ptr

    def specification(self) -> mujoco.MjSpec:
        """Read once from the file that the environment was made of; a copy of it."""
        if self._spec is None:
            from gym_aloha.constants import ASSETS_DIR

            file = ASSETS_DIR / f"bimanual_viperx_{self._task}.xml"
            self._spec = mujoco.MjSpec.from_file(str(file))
        return self._spec.copy()

    def install(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Let dm_control's physics, its named indexing included, work on another pair."""
        from dm_control.mujoco import wrapper

        wrapped = wrapper.MjData(data)
        wrapped._model = wrapper.MjModel(model)
        self._physics._reload_from_data(wrapped)

    # -- an episode ------------------------------------------------------------------------------

    def reset(self, start: Start) -> None:
        """The environment places its objects from the seed, through a list of its module.

        The list is written and read within this call, so environments do not disturb each other.
        """
        self._env.reset(seed=start.seed)
        self._reward = 0
        self._expert = None

    def step(self, action: NDArray[np.float64], spec: ActionSpec) -> None:
        """Execute one action (14,); what is out of range is clamped by the actuators."""
        del spec
        from dm_control.rl.control import PhysicsError

        try:
            self._reward = int(self._env.step(np.asarray(action, dtype=np.float64))[1])
            # dm_control's last half step finds contacts anew and leaves the forces of the old ones.
            warm = self.data.qacc_warmstart.copy()
            self._physics.forward()
            self.data.qacc_warmstart[:] = warm
        except PhysicsError:
            self.data.qpos[:] = np.nan  # how a scene sees that a simulation has diverged

    def success(self) -> bool:
        """Whether the last step's reward was the highest."""
        return self._reward == _MOST

    def progress(self) -> float:
        """Reward of the last step over the highest."""
        return self._reward / _MOST

    @property
    def instruction(self) -> str:
        """None of its own: the family file has the words."""
        return ""

    # -- conventions -----------------------------------------------------------------------------

    @property
    def action_modes(self) -> Mapping[ActionMode, int]:
        """Absolute joint positions [rad] and normalised grippers of both arms."""
        return {"native": 14}

    def _joined(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """``qpos`` or ``ctrl`` of both arms as an action (14,)."""
        from gym_aloha.constants import normalize_puppet_gripper_position

        left, right = normalize_puppet_gripper_position(values[_GRIPPERS])
        arms = values[_ARMS]
        return np.array([*arms[:6], left, *arms[6:], right])

    def rest(self, spec: ActionSpec) -> NDArray[np.float64]:
        """The targets that stand now.

        At the start of an episode they are the pose itself; later, holding the measured pose would
        sag under load and let go of what a gripper holds.
        """
        del spec
        return self._joined(self.data.ctrl)

    def arm_moved(self) -> None:
        """Make the pose as it is now the one that is held."""
        self.data.ctrl[_ARMS] = self.data.qpos[_ARMS]

    def state(self) -> Mapping[str, NDArray[np.float64]]:
        """Both arms as the environment observes them (14,), and their joints alone (12,) [rad]."""
        qpos = self.data.qpos
        return {"joint_pos": qpos[_ARMS], "native": self._joined(qpos)}

    @property
    def tool(self) -> Pose:
        """Finger tips of the right arm, which is first to grasp; x points out of the gripper."""
        site = self.data.site(_TOOL)
        return Pose(np.array(site.xpos), np.array(site.xmat).reshape(3, 3))

    def expert(
        self, spec: ActionSpec, pending: Sequence[NDArray[np.float64]]
    ) -> NDArray[np.float64] | None:
        """What a scripted transfer does now (14,); there is none for the insertion."""
        if self._task != "transfer_cube":
            return None
        if self._expert is None:
            from robogen.scenes.adapters.aloha_expert import TransferExpert

            self._expert = TransferExpert(self.model)
        command = np.asarray(pending[-1] if len(pending) else self.rest(spec))
        return self._expert.act(self.data, command)


def _environment() -> Any:
    """gym-aloha's class.

    dm_control opens a display when it is imported and terminates it at exit, under whoever else
    draws. Here it draws nothing and is told to do without, unless it was imported before.
    """
    asked = os.environ.get("MUJOCO_GL")
    os.environ["MUJOCO_GL"] = "disable"
    try:
        from gym_aloha.env import AlohaEnv
    finally:
        del os.environ["MUJOCO_GL"]
        if asked is not None:
            os.environ["MUJOCO_GL"] = asked
    return AlohaEnv
