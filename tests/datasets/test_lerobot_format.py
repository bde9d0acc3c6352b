"""LeRobotDatasets that we write, read back by our reader; LeRobot's own is in tests/extras."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from robogen.datasets import DemoDataset, DemoEpisode, DemoWriter
from robogen.datasets import lerobot_format as fmt
from robogen.datasets.lerobot_reader import LeRobotDataset
from robogen.datasets.lerobot_writer import LeRobotForm, assemble, episodes_folder
from robogen.datasets.statistics import merged, of_frames, of_values
from robogen.errors import ConfigError, RecordsError
from robogen.specs import ActionSpec, CameraSpec

FRONT, WRIST = "observation.images.front", "observation.images.wrist"
CAMERAS = (
    CameraSpec(name="front", width=32, height=16),
    CameraSpec(name="wrist", width=16, height=16),
)
LENGTHS = {0: 5, 1: 7, 3: 4}
"""Frames by episode; the oracle failed at 2."""
FORMS = [LeRobotForm(layout=v, codec=c) for v in ("v3.0", "v2.1") for c in ("h264", "png")]


def level(episode: int, step: int) -> int:
    """The grey that says which frame of which episode it is."""
    return 20 + 45 * episode + 7 * step


@pytest.fixture
def coded(make_meta, make_episode):
    """An episode each of whose frames is one grey of its own."""

    def make(index, length, meta=None, **changes) -> DemoEpisode:
        meta = meta or make_meta(cameras=CAMERAS)
        episode = make_episode(index, length, meta=meta, **changes)
        for camera in meta.cameras:
            for step in range(length):
                episode.images[camera.name][step] = level(index, step)
        return episode

    return make


@pytest.fixture
def source(tmp_path, make_meta, coded):
    """Exact episodes beside a dataset that is not there yet."""
    out = tmp_path / "set"
    writer = DemoWriter(episodes_folder(out), make_meta(cameras=CAMERAS))
    draws = [{}, {"light": {"gain": 0.5, "on": True}}, {"camera": {"turn": [1.0, 2.0], "who": "a"}}]
    for (index, length), drawn in zip(LENGTHS.items(), draws, strict=True):
        words = "lift the cube" if index != 1 else "lift it"
        writer.write(coded(index, length, instruction=words, draws=drawn, success=index != 1))
    return DemoDataset(out)


def made(source, form=LeRobotForm(), **more) -> LeRobotDataset:  # noqa: B008 - it is frozen
    out = source.folder.parent
    assemble(source, out, form, orientation="upright", **more)
    return LeRobotDataset(out)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.layout}-{form.codec}")
def test_numbers_come_back_exactly_and_every_frame_in_its_place(source, form):
    dataset = made(source, form)
    assert (dataset.version, dataset.fps, len(dataset)) == (form.layout, 10.0, 3)
    assert dataset.cameras == (FRONT, WRIST)
    assert dataset.tasks == ("lift the cube", "lift it")
    start = 0
    for number, (index, length) in enumerate(LENGTHS.items()):
        episode, row = source.read(index), dataset.episode(number)
        assert row.length == length
        assert row.tasks == (episode.info.instruction,)
        np.testing.assert_array_equal(dataset.numeric("action", number), episode.action)
        np.testing.assert_array_equal(dataset.numeric("observation.state", number), episode.state)
        one = {name: dataset.numeric(name, number)[:, 0] for name in dataset.features if "." in name
               and name.startswith("next")}  # fmt: skip
        last = np.arange(length) == length - 1
        np.testing.assert_array_equal(one["next.done"], last)
        np.testing.assert_array_equal(one["next.success"], last & episode.info.success)
        np.testing.assert_array_equal(one["next.reward"], last & episode.info.success)
        columns = [dataset.numeric(name, number)[:, 0] for name in fmt.INDEX_COLUMNS]
        steps = np.arange(length)
        task = dataset.tasks.index(episode.info.instruction)
        for got, wanted in zip(
            columns,
            ((steps / 10).astype(np.float32), steps, steps * 0 + number, start + steps, 0 * steps),
            strict=True,
        ):
            np.testing.assert_array_equal(got, wanted if got is not columns[4] else wanted + task)
        start += length
        for camera, name in ((FRONT, "front"), (WRIST, "wrist")):
            frames = dataset.frames(camera, number)
            assert frames.shape == episode.images[name].shape
            allowed = 0 if form.codec == "png" else 2
            assert np.abs(frames.astype(int) - episode.images[name]).max() <= allowed
    assert dataset.frames_total == start
    picked = dataset.frames(FRONT, 1, [-1, 2, 2])
    assert [round(frame.mean() - level(1, 0)) // 7 for frame in picked] == [6, 2, 2]
    assert dataset.frames(FRONT, 1, []).size == 0


@pytest.mark.parametrize("codec", ["hevc", "av1"])
def test_other_codecs_align_too(source, codec):
    dataset = made(source, LeRobotForm(codec=codec))
    info = json.loads((dataset.folder / fmt.INFO).read_text())
    assert info["features"][FRONT]["info"]["video.codec"] == codec
    for number, (index, length) in enumerate(LENGTHS.items()):
        means = dataset.frames(WRIST, number).mean(axis=(1, 2, 3))
        assert np.abs(means - [level(index, step) for step in range(length)]).max() < 3


@pytest.mark.parametrize("layout", ["v3.0", "v2.1"])
def test_episodes_say_what_was_varied(source, layout):
    dataset = made(source, LeRobotForm(layout=layout))
    plain, light, camera = (row.extras for row in dataset.episodes)
    assert {key: plain[key] for key in ("condition", "factors", "severity", "source_episode")} == {
        "condition": "nominal",
        "factors": [],
        "severity": 0.0,
        "source_episode": 0,
    }
    assert light["condition"] == "light:train"
    assert (light["factors"], light["split"], light["success"]) == (["light"], "train", False)
    assert (light["draw.light.gain"], light["draw.light.on"]) == (0.5, True)
    assert camera["draw.camera.turn"] == [1.0, 2.0]
    assert camera["source_episode"] == 3
    assert (camera["scene"], camera["policy"], camera["seed"]) == ("pick", "expert", 3)
    assert "draw.light.gain" not in camera
    assert json.loads(camera["draws"]) == {"camera": {"turn": [1.0, 2.0], "who": "a"}}


def test_conventions_are_beside_the_data(source):
    dataset = made(source)
    assert dataset.features["observation.state"].labels == (
        "eef_pos.x", "eef_pos.y", "eef_pos.z", "gripper_opening",
    )  # fmt: skip
    assert dataset.features["action"].labels == (
        "delta_x", "delta_y", "delta_z", "delta_rx", "delta_ry", "delta_rz", "gripper",
    )  # fmt: skip
    assert dataset.conventions is not None
    assert ActionSpec(**dataset.conventions["action"]) == source.meta.action
    assert dataset.conventions["state"] == [["eef_pos", 3], ["gripper_opening", 1]]
    assert dataset.conventions["orientation"] == "upright"
    info = json.loads((dataset.folder / fmt.INFO).read_text())
    known = {"codebase_version", "robot_type", "total_episodes", "total_frames", "total_tasks",
             "chunks_size", "data_files_size_in_mb", "video_files_size_in_mb", "fps", "splits",
             "data_path", "video_path", "features"}  # fmt: skip
    assert set(info) == known  # newer LeRobots warn of others
    assert (info["fps"], info["total_frames"], info["splits"]) == (10, 16, {"train": "0:3"})


@pytest.mark.parametrize("layout", ["v3.0", "v2.1"])
def test_statistics_are_numpys(source, layout):
    dataset = made(source, LeRobotForm(layout=layout))
    for name in ("action", "observation.state"):
        arrays = [source.read(index).arrays()[name.split(".")[-1]] for index in LENGTHS]
        values = np.concatenate(arrays).astype(np.float64)
        for found in (dataset.statistics(name), dataset.statistics(name, exact=True)):
            np.testing.assert_allclose(found.mean, values.mean(axis=0))
            np.testing.assert_allclose(found.std, values.std(axis=0))
            np.testing.assert_array_equal(found.min, values.min(axis=0))
            np.testing.assert_array_equal(found.max, values.max(axis=0))
            np.testing.assert_allclose(found.q01, np.quantile(values, 0.01, axis=0))
            np.testing.assert_allclose(found.q99, np.quantile(values, 0.99, axis=0))
            assert found.count == len(values)
    pixels = np.concatenate([source.read(index).images["front"] for index in LENGTHS]) / 255.0
    stored, sampled = dataset.statistics(FRONT), dataset.statistics(FRONT, exact=True)
    np.testing.assert_allclose(stored.mean, pixels.mean(axis=(0, 1, 2)))
    np.testing.assert_allclose(stored.std, pixels.std(axis=(0, 1, 2)))
    np.testing.assert_allclose(sampled.mean, stored.mean, atol=0.01)
    whole = json.loads((dataset.folder / fmt.STATS).read_text())
    assert np.shape(whole[FRONT]["mean"]) == (3, 1, 1)
    assert whole["next.done"]["mean"] == [pytest.approx(3 / 16)]


def test_statistics_of_frames_are_those_of_their_pixels():
    frames = np.random.default_rng(0).integers(0, 256, size=(30, 8, 6, 3), dtype=np.uint8)
    found, wanted = of_frames(frames), of_values(frames.reshape(-1, 3) / 255.0)
    for name in ("mean", "std", "min", "max"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name))
    np.testing.assert_allclose(found.q01, wanted.q01, atol=1 / 255)
    np.testing.assert_allclose(found.q99, wanted.q99, atol=1 / 255)
    together = merged([of_frames(frames[:10]), of_frames(frames[10:])])
    np.testing.assert_allclose(together.mean, found.mean)
    np.testing.assert_allclose(together.std, found.std)
    large = np.zeros((2, 320, 640, 3), np.uint8)
    large[:, 1::2] = 255  # every fourth row and column is looked at
    assert of_frames(large).mean[0] == 0.0


def test_equal_episodes_give_equal_datasets(tmp_path, source):
    first = made(source)
    other = tmp_path / "other"
    assemble(source, other, LeRobotForm(), orientation="upright")
    files = [f.relative_to(other) for f in other.rglob("*") if f.is_file()]
    assert len(files) == 8
    for file in files:
        assert (first.folder / file).read_bytes() == (other / file).read_bytes(), file


def test_what_is_complete_is_left_alone(source, coded):
    dataset = made(source)
    before = {f: f.stat().st_mtime_ns for f in dataset.folder.rglob("*")}
    said = []
    out = source.folder.parent
    form = LeRobotForm()
    assert not assemble(
        source, out, form, orientation="upright", progress=lambda *at: said.append(at)
    )
    assert not said
    assert before == {f: f.stat().st_mtime_ns for f in dataset.folder.rglob("*")}
    DemoWriter(source.folder, source.meta).write(coded(4, 3))
    more = DemoDataset(out)
    assert assemble(more, out, form, orientation="upright", progress=lambda *at: said.append(at))
    assert said == [(n, 4) for n in range(5)]
    assert len(LeRobotDataset(out)) == 4
    # another form takes its place, and leaves nothing behind
    assemble(more, out, LeRobotForm(layout="v2.1"), orientation="upright")
    assert LeRobotDataset(out).version == "v2.1"
    assert not (out / "meta" / "episodes").exists()
    assert sorted(path.name for path in out.iterdir()) == ["data", "meta", "robogen", "videos"]


@pytest.mark.parametrize("at", [1, 3])
def test_a_killed_run_leaves_no_dataset_and_is_continued(tmp_path, source, at):
    out = source.folder.parent
    script = f"""
        import os, signal
        from pathlib import Path
        from robogen.datasets import DemoDataset
        from robogen.datasets.lerobot_writer import LeRobotForm, assemble

        def die(done, total):
            if done == {at}:
                os.kill(os.getpid(), signal.SIGKILL)

        out = Path({str(out)!r})
        assemble(DemoDataset(out), out, LeRobotForm(), orientation="upright", progress=die)
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert run.returncode == -signal.SIGKILL
    with pytest.raises(RecordsError, match=r"no LeRobotDataset.*not yet put together"):
        LeRobotDataset(out)
    dataset = made(source)
    np.testing.assert_array_equal(dataset.numeric("action", 2), source.read(3).action)
    assert sorted(path.name for path in out.iterdir()) == ["data", "meta", "robogen", "videos"]


