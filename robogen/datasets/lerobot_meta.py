"""The ``meta/`` folder of a LeRobotDataset, read: features, episodes and where their frames lie."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robogen.datasets import lerobot_format as fmt
from robogen.datasets.statistics import FeatureStatistics, merged
from robogen.errors import RecordsError

_BROKEN = (KeyError, TypeError, ValueError, IndexError, AttributeError)


@dataclass(frozen=True, kw_only=True)
class EpisodeRow:
    """What a dataset says about one episode."""

    index: int
    length: int
    """T, in frames."""
    tasks: tuple[str, ...]
    extras: Mapping[str, Any]
    """Columns that are not LeRobot's own, such as ours: ``factors``, ``success``, ``draws``, ..."""
    data: Path
    """Parquet file of its numbers."""
    videos: Mapping[str, tuple[Path, float]] = field(default_factory=dict)
    """Video file by camera, and when the episode begins in it [s]."""


@dataclass(frozen=True, kw_only=True)
class DatasetMeta:
    """Everything under ``meta/``."""

    version: str
    fps: float
    features: Mapping[str, fmt.Feature]
    episodes: tuple[EpisodeRow, ...]
    tasks: tuple[str, ...]
    """By task index."""
    statistics: Mapping[str, FeatureStatistics]
    """Those that the dataset carries."""
    conventions: Mapping[str, Any] | None
    """What robogen says of a dataset that it wrote; None for others."""


def read_meta(folder: Path) -> DatasetMeta:
    """Read ``meta/``.

    Raises:
        RecordsError: It is not a LeRobotDataset of a known version, or is damaged.
    """
    info = _info(folder)
    file = folder / fmt.INFO
    try:
        version = str(info["codebase_version"])
        fps = float(info["fps"])
        features = {
            name: fmt.Feature.from_json(name, data) for name, data in info["features"].items()
        }
        if not fps > 0:
            raise ValueError(f"fps is {fps:g}")
    except _BROKEN as error:
        raise _damaged(file, error) from error
    number = re.fullmatch(r"v?(\d+)\.(\d+)(\.\d+)?", version)
    if number is None or (int(number[1]), int(number[2])) < (2, 0) or int(number[1]) > 3:
        raise RecordsError(
            f"{folder} is a LeRobotDataset of codebase version '{version}'; robogen reads v2.0, "
            "v2.1 and v3.0. Convert it with LeRobot's own scripts, or read it with a newer robogen."
        )
    read = _read_v3 if int(number[1]) == 3 else _read_v2
    episodes, tasks = read(folder, info, features)
    own = folder / fmt.CONVENTIONS
    return DatasetMeta(
        version=f"v{number[1]}.{number[2]}",
        fps=fps,
        features=features,
        episodes=tuple(sorted(episodes, key=lambda row: row.index)),
        tasks=tasks,
        statistics=_statistics(folder),
        conventions=_json(own) if own.exists() else None,
    )


def _info(folder: Path) -> Mapping[str, Any]:
    file = folder / fmt.INFO
    if file.is_file():
        info = _json(file)
        if not isinstance(info, dict):
            raise _damaged(file, "it holds no JSON object")
        return info
    hint = "Give the folder that holds meta/, data/ and videos/."
    if not folder.is_dir():
        hint = "There is no such folder."
    elif (folder / "meta_data").is_dir():
        hint = "It is one of version 1, which robogen does not read; convert it with LeRobot."
    elif (folder / "manifest.json").exists():
        hint = f"It is a study's run folder; 'robogen export {folder} --dataset DIR' makes one."
    elif (folder / "meta.json").exists():
        hint = (
            "It holds demonstrations in robogen's own form alone; run its 'robogen collect' "
            "command again, without format=episodes."
        )
    elif (folder / "robogen" / "meta.json").exists():
        hint = (
            "Its episodes are there but not yet put together; run the same 'robogen' command again."
        )
    raise RecordsError(f"{folder} is no LeRobotDataset: it has no {fmt.INFO}. {hint}")


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(file, error) from error


def _lines(file: Path) -> Iterator[Mapping[str, Any]]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise _damaged(file, error) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise _damaged(file, f"line {number}: {error}") from error
        if not isinstance(row, dict):
            raise _damaged(file, f"line {number} is no JSON object")
        yield row


def parquet(file: Path, columns: list[str] | None = None, filters: Any = None) -> Any:
    """A Parquet file as an Arrow table.

    Raises:
        RecordsError: It is missing, damaged or lacks a column.
    """
    import pyarrow as pa  # here, because training reads datasets and few of them are LeRobot's
    import pyarrow.parquet as pq

    try:
        return (
            pq.ParquetFile(file).read(columns)
            if filters is None
            else pq.read_table(file, columns=columns, filters=filters, partitioning=None)
        )
    except (OSError, pa.ArrowException) as error:
        raise _damaged(file, error) from error


def _damaged(file: Path, why: object) -> RecordsError:
    if isinstance(why, FileNotFoundError):
        return RecordsError(
            f"{file} is missing. Copy or download the whole dataset; robogen needs what {fmt.INFO} "
            "names."
        )
    text = " ".join(str(why).split())
    if isinstance(why, KeyError):
        text = f"{why} is missing"
    return RecordsError(
        f"{file} is damaged or was not written by LeRobot ({text[:300]}). Copy or download the "
        "dataset again."
    )


