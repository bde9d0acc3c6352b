"""What is fixed by the LeRobotDataset formats v2.0, v2.1 and v3.0: names, places, columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

Layout = Literal["v3.0", "v2.1"]
"""Forms that are written; v2.0 is read too."""

INFO = "meta/info.json"
STATS = "meta/stats.json"
CONVENTIONS = "meta/robogen.json"
"""Ours, in a file of its own: newer LeRobots warn of keys they do not know in ``info.json``."""
EPISODES_V3 = "meta/episodes"
TASKS_V3 = "meta/tasks.parquet"
EPISODES_V2 = "meta/episodes.jsonl"
EPISODES_STATS_V2 = "meta/episodes_stats.jsonl"
TASKS_V2 = "meta/tasks.jsonl"
DATA_V3 = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_V3 = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
DATA_V2 = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
VIDEO_V2 = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"

CHUNK = 1000
"""Most files of a folder (v3), or episodes of a chunk (v2)."""
DATA_MB, VIDEO_MB = 100, 200
"""Size after which LeRobot begins another file (v3)."""
VIDEO_S = 1000.0
"""Length after which we do, too: LeRobot compares times as float32 with a tolerance of 0.1 ms,
which beyond 1024 s is as fine as those numbers get."""

STATE = "observation.state"
IMAGE = "observation.images."
ACTION = "action"

INDEX_COLUMNS: Mapping[str, str] = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
"""Columns that every dataset has, with their types."""
_OWN_EPISODE_COLUMNS = frozenset(
    {"episode_index", "tasks", "length", "dataset_from_index", "dataset_to_index"}
)
_OWN_PREFIXES = ("stats/", "videos/", "data/", "meta/")


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A column of a dataset's frames."""

    name: str
    dtype: str
    """``float32``, ``int64``, ``bool``, ``string``, ..., or ``video`` or ``image``."""
    shape: tuple[int, ...]
    names: Any = None
    """Names of the numbers, in whatever form the dataset has them."""
    depth: bool = False
    """Whether it is a depth map instead of a picture."""

    @property
    def is_camera(self) -> bool:
        """Whether it holds pictures."""
        return self.dtype in ("video", "image")

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of a vector's numbers, where the dataset tells one each."""
        names = self.names
        if isinstance(names, Mapping) and len(names) == 1:
            names = next(iter(names.values()))
        if isinstance(names, Mapping):
            names = list(names)
        size = 1
        for length in self.shape:
            size *= length
        if not isinstance(names, Sequence) or isinstance(names, str) or len(names) != size:
            return None
        return tuple(str(name) for name in names)

    @classmethod
    def from_json(cls, name: str, data: Mapping[str, Any]) -> Feature:
        """A feature of ``info.json``; raises KeyError, TypeError or ValueError on other data."""
        info = {**(data.get("video_info") or {}), **(data.get("info") or {})}
        return cls(
            name=name,
            dtype=str(data["dtype"]),
            shape=tuple(int(size) for size in data["shape"]),
            names=data.get("names"),
            depth=bool(info.get("video.is_depth_map") or info.get("is_depth_map")),
        )


def is_extra(column: str) -> bool:
    """Whether a column of the episodes' table is somebody's own."""
    return column not in _OWN_EPISODE_COLUMNS and not column.startswith(_OWN_PREFIXES)


def place(folder: Path, template: str, **values: int | str) -> Path:
    """File behind a path template of ``info.json``.

    Raises:
        ValueError: It names other values, or leads out of the folder.
    """

    def fill(found: re.Match[str]) -> str:
        name, digits = found.groups()
        if name not in values:
            raise ValueError(f"'{template}' needs '{name}'")
        value = values[name]
        return str(value) if digits is None else f"{int(value):0{int(digits)}d}"

    text = re.sub(r"\{(\w+)(?::0(\d)d)?\}", fill, template)
    path = PurePosixPath(text)
    if "{" in text or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"'{template}' is not a place in the dataset")
    return folder / path