@pytest.mark.parametrize("fails", range(6))
def test_an_interrupted_replacement_leaves_no_half(source, coded, monkeypatch, fails):
    """Old parts go, ``meta`` first; new ones come, ``meta`` last."""
    out = made(source).folder
    DemoWriter(source.folder, source.meta).write(coded(4, 3))
    rename, calls = Path.rename, []

    def stop(self, target):
        if len(calls) == fails:
            raise KeyboardInterrupt
        calls.append(target)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", stop)
    with pytest.raises(KeyboardInterrupt):
        assemble(DemoDataset(out), out, LeRobotForm(), orientation="upright")
    monkeypatch.undo()
    if fails == 0:
        assert len(LeRobotDataset(out)) == 3
    else:
        with pytest.raises(RecordsError, match="not yet put together"):
            LeRobotDataset(out)
    assert assemble(DemoDataset(out), out, LeRobotForm(), orientation="upright")
    assert len(LeRobotDataset(out)) == 4


def test_long_datasets_go_into_several_files(source, monkeypatch):
    monkeypatch.setattr(fmt, "VIDEO_S", 0.9)  # [s]: nine frames
    monkeypatch.setattr(fmt, "DATA_MB", 5e-4)
    monkeypatch.setattr(fmt, "CHUNK", 2)
    dataset = made(source)
    files = sorted(dataset.folder.glob("videos/*/*/*.mp4"))
    assert len(files) == 6
    assert {file.parent.name for file in files} == {"chunk-000", "chunk-001"}
    assert len(sorted(dataset.folder.glob("data/*/*.parquet"))) == 3
    for number, index in enumerate(LENGTHS):
        np.testing.assert_array_equal(dataset.numeric("action", number), source.read(index).action)
        assert round(dataset.frames(WRIST, number, [1]).mean()) in range(
            level(index, 1) - 2, level(index, 1) + 3
        )


