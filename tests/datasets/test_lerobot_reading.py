"""Datasets of other people, and damaged ones."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robogen.datasets import DemoDataset, DemoWriter
from robogen.datasets import lerobot_format as fmt
from robogen.datasets.lerobot_reader import LeRobotDataset
from robogen.datasets.lerobot_writer import LeRobotForm, assemble
from robogen.errors import ConfigError, RecordsError
from robogen.specs import CameraSpec

FRONT = "observation.images.front"


@pytest.fixture
def folder(tmp_path, make_meta, make_episode):
    """Makes a dataset of two episodes, which the test may then change."""

    def make(layout="v3.0", codec="h264"):
        meta = make_meta(cameras=(CameraSpec(name="front", width=16, height=16),))
        writer = DemoWriter(tmp_path / "set" / "robogen", meta)
        for index in range(2):
            writer.write(make_episode(index, 5 + index, meta=meta))
        form = LeRobotForm(layout=layout, codec=codec)
        assemble(DemoDataset(tmp_path / "set"), tmp_path / "set", form, orientation="upright")
        return tmp_path / "set"

    return make


def change(folder, **keys):
    """Edit ``info.json``."""
    file = folder / fmt.INFO
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))


def test_version_2_0_has_statistics_of_the_whole_only(folder):
    out = folder("v2.1")
    wanted = LeRobotDataset(out).statistics("action")
    change(out, codebase_version="v2.0")
    (out / fmt.EPISODES_STATS_V2).unlink()
    file = out / fmt.STATS
    stats = json.loads(file.read_text())
    for values in stats.values():
        values.pop("count")
        for name in [name for name in values if name.startswith("q")]:
            del values[name]
    file.write_text(json.dumps(stats))
    dataset = LeRobotDataset(out)
    assert dataset.version == "v2.0"
    found = dataset.statistics("action")
    np.testing.assert_allclose(found.mean, wanted.mean)
    assert found.q01 is None
    assert dataset.statistics("action", exact=True).q01 is not None
    assert dataset.frames(FRONT, 1).shape == (6, 16, 16, 3)


def test_statistics_are_computed_where_there_are_none(folder):
    out = folder("v2.1")
    wanted = LeRobotDataset(out)
    (out / fmt.STATS).unlink()
    of_episodes = LeRobotDataset(out).statistics("action")
    np.testing.assert_allclose(of_episodes.std, wanted.statistics("action").std)
    assert of_episodes.q01 is None  # version 2.1 keeps no quantiles by episode
    (out / fmt.EPISODES_STATS_V2).unlink()
    bare = LeRobotDataset(out)
    for name in ("action", "observation.state"):
        np.testing.assert_allclose(bare.statistics(name).q99, wanted.statistics(name).q99)
    assert bare.statistics(FRONT).mean.shape == (3,)


def test_other_peoples_columns(folder):
    """Doubles, lists of varying type, matrices, text, and videos named otherwise."""
    out = folder()
    info = json.loads((out / fmt.INFO).read_text())
    file = out / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    grid = np.arange(11 * 4, dtype=np.float64)
    inner = pa.FixedSizeListArray.from_arrays(pa.array(grid), 2)
    table = table.append_column("grid", pa.FixedSizeListArray.from_arrays(inner, 2))
    table = table.append_column("said", pa.array(["word"] * 11))
    ragged = pa.array([[1.0]] * 10 + [[1.0, 2.0]], pa.list_(pa.float64()))
    table = table.append_column("ragged", ragged)
    pq.write_table(table, file)
    new = {
        "grid": {"dtype": "float64", "shape": [2, 2], "names": None},
        "said": {"dtype": "string", "shape": [1], "names": None},
        "ragged": {"dtype": "float64", "shape": [1], "names": None},
        "gone": {"dtype": "float32", "shape": [1], "names": {"motors": ["a"]}},
        "depth": {"dtype": "video", "shape": [16, 16, 1], "info": {"video.is_depth_map": True}},
    }
    change(out, features={**info["features"], **new}, fps=10.0)
    episodes = out / "meta/episodes/chunk-000/file-000.parquet"
    rows = pq.read_table(episodes)
    for name in ("chunk_index", "file_index", "from_timestamp"):
        rows = rows.append_column(f"videos/depth/{name}", rows[f"videos/{FRONT}/{name}"])
    pq.write_table(rows, episodes)
    dataset = LeRobotDataset(out)
    found = dataset.numeric("grid", 1)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, grid[20:].reshape(6, 4))
    assert dataset.features["gone"].labels == ("a",)
    with pytest.raises(ConfigError, match=r"'said' holds text.*Numeric are: .*grid"):
        dataset.numeric("said", 0)
    with pytest.raises(RecordsError, match="varying size"):
        dataset.numeric("ragged", 0)
    with pytest.raises(RecordsError, match="column 'gone'"):
        dataset.numeric("gone", 0)
    with pytest.raises(ConfigError, match="'depth' is a depth map"):
        dataset.frames("depth", 0)


def test_names_and_numbers_that_are_not_there(folder):
    dataset = LeRobotDataset(folder())
    with pytest.raises(ConfigError, match=r"Unknown feature 'acton'. Did you mean 'action'\?"):
        dataset.numeric("acton", 0)
    with pytest.raises(ConfigError, match="holds pictures"):
        dataset.numeric(FRONT, 0)
    with pytest.raises(ConfigError, match=f"'action' is no camera. Cameras: {FRONT}"):
        dataset.frames("action", 0)
    with pytest.raises(RecordsError, match="no episode 2; it has 2 episodes, 0 to 1"):
        dataset.numeric("action", 2)
    with pytest.raises(ConfigError, match="Episode 0 has no frame 5; it has 5"):
        dataset.frames(FRONT, 0, [5])


def test_what_is_no_dataset_says_what_it_is_instead(tmp_path, folder, make_meta):
    with pytest.raises(RecordsError, match=r"no meta/info.json. There is no such folder"):
        LeRobotDataset(tmp_path / "nothing")
    with pytest.raises(RecordsError, match="Give the folder that holds meta/"):
        LeRobotDataset(tmp_path)
    DemoWriter(tmp_path / "own", make_meta())
    with pytest.raises(RecordsError, match="robogen's own form alone"):
        LeRobotDataset(tmp_path / "own")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("{}")
    with pytest.raises(RecordsError, match=r"robogen export .*run --dataset DIR"):
        LeRobotDataset(tmp_path / "run")
    (tmp_path / "old" / "meta_data").mkdir(parents=True)
    with pytest.raises(RecordsError, match="version 1"):
        LeRobotDataset(tmp_path / "old")
    out = folder()
    for version in ("v1.6", "v4.0", "newest"):
        change(out, codebase_version=version)
        with pytest.raises(RecordsError, match=f"version '{version}'; robogen reads v2.0"):
            LeRobotDataset(out)
    change(out, codebase_version="v3.1")  # minor versions keep what they have
    assert len(LeRobotDataset(out)) == 2


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"codebase_version": "v3.0", "fps": 0, "features": {}}', "\xff"]
)
def test_a_broken_description(folder, text):
    out = folder()
    (out / fmt.INFO).write_text(text, encoding="latin-1")
    with pytest.raises(RecordsError, match=r"info.json is damaged"):
        LeRobotDataset(out)


@pytest.mark.parametrize(
    "template",
    ["../{chunk_index:03d}.parquet", "/etc/{file_index}", "{chunk_index.__class__}", "{nothing}"],
)
def test_paths_stay_in_the_dataset(folder, template):
    out = folder()
    change(out, data_path=template)
    with pytest.raises(RecordsError, match="is damaged"):
        LeRobotDataset(out)


@pytest.mark.parametrize("layout", ["v3.0", "v2.1"])
def test_missing_and_cut_off_files_are_named(folder, layout):
    out = folder(layout)
    dataset = LeRobotDataset(out)
    movie = dataset.episodes[1].videos[FRONT][0]
    content = movie.read_bytes()
    for size in (0, len(content) // 2):
        movie.write_bytes(content[:size])
        with pytest.raises(RecordsError, match=rf"{movie.name} is damaged or cut off"):
            dataset.frames(FRONT, 1)
    movie.unlink()
    with pytest.raises(RecordsError, match=rf"{movie.name} is missing"):
        dataset.frames(FRONT, 1)
    table = dataset.episodes[1].data
    content = table.read_bytes()
    for size in (0, len(content) // 2):
        table.write_bytes(content[:size])
        with pytest.raises(RecordsError, match=rf"{table.name} is damaged"):
            LeRobotDataset(out).numeric("action", 1)
    table.unlink()
    with pytest.raises(RecordsError, match=rf"{table.name} is missing"):
        LeRobotDataset(out).numeric("action", 1)


def test_a_video_shorter_than_its_tables(folder):
    """A file of the right kind with too few frames is found out, not padded."""
    out = folder("v2.1")
    dataset = LeRobotDataset(out)
    short, long = (dataset.episodes[n].videos[FRONT][0] for n in (0, 1))
    shutil.copy(short, long)
    with pytest.raises(RecordsError, match=r"6 frames from 0.000 s on are needed, 5 could be read"):
        dataset.frames(FRONT, 1)
    assert len(dataset.frames(FRONT, 1, [4])) == 1


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        ("v3.0", "meta/episodes/chunk-000/file-000.parquet"),
        ("v3.0", fmt.TASKS_V3),
        ("v2.1", fmt.EPISODES_V2),
        ("v2.1", fmt.TASKS_V2),
        ("v3.0", fmt.STATS),
    ],
)
def test_every_meta_file_is_checked(folder, layout, name):
    out = folder(layout)
    for content in (b"{half", b"PAR1"):
        (out / name).write_bytes(content)
        with pytest.raises(RecordsError, match="is damaged"):
            LeRobotDataset(out)
    (out / name).unlink()
    if name != fmt.STATS:
        with pytest.raises(RecordsError, match=r"is missing|is damaged"):
            LeRobotDataset(out)


def test_pictures_that_cannot_be_decoded(folder):
    out = folder(codec="png")
    file = out / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    cells = [{"bytes": b"no picture", "path": "a"}] * len(table)
    place = table.column_names.index(FRONT)
    pq.write_table(table.set_column(place, FRONT, pa.array(cells, table[FRONT].type)), file)
    with pytest.raises(RecordsError, match=r"of episode 0 in .* cannot be decoded"):
        LeRobotDataset(out).frames(FRONT, 0)


def test_frames_that_the_tables_do_not_hold(folder):
    out = folder()
    file = out / "data/chunk-000/file-000.parquet"
    pq.write_table(pq.read_table(file).slice(0, 8), file)
    with pytest.raises(RecordsError, match="holds 3 frames of episode 1, which has 6"):
        LeRobotDataset(out).numeric("action", 1)
