"""The files of a LeRobotDataset: shared by many episodes in v3.0, one per episode in v2.1."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from robogen.datasets import lerobot_format as fmt
from robogen.datasets.lerobot_columns import frame_rate, typed
from robogen.datasets.schema import DemoEpisode, DemoMeta
from robogen.datasets.statistics import FeatureStatistics
from robogen.datasets.video import Codec, VideoWriter

_MB = 1024**2


class Files(ABC):
    """Writes the tables, videos and episode rows of a dataset; use it in a ``with``.

    Args:
        folder: The dataset's folder.
        meta: Conventions of the episodes.
        described: Features of ``info.json``.
        codec: Of the videos; None when frames are in the tables.

    Attributes:
        lengths: Frames of the episodes so far.
    """

    def __init__(
        self,
        folder: Path,
        meta: DemoMeta,
        described: dict[str, dict[str, Any]],
        *,
        codec: Codec | None,
    ) -> None:
        self.folder = folder
        self.lengths: list[int] = []
        self._cameras = {fmt.IMAGE + camera.name: camera for camera in meta.cameras}
        self._fps = frame_rate(meta)
        self._described = described
        self._codec = codec
        self._stack = ExitStack()
        (folder / "meta").mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Files:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        self._stack.__exit__(kind, error, trace)
        return False

    @abstractmethod
    def add(
        self,
        table: Any,
        episode: DemoEpisode,
        *,
        columns: dict[str, Any],
        statistics: dict[str, FeatureStatistics],
    ) -> None:
        """Write the next episode.

        Args:
            table: Its Arrow table of frames.
            episode: Its arrays.
            columns: Our columns of its row.
            statistics: Its own, by feature.
        """

    @abstractmethod
    def finish(self, tasks: list[str]) -> None:
        """Write what belongs to all episodes."""

    @abstractmethod
    def places(self) -> dict[str, Any]:
        """What ``info.json`` says of where files lie."""

    def _video(self, camera: str, file: Path) -> VideoWriter:
        assert self._codec is not None
        file.parent.mkdir(parents=True, exist_ok=True)
        spec = self._cameras[camera]
        return VideoWriter(
            file, width=spec.width, height=spec.height, fps=self._fps, codec=self._codec
        )

    def _frames(self, camera: str, episode: DemoEpisode) -> Any:
        return episode.images[camera.removeprefix(fmt.IMAGE)]


class _Shared:
    """A file that takes episodes until it is large enough; then comes the next one."""

    def __init__(self) -> None:
        self.chunk, self.number = 0, 0
        self.writer: Any = None
        self.size = 0.0
        """Bytes or seconds so far."""

    def next(self) -> None:
        """Count on."""
        self.number += 1
        if self.number == fmt.CHUNK:
            self.chunk, self.number = self.chunk + 1, 0
        self.writer, self.size = None, 0.0

    @property
    def where(self) -> dict[str, int]:
        """Values of its path template."""
        return {"chunk_index": self.chunk, "file_index": self.number}


class V3Files(Files):
    """Version 3.0."""

    def __init__(
        self,
        folder: Path,
        meta: DemoMeta,
        described: dict[str, dict[str, Any]],
        *,
        codec: Codec | None,
    ) -> None:
        super().__init__(folder, meta, described, codec=codec)
        self._data = _Shared()
        self._videos = {camera: _Shared() for camera in self._cameras} if codec else {}
        self._rows: list[dict[str, Any]] = []
        self._extras: list[dict[str, Any]] = []

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        if self._data.writer is not None:
            self._data.writer.close()
        for shared in self._videos.values():
            if shared.writer is not None:
                self._stack.push(shared.writer)
        return super().__exit__(kind, error, trace)

    def add(
        self,
        table: Any,
        episode: DemoEpisode,
        *,
        columns: dict[str, Any],
        statistics: dict[str, FeatureStatistics],
    ) -> None:
        """Write the next episode."""
        start, length = sum(self.lengths), len(table)
        row: dict[str, Any] = {
            "episode_index": len(self.lengths),
            "tasks": [episode.info.instruction],
            "length": length,
            "dataset_from_index": start,
            "dataset_to_index": start + length,
            "meta/episodes/chunk_index": 0,
            "meta/episodes/file_index": 0,
        }
        row |= {f"data/{name}": value for name, value in self._append(table).items()}
        for camera in self._videos:
            place = self._film(camera, episode)
            row |= {f"videos/{camera}/{name}": value for name, value in place.items()}
        for name, values in statistics.items():
            listed = values.to_json(camera=name in self._cameras)
            row |= {f"stats/{name}/{key}": value for key, value in listed.items()}
        self._rows.append(row)
        self._extras.append(columns)
        self.lengths.append(length)

    def _append(self, table: Any) -> dict[str, int]:
        import pyarrow.parquet as pq

        data = self._data
        if data.writer is not None and data.size + table.nbytes > fmt.DATA_MB * _MB:
            data.writer.close()
            data.next()
        if data.writer is None:
            file = fmt.place(self.folder, fmt.DATA_V3, **data.where)
            file.parent.mkdir(parents=True, exist_ok=True)
            data.writer = pq.ParquetWriter(file, table.schema, compression="snappy")
        data.writer.write_table(table, row_group_size=len(table))
        data.size += table.nbytes
        return data.where

    def _film(self, camera: str, episode: DemoEpisode) -> dict[str, Any]:
        shared, frames = self._videos[camera], self._frames(camera, episode)
        seconds = len(frames) / self._fps
        if shared.writer is not None and (
            shared.size + seconds > fmt.VIDEO_S or _size(shared.writer.file) > fmt.VIDEO_MB * _MB
        ):
            shared.writer.__exit__(None, None, None)
            shared.next()
        if shared.writer is None:
            file = fmt.place(self.folder, fmt.VIDEO_V3, video_key=camera, **shared.where)
            shared.writer = self._video(camera, file)
        start = shared.writer.frames
        for frame in frames:
            shared.writer.write(frame)
        shared.size += seconds
        return {
            **shared.where,
            "from_timestamp": start / self._fps,
            "to_timestamp": shared.writer.frames / self._fps,
        }

    def finish(self, tasks: list[str]) -> None:
        """Write the tables of tasks and episodes."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {name: pa.array([row[name] for row in self._rows]) for name in self._rows[0]}
        for name in dict.fromkeys(name for extras in self._extras for name in extras):
            columns[name] = typed([extras.get(name) for extras in self._extras])
        where = {"chunk_index": 0, "file_index": 0}
        file = fmt.place(
            self.folder,
            f"{fmt.EPISODES_V3}/chunk-{{chunk_index:03d}}/file-{{file_index:03d}}.parquet",
            **where,
        )
        file.parent.mkdir(parents=True)
        pq.write_table(pa.table(columns), file)
        pq.write_table(_tasks(tasks), self.folder / fmt.TASKS_V3)

    def places(self) -> dict[str, Any]:
        """What ``info.json`` says of where files lie."""
        return {
            "data_files_size_in_mb": fmt.DATA_MB,
            "video_files_size_in_mb": fmt.VIDEO_MB,
            "data_path": fmt.DATA_V3,
            "video_path": fmt.VIDEO_V3 if self._videos else None,
        }


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _tasks(tasks: list[str]) -> Any:
    """The table of tasks; the text is its pandas index, where LeRobot looks instructions up."""
    import pyarrow as pa

    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), "task": tasks})
    about = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [
            {
                "name": name, "field_name": name, "pandas_type": kind, "numpy_type": dtype,
                "metadata": None,
            }
            for name, kind, dtype in (
                ("task_index", "int64", "int64"), ("task", "unicode", "object"),
            )
        ],
        "pandas_version": "2.0.0",
    }  # fmt: skip
    return table.replace_schema_metadata({"pandas": json.dumps(about)})


