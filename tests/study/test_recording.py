"""A study's episodes as datasets: exactly what the policy got and what was executed."""

import shutil
import sqlite3

import numpy as np
import pytest

from robogen.api import evaluate
from robogen.datasets import DemoDataset
from robogen.datasets.lerobot_reader import LeRobotDataset
from robogen.datasets.lerobot_writer import LeRobotForm
from robogen.errors import ConfigError, RecordsError
from robogen.policies.base import Policy
from robogen.recording import check_place, record_dataset
from robogen.records.reader import read_records
from robogen.specs import ActionSpec, CameraSpec, ObservationSpec, PolicySpec

FORM = LeRobotForm(codec="png")
CONDITIONS = ("camera_pose", "control_latency", "image_noise", "nominal")


class Watching(Policy):
    """Moves about and remembers what it got, in a convention that is not the scene's."""

    def __init__(self):
        self.spec = PolicySpec(
            observation=ObservationSpec(
                cameras=(CameraSpec(name="front", width=24, height=20, drawn=(32, 24)),),
                state=("gripper_opening", "eef_quat_wxyz"),
                orientation="rotated_180",
                crop=0.9,
                fit="pad",
                channels="bgr",
                layout="chw",
                pixels="unit",
            ),
            action=ActionSpec(chunk=3, execute=2, gripper="open_positive"),
        )
        self.episodes = []

    def reset(self, rows, seeds):
        del rows, seeds
        self.episodes.append([])

    def act(self, rows, observations):
        del rows
        (observation,) = observations
        self.episodes[-1].append(observation)
        chunk = np.zeros((1, 3, 7))
        chunk[..., 0] = 0.1 * np.sin(observation.step)
        chunk[..., 2] = -0.3
        return chunk


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A study, and what its policy got, by condition and episode."""
    out = tmp_path_factory.mktemp("study") / "run"
    policy = Watching()
    study = evaluate(
        scene="push",
        policy=policy,
        perturbation=["camera_pose", "control_latency", "image_noise"],
        episodes=2,
        slots=1,
        batch=1,
        videos=0,
        out=str(out),
        items={"scene": {"push": {"horizon_s": 0.7}}},
    )
    order = [entry["id"] for entry in study.manifest["conditions"]]
    keys = [(condition, episode) for episode in range(2) for condition in order]
    return out, dict(zip(keys, policy.episodes, strict=True))


@pytest.fixture
def run(ran, tmp_path):
    """A copy of the study that a test may damage."""
    return shutil.copytree(ran[0], tmp_path / "run")


def sql(run, text):
    with sqlite3.connect(run / "records.sqlite") as connection:
        connection.execute(text)
    connection.close()


def test_frames_and_state_are_what_the_policy_got(ran, tmp_path):
    run, seen = ran
    result = record_dataset(run, tmp_path / "set", FORM)
    assert (result.folders, result.written, result.errored) == ((tmp_path / "set",), 8, 0)
    assert result.differing == ()
    exact, dataset = DemoDataset(tmp_path / "set"), LeRobotDataset(tmp_path / "set")
    records = read_records(run, actions=True)
    for number, record in enumerate(records):
        episode = exact.read(number)
        assert episode.info.length == record.steps == 7
        assert episode.info.success == record.success
        np.testing.assert_array_equal(episode.action, record.actions.astype(np.float32))
        queries = seen[record.condition, record.episode]
        assert [query.step for query in queries] == [0, 2, 4, 6]
        for query in queries:
            np.testing.assert_array_equal(episode.state[query.step], query.state)
            chw = (query.images["front"] * 255.0).round().astype(np.uint8)
            rgb = np.moveaxis(chw, 0, -1)[..., ::-1]
            np.testing.assert_array_equal(episode.images["front"][query.step], rgb)
        extras = dataset.episode(number).extras
        assert (extras["condition"], extras["source_episode"]) == record.key[2:4]
        assert (extras["policy"], extras["split"], extras["success"]) == (
            "watching",
            "eval",
            False,
        )
        assert extras["factors"] == list(record.factors)
        np.testing.assert_array_equal(
            dataset.frames("observation.images.front", number), episode.images["front"]
        )
    noise = [row for row in dataset.episodes if row.extras["condition"] == "image_noise"]
    assert all(row.extras["draw.image_noise.sigma_levels"] > 0 for row in noise)
    assert dataset.conventions["orientation"] == "rotated_180"
    assert dataset.conventions["action"]["gripper"] == "close_positive"  # what was applied
    assert read_records(run).digest() == records.digest()


def test_an_episode_that_comes_out_otherwise_is_named_and_left_out(run, tmp_path):
    out = tmp_path / "set"
    before = read_records(run).episodes
    sql(run, "UPDATE episodes SET progress = 0.987 WHERE condition = 'nominal' AND episode = 0")
    sql(run, "UPDATE episodes SET observation_hash = 'x' WHERE condition = 'image_noise'")
    sql(
        run,
        "UPDATE episodes SET status = 'errored', error_kind = 'policy', error = 'no', success = "
        "NULL WHERE condition = 'camera_pose' AND episode = 1",
    )
    result = record_dataset(run, out, FORM)
    assert (result.written, result.present, result.errored) == (4, 0, 1)
    assert [line.split(": ")[0] for line in result.differing] == [
        "push/watching/image_noise/0",
        "push/watching/image_noise/1",
        "push/watching/nominal/0",
    ]
    assert "progress: was 0.987" in result.differing[2]
    assert "not those that the policy got" in result.differing[0]
    assert len(LeRobotDataset(out)) == 4
    # mended, the rest follows, and what was there stays
    kept = {file: file.stat().st_mtime_ns for file in (out / "robogen").glob("*.npz")}
    restored = next(r for r in before if r.condition == "nominal" and r.episode == 0)
    sql(run, f"UPDATE episodes SET progress = {restored.progress!r} WHERE condition = 'nominal' "
             "AND episode = 0")  # fmt: skip
    result = record_dataset(run, out, FORM)
    assert (result.written, result.present) == (1, 4)
    assert all(file.stat().st_mtime_ns == time for file, time in kept.items())
    assert [row.extras["source_episode"] for row in LeRobotDataset(out).episodes] == [0, 0, 1, 0, 1]


def test_several_processes_write_the_same(ran, tmp_path):
    run, _ = ran
    record_dataset(run, tmp_path / "one", FORM)
    said = []
    result = record_dataset(
        run, tmp_path / "two", FORM, workers=2, progress=lambda *at: said.append(at)
    )
    assert result.written == 8
    assert said == [(done, 8) for done in range(9)]
    for file in sorted((tmp_path / "one" / "robogen").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / "robogen" / file.name).read_bytes()


def test_only_complete_studies_are_recorded(run, tmp_path):
    sql(run, "DELETE FROM episodes WHERE condition = 'nominal' AND episode = 1")
    with pytest.raises(RecordsError, match=r"holds 7 of 8 episodes\. Finish the study first"):
        record_dataset(run, tmp_path / "set", FORM)
    sql(run, "UPDATE episodes SET status = 'errored', success = NULL")
    sql(run, "INSERT INTO episodes SELECT scene, policy, condition, 9, repeat, factors, severity,"
             "split, status, error_kind, error, success, progress, steps, success_step, duration_s,"
             "instruction, draws, placement, reached, behaviour, observation_hash, state_hash,"
             "actions FROM episodes LIMIT 1")  # fmt: skip
    with pytest.raises(RecordsError, match=r"No episode .* was scored.*robogen report"):
        record_dataset(run, tmp_path / "set", FORM)
    assert not (tmp_path / "set").exists()


def test_another_studys_dataset_is_not_continued(ran, run, tmp_path):
    record_dataset(run, tmp_path / "set", FORM)
    pairs = [("push", "watching")]
    check_place(tmp_path / "set", pairs, read_records(run).study_hash)
    check_place(tmp_path / "new", pairs, "other")
    with pytest.raises(RecordsError, match="holds another dataset"):
        check_place(tmp_path / "set", pairs, "other")
    shutil.rmtree(tmp_path / "set" / "robogen")
    with pytest.raises(RecordsError, match="already holds data, meta"):
        check_place(tmp_path / "set", pairs, "other")


def test_policies_without_cameras_are_filmed_all_the_same(tmp_path):
    """Each policy its dataset; asked for with the study."""
    out = tmp_path / "sets"
    evaluate(
        scene="push",
        policy=["zero", "oracle"],
        suite=None,
        episodes=1,
        workers=0,
        slots=1,
        videos=0,
        out=str(tmp_path / "run"),
        record_dataset=str(out),
        items={"scene": {"push": {"horizon_s": 0.3}}},
    )
    for policy in ("zero", "oracle"):
        dataset = LeRobotDataset(out / f"push-{policy}")
        assert dataset.frames("observation.images.wrist", 0).shape == (3, 96, 96, 3)
        assert dataset.numeric("observation.state", 0).shape == (3, 10)
        assert dataset.episode(0).extras["policy"] == policy


def test_where_a_dataset_goes_is_no_part_of_the_study(tmp_path):
    words = {
        "scene": "push",
        "policy": "zero",
        "suite": None,
        "episodes": 1,
        "workers": 0,
        "slots": 1,
        "out": str(tmp_path / "run"),
        "items": {"scene": {"push": {"horizon_s": 0.2}}},
    }
    plain = evaluate(**words)
    again = evaluate(**words, record_dataset=str(tmp_path / "set"))
    assert again.records.digest() == plain.records.digest()
    assert again.records.study_hash == plain.records.study_hash
    assert len(LeRobotDataset(tmp_path / "set")) == 1


def test_scenes_that_are_objects_cannot_be_built_again(tmp_path):
    from robogen.scenes.load import load_scene

    scene = load_scene("push")
    with pytest.raises(ConfigError, match="record_dataset runs episodes again"):
        evaluate(
            scene=scene, policy="zero", suite=None, episodes=1, out=str(tmp_path / "run"),
            record_dataset=str(tmp_path / "set"),
        )  # fmt: skip
    scene.close()
