"""The shipped bc: intact it passes, and a convention broken on purpose is caught and named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from robogen.cli import app
from robogen.collect import CollectionRecipe, collect_dataset
from robogen.datasets.lerobot_writer import LeRobotForm
from robogen.errors import ConfigError
from robogen.policies.library import load_policy
from robogen.probe import ProbeConfig, Verdict, probe
from robogen.probe.drive import drive
from robogen.probe.miswired import faults
from robogen.probe.samples import from_dataset, from_scene
from robogen.scenes.load import load_scene
from robogen.specs import ActionSpec

HERE = Path(__file__).parent
CONFIG = ProbeConfig(episodes=8, frames=64)
TOLD = (
    "frames flipped",
    "frames in bgr",
    "cameras front and wrist mixed up",
    "state not normalised",
    "gripper sign reversed",
    "actions along the tool's axes",
    "positions half as large",
)
"""Wrong wirings that are tried here; benchmarks/probe.py tries all of them on every scene."""


@pytest.fixture(scope="module")
def scene():
    made = load_scene("pick")
    yield made
    made.close()


@pytest.fixture(scope="module")
def bc():
    policy = load_policy("bc", scene="pick")
    yield policy
    policy.close()


@pytest.fixture(scope="module")
def demonstrations(scene, bc):
    return from_scene(
        scene, bc.spec.observation, CONFIG.episodes, seed=0, progress=lambda done, total: None
    )


@pytest.fixture(scope="module")
def dataset(scene, tmp_path_factory):
    """Demonstrations as a LeRobotDataset, pictures kept exactly."""
    folder = tmp_path_factory.mktemp("demos") / "pick"
    recipe = CollectionRecipe(episodes=5, seed=77)
    collect_dataset(scene, folder, recipe, form=LeRobotForm(codec="png"))
    return folder


def test_the_intact_policy_passes(scene, bc, demonstrations):
    result = probe(bc, demonstrations, scene, name="bc", config=CONFIG)
    assert result.suspicious == ()
    assert result.agreement.agreement > 0.4
    verdicts = {finding.convention: finding.verdict for finding in result.agreement.findings}
    for convention in ("image orientation", "channel order", "cameras", "gripper", "action frame"):
        assert verdicts[convention] is Verdict.OK, convention
    assert [item.verdict for item in result.driven] == [Verdict.OK] * 7


@pytest.mark.parametrize("name", TOLD)
def test_a_broken_convention_is_caught_and_named(scene, bc, demonstrations, name):
    fault = next(f for f in faults(bc, scene.spec) if f.name == name)
    result = probe(fault.policy, demonstrations, config=CONFIG)
    assert fault.caught(result)
    assert fault.named(result), result.agreement.findings


def test_demonstrations_are_other_episodes_than_a_collection_has(scene, demonstrations):
    """Else a policy would be asked about what it was trained on."""
    starts = {tuple(np.round(e.state["eef_pos"][0], 9)) for e in demonstrations.episodes}
    assert len(demonstrations.episodes) == CONFIG.episodes
    assert len(starts) >= 1
    again = from_scene(
        scene,
        load_policy("bc", scene="pick").spec.observation,
        2,
        seed=1,
        progress=lambda done, total: None,
    )
    first = demonstrations.episodes[0].frames("front", [0])
    assert not np.array_equal(again.episodes[0].frames("front", [0]), first)


# -- drive -----------------------------------------------------------------------------------------


class Rewired:
    """A scene that does something else than it is told."""

    def __init__(self, scene, rewire):
        self._scene, self._rewire = scene, rewire

    def __getattr__(self, name):
        return getattr(self._scene, name)

    def step(self, action, spec):
        return self._scene.step(self._rewire(np.array(action)), spec)


@pytest.mark.parametrize(
    ("rewire", "wrong"),
    [
        (lambda a: a * [1, 1, 1, 1, 1, 1, -1], [7]),
        (lambda a: a[[1, 0, 2, 3, 4, 5, 6]], [1, 2]),
        (lambda a: a * [1, 1, -1, 1, 1, 1, 1], [3]),
        (lambda a: a * [1, 1, 1, 0.1, 1, 1, 1], [4]),
    ],
)
def test_a_scene_that_moves_another_way_is_seen(scene, rewire, wrong):
    driven = drive(Rewired(scene, rewire), ActionSpec())
    assert [d.dimension for d in driven if d.verdict is Verdict.SUSPICIOUS] == wrong


@pytest.mark.parametrize(
    "spec",
    [
        ActionSpec(frame="tool"),
        ActionSpec(gripper="open_positive", gripper_range="unit"),
        ActionSpec(rotation="euler_xyz"),
        ActionSpec(mode="absolute_eef"),
    ],
)
def test_every_convention_drives_as_declared(scene, spec):
    driven = drive(scene, spec)
    assert [d.dimension for d in driven if d.verdict is Verdict.SUSPICIOUS] == []
    assert driven[0].verdict is Verdict.OK


def test_joints_are_measured(scene):
    driven = drive(scene, ActionSpec(mode="delta_joint", dim=8))
    assert driven[-1].verdict is Verdict.OK  # the gripper
    assert all(d.note != "nothing moves" for d in driven)


# -- datasets --------------------------------------------------------------------------------------


def test_a_dataset_and_a_checkpoint_are_enough(bc, dataset):
    data = from_dataset(dataset, 5, seed=0)
    result = probe(bc, data, config=ProbeConfig(episodes=5, frames=40))
    assert (result.scene, result.driven) == (None, ())
    assert result.suspicious == ()
    assert result.agreement.agreement > 0.3


def test_somebody_elses_dataset_must_say_what_its_numbers_mean(bc, dataset, tmp_path):
    foreign = tmp_path / "foreign"
    shutil.copytree(dataset, foreign, ignore=shutil.ignore_patterns("robogen", "robogen.json"))
    with pytest.raises(ConfigError, match="does not say what its actions mean"):
        from_dataset(foreign, 5, seed=0)
    with pytest.raises(ConfigError, match=r"state names 3 numbers .* has 10"):
        from_dataset(foreign, 5, seed=0, action=ActionSpec(), state={"eef_pos": 3})
    with pytest.raises(ConfigError, match=r"observation\.images\.front"):
        from_dataset(
            foreign, 5, seed=0, action=ActionSpec(), cameras={"front": "observation.images.frnt"}
        )
    told = from_dataset(
        foreign,
        5,
        seed=0,
        action=ActionSpec(),
        state={"eef_pos": 3, "eef_rot6d": 6, "gripper_opening": 1},
    )
    result = probe(bc, told, config=ProbeConfig(episodes=5, frames=40))
    own = probe(bc, from_dataset(dataset, 5, seed=0), config=ProbeConfig(episodes=5, frames=40))
    assert result.agreement.agreement == pytest.approx(own.agreement.agreement, abs=1e-9)


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def config_dir(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "upside_down.yaml").write_text("_target_: wrong_policies.UpsideDown\n")
    return tmp_path


def test_strict_exits_with_1_and_the_table_names_the_fault(config_dir, dataset, capsys):
    words = ["probe", "policy=upside_down", f"dataset={dataset}", "episodes=5", "frames=30"]
    words += ["--config-dir", str(config_dir), "--json", str(config_dir / "p.json")]
    assert app.run([*words, f"out={config_dir / 'pictures'}"]) == 0
    said = capsys.readouterr().out
    assert "Suspicious: image orientation." in said
    assert "observation.orientation=upright" in said
    found = json.loads((config_dir / "p.json").read_text())
    assert found["suspicious"] == ["image orientation"]
    with Image.open(config_dir / "pictures" / "probe.png") as picture:
        assert picture.height > 800
    assert app.run([*words, "--strict"]) == 1
    good = ["probe", "policy=bc", "policy.bc.checkpoint=" + str(load_checkpoint_path())]
    assert app.run([*good, f"dataset={dataset}", "episodes=5", "frames=30", "--strict"]) == 0


def load_checkpoint_path():
    from robogen.paths import config_root

    return config_root() / "policies" / "bc" / "pick.safetensors"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["policy=bc"], "needs demonstrations"),
        (["policy=oracle", "scene=push", "episodes=3", "frames=6"], "reads the simulator"),
        (["policy=bc", "scene=push", "episodes=1"], "episodes must be at least 3"),
        (["policy=bc", "scene=push", "action={mode: native}"], "none is given"),
        (["policy=bc", "scene=push", "policy.other.execute=1"], "Override of policy 'other'"),
        (["policy=bc", "scene=push", "dataset=/nowhere"], "/nowhere"),
        (["policy=bc", "scene=push", "framse=5"], "Did you mean 'frames'"),
    ],
)
def test_mistakes_are_one_paragraph(capsys, words, message):
    assert app.run(["probe", *words]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert message in error[-1]
