"""What is read of a LeRobot folder without LeRobot: sizes, conventions, and every refusal."""

from __future__ import annotations

import importlib.util
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from robogen.errors import ConfigError, PolicyError, SpecError
from robogen.policies.lerobot import LeRobotPolicy
from robogen.policies.lerobot_folder import Folder, read_folder
from robogen.policies.lerobot_processors import normalization
from robogen.policies.lerobot_spec import Fitted, Training, asked, fitted, training
from robogen.policies.library import load_policy
from robogen.specs import SceneSpec, match
from robogen.study.config import compose_study

SCENE = SceneSpec(
    name="toy",
    cameras=("front", "wrist"),
    state={"eef_pos": 3, "eef_rot6d": 6, "gripper_opening": 1, "joint_pos": 7},
    action_modes={"delta_eef": 7, "absolute_joint": 8},
    control_hz=10.0,
    horizon=50,
)
BOTH = ("observation.images.front", "observation.images.wrist")
KINDS: dict[str, dict[str, Any]] = {
    "act": {"n_obs_steps": 1, "chunk_size": 10, "n_action_steps": 5},
    "diffusion": {"n_obs_steps": 2, "horizon": 16, "n_action_steps": 8},
    "vqbet": {"n_obs_steps": 5, "n_action_pred_token": 3, "action_chunk_size": 5},
    "smolvla": {"chunk_size": 50, "n_action_steps": 40},
}


def write(
    path: Path,
    kind: str = "act",
    *,
    cameras: tuple[str, ...] = BOTH,
    state: int = 10,
    action: int = 7,
    mode: str = "MEAN_STD",
    **config: Any,
) -> Path:
    """A folder as LeRobot 0.4 and later lay it out; its weights belong to no network."""
    path.mkdir(parents=True, exist_ok=True)
    inputs = {name: {"type": "VISUAL", "shape": [3, 48, 64]} for name in cameras}
    if state:
        inputs["observation.state"] = {"type": "STATE", "shape": [state]}
    outputs = {"action": {"type": "ACTION", "shape": [action]}}
    whole = {
        "type": kind,
        "input_features": inputs,
        "output_features": outputs,
        **KINDS.get(kind, {}),
        **config,
    }
    put(path / "config.json", whole)
    save_file({"w": np.zeros(3, np.float32)}, path / "model.safetensors")
    modes = {"VISUAL": mode, "STATE": mode, "ACTION": mode}
    for which, name, features in (
        ("pre", "normalizer_processor", {**inputs, **outputs}),
        ("post", "unnormalizer_processor", outputs),
    ):
        state_file = f"policy_{which}processor_step_1_{name}.safetensors"
        steps = [
            {"registry_name": "rename_observations_processor", "config": {"rename_map": {}}},
            {
                "registry_name": name,
                "config": {"eps": 1e-8, "features": features, "norm_map": modes},
                "state_file": state_file,
            },
        ]
        put(path / f"policy_{which}processor.json", {"name": which, "steps": steps})
        save_file(statistics(features), path / state_file)
    return path


def statistics(features: dict[str, Any]) -> dict[str, np.ndarray]:
    found = {}
    for name, feature in features.items():
        shape = (3, 1, 1) if feature["type"] == "VISUAL" else tuple(feature["shape"])
        for number, stat in enumerate(("mean", "std", "min", "max", "q01", "q99")):
            found[f"{name}.{stat}"] = np.full(shape, number + 1.0, np.float32)
    return found


def put(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content))


def change(file: Path, **keys: Any) -> None:
    put(file, {**json.loads(file.read_text()), **keys})


def fit(
    folder: Folder, known: Training | None = None, scene: SceneSpec = SCENE, **more: Any
) -> Fitted:
    parameters: dict[str, Any] = {
        "cameras": None,
        "drawn": None,
        "state": ["eef_pos", "eef_rot6d", "gripper_opening"],
        "action": None,
        "observation": None,
        "execute": None,
        "deterministic": True,
        **more,
    }
    return fitted(folder, asked(folder, **parameters), known or Training(), scene)


