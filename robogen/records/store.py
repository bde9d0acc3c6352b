"""The one writer of a run folder: every finished episode is on disk before the next is counted.

Only the parent process of a study writes. An exclusive lock refuses a second writer, each episode
is a transaction of its own, and a process killed between two of them leaves a file that opens.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal

import filelock
import psutil

from robogen.errors import RecordsError
from robogen.records.schema import (
    COLUMN_NAMES,
    EPISODE_COLUMNS,
    KEY_COLUMNS,
    SCHEMA_VERSION,
    TELEMETRY_COLUMNS,
    EpisodeKey,
    EpisodeRecord,
    Status,
    Telemetry,
    to_row,
)

DATABASE = "records.sqlite"
LOCK = ".writer.lock"
HOLDER = ".writer.json"

_NETWORK = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "gluster", "afs", "9p")


def on_network(folder: Path) -> bool:
    """Whether a folder lies on a network file system, where WAL's shared memory is not safe."""
    path = folder.resolve()
    best, kind = -1, ""
    for partition in psutil.disk_partitions(all=True):
        mount = Path(partition.mountpoint)
        if path.is_relative_to(mount) and len(mount.parts) > best:
            best, kind = len(mount.parts), partition.fstype.lower()
    return kind.removeprefix("fuse.").startswith((*_NETWORK, "sshfs"))


def database_error(error: Exception, file: Path) -> RecordsError:
    """Say in one paragraph what an SQLite or file system error means for the user."""
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        text = "disk is full"
    if "full" in text:
        return RecordsError(
            f"The disk of {file.parent} is full ({text}). Every episode finished before is stored; "
            "free some space and run the same command again, it continues where it stopped."
        )
    if "malformed" in text or "not a database" in text or "integrity" in text:
        return RecordsError(
            f"{file} is damaged ({text}). Move it aside (mv {file} {file}.damaged) to start the "
            "study again, or pass another run folder."
        )
    if "readonly" in text or "unable to open" in text:
        return RecordsError(
            f"Cannot open {file} ({text}). Check the folder's permissions, or pass a run folder "
            "of your own."
        )
    if "locked" in text:
        return RecordsError(
            f"{file} is locked by another program ({text}). Close what has it open for writing "
            "(an SQLite browser, say) and run the same command again."
        )
    return RecordsError(
        f"Writing {file} failed ({text}). Every episode finished before is stored; check the disk "
        "and run the same command again, it continues where it stopped."
    )


@contextlib.contextmanager
def _translated(file: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.OperationalError, sqlite3.DatabaseError, OSError) as error:
        if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
            raise  # a bug of ours, not a state of the disk
        raise database_error(error, file) from error


def check_schema(connection: sqlite3.Connection, file: Path) -> str:
    """Check the schema version of an open database and return its study hash.

    Raises:
        RecordsError: The file is not a records file, or of another schema version.
    """
    try:
        meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        version = int(meta["schema_version"])
    except (sqlite3.OperationalError, KeyError, ValueError) as error:
        if isinstance(error, sqlite3.OperationalError) and "no such table" not in str(error):
            raise
        raise RecordsError(
            f"{file} is an SQLite file but not robogen's records: it has no schema version. "
            "Pass the folder of a study (the one that holds manifest.json), or another run folder."
        ) from error
    if version != SCHEMA_VERSION:
        todo = (
            "It was written by a newer robogen: upgrade robogen to read it."
            if version > SCHEMA_VERSION
            else "It was written by an older robogen: read it with the version named in its "
            "manifest.json, or run the study again in another folder."
        )
        raise RecordsError(
            f"{file} has schema version {version}; this robogen reads version "
            f"{SCHEMA_VERSION}. {todo}"
        )
    return str(meta.get("study_hash", ""))


