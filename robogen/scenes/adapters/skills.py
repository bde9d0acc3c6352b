"""Scripted experts for arms under operational-space control: pick something up, put it down.

They see everything and answer with ``delta_eef`` actions. All memory is a phase and when it began,
in simulated time, so that asking twice at one moment changes nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from robogen.mj.rotations import matrix_of, vector_of
from robogen.mj.world import Pose
from robogen.specs import ActionSpec

OPEN, CLOSE = -1.0, 1.0
_STEP_M = 0.05
"""Longest translation of a command along an axis [m]."""
_TURN_RAD = 0.3
_GAIN = 1.6
"""Commanded way over remaining way: the arm covers about a third of a command in its step."""
_COVERED = 0.3
"""That third, by which commands under way are taken as already executed."""
_HOVER = 0.09
"""Height over a grasp from which the gripper descends [m]."""
_LIFT = 0.16
_REACH = 0.75
"""Farther than this from its base, the arm has to stretch [m]."""
_NEAR = 0.008
"""A grasp counts as reached within this height of it [m]."""
_PATIENCE_S = 1.5
"""How long going down may take [s]."""
_WALL = 0.004
"""From the outside of a bowl's rim to the middle of its wall [m]."""
_DEPTH = 0.015
"""How deep below a rim it is taken [m]."""
_SIGNS = np.array(list(itertools.product((-1.0, 1.0), repeat=3)))
"""Corners of the unit box (8, 3)."""
_SLIPPED = 0.06
"""Held things that are this much farther from the tool than when grasped were lost [m]."""


class Sight(NamedTuple):
    """What an expert sees at a step."""

    model: mujoco.MjModel
    data: mujoco.MjData
    tool: Pose
    """Grip site; x along the fingers' way, z out of the hand."""
    spec: ActionSpec
    pending: tuple[NDArray[np.float64], ...] = ()
    """Commands given and not executed yet."""

    def position(self, body: str) -> NDArray[np.float64]:
        """Of a body (3,) [m], world frame."""
        return np.array(self.data.body(body).xpos)


class Grip(NamedTuple):
    """A grasp from above."""

    point: NDArray[np.float64]
    """Where the grip site goes (3,) [m]."""
    yaw: float
    """Turn of the fingers' line from the world's y axis [rad], modulo half a turn."""


def down(yaw: float) -> NDArray[np.float64]:
    """Tool rotation (3, 3) pointing down, the fingers' line turned by ``yaw`` [rad]."""
    c, s = np.cos(yaw), np.sin(yaw)
    return np.array([[-s, c, 0.0], [c, s, 0.0], [0.0, 0.0, -1.0]])


def towards(
    sight: Sight,
    position: NDArray[np.float64],
    rotation: NDArray[np.float64],
    gripper: float,
) -> NDArray[np.float64]:
    """Action (7,) towards a tool pose, in the spec's scales."""
    spec = sight.spec
    scale, turn_scale = spec.scale_position, spec.scale_rotation
    at, turned = sight.tool.position.copy(), sight.tool.rotation
    for action in sight.pending:
        at += _COVERED * scale * np.clip(action[:3], -1.0, 1.0)
        turned = matrix_of(_COVERED * turn_scale * np.clip(action[3:6], -1.0, 1.0)) @ turned
    offset = _GAIN * (position - at)
    longest = float(np.abs(offset).max())
    if longest > _STEP_M:
        offset *= _STEP_M / longest
    turn = _GAIN * vector_of(rotation @ turned.T)
    angle = float(np.linalg.norm(turn))
    if angle > _TURN_RAD:
        turn *= _TURN_RAD / angle
    sign = 1.0 if spec.gripper == "close_positive" else -1.0
    action = np.concatenate([offset / scale, turn / turn_scale, [sign * gripper]])
    return np.asarray(np.clip(action, -1.0, 1.0))


def vertices(sight: Sight, roots: NDArray[np.intp]) -> NDArray[np.float64]:
    """Corners (n, 3) [m] of the boxes and meshes of whole trees of bodies, world frame."""
    model, data = sight.model, sight.data
    found = []
    inside = np.isin(model.body_rootid[model.geom_bodyid], roots)
    for geom in np.flatnonzero(inside).tolist():
        if model.geom_type[geom] == int(mujoco.mjtGeom.mjGEOM_MESH):
            mesh = int(model.geom_dataid[geom])
            start = int(model.mesh_vertadr[mesh])
            local = model.mesh_vert[start : start + int(model.mesh_vertnum[mesh])]
        else:
            local = model.geom_aabb[geom, :3] + _SIGNS * model.geom_aabb[geom, 3:]
        found.append(local @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom])
    return np.concatenate(found)