# -- reading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "history", "chunk", "execute"),
    [
        ("act", (0,), 10, 5),
        ("diffusion", (-1, 0), 15, 8),
        ("vqbet", (-4, -3, -2, -1, 0), 5, 5),
        ("smolvla", (0,), 50, 40),
    ],
)
def test_a_folder_becomes_a_spec(tmp_path, kind, history, chunk, execute):
    spec = fit(read_folder(write(tmp_path / "p", kind))).spec
    assert spec.observation.history == history
    assert [(c.name, c.width, c.height) for c in spec.observation.cameras] == [
        ("front", 64, 48),
        ("wrist", 64, 48),
    ]
    assert (spec.action.chunk, spec.action.execute) == (chunk, execute)
    assert match(spec, SCENE).action.mode == "delta_eef"


def test_execute_may_be_any_part_of_what_a_query_gives(tmp_path):
    folder = read_folder(write(tmp_path / "p", "diffusion"))
    assert fit(folder, execute=15).spec.action.execute == 15
    for wrong in (0, 16, 2.5):
        with pytest.raises(ConfigError, match=r"from 1 to 15, .*n_action_steps is 8"):
            fit(folder, execute=wrong)


def test_normalization_is_what_the_processors_hold(tmp_path):
    for mode, kind, low, high in (
        ("MEAN_STD", "mean_std", 3.0, 4.0),
        ("MIN_MAX", "min_max", 3.0, 4.0),
        ("QUANTILES", "quantiles", 5.0, 6.0),
    ):
        found = normalization(read_folder(write(tmp_path / mode, mode=mode)).pipelines)
        for name, size in (("state", 10), ("action", 7)):
            numbers = found[name]
            assert numbers.kind == kind
            assert numbers.mean.shape == (size,)
            assert {float(numbers.mean[0]), float(numbers.std[0])} == {1.0, 2.0}
            assert (float(numbers.low[0]), float(numbers.high[0])) == (low, high)
    identity = normalization(read_folder(write(tmp_path / "i", mode="IDENTITY")).pipelines)
    assert identity["action"].kind == "identity"
    assert identity["action"].mean is None


def test_the_hash_is_of_every_file_and_of_nothing_hidden(tmp_path):
    first = read_folder(write(tmp_path / "a")).hash()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert read_folder(tmp_path / "b").hash() == first
    (tmp_path / "b" / ".cache").mkdir()
    (tmp_path / "b" / ".cache" / "x").write_text("x")
    assert read_folder(tmp_path / "b").hash() == first
    change(tmp_path / "b" / "config.json", n_action_steps=6)
    assert read_folder(tmp_path / "b").hash() != first


# -- refusals --------------------------------------------------------------------------------------


def refused(path: Path, *words: str, **more: Any) -> None:
    with pytest.raises(PolicyError) as caught:
        read_folder(path, **more)
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text, text


@pytest.mark.parametrize("name", ["policy_preprocessor.json", "policy_postprocessor.json"])
def test_a_missing_processor_is_no_silent_identity(tmp_path, name):
    path = write(tmp_path / "p")
    (path / name).unlink()
    refused(
        path, name, "without normalisation", "migrate_policy_normalization", "normalization=none"
    )
    assert normalization(read_folder(path, normalized=False).pipelines)["state"].kind == "identity"