class RecordStore:
    """Writes the records of one study; made by :meth:`create_or_open`, used in a ``with``."""

    def __init__(
        self, *, run_dir: Path, connection: sqlite3.Connection, lock: filelock.BaseFileLock
    ) -> None:
        self.run_dir = run_dir
        self._connection = connection
        self._lock = lock

    @property
    def file(self) -> Path:
        """The SQLite file."""
        return self.run_dir / DATABASE

    @classmethod
    def create_or_open(cls, run_dir: Path | str, *, study_hash: str) -> RecordStore:
        """Take the writer's lock of a run folder and open its records, making them if need be.

        Args:
            run_dir: The study's folder; made when it does not exist.
            study_hash: Identity of the study's design.

        Raises:
            RecordsError: The folder is unwritable, locked, damaged, of another schema version, or
                belongs to a study with another hash.
        """
        folder = Path(run_dir)
        file = folder / DATABASE
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(folder, error) from error
        lock = _acquire(folder)
        try:
            with _translated(file):
                connection = sqlite3.connect(file, timeout=30.0, isolation_level=None)
            try:
                with _translated(file):
                    _prepare(connection, file, study_hash)
            except BaseException:
                connection.close()
                raise
        except BaseException:
            _release(folder, lock)
            raise
        return cls(run_dir=folder, connection=connection, lock=lock)

    def add(self, record: EpisodeRecord, telemetry: Telemetry | None = None) -> None:
        """Store a finished episode; it is on disk when this returns.

        Raises:
            ValueError: The episode is already there.
            RecordsError: The disk refused it; nothing that was stored before is lost.
        """
        if self._status(record.key) is not None:
            raise ValueError(f"{record.key} is already recorded")
        self._write(record, telemetry)

    def replace(self, record: EpisodeRecord, telemetry: Telemetry | None = None) -> None:
        """Store another attempt at an episode that errored; its earlier telemetry stays.

        Raises:
            ValueError: There is no errored episode of this key: scored ones are final.
            RecordsError: The disk refused it; the old row is still there.
        """
        status = self._status(record.key)
        if status != "errored":
            raise ValueError(f"{record.key} is {status or 'not recorded'}, not errored")
        self._write(record, telemetry)

    def keys(self, status: Status | None = None) -> set[EpisodeKey]:
        """Keys of the recorded episodes, all or those of one status."""
        where, values = ("", ()) if status is None else (" WHERE status = ?", (status,))
        with _translated(self.file):
            rows = self._connection.execute(
                f"SELECT {', '.join(KEY_COLUMNS)} FROM episodes{where}", values
            ).fetchall()
        return {EpisodeKey(*row) for row in rows}

    def errored_keys(self) -> set[EpisodeKey]:
        """Keys of the episodes that errored, the ones a retry would run again."""
        return self.keys("errored")

    def close(self) -> None:
        """Fold the journal into the file and give the lock back. Closing twice is harmless."""
        if not self._lock.is_locked:
            return
        # Back to a rollback journal: a finished run is one file that also opens from a read-only
        # place. A reader that is connected right now prevents it, which costs nothing.
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA busy_timeout=1000")
            self._connection.execute("PRAGMA journal_mode=DELETE").fetchone()
        self._connection.close()
        _release(self.run_dir, self._lock)

    def __enter__(self) -> RecordStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        self.close()
        return False

    def _status(self, key: EpisodeKey) -> str | None:
        where = " AND ".join(f"{name} = ?" for name in KEY_COLUMNS)
        with _translated(self.file):
            row = self._connection.execute(
                f"SELECT status FROM episodes WHERE {where}", tuple(key)
            ).fetchone()
        return None if row is None else str(row[0])

    def _write(self, record: EpisodeRecord, telemetry: Telemetry | None) -> None:
        row = to_row(record)
        key = tuple(record.key)
        where = " AND ".join(f"{name} = ?" for name in KEY_COLUMNS)
        places = ", ".join("?" * len(COLUMN_NAMES))
        with _translated(self.file):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute(f"INSERT OR REPLACE INTO episodes VALUES ({places})", row)
                if telemetry is not None:
                    attempt = self._connection.execute(
                        f"SELECT COALESCE(MAX(attempt) + 1, 0) FROM telemetry WHERE {where}", key
                    ).fetchone()[0]
                    values = tuple(getattr(telemetry, name) for name, _ in TELEMETRY_COLUMNS)
                    cells = (*key, attempt, *values)
                    self._connection.execute(
                        f"INSERT INTO telemetry VALUES ({', '.join('?' * len(cells))})", cells
                    )
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def _prepare(connection: sqlite3.Connection, file: Path, study_hash: str) -> None:
    """Check an existing database, or fill an empty one."""
    verdict = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if verdict != "ok":
        raise sqlite3.DatabaseError(f"integrity check: {verdict}")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables:
        found = check_schema(connection, file)
        if found != study_hash:
            raise RecordsError(
                f"{file.parent} holds another study (its hash is {found}, this one's is "
                f"{study_hash}): scenes, policies, conditions, episodes or a setting differ. Pass "
                "another run folder, or repeat the command that made this one to resume it."
            )
    # WAL lets a report be made while the study runs. Its shared-memory index needs one machine, so
    # network file systems get a rollback journal.
    mode = "DELETE" if on_network(file.parent) else "WAL"
    connection.execute(f"PRAGMA journal_mode={mode}").fetchone()
    # kill -9 is safe at any setting, because written pages belong to the kernel. FULL also syncs
    # each commit, so that a power cut loses no episode: a few ms against the seconds it took.
    connection.execute("PRAGMA synchronous=FULL")
    if tables:
        there = {row[1] for row in connection.execute("PRAGMA table_info(telemetry)")}
        for name, kind in TELEMETRY_COLUMNS:
            if name not in there:
                connection.execute(f"ALTER TABLE telemetry ADD COLUMN {name} {kind}")
        return
    key = ", ".join(KEY_COLUMNS)
    kinds = dict(EPISODE_COLUMNS)
    key_columns = ", ".join(f"{name} {kinds[name]}" for name in KEY_COLUMNS)
    episodes = ", ".join(f"{name} {kind}" for name, kind in EPISODE_COLUMNS)
    telemetry = ", ".join(f"{name} {kind}" for name, kind in TELEMETRY_COLUMNS)
    connection.execute("BEGIN IMMEDIATE")  # all tables or none, whenever the process dies
    connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
    connection.execute(f"CREATE TABLE episodes ({episodes}, PRIMARY KEY ({key}))")
    connection.execute(
        f"CREATE TABLE telemetry ({key_columns}, attempt INTEGER NOT NULL, {telemetry}, "
        f"PRIMARY KEY ({key}, attempt))"
    )
    connection.executemany(
        "INSERT INTO meta VALUES (?, ?)",
        [("schema_version", str(SCHEMA_VERSION)), ("study_hash", study_hash)],
    )
    connection.execute("COMMIT")