def test_episodes_are_row_groups(source):
    file = pq.ParquetFile(made(source).folder / "data/chunk-000/file-000.parquet")
    rows = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert rows == list(LENGTHS.values())


def test_a_rate_that_is_no_whole_number(tmp_path, make_meta, coded):
    action = ActionSpec(control_hz=12.5)
    meta = make_meta(cameras=CAMERAS, action=action)
    DemoWriter(tmp_path / "robogen", meta).write(coded(0, 30, meta=meta))
    dataset = made(DemoDataset(tmp_path))
    assert dataset.fps == 12.5
    means = dataset.frames(FRONT, 0).mean(axis=(1, 2, 3))
    assert np.abs(means - [level(0, step) for step in range(30)]).max() < 3


def test_no_cameras_and_one_number_of_state(tmp_path, make_meta, make_episode):
    meta = make_meta(cameras=(), state={"gripper_opening": 1}, points=())
    DemoWriter(tmp_path / "robogen", meta).write(make_episode(0, meta=meta))
    dataset = made(DemoDataset(tmp_path))
    assert dataset.cameras == ()
    assert dataset.numeric("observation.state", 0).shape == (5, 1)
    assert not (tmp_path / "videos").exists()


def test_odd_sizes_are_refused_for_videos_only(tmp_path, make_meta, coded):
    meta = make_meta(cameras=(CameraSpec(name="front", width=15, height=16),))
    DemoWriter(tmp_path / "robogen", meta).write(coded(0, 3, meta=meta))
    with pytest.raises(ConfigError, match=r"15 x 16 pixels.*codec=png"):
        made(DemoDataset(tmp_path))
    dataset = made(DemoDataset(tmp_path), LeRobotForm(codec="png"))
    assert dataset.frames(FRONT, 0).shape == (3, 16, 15, 3)
    with pytest.raises(ConfigError, match="Did you mean 'h264'"):
        LeRobotForm(codec="h265")


