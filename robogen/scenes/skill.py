"""What every skill is made of: the situation it sees, and motion towards a waypoint.

A skill is a small state machine over the simulator's state. It answers with a ``delta_eef`` action
towards a waypoint of the *commanded* tool pose, so an arm that lags behind is not pushed harder; a
waypoint counts as reached when the measured pose is there. Commands still under way (a delayed
robot) are taken as already given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robogen.mj.rotations import matrix_of, vector_of
from robogen.mj.world import Pose, World
from robogen.scenes.task import TaskState
from robogen.specs import ActionSpec

DOWN = np.array([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]])
"""Tool rotation that points straight down with the fingers opening along the world's y axis."""
_GAIN = 0.6
"""Share of the remaining way covered by one command."""
_SPEED = 0.04
"""Longest translation commanded in one step [m]."""
_TURN = 0.25
"""Largest rotation commanded in one step [rad]."""
NEAR = 0.008
"""A waypoint counts as reached within this distance [m]."""
HOVER = 0.10
"""Height above a grasp from which the gripper descends [m]."""
_BESIDE = 0.016
"""Farther beside a grasp than this, fingers would hit the object on the way down [m]."""
_PATIENCE = 18
"""Steps a descent may take before it is given up."""
OPEN, CLOSE = -1.0, 1.0


class Situation(NamedTuple):
    """What a skill sees at a step."""

    world: World
    state: TaskState
    tool: Pose
    """Measured tool pose."""
    command: Pose
    """Commanded tool pose, with what is still under way."""
    spec: ActionSpec


class Skill(ABC):
    """One part of a task."""

    def __init__(self) -> None:
        self._phase = 0
        self._waited = 0

    @abstractmethod
    def act(self, now: Situation) -> NDArray[np.float64] | None:
        """The next action (7,), or None when the skill is done."""

    def _next(self, phase: int | None = None) -> None:
        self._phase = self._phase + 1 if phase is None else phase
        self._waited = 0

    def _descend(
        self,
        now: Situation,
        grip: NDArray[np.float64],
        above: NDArray[np.float64],
        rotation: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Go down to a grasp only when well above it; back up when beside it or blocked."""
        self._waited += 1
        beside = float(np.linalg.norm((now.tool.position - grip)[:2]))
        if self._waited > _PATIENCE or (beside > _BESIDE and now.tool.position[2] < grip[2] + 0.05):
            self._next(0)
            return towards(now, above, rotation, OPEN)
        return towards(now, grip, rotation, OPEN)


def yawed(yaw: float) -> NDArray[np.float64]:
    """Tool rotation pointing down, turned by ``yaw`` [rad] about the vertical."""
    return np.asarray(matrix_of([0.0, 0.0, yaw]) @ DOWN)


def towards(
    now: Situation,
    position: NDArray[np.float64],
    rotation: NDArray[np.float64],
    gripper: float,
    speed: float = _SPEED,
) -> NDArray[np.float64]:
    """Action (7,) that moves the command towards a waypoint."""
    offset = _GAIN * (position - now.command.position)
    distance = float(np.linalg.norm(offset))
    if distance > speed:
        offset *= speed / distance
    turn = vector_of(rotation @ now.command.rotation.T) * _GAIN
    angle = float(np.linalg.norm(turn))
    if angle > _TURN:
        turn *= _TURN / angle
    action = np.concatenate(
        [offset / now.spec.scale_position, turn / now.spec.scale_rotation, [gripper]]
    )
    return np.asarray(np.clip(action, -1.0, 1.0))


def reached(now: Situation, position: NDArray[np.float64], tolerance: float = NEAR) -> bool:
    """Whether the measured tool is at a position."""
    return bool(np.linalg.norm(now.tool.position - position) <= tolerance)


def nearest_yaw(yaw: float, reference: float, symmetry: float) -> float:
    """The angle equivalent to ``yaw`` under a symmetry that lies nearest to ``reference`` [rad]."""
    return float(yaw + symmetry * np.round((reference - yaw) / symmetry))