def test_missing_statistics_are_no_silent_identity(tmp_path):
    path = write(tmp_path / "a")
    file = "policy_postprocessor_step_1_unnormalizer_processor.safetensors"
    (path / file).unlink()
    refused(path, file, "normalization=none")

    path = write(tmp_path / "b")  # saved without dataset_stats: LeRobot writes no state file
    pipeline = json.loads((path / "policy_preprocessor.json").read_text())
    del pipeline["steps"][1]["state_file"]
    put(path / "policy_preprocessor.json", pipeline)
    refused(path, "'observation.images.front' by MEAN_STD", "mean and std", "normalization=none")

    path = write(tmp_path / "c", mode="QUANTILE10")
    refused(path, "QUANTILE10", "q10 and q90")

    path = write(tmp_path / "d")
    save_file({"action.mean": np.zeros(7, np.float32)}, path / file)
    refused(path, "normalises 'action' by MEAN_STD and has no std")

    path = write(tmp_path / "class")  # the same step, named by its class
    pipeline = json.loads((path / "policy_preprocessor.json").read_text())
    step = pipeline["steps"][1]
    del step["registry_name"], step["state_file"]
    step["class"] = "lerobot.processor.normalize_processor.NormalizerProcessorStep"
    put(path / "policy_preprocessor.json", pipeline)
    refused(path, "'observation.images.front' by MEAN_STD", "mean and std")

    path = write(tmp_path / "empty")  # a name is no normalisation
    pipeline["steps"][1] = {"registry_name": "my_normalizer", "config": {}}
    put(path / "policy_preprocessor.json", pipeline)
    refused(path, "no normalising step")

    path = write(tmp_path / "e")
    put(path / "policy_preprocessor.json", {"name": "x", "steps": []})
    refused(path, "no normalising step")
    put(path / "policy_preprocessor.json", {"name": "x"})
    refused(path, "lists no steps")


def test_damaged_processors(tmp_path):
    path = write(tmp_path / "p")
    whole = json.loads((path / "policy_preprocessor.json").read_text())
    for config in ({"features": {"observation.state": 3}, "norm_map": {}}, {"norm_map": 5}, [1]):
        whole["steps"][1]["config"] = config
        put(path / "policy_preprocessor.json", whole)
        refused(path, "policy_preprocessor.json", "Copy the folder again")


def test_actions_are_scaled_whatever_the_features_say(tmp_path):
    path = write(tmp_path / "p")
    whole = json.loads((path / "policy_postprocessor.json").read_text())
    whole["steps"][1]["config"]["features"] = {}
    del whole["steps"][1]["state_file"]
    put(path / "policy_postprocessor.json", whole)
    refused(path, "normalises 'action'")


def test_statistics_that_nothing_uses_may_be_missing(tmp_path):
    path = write(tmp_path / "p", mode="IDENTITY")
    for file in path.glob("policy_*.safetensors"):
        save_file({}, file)
    assert read_folder(path).pipelines


def test_a_checkpoint_from_before_processors(tmp_path):
    path = write(tmp_path / "p")
    save_file(
        {"normalize_inputs.buffer_observation_state.mean": np.zeros(10, np.float32)},
        path / "model.safetensors",
    )
    refused(
        path, "before LeRobot 0.4", f"--pretrained-path {path}", f"--output-dir {path}-migrated"
    )
    refused(path, "before LeRobot 0.4", normalized=False)


def test_weights_that_are_not_there_or_damaged(tmp_path):
    path = write(tmp_path / "a")
    content = (path / "model.safetensors").read_bytes()
    for broken in (content[:-4], content[:5], b"", b"version https://git-lfs.github.com/spec/v1\n"):
        (path / "model.safetensors").write_bytes(broken)
        refused(path, "model.safetensors is truncated, damaged")
    (path / "model.safetensors").unlink()
    refused(path, "has no model.safetensors")
    (path / "adapter_config.json").write_text("{}")
    refused(path, "PEFT adapter", "merge_and_unload")


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "policy.pt", "model.pth", "policy.pkl"])
def test_pickles_are_refused_unread(tmp_path, name):
    path = write(tmp_path / "p")
    (path / "model.safetensors").unlink()
    (path / name).write_bytes(pickle.dumps(Bomb()))
    refused(path, f"{name} is a pickle", "could run any code")
    refused(path / name, "could run any code")


