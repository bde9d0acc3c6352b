"""A scripted transfer of the cube from the right ViperX arm to the left one.

The plan is a chain of phases, each with a waypoint of finger tips and a gripper opening for either
arm. Commands move from where they stand towards the waypoint at a limited speed, and phases end
when the simulator's state says so, so a plan goes on from wherever the arms and the cube are.

A ViperX whose forearm does not roll is a waist, a planar arm and a wrist: its inverse kinematics is
closed, has one branch with the elbow up, and reaches every waypoint that is needed here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

_SPEED = 0.4
"""Fastest motion of a tool [m/s]."""
_TURN = 2.5
"""Fastest change of pitch and roll [rad/s]."""
_STEP_S = 0.02
"""Control step [s]."""
_GAIN = 0.25
"""Share of the remaining way covered by one command."""
_RAMP_S = 0.2
"""Time from the start of a phase to full speed [s]."""
_JOINT_STEP = 0.08
"""Largest change of a joint in one command [rad]."""
_NEAR, _ALIGNED = 0.008, 0.05
"""A waypoint is reached within this distance [m] and angle [rad]."""
_OPEN, _CLOSED = 1.0, 0.0
_WIDE = 0.053
"""A finger farther out than this [m] is open."""
_STALLED = 0.004
"""A finger slower than this [m/s] has closed on something."""
_DEPTH = 0.01
"""How far finger tips reach past the middle of the cube [m]."""
_HOVER = 0.1
"""Height above a grasp from which the gripper descends [m]."""
_LOST = 0.06
"""A cube farther than this from the finger tips is not held [m]."""
_MEETING = np.array([0.0, 0.5, 0.28])
"""Where the cube changes hands [m], world frame."""
_WAITING = np.array([-0.22, 0.5, 0.28])
_BESIDE = np.array([0.09, 0.0, 0.0])
"""From the cube to where a gripper waits before it takes it or after it has let go [m]."""
_UP = np.array([0.0, 0.0, 1.0])
_QUARTER = math.pi / 2
_PATIENCE_S = 3.0
"""Time after which a phase is given up and the plan begins again [s]."""


class Tip(NamedTuple):
    """Finger tips: position (3,) [m], pitch of the tool below the horizontal and its roll [rad]."""

    position: NDArray[np.float64]
    pitch: float
    roll: float


class Arm:
    """One ViperX: where it stands, what it measures, and its kinematics with a straight forearm.

    Args:
        model: Model that has the arm.
        side: ``left`` or ``right``.
    """

    def __init__(self, model: mujoco.MjModel, side: str) -> None:
        def offset(body: str) -> NDArray[np.float64]:
            return np.array(model.body(f"vx300s_{side}/{body}").pos)

        root = model.body(f"vx300s_{side}")
        shoulder = offset("shoulder_link") + offset("upper_arm_link")
        self._base = np.array(root.pos) + np.array([0.0, 0.0, shoulder[2]])
        self._yaw = 2.0 * math.atan2(root.quat[3], root.quat[0])
        elbow = offset("upper_forearm_link")
        self._upper = math.hypot(elbow[0], elbow[2])
        self._rise = math.atan2(elbow[2], elbow[0])
        self._forearm = float(offset("lower_forearm_link")[0] + offset("wrist_link")[0])
        self.site = f"cali_{side}_site1"
        self._tool = float(offset("gripper_link")[0] + model.site(self.site).pos[0])
        self._finger = f"vx300s_{side}/left_finger"

    def heading(self, position: NDArray[np.float64]) -> float:
        """Direction [rad], world frame, in which the arm reaches for a position (3,)."""
        x, y = (position - self._base)[:2]
        return math.atan2(y, x)

    def forward(self, joints: NDArray[np.float64]) -> Tip:
        """Finger tips at joint positions (6,), as if the forearm did not roll."""
        waist, shoulder, elbow, _, wrist, roll = joints.tolist()
        upper, fore = self._rise - shoulder, -(shoulder + elbow)
        pitch = shoulder + elbow + wrist
        out = self._upper * math.cos(upper) + self._forearm * math.cos(fore)
        out += self._tool * math.cos(pitch)
        up = self._upper * math.sin(upper) + self._forearm * math.sin(fore)
        up -= self._tool * math.sin(pitch)
        way = self._yaw + waist
        position = self._base + np.array([out * math.cos(way), out * math.sin(way), up])
        return Tip(position, pitch, roll)

    def inverse(self, tip: Tip) -> NDArray[np.float64]:
        """Joint positions (6,) for finger tips, the elbow up; as near as the arm reaches."""
        x, y, z = (tip.position - self._base).tolist()
        out = math.hypot(x, y) - self._tool * math.cos(tip.pitch)
        up = z + self._tool * math.sin(tip.pitch)
        most = self._upper + self._forearm
        distance = min(max(math.hypot(out, up), 0.1), 0.999 * most)
        inner = (self._upper**2 + distance**2 - self._forearm**2) / (2 * self._upper * distance)
        upper = math.atan2(up, out) + math.acos(max(-1.0, min(1.0, inner)))
        fore = math.atan2(
            distance * math.sin(math.atan2(up, out)) - self._upper * math.sin(upper),
            distance * math.cos(math.atan2(up, out)) - self._upper * math.cos(upper),
        )
        waist = math.remainder(math.atan2(y, x) - self._yaw, math.tau)
        shoulder = self._rise - upper
        return np.array(
            [waist, shoulder, -fore - shoulder, 0.0, tip.pitch + fore, tip.roll],
        )

    def at(self, data: mujoco.MjData, tip: Tip) -> bool:
        """Whether the measured finger tips are at a waypoint."""
        site = data.site(self.site)
        sunk = math.asin(max(-1.0, min(1.0, -float(site.xmat[6]))))
        near = np.linalg.norm(np.array(site.xpos) - tip.position) < _NEAR
        return bool(near) and abs(sunk - tip.pitch) < _ALIGNED

    def holds(self, data: mujoco.MjData, cube: NDArray[np.float64]) -> bool:
        """Whether a cube at a position (3,) is between the finger tips."""
        return bool(np.linalg.norm(np.array(data.site(self.site).xpos) - cube) < _LOST)

    def opened(self, data: mujoco.MjData) -> bool:
        """Whether the gripper is open."""
        return float(data.joint(self._finger).qpos[0]) > _WIDE

    def closed(self, data: mujoco.MjData) -> bool:
        """Whether the gripper has come to a stop on something."""
        return not self.opened(data) and abs(float(data.joint(self._finger).qvel[0])) < _STALLED


class _Step(NamedTuple):
    """What a phase wants."""

    left: Tip
    right: Tip
    grips: tuple[float, float]
    """Openings of the left and the right gripper."""
    done: bool


class TransferExpert:
    """One episode's plan.

    It looks at the simulated time and not at how often it is asked: asked twice, it answers the
    same.

    Args:
        model: Model of the environment, for the arms' dimensions.
    """

    PHASES = ("above", "down", "grasp", "lift", "carry", "reach", "take", "release", "leave")

    def __init__(self, model: mujoco.MjModel) -> None:
        self._left, self._right = Arm(model, "left"), Arm(model, "right")
        self._phase = 0
        self._since = 0.0
        self._spot = np.zeros(3)
        """Where the cube was when the phase began [m]."""
        self._grip = Tip(_MEETING, _QUARTER, 0.0)
        """How the right gripper went down on the cube."""

    def act(self, data: mujoco.MjData, command: NDArray[np.float64]) -> NDArray[np.float64]:
        """The next action (14,), from where the commands stand (14,)."""
        cube = np.array(data.body("box").xpos)
        step = self._step(data, cube)
        if self._failed(data, cube):
            self._enter(0, data, cube)
        elif step.done:
            self._enter(self._phase + 1, data, cube)
        step = self._step(data, cube)
        pace = min(1.0, (data.time - self._since + _STEP_S) / _RAMP_S)
        left = _towards(self._left, step.left, command[:6], pace)
        right = _towards(self._right, step.right, command[7:13], pace)
        return np.array([*left, step.grips[0], *right, step.grips[1]])

    def _enter(self, phase: int, data: mujoco.MjData, cube: NDArray[np.float64]) -> None:
        self._phase, self._since, self._spot = phase, float(data.time), cube

    def _failed(self, data: mujoco.MjData, cube: NDArray[np.float64]) -> bool:
        """Whether the plan has to begin again."""
        name = self.PHASES[self._phase]
        if name in ("lift", "carry", "reach", "take") and not self._right.holds(data, cube):
            return True
        if name in ("release", "leave"):
            return not self._left.holds(data, cube)
        return float(data.time) - self._since > _PATIENCE_S

    def _step(self, data: mujoco.MjData, cube: NDArray[np.float64]) -> _Step:
        name = self.PHASES[self._phase]
        waiting = Tip(_WAITING, 0.0, _QUARTER)
        meeting = Tip(_MEETING, 0.0, 0.0)
        if name in ("above", "down"):
            height = _HOVER if name == "above" else -_DEPTH
            goal = self._grip = self._over(data, cube, height)
            opened = name == "down" or self._right.opened(data)
            return _Step(waiting, goal, (_OPEN, _OPEN), opened and self._right.at(data, goal))
        if name in ("grasp", "lift"):
            height = 0.0 if name == "grasp" else _HOVER
            goal = self._grip._replace(position=self._grip.position + height * _UP)
            done = self._right.closed(data) if name == "grasp" else self._right.at(data, goal)
            return _Step(waiting, goal, (_OPEN, _CLOSED), done)
        if name == "carry":
            there = self._right.at(data, meeting) and self._left.at(data, waiting)
            return _Step(waiting, meeting, (_OPEN, _CLOSED), there and self._left.opened(data))
        taking = Tip(self._spot + np.array([_DEPTH, 0.0, 0.0]), 0.0, _QUARTER)
        if name == "reach":
            return _Step(taking, meeting, (_OPEN, _CLOSED), self._left.at(data, taking))
        if name == "take":
            return _Step(taking, meeting, (_CLOSED, _CLOSED), self._left.closed(data))
        if name == "release":
            return _Step(taking, meeting, (_CLOSED, _OPEN), self._right.opened(data))
        away = Tip(_MEETING + _BESIDE, 0.0, 0.0)
        return _Step(taking, away, (_CLOSED, _OPEN), False)

    def _over(self, data: mujoco.MjData, cube: NDArray[np.float64], height: float) -> Tip:
        """Straight down above the cube (3,) [m], fingers along two of its faces."""
        axes = np.array(data.body("box").xmat).reshape(3, 3)
        level = axes[:, int(np.abs(axes[2]).argmin())]
        roll = self._right.heading(cube) - math.atan2(level[1], level[0])
        return Tip(cube + height * _UP, _QUARTER, math.remainder(roll, _QUARTER))


def _towards(arm: Arm, goal: Tip, command: NDArray[np.float64], pace: float) -> NDArray[np.float64]:
    """Joint positions (6,) a step from the commanded ones towards a waypoint."""
    now = arm.forward(command)
    offset = goal.position - now.position
    turns = np.array([goal.pitch - now.pitch, math.remainder(goal.roll - now.roll, math.tau)])
    distance, turn = float(np.linalg.norm(offset)), float(np.abs(turns).max())
    share = _GAIN
    for way, fastest in ((distance, _SPEED), (turn, _TURN)):
        if way > 0.0:
            share = min(share, pace * fastest * _STEP_S / way)
    pitch, roll = share * turns + [now.pitch, now.roll]
    wanted = arm.inverse(Tip(now.position + share * offset, float(pitch), float(roll)))
    return command + np.clip(wanted - command, -_JOINT_STEP, _JOINT_STEP)
