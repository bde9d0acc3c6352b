import itertools
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from robogen.errors import RecordsError
from robogen.records import EpisodeKey, RecordStore, Telemetry, read_records
from robogen.records import store as store_module

ROOT = Path(__file__).resolve().parents[2]


def dump(run_dir):
    connection = sqlite3.connect(run_dir / "records.sqlite")
    rows = connection.execute(
        "SELECT * FROM episodes ORDER BY scene, policy, condition, episode, repeat"
    ).fetchall()
    connection.close()
    return rows


def add_many(store, records):
    for record in records:
        store.add(record)


def run_python(code, *arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_records_come_back_as_written(tmp_path, make_record, make_errored):
    with RecordStore.create_or_open(tmp_path, study_hash="h") as store:
        store.add(make_record(1), Telemetry(wall_s=2.0, worker=3))
        store.add(make_errored(0, "light"))
        assert store.keys() == {
            EpisodeKey("pick", "bc", "nominal", 1),
            EpisodeKey("pick", "bc", "light", 0),
        }
        assert store.keys("scored") == {EpisodeKey("pick", "bc", "nominal", 1)}
        assert store.errored_keys() == {EpisodeKey("pick", "bc", "light", 0)}
    records = read_records(tmp_path, actions=True)
    assert list(records) == [make_errored(0, "light"), make_record(1)]
    assert [attempt.telemetry.worker for attempt in records.telemetry()] == [3]


def test_table_is_byte_equal_whatever_the_insertion_order(tmp_path, make_record, make_errored):
    records = [
        make_record(episode, condition)
        for episode, condition in itertools.product(range(5), ["nominal", "light", "camera"])
    ] + [make_errored(7)]
    folders = [tmp_path / "a", tmp_path / "b"]
    for seed, folder in enumerate(folders):
        shuffled = random.Random(seed).sample(records, len(records))
        with RecordStore.create_or_open(folder, study_hash="h") as store:
            for record in shuffled:
                store.add(record, Telemetry(worker=seed))
    assert dump(folders[0]) == dump(folders[1])
    assert read_records(folders[0]).digest() == read_records(folders[1]).digest()


def test_an_episode_is_recorded_once_and_only_errored_ones_are_retried(
    tmp_path, make_record, make_errored
):
    with RecordStore.create_or_open(tmp_path, study_hash="h") as store:
        store.add(make_errored(0), Telemetry(traceback="first"))
        with pytest.raises(ValueError, match="already recorded"):
            store.add(make_record(0))
        store.replace(make_record(0), Telemetry(wall_s=1.0))
        assert store.errored_keys() == set()
        with pytest.raises(ValueError, match="scored"):
            store.replace(make_record(0))
        with pytest.raises(ValueError, match="not recorded"):
            store.replace(make_record(1))
    attempts = read_records(tmp_path).telemetry()
    assert [(item.attempt, item.telemetry.traceback) for item in attempts] == [
        (0, "first"),
        (1, None),
    ]


def test_reopening_continues(tmp_path, make_record):
    for episode in range(3):
        with RecordStore.create_or_open(tmp_path, study_hash="h") as store:
            assert len(store.keys()) == episode
            store.add(make_record(episode))
    store.close()
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == [
        "records.sqlite"
    ]


def test_second_writer_is_refused_by_name(tmp_path):
    with (
        RecordStore.create_or_open(tmp_path, study_hash="h"),
        pytest.raises(RecordsError, match=f"process {os.getpid()} on {socket.gethostname()}"),
    ):
        RecordStore.create_or_open(tmp_path, study_hash="h")
    RecordStore.create_or_open(tmp_path, study_hash="h").close()


def test_another_study_is_refused(tmp_path):
    RecordStore.create_or_open(tmp_path, study_hash="h").close()
    with pytest.raises(RecordsError, match=r"holds another study.*Pass another run folder"):
        RecordStore.create_or_open(tmp_path, study_hash="other")
    RecordStore.create_or_open(tmp_path, study_hash="h").close()  # the lock was given back


def test_unwritable_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordsError, match="Cannot write to the run folder"):
        RecordStore.create_or_open(tmp_path / "file" / "run", study_hash="h")
    if Path("/proc").is_dir():
        with pytest.raises(RecordsError, match="Cannot write to the run folder"):
            RecordStore.create_or_open("/proc/robogen-run", study_hash="h")