def test_a_step_outside_lerobot_is_not_imported(tmp_path):
    path = write(tmp_path / "p")
    pipeline = json.loads((path / "policy_preprocessor.json").read_text())
    pipeline["steps"].append({"class": "subprocess.Popen", "config": {"args": ["true"]}})
    put(path / "policy_preprocessor.json", pipeline)
    refused(path, "'subprocess.Popen' outside LeRobot")


def test_state_files_lie_in_the_folder(tmp_path):
    path = write(tmp_path / "p")
    pipeline = json.loads((path / "policy_preprocessor.json").read_text())
    pipeline["steps"][1]["state_file"] = "../p/../secret.safetensors"
    put(path / "policy_preprocessor.json", pipeline)
    refused(path, "outside its folder")


def test_folders_that_are_something_else(tmp_path):
    refused(tmp_path / "none", "There is no folder", "download=true", "hf download")
    refused(tmp_path, "has no config.json")
    path = write(tmp_path / "p")
    refused(path / "model.safetensors", f"Give {path}.")
    (path / "config.json").write_text("{")
    refused(path, "config.json as JSON")
    put(path / "config.json", [])
    refused(path, "holds a list")
    put(path / "config.json", {"n": 1})
    refused(path, "no policy type")


@pytest.mark.parametrize(
    ("kind", "config", "words"),
    [
        ("tdmpc", {"horizon": 5}, ("'chunk_size'", "act, diffusion, vqbet")),
        ("multi_task_dit", {"n_obs_steps": 2, "chunk_size": 8, "n_action_steps": 8}, ("history",)),
        ("act", {"n_action_steps": 11}, ("n_action_steps is 11", "only 10")),
        ("diffusion", {"n_action_steps": 16}, ("n_action_steps is 16", "only 15")),
        ("act", {"output_features": {}}, ("no output feature 'action'",)),
        ("act", {"input_features": {"observation.state": {"type": "STATE"}}}, ("type and shape",)),
    ],
)
def test_configurations_that_cannot_be_run(tmp_path, kind, config, words):
    refused(write(tmp_path / "p", kind, **config), *words)


def test_inputs_that_no_scene_has(tmp_path):
    features = {"observation.environment_state": {"type": "ENV", "shape": [4]}}
    refused(write(tmp_path / "a", input_features=features), "observation.environment_state")
    depth = {"observation.images.depth": {"type": "VISUAL", "shape": [1, 48, 64]}}
    refused(write(tmp_path / "b", input_features=depth), "neither an RGB camera")


# -- conventions -----------------------------------------------------------------------------------


def test_unknown_cameras_are_offered_a_rename_map(tmp_path):
    folder = read_folder(write(tmp_path / "p", cameras=("observation.images.top",)))
    with pytest.raises(SpecError, match=r"cameras=\{observation.images.top: front\}"):
        fit(folder)
    for key in ("observation.images.top", "top"):
        found = fit(folder, cameras={key: "wrist"})
        assert found.cameras == {"observation.images.top": "wrist"}
    with pytest.raises(ConfigError, match="Did you mean 'top'"):
        fit(folder, cameras={"topp": "front"})
    with pytest.raises(SpecError, match=r"observation.images.top: wrist\}"):
        fit(folder, cameras={"top": "wrst"})


def test_the_offered_map_can_be_pasted_into_a_command(tmp_path):
    folder = read_folder(write(tmp_path / "p", cameras=("observation.images.top",)))
    with pytest.raises(SpecError) as caught:
        fit(folder)
    word = str(caught.value).split('"')[1]
    for given in (word, "policy.lerobot.cameras.top=front"):
        overrides = compose_study(["policy=lerobot", given]).overrides("policy", "lerobot")
        cameras = overrides.get("cameras") or {"top": overrides["cameras.top"]}
        assert fit(folder, cameras=cameras).cameras == {"observation.images.top": "front"}


def test_two_features_cannot_be_one_camera(tmp_path):
    folder = read_folder(write(tmp_path / "p"))
    with pytest.raises(SpecError, match="are one camera"):
        fit(folder, cameras={"wrist": "front"})


