"""Meta-World: pick-place-v3, two of its fixed cameras."""

import gymnasium as gym
import metaworld  # noqa: F401 - registers the environments
import mujoco
from turns import drawing, serve, versions

env = gym.make(
    "Meta-World/MT1",
    env_name="pick-place-v3",
    seed=0,
    render_mode="rgb_array",
    camera_name="corner2",
    width=128,
    height=128,
)
inner = env.unwrapped
# It controls at 80 Hz; more physics steps for each control step make 50 ms.
shipped = inner.frame_skip
inner.frame_skip = round(0.05 / inner.model.opt.timestep)
inner.max_path_length = 10**9
cameras = [
    mujoco.mj_name2id(inner.model, mujoco.mjtObj.mjOBJ_CAMERA, name)
    for name in ("corner2", "gripperPOV")
]


def step(action):
    """One control step and its frames."""
    inner.step(action)
    frames = []
    for camera in cameras:
        inner.mujoco_renderer.camera_id = camera
        frames.append(inner.mujoco_renderer.render("rgb_array"))
    return frames


serve(
    reset=env.reset,
    step=step,
    clock=lambda: inner.data.time,
    actions=4,
    facts=lambda: {
        "task": "pick-place-v3, Sawyer",
        "changed": f"frame_skip {shipped} set to {inner.frame_skip}",
        "timestep": inner.model.opt.timestep,
        "versions": versions("metaworld", "mujoco", "gymnasium"),
        **drawing(inner.model),
    },
)