def test_full_disk_loses_nothing(tmp_path, make_record):
    with RecordStore.create_or_open(tmp_path, study_hash="h") as store:
        store._connection.execute("PRAGMA max_page_count=20")
        with pytest.raises(RecordsError, match=r"disk .* is full.*continues where it stopped"):
            add_many(store, [make_record(episode) for episode in range(1000)])
        stored = len(store.keys())
        assert stored > 0
        store._connection.execute("PRAGMA max_page_count=10000")  # somebody freed space
        store.add(make_record(stored))
    assert len(read_records(tmp_path)) == stored + 1


FILE_LIMIT = """
import resource, sys
from robogen.errors import RecordsError
from robogen.records import EpisodeRecord, RecordStore
store = RecordStore.create_or_open(sys.argv[1], study_hash="h")
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for episode in range(10_000):
    try:
        store.add(EpisodeRecord(scene="s", policy="p", condition="nominal", episode=episode,
                                status="scored", success=True, instruction="x" * 1000))
    except RecordsError as error:
        print(episode, error)
        break
store.close()
"""


def test_file_system_that_refuses_writes_loses_nothing(tmp_path):
    process = run_python(FILE_LIMIT, tmp_path)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    count, message = out.split(" ", 1)
    assert "continues where it stopped" in message
    assert len(read_records(tmp_path)) == int(count) > 0


@pytest.mark.parametrize("damage", ["header", "middle", "truncated"])
def test_damaged_file_is_refused_by_both_sides(tmp_path, make_record, damage):
    with RecordStore.create_or_open(tmp_path, study_hash="h") as store:
        for episode in range(200):
            store.add(make_record(episode))
    file = tmp_path / "records.sqlite"
    data = bytearray(file.read_bytes())
    if damage == "header":
        data[:100] = b"x" * 100
    elif damage == "middle":
        data[4096 : 4096 * 12] = b"\xff" * (4096 * 11)
    else:
        del data[len(data) // 2 :]
    file.write_bytes(data)
    for attempt in (
        lambda: RecordStore.create_or_open(tmp_path, study_hash="h"),
        lambda: read_records(tmp_path),
    ):
        with pytest.raises(RecordsError, match=r"records\.sqlite is damaged.*Move it aside"):
            attempt()


@pytest.mark.parametrize(
    ("version", "words"), [("2", "newer robogen: upgrade"), ("0", "older robogen")]
)
def test_unknown_schema_versions_are_refused_by_both_sides(tmp_path, version, words):
    RecordStore.create_or_open(tmp_path, study_hash="h").close()
    connection = sqlite3.connect(tmp_path / "records.sqlite")
    connection.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (version,))
    connection.commit()
    connection.close()
    with pytest.raises(RecordsError, match=words):
        RecordStore.create_or_open(tmp_path, study_hash="h")
    with pytest.raises(RecordsError, match=words):
        read_records(tmp_path)


def test_foreign_sqlite_file_is_refused(tmp_path):
    connection = sqlite3.connect(tmp_path / "records.sqlite")
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.commit()
    connection.close()
    with pytest.raises(RecordsError, match="not robogen's records"):
        RecordStore.create_or_open(tmp_path, study_hash="h")
    with pytest.raises(RecordsError, match="not robogen's records"):
        read_records(tmp_path)


WRITE_FOREVER = """
import sys
from robogen.records import EpisodeRecord, RecordStore, Telemetry
store = RecordStore.create_or_open(sys.argv[1], study_hash="h")
for episode in range(10**9):
    store.add(EpisodeRecord(scene="s", policy="p", condition="nominal", episode=episode,
                            status="scored", success=True), Telemetry(wall_s=0.0))
    print(episode, flush=True)
"""


