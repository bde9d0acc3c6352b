import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from robogen.errors import RecordsError
from robogen.records import (
    EpisodeKey,
    RecordStore,
    export_parquet,
    fingerprint_difference,
    read_manifest,
    read_records,
    write_manifest,
)


def test_missing_folder_and_missing_file_are_told_apart(tmp_path):
    with pytest.raises(RecordsError, match="There is no run folder"):
        read_records(tmp_path / "nothing")
    with pytest.raises(RecordsError, match=r"holds no records\.sqlite"):
        read_records(tmp_path)


def test_actions_are_loaded_on_demand(tmp_path, make_record):
    with RecordStore.create_or_open(tmp_path, study_hash="h") as store:
        store.add(make_record(2))
    records = read_records(tmp_path)
    assert records.episodes[0].actions is None
    np.testing.assert_array_equal(
        records.episode(EpisodeKey("pick", "bc", "nominal", 2)).actions, np.full((3, 7), 2.0)
    )
    with pytest.raises(RecordsError, match="Recorded conditions: nominal"):
        records.episode(EpisodeKey("pick", "bc", "light", 2))


def test_table_has_equal_columns_and_unscored_is_not_zero(tmp_path, make_record, make_errored):
    with RecordStore.create_or_open(tmp_path, study_hash="h") as store:
        store.add(make_record(0, "light"))
        store.add(make_errored(1, "light"))
    table = read_records(tmp_path).table()
    assert {len(column) for column in table.values()} == {2}
    assert table["success"] == [True, None]
    assert table["factors"] == [("light",), ("light",)]


def test_manifest_round_trips_and_is_replaced_whole(tmp_path):
    for value in (1, 2):
        write_manifest(tmp_path / "run", {"schema_version": 1, "value": value, "pair": (1, 2)})
        assert read_manifest(tmp_path / "run") == {
            "schema_version": 1,
            "value": value,
            "pair": [1, 2],
        }
    with pytest.raises(ValueError, match=r"manifest\.value is nan"):
        write_manifest(tmp_path / "run", {"value": float("nan")})
    assert read_manifest(tmp_path / "run")["value"] == 2
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["manifest.json"]


def test_manifest_errors_say_what_to_do(tmp_path):
    with pytest.raises(RecordsError, match=r"holds no manifest\.json"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(RecordsError, match="cannot be read"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(RecordsError, match="JSON list"):
        read_manifest(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordsError, match="Cannot write"):
        write_manifest(tmp_path / "file" / "run", {})


def test_fingerprint_difference_names_fields_in_words():
    old = {"mujoco": "3.16", "gl": {"renderer": "llvmpipe", "vendor": "Mesa"}, "isa": ("avx2",)}
    new = {"mujoco": "3.17", "gl": {"renderer": "H200", "vendor": "Mesa"}, "torch": "2.13"}
    assert fingerprint_difference(old, new) == [
        "gl.renderer: was 'llvmpipe', is 'H200'",
        "isa: was ['avx2'], is not recorded now",
        "mujoco: was '3.16', is '3.17'",
        "torch: was not recorded, is '2.13'",
    ]
    assert fingerprint_difference(old, json.loads(json.dumps(old))) == []


def test_parquet_has_one_column_per_draw_field(tmp_path, make_record, make_errored):
    with RecordStore.create_or_open(tmp_path / "run", study_hash="abc") as store:
        store.add(make_record(0))
        store.add(make_record(1, "light", draws={"light": {"gain": 2, "on": True}}))
        store.add(
            make_record(
                2,
                "light",
                draws={"light": {"gain": 0.5, "rgb": [1, 0.5, 0]}},
                reached={"light": {"verdict": "reached"}},
            )
        )
        store.add(make_errored(3, "light", draws={"light": {"name": "oak", "mixed": 1}}))
        store.add(make_record(4, "light", draws={"light": {"mixed": [1, "a"]}}))
    path = tmp_path / "out" / "episodes.parquet"
    assert export_parquet(tmp_path / "run", path) == 5
    table = pq.read_table(path)
    rows = {row["episode"]: row for row in table.to_pylist()}
    assert rows[0]["draw.light.gain"] is None
    assert [rows[i]["draw.light.gain"] for i in (1, 2)] == [2.0, 0.5]
    assert rows[1]["draw.light.on"] is True
    assert rows[2]["draw.light.rgb"] == [1.0, 0.5, 0.0]
    assert rows[2]["reached.light"] == "reached"
    assert rows[3]["draw.light.name"] == "oak"
    assert [rows[i]["draw.light.mixed"] for i in (3, 4)] == ["1", '[1,"a"]']
    assert rows[0]["placement.cube.position"] == [0.5, 0.0, 0.02]
    assert rows[0]["behaviour.path_length_m"] == 1.5
    assert [rows[i]["success"] for i in range(4)] == [True, False, True, None]
    assert str(table.schema.field("success").type) == "bool"
    assert table.schema.metadata[b"robogen.study_hash"] == b"abc"
    assert table.schema.metadata[b"robogen.schema_version"] == b"1"
    assert "actions" not in table.column_names


def test_parquet_includes_actions_when_asked(tmp_path, make_record):
    with RecordStore.create_or_open(tmp_path / "run", study_hash="abc") as store:
        store.add(make_record(1))
    export_parquet(tmp_path / "run", tmp_path / "a.parquet", actions=True)
    assert pq.read_table(tmp_path / "a.parquet").to_pylist()[0]["actions"] == [[1.0] * 7] * 3
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordsError, match="Cannot write"):
        export_parquet(tmp_path / "run", tmp_path / "file" / "a.parquet")
