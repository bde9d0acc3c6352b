"""Our scenes under LeRobot's own loader, evaluation and command (``make test-lerobot``)."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import robogen
from robogen.lerobot_env import make_env

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # LeRobot reads it when it is imported

FOLDER = Path(__file__).parents[2] / "docs" / "lerobot-env"
PLUGIN = "lerobot_env_robogen"
pytestmark = [
    pytest.mark.extras,
    pytest.mark.skipif(importlib.util.find_spec("lerobot") is None, reason="no LeRobot"),
    pytest.mark.filterwarnings("ignore"),  # LeRobot's own
]
SHORT = {"scene": "push", "image_size": 64, "overrides": {"horizon_s": 0.5}}


@pytest.fixture(scope="module")
def lerobot() -> Iterator[SimpleNamespace]:
    """What the tests call of LeRobot."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:  # built for a GPU, beside a PyTorch without; its operators are not needed
        missing = "torchvision._meta_registrations"
        sys.modules[missing] = ModuleType(missing)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    sys.path.insert(0, str(FOLDER))
    names = {
        "act": "lerobot.policies.act.configuration_act",
        "configs": "lerobot.envs.configs",
        "envs": "lerobot.envs.factory",
        "policies": "lerobot.policies.factory",
        "script": "lerobot.scripts.lerobot_eval",
        "plugin": PLUGIN,
    }
    yield SimpleNamespace(**{key: importlib.import_module(name) for key, name in names.items()})
    sys.path.remove(str(FOLDER))
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def act(lerobot: SimpleNamespace) -> SimpleNamespace:
    """The smallest ACT, with random weights, and the processors around it."""
    config = lerobot.act.ACTConfig(
        chunk_size=40,
        n_action_steps=40,
        dim_model=32,
        n_heads=2,
        dim_feedforward=32,
        n_encoder_layers=1,
        use_vae=False,
        pretrained_backbone_weights=None,
        device="cpu",
        push_to_hub=False,
    )
    env = lerobot.plugin.RobogenEnv(task="push", image_size=64)
    policy = lerobot.policies.make_policy(config, env_cfg=env)
    before, after = lerobot.policies.make_pre_post_processors(policy_cfg=config)
    env_before, env_after = lerobot.envs.make_env_pre_post_processors(env, config)
    around = {
        "preprocessor": before,
        "postprocessor": after,
        "env_preprocessor": env_before,
        "env_postprocessor": env_after,
    }
    return SimpleNamespace(policy=policy, around=around)


@pytest.fixture
def hub(tmp_path: Path) -> str:
    """A cache in which our env.py lies as if it had been downloaded."""
    repository = tmp_path / "models--someone--scenes"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    shutil.copy(FOLDER / "env.py", snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40, encoding="utf-8")
    return str(tmp_path)


def new(lerobot: SimpleNamespace) -> bool:
    """Whether environments are made by their configuration, as since LeRobot 0.6."""
    return hasattr(lerobot.configs.EnvConfig, "create_envs")


def close(suites: dict[str, dict[int, Any]]) -> None:
    for tasks in suites.values():
        for vector in tasks.values():
            vector.close()


def test_the_loader_takes_env_py_from_the_hub(lerobot: SimpleNamespace, hub: str):
    call = {"n_envs": 2, "hub_cache_dir": hub}
    with pytest.raises(RuntimeError, match="trust_remote_code"):
        lerobot.envs.make_env("someone/scenes", **call)
    suites = lerobot.envs.make_env("someone/scenes", trust_remote_code=True, **call)
    assert {suite: list(tasks) for suite, tasks in suites.items()} == {
        "nominal": [0],
        "camera_pose": [0],
    }
    assert suites["nominal"][0].num_envs == 2
    close(suites)


def test_the_loader_hands_its_configuration_on(lerobot: SimpleNamespace, hub: str):
    @dataclass
    class Hub(lerobot.configs.HubEnvConfig):
        task: str | None = "push,drawer"
        perturbation: str = "mass"
        severity: float = 0.5

    suites = lerobot.envs.make_env(
        Hub(hub_path="someone/scenes"), hub_cache_dir=hub, trust_remote_code=True
    )
    assert list(suites) == ["mass@0.5"]
    assert list(suites["mass@0.5"]) == [0, 1]
    close(suites)


def test_the_plugin_tells_what_a_policy_gets(lerobot: SimpleNamespace):
    env = lerobot.plugin.RobogenEnv(task="push,drawer", cameras=["wrist"], state=["eef_pos"])
    assert {name: feature.shape for name, feature in env.features.items()} == {
        "action": (7,),
        "agent_pos": (3,),
        "observation.images.wrist": (96, 96, 3),
    }
    assert env.features_map["agent_pos"] == "observation.state"


