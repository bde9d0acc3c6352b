"""A folder of demonstrations: ``meta.json`` and one compressed ``episode_000123.npz`` per episode.

Episodes appear by renaming, so a killed collection leaves only whole files and the next run
continues after them. Files hold arrays and JSON, never pickles.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from robogen.datasets.schema import DemoEpisode, DemoMeta, EpisodeInfo
from robogen.errors import RecordsError

META = "meta.json"
EXACT = "robogen"
"""Folder in a LeRobotDataset that holds the exact episodes it was made of."""
_INFO = "info.json"
_EPISODE = re.compile(r"episode_(\d{6,})\.npz")
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, KeyError, TypeError, ValueError, NotImplementedError,
)  # fmt: skip


def _replace(path: Path, content: bytes) -> None:
    """Write a file that is either whole or not there."""
    partial = path.with_name(f".{path.name}.tmp")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise RecordsError(
            f"Cannot write {path} ({error.strerror or error}). Episodes written before are whole; "
            "free some space or choose a folder you may write to, and run the same command again."
        ) from error


def _encode(episode: DemoEpisode) -> bytes:
    """The episode as npz bytes, a function of its content alone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:

        def add(name: str, content: bytes) -> None:
            # A fixed date: equal episodes give equal files.
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content, compresslevel=1)

        add(_INFO, episode.info.to_text().encode())
        for name, array in episode.arrays().items():
            with io.BytesIO() as raw:
                np.lib.format.write_array(raw, np.ascontiguousarray(array), allow_pickle=False)
                add(f"{name}.npy", raw.getvalue())
    return buffer.getvalue()


def _read_meta(folder: Path) -> DemoMeta:
    file = folder / META
    try:
        return DemoMeta.from_json(json.loads(file.read_text()))
    except FileNotFoundError as error:
        raise RecordsError(
            f"{folder} holds no demonstrations: it has no {META}. Give a folder that "
            "`robogen collect` wrote."
        ) from error
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise RecordsError(
            f"{file} does not describe a demonstration dataset ({error}). Give a folder that "
            "`robogen collect` of this version wrote, or collect it again."
        ) from error


def _indices(folder: Path) -> tuple[int, ...]:
    matches = (_EPISODE.fullmatch(entry.name) for entry in folder.iterdir())
    return tuple(sorted(int(found[1]) for found in matches if found))


def _file(folder: Path, index: int) -> Path:
    return folder / f"episode_{index:06d}.npz"


class DemoWriter:
    """Adds episodes to a dataset folder, making the folder if it is not there.

    Args:
        folder: Where the dataset lies.
        meta: Its conventions. A folder begun with other ones is refused; only ``command`` may
            differ.

    Raises:
        RecordsError: The folder holds another dataset, or cannot be written.
    """

    def __init__(self, folder: Path | str, meta: DemoMeta) -> None:
        self.folder = Path(folder)
        self.meta = meta
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordsError(
                f"Cannot make the dataset folder {self.folder} ({error.strerror or error}). "
                "Choose a folder you may write to."
            ) from error
        if (self.folder / META).exists():
            self._check_same(_read_meta(self.folder))
        else:
            content = json.dumps(meta.to_json(), indent=2) + "\n"
            _replace(self.folder / META, content.encode())

    def _check_same(self, found: DemoMeta) -> None:
        old, new = found.to_json(), self.meta.to_json()
        differing = [
            f"{key} was {json.dumps(old[key])} and is now {json.dumps(new[key])}"
            for key in new
            if key != "command" and old[key] != new[key]
        ]
        if differing:
            raise RecordsError(
                f"{self.folder} already holds other demonstrations: {'; '.join(differing)}. "
                "Collect into another folder, or remove this one to start again."
            )

    def has(self, index: int) -> bool:
        """Whether an episode is already on disk."""
        return _file(self.folder, index).exists()

    def missing(self, indices: Iterable[int]) -> list[int]:
        """Those of ``indices`` that still have to be collected, in their order."""
        present = set(_indices(self.folder))
        return [index for index in indices if index not in present]

    def write(self, episode: DemoEpisode) -> bool:
        """Put an episode on disk; returns False, and writes nothing, when it is already there.

        Raises:
            RecordsError: The disk refused.
            ValueError: The episode's arrays do not fit the dataset's conventions.
        """
        if self.has(episode.info.index):
            return False
        problems = episode.problems(self.meta)
        if problems:
            raise ValueError(f"episode {episode.info.index}: {'; '.join(problems)}")
        _replace(_file(self.folder, episode.info.index), _encode(episode))
        return True


class DemoDataset:
    """Reads a dataset folder.

    Args:
        folder: Where the dataset lies; a LeRobotDataset's folder does too, when it keeps the exact
            episodes beside it.

    Attributes:
        folder: Where the episodes lie.
        meta: Conventions of all episodes.
        indices: Episode indices on disk, ascending.

    Raises:
        RecordsError: The folder holds no dataset, or one of another schema version.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        if not (self.folder / META).exists() and (self.folder / EXACT / META).exists():
            self.folder /= EXACT
        self.meta = _read_meta(self.folder)
        self.indices = _indices(self.folder)

    def __len__(self) -> int:
        return len(self.indices)

    def info(self, index: int) -> EpisodeInfo:
        """Metadata of one episode, without reading its frames."""
        file = self._file(index)
        try:
            with zipfile.ZipFile(file) as archive:
                return EpisodeInfo.from_text(archive.read(_INFO).decode())
        except _DAMAGE as error:
            raise self._damaged(file, str(error)) from error

    def checksum(self, index: int) -> bytes:
        """Tells whether an episode's file is another one, without reading its frames."""
        file = self._file(index)
        try:
            with zipfile.ZipFile(file) as archive:
                parts = [(item.filename, item.CRC, item.file_size) for item in archive.infolist()]
        except _DAMAGE as error:
            raise self._damaged(file, str(error)) from error
        return f"{index}{sorted(parts)}".encode()

    def read(self, index: int) -> DemoEpisode:
        """One episode, checked against the dataset's conventions.

        Raises:
            RecordsError: There is no such episode, or its file is damaged.
        """
        file = self._file(index)
        try:
            with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
                info = EpisodeInfo.from_text(bytes(archive[_INFO]).decode())
                names = [name for name in archive.files if name != _INFO]
                arrays = {name: archive[name] for name in names}
            images = {
                name.removeprefix("images."): arrays.pop(name)
                for name in names
                if name.startswith("images.")
            }
            episode = DemoEpisode(images=images, info=info, **arrays)
            problems = episode.problems(self.meta)
        except _DAMAGE as error:
            raise self._damaged(file, str(error)) from error
        if info.index != index:
            problems.append(f"it says it is episode {info.index}")
        if problems:
            raise self._damaged(file, "; ".join(problems))
        return episode

    def _file(self, index: int) -> Path:
        file = _file(self.folder, index)
        if not file.exists():
            have = f"{len(self)} episodes" + (
                f", {self.indices[0]} to {self.indices[-1]}" if self.indices else ""
            )
            raise RecordsError(
                f"{self.folder} has no episode {index}; it has {have}. Choose one of those, or "
                "collect more."
            )
        return file

    @staticmethod
    def _damaged(file: Path, why: str) -> RecordsError:
        return RecordsError(
            f"{file} is damaged or was not written by robogen ({why}). Remove it and run the same "
            "`robogen collect` command again; it collects only what is missing."
        )
