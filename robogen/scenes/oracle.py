"""Declarative skills turned into motion: what the scene's author would do, seeing everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robogen.errors import SceneError
from robogen.mj.rotations import vector_of
from robogen.scenes.skill import (
    CLOSE,
    HOVER,
    NEAR,
    OPEN,
    Situation,
    Skill,
    nearest_yaw,
    reached,
    towards,
    yawed,
)


class Grasp(Skill):
    """Pick an object up from above and lift it; tries again when it slips.

    Args:
        object: What to grasp.
        symmetry_deg: Rotation about the vertical under which a grasp looks the same; 0 for any.
        height: How high to lift [m].
        depth: Grasp point below the object's top, as a share of its height.
    """

    def __init__(
        self,
        *,
        object: str,
        symmetry_deg: float = 90.0,
        height: float = 0.14,
        depth: float = 0.55,
    ) -> None:
        super().__init__()
        self._object = object
        self._symmetry = np.deg2rad(symmetry_deg)
        self._height = height
        self._depth = depth

    def act(self, now: Situation) -> NDArray[np.float64] | None:
        """Hover, descend, close, lift."""
        pose = now.world.body_pose(now.state.root(self._object))
        low, high = now.world.extent(now.state.root(self._object))
        yaw = 0.0
        if self._symmetry > 0:
            yaw = nearest_yaw(
                float(np.arctan2(pose.rotation[1, 0], pose.rotation[0, 0])), 0.0, self._symmetry
            )
        rotation = yawed(yaw)
        grip = pose.position.copy()
        grip[2] += high[2] - self._depth * (high[2] - low[2])
        grip[2] = max(grip[2], 0.015)
        above = grip + np.array([0.0, 0.0, HOVER])
        if self._phase == 0:
            planar = np.linalg.norm(now.tool.position[:2] - above[:2])
            if planar < NEAR and now.tool.position[2] < above[2] + 0.02:
                self._next()
            else:
                return towards(now, above, rotation, OPEN)
        if self._phase == 1:
            if reached(now, grip):
                self._next()
            else:
                return self._descend(now, grip, above, rotation)
        if self._phase == 2:
            self._waited += 1
            if self._waited > 4 and now.state.touching("gripper", self._object):
                self._next()
                self._goal = now.command.position + np.array([0.0, 0.0, self._height])
            elif self._waited > 12:
                self._next(0)
            return towards(now, now.command.position, rotation, CLOSE)
        if not now.state.touching("gripper", self._object):
            self._waited += 1
            if self._waited > 2:
                self._next(0)
                return towards(now, above, rotation, OPEN)
        if now.tool.position[2] > self._goal[2] - 0.02:
            return None
        return towards(now, self._goal, now.command.rotation, CLOSE)


class PlaceIn(Skill):
    """Carry the held object over a container, lower it in, let go and rise.

    Args:
        object: What is held.
        container: Where it goes.
        clearance: Height of the object's underside over the container's floor at release [m].
    """

    def __init__(self, *, object: str, container: str, clearance: float = 0.015) -> None:
        super().__init__()
        self._object = object
        self._container = container
        self._clearance = clearance

    def act(self, now: Situation) -> NDArray[np.float64] | None:
        """Carry, lower, open, rise."""
        held = now.world.body_pose(now.state.root(self._object)).position
        offset = held - now.tool.position
        low, _ = now.world.extent(now.state.root(self._object))
        goal = now.state.position(self._container) - np.array([offset[0], offset[1], 0.0])
        carry = goal.copy()
        carry[2] = now.command.position[2]
        if self._phase == 0:
            if np.linalg.norm(now.tool.position[:2] - carry[:2]) < 0.012:
                self._next()
                self._rotation = now.command.rotation
            else:
                return towards(now, carry, now.command.rotation, CLOSE)
        if self._phase == 1:
            goal[2] = now.state.position(self._container)[2] + self._clearance - low[2] - offset[2]
            self._waited += 1
            if now.tool.position[2] < goal[2] + 0.012 or self._waited > 20:
                self._next()
            else:
                return towards(now, goal, self._rotation, CLOSE)
        if self._phase == 2:
            self._waited += 1
            if self._waited > 3 and not now.state.touching("gripper", self._object):
                self._next()
                self._rise = now.command.position + np.array([0.0, 0.0, 0.12])
            else:
                return towards(now, now.command.position, self._rotation, OPEN)
        if reached(now, self._rise, 0.03):
            return None
        return towards(now, self._rise, self._rotation, OPEN)


class Pull(Skill):
    """Take a handle from above, pull it along its joint, and let go.

    Args:
        site: Handle site; its y axis lies along the bar.
        joint: Slide joint the handle moves.
        distance: How far to pull [m].
    """

    def __init__(self, *, site: str, joint: str, distance: float) -> None:
        super().__init__()
        self._site = site
        self._joint = joint
        self._distance = distance

    def act(self, now: Situation) -> NDArray[np.float64] | None:
        """Hover, descend, close, pull, open, rise."""
        pose = now.world.site_pose(self._site)
        axis = -pose.rotation[:, 0]
        along = float(np.arctan2(pose.rotation[1, 1], pose.rotation[0, 1]))
        current = float(np.arctan2(now.command.rotation[1, 1], now.command.rotation[0, 1]))
        # the fingers open across the bar; the command's y axis points along the opening
        across = nearest_yaw(along + np.pi / 2, current, np.pi)
        rotation = yawed(across + np.pi / 2)
        grip = pose.position - np.array([0.0, 0.0, 0.004])
        above = pose.position + np.array([0.0, 0.0, 0.07])
        if self._phase == 0:
            planar = np.linalg.norm(now.tool.position[:2] - above[:2])
            angle = np.linalg.norm(vector_of(rotation @ now.tool.rotation.T))
            if planar < NEAR and angle < 0.08 and now.tool.position[2] < above[2] + 0.02:
                self._next()
            else:
                return towards(now, above, rotation, OPEN)
        if self._phase == 1:
            if reached(now, grip):
                self._next()
            else:
                return self._descend(now, grip, above, rotation)
        if self._phase == 2:
            self._waited += 1
            if self._waited > 4:
                self._next()
            return towards(now, grip, rotation, CLOSE)
        if self._phase == 3:
            opened = now.world.joint_position(self._joint)
            self._waited += 1
            if opened >= self._distance:
                self._next()
            elif self._waited > 3 and not now.state.touching("gripper", self._site.split("/")[0]):
                self._next(0)
                return towards(now, above, rotation, OPEN)
            else:
                ahead = grip + axis * min(0.06, self._distance - opened + 0.02)
                return towards(now, ahead, rotation, CLOSE, speed=0.03)
        if self._phase == 4:
            self._waited += 1
            if self._waited > 3:
                self._next()
                self._rise = now.command.position + np.array([0.0, 0.0, 0.10])
            return towards(now, now.command.position, rotation, OPEN)
        if reached(now, self._rise, 0.03):
            return None
        return towards(now, self._rise, rotation, OPEN)


class PushTo(Skill):
    """Push an object over the table with the half-open gripper, two fingers behind it.

    Args:
        object: What to push.
        goal: Where to.
        reach: Distance from the object's centre at which the fingers touch it [m].
        gripper: Gripper command while pushing; half open, so that a round object nests between the
        fingers. height: Height of the tool point over the table while pushing [m].
        tolerance: Distance from the goal at which pushing ends [m].
    """

    def __init__(
        self,
        *,
        object: str,
        goal: str,
        reach: float,
        gripper: float = -0.25,
        height: float = 0.02,
        tolerance: float = 0.008,
    ) -> None:
        super().__init__()
        self._object = object
        self._goal = goal
        self._reach = reach
        self._gripper = gripper
        self._height = height
        self._tolerance = tolerance

    def act(self, now: Situation) -> NDArray[np.float64] | None:
        """Get behind, go down, push, rise."""
        thing = now.state.position(self._object)
        goal = now.state.position(self._goal)
        gap = (goal - thing)[:2]
        distance = float(np.linalg.norm(gap))
        if self._phase < 2:
            self._direction = gap / max(distance, 1e-6)
        direction = np.append(self._direction, 0.0)
        rotation = yawed(nearest_yaw(float(np.arctan2(direction[1], direction[0])), 0.0, np.pi))
        behind = thing - direction * (self._reach + 0.03)
        behind[2] = self._height
        above = behind + np.array([0.0, 0.0, 0.08])
        if self._phase == 0:
            planar = np.linalg.norm(now.tool.position[:2] - above[:2])
            if planar < 0.012 and now.tool.position[2] < above[2] + 0.03:
                self._next()
            else:
                return towards(now, above, rotation, self._gripper)
        if self._phase == 1:
            if now.tool.position[2] < self._height + NEAR:
                self._next()
            else:
                return towards(now, behind, rotation, self._gripper)
        if self._phase == 2:
            along = float(gap @ self._direction)
            beside = float(np.linalg.norm(gap - along * self._direction))
            if along < self._tolerance:
                self._next()
                if distance > 0.02:
                    self._next(0)  # missed: go round and push again
                else:
                    self._rise = now.command.position - direction * 0.03
                    self._rise[2] += 0.1
            elif beside > 0.02:
                self._next(4)
                self._rise = now.command.position + np.array([0.0, 0.0, 0.09])
            else:
                # steer: stand a little to the far side of the line through object and goal
                side = gap - along * self._direction
                ahead = thing - direction * self._reach + direction * min(0.03, along)
                ahead[:2] -= 0.6 * side
                ahead[2] = self._height
                return towards(now, ahead, rotation, self._gripper, speed=0.025)
        if self._phase == 4:
            if reached(now, self._rise, 0.03):
                self._next(0)
            return towards(now, self._rise, now.command.rotation, self._gripper)
        if self._phase == 3:
            if not reached(now, self._rise, 0.03):
                return towards(now, self._rise, now.command.rotation, self._gripper)
            if distance <= 0.025:
                return None
            self._next(0)  # the puck was knocked away again
        return towards(now, above, rotation, self._gripper)


SKILLS: Mapping[str, type[Skill]] = {
    "grasp": Grasp,
    "place_in": PlaceIn,
    "pull": Pull,
    "push_to": PushTo,
}


class Oracle:
    """Runs a scene's list of skills, one after the other.

    Args:
        skills: The scene file's ``task.oracle``.
    """

    def __init__(self, skills: Sequence[Mapping[str, Mapping[str, Any]]]) -> None:
        self._skills: list[Skill] = []
        for entry in skills:
            for name, arguments in entry.items():
                try:
                    self._skills.append(SKILLS[name](**arguments))
                except TypeError as error:
                    raise SceneError(f"Skill '{name}' with {dict(arguments)}: {error}.") from error
        self._index = 0

    def act(self, now: Situation) -> NDArray[np.float64]:
        """The next action (7,); once all skills are done, stay and keep the gripper open."""
        while self._index < len(self._skills):
            action = self._skills[self._index].act(now)
            if action is not None:
                return action
            self._index += 1
        return np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, OPEN])