def test_names_of_the_training_dataset_are_used(tmp_path):
    """A base policy's camera1 was fed the dataset's wrist camera."""
    path = write(tmp_path / "p", cameras=("observation.images.camera1",))
    pipeline = json.loads((path / "policy_preprocessor.json").read_text())
    renames = {"observation.images.wrist": "observation.images.camera1"}
    pipeline["steps"][0]["config"]["rename_map"] = renames
    put(path / "policy_preprocessor.json", pipeline)
    assert fit(read_folder(path)).cameras == {"observation.images.camera1": "wrist"}


def test_the_state_is_never_guessed_among_several(tmp_path):
    folder = read_folder(write(tmp_path / "p"))
    with pytest.raises(SpecError) as caught:
        fit(folder, state=None)
    text = str(caught.value)
    assert "state of 10 numbers" in text
    assert "[eef_pos,joint_pos]" in text
    assert "[eef_pos,eef_rot6d,gripper_opening]" in text
    only = SceneSpec(**{**vars(SCENE), "state": {"native": 10}})
    found = fit(folder, state=None, scene=only)
    assert found.spec.observation.state == ("native",)
    assert "only parts" in found.sources["state"]
    with pytest.raises(SpecError, match="have 4 in scene"):
        fit(folder, state=["eef_pos", "gripper_opening"])
    with pytest.raises(ConfigError, match="eef_pos"):
        fit(folder, state=["eef_pose"])
    other = SceneSpec(**{**vars(SCENE), "state": {"eef_pos": 3}})
    with pytest.raises(SpecError, match="for another robot"):
        fit(folder, state=None, scene=other)
    none = read_folder(write(tmp_path / "q", state=0))
    assert fit(none, state=None).spec.observation.state == ()


def test_the_action_is_said_or_the_scenes_own(tmp_path):
    folder = read_folder(write(tmp_path / "p"))
    found = fit(folder)
    assert found.spec.action.mode == "delta_eef"
    assert "the scene's own" in found.sources["action"]
    said = {"mode": "delta_eef", "frame": "tool", "gripper": "open_positive"}
    found = fit(folder, action=said)
    assert (found.spec.action.frame, found.sources["action"]) == ("tool", "delta_eef (given)")
    joints = read_folder(write(tmp_path / "q", action=8))
    with pytest.raises(SpecError, match=r"policy.lerobot.action.mode=absolute_joint"):
        fit(joints)
    assert fit(joints, action={"mode": "absolute_joint"}).spec.action.dim == 8
    with pytest.raises(ConfigError, match="delta_eef"):
        fit(folder, action={"mode": "delta_eff"})
    for fixed in ("dim", "chunk", "execute"):
        with pytest.raises(ConfigError, match="cannot be chosen"):
            fit(folder, action={fixed: 3})
    with pytest.raises(ConfigError, match="cannot be chosen"):
        fit(folder, observation={"history": [0]})


def test_frames_may_be_drawn_larger_than_the_policy_wants(tmp_path):
    folder = read_folder(write(tmp_path / "p"))
    front, wrist = fit(folder, drawn={"front": [128, 96]}).spec.observation.cameras
    assert (front.rendered, wrist.rendered) == ((128, 96), (64, 48))
    with pytest.raises(ConfigError, match=r"drawn\.front"):
        fit(folder, drawn={"front": 96})


# -- the training dataset --------------------------------------------------------------------------


def dataset(root: Path, *, conventions: bool) -> Path:
    (root / "meta").mkdir(parents=True)
    parts = (("eef_pos", 3), ("eef_rot6d", 6), ("gripper_opening", 1))
    names = [f"{part}_{number}" for part, size in parts for number in range(size)]
    features = {"observation.state": {"shape": [10], "names": names}, "action": {"shape": [7]}}
    put(root / "meta" / "info.json", {"fps": 20, "features": features})
    if conventions:
        action = {"mode": "delta_eef", "scale_position": 0.02, "frame": "tool", "dim": 7}
        said = {"state": [["joint_pos", 7], ["eef_pos", 3]], "action": action, "render": "nice"}
        put(root / "meta" / "robogen.json", {**said, "orientation": "upright"})
    return root