class V2Files(Files):
    """Version 2.1."""

    def __init__(
        self,
        folder: Path,
        meta: DemoMeta,
        described: dict[str, dict[str, Any]],
        *,
        codec: Codec | None,
    ) -> None:
        super().__init__(folder, meta, described, codec=codec)
        self._rows = self._open(fmt.EPISODES_V2)
        self._statistics = self._open(fmt.EPISODES_STATS_V2)

    def _open(self, name: str) -> Any:
        return self._stack.enter_context((self.folder / name).open("w", encoding="utf-8"))

    def add(
        self,
        table: Any,
        episode: DemoEpisode,
        *,
        columns: dict[str, Any],
        statistics: dict[str, FeatureStatistics],
    ) -> None:
        """Write the next episode."""
        import pyarrow.parquet as pq

        number = len(self.lengths)
        where = {"episode_index": number, "episode_chunk": number // fmt.CHUNK}
        file = fmt.place(self.folder, fmt.DATA_V2, **where)
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, file)
        for camera in self._cameras if self._codec else ():
            target = fmt.place(self.folder, fmt.VIDEO_V2, video_key=camera, **where)
            with self._video(camera, target) as writer:
                for frame in self._frames(camera, episode):
                    writer.write(frame)
        row = {
            "episode_index": number,
            "tasks": [episode.info.instruction],
            "length": len(table),
            **columns,
        }
        listed = {
            name: values.to_json(quantiles=False, camera=name in self._cameras)
            for name, values in statistics.items()
        }
        self._line(self._rows, row)
        self._line(self._statistics, {"episode_index": number, "stats": listed})
        self.lengths.append(len(table))

    @staticmethod
    def _line(stream: Any, row: dict[str, Any]) -> None:
        stream.write(json.dumps(row, ensure_ascii=False) + "\n")

    def finish(self, tasks: list[str]) -> None:
        """Write the tasks."""
        with (self.folder / fmt.TASKS_V2).open("w", encoding="utf-8") as stream:
            for number, task in enumerate(tasks):
                self._line(stream, {"task_index": number, "task": task})
        self._rows.flush()
        self._statistics.flush()

    def places(self) -> dict[str, Any]:
        """What ``info.json`` says of where files lie."""
        episodes = len(self.lengths)
        return {
            "total_videos": episodes * len(self._cameras) if self._codec else 0,
            "total_chunks": -(-episodes // fmt.CHUNK),
            "data_path": fmt.DATA_V2,
            "video_path": fmt.VIDEO_V2 if self._cameras and self._codec else None,
        }
