"""What one episode leaves behind, and its canonical form on disk.

A row of the ``episodes`` table is a pure function of an :class:`EpisodeRecord`: JSON with sorted
keys and shortest round-trip floats, actions as zlib of little-endian float64. Whatever differs
between two runs of the same episode (times, worker, traceback) goes to :class:`Telemetry`.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

SCHEMA_VERSION = 1

Status = Literal["scored", "errored"]

_ZLIB_LEVEL = 6


class EpisodeKey(NamedTuple):
    """Identity of one episode; also the order in which the table is read."""

    scene: str
    policy: str
    condition: str
    episode: int
    repeat: int = 0
    """0; above 0 only for A-against-A reruns that measure a policy's noise floor."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EpisodeRecord:
    """One finished episode, deterministic given its study.

    Two records are equal when their rows are, bit for bit.
    """

    scene: str
    policy: str
    condition: str
    episode: int
    repeat: int = 0
    factors: tuple[str, ...] = ()
    """Names of the factors that moved; empty for the nominal condition."""
    severity: float = 1.0
    split: str = "eval"
    status: Status
    error_kind: str | None = None
    error: str | None = None
    success: bool | None = None
    """None exactly when the episode errored: unscored is not a failure."""
    progress: float | None = None
    """Last stage reached, 0..1."""
    steps: int | None = None
    success_step: int | None = None
    duration_s: float | None = None
    """Simulated time [s]."""
    instruction: str = ""
    draws: Mapping[str, Any] = field(default_factory=dict)
    """Per factor, the value(s) it took; every number finite."""
    placement: Mapping[str, Any] = field(default_factory=dict)
    reached: Mapping[str, Any] = field(default_factory=dict)
    """Per factor ``{"channel", "verdict", "evidence"}``."""
    behaviour: Mapping[str, float | None] = field(default_factory=dict)
    """``path_length_m``, ``mean_jerk``, ``peak_force_n``, ``unintended_contacts``, ``drops``."""
    observation_hash: str = ""
    state_hash: str = ""
    actions: NDArray[np.float64] | None = None
    """Applied actions, shape (steps, dim); None when there are none or they were not loaded."""

    def __post_init__(self) -> None:
        if self.status not in ("scored", "errored"):
            raise ValueError(f"status must be 'scored' or 'errored', got {self.status!r}")
        if (self.success is None) != (self.status == "errored"):
            raise ValueError(
                f"a {self.status} episode cannot have success={self.success!r}: success is None "
                "exactly when the episode errored"
            )
        if self.actions is not None and self.actions.ndim != 2:
            raise ValueError(f"actions must have shape (steps, dim), got {self.actions.shape}")

    @property
    def key(self) -> EpisodeKey:
        """Identity of this episode."""
        return EpisodeKey(self.scene, self.policy, self.condition, self.episode, self.repeat)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EpisodeRecord):
            return NotImplemented
        return to_row(self) == to_row(other)

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """What one attempt at an episode cost; never the same twice, so kept out of the record."""

    wall_s: float | None = None
    worker: int | None = None
    policy_ms: float | None = None
    render_ms: float | None = None
    physics_ms: float | None = None
    started: str | None = None
    """ISO 8601 time the attempt began."""
    traceback: str | None = None
    decisions: int | None = None
    """Times the policy was asked."""
    latency_ms: float | None = None
    """Mean time that a call took, whatever other episodes shared it."""
    latency_max_ms: float | None = None


EPISODE_COLUMNS: tuple[tuple[str, str], ...] = (
    ("scene", "TEXT NOT NULL"),
    ("policy", "TEXT NOT NULL"),
    ("condition", "TEXT NOT NULL"),
    ("episode", "INTEGER NOT NULL"),
    ("repeat", "INTEGER NOT NULL"),
    ("factors", "TEXT NOT NULL"),
    ("severity", "REAL NOT NULL"),
    ("split", "TEXT NOT NULL"),
    ("status", "TEXT NOT NULL CHECK (status IN ('scored', 'errored'))"),
    ("error_kind", "TEXT"),
    ("error", "TEXT"),
    ("success", "INTEGER CHECK ((success IS NULL) = (status = 'errored'))"),
    ("progress", "REAL"),
    ("steps", "INTEGER"),
    ("success_step", "INTEGER"),
    ("duration_s", "REAL"),
    ("instruction", "TEXT NOT NULL"),
    ("draws", "TEXT NOT NULL"),
    ("placement", "TEXT NOT NULL"),
    ("reached", "TEXT NOT NULL"),
    ("behaviour", "TEXT NOT NULL"),
    ("observation_hash", "TEXT NOT NULL"),
    ("state_hash", "TEXT NOT NULL"),
    ("actions", "BLOB"),
)
"""Name and SQL type of every column of ``episodes``, in order."""

