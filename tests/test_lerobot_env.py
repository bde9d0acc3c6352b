"""Scenes as LeRobot evaluates them, without LeRobot."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import robogen
from robogen import lerobot_env
from robogen.errors import ConfigError, SpecError
from robogen.lerobot_env import features, make_env
from robogen.perturbations.engine import Perturbation
from robogen.perturbations.library import load_factor
from robogen.records.reader import read_records
from robogen.records.schema import EpisodeKey
from robogen.rollout.start import begin
from robogen.scenes.library import available
from robogen.seeding import EpisodeSeed

FOLDER = Path(__file__).parents[1] / "docs" / "lerobot-env"


@pytest.fixture(scope="module")
def pair() -> Iterator[Any]:
    """Two pushes under two factors at half their dose, of the study with seed 5."""
    settings = {"severity": 0.5, "seed": 5, "image_size": 48}
    suites = make_env(2, scene="push", perturbation="camera_pose+mass", **settings)
    vector = suites["camera_pose+mass@0.5"][0]
    yield vector
    vector.close()


def still(vector: Any) -> np.ndarray:
    return np.zeros((vector.num_envs, 7), np.float32)


def hashes(vector: Any) -> list[str]:
    return [env.unwrapped.scene_env.scene.world.state_hash() for env in vector.envs]


def test_one_environment_passes_gymnasiums_checker_without_a_warning():
    name = "test-lerobot/Scene-v0"
    gymnasium.register(name, entry_point="robogen.lerobot_env:LeRobotEnv")
    env = gymnasium.make(name, scene="push", perturbation="all", image_size=32)
    check_env(env.unwrapped)
    assert env.get_wrapper_attr("_max_episode_steps") == 80
    env.close()
    del gymnasium.registry[name]


def test_observations_are_what_lerobot_turns_into_tensors(pair: Any):
    observation, info = pair.reset(seed=[0, 1])
    assert set(observation) == {"pixels", "agent_pos"}
    assert set(observation["pixels"]) == {"front", "wrist"}
    for frames in observation["pixels"].values():
        assert frames.dtype == np.uint8
        assert frames.shape == (2, 48, 48, 3)
    assert observation["agent_pos"].dtype == np.float32
    assert observation["agent_pos"].shape == (2, 10)
    assert pair.observation_space.contains(observation)
    assert info["episode"].tolist() == [0, 1]
    observation, reward, ended, truncated, info = pair.step(still(pair))
    assert pair.observation_space.contains(observation)
    assert (reward.shape, ended.shape, truncated.shape) == ((2,), (2,), (2,))
    assert info["is_success"].tolist() == [False, False]


def test_lerobot_finds_what_it_asks_sub_environments(pair: Any):
    pair.reset(seed=[0, 1])
    assert pair.call("task_description") == ("push the puck onto the disc",) * 2
    assert pair.call("task") == ("push", "push")
    assert pair.call("_max_episode_steps") == (80, 80)
    assert pair.unwrapped.metadata["render_fps"] == 10
    assert isinstance(pair, gymnasium.vector.SyncVectorEnv)
    assert pair.envs[0].render().shape == pair.call("render")[1].shape == (240, 320, 3)


def test_a_seed_is_an_episode_of_the_study(pair: Any):
    factors = [(load_factor(name), 0.5) for name in ("camera_pose", "mass")]
    scene = robogen.TabletopScene(
        pair.envs[0].unwrapped.scene_env.scene.config, available()["push"]
    )
    pair.reset(seed=[3, 8])
    for row, episode in enumerate((3, 8)):
        seed = EpisodeSeed(domain="evaluate", study=5, scene="push", episode=episode)
        draws, words, _ = begin(scene, Perturbation(factors), seed)
        assert pair.call("draws")[row] == draws
        assert pair.call("task_description")[row] == words
        assert hashes(pair)[row] == scene.world.state_hash()
    scene.close()


def test_the_batch_size_and_lerobots_options_change_no_episode(pair: Any):
    observation, _ = pair.reset(seed=[3, 4], options={"lerobot_new_rollout": True})
    single = make_env(
        1, scene="push", perturbation=["mass+camera_pose"], severity=0.5, seed=5, image_size=48
    )["mass+camera_pose@0.5"][0]
    alone, _ = single.reset(seed=[4])
    for camera, frames in observation["pixels"].items():
        np.testing.assert_array_equal(frames[1], alone["pixels"][camera][0])
    np.testing.assert_array_equal(observation["agent_pos"][1], alone["agent_pos"][0])
    single.close()


def test_episodes_are_those_of_a_study(tmp_path: Path):
    out = tmp_path / "run"
    robogen.evaluate(
        scene="push",
        policy="oracle",
        perturbation=["mass"],
        episodes=2,
        seed=7,
        workers=0,
        frames=0,
        videos=0,
        out=str(out),
    )
    records = read_records(out, actions=True)
    for condition, tasks in make_env(2, scene="push", perturbation="nominal,mass", seed=7).items():
        vector = tasks[0]
        vector.reset(seed=[0, 1])
        rows = [records.episode(EpisodeKey("push", "oracle", condition, k, 0)) for k in (0, 1)]
        assert hashes(vector) == [row.state_hash for row in rows]
        assert list(vector.call("draws")) == [dict(row.draws) for row in rows]
        ends = [0, 0]
        for step in range(max(row.steps for row in rows)):
            actions = [row.actions[min(step, row.steps - 1)] for row in rows]
            *_, ended, truncated, info = vector.step(np.stack(actions).astype(np.float32))
            for index in np.flatnonzero(ended | truncated):
                ends[index] = ends[index] or step + 1
        assert ends == [row.steps for row in rows]
        assert info["is_success"].tolist() == [row.success for row in rows]
        vector.close()


def test_a_finished_one_rests_until_an_episode_is_named(pair: Any):
    pair.reset(seed=[10, 11])
    done, total, ends = np.zeros(2, bool), np.zeros(2), [0, 0]
    rested: dict[int, tuple[str, np.ndarray]] = {}
    for step in range(80):
        observation, reward, ended, truncated, info = pair.step(
            np.stack(pair.call("expert_action"))
        )
        total += reward
        for row in np.flatnonzero(ended | truncated):
            frame = observation["pixels"]["front"][row]
            if row not in rested:
                ends[row], rested[row] = step, (hashes(pair)[row], frame)
                continue
            assert hashes(pair)[row] == rested[row][0]
            np.testing.assert_array_equal(frame, rested[row][1])
            assert reward[row] == 0.0
        done |= ended | truncated
        if done.any():
            assert info["final_info"]["is_success"][done].all()
        if done.all():
            break
    assert done.all()
    assert ends[0] != ends[1], "both ended together: choose other episodes"
    assert total.tolist() == [1.0, 1.0]
    _, info = pair.reset()
    assert info["episode"].tolist() == [12, 13]
    assert info["is_success"].tolist() == [False, False]


def test_resets_without_seeds_never_depend_on_the_policy(pair: Any):
    pair.reset(seed=20)
    assert pair.reset()[1]["episode"].tolist() == [22, 23]
    for _ in range(80):
        *_, info = pair.step(still(pair))
    assert info["final_info"]["is_success"].tolist() == [False, False]
    assert pair.reset()[1]["episode"].tolist() == [24, 25]
    assert pair.reset(seed=[None, 7])[1]["episode"].tolist() == [26, 7]


def test_suites_are_conditions_and_tasks_are_scenes():
    suites = make_env(
        1, scene=["push", "drawer"], perturbation="nominal, mass,all", severity=0.25, split="train"
    )
    assert list(suites) == ["nominal", "mass@0.25:train", "all@0.25:train"]
    assert [list(tasks) for tasks in suites.values()] == [[0, 1]] * 3
    vector = suites["all@0.25:train"][1]
    vector.reset(seed=[0])
    assert vector.call("task") == ("drawer",)
    assert len(vector.call("draws")[0]) > 10
    vector.close()


def test_environments_exist_from_their_first_use_to_close():
    vector = make_env(2, scene="push", image_size=16)["nominal"][0]
    assert not hasattr(vector, "envs")
    vector.close()
    with pytest.raises(ConfigError, match="reset"):
        vector.step(still(vector))
    vector.reset(seed=[4, 5])
    vector.close()
    vector.close()
    assert vector.reset()[1]["episode"].tolist() == [6, 7]
    vector.close()


def test_processes_give_the_same_as_one_process(pair: Any):
    settings = {"severity": 0.5, "seed": 5, "image_size": 48}
    suites = make_env(2, True, scene="push", perturbation="camera_pose+mass", **settings)
    vector: Any = suites["camera_pose+mass@0.5"][0]
    assert isinstance(vector, gymnasium.vector.AsyncVectorEnv)
    try:
        vector._ensure()  # as LeRobot does ahead of time
        vector.reset(seed=[1, 2])
        pair.reset(seed=[1, 2])
        assert vector.call("task_description") == pair.call("task_description")
        assert vector.get_attr("draws") == pair.get_attr("draws")
        assert vector.call("render")[0].shape == (240, 320, 3)
        for action in (np.full((2, 7), 0.3, np.float32), still(pair)):
            theirs, ours = vector.step(action), pair.step(action)
        for camera, frames in ours[0]["pixels"].items():
            np.testing.assert_array_equal(frames, theirs[0]["pixels"][camera])
        np.testing.assert_array_equal(ours[0]["agent_pos"], theirs[0]["agent_pos"])
    finally:
        vector.close()


def test_lerobots_configuration_wins_where_it_speaks():
    cfg: Any = SimpleNamespace(max_parallel_tasks=2, task="push")
    assert isinstance(make_env(1, True, cfg)["nominal"][0], gymnasium.vector.AsyncVectorEnv)
    cfg = SimpleNamespace(task="push", perturbation=None, seed=3, image_size=16, fps=30)
    suites = make_env(1, False, cfg, scene="pick", perturbation="mass", seed=1, image_size=64)
    assert list(suites) == ["mass"]
    env = suites["mass"][0]
    env.reset(seed=[0])
    assert env.call("task") == ("push",)
    assert env.call("_study") == (3,)
    assert env.single_observation_space["pixels"]["front"].shape == (16, 16, 3)
    env.close()


def test_features_name_what_a_policy_reads_and_writes():
    found = features("push,drawer", image_size=32)
    assert found == {
        "action": ("ACTION", (7,), "action"),
        "agent_pos": ("STATE", (10,), "observation.state"),
        "observation.images.front": ("VISUAL", (32, 32, 3), "observation.images.front"),
        "observation.images.wrist": ("VISUAL", (32, 32, 3), "observation.images.wrist"),
    }
    one = features("push", cameras=["wrist"], state=["eef_pos"])
    assert one["agent_pos"].shape == (3,)
    assert [name for name in one if "images" in name] == ["observation.images.wrist"]
    assert "agent_pos" not in features("push", state=[])
    assert set(features("push", cameras=[])) == {"action", "agent_pos"}


def test_scenes_that_no_policy_fits_both_of_are_refused(tmp_path: Path):
    (tmp_path / "scenes").mkdir()
    text = available()["push"].read_text(encoding="utf-8")
    text = text.replace("name: push", "name: blind").replace("  wrist: {kind: wrist}\n", "")
    (tmp_path / "scenes" / "blind.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"'push' and 'blind' differ .*wrist.*cameras"):
        features("push,blind", config_dirs=[tmp_path])


def test_the_folder_holds_what_a_loader_looks_for():
    spec = importlib.util.spec_from_file_location("hub_env", FOLDER / "env.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    suites = module.make_env(n_envs=2, use_async_envs=False)
    assert list(suites) == ["nominal", "camera_pose"]
    for tasks in suites.values():
        for vector in tasks.values():
            assert isinstance(vector, gymnasium.vector.VectorEnv)
            assert vector.num_envs == 2
            vector.close()
    cfg = SimpleNamespace(task="drawer", perturbation="mass")
    assert list(module.make_env(n_envs=1, use_async_envs=True, cfg=cfg)) == ["mass"]


def test_lerobot_is_not_needed():
    text = Path(lerobot_env.__file__).read_text(encoding="utf-8")
    assert not re.search(r"^\s*(import|from) lerobot", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_env(0), "n_envs must be at least 1, got 0"),
        (lambda: make_env(scene="pik"), "Did you mean 'pick'"),
        (lambda: make_env(scene=" , "), "scene must name at least one"),
        (lambda: make_env(scene="push,push"), "each once"),
        (lambda: make_env(perturbation="camera_poze"), "Did you mean 'camera_pose'"),
        (lambda: make_env(perturbation="mass+mass"), "named twice"),
        (lambda: make_env(perturbation="mass", severity=2.0), r"0\.\.1"),
        (lambda: make_env(scene="drawer", perturbation="receiver_color"), "does not apply"),
        (lambda: make_env(image_sise=32), "Did you mean 'image_size'"),
        (lambda: make_env(2, False, SimpleNamespace(max_parallel_tasks=3)), "one thread, got .*=3"),
    ],
)
def test_mistakes_name_the_remedy(call: Callable[[], object], message: str):
    with pytest.raises(ConfigError, match=message):
        call()
