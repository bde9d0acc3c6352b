import json
import os
import pickle
from dataclasses import replace

import numpy as np
import pytest

from robogen.datasets import DemoDataset, DemoMeta, DemoWriter, EpisodeInfo
from robogen.errors import RecordsError
from robogen.specs import ActionSpec


def test_an_episode_comes_back_as_it_was_written(tmp_path, make_meta, make_episode):
    meta = make_meta()
    draws = {"light_intensity": {"gain": 0.5}}
    episode = make_episode(7, split="eval", success=False, draws=draws, domain="validate")
    assert DemoWriter(tmp_path / "demos", meta).write(episode)
    dataset = DemoDataset(tmp_path / "demos")
    assert dataset.meta == meta
    assert dataset.indices == (7,)
    assert len(dataset) == 1
    read = dataset.read(7)
    assert read.info == episode.info == dataset.info(7)
    assert read.arrays().keys() == episode.arrays().keys()
    for name, array in episode.arrays().items():
        np.testing.assert_array_equal(read.arrays()[name], array)
        assert read.arrays()[name].dtype == array.dtype
    assert read.digest() == episode.digest()


def test_meta_survives_json_with_the_order_of_the_state(make_meta):
    meta = make_meta(state={"gripper_opening": 1, "eef_pos": 3}, action=ActionSpec(control_hz=20.0))
    text = json.dumps(meta.to_json(), sort_keys=True)
    again = DemoMeta.from_json(json.loads(text))
    assert again == meta
    assert list(again.state) == ["gripper_opening", "eef_pos"]
    assert again.control_hz == 20.0
    assert again.state_size == 4


def test_the_digest_tells_content_apart(make_episode):
    episode = make_episode()
    touched = make_episode()
    touched.images["front"][0, 0, 0, 0] ^= 1
    renamed = replace(episode, info=replace(episode.info, instruction="lift the can"))
    assert len({episode.digest(), touched.digest(), renamed.digest(), make_episode().digest()}) == 3


def test_a_writer_continues_where_another_stopped(tmp_path, make_meta, make_episode):
    writer = DemoWriter(tmp_path, make_meta())
    writer.write(make_episode(0))
    writer.write(make_episode(2))
    before = (tmp_path / "episode_000002.npz").stat().st_mtime_ns
    again = DemoWriter(tmp_path, make_meta(command="the same, said otherwise"))
    assert again.missing(range(4)) == [1, 3]
    assert again.has(2)
    assert not again.write(make_episode(2))
    assert (tmp_path / "episode_000002.npz").stat().st_mtime_ns == before
    assert again.write(make_episode(1))
    assert DemoDataset(tmp_path).indices == (0, 1, 2)


def test_equal_episodes_give_equal_files(tmp_path, make_meta, make_episode):
    for name in "ab":
        DemoWriter(tmp_path / name, make_meta()).write(make_episode(0))
    files = [tmp_path / name / "episode_000000.npz" for name in "ab"]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    "changes",
    [{"scene": "push"}, {"collection": {"seed": 4}}, {"action": ActionSpec(control_hz=20.0)}],
)
def test_another_dataset_in_the_folder_is_refused(tmp_path, make_meta, changes):
    DemoWriter(tmp_path, make_meta())
    with pytest.raises(RecordsError, match=f"already holds other .*{next(iter(changes))} was"):
        DemoWriter(tmp_path, make_meta(**changes))


def test_unfinished_files_are_no_episodes(tmp_path, make_meta, make_episode):
    DemoWriter(tmp_path, make_meta()).write(make_episode(0))
    (tmp_path / ".episode_000001.npz.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    assert DemoDataset(tmp_path).indices == (0,)


def test_arrays_of_the_wrong_shape_are_a_bug_of_the_caller(tmp_path, make_meta, make_episode):
    writer = DemoWriter(tmp_path, make_meta())
    episode = make_episode()
    bad = replace(episode, state=episode.state[:, :2], images={})
    with pytest.raises(ValueError, match=r"images.front' is missing.*'state' is \(5, 2\)"):
        writer.write(bad)
    nan = replace(episode, action=np.full_like(episode.action, np.nan))
    with pytest.raises(ValueError, match="NaN"):
        writer.write(nan)
    assert writer.missing([0]) == [0]


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "pickle", "other_index"])
def test_a_damaged_file_is_named(tmp_path, make_meta, make_episode, damage):
    writer = DemoWriter(tmp_path, make_meta())
    writer.write(make_episode(0))
    file = tmp_path / "episode_000000.npz"
    content = file.read_bytes()
    if damage == "other_index":
        writer.write(make_episode(1))
        os.replace(tmp_path / "episode_000001.npz", file)
    else:
        middle = len(content) // 2
        flipped = bytes([content[middle] ^ 0xFF])
        file.write_bytes(
            {
                "truncate": content[:middle],
                "flip": content[:middle] + flipped + content[middle + 1 :],
                "empty": b"",
                "pickle": pickle.dumps({"state": 1}),
            }[damage]
        )
    with pytest.raises(RecordsError, match=r"episode_000000\.npz is damaged.*collects only"):
        DemoDataset(tmp_path).read(0)


def test_arrays_that_need_a_pickle_are_refused(tmp_path, make_meta, make_episode):
    DemoWriter(tmp_path, make_meta())
    info = np.frombuffer(make_episode().info.to_text().encode(), np.uint8)
    np.savez(tmp_path / "episode_000000.npz", info=info, state=np.array([{}], dtype=object))
    with pytest.raises(RecordsError, match="is damaged"):
        DemoDataset(tmp_path).read(0)
    with pytest.raises(RecordsError, match="is damaged"):
        DemoDataset(tmp_path).info(0)


def test_a_folder_without_demonstrations_says_so(tmp_path, make_meta):
    with pytest.raises(RecordsError, match="holds no demonstrations"):
        DemoDataset(tmp_path)
    DemoWriter(tmp_path, make_meta())
    with pytest.raises(RecordsError, match="no episode 3; it has 0 episodes"):
        DemoDataset(tmp_path).read(3)
    (tmp_path / "meta.json").write_text('{"schema_version": 99}')
    with pytest.raises(RecordsError, match="schema version 99"):
        DemoDataset(tmp_path)


def test_metadata_with_other_keys_is_refused():
    with pytest.raises(ValueError, match="keys index"):
        EpisodeInfo.from_text('{"index": 0}')
