"""Robosuite: Lift with a Panda, its default controller, front and wrist cameras."""

import robosuite
from turns import drawing, serve, versions

CAMERAS = ("agentview", "robot0_eye_in_hand")
env = robosuite.make(
    "Lift",
    robots="Panda",
    has_renderer=False,
    has_offscreen_renderer=True,
    use_camera_obs=True,
    camera_names=list(CAMERAS),
    camera_heights=128,
    camera_widths=128,
    control_freq=20,
    horizon=10**9,
    hard_reset=False,
)


def step(action):
    """One control step and its frames."""
    observation = env.step(action)[0]
    return [observation[f"{name}_image"] for name in CAMERAS]


serve(
    reset=env.reset,
    step=step,
    clock=lambda: env.sim.data.time,
    actions=env.action_dim,
    facts=lambda: {
        "task": "Lift, Panda",
        "timestep": env.sim.model.opt.timestep,
        "versions": versions("robosuite", "mujoco", "numpy"),
        # collision geoms (group 0) are not drawn
        **drawing(env.sim.model, groups=(1,)),
    },
)
