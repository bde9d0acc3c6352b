"""A small tabletop with every role, and the facts of one of its episodes."""

from __future__ import annotations

import mujoco
import numpy as np

from robogen.mj.patterns import pattern
from robogen.mj.roles import Roles
from robogen.mj.world import World
from robogen.perturbations.library import available, load_factor
from robogen.specs import Circle, SceneFacts

MJCF = """
<mujoco>
  <statistic center="0.4 0 0.1" extent="1"/>
  <visual><headlight ambient=".3 .3 .3" diffuse=".1 .1 .1" specular="0 0 0"/></visual>
  <asset>
    <texture name="table" type="2d" builtin="flat" width="64" height="64" rgb1="1 1 1"/>
    <texture name="floor" type="2d" builtin="flat" width="64" height="64" rgb1="1 1 1"/>
    <texture name="wall" type="2d" builtin="flat" width="64" height="64" rgb1="1 1 1"/>
    <texture name="cube" type="cube" builtin="flat" width="32" height="32" rgb1="1 1 1"/>
    <material name="table" texture="table" rgba=".7 .5 .3 1"/>
    <material name="floor" texture="floor" rgba=".4 .4 .4 1"/>
    <material name="wall" texture="wall" rgba=".6 .6 .65 1"/>
    <material name="cube" texture="cube" rgba=".85 .13 .11 1"/>
    <material name="trim" rgba=".8 .8 .82 1"/>
    <material name="tray" rgba=".1 .55 .25 1"/>
  </asset>
  <worldbody>
    <light name="key" type="directional" dir="-.3 -.4 -1" pos="1 1 2" diffuse=".5 .5 .5"/>
    <light name="fill" type="directional" dir="-.6 .5 -.4" pos="1 -1 2" diffuse=".2 .2 .25"/>
    <geom name="table" type="box" pos=".4 0 -.02" size=".4 .3 .02" material="table"/>
    <geom name="floor" type="box" pos=".5 0 -.7" size="2 2 .01" material="floor"/>
    <geom name="wall" type="box" pos="-1 0 .5" size="2 1 .02" xyaxes="0 1 0 0 0 1" material="wall"/>
    <camera name="front" pos="1.2 0 .6" xyaxes="0 1 0 -.6 0 .8" fovy="45"/>
    <body name="arm">
      <inertial pos="0 0 0" mass="1" diaginertia=".1 .1 .1"/>
      <joint name="a" axis="0 0 1" range="-2 2"/>
      <geom type="capsule" fromto="0 0 .1 .2 0 .4" size=".03"/>
      <camera name="wrist" pos=".2 0 .4" xyaxes="0 1 0 -1 0 0"/>
    </body>
    <body name="cube" pos=".5 .1 .025">
      <freejoint/>
      <geom name="cube" type="box" size=".025 .025 .025" mass=".1" material="cube" priority="1"/>
      <geom name="trim" type="box" pos="0 0 .025" size=".01 .01 .001" mass="0" material="trim"
            contype="0" conaffinity="0"/>
      <site name="base" pos="0 0 -.025"/>
    </body>
    <body name="tray" pos=".5 -.15 0">
      <geom name="tray" type="box" pos="0 0 .005" size=".07 .07 .005" material="tray"/>
    </body>
  </worldbody>
  <actuator><position joint="a" kp="10"/></actuator>
</mujoco>
"""

ROLES = Roles(
    bodies={"robot": ("arm",), "manipulated": ("cube",), "receiver": ("tray",)},
    surfaces={"table": ("table",), "floor": ("floor",), "background": ("wall",)},
    lights=("key", "fill"),
    cameras={"front": "third_person", "wrist": "wrist"},
)

FACTS = SceneFacts(
    scene="small",
    workspace=(0.2, 0.8, -0.4, 0.4),
    occupied=(Circle(x=0.5, y=0.1, radius=0.06), Circle(x=0.0, y=0.0, radius=0.15)),
    robot_qpos=(0.0, 0.5, 1.95),
    robot_limits=((-2.0, 2.0), (-2.0, 2.0), (-2.0, 2.0)),
    instruction="put the red cube into the tray",
    paraphrases={
        "train": ("place the red cube in the tray", "drop that red block into the dish"),
        "eval": (
            "put a red cube into the tray",
            "move the red cube to the tray",
            "the crimson block belongs in the container, bring it there",
        ),
    },
    control_hz=10.0,
    can_widen=True,
)

NAMES = tuple(available())
MODEL_NAMES = tuple(name for name in NAMES if load_factor(name).phase == "model")
CONTINUOUS = tuple(name for name in NAMES if load_factor(name).dose == "continuous")


def spec() -> mujoco.MjSpec:
    return mujoco.MjSpec.from_string(MJCF)


def make_world(edited: mujoco.MjSpec | None = None) -> World:
    paint = {
        "table": pattern("wood", 1, 64, (1.0, 1.0, 1.0)),
        "floor": pattern("concrete", 1, 64, (1.0, 1.0, 1.0)),
        "wall": pattern("plaster", 1, 64, (1.0, 1.0, 1.0)),
    }
    world = World.compiled(edited or spec(), ROLES, paint)
    world.forward()
    return world


def model_bytes(world: World) -> bytes:
    size = mujoco.mj_sizeModel(world.model)
    buffer = np.empty(size, np.uint8)
    mujoco.mj_saveModel(world.model, None, buffer)
    return buffer.tobytes()