def _solid(sight: Sight) -> NDArray[np.intp]:
    """Roots of what can be touched: what was only added to be seen is in nobody's way."""
    model = sight.model
    touch = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    return np.unique(model.body_rootid[model.geom_bodyid[touch]]).astype(np.intp)


# -- how things are taken --------------------------------------------------------------------------


def across(sight: Sight, body: str) -> Grip:
    """Around the middle of a block, over the pair of faces the fingers are nearest to."""
    rotation = np.array(sight.data.body(body).xmat).reshape(3, 3)
    yaw = float(np.arctan2(rotation[1, 0], rotation[0, 0]))
    now = float(np.arctan2(-sight.tool.rotation[0, 0], sight.tool.rotation[1, 0]))
    yaw += np.pi / 2 * np.round((now - yaw) / (np.pi / 2))
    return Grip(sight.position(body), yaw)


def at_rim(sight: Sight, body: str) -> Grip:
    """One wall of a bowl, a finger inside and one outside, where most room is around it."""
    own, robot = (sight.model.body(name).rootid[0] for name in (body, "robot0_base"))
    corners, middle = vertices(sight, np.array([own])), sight.position(body)
    top = float(corners[:, 2].max())
    rim = corners[corners[:, 2] > top - 0.01]
    radius = float(np.linalg.norm(rim[:, :2] - middle[:2], axis=1).max()) - _WALL
    around = vertices(sight, np.setdiff1d(_solid(sight), [0, own, robot]))
    around = around[np.linalg.norm(around[:, :2] - middle[:2], axis=1) < 0.35]
    best: tuple[float, Grip] | None = None
    for angle in np.deg2rad([90.0, -90.0, 45.0, -45.0, 135.0, -135.0, 0.0, 180.0]).tolist():
        way = np.array([np.cos(angle), np.sin(angle), 0.0])
        point = np.array([*(middle + radius * way)[:2], top - _DEPTH])
        room = _room(around, point, way)
        yaw = angle % np.pi - np.pi / 2  # half a turn of the fingers' line is none
        far = float(np.linalg.norm((point - sight.position("robot0_base"))[:2])) - _REACH
        score = min(room, 0.05) - 0.005 * abs(yaw) - max(far, 0.0)
        if best is None or score > best[0] + 1e-9:
            best = score, Grip(point, yaw)
    assert best is not None
    return best[1]


def _room(
    around: NDArray[np.float64], point: NDArray[np.float64], way: NDArray[np.float64]
) -> float:
    """Distance [m] from the outer finger, and from both ends of the hand, to what is around."""
    height = around[:, 2] - point[2]
    low = around[(height > -0.03) & (height < 0.07)]
    high = around[(height >= 0.07) & (height < 0.25)]
    gaps = [1.0]
    for things, reaches in ((low, (0.04,)), (high, (-0.1, -0.05, 0.0, 0.05, 0.1))):
        for reach in reaches:
            spot = point + reach * way
            if len(things):
                gaps.append(float(np.linalg.norm(things[:, :2] - spot[:2], axis=1).min()))
    return min(gaps)


Take = Callable[[Sight, str], Grip]


# -- the expert ------------------------------------------------------------------------------------


