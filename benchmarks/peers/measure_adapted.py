"""One environment three ways: its own loop, and adapted by robogen, drawn native or fast.

Run in the environment's own Python: ``echo 5 | .venv-metaworld/bin/python
benchmarks/peers/measure_adapted.py metaworld own``.
"""

import sys
import warnings

from turns import drawing, serve, versions

from robogen.mj.render import PROFILES, gl_info
from robogen.perturbations.engine import Perturbation
from robogen.rollout.episode import Episode, EpisodeTask
from robogen.scenes.load import load_scene
from robogen.seeding import EpisodeSeed
from robogen.specs import CameraSpec, ObservationSpec, PolicySpec

SCENES = {
    "metaworld": "metaworld/pick-place-v3",
    "robosuite": "robosuite/Lift",
    "libero": "libero/spatial_0",
    "aloha": "aloha/transfer_cube",
}
"""Task by family; each is measured at its own control rate."""
SIDE = 128


def own_metaworld():
    """Gymnasium's step, then two frames of its renderer."""
    import gymnasium
    import metaworld  # noqa: F401 - registers the environments
    import mujoco

    env = gymnasium.make(
        "Meta-World/MT1",
        env_name="pick-place-v3",
        seed=0,
        render_mode="rgb_array",
        camera_name="corner4",
        width=SIDE,
        height=SIDE,
    )
    inner = env.unwrapped
    inner.max_path_length = 10**9
    kind = mujoco.mjtObj.mjOBJ_CAMERA
    cameras = [mujoco.mj_name2id(inner.model, kind, n) for n in ("corner4", "gripperPOV")]

    def step(action):
        inner.step(action)
        frames = []
        for camera in cameras:
            inner.mujoco_renderer.camera_id = camera
            frames.append(inner.mujoco_renderer.render("rgb_array"))
        return frames

    return env.reset, step, lambda: inner.data.time, 4, inner.model, (0, 1, 2)


def robosuite_like(env, cameras, reset):
    """A step of robosuite, frames in its observation."""

    def step(action):
        observation = env.step(action)[0]
        return [observation[f"{name}_image"] for name in cameras]

    return reset, step, lambda: env.sim.data.time, 7, env.sim.model, (1,)


def own_robosuite():
    """Lift with camera observations, as robosuite's documentation makes it."""
    import robosuite

    cameras = ["agentview", "robot0_eye_in_hand"]
    env = robosuite.make(
        "Lift",
        robots="Panda",
        has_renderer=False,
        has_offscreen_renderer=True,
        use_camera_obs=True,
        camera_names=cameras,
        camera_heights=SIDE,
        camera_widths=SIDE,
        control_freq=20,
        horizon=10**9,
        hard_reset=False,
    )
    return robosuite_like(env, cameras, env.reset)


def own_libero():
    """LIBERO's offscreen environment, first task and first start of libero_spatial."""
    from pathlib import Path

    from libero.libero import benchmark, get_libero_path
    from libero.libero.envs import OffScreenRenderEnv

    cameras = ["agentview", "robot0_eye_in_hand"]
    suite = benchmark.get_benchmark("libero_spatial")(task_order_index=0)
    task = suite.get_task(0)
    start = suite.get_task_init_states(0)[0]
    folder = Path(get_libero_path("bddl_files"))
    env = OffScreenRenderEnv(
        bddl_file_name=str(folder / task.problem_folder / task.bddl_file),
        camera_names=cameras,
        camera_heights=SIDE,
        camera_widths=SIDE,
        horizon=10**9,
        hard_reset=False,
    )
    env.seed(0)

    def reset():
        env.reset()
        env.set_init_state(start)

    return robosuite_like(env, cameras, reset)


def own_aloha():
    """gym-aloha, whose step draws three frames of 640 x 480 px, asked for or not."""
    import gym_aloha  # noqa: F401 - registers the environments
    import gymnasium

    env = gymnasium.make(
        "gym_aloha/AlohaTransferCube-v0", obs_type="pixels_agent_pos", max_episode_steps=10**9
    )
    physics = env.unwrapped._env.physics

    def step(action):
        return [env.step(action.astype("float32"))[0]["pixels"]["top"]]

    return env.reset, step, lambda: physics.data.time, 14, physics.model.ptr, (0, 1, 2)


def adapted(family, render):
    """Robogen's episode around it, one query a step, two cameras."""
    name = SCENES[family]
    scene = load_scene(name, overrides={"render": render, "horizon": 10**9})
    cameras = scene.spec.cameras[:1] if family == "aloha" else scene.spec.cameras[:2]
    spec = PolicySpec(
        observation=ObservationSpec(
            cameras=tuple(CameraSpec(name=n, width=SIDE, height=SIDE) for n in cameras),
            state=tuple(scene.spec.state),
        ),
        action=scene.spec.action,
    )
    now = {}

    def reset():
        task = EpisodeTask(
            name,
            "random",
            "nominal",
            0,
            0,
            EpisodeSeed(domain="evaluate", study=0, scene=name, episode=0),
        )
        now["episode"] = Episode(
            scene=scene, perturbation=Perturbation(), task=task, policy=spec, action=spec.action
        )
        now["episode"].start()

    def step(action):
        now["episode"].execute(action)
        return list(now["episode"].observe().images.values())

    groups = scene.config.groups or (0, 1, 2)
    model = scene.world.model
    return reset, step, lambda: scene.world.data.time, scene.spec.action.dim, model, groups


def main():
    """Serve turns of the family and mode named on the command line."""
    family, mode = sys.argv[1:3]
    warnings.simplefilter("ignore")
    if mode == "own":
        if family == "libero":  # its first import asks where its files are; robogen answers
            load_scene(SCENES[family]).close()
        made = globals()[f"own_{family}"]()
    else:
        made = adapted(family, mode)
    reset, step, clock, actions, model, groups = made
    quality = PROFILES["fast"]

    def facts():
        drawn = drawing(model, groups)
        if mode == "fast":
            drawn |= {"shadow_map": 0, "samples": quality.samples, "reflecting": 0}
        return {
            "task": SCENES[family],
            "timestep": model.opt.timestep,
            "versions": versions("mujoco", "numpy"),
            **({"gl": gl_info()} if mode != "own" else {}),
            **drawn,
        }

    serve(reset=reset, step=step, clock=clock, actions=actions, facts=facts)


main()
