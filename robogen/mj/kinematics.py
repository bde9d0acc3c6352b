"""Forward and differential inverse kinematics of an arm, on a model of the robot alone."""

from __future__ import annotations

from collections.abc import Sequence

import mink
import mujoco
import numpy as np
from numpy.typing import NDArray

from robogen.mj.world import Pose

_STEP = 0.1
_ITERATIONS = 6
_POSITION_TOLERANCE = 1e-4
_ROTATION_TOLERANCE = 1e-3


class ArmKinematics:
    """Kinematics of one arm in its base frame, which scenes put at the world's origin.

    Inverse kinematics follows the reference with a few quadratic programs (mink): track the tool
    frame within the joint limits and, with what freedom is left, stay near a posture.

    Args:
        model: Compiled robot alone.
        joints: Arm joints, base to tip.
        site: Tool centre point.
        posture: Joint positions (n,) [rad] preferred where the task leaves a choice.
    """

    def __init__(
        self,
        *,
        model: mujoco.MjModel,
        joints: Sequence[str],
        site: str,
        posture: NDArray[np.float64],
    ) -> None:
        self._configuration = mink.Configuration(model)
        self._addresses = np.array([model.joint(j).qposadr[0] for j in joints])
        self._site = site
        self._frame = mink.FrameTask(
            site, "site", position_cost=1.0, orientation_cost=0.5, lm_damping=1e-4
        )
        self._posture = mink.PostureTask(model, cost=1e-3)
        self._limits = [mink.ConfigurationLimit(model)]
        rest = np.array(model.qpos0)
        rest[self._addresses] = posture
        self._posture.set_target(rest)
        self._rest = rest
        self._solved: tuple[NDArray[np.float64], Pose] | None = None
        """The last solution and its target, when the solution is exact to the tolerances."""

    def forward(self, joints: NDArray[np.float64]) -> Pose:
        """Tool pose at joint positions (n,) [rad], base frame."""
        self._load(joints)
        transform = self._configuration.get_transform_frame_to_world(self._site, "site")
        return Pose(transform.translation().copy(), transform.rotation().as_matrix().copy())

    def solve(self, joints: NDArray[np.float64], target: Pose) -> NDArray[np.float64]:
        """Joint positions (n,) [rad] that bring the tool to ``target``, from ``joints`` on."""
        if self._solved is not None and self._solved[0] is joints and self._solved[1] is target:
            return joints  # asked again for what it has just solved: the arm is told to stay
        self._load(joints)
        self._solved = None
        converged = False
        rotation = mink.SO3.from_matrix(target.rotation)
        self._frame.set_target(
            mink.SE3.from_rotation_and_translation(rotation, np.asarray(target.position))
        )
        tasks = [self._frame, self._posture]
        for _ in range(_ITERATIONS):
            error = self._frame.compute_error(self._configuration)
            if (
                np.linalg.norm(error[:3]) < _POSITION_TOLERANCE
                and np.linalg.norm(error[3:]) < _ROTATION_TOLERANCE
            ):
                converged = True
                break
            velocity = mink.solve_ik(
                self._configuration, tasks, _STEP, "daqp", damping=1e-6, limits=self._limits
            )
            self._configuration.integrate_inplace(velocity, _STEP)
        solution = np.array(self._configuration.q[self._addresses])
        if converged:
            self._solved = (solution, target)
        return solution

    def _load(self, joints: NDArray[np.float64]) -> None:
        position = self._rest.copy()
        position[self._addresses] = joints
        self._configuration.update(position)
