"""From a policy's action to actuator targets, in every action mode a scene accepts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from robogen.mj.kinematics import ArmKinematics
from robogen.mj.rotations import matrix_of, orthonormal, vector_of
from robogen.mj.world import Pose, World
from robogen.scenes.schema import RobotConfig
from robogen.specs import ActionMode, ActionSpec

LEASH = 0.12
"""Farthest a commanded tool position may run ahead of the measured one [m]."""


class Controller:
    """Tracks commands of one robot with joint position targets.

    Deltas are added to the *commanded* pose, not to the measured one, so that tracking error does
    not accumulate; the leash stops the command from running away when the arm is blocked.

    Args:
        robot: Names in the robot's model.
        kinematics: The arm's kinematics.
        prefix: What the assembled scene put before the robot's names.
    """

    def __init__(self, *, robot: RobotConfig, kinematics: ArmKinematics, prefix: str) -> None:
        self._robot = robot
        self._kinematics = kinematics
        self._joints = [prefix + name for name in robot.joints]
        self._actuators = [prefix + name for name in (*robot.actuators, robot.gripper.actuator)]
        self._tcp = prefix + robot.tcp
        self.target = Pose(np.zeros(3), np.eye(3))
        """Commanded tool pose, base frame."""
        self._command = np.zeros(len(robot.joints))
        self.targets = np.zeros(len(robot.joints) + 1)
        """Actuator targets to be reached by the end of the coming control step."""

    @property
    def modes(self) -> dict[ActionMode, int]:
        """Action modes and their dimensions."""
        joints = len(self._robot.joints)
        return {
            "delta_eef": 7,
            "absolute_eef": 7,
            "absolute_joint": joints + 1,
            "delta_joint": joints + 1,
        }

    def bind(self, world: World) -> None:
        """Look up this world's addresses; call again for every recompiled world."""
        self._world = world
        self._ctrl = world.actuator_ids(self._actuators)
        self._qpos = world.qpos_addresses(self._joints)
        self._limits = world.joint_limits(self._joints)

    def reset(self, joints: NDArray[np.float64]) -> None:
        """Start from joint positions (n,) [rad] with the gripper open, commanding to stay."""
        self._command = joints.copy()
        self.target = self._kinematics.forward(joints)
        self._write(self._robot.gripper.open)

    def rest(self, spec: ActionSpec) -> NDArray[np.float64]:
        """The action that means "stay where you are, gripper open" under a spec, right now."""
        opened = -1.0 if spec.gripper == "close_positive" else 1.0
        if spec.mode == "absolute_joint":
            return np.append(self._command, opened)
        if spec.mode == "absolute_eef":
            vector = vector_of(self.target.rotation)
            return np.concatenate([self.target.position, vector, [opened]])
        return np.append(np.zeros(spec.dim - 1), opened)

    def apply(self, action: NDArray[np.float64], spec: ActionSpec) -> None:
        """Turn one action (dim,) into :attr:`targets` for the coming control step."""
        if spec.mode in ("delta_eef", "absolute_eef"):
            self._move_tool(action, spec)
        else:
            change = np.asarray(action[:-1], dtype=np.float64)
            if spec.mode == "absolute_joint":
                joints = change
            else:
                joints = self._command + spec.scale_rotation * np.clip(change, -1.0, 1.0)
            self._command = np.clip(joints, self._limits[:, 0], self._limits[:, 1])
            self.target = self._kinematics.forward(self._command)
        closing = max(-1.0, min(1.0, float(action[-1])))
        if spec.gripper == "open_positive":
            closing = -closing
        gripper = self._robot.gripper
        self._write(gripper.open + 0.5 * (closing + 1.0) * (gripper.closed - gripper.open))

    def _move_tool(self, action: NDArray[np.float64], spec: ActionSpec) -> None:
        if spec.mode == "absolute_eef":
            target = Pose(np.array(action[:3]), matrix_of(action[3:6]))
        elif any(action[:6]):
            delta = np.minimum(np.maximum(action[:6], -1.0), 1.0)
            target = Pose(
                self.target.position + spec.scale_position * delta[:3],
                orthonormal(matrix_of(spec.scale_rotation * delta[3:]) @ self.target.rotation),
            )
        else:
            target = self.target
        measured = self._world.site_position(self._tcp)
        offset = target.position - measured
        distance = math.hypot(*offset)
        if distance > LEASH:
            target = Pose(measured + offset * (LEASH / distance), target.rotation)
        self.target = target
        self._command = self._kinematics.solve(self._command, target)

    def _write(self, gripper: float) -> None:
        self.targets = np.empty(len(self._command) + 1)
        self.targets[:-1] = self._command
        self.targets[-1] = gripper

    @property
    def actuators(self) -> NDArray[np.intp]:
        """Control indices that :attr:`targets` is for."""
        return self._ctrl
