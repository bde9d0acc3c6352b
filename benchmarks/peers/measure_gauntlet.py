"""gauntlet-robotics: its MuJoCo tabletop (a free-flying gripper) with two cameras."""

from importlib.resources import files

import mujoco
from gauntlet.env import CameraSpec, TabletopEnv
from turns import drawing, serve, versions

CAMERAS = (
    CameraSpec(name="front", pose=(0.0, -0.9, 0.9, 1.1, 0.0, 0.0), size=(128, 128)),
    CameraSpec(name="top", pose=(0.0, 0.0, 1.5, 0.0, 0.0, 0.0), size=(128, 128)),
)
# 5 physics steps of 10 ms, its default, are one step of 50 ms.
env = TabletopEnv(cameras=list(CAMERAS), max_steps=10**9)
model = mujoco.MjModel.from_xml_path(str(files("gauntlet.env") / "assets" / "tabletop.xml"))
steps = 0


def step(action):
    """One control step and its frames."""
    global steps
    steps += 1
    images = env.step(action)[0]["images"]
    return [images[camera.name] for camera in CAMERAS]


serve(
    reset=lambda: env.reset(seed=0),
    step=step,
    clock=lambda: steps * env.control_dt,
    actions=7,
    facts=lambda: {
        "task": "tabletop, no arm",
        "timestep": model.opt.timestep,
        "versions": versions("gauntlet-robotics", "mujoco", "numpy"),
        **drawing(model),
    },
)
