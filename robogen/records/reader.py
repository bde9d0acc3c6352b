"""Reading a run folder: read-only, while it is being written, and from a read-only copy."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from robogen.errors import RecordsError
from robogen.records.schema import (
    COLUMN_NAMES,
    KEY_COLUMNS,
    TELEMETRY_COLUMNS,
    EpisodeKey,
    EpisodeRecord,
    Telemetry,
    from_row,
    to_row,
)
from robogen.records.store import DATABASE, check_schema, database_error


@dataclass(frozen=True)
class Attempt:
    """Telemetry of one attempt at one episode."""

    key: EpisodeKey
    attempt: int
    telemetry: Telemetry


@dataclass(frozen=True, kw_only=True)
class Records:
    """A snapshot of a study's records, ordered by key."""

    run_dir: Path
    study_hash: str
    episodes: tuple[EpisodeRecord, ...]
    """Every record; ``actions`` are None unless they were asked for."""

    def __iter__(self) -> Iterator[EpisodeRecord]:
        return iter(self.episodes)

    def __len__(self) -> int:
        return len(self.episodes)

    def table(self) -> dict[str, list[Any]]:
        """Columns of equal length, one entry per episode; all of the schema's except actions."""
        names = [name for name in COLUMN_NAMES if name != "actions"]
        return {name: [getattr(record, name) for record in self.episodes] for name in names}

    def episode(self, key: EpisodeKey) -> EpisodeRecord:
        """One record with its actions, read from disk.

        Raises:
            RecordsError: There is no such episode.
        """
        where = " AND ".join(f"{name} = ?" for name in KEY_COLUMNS)
        with _opened(self.run_dir) as (connection, _):
            row = connection.execute(
                f"SELECT {', '.join(COLUMN_NAMES)} FROM episodes WHERE {where}", tuple(key)
            ).fetchone()
        if row is None:
            there = sorted({record.condition for record in self.episodes})
            raise RecordsError(
                f"{self.run_dir} has no episode {key.episode} (repeat {key.repeat}) of scene "
                f"'{key.scene}', policy '{key.policy}', condition '{key.condition}'. Recorded "
                f"conditions: {', '.join(there) or 'none'}."
            )
        return from_row(row)

    def telemetry(self) -> list[Attempt]:
        """Telemetry of every attempt, ordered by key and attempt, read from disk."""
        names = [name for name, _ in TELEMETRY_COLUMNS]
        order = ", ".join((*KEY_COLUMNS, "attempt"))
        with _opened(self.run_dir) as (connection, _):
            there = {row[1] for row in connection.execute("PRAGMA table_info(telemetry)")}
            asked = [name if name in there else f"NULL AS {name}" for name in names]
            columns = ", ".join((*KEY_COLUMNS, "attempt", *asked))
            rows = connection.execute(
                f"SELECT {columns} FROM telemetry ORDER BY {order}"
            ).fetchall()
        size = len(KEY_COLUMNS)
        return [
            Attempt(
                EpisodeKey(*row[:size]),
                int(row[size]),
                Telemetry(**dict(zip(names, row[size + 1 :], strict=True))),
            )
            for row in rows
        ]

    def digest(self) -> str:
        """Hash of every row in key order, actions left out; equal for equal episodes."""
        digest = hashlib.blake2b(digest_size=16)
        for record in self.episodes:
            digest.update(repr(to_row(replace(record, actions=None))).encode())
        return digest.hexdigest()


def read_records(run_dir: Path | str, *, actions: bool = False) -> Records:
    """Read every record of a run folder as they stand now.

    Args:
        run_dir: The study's folder.
        actions: Whether to load the applied actions too.

    Raises:
        RecordsError: There is no such folder, it holds no records, they are damaged, or of
            another schema version.
    """
    folder = Path(run_dir)
    columns = ", ".join(
        "NULL" if name == "actions" and not actions else name for name in COLUMN_NAMES
    )
    with _opened(folder) as (connection, study_hash):
        rows = connection.execute(
            f"SELECT {columns} FROM episodes ORDER BY {', '.join(KEY_COLUMNS)}"
        ).fetchall()
    return Records(
        run_dir=folder, study_hash=study_hash, episodes=tuple(from_row(row) for row in rows)
    )


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[tuple[sqlite3.Connection, str]]:
    """A checked read-only connection and the study hash; SQLite's errors come out translated."""
    file = folder / DATABASE
    if not folder.is_dir():
        raise RecordsError(
            f"There is no run folder {folder}. Pass the folder that 'robogen eval' wrote."
        )
    if not file.is_file():
        raise RecordsError(
            f"{folder} holds no {DATABASE}: it is not a run folder, or its study has not begun. "
            "Pass the folder that 'robogen eval' wrote."
        )
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(_connection(file))
            verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise sqlite3.DatabaseError(f"integrity check: {verdict}")
            yield connection, check_schema(connection, file)
    except (sqlite3.DatabaseError, OSError) as error:
        raise database_error(error, file) from error


@contextlib.contextmanager
def _connection(file: Path) -> Iterator[sqlite3.Connection]:
    """Connect read-only, by whichever way the folder permits.

    A file that was left in WAL mode (a study still running, or killed) needs its shared-memory
    index, which cannot be made in a read-only folder. Then an empty journal may be ignored, and a
    filled one is replayed in a private copy: dropping it would lose episodes in silence.
    """
    wal = file.with_name(file.name + "-wal")
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(contextlib.closing(_connect(file, "mode=ro")))
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            if not wal.exists() or wal.stat().st_size == 0:
                connection = stack.enter_context(contextlib.closing(_connect(file, "immutable=1")))
            else:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                for source in (file, wal):
                    shutil.copyfile(source, folder / source.name)
                private = folder / file.name
                connection = stack.enter_context(contextlib.closing(_connect(private, "mode=rw")))
        connection.execute("BEGIN")  # one snapshot for everything read
        yield connection


def _connect(file: Path, options: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(file.resolve()))}?{options}"
    return sqlite3.connect(uri, uri=True, timeout=30.0, isolation_level=None)