def test_an_evaluation_runs_every_suite_and_task(
    lerobot: SimpleNamespace, act: SimpleNamespace, tmp_path: Path
):
    suites = make_env(2, perturbation="nominal,camera_pose", **SHORT)
    info = lerobot.script.eval_policy_all(
        envs=suites,
        policy=act.policy,
        **act.around,
        n_episodes=2,
        start_seed=0,
        max_episodes_rendered=1,
        videos_dir=tmp_path,
    )
    close(suites)
    tasks = [(task["task_group"], task["task_id"]) for task in info["per_task"]]
    assert tasks == [("nominal", 0), ("camera_pose", 0)]
    assert set(info["per_group"]) == {"nominal", "camera_pose"}
    assert info["overall"]["n_episodes"] == 4
    assert len(list(tmp_path.rglob("*.mp4"))) == 2


@pytest.mark.parametrize("processes", [False, True])
def test_its_episodes_are_ours(lerobot: SimpleNamespace, act: SimpleNamespace, processes: bool):
    if processes and not new(lerobot):
        pytest.skip("LeRobot before 0.6 evaluates in one process")
    vector: Any = make_env(2, processes, perturbation="mass", seed=5, **SHORT)["mass"][0]
    result = lerobot.script.eval_policy(
        vector, act.policy, **act.around, n_episodes=4, start_seed=0, return_episode_data=True
    )
    draws = vector.get_attr("draws")
    vector.close()
    assert [row["seed"] for row in result["per_episode"]] == [0, 1, 2, 3]
    ours = robogen.make("push", "mass", image_size=64, overrides=SHORT["overrides"])
    firsts = result["episodes"]["frame_index"] == 0
    states = result["episodes"]["observation.state"][firsts].numpy()
    frames = result["episodes"]["observation.images.front"][firsts].numpy()
    for episode in range(4):
        observation, info = ours.reset(seed=5, options={"episode": episode})
        np.testing.assert_array_equal(states[episode], observation["state"])
        frame = np.round(frames[episode].transpose(1, 2, 0) * 255).astype(np.uint8)
        np.testing.assert_array_equal(frame, observation["front"])
        if episode >= 2:
            assert draws[episode - 2] == info["draws"]
    ours.close()


def test_an_oracle_succeeds_in_its_loop(
    lerobot: SimpleNamespace, act: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    vector: Any = make_env(2, scene="push", image_size=64)["nominal"][0]

    def ask(batch: dict[str, Any]) -> Any:
        assert batch["task"] == ["push the puck onto the disc"] * 2
        assert batch["observation.state"].shape == (2, 10)
        assert batch["observation.images.wrist"].shape == (2, 3, 64, 64)
        return torch.from_numpy(np.stack(vector.call("expert_action")))

    monkeypatch.setattr(act.policy, "select_action", ask)
    result = lerobot.script.eval_policy(
        vector, act.policy, **act.around, n_episodes=2, start_seed=0
    )
    vector.close()
    assert result["aggregated"]["pc_success"] == 100.0
    assert [row["sum_reward"] for row in result["per_episode"]] == [1.0, 1.0]


def test_the_command_evaluates_a_checkpoint(
    lerobot: SimpleNamespace,
    act: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    for part in (act.policy, act.around["preprocessor"], act.around["postprocessor"]):
        part.save_pretrained(tmp_path / "checkpoint")
    words = [
        "lerobot-eval",
        f"--policy.path={tmp_path / 'checkpoint'}",
        "--policy.device=cpu",
        f"--env.discover_packages_path={PLUGIN}",
        "--env.type=robogen",
        "--env.task=push",
        "--env.perturbation=mass",
        "--env.image_size=64",
        "--env.cameras=[front,wrist]",
        "--eval.n_episodes=2",
        "--eval.batch_size=2",
        "--eval.use_async_envs=false",
        "--seed=0",
        f"--output_dir={tmp_path / 'out'}",
    ]
    monkeypatch.setattr(sys, "argv", words)
    lerobot.script.main()
    info = json.loads((tmp_path / "out" / "eval_info.json").read_text(encoding="utf-8"))
    suite = "mass" if new(lerobot) else "robogen"
    assert info["per_task"][0]["task_group"] == suite
    assert len(info["per_task"][0]["metrics"]["successes"]) == 2
    assert len(list((tmp_path / "out").rglob("*.mp4"))) == 2
