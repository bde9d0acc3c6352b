"""Tables of frames: an episode's arrays as the columns of a LeRobotDataset, with statistics."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from robogen.datasets import lerobot_format as fmt
from robogen.datasets.lerobot_columns import frame_rate
from robogen.datasets.schema import DemoEpisode, DemoMeta
from robogen.datasets.statistics import FeatureStatistics, merged, of_frames, of_values

Statistics = dict[str, FeatureStatistics]


class FrameTables:
    """Turns episodes into tables, one after the other; keeps what the whole dataset needs.

    Args:
        meta: Conventions of the episodes.
        described: Features of ``info.json``.
        pictures: Whether frames go into the tables, as PNG.

    Attributes:
        tasks: Instructions so far, by task index.
    """

    def __init__(
        self, meta: DemoMeta, described: dict[str, dict[str, Any]], *, pictures: bool
    ) -> None:
        self._fps = frame_rate(meta)
        self._features = described
        self._pictures = pictures
        self._frames = 0
        self.tasks: list[str] = []
        self._numbers: dict[str, list[NDArray[Any]]] = {}
        self._cameras: dict[str, list[FeatureStatistics]] = {}

    def episode(self, number: int, episode: DemoEpisode) -> tuple[Any, Statistics]:
        """An episode's Arrow table, and its own statistics by feature.

        Args:
            number: Its index in the dataset.
            episode: Its arrays.
        """
        import pyarrow as pa

        length, info = episode.info.length, episode.info
        if info.instruction not in self.tasks:
            self.tasks.append(info.instruction)
        steps = np.arange(length)
        last = steps == length - 1
        reached = last & info.success
        columns: dict[str, NDArray[Any]] = {
            fmt.STATE: episode.state,
            fmt.ACTION: episode.action,
            "next.reward": reached.astype(np.float32),
            "next.done": last,
            "next.success": reached,
            "timestamp": (steps / self._fps).astype(np.float32),
            "frame_index": steps,
            "episode_index": np.full(length, number),
            "index": self._frames + steps,
            "task_index": np.full(length, self.tasks.index(info.instruction)),
        }
        self._frames += length
        statistics: Statistics = {}
        arrow: dict[str, Any] = {}
        for name, feature in self._features.items():
            if name.startswith(fmt.IMAGE):
                frames = episode.images[name.removeprefix(fmt.IMAGE)]
                statistics[name] = of_frames(frames)
                self._cameras.setdefault(name, []).append(statistics[name])
                if self._pictures:
                    arrow[name] = _pictures(frames)
                continue
            values = columns[name]
            statistics[name] = of_values(values)
            self._numbers.setdefault(name, []).append(values)
            arrow[name] = _column(values, feature["dtype"])
        return pa.table(arrow), statistics

    def statistics(self) -> dict[str, Any]:
        """What ``stats.json`` says: exact for numbers, of sampled frames for cameras."""
        exact = {name: of_values(np.concatenate(parts)) for name, parts in self._numbers.items()}
        found = {name: values.to_json() for name, values in exact.items()}
        for name, parts in self._cameras.items():
            found[name] = merged(parts).to_json(camera=True)
        return {name: found[name] for name in self._features}


def _column(values: NDArray[Any], dtype: str) -> Any:
    """An Arrow column; vectors of several numbers become lists of fixed size."""
    import pyarrow as pa

    kind = pa.bool_() if dtype == "bool" else pa.type_for_alias(dtype)
    flat = pa.array(np.ascontiguousarray(values).reshape(-1), type=kind)
    size = values.size // len(values)
    return flat if size == 1 else pa.FixedSizeListArray.from_arrays(flat, size)


def _pictures(frames: NDArray[np.uint8]) -> Any:
    import pyarrow as pa

    def encoded(frame: NDArray[np.uint8]) -> bytes:
        with io.BytesIO() as stream:
            Image.fromarray(frame).save(stream, format="PNG")
            return stream.getvalue()

    cells = [
        {"bytes": encoded(frame), "path": f"frame-{number:06d}.png"}
        for number, frame in enumerate(frames)
    ]
    return pa.array(cells, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
