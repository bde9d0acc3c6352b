"""Scenes as Gymnasium environments."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import robogen
from robogen.errors import ConfigError
from robogen.gym_env import SceneEnv
from robogen.perturbations.engine import Perturbation
from robogen.perturbations.library import load_factor
from robogen.rollout.start import begin
from robogen.scenes.library import available
from robogen.seeding import EpisodeSeed


@pytest.fixture(scope="module")
def env() -> Iterator[SceneEnv]:
    made = robogen.make("push", ["camera_pose", "image_noise"], render_mode="rgb_array")
    yield made
    made.close()


@pytest.mark.parametrize("scene", list(available()))
def test_every_scene_passes_gymnasiums_checker_without_a_warning(scene: str):
    robogen.register_envs()
    made = gymnasium.make(
        f"robogen/{scene}-v0", perturbation="all", image_size=48, render_mode="rgb_array"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made.unwrapped)
    made.close()


def test_registered_ids_make_environments():
    ids = robogen.register_envs()
    assert ids == tuple(f"robogen/{name}-v0" for name in available())
    assert robogen.register_envs() == ids
    made = gymnasium.make("robogen/push-v0", perturbation="table_color", image_size=32)
    check_env(made.unwrapped)
    observation, info = made.reset(seed=3)
    assert observation["front"].shape == (32, 32, 3)
    assert set(info["draws"]) == {"table_color"}
    made.close()


def test_an_id_with_its_module_needs_no_import():
    script = (
        "import gymnasium\n"
        "env = gymnasium.make('robogen.envs:robogen/drawer-v0', image_size=32)\n"
        "print(env.reset(seed=0)[1]['instruction'])\n"
        "env.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "open the drawer"


def test_reset_with_a_seed_is_episode_0_of_that_study(env: SceneEnv):
    observation, info = env.reset(seed=11)
    other = robogen.TabletopScene(env.scene.config, available()["push"])
    factors = [(load_factor(name), 1.0) for name in ("camera_pose", "image_noise")]
    seed = EpisodeSeed(domain="evaluate", study=11, scene="push", episode=0)
    draws, instruction, _ = begin(other, Perturbation(factors), seed)
    assert env.scene.world.state_hash() == other.world.state_hash()
    assert info["draws"] == draws
    assert info["instruction"] == instruction
    frame = other.render("front", width=96, height=96, profile="fast")
    noisy = Perturbation(factors).filter_image(frame, draws, seed.stream("image", 0, "front"))
    assert np.array_equal(observation["front"], noisy)
    other.close()


def test_reset_without_a_seed_goes_on_and_options_pick(env: SceneEnv):
    env.reset(seed=5)
    numbers = [env.reset()[1]["episode"] for _ in range(3)]
    assert numbers == [1, 2, 3]
    state = env.scene.world.state_hash()
    assert env.reset(seed=5, options={"episode": 3})[1]["episode"] == 3
    assert env.scene.world.state_hash() == state
    _, info = env.reset(seed=5, options={"perturbation": "light_color", "severity": 0.5})
    assert set(info["draws"]) == {"light_color"}
    _, info = env.reset(seed=5, options={"perturbation": None})
    assert info["draws"] == {}
    env.reset(seed=5, options={"perturbation": ["camera_pose", "image_noise"], "severity": 1.0})


def test_the_oracle_ends_it_with_reward_one(env: SceneEnv):
    env.reset(seed=0)
    rewards = []
    for _ in range(env.scene.spec.horizon):
        observation, reward, terminated, truncated, info = env.step(env.expert_action())
        rewards.append(reward)
        assert env.observation_space.contains(observation)
        if terminated or truncated:
            break
    assert terminated
    assert not truncated
    assert info["is_success"]
    assert info["progress"] == 1.0
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]


def test_the_horizon_truncates():
    made = robogen.make("pick", image_size=16, cameras=[], overrides={"horizon_s": 0.5})
    observation, _ = made.reset(seed=0)
    assert set(observation) == {"state"}
    ends = [made.step(np.zeros(7, np.float32))[2:4] for _ in range(5)]
    assert ends == [(False, False)] * 4 + [(False, True)]
    made.close()


def test_render_shows_people_a_frame(env: SceneEnv):
    env.reset(seed=0)
    frame = env.render()
    assert frame is not None
    assert frame.shape == (240, 320, 3)
    assert env.metadata["render_fps"] == 10


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: robogen.make("pik"), "Did you mean 'pick'"),
        (lambda: robogen.make("pick", "camera_poze"), "Did you mean 'camera_pose'"),
        (lambda: robogen.make("pick", cameras=["frnt"]), "Did you mean 'front'"),
        (lambda: robogen.make("pick", state=["eef_position"]), "eef_pos"),
        (lambda: robogen.make("pick", render_mode="human"), "rgb_array"),
        (lambda: robogen.make("pick", "mass", severity=2.0), r"0\.\.1"),
        (lambda: robogen.make("drawer", "receiver_color"), "does not apply to scene 'drawer'"),
    ],
)
def test_mistakes_name_the_remedy(call: Callable[[], object], message: str):
    with pytest.raises(ConfigError, match=message):
        call()


def test_wrong_use_is_refused(env: SceneEnv):
    with pytest.raises(ConfigError, match="Did you mean 'episode'"):
        env.reset(options={"episodes": 3})
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="finite numbers"):
        env.step(np.zeros(6, np.float32))
    with pytest.raises(ConfigError, match="finite numbers"):
        env.step(np.full(7, np.nan, np.float32))
    fresh = robogen.make("push")
    with pytest.raises(ConfigError, match="reset"):
        fresh.step(np.zeros(7, np.float32))


def small() -> SceneEnv:
    return robogen.make("push", "light_color", image_size=32)


def test_a_vector_of_scenes_steps_in_one_process():
    vector = gymnasium.vector.SyncVectorEnv([small] * 3)
    observation, _ = vector.reset(seed=[1, 2, 1])
    assert observation["front"].shape == (3, 32, 32, 3)
    assert np.array_equal(observation["front"][0], observation["front"][2])
    assert not np.array_equal(observation["front"][0], observation["front"][1])
    for _ in range(3):
        observation, *_ = vector.step(np.zeros((3, 7), np.float32))
    assert np.array_equal(observation["front"][0], observation["front"][2])
    vector.close()


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_a_vector_of_processes_gives_the_same(context: str):
    wanted = {}
    single = small()
    for seed in (1, 2):
        single.reset(seed=seed)
        wanted[seed] = single.step(np.full(7, 0.3, np.float32))[0]
    single.close()
    vector = gymnasium.vector.AsyncVectorEnv([small, small], context=context)
    try:
        vector.reset(seed=[1, 2])
        observation, *_ = vector.step(np.full((2, 7), 0.3, np.float32))
    finally:
        vector.close()
    for row, seed in enumerate((1, 2)):
        assert np.array_equal(observation["front"][row], wanted[seed]["front"])
        assert np.array_equal(observation["state"][row], wanted[seed]["state"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_context_inherited_by_fork_is_refused_in_words(env: SceneEnv):
    """Drawing with the parent's OpenGL context would crash or show its pictures."""
    env.reset(seed=0)
    script = (
        "import os, robogen\n"
        "env = robogen.make('push', image_size=16)\n"
        "env.reset(seed=0)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        env.reset(seed=0)\n"
        "    except robogen.GraphicsError as error:\n"
        "        os._exit(0 if 'spawn' in str(error) else 2)\n"
        "    os._exit(1)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], timeout=120)
    assert done.returncode == 0