def killed_run(folder, episodes=30):
    process = run_python(WRITE_FOREVER, folder)
    for line in process.stdout:
        if int(line) >= episodes:
            break
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    process.communicate()
    return max([episodes, *map(int, rest)]) + 1


def test_kill_9_keeps_every_episode_that_was_counted(tmp_path):
    counted = killed_run(tmp_path)
    found = len(read_records(tmp_path))
    assert counted <= found <= counted + 1  # one may be stored and not yet counted
    with RecordStore.create_or_open(tmp_path, study_hash="h") as store:  # the lock died too
        assert len(store.keys()) == found


def test_reader_works_while_a_writer_is_active(tmp_path, make_record):
    with RecordStore.create_or_open(tmp_path, study_hash="h") as store:
        for episode in range(3):
            store.add(make_record(episode))
            records = read_records(tmp_path)
            assert [record.episode for record in records] == list(range(episode + 1))


READ = """
import os, sys
from robogen.records import read_records
import pyarrow
if os.geteuid() == 0:
    os.setuid(65534)
assert not os.access(sys.argv[1], os.W_OK)
print(len(read_records(sys.argv[1])))
"""


@pytest.mark.parametrize("killed", [False, True])
def test_reader_works_on_a_read_only_copy(tmp_path, make_record, killed):
    if killed:
        killed_run(tmp_path / "run")
    else:
        with RecordStore.create_or_open(tmp_path / "run", study_hash="h") as store:
            store.add(make_record(0))
    folder = Path(tempfile.mkdtemp())  # outside tmp_path, which other users may not enter
    try:
        for path in (tmp_path / "run").glob("records.sqlite*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, folder)
                (folder / path.name).chmod(0o444)
        folder.chmod(0o555)
        process = run_python(READ, folder)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert int(out) == len(read_records(tmp_path / "run"))
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_network_folders_get_a_rollback_journal(tmp_path, monkeypatch):
    class Partition:
        def __init__(self, mountpoint, fstype):
            self.mountpoint, self.fstype = mountpoint, fstype

    partitions = [Partition("/", "ext4"), Partition(str(tmp_path / "net"), "nfs4")]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: partitions)
    for name, mode in (("net", "delete"), ("local", "wal")):
        with RecordStore.create_or_open(tmp_path / name, study_hash="h") as store:
            assert store._connection.execute("PRAGMA journal_mode").fetchone() == (mode,)
    partitions[1].fstype = "fuse.sshfs"
    assert store_module.on_network(tmp_path / "net")


def test_holder_that_cannot_be_read_is_still_refused(tmp_path):
    with RecordStore.create_or_open(tmp_path, study_hash="h"):
        (tmp_path / ".writer.json").write_text(json.dumps([]))
        with pytest.raises(RecordsError, match="a process that has not said its name"):
            RecordStore.create_or_open(tmp_path, study_hash="h")


def test_telemetry_of_an_older_file_is_read_with_gaps_and_extended_when_written(
    tmp_path, make_record
):
    later = ("decisions", "latency_ms", "latency_max_ms")
    with RecordStore.create_or_open(tmp_path, study_hash="h") as store:
        store.add(make_record(0), Telemetry(wall_s=1.0, decisions=3, latency_ms=5.0))
    connection = sqlite3.connect(tmp_path / "records.sqlite")
    for name in later:
        connection.execute(f"ALTER TABLE telemetry DROP COLUMN {name}")
    connection.commit()
    connection.close()
    (attempt,) = read_records(tmp_path).telemetry()
    assert (attempt.telemetry.wall_s, attempt.telemetry.decisions) == (1.0, None)
    with RecordStore.create_or_open(tmp_path, study_hash="h") as store:
        store.add(make_record(1), Telemetry(wall_s=2.0, decisions=4, latency_ms=6.0))
    first, second = read_records(tmp_path).telemetry()
    assert first.telemetry.latency_ms is None
    assert (second.telemetry.decisions, second.telemetry.latency_ms) == (4, 6.0)
