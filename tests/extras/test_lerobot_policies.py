"""Policies trained with LeRobot, in our scenes (``make test-lerobot``, ``test-lerobot-new``)."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from robogen.api import evaluate
from robogen.collect import CollectionRecipe, collect_dataset
from robogen.datasets.demos import DemoDataset
from robogen.datasets.lerobot_writer import LeRobotForm
from robogen.errors import PolicyError
from robogen.policies.lerobot import LeRobotPolicy, _query_seed
from robogen.policies.lerobot_model import import_lerobot
from robogen.rollout.loop import padded
from robogen.scenes.load import load_scene
from robogen.specs import Observation, SceneSpec

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # LeRobot reads it when it is imported

SIZE = 64
BATCH = 4
EPISODES = 3
STATE = ("eef_pos", "eef_rot6d", "gripper_opening")
pytestmark = [
    pytest.mark.extras,
    pytest.mark.skipif(importlib.util.find_spec("lerobot") is None, reason="no LeRobot"),
    pytest.mark.filterwarnings("ignore"),  # LeRobot's own
]
SMALL: dict[str, dict[str, Any]] = {
    "act": {
        "chunk_size": 12,
        "n_action_steps": 6,
        "dim_model": 32,
        "n_heads": 2,
        "dim_feedforward": 32,
        "n_encoder_layers": 1,
        "use_vae": False,
        "pretrained_backbone_weights": None,
    },
    "diffusion": {
        "n_obs_steps": 2,
        "horizon": 8,
        "n_action_steps": 4,
        "down_dims": (16, 32),
        "n_groups": 4,
        "diffusion_step_embed_dim": 16,
        "num_train_timesteps": 10,
        "num_inference_steps": 5,
        "crop_shape": (60, 60),
        "crop_is_random": True,
        "spatial_softmax_num_keypoints": 8,
        "pretrained_backbone_weights": None,
        "use_group_norm": True,
        "use_separate_rgb_encoder_per_camera": False,
    },
    "vqbet": {
        "n_obs_steps": 3,
        "n_action_pred_token": 2,
        "action_chunk_size": 4,
        "crop_shape": (60, 60),
        "gpt_n_layer": 1,
        "gpt_n_head": 2,
        "gpt_hidden_dim": 32,
        "gpt_input_dim": 32,
        "gpt_output_dim": 32,
        "vqvae_n_embed": 4,
        "vqvae_embedding_dim": 16,
        "vqvae_enc_hidden_dim": 16,
        "spatial_softmax_num_keypoints": 8,
        "pretrained_backbone_weights": None,
    },
}


@pytest.fixture(scope="module")
def lerobot() -> Iterator[SimpleNamespace]:
    """What the tests call of LeRobot."""
    import_lerobot(offline=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    names = {
        "configs": "lerobot.configs.types",
        "datasets": "lerobot.datasets.lerobot_dataset",
        "policies": "lerobot.policies.factory",
        "script": "lerobot.scripts.lerobot_train",
    }
    yield SimpleNamespace(**{key: importlib.import_module(name) for key, name in names.items()})
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def scene() -> SceneSpec:
    loaded = load_scene("push")
    spec = loaded.spec
    loaded.close()
    return spec


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A handful of demonstrations of our oracle, as ``robogen collect`` writes them."""
    folder = tmp_path_factory.mktemp("demos") / "push"
    loaded = load_scene("push")
    recipe = CollectionRecipe(episodes=EPISODES, image_size=SIZE)
    # Without torchcodec, LeRobot reads videos by a class that newer torchvisions no longer have.
    videos = importlib.util.find_spec("torchcodec") is not None
    collect_dataset(loaded, folder, recipe, form=LeRobotForm(codec="h264" if videos else "png"))
    loaded.close()
    return folder


@pytest.fixture(scope="module")
def demos(dataset: Path) -> DemoDataset:
    """The same, exact."""
    return DemoDataset(dataset)