def test_a_dataset_says_state_rate_and_action(tmp_path):
    folder = read_folder(write(tmp_path / "p"))
    plain = training(folder, dataset(tmp_path / "d", conventions=False))
    found = fit(folder, plain, state=None)
    assert found.spec.observation.state == ("eef_pos", "eef_rot6d", "gripper_opening")
    assert found.spec.action.control_hz == 20.0
    ours = training(folder, dataset(tmp_path / "r", conventions=True))
    found = fit(folder, ours, state=None)
    assert found.spec.observation.state == ("joint_pos", "eef_pos")
    assert found.spec.observation.render == "nice"
    assert found.spec.action.scale_position == 0.02
    assert found.sources["action"] == "delta_eef (its dataset)"
    assert fit(folder, ours, state=None, action={"frame": "base"}).spec.action.frame == "base"


def test_where_the_dataset_is_looked_for(tmp_path):
    path = write(tmp_path / "p")
    folder = read_folder(path)
    assert training(folder, None) == Training()
    root = dataset(tmp_path / "d", conventions=False)
    put(path / "train_config.json", {"dataset": {"repo_id": "a/b", "root": str(root)}})
    assert training(folder, None).fps == 20.0
    put(path / "train_config.json", {"dataset": {"repo_id": "a/b", "root": "/elsewhere"}})
    assert training(folder, None) == Training()
    with pytest.raises(PolicyError, match="no LeRobotDataset"):
        training(folder, tmp_path)


def test_names_of_other_robots_say_nothing(tmp_path):
    folder = read_folder(write(tmp_path / "p"))
    root = dataset(tmp_path / "d", conventions=False)
    for names in (["shoulder_pan.pos"] * 10, {"motors": ["a", "b"]}, None, "x"):
        features = {"observation.state": {"names": names}}
        put(root / "meta" / "info.json", {"fps": 20, "features": features})
        assert training(folder, root).state is None


# -- the policy itself -----------------------------------------------------------------------------


def test_the_policy_file_needs_a_checkpoint():
    with pytest.raises(ConfigError, match=r"policy\.lerobot\.checkpoint="):
        load_policy("lerobot")


def test_a_name_on_the_hub_is_not_fetched_unasked():
    with pytest.raises(PolicyError, match=r"There is no folder lerobot/act_aloha.*download=true"):
        load_policy("lerobot", overrides={"checkpoint": "lerobot/act_aloha"})


def test_temporal_ensembling_is_not_dropped_silently(tmp_path):
    path = write(tmp_path / "p", temporal_ensemble_coeff=0.01, n_action_steps=1)
    with pytest.raises(PolicyError, match=r"blends the chunks.*temporal_ensemble=false"):
        LeRobotPolicy(checkpoint=path)
    with pytest.raises(ConfigError, match="not supported"):
        LeRobotPolicy(checkpoint=path, temporal_ensemble=True)


def test_normalization_has_one_word(tmp_path):
    with pytest.raises(ConfigError, match="normalization=identity"):
        LeRobotPolicy(checkpoint=write(tmp_path / "p"), normalization="identity")


@pytest.mark.skipif(importlib.util.find_spec("lerobot") is not None, reason="LeRobot is here")
def test_without_lerobot_it_says_how_to_get_it(tmp_path):
    threads = torch.get_num_threads()
    try:
        with pytest.raises(PolicyError, match=r"needs LeRobot, .*0\.4\.4 on Python 3\.11"):
            load_policy("lerobot", overrides={"checkpoint": str(write(tmp_path / "p"))})
    finally:
        torch.set_num_threads(threads)