class Expert:
    """Picks a thing up and, if told where to, puts it down there.

    Args:
        thing: Body to pick up.
        take: How.
        onto: Body over whose middle the thing's goes; empty to keep it lifted.
    """

    def __init__(self, *, thing: str, take: Take, onto: str = "") -> None:
        self._thing, self._take, self._onto = thing, take, onto
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self._phase = "above"
        self._since = self._seen = -1.0
        self._grip: Grip | None = None
        self._held = np.zeros(3)

    def _enter(self, phase: str, sight: Sight) -> None:
        self._phase, self._since = phase, float(sight.data.time)
        self._held = sight.position(self._thing) - sight.tool.position
        if phase == "above":
            self._grip = None

    def act(self, sight: Sight) -> NDArray[np.float64]:
        """The next action (7,)."""
        now = float(sight.data.time)
        if now < self._seen or self._since < 0.0:
            self.reset()
            self._enter("above", sight)
        self._seen = now
        while True:
            phase = self._phase
            action = getattr(self, f"_{phase}")(sight, now - self._since)
            if self._phase == phase:
                return np.asarray(action)

    # Each phase answers with an action, or enters the next.

    def _current(self, sight: Sight) -> Grip:
        """The chosen grasp, moved along with the thing."""
        if self._grip is None:
            self._grip = self._take(sight, self._thing)
            self._beside = self._grip.point - sight.position(self._thing)
        return Grip(sight.position(self._thing) + self._beside, self._grip.yaw)

    def _above(self, sight: Sight, waited: float) -> NDArray[np.float64] | None:
        if waited <= 0.0:
            self._grip = None  # the scene may have been changed since it was chosen
        grip = self._current(sight)
        over = grip.point + np.array([0.0, 0.0, _HOVER])
        rotation = down(grip.yaw)
        beside = float(np.linalg.norm((sight.tool.position - over)[:2]))
        turned = float(np.linalg.norm(vector_of(rotation @ sight.tool.rotation.T)))
        if beside < 0.01 and turned < 0.1 and sight.tool.position[2] < over[2] + 0.02:
            self._enter("descend", sight)
            return None
        if sight.tool.position[2] < grip.point[2] + 0.05 and beside > 0.03:
            over[:2] = sight.tool.position[:2]  # first up, so as not to sweep things away
        return towards(sight, over, rotation, OPEN)

    def _descend(self, sight: Sight, waited: float) -> NDArray[np.float64] | None:
        grip = self._current(sight)
        gap = sight.tool.position - grip.point
        if abs(gap[2]) < _NEAR or waited > _PATIENCE_S:
            self._grip = grip
            self._enter("close" if abs(gap[2]) < 0.02 else "above", sight)
            return None
        return towards(sight, grip.point, down(grip.yaw), OPEN)

    def _close(self, sight: Sight, waited: float) -> NDArray[np.float64] | None:
        assert self._grip is not None
        if waited > 0.6 + 0.05 * len(sight.pending):
            self._enter("lift", sight)
            return None
        return towards(sight, self._grip.point, down(self._grip.yaw), CLOSE)

    def _lost(self, sight: Sight) -> bool:
        moved = sight.position(self._thing) - sight.tool.position - self._held
        return float(np.linalg.norm(moved)) > _SLIPPED

    def _lift(self, sight: Sight, waited: float) -> NDArray[np.float64] | None:
        assert self._grip is not None
        if self._lost(sight):
            self._enter("above", sight)
            return None
        goal = self._grip.point + np.array([0.0, 0.0, _LIFT])
        if self._onto and sight.tool.position[2] > goal[2] - 0.03:
            self._enter("carry", sight)
            return None
        return towards(sight, goal, down(self._grip.yaw), CLOSE)

    def _carry(self, sight: Sight, waited: float) -> NDArray[np.float64] | None:
        assert self._grip is not None
        if self._lost(sight):
            self._enter("above", sight)
            return None
        goal = self._over(sight)
        if float(np.linalg.norm((sight.tool.position - goal)[:2])) < 0.01:
            self._enter("lower", sight)
            return None
        return towards(sight, goal, down(self._grip.yaw), CLOSE)

    def _over(self, sight: Sight) -> NDArray[np.float64]:
        assert self._grip is not None
        goal = sight.position(self._onto) - (sight.position(self._thing) - sight.tool.position)
        goal[2] = max(self._grip.point[2] + _LIFT, sight.position(self._onto)[2] + _LIFT)
        return goal

    def _lower(self, sight: Sight, waited: float) -> NDArray[np.float64] | None:
        assert self._grip is not None
        goal = self._over(sight)
        hung = sight.position(self._thing)[2] - sight.tool.position[2]
        above = sight.position(self._thing)[2] - sight.position(self._onto)[2]
        beside = float(np.linalg.norm((sight.tool.position - goal)[:2]))
        clear = 0.04 if beside > 0.01 and above > 0.03 else 0.005  # not beside the middle
        goal[2] = sight.position(self._onto)[2] - hung + clear
        if abs(above - 0.005) < 0.006 or waited > 2.0 * _PATIENCE_S:
            self._enter("release", sight)
            return None
        return towards(sight, goal, down(self._grip.yaw), CLOSE)

    def _release(self, sight: Sight, waited: float) -> NDArray[np.float64] | None:
        assert self._grip is not None
        if waited > 0.5 + 0.05 * len(sight.pending):
            self._enter("rise", sight)
            return None
        return towards(sight, sight.tool.position, down(self._grip.yaw), OPEN)

    def _rise(self, sight: Sight, waited: float) -> NDArray[np.float64] | None:
        assert self._grip is not None
        apart = sight.position(self._thing) - sight.position(self._onto)
        if waited > 1.0 and float(np.linalg.norm(apart[:2])) > 0.03:
            self._enter("above", sight)
            return None
        goal = sight.tool.position.copy()
        goal[2] = sight.position(self._onto)[2] + _LIFT
        return towards(sight, goal, down(self._grip.yaw), OPEN)


_TAKES: Mapping[str, Take] = {"across": across, "at_rim": at_rim}


def expert(*, thing: str, take: str, onto: str = "") -> Expert:
    """An expert as a family file's ``settings`` describe it."""
    return Expert(thing=thing, take=_TAKES[take], onto=onto)