# -- version 3: tables of many episodes ------------------------------------------------------------


def _read_v3(
    folder: Path, info: Mapping[str, Any], features: Mapping[str, fmt.Feature]
) -> tuple[list[EpisodeRow], tuple[str, ...]]:
    cameras = [name for name, feature in features.items() if feature.dtype == "video"]
    files = sorted((folder / fmt.EPISODES_V3).glob("*/*.parquet"))
    if not files:
        raise _damaged(folder / fmt.EPISODES_V3, "it holds no chunk-000/file-000.parquet")
    rows: list[EpisodeRow] = []
    for file in files:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            there = pq.read_schema(file).names
        except (OSError, pa.ArrowException) as error:
            raise _damaged(file, error) from error
        table = parquet(file, [name for name in there if not name.startswith("stats/")])
        try:
            for row in table.to_pylist():
                rows.append(_row_v3(folder, info, cameras, row))
        except _BROKEN as error:
            raise _damaged(file, error) from error
    file = folder / fmt.TASKS_V3
    try:
        columns = parquet(file).to_pydict()
        numbers = columns.pop("task_index")
        # The text is the index of a pandas table, whose column has no fixed name.
        texts: list[Any] = columns.get("task") or next(iter(columns.values()), [])
        tasks = tuple(text for _, text in sorted(zip(numbers, map(str, texts), strict=True)))
    except _BROKEN as error:
        raise _damaged(file, error) from error
    return rows, tasks


def _row_v3(
    folder: Path, info: Mapping[str, Any], cameras: list[str], row: Mapping[str, Any]
) -> EpisodeRow:
    def located(template: str, prefix: str, **more: str) -> Path:
        return fmt.place(
            folder,
            template,
            chunk_index=row[f"{prefix}/chunk_index"],
            file_index=row[f"{prefix}/file_index"],
            **more,
        )

    return EpisodeRow(
        index=int(row["episode_index"]),
        length=int(row["length"]),
        tasks=tuple(map(str, row.get("tasks") or ())),
        extras={n: value for n, value in row.items() if fmt.is_extra(n) and value is not None},
        data=located(info["data_path"], "data"),
        videos={
            camera: (
                located(info["video_path"], f"videos/{camera}", video_key=camera),
                float(row[f"videos/{camera}/from_timestamp"]),
            )
            for camera in cameras
        },
    )


# -- version 2: a file per episode -----------------------------------------------------------------


def _read_v2(
    folder: Path, info: Mapping[str, Any], features: Mapping[str, fmt.Feature]
) -> tuple[list[EpisodeRow], tuple[str, ...]]:
    cameras = [name for name, feature in features.items() if feature.dtype == "video"]
    rows = []
    for row in _lines(folder / fmt.EPISODES_V2):
        try:
            index = int(row["episode_index"])
            where: dict[str, Any] = {
                "episode_index": index,
                "episode_chunk": index // int(info.get("chunks_size", fmt.CHUNK)),
            }
            rows.append(
                EpisodeRow(
                    index=index,
                    length=int(row["length"]),
                    tasks=tuple(map(str, row.get("tasks") or ())),
                    extras={name: value for name, value in row.items() if fmt.is_extra(name)},
                    data=fmt.place(folder, info["data_path"], **where),
                    videos={
                        camera: (
                            fmt.place(folder, info["video_path"], video_key=camera, **where),
                            0.0,
                        )
                        for camera in cameras
                    },
                )
            )
        except _BROKEN as error:
            raise _damaged(folder / fmt.EPISODES_V2, error) from error
    try:
        named = {int(row["task_index"]): str(row["task"]) for row in _lines(folder / fmt.TASKS_V2)}
    except _BROKEN as error:
        raise _damaged(folder / fmt.TASKS_V2, error) from error
    return rows, tuple(named[index] for index in sorted(named))


# -- statistics ------------------------------------------------------------------------------------


def _statistics(folder: Path) -> dict[str, FeatureStatistics]:
    """Of the whole dataset; those of v2.1 are put together from its episodes' own."""
    whole, single = folder / fmt.STATS, folder / fmt.EPISODES_STATS_V2
    found: dict[str, FeatureStatistics] = {}
    if whole.exists():
        for name, data in _each(whole, _json(whole)):
            found[name] = _one(whole, name, data)
    elif single.exists():
        parts: dict[str, list[FeatureStatistics]] = {}
        for row in _lines(single):
            for name, data in _each(single, row.get("stats")):
                parts.setdefault(name, []).append(_one(single, name, data))
        found = {name: merged(items) for name, items in parts.items()}
    return found


def _each(file: Path, data: Any) -> list[tuple[str, Any]]:
    if not isinstance(data, dict):
        raise _damaged(file, "it holds no statistics by feature")
    return list(data.items())


def _one(file: Path, name: str, data: Any) -> FeatureStatistics:
    try:
        return FeatureStatistics.from_json(data)
    except _BROKEN as error:
        raise _damaged(file, f"feature '{name}': {error!r}") from error