TELEMETRY_COLUMNS: tuple[tuple[str, str], ...] = (
    ("wall_s", "REAL"),
    ("worker", "INTEGER"),
    ("policy_ms", "REAL"),
    ("render_ms", "REAL"),
    ("physics_ms", "REAL"),
    ("started", "TEXT"),
    ("traceback", "TEXT"),
    ("decisions", "INTEGER"),
    ("latency_ms", "REAL"),
    ("latency_max_ms", "REAL"),
)
"""Name and SQL type of the columns of ``telemetry`` after the key and ``attempt``.

New ones are appended; a file that lacks them is read with nulls and extended when written to."""

COLUMN_NAMES = tuple(name for name, _ in EPISODE_COLUMNS)
KEY_COLUMNS = EpisodeKey._fields


def plain(
    value: Any, *, nonfinite: Literal["refuse", "null"] = "refuse", path: str = "value"
) -> Any:
    """Reduce numpy scalars, arrays, tuples and mappings to plain JSON values.

    Args:
        value: Anything made of numbers, strings, booleans, None, sequences and mappings.
        nonfinite: What NaN and infinities become: an error, or null (a measurement that has none).
        path: Where the value stands, for the error message.

    Raises:
        ValueError: A number is not finite and ``nonfinite`` is ``"refuse"``.
        TypeError: Something cannot be written as JSON.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        if math.isfinite(number):
            return number
        if nonfinite == "null":
            return None
        raise ValueError(f"{path} is {number}: records hold finite numbers only")
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), nonfinite=nonfinite, path=path)
    if isinstance(value, Mapping):
        result = {}
        for name, item in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{path} has the key {name!r}: keys must be strings")
            result[name] = plain(item, nonfinite=nonfinite, path=f"{path}.{name}")
        return result
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [
            plain(item, nonfinite=nonfinite, path=f"{path}[{index}]")
            for index, item in enumerate(value)
        ]
    raise TypeError(f"{path} is a {type(value).__name__}, which has no JSON form")


def canonical_json(value: Any, *, nonfinite: Literal["refuse", "null"] = "refuse") -> str:
    """The one JSON text of a value: sorted keys, no spaces, shortest round-trip floats."""
    return json.dumps(
        plain(value, nonfinite=nonfinite),
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )


def _number(value: float | None) -> float | None:
    """A REAL column: NaN means that there was nothing to measure."""
    if value is None or math.isnan(value):
        return None
    return float(value)


def to_row(record: EpisodeRecord) -> tuple[Any, ...]:
    """The row of a record, in the order of :data:`EPISODE_COLUMNS`.

    Draws and placement must be finite, since they are applied again on replay. Evidence and
    behaviour are measurements: a NaN there becomes null.
    """
    actions = None
    if record.actions is not None:
        flat = np.ascontiguousarray(record.actions, dtype="<f8")
        # The shape leads, so that an episode of zero steps keeps its action dimension.
        header = np.asarray(flat.shape, dtype="<u4").tobytes()
        actions = zlib.compress(header + flat.tobytes(), _ZLIB_LEVEL)
    return (
        record.scene,
        record.policy,
        record.condition,
        int(record.episode),
        int(record.repeat),
        canonical_json(list(record.factors)),
        float(record.severity),
        record.split,
        record.status,
        record.error_kind,
        record.error,
        None if record.success is None else int(record.success),
        _number(record.progress),
        None if record.steps is None else int(record.steps),
        None if record.success_step is None else int(record.success_step),
        _number(record.duration_s),
        record.instruction,
        canonical_json(record.draws),
        canonical_json(record.placement),
        canonical_json(record.reached, nonfinite="null"),
        canonical_json(record.behaviour, nonfinite="null"),
        record.observation_hash,
        record.state_hash,
        actions,
    )


def from_row(row: Sequence[Any]) -> EpisodeRecord:
    """The record of a row whose columns are :data:`EPISODE_COLUMNS`."""
    cell = dict(zip(COLUMN_NAMES, row, strict=True))
    for name in ("draws", "placement", "reached", "behaviour"):
        cell[name] = json.loads(cell[name])
    cell["factors"] = tuple(json.loads(cell["factors"]))
    if cell["success"] is not None:
        cell["success"] = bool(cell["success"])
    if cell["actions"] is not None:
        raw = zlib.decompress(cell["actions"])
        shape = tuple(int(size) for size in np.frombuffer(raw[:8], dtype="<u4"))
        flat = np.frombuffer(raw[8:], dtype="<f8").astype(np.float64)
        cell["actions"] = flat.reshape(shape)
    return EpisodeRecord(**cell)