def trained(
    lerobot: SimpleNamespace, dataset: Path, kind: str, out: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A policy of this type after LeRobot's own training script; its pretrained folder."""
    given = json.dumps
    words = [
        "lerobot-train",
        "--dataset.repo_id=robogen/push",
        f"--dataset.root={dataset}",
        f"--policy.type={kind}",
        "--policy.device=cpu",
        "--policy.push_to_hub=false",
        *(f"--policy.{key}={given(value)}" for key, value in SMALL[kind].items()),
        f"--output_dir={out}",
        "--steps=24",
        "--batch_size=4",
        "--num_workers=0",
        "--save_freq=24",
        "--wandb.enable=false",
        "--seed=1",
    ]
    monkeypatch.setattr(sys, "argv", words)
    lerobot.script.main()
    folder = out / "checkpoints" / "last" / "pretrained_model"
    assert (folder / "model.safetensors").is_file()
    return folder


@pytest.fixture(scope="module")
def folders(
    lerobot: SimpleNamespace, dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Pretrained folders by type; VQ-BeT's is not trained."""
    root = tmp_path_factory.mktemp("policies")
    with pytest.MonkeyPatch.context() as patch:
        found = {
            kind: trained(lerobot, dataset, kind, root / kind, patch)
            for kind in ("act", "diffusion")
        }
    meta = lerobot.datasets.LeRobotDatasetMetadata("robogen/push", root=dataset)
    config = lerobot.policies.make_policy_config(
        "vqbet", device="cpu", push_to_hub=False, **SMALL["vqbet"]
    )
    feature = lerobot.configs.PolicyFeature
    config.input_features = {  # it takes one camera
        "observation.images.front": feature(lerobot.configs.FeatureType.VISUAL, (3, SIZE, SIZE)),
        "observation.state": feature(lerobot.configs.FeatureType.STATE, (10,)),
    }
    policy = lerobot.policies.make_policy(config, ds_meta=meta)
    found["vqbet"] = root / "vqbet"
    around = lerobot.policies.make_pre_post_processors(config, dataset_stats=meta.stats)
    for part in (policy, *around):
        part.save_pretrained(found["vqbet"])
    return found


def loaded(folder: Path, scene: SceneSpec, **more: Any) -> LeRobotPolicy:
    policy = LeRobotPolicy(checkpoint=folder, device="cpu", **more)
    policy.fit(scene)
    return policy


def made(folder: Path, scene: SceneSpec, kind: str) -> LeRobotPolicy:
    """With the state said where no train_config.json leads to the dataset."""
    return loaded(folder, scene, **({"state": STATE} if kind == "vqbet" else {}))


def observed(demos: DemoDataset, policy: LeRobotPolicy, episode: int, step: int) -> Observation:
    """What the harness would hand over at a step of a demonstration."""
    seen, spec = demos.read(episode), policy.spec.observation
    steps = [max(0, step + offset) for offset in spec.history]
    images = {camera.name: seen.images[camera.name][steps] for camera in spec.cameras}
    state = seen.state[steps]
    if spec.history == (0,):
        images, state = {name: frames[0] for name, frames in images.items()}, state[0]
    return Observation(images=images, state=state, instruction=seen.info.instruction, step=step)


def theirs(lerobot: SimpleNamespace, folder: Path, kind: str) -> SimpleNamespace:
    """The same folder loaded as LeRobot's evaluation loads it."""
    config = importlib.import_module("lerobot.configs.policies").PreTrainedConfig
    policy = lerobot.policies.get_policy_class(kind).from_pretrained(folder)
    before, after = lerobot.policies.make_pre_post_processors(
        config.from_pretrained(folder), pretrained_path=str(folder)
    )
    policy.reset()
    return SimpleNamespace(policy=policy, before=before, after=after)


def their_step(ref: SimpleNamespace, demos: DemoDataset, episode: int, step: int) -> Any:
    """``select_action`` on one step of a demonstration, as ``lerobot-eval`` calls it."""
    seen = demos.read(episode)
    batch: dict[str, Any] = {
        "observation.state": torch.from_numpy(seen.state[step][None]),
        "task": [seen.info.instruction],
    }
    for name, frames in seen.images.items():
        frame = torch.from_numpy(frames[step]).permute(2, 0, 1).contiguous()[None]
        batch[f"observation.images.{name}"] = frame.float() / 255
    with torch.inference_mode():
        return ref.after(ref.policy.select_action(ref.before(batch)))[0].numpy()


def test_chunks_are_what_lerobot_executes(
    lerobot: SimpleNamespace, folders: dict[str, Path], demos: DemoDataset, scene: SceneSpec
):
    """Over n_action_steps from step 1 on, where a history holds two different frames."""
    for kind, folder in folders.items():
        policy, ref, first = made(folder, scene, kind), theirs(lerobot, folder, kind), 4
        policy.reset([0], [7])
        ours = policy.act([0], [observed(demos, policy, 0, first)])[0]
        assert ours.shape == (policy.spec.action.chunk, 7)
        for step in range(first):  # fills their history
            if kind != "act":
                their_step(ref, demos, 0, step)
        ref.policy._queues["action"].clear() if kind != "act" else None
        torch.manual_seed(_query_seed(7, first))
        count = policy.spec.action.execute
        answers = [their_step(ref, demos, 0, first + k) for k in range(count)]
        np.testing.assert_array_equal(ours[:count], np.stack(answers), err_msg=kind)


@pytest.mark.parametrize("kind", ["act", "diffusion", "vqbet"])
def test_a_row_depends_on_itself_and_its_seed_alone(
    folders: dict[str, Path], demos: DemoDataset, scene: SceneSpec, kind: str
):
    policy = made(folders[kind], scene, kind)
    rows = [0, 1, 2]
    seen = [observed(demos, policy, row, 3 * row + 1) for row in rows]
    policy.reset(rows, [11, 12, 13])
    whole = padded(policy, rows, seen, BATCH)
    assert whole.shape == (3, policy.spec.action.chunk, 7)
    assert np.isfinite(whole).all()
    for row in rows:
        alone = padded(policy, [row], [seen[row]], BATCH)
        assert alone.tobytes() == whole[row].tobytes(), "the others were padding"
    mixed = padded(policy, [2, 0, 1], [seen[2], seen[0], seen[1]], BATCH)
    for place, row in enumerate((2, 0, 1)):
        assert mixed[place].tobytes() == whole[row].tobytes()
    assert policy.spec.deterministic == (kind == "act")
    answers = set()  # VQ-BeT chooses among a few codes, so two seeds may agree
    for seed in range(20, 30):
        policy.reset(rows, [seed, 12, 13])
        again = padded(policy, rows, seen, BATCH)
        answers.add(again[0].tobytes())
        assert again[1].tobytes() == whole[1].tobytes()
    assert (len(answers) == 1) == policy.spec.deterministic


@pytest.mark.parametrize("kind", ["diffusion", "vqbet"])
def test_history_is_oldest_first(
    folders: dict[str, Path], demos: DemoDataset, scene: SceneSpec, kind: str
):
    policy = made(folders[kind], scene, kind)
    steps = SMALL[kind]["n_obs_steps"]
    assert policy.spec.observation.history == tuple(range(1 - steps, 1))
    now = observed(demos, policy, 0, 6)
    turned = now._replace(
        images={name: frames[::-1].copy() for name, frames in now.images.items()},
        state=now.state[::-1].copy(),
    )
    policy.reset([0, 1], [3, 3])
    right, wrong = policy.act([0, 1], [now, turned])
    assert not np.array_equal(right, wrong)


def test_the_dataset_says_what_the_state_is(folders: dict[str, Path], scene: SceneSpec):
    policy = loaded(folders["act"], scene)
    assert policy.spec.observation.state == STATE
    assert policy.spec.observation.cameras[0].width == SIZE
    assert policy.spec.action.control_hz == 10.0
    facts = policy.identity()
    assert facts["n_action_steps"] == "6"
    assert facts["execute"] == "6"
    assert facts["chunk_size"] == "12"
    assert facts["lerobot_version"]
    assert "its dataset" in facts["state"]
    assert loaded(folders["act"], scene, execute=12).identity()["execute"] == "12"


def test_normalisation_is_the_datasets(
    folders: dict[str, Path], demos: DemoDataset, scene: SceneSpec
):
    actions = np.concatenate([demos.read(index).action for index in demos.indices])
    states = np.concatenate([demos.read(index).state for index in demos.indices])
    for kind in ("act", "diffusion"):
        policy = loaded(folders[kind], scene)
        found = policy.normalization()
        np.testing.assert_allclose(found["action"].low, actions.min(0), atol=1e-6)
        np.testing.assert_allclose(found["state"].mean, states.mean(0), atol=1e-5)
        back = policy.round_trip(actions)
        np.testing.assert_allclose(back, actions, atol=1e-4)
    assert loaded(folders["act"], scene).normalization()["action"].kind == "mean_std"
    assert loaded(folders["diffusion"], scene).normalization()["action"].kind == "min_max"


def test_a_folder_that_is_not_whole(folders: dict[str, Path], scene: SceneSpec, tmp_path: Path):
    folder = tmp_path / "copy"
    shutil.copytree(folders["act"], folder)
    (folder / "policy_postprocessor.json").unlink()
    with pytest.raises(PolicyError, match="normalization=none"):
        loaded(folder, scene)
    plain = loaded(folder, scene, normalization="none", state=STATE)
    assert plain.identity()["normalization"] == "none"
    assert plain.normalization()["action"].kind == "identity"
    values = np.linspace(-2.0, 2.0, 14).reshape(2, 7)
    np.testing.assert_allclose(plain.round_trip(values), values, atol=1e-6)

    from safetensors.torch import load_file, save_file

    shutil.copy(folders["act"] / "policy_postprocessor.json", folder)
    weights = load_file(folder / "model.safetensors")
    removed = sorted(weights)[0]
    del weights[removed]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(PolicyError, match=r"cannot load .*of type 'act'"):
        loaded(folder, scene)


def test_a_type_that_lerobot_does_not_know(
    folders: dict[str, Path], scene: SceneSpec, tmp_path: Path
):
    folder = tmp_path / "copy"
    shutil.copytree(folders["act"], folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "type": "acct"}))
    with pytest.raises(PolicyError, match=r"of type 'acct'"):
        loaded(folder, scene)


@pytest.mark.parametrize("kind", ["act", "diffusion"])
def test_a_study(folders: dict[str, Path], tmp_path: Path, kind: str):
    """Through ``evaluate``, with worker processes and a visual factor."""
    out = tmp_path / "run"
    evaluate(
        scene="push",
        policy="lerobot",
        perturbation=["light_intensity"],
        episodes=2,
        out=str(out),
        workers=1,
        items={
            "scene": {"push": {"horizon_s": 1.5}},
            "policy": {"lerobot": {"checkpoint": str(folders[kind]), "device": "cpu"}},
        },
    )
    with sqlite3.connect(out / "records.sqlite") as base:
        rows = base.execute("select status, steps from episodes").fetchall()
    repeated = 0 if kind == "act" else 2  # nominal once more: the noise floor of a sampled policy
    assert rows == [("scored", 15)] * (4 + repeated)
