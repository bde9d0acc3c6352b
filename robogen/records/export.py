"""Records as one flat Parquet table, for people who bring their own analysis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robogen.errors import RecordsError
from robogen.records.reader import read_records
from robogen.records.schema import SCHEMA_VERSION, EpisodeRecord, canonical_json

_FIXED: tuple[tuple[str, str], ...] = (
    ("scene", "string"),
    ("policy", "string"),
    ("condition", "string"),
    ("episode", "int64"),
    ("repeat", "int64"),
    ("severity", "double"),
    ("split", "string"),
    ("status", "string"),
    ("error_kind", "string"),
    ("error", "string"),
    ("success", "bool"),
    ("progress", "double"),
    ("steps", "int64"),
    ("success_step", "int64"),
    ("duration_s", "double"),
    ("instruction", "string"),
    ("observation_hash", "string"),
    ("state_hash", "string"),
)


def export_parquet(run_dir: Path | str, path: Path | str, *, actions: bool = False) -> int:
    """Write one row per episode and return the number of rows.

    Draws, placement and behaviour become one column per field, named by their place
    (``draw.light_intensity.gain``, ``placement.cube.position``, ``behaviour.drops``); how each
    factor's change was noticed becomes ``reached.<factor>``. A field that an episode does not have
    is null there. ``success`` is a nullable boolean: null means errored.

    Args:
        run_dir: The study's folder.
        path: File to write.
        actions: Whether to add the applied actions, as lists of lists.

    Raises:
        RecordsError: The records cannot be read, or the file cannot be written.
    """
    import pyarrow as pa  # here, because workers import records and none of them exports
    import pyarrow.parquet as pq

    records = read_records(run_dir, actions=actions)
    columns: dict[str, Any] = {}
    for name, kind in _FIXED:
        values = [getattr(record, name) for record in records]
        columns[name] = pa.array(values, type=pa.type_for_alias(kind))
    columns["factors"] = pa.array(
        [list(record.factors) for record in records], type=pa.list_(pa.string())
    )
    rows = [_fields(record) for record in records]
    for name in sorted({name for row in rows for name in row}):
        columns[name] = _column([row.get(name) for row in rows])
    if actions:
        columns["actions"] = pa.array(
            [None if record.actions is None else record.actions.tolist() for record in records],
            type=pa.list_(pa.list_(pa.float64())),
        )
    table = pa.table(columns).replace_schema_metadata(
        {"robogen.study_hash": records.study_hash, "robogen.schema_version": str(SCHEMA_VERSION)}
    )
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, target)
    except OSError as error:
        raise RecordsError(
            f"Cannot write {target} ({error}). Pass a path in a folder that you can write to."
        ) from error
    return len(records)


def _fields(record: EpisodeRecord) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    _flatten("draw", record.draws, fields)
    _flatten("placement", record.placement, fields)
    _flatten("behaviour", record.behaviour, fields)
    for factor, evidence in record.reached.items():
        fields[f"reached.{factor}"] = evidence.get("verdict")
    return fields


def _flatten(name: str, value: Any, into: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _flatten(f"{name}.{key}", item, into)
    else:
        into[name] = value


def _column(values: list[Any]) -> Any:
    """One typed column; fields whose type varies between episodes are kept as JSON text."""
    import pyarrow as pa

    present = [value for value in values if value is not None]
    if present and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in present
    ):
        if all(isinstance(value, int) for value in present):
            return pa.array(values, type=pa.int64())
        return pa.array(
            [None if value is None or math.isnan(value) else float(value) for value in values],
            type=pa.float64(),
        )
    for kind in (bool, str):
        if present and all(isinstance(value, kind) for value in present):
            return pa.array(values, type=pa.bool_() if kind is bool else pa.string())
    if present and all(
        isinstance(value, list) and all(isinstance(item, int | float) for item in value)
        for value in present
    ):
        return pa.array(values, type=pa.list_(pa.float64()))
    return pa.array(
        [None if value is None else canonical_json(value) for value in values], type=pa.string()
    )
