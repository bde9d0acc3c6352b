"""Predicates on states made by hand, and the referee's bookkeeping."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from robogen.errors import SceneError
from robogen.mj.roles import Roles
from robogen.mj.world import World
from robogen.scenes.schema import Stage, SuccessConfig
from robogen.scenes.task import Referee, TaskState

WORLD = """
<mujoco>
  <worldbody>
    <geom type="plane" size="1 1 0.1"/>
    <body name="hand" mocap="true" pos="0 0 1">
      <geom type="sphere" size="0.02"/><site name="tcp"/></body>
    <body name="ball/ball" pos="0 0 0.05"><freejoint/>
      <geom type="sphere" size="0.05"/></body>
    <body name="box/box" pos="0.5 0 0"><joint name="box/lid" type="slide" axis="0 0 1" range="0 1"/>
      <geom type="box" size="0.1 0.1 0.01" mass="1" contype="0" conaffinity="0"/>
      <site name="box/inside" type="box" size="0.1 0.1 0.05" pos="0 0 0.05"/></body>
  </worldbody>
</mujoco>
"""


def made():
    world = World.compiled(mujoco.MjSpec.from_string(WORLD), Roles(), {})
    world.forward()
    state = TaskState(
        world=world,
        roots={"ball": "ball/ball", "box": "box/box"},
        tcp="tcp",
        fingers=["hand"],
        target="ball",
    )
    return world, state


def put(world, position):
    world.set_free_body("ball/ball", np.array(position), np.array([1.0, 0, 0, 0]))
    world.forward()


def test_inside_counts_the_box_and_nothing_else():
    world, state = made()
    assert not state.inside(object="target", container="box")
    put(world, [0.55, -0.05, 0.06])
    assert state.inside(object="target", container="box")
    put(world, [0.61, 0, 0.06])
    assert not state.inside(object="target", container="box")
    put(world, [0.55, 0, 0.4])
    assert not state.inside(object="target", container="box")


def test_near_in_space_and_seen_from_above():
    world, state = made()
    put(world, [0.03, 0.04, 0.5])
    assert state.near(a="target", b="gripper", distance=0.51)
    assert not state.near(a="target", b="gripper", distance=0.5)
    assert state.near(a="target", b="gripper", distance=0.0501, planar=True)


def test_lifted_counts_from_the_start():
    world, state = made()
    assert not state.lifted(object="target", height=0.01)
    put(world, [0, 0, 0.15])
    assert state.lifted(object="target", height=0.0999)
    assert not state.lifted(object="target", height=0.101)


def test_touching_and_released():
    world, state = made()
    assert state.released(object="target")
    put(world, [0, 0, 0.94])  # 1 cm into the hand
    assert state.touching("gripper", "target")
    assert not state.released(object="target")


def test_upright_and_opened():
    world, state = made()
    assert state.upright(object="target")
    world.set_free_body(
        "ball/ball", np.array([0, 0, 0.05]), np.array([np.cos(0.2), np.sin(0.2), 0, 0])
    )  # tilted by 0.4 rad
    world.forward()
    assert state.upright(object="target", within_deg=23)
    assert not state.upright(object="target", within_deg=22)
    assert not state.opened(joint="box/lid", at_least=0.1)


def test_a_wrong_predicate_says_what_it_takes():
    _, state = made()
    with pytest.raises(SceneError, match="It takes: a, b, distance, planar; names are ball, box"):
        state.check([{"near": {"a": "target", "c": "box"}}])
    with pytest.raises(SceneError, match="cannot be evaluated"):
        state.check([{"lifted": {"object": "cup", "height": 0.1}}])


def test_success_must_hold_and_progress_never_falls():
    world, state = made()
    lifted = {"lifted": {"object": "target", "height": 0.1}}
    high = {"lifted": {"object": "target", "height": 0.3}}
    referee = Referee(
        state=state,
        success=SuccessConfig(all=(high,), hold_s=0.2),
        stages=[Stage(name="up", all=(lifted,))],
        control_hz=10.0,
    )
    assert (referee.update(), referee.progress, referee.stage) == (False, 0.0, "start")
    put(world, [0, 0, 0.2])
    assert (referee.update(), referee.progress, referee.stage) == (False, 0.5, "up")
    put(world, [0, 0, 0.05])
    assert (referee.update(), referee.progress) == (False, 0.5)
    put(world, [0, 0, 0.4])
    assert [referee.update(), referee.update()] == [False, False]
    put(world, [0, 0, 0.05])
    assert not referee.update()  # let go too early: the count starts again
    put(world, [0, 0, 0.4])
    assert [referee.update() for _ in range(3)] == [False, False, True]
    assert referee.progress == 1.0
