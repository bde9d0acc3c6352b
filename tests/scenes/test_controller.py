"""What an action does to the arm, in every action mode."""

from __future__ import annotations

import numpy as np
import pytest

from robogen.perturbations.engine import Perturbation
from robogen.rollout.start import begin
from robogen.scenes.controller import LEASH
from robogen.scenes.scene import load_tabletop
from robogen.seeding import EpisodeSeed
from robogen.specs import ActionSpec

DELTA = ActionSpec()


@pytest.fixture(scope="module")
def scene():
    made = load_tabletop("push")
    yield made
    made.close()


@pytest.fixture
def ready(scene):
    begin(scene, Perturbation(), EpisodeSeed(domain="validate", study=0, scene="push", episode=0))
    return scene


def tool(scene):
    return scene.proprioception(["eef_pos"])


def settle(scene, action, spec, steps=15):
    for _ in range(steps):
        scene.step(action, spec)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_delta_moves_the_tool_by_its_scale_along_its_axis(ready, axis, sign):
    before = tool(ready)
    action = np.zeros(7)
    action[axis], action[6] = 0.6 * sign, -1.0
    ready.step(action, DELTA)
    settle(ready, np.array([0, 0, 0, 0, 0, 0, -1.0]), DELTA)
    expected = np.zeros(3)
    expected[axis] = 0.6 * sign * DELTA.scale_position
    np.testing.assert_allclose(tool(ready) - before, expected, atol=1.5e-3)


def test_a_delta_turns_the_tool_about_the_base_frames_axis(ready):
    before = ready.proprioception(["eef_rot6d"]).astype(float)
    action = np.array([0, 0, 0, 0, 0, 0.5, -1.0])
    ready.step(action, DELTA)
    settle(ready, np.array([0, 0, 0, 0, 0, 0, -1.0]), DELTA)
    after = ready.proprioception(["eef_rot6d"]).astype(float)
    angle = 0.5 * DELTA.scale_rotation
    turn = np.array(
        [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    )
    for column in (slice(0, 3), slice(3, 6)):
        np.testing.assert_allclose(after[column], turn @ before[column], atol=5e-3)


def test_values_beyond_one_are_clipped(ready):
    before = tool(ready)
    ready.step(np.array([0, 7.0, 0, 0, 0, 0, -1.0]), DELTA)
    settle(ready, np.array([0, 0, 0, 0, 0, 0, -1.0]), DELTA)
    assert tool(ready)[1] - before[1] == pytest.approx(DELTA.scale_position, abs=1.5e-3)


def test_the_gripper_follows_its_sign(ready):
    def opening():
        return float(ready.proprioception(["gripper_opening"])[0])

    settle(ready, np.array([0, 0, 0, 0, 0, 0, 1.0]), DELTA)
    assert opening() < 0.002
    settle(ready, np.array([0, 0, 0, 0, 0, 0, -1.0]), DELTA)
    assert opening() == pytest.approx(0.08, abs=0.002)
    settle(ready, np.array([0, 0, 0, 0, 0, 0, -1.0]), ActionSpec(gripper="open_positive"))
    assert opening() < 0.002


def test_absolute_joints_are_reached_and_limited(ready):
    spec = ActionSpec(mode="absolute_joint", dim=8)
    rest = ready.rest_action(spec)
    wanted = rest.copy()
    wanted[1] += 0.2
    settle(ready, wanted, spec, steps=20)
    joints = ready.proprioception(["joint_pos"])
    np.testing.assert_allclose(joints, wanted[:7], atol=5e-3)
    wanted[0] = 99.0
    settle(ready, wanted, spec, steps=40)
    low, high = np.array(ready.prepare(seed())[1].robot_limits)[0]
    assert low <= ready.proprioception(["joint_pos"])[0] <= high + 1e-2


def seed():
    return EpisodeSeed(domain="validate", study=0, scene="push", episode=0)


def test_absolute_pose_and_delta_joint_agree_with_the_state(ready):
    pose = ActionSpec(mode="absolute_eef")
    action = ready.rest_action(pose)
    action[:3] += [0.03, -0.04, -0.05]
    settle(ready, action, pose)
    np.testing.assert_allclose(tool(ready), action[:3], atol=2e-3)
    joints = ActionSpec(mode="delta_joint", dim=8)
    before = ready.proprioception(["joint_pos"])
    step = np.zeros(8)
    step[3] = 0.4
    ready.step(step, joints)
    settle(ready, np.zeros(8), joints)
    moved = ready.proprioception(["joint_pos"]) - before
    expected = np.zeros(7)
    expected[3] = 0.4 * joints.scale_rotation
    np.testing.assert_allclose(moved, expected, atol=5e-3)


@pytest.mark.parametrize("mode", ["delta_eef", "absolute_eef", "absolute_joint", "delta_joint"])
def test_the_rest_action_stays(ready, mode):
    spec = ActionSpec(mode=mode, dim=ready.spec.action_modes[mode])
    before = tool(ready)
    settle(ready, ready.rest_action(spec), spec, steps=5)
    np.testing.assert_allclose(tool(ready), before, atol=1e-3)


def test_a_blocked_command_does_not_run_away(ready):
    down = np.array([0, 0, -1.0, 0, 0, 0, -1.0])
    settle(ready, down, DELTA, steps=30)  # into the table
    ahead = ready._controller.target.position - tool(ready)
    assert np.linalg.norm(ahead) <= LEASH + DELTA.scale_position
    assert tool(ready)[2] > -0.02
