"""Existing LeRobotDatasets, ours and anybody's, read without LeRobot: v3.0, v2.1 and v2.0.

::

    dataset = LeRobotDataset("path/to/dataset")
    dataset.fps, dataset.cameras, dataset.tasks
    for row in dataset.episodes:
        actions = dataset.numeric("action", row.index)  # (T, A)
        frames = dataset.frames("observation.images.front", row.index, [0, -1])
    dataset.statistics("action").mean
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from robogen.datasets import video
from robogen.datasets.lerobot_format import Feature
from robogen.datasets.lerobot_meta import EpisodeRow, parquet, read_meta
from robogen.datasets.statistics import FeatureStatistics, merged, of_frames, of_values, sampled
from robogen.errors import ConfigError, RecordsError, unknown

_TABLES_KEPT = 8
_MOST_SAMPLED = 64
"""Episodes whose frames go into the statistics of a camera that has none."""


class LeRobotDataset:
    """Reads a dataset folder.

    Args:
        folder: The folder that holds ``meta/``, ``data/`` and, perhaps, ``videos/``.

    Attributes:
        version: Codebase version: ``v3.0``, ``v2.1`` or ``v2.0``.
        fps: Frame rate [Hz].
        features: Columns of the frames by name.
        episodes: What is known of each episode, ascending by index.
        tasks: Instructions by task index.
        conventions: Action spec, state parts and the like of a dataset that robogen wrote, None for
            others.

    Raises:
        RecordsError: It is no dataset, of an unknown version, or damaged.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        meta = read_meta(self.folder)
        self.version: str = meta.version
        self.fps: float = meta.fps
        self.features: Mapping[str, Feature] = meta.features
        self.episodes: tuple[EpisodeRow, ...] = meta.episodes
        self.tasks: tuple[str, ...] = meta.tasks
        self.conventions: Mapping[str, Any] | None = meta.conventions
        self._statistics = meta.statistics
        self._rows = {row.index: row for row in meta.episodes}
        self._columns: dict[tuple[Path, str], tuple[NDArray[np.int64], NDArray[Any]]] = {}

    def __len__(self) -> int:
        return len(self.episodes)

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the features that hold pictures."""
        return tuple(name for name, feature in self.features.items() if feature.is_camera)

    @property
    def frames_total(self) -> int:
        """Frames of all episodes."""
        return sum(row.length for row in self.episodes)

    def episode(self, index: int) -> EpisodeRow:
        """One episode's row.

        Raises:
            RecordsError: There is no such episode.
        """
        if index not in self._rows:
            have = f"{len(self)} episodes" + (
                f", {self.episodes[0].index} to {self.episodes[-1].index}" if self.episodes else ""
            )
            raise RecordsError(
                f"{self.folder} has no episode {index}; it has {have}. Choose one of those."
            )
        return self._rows[index]

    def feature(self, name: str) -> Feature:
        """A feature by name.

        Raises:
            ConfigError: There is no such feature.
        """
        if name not in self.features:
            raise ConfigError(
                unknown("feature", name, self.features, f"Choose one of {self.folder}.")
            )
        return self.features[name]

    # -- numbers -----------------------------------------------------------------------------------

    def numeric(self, feature: str, episode: int) -> NDArray[Any]:
        """A numeric feature over an episode.

        Returns:
            (T, D): float32 for any floating type, else as stored (int64, bool, ...).

        Raises:
            ConfigError: There is no such feature, or it is text or pictures.
            RecordsError: There is no such episode, or its table is damaged.
        """
        item, row = self.feature(feature), self.episode(episode)
        if item.is_camera or item.dtype in ("string", "language"):
            raise ConfigError(
                f"Feature '{feature}' holds {'pictures' if item.is_camera else 'text'}, not "
                f"numbers. Numeric are: {', '.join(self._numeric_names())}."
            )
        indices, values = self._column(row.data, feature)
        found: NDArray[Any] = values[indices == episode]
        if len(found) != row.length:
            raise RecordsError(
                f"{row.data} holds {len(found)} frames of episode {episode}, which has {row.length}"
                " according to meta/. Copy or download the dataset again."
            )
        return found

    def _numeric_names(self) -> list[str]:
        text = ("string", "language")
        return [n for n, f in self.features.items() if not f.is_camera and f.dtype not in text]

    def _column(self, file: Path, name: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Episode index and value of every frame of a file."""
        if (file, name) not in self._columns:
            table = parquet(file, ["episode_index", name])
            if name not in table.column_names or "episode_index" not in table.column_names:
                raise RecordsError(
                    f"{file} has no column '{name}', which meta/info.json names. Copy or download "
                    "the dataset again."
                )
            while len(self._columns) >= _TABLES_KEPT:
                self._columns.pop(next(iter(self._columns)))
            self._columns[file, name] = (
                table.column("episode_index").to_numpy(),
                _array(table.column(name), file, name),
            )
        return self._columns[file, name]

    # -- statistics --------------------------------------------------------------------------------

    def statistics(self, feature: str, *, exact: bool = False) -> FeatureStatistics:
        """Mean, spread, range and quantiles of a feature.

        Args:
            feature: Its name.
            exact: From the frames themselves, even where the dataset carries numbers (whose
                quantiles are usually averages over episodes). Cameras are sampled.

        Raises:
            ConfigError: There is no such feature, or it is text.
            RecordsError: A file that is needed is missing or damaged.
        """
        item = self.feature(feature)
        if feature in self._statistics and not exact:
            return self._statistics[feature]
        if not self.episodes:
            raise RecordsError(f"{self.folder} has no episodes, and so no statistics.")
        if item.is_camera:
            chosen = np.linspace(0, len(self) - 1, min(len(self), _MOST_SAMPLED)).round()
            rows = [self.episodes[int(number)] for number in chosen]
            return merged(
                [of_frames(self.frames(feature, row.index, sampled(row.length))) for row in rows]
            )
        return of_values(np.concatenate([self.numeric(feature, r.index) for r in self.episodes]))

    # -- pictures ----------------------------------------------------------------------------------

    def frames(
        self, camera: str, episode: int, indices: Sequence[int] | NDArray[np.int64] | None = None
    ) -> NDArray[np.uint8]:
        """Frames of an episode as a camera saw them.

        Args:
            camera: Name of a feature, such as ``observation.images.front``.
            episode: Which episode.
            indices: Frames of the episode, in any order, negative ones from its end; None: all.

        Returns:
            (len(indices), H, W, 3) RGB uint8.

        Raises:
            ConfigError: There is no such camera or frame.
            RecordsError: There is no such episode, or a file is missing or damaged.
        """
        item, row = self.feature(camera), self.episode(episode)
        if not item.is_camera or item.depth:
            raise ConfigError(
                f"Feature '{camera}' is {'a depth map' if item.depth else 'no camera'}. Cameras: "
                f"{', '.join(self.cameras) or 'none'}."
            )
        asked = list(range(row.length)) if indices is None else [int(i) for i in indices]
        for index in asked:
            if not -row.length <= index < row.length:
                raise ConfigError(
                    f"Episode {episode} has no frame {index}; it has {row.length}, counted from 0."
                )
        wanted = [index % row.length for index in asked]
        if not wanted:
            return np.empty((0, 0, 0, 3), np.uint8)
        read = self._from_video if item.dtype == "video" else self._from_table
        kept = dict.fromkeys(wanted)
        first, last = min(wanted), max(wanted)
        shown = {
            index: frame
            for index, frame in enumerate(read(camera, row, first, last), start=first)
            if index in kept
        }
        return np.stack([shown[index] for index in wanted])

    def _from_video(
        self, camera: str, row: EpisodeRow, first: int, last: int
    ) -> Iterator[NDArray[np.uint8]]:
        file, start = row.videos[camera]
        return video.read(
            file, start_s=start + first / self.fps, count=last - first + 1, fps=self.fps
        )

    def _from_table(
        self, camera: str, row: EpisodeRow, first: int, last: int
    ) -> Iterator[NDArray[np.uint8]]:
        table = parquet(row.data, [camera], [("episode_index", "=", row.index)])
        if camera not in table.column_names or len(table) != row.length:
            raise RecordsError(
                f"{row.data} does not hold the {row.length} pictures '{camera}' of episode "
                f"{row.index}. Copy or download the dataset again."
            )
        for cell in table.column(camera).slice(first, last - first + 1).to_pylist():
            try:
                content = cell["bytes"] if isinstance(cell, dict) else cell
                with Image.open(io.BytesIO(content)) as picture:
                    yield np.asarray(picture.convert("RGB"))
            except (OSError, KeyError, TypeError, UnidentifiedImageError) as error:
                raise RecordsError(
                    f"A picture '{camera}' of episode {row.index} in {row.data} cannot be decoded "
                    f"({error}). Copy or download the dataset again."
                ) from error


def _array(column: Any, file: Path, name: str) -> NDArray[Any]:
    """A column as (rows, D); fixed and variable lists are flattened."""
    import pyarrow as pa

    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # an empty column stays in pieces
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    rows = len(values)
    while isinstance(values, pa.ExtensionArray):
        values = values.storage
    while pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        values = values.flatten()
    array = values.to_numpy(zero_copy_only=False)
    if array.dtype == object or (rows and array.size % rows):
        raise RecordsError(
            f"Column '{name}' of {file} holds {values.type} of varying size, or nothing in places. "
            "robogen reads numbers only; choose another feature."
        )
    if np.issubdtype(array.dtype, np.floating):
        array = array.astype(np.float32)
    return array.reshape(rows, -1) if rows else np.empty((0, 0), array.dtype)
