"""LeRobotDatasets, v3.0 and v2.1, put together from episodes in robogen's own form.

The exact episodes stay beside the dataset; it is made of them in a hidden folder and moved into
place when it is whole, ``meta/`` last. Whatever kills the process leaves either no dataset or a
whole one, and the same call again finishes the work.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from robogen.datasets import lerobot_format as fmt
from robogen.datasets.demos import EXACT, META, DemoDataset
from robogen.datasets.lerobot_columns import conventions, episode_columns, features, frame_rate
from robogen.datasets.lerobot_files import Files, V2Files, V3Files
from robogen.datasets.lerobot_frames import FrameTables
from robogen.datasets.schema import DemoMeta
from robogen.errors import ConfigError, RecordsError, unknown
from robogen.specs import CameraSpec, Orientation

Pictures = Literal["h264", "hevc", "av1", "png"]
"""``png``: exact pictures inside the tables instead of videos."""

_PARTS = ("data", "videos", "meta")
_PARTIAL = ".lerobot.partial"


@dataclass(frozen=True, kw_only=True)
class LeRobotForm:
    """Which form a dataset takes."""

    layout: fmt.Layout = "v3.0"
    codec: Pictures = "h264"

    def __post_init__(self) -> None:
        for what, value, kinds in (
            ("dataset layout", self.layout, fmt.Layout),
            ("codec", self.codec, Pictures),
        ):
            if value not in get_args(kinds):
                raise ConfigError(unknown(what, str(value), get_args(kinds)))

    def check(self, cameras: tuple[CameraSpec, ...]) -> None:
        """Refuse pictures that a video cannot hold.

        Raises:
            ConfigError: A camera's width or height is odd.
        """
        for camera in cameras:
            if self.codec != "png" and (camera.width % 2 or camera.height % 2):
                raise ConfigError(
                    f"Camera '{camera.name}' is {camera.width} x {camera.height} pixels; videos "
                    "need an even width and height. Choose another size, or codec=png."
                )


def episodes_folder(out: Path, *, alone: bool = False) -> Path:
    """Where a dataset's exact episodes lie: in ``robogen/``, or beside its ``meta/`` in old ones.

    Args:
        out: The dataset's folder, which need not exist.
        alone: Whether a new one gets no LeRobotDataset.

    Raises:
        RecordsError: The folder holds somebody else's dataset.
    """
    inner = out / EXACT
    if (out / META).exists():
        return out
    if (inner / META).exists():
        return inner
    there = [part for part in _PARTS if (out / part).exists()]
    if there:
        raise RecordsError(
            f"{out} already holds {', '.join(there)}, but not robogen's exact episodes "
            f"({EXACT}/{META}), so they would be overwritten. Choose another folder."
        )
    return out if alone else inner


def assemble(
    source: DemoDataset,
    out: Path,
    form: LeRobotForm,
    *,
    orientation: Orientation,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> bool:
    """Make the LeRobotDataset of some episodes; False when it is already there.

    Args:
        source: Exact episodes.
        out: The dataset's folder, see :func:`episodes_folder`.
        form: Version and codec.
        orientation: How the frames are turned.
        progress: Called with (episodes done, total).

    Raises:
        RecordsError: The disk refused, or an episode is damaged.
    """
    form.check(source.meta.cameras)
    fingerprint = _fingerprint(source, form)
    if _made_of(out) == fingerprint:
        return False
    if not len(source):
        raise RecordsError(f"{source.folder} holds no episodes, so there is no dataset to make.")
    partial = out / _PARTIAL
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _build(source, partial, form, orientation, fingerprint, progress)
        _sync(partial)
        _swap(partial, out)
    except OSError as error:
        raise RecordsError(
            f"Cannot write the dataset {out} ({error.strerror or error}). Its exact episodes are "
            f"safe in {source.folder}; free some space and run the same command again."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return True


def _fingerprint(source: DemoDataset, form: LeRobotForm) -> str:
    state = hashlib.blake2b(digest_size=16)
    meta = source.meta.to_json()
    del meta["command"]
    state.update(json.dumps([form.layout, form.codec, meta], sort_keys=True).encode())
    for index in source.indices:
        state.update(source.checksum(index))
    return state.hexdigest()


def _made_of(out: Path) -> str | None:
    """Fingerprint of the dataset that is there."""
    try:
        data = json.loads((out / fmt.CONVENTIONS).read_text(encoding="utf-8"))
        if not (out / fmt.INFO).exists():
            return None
        return str(data["source"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sync(folder: Path) -> None:
    """Have everything on the disk, not only on its way there, before it gets its name."""
    for path in folder.rglob("*"):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _swap(partial: Path, out: Path) -> None:
    """Put new parts in the place of old ones; without ``meta/`` there is no dataset."""
    for part in reversed(_PARTS):
        if (out / part).exists():
            (out / part).rename(partial / f"old-{part}")
    for part in _PARTS:
        if (partial / part).exists():
            (partial / part).rename(out / part)


def _build(
    source: DemoDataset,
    folder: Path,
    form: LeRobotForm,
    orientation: Orientation,
    fingerprint: str,
    progress: Callable[[int, int], None],
) -> None:
    meta = source.meta
    described = features(meta, form.codec)
    tables = FrameTables(meta, described, pictures=form.codec == "png")
    files: Files
    with (V3Files if form.layout == "v3.0" else V2Files)(
        folder, meta, described, codec=None if form.codec == "png" else form.codec
    ) as files:
        for number, index in enumerate(source.indices):
            progress(number, len(source))
            episode = source.read(index)
            table, statistics = tables.episode(number, episode)
            files.add(
                table,
                episode,
                columns=episode_columns(meta, episode.info),
                statistics=statistics,
            )
        files.finish(tables.tasks)
    progress(len(source), len(source))
    _json(folder / fmt.STATS, tables.statistics())
    about = conventions(meta, orientation)
    _json(folder / fmt.CONVENTIONS, {**about, "codec": form.codec, "source": fingerprint})
    _json(folder / fmt.INFO, _info(meta, described, files, tables, form))


def _info(
    meta: DemoMeta,
    described: dict[str, dict[str, Any]],
    files: Files,
    tables: FrameTables,
    form: LeRobotForm,
) -> dict[str, Any]:
    episodes = len(files.lengths)
    return {
        "codebase_version": form.layout,
        "robot_type": "robogen",
        "total_episodes": episodes,
        "total_frames": sum(files.lengths),
        "total_tasks": len(tables.tasks),
        "chunks_size": fmt.CHUNK,
        "fps": frame_rate(meta),
        "splits": {"train": f"0:{episodes}"},
        **files.places(),
        "features": described,
    }


def _json(file: Path, data: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(data, indent=4, ensure_ascii=False) + "\n", encoding="utf-8")
