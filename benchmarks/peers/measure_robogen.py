"""robogen: scene pick through the episode that every evaluation runs, one profile."""

import sys

from turns import drawing, serve, versions

from robogen.mj.render import PROFILES, gl_info
from robogen.perturbations.engine import Perturbation
from robogen.rollout.episode import Episode, EpisodeTask
from robogen.scenes.scene import load_tabletop
from robogen.seeding import EpisodeSeed
from robogen.specs import ActionSpec, CameraSpec, ObservationSpec, PolicySpec

profile = sys.argv[1]
scene = load_tabletop("pick", overrides={"control_hz": 20, "horizon_s": 1e6})
action_spec = ActionSpec(control_hz=20)
policy = PolicySpec(
    observation=ObservationSpec(
        cameras=tuple(CameraSpec(name=n, width=128, height=128) for n in ("front", "wrist")),
        state=("eef_pos", "eef_rot6d", "gripper_opening"),
        instruction=True,
        render=profile,
    ),
    action=action_spec,
)
episode = None


def reset():
    """Start an episode."""
    global episode
    seed = EpisodeSeed(domain="evaluate", study=0, scene="pick", episode=0)
    task = EpisodeTask("pick", "random", "nominal", 0, 0, seed)
    episode = Episode(
        scene=scene, perturbation=Perturbation(), task=task, policy=policy, action=action_spec
    )
    episode.start()


def step(action):
    """One control step and its frames."""
    episode.execute(action)
    return list(episode.observe().images.values())


serve(
    reset=reset,
    step=step,
    clock=lambda: scene.world.data.time,
    actions=7,
    facts=lambda: {
        "task": "pick, Panda",
        "changed": "control_hz set to 20",
        "timestep": scene.world.timestep,
        "versions": versions("robogen", "mujoco", "numpy"),
        "gl": gl_info(),
        **drawing(scene.world.model),
        # a profile sets these itself, and draws no reflections
        "shadow_map": PROFILES[profile].shadow_size,
        "shadow_lights": 1 if PROFILES[profile].shadow_size else 0,
        "samples": PROFILES[profile].samples,
        "reflecting": 0,
    },
)