def test_folders_of_others_are_not_overwritten(tmp_path, source):
    (tmp_path / "theirs" / "data").mkdir(parents=True)
    with pytest.raises(RecordsError, match="already holds data"):
        episodes_folder(tmp_path / "theirs")
    assert episodes_folder(tmp_path / "new") == tmp_path / "new" / "robogen"
    assert episodes_folder(tmp_path / "new", alone=True) == tmp_path / "new"
    # demonstrations in the older form become a dataset where they are
    old = source.folder.rename(tmp_path / "old")
    assert episodes_folder(old) == old
    assemble(DemoDataset(old), old, LeRobotForm(), orientation="upright")
    assert len(LeRobotDataset(old)) == len(DemoDataset(old)) == 3


def test_a_full_disk_is_told(source, monkeypatch):
    def full(path, table):
        del path, table
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(RecordsError, match=r"No space left.*exact episodes are safe"):
        made(source)
    assert sorted(path.name for path in source.folder.parent.iterdir()) == ["robogen"]


def test_demonstrations_keep_the_hashes_they_are_known_by(make_episode):
    episode = make_episode()
    assert "extras" not in episode.info.to_text()
    more = replace(episode, info=replace(episode.info, extras={"policy": "mine"}))
    assert more.digest() != episode.digest()
    assert type(more.info).from_text(more.info.to_text()) == more.info
