"""How the robot behaved, beside whether it succeeded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from robogen.mj.world import World
from robogen.scenes.task import TaskState

_FELL = 0.02
"""An object that was held this high [m] and comes down unheld has been dropped."""


class Path:
    """Positions of a tool, one per control step.

    Args:
        position: Where the tool is now (3,) [m].
        control_hz: Samples a second.
    """

    def __init__(self, position: Callable[[], NDArray[np.float64]], control_hz: float) -> None:
        self._position = position
        self._hz = control_hz
        self._points = [position()]

    def update(self) -> None:
        """Sample after a control step."""
        self._points.append(self._position())

    def summary(self) -> dict[str, float]:
        """Path length [m] and mean jerk [m/s^3]."""
        path = np.array(self._points)
        jerk = np.diff(path, n=3, axis=0) * self._hz**3
        return {
            "path_length_m": float(np.linalg.norm(np.diff(path, axis=0), axis=1).sum()),
            "mean_jerk": float(np.linalg.norm(jerk, axis=1).mean()) if len(jerk) else 0.0,
        }


class MotionMeter:
    """What can be said of any robot's behaviour, without knowing the task.

    Args:
        world: The episode's world.
        position: Where the tool is now (3,) [m].
        robot: Names of the robot's bodies.
        control_hz: Samples a second.
    """

    def __init__(
        self,
        *,
        world: World,
        position: Callable[[], NDArray[np.float64]],
        robot: Sequence[str],
        control_hz: float,
    ) -> None:
        self._world = world
        self._path = Path(position, control_hz)
        self._robot = frozenset(robot)
        self._peak = 0.0

    def update(self) -> None:
        """Sample after a control step."""
        self._path.update()
        for contact in self._world.contacts():
            if (contact.body1 in self._robot) != (contact.body2 in self._robot):
                self._peak = max(self._peak, contact.force)

    def summary(self) -> dict[str, float]:
        """Path length [m], mean jerk of the tool [m/s^3], peak robot contact force [N]."""
        return {**self._path.summary(), "peak_force_n": self._peak}


class BehaviourMeter:
    """Accumulates one episode's motion and contacts, sampled once a control step.

    Args:
        world: The episode's world.
        state: Names and starting heights.
        tcp: Tool site.
        robot_prefix: What robot body names begin with.
        movable: Objects on free joints.
        intended: Objects the robot is meant to touch.
        control_hz: Samples a second.
    """

    def __init__(
        self,
        *,
        world: World,
        state: TaskState,
        tcp: str,
        robot_prefix: str,
        movable: Sequence[str],
        intended: Sequence[str],
        control_hz: float,
    ) -> None:
        self._world = world
        self._state = state
        self._prefix = robot_prefix
        self._movable = tuple(movable)
        self._intended = tuple(f"{state.resolve(name)}/" for name in intended)
        self._path = Path(lambda: world.site_position(tcp), control_hz)
        self._peak = 0.0
        self._unintended = 0
        self._touching_wrong: set[str] = set()
        self._held: dict[str, bool] = dict.fromkeys(self._movable, False)
        self._drops = 0

    def update(self) -> None:
        """Sample after a control step."""
        self._path.update()
        wrong: set[str] = set()
        gripped: set[str] = set()
        for contact in self._world.contacts(self._prefix):
            other = contact.body2 if contact.body1.startswith(self._prefix) else contact.body1
            self._peak = max(self._peak, contact.force)
            if not other.startswith(self._intended) and not other.startswith(self._prefix):
                wrong.add(other)
            gripped.add(other.split("/")[0])
        self._unintended += len(wrong - self._touching_wrong)
        self._touching_wrong = wrong
        for name in self._movable:
            high = self._state.risen(name) > _FELL
            if name in gripped:
                self._held[name] = high or self._held[name]
            elif self._held[name]:
                speed = self._world.body_velocity(self._state.root(name))[2]
                if high and speed < -0.2:  # falling, not set down
                    self._drops += 1
                if not high or speed < -0.2:
                    self._held[name] = False

    def summary(self) -> dict[str, float]:
        """Path length [m], mean jerk of the tool [m/s^3], peak robot contact force [N], counts.

        Contacts are looked at once a control step: an impact that begins and ends between two
        steps is not seen, so the peak is a lower bound.
        """
        return {
            **self._path.summary(),
            "peak_force_n": self._peak,
            "unintended_contacts": float(self._unintended),
            "drops": float(self._drops),
        }
