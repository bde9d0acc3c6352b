"""Success and progress: predicates over simulator state, evaluated after every control step."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robogen.errors import SceneError
from robogen.mj.world import World
from robogen.scenes.schema import Stage, SuccessConfig

Expression = Sequence[Mapping[str, Mapping[str, Any]]]


class TaskState:
    """What predicates look at: a world, the names in it, and where things were at the start.

    Names are object names, ``gripper``, ``object/site`` or ``object/body`` paths; ``target`` is
    what this episode's instruction asks for.

    Args:
        world: The episode's world, just reset.
        roots: Root body by object name.
        tcp: Tool site.
        fingers: Bodies of the gripper.
        target: Object behind the word ``target``.
    """

    def __init__(
        self,
        *,
        world: World,
        roots: Mapping[str, str],
        tcp: str,
        fingers: Sequence[str],
        target: str,
    ) -> None:
        self.world = world
        self._roots = roots
        self._tcp = tcp
        self._fingers = frozenset(fingers)
        self.target = target
        self._bodies = self._owners()
        self._start = {name: self.position(name).copy() for name in roots}

    def _owners(self) -> dict[str, str]:
        """Object (or ``gripper``) by body name."""
        owners = dict.fromkeys(self._fingers, "gripper")
        for name in self._roots:
            prefix = f"{name}/"
            for full in self.world.body_names:
                if full.startswith(prefix):
                    owners[full] = name
        return owners

    def resolve(self, name: str) -> str:
        """``target`` becomes the object it stands for."""
        if name == "target":
            return self.target
        if name.startswith("target/"):
            return self.target + name.removeprefix("target")
        return name

    def position(self, name: str) -> NDArray[np.float64]:
        """Position (3,) [m] of an object's root, a site or the gripper's tool point."""
        name = self.resolve(name)
        if name == "gripper":
            return self.world.site_position(self._tcp)
        if name in self._roots:
            return self.world.body_position(self._roots[name])
        return self.world.site_position(name)

    def root(self, name: str) -> str:
        """Root body of an object."""
        return self._roots[self.resolve(name)]

    def risen(self, name: str) -> float:
        """How far an object's root is above where it started [m]."""
        name = self.resolve(name)
        return float(self.position(name)[2] - self._start[name][2])

    def touching(self, one: str, other: str) -> bool:
        """Whether two objects (or the gripper) are in contact."""
        wanted = {self.resolve(one), self.resolve(other)}
        return any(
            {self._bodies.get(body, ""), self._bodies.get(opposite, "")} == wanted
            for body, opposite in self.world.touches()
        )

    # -- predicates: keyword arguments are what a scene file may write ----------------------------

    def on(self, *, object: str, support: str) -> bool:
        """The object touches the support and stands above its root."""
        above = self.position(object)[2] > self.position(support)[2]
        return bool(above) and self.touching(object, support)

    def inside(self, *, object: str, container: str, site: str = "inside") -> bool:
        """The object's root lies within the container's box site."""
        full = f"{self.resolve(container)}/{site}"
        pose = self.world.site_pose(full)
        half = self.world.site_size(full)
        local = (self.position(object) - pose.position) @ pose.rotation
        margin = np.array([0.0, 0.0, 0.04])  # tall objects have their root above a low rim
        return bool((np.abs(local) <= half + margin).all())

    def near(self, *, a: str, b: str, distance: float, planar: bool = False) -> bool:
        """Two points are within a distance [m], in space or seen from above."""
        gap = self.position(a) - self.position(b)
        return math.hypot(*(gap[:2] if planar else gap)) <= distance

    def lifted(self, *, object: str, height: float) -> bool:
        """The object has risen by at least a height [m]."""
        return self.risen(object) >= height

    def upright(self, *, object: str, within_deg: float = 15.0) -> bool:
        """The object's z axis is within an angle of vertical."""
        axis = self.world.body_pose(self.root(object)).rotation[2, 2]
        return bool(axis >= np.cos(np.deg2rad(within_deg)))

    def opened(self, *, joint: str, at_least: float) -> bool:
        """A joint has reached a position [m or rad]."""
        return self.world.joint_position(joint) >= at_least

    def pressed(self, *, joint: str, at_least: float) -> bool:
        """A button's joint is pressed in by at least this much [m]."""
        return abs(self.world.joint_position(joint)) >= at_least

    def released(self, *, object: str) -> bool:
        """The gripper does not touch the object."""
        return not self.touching("gripper", object)

    def holds(self, expression: Expression) -> bool:
        """Whether every predicate of an expression is true."""
        for predicate in expression:
            for name, arguments in predicate.items():
                if not self._call(name, arguments):
                    return False
        return True

    def _call(self, name: str, arguments: Mapping[str, Any]) -> bool:
        method: Callable[..., bool] = getattr(self, name)
        return method(**arguments)

    def check(self, expression: Expression) -> None:
        """Evaluate once so that wrong names in a scene file surface before any episode.

        Raises:
            SceneError: A predicate has a wrong argument or names something that is not there.
        """
        for predicate in expression:
            for name, arguments in predicate.items():
                try:
                    self._call(name, arguments)
                except (KeyError, TypeError, AttributeError) as error:
                    method = getattr(self, name, None)
                    takes = ", ".join(inspect.signature(method).parameters) if method else ""
                    raise SceneError(
                        f"Predicate '{name}' with {dict(arguments)} cannot be evaluated: {error}. "
                        f"It takes: {takes}; names are {', '.join(self._roots)}, gripper, target "
                        "or object/site."
                    ) from error


class Referee:
    """Keeps success and progress of one episode.

    Progress is the share of stages passed, counting up to the latest one ever satisfied, so it
    never falls; success is 1.

    Args:
        state: Where predicates are evaluated.
        success: When the task is done.
        stages: Ordered progress stages.
        control_hz: Evaluations a second.
    """

    def __init__(
        self,
        *,
        state: TaskState,
        success: SuccessConfig,
        stages: Sequence[Stage],
        control_hz: float,
    ) -> None:
        self._state = state
        self._success = success
        self._stages = stages
        self._needed = max(1, round(success.hold_s * control_hz) + 1)
        self._held = 0
        self._passed = 0
        self.success = False

    @property
    def progress(self) -> float:
        """Share of the task done, 0..1."""
        if self.success:
            return 1.0
        return self._passed / (len(self._stages) + 1)

    @property
    def stage(self) -> str:
        """Name of the latest stage passed, or ``start``."""
        return self._stages[self._passed - 1].name if self._passed else "start"

    def update(self) -> bool:
        """Look at the state after a control step; True once the task has succeeded."""
        for index in range(len(self._stages), self._passed, -1):
            if self._state.holds(self._stages[index - 1].all):
                self._passed = index
                break
        self._held = self._held + 1 if self._state.holds(self._success.all) else 0
        if self._held >= self._needed:
            self.success = True
        return self.success