def _unwritable(folder: Path, error: OSError) -> RecordsError:
    if error.errno == errno.ENOSPC:
        return database_error(error, folder / DATABASE)
    return RecordsError(
        f"Cannot write to the run folder {folder} ({error.strerror or error}). Check its "
        "permissions, or pass a run folder that you can write to."
    )


def _acquire(folder: Path) -> filelock.BaseFileLock:
    lock = filelock.FileLock(folder / LOCK, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise RecordsError(
            f"Another process is writing to {folder} ({_holder(folder)}). Wait for it or stop it; "
            "to run side by side, pass another run folder."
        ) from error
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError):
            raise _unwritable(folder, error) from error
        raise RecordsError(
            f"The file system of {folder} cannot lock files, so two studies could overwrite each "
            "other there. Pass a run folder on a local disk."
        ) from error
    holder = {"pid": os.getpid(), "host": socket.gethostname()}
    try:
        (folder / HOLDER).write_text(json.dumps(holder), encoding="utf-8")
    except OSError as error:
        _release(folder, lock)
        raise _unwritable(folder, error) from error
    return lock


def _release(folder: Path, lock: filelock.BaseFileLock) -> None:
    with contextlib.suppress(OSError):
        (folder / HOLDER).unlink(missing_ok=True)
    lock.release()


def _holder(folder: Path) -> str:
    try:
        holder = json.loads((folder / HOLDER).read_text(encoding="utf-8"))
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that has not said its name"
