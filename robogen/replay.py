"""Recorded episodes run again: compared with their records, and filmed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from robogen.errors import ConfigError, RecordsError
from robogen.perturbations.engine import Perturbation
from robogen.perturbations.library import Condition
from robogen.records.manifest import read_manifest
from robogen.records.reader import read_records
from robogen.records.schema import EpisodeKey, EpisodeRecord, plain
from robogen.report.load import load_run
from robogen.rollout.rerun import Moment, Rerun, rerun
from robogen.scenes.base import Scene
from robogen.scenes.load import load_scene
from robogen.seeding import EpisodeSeed
from robogen.specs import ActionSpec, CameraSpec, canonical
from robogen.stats import GroupSummary
from robogen.study.config import StudyConfig
from robogen.study.design import Design, build_factor, build_perturbation, factor_identity

SIDE = 256
"""Edge of a camera's picture in a video [px]."""
FRAMES_PER_S = 20.0
"""A faster control rate is thinned out to about this."""
CAPTION = 32
"""Height of the strip below [px]."""
_INK, _PAPER = (235, 235, 235), (24, 24, 27)
_GREEN, _RED = (110, 220, 120), (240, 120, 110)


class Replayed(NamedTuple):
    """How a rerun compares with its record."""

    record: EpisodeRecord
    rerun: Rerun
    differences: tuple[str, ...]
    """What differs, one phrase each; none when identical."""


class Stored(NamedTuple):
    """What a run folder says about one episode, enough to run it again without its policy."""

    record: EpisodeRecord
    config: StudyConfig
    condition: Condition
    action: ActionSpec
    cameras: tuple[str, ...]
    """The policy's cameras, none for a policy without any."""
    extra_dirs: tuple[Path, ...]
    manifest: Mapping[str, Any]

    @property
    def perturbation(self) -> Perturbation:
        """The condition's factors."""
        factors = {
            name: build_factor(self.config, name, self.extra_dirs)
            for name in self.condition.factors
        }
        return build_perturbation(self.config, self.condition, factors)

    @property
    def seed(self) -> EpisodeSeed:
        """The episode's seed."""
        return EpisodeSeed(
            domain="evaluate",
            study=self.config.seed,
            scene=self.record.scene,
            episode=self.record.episode,
        )


def parse_key(text: str) -> EpisodeKey:
    """The key behind ``scene/policy/condition/episode`` with an optional ``/repeat``.

    Raises:
        ConfigError: It has another form.
    """
    parts = text.split("/")
    names = [*parts]
    while names and names[-1].isdigit() and len(parts) - len(names) < 2:
        names.pop()
    # Four names: a scene may be family/task.
    if len(names) not in (3, 4) or names == parts or any(map(str.isdigit, names)):
        raise ConfigError(
            f"Got the episode '{text}', expected scene/policy/condition/episode, such as "
            "pick/bc/camera_pose/7. 'robogen export RUN' lists every episode."
        )
    *scene, policy, condition = names
    numbers = [int(part) for part in parts[len(names) :]]
    return EpisodeKey("/".join(scene), policy, condition, *numbers)


# -- one episode -----------------------------------------------------------------------------------


def stored_episode(run_dir: Path, key: EpisodeKey, extra_dirs: tuple[Path, ...] = ()) -> Stored:
    """Find an episode and what it takes to run it again.

    Args:
        run_dir: The study's folder.
        key: Which episode.
        extra_dirs: Configuration folders; those of the study when empty.

    Raises:
        RecordsError: There is no such episode, or see :func:`described`.
    """
    return described(read_records(run_dir).episode(key), read_manifest(run_dir), extra_dirs)


def described(
    record: EpisodeRecord, manifest: Mapping[str, Any], extra_dirs: tuple[Path, ...] = ()
) -> Stored:
    """A record with its actions, and what the manifest says of it.

    Raises:
        RecordsError: There are no actions, or the manifest does not say enough.
    """
    key = record.key
    if record.actions is None:
        why = f": {record.error_kind}: {record.error}" if record.error else ""
        raise RecordsError(
            f"Episode {'/'.join(map(str, key[:4]))} executed no action{why}. Choose another one."
        )
    try:
        study = dict(manifest["study"])
        spec = manifest["policies"][key.policy][key.scene]["spec"]
        entry = next(item for item in manifest["conditions"] if item["id"] == key.condition)
        config = StudyConfig(**study)
        condition = Condition(
            factors=tuple(entry["factors"]),
            severity=entry["severity"],
            split=entry["split"],
            everything=key.condition.partition("@")[0].partition(":")[0] == "all",
        )
        action = canonical(ActionSpec(**spec["action"]))
        cameras = tuple(camera["name"] for camera in spec["observation"]["cameras"])
    except (KeyError, TypeError, StopIteration) as error:
        raise RecordsError(
            f"The manifest does not describe episode {'/'.join(map(str, key[:4]))} ({error!r}). "
            "Replay it with the version of robogen that wrote it: "
            f"{manifest.get('versions', {}).get('robogen', 'unknown')}."
        ) from error
    folders = extra_dirs or tuple(Path(folder) for folder in manifest.get("extra_dirs", []))
    return Stored(record, config, condition, action, cameras, folders, manifest)


def open_scene(stored: Stored) -> Scene:
    """The episode's scene, provided that it and the factors still are what was recorded.

    Raises:
        RecordsError: See :func:`check_unchanged`.
    """
    name = stored.record.scene
    scene = load_scene(
        name, overrides=stored.config.overrides("scene", name), extra=stored.extra_dirs
    )
    with contextlib.ExitStack() as undo:
        undo.callback(scene.close)
        check_unchanged(stored, scene)
        undo.pop_all()
    return scene


def check_unchanged(stored: Stored, scene: Scene) -> None:
    """Refuse another world than the episode's.

    Raises:
        RecordsError: The scene or a factor of the episode has changed since.
    """
    name, changed = stored.record.scene, []
    if dict(stored.manifest["scenes"][name]) != scene.identity():
        changed.append(f"scene '{name}'")
    recorded = stored.manifest.get("factors", {})
    for factor in stored.condition.factors:
        now = factor_identity(stored.config, factor, stored.extra_dirs)
        if factor in recorded and recorded[factor] != now:
            changed.append(f"factor '{factor}'")
    if changed:
        raise RecordsError(
            f"{' and '.join(changed)} changed since the episode was recorded, so that running its "
            "actions again would show another episode. Restore the files (version "
            f"{stored.manifest.get('versions', {}).get('robogen', 'unknown')} of robogen wrote the "
            "record), or evaluate again in another run folder."
        )


def replay(
    stored: Stored,
    scene: Scene,
    *,
    cameras: tuple[CameraSpec, ...] = (),
    watch: Callable[[Moment], None] | None = None,
    every: int = 1,
) -> Replayed:
    """Run an episode's recorded actions again and compare with its record."""
    record = stored.record
    assert record.actions is not None
    again = rerun(
        scene,
        stored.perturbation,
        stored.seed,
        record.actions,
        action=stored.action,
        cameras=cameras,
        watch=watch,
        every=every,
    )
    return Replayed(record, again, tuple(differences(record, again)))


def differences(record: EpisodeRecord, again: Rerun) -> Iterator[str]:
    """What a rerun does otherwise than its record, one phrase each."""
    pairs: list[tuple[str, Any, Any]] = [
        ("draws", dict(record.draws), plain(again.draws)),
        ("instruction", record.instruction, again.instruction),
        ("initial state", record.state_hash, again.state_hash),
    ]
    if record.status == "scored":
        pairs += [
            ("success", record.success, again.success_step is not None),
            ("steps", record.steps, again.steps),
            ("progress", record.progress, again.progress),
            ("behaviour", dict(record.behaviour), plain(again.behaviour, nonfinite="null")),
        ]
    for name, was, now in pairs:
        if was != now:
            yield f"{name}: was {was}, is {now}"


# -- films -----------------------------------------------------------------------------------------


def film(stored: Stored, scene: Scene, file: Path) -> Replayed:
    """Replay an episode into an MP4: the policy's cameras side by side over a caption.

    Raises:
        RecordsError: The file cannot be written.
    """
    cameras = tuple(
        CameraSpec(name=name, width=SIDE, height=SIDE) for name in _views(scene, stored.cameras)
    )
    size = (SIDE * len(cameras), SIDE + CAPTION)
    every = max(1, round(stored.action.control_hz / FRAMES_PER_S))
    with _writer(file, size, stored.action.control_hz / every) as write:
        return replay(
            stored,
            scene,
            cameras=cameras,
            every=every,
            watch=lambda moment: write(_composed(moment, stored.record)),
        )


def _views(scene: Scene, wanted: tuple[str, ...]) -> list[str]:
    """A third-person and a wrist camera, the policy's own where it has them."""
    views = []
    for kind in ("third_person", "wrist"):
        of_kind = [n for n in scene.spec.cameras if scene.camera_kinds[n] == kind]
        views += ([n for n in of_kind if n in wanted] or of_kind)[:1]
    return views


def _composed(moment: Moment, record: EpisodeRecord) -> NDArray[np.uint8]:
    picture = np.concatenate(list(moment.images.values()), axis=1)
    strip = Image.new("RGB", (picture.shape[1], CAPTION), _PAPER)
    draw = ImageDraw.Draw(strip)
    small = ImageFont.load_default(size=12)
    state, ink = f"step {moment.step}", _INK
    if moment.success:
        state, ink = f"success at step {moment.step}", _GREEN
    elif moment.step == record.steps:
        state, ink = f"failure after {moment.step} steps", _RED
    right = strip.width - 6 - draw.textlength(state, font=small)
    room = strip.width - 12
    draw.text((6, 1), _cut(draw, record.condition, right - 16, small), _INK, font=small)
    draw.text((right, 1), state, ink, font=small)
    draw.text((6, 16), _cut(draw, moment.instruction, room, small), (160, 160, 165), font=small)
    return np.concatenate([picture, np.asarray(strip)])


def _cut(draw: ImageDraw.ImageDraw, text: str, room: float, font: Any) -> str:
    """Text shortened to a width [px]."""
    if draw.textlength(text, font=font) <= room:
        return text
    while text and draw.textlength(f"{text}…", font=font) > room:
        text = text[:-1]
    return f"{text}…"


@contextlib.contextmanager
def _writer(
    file: Path, size: tuple[int, int], rate: float
) -> Iterator[Callable[[NDArray[np.uint8]], None]]:
    """An H.264 file that browsers play; it appears when it is whole."""
    temporary = file.with_name(f".{file.stem}.partial.mp4")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        stream = imageio_ffmpeg.write_frames(
            str(temporary),
            size,
            fps=rate,
            codec="libx264",
            pix_fmt_in="rgb24",
            pix_fmt_out="yuv420p",
            macro_block_size=2,
            quality=None,
            output_params=["-crf", "23", "-movflags", "+faststart"],
            ffmpeg_log_level="error",
        )
        stream.send(None)
        try:
            yield lambda frame: stream.send(np.ascontiguousarray(frame))
        finally:
            stream.close()
        temporary.replace(file)
    except OSError as error:
        raise RecordsError(
            f"Cannot write the video {file} ({error.strerror or error}). Pass a path that you can "
            "write to, and check the free space."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def video_file(run_dir: Path, record: EpisodeRecord) -> Path:
    """Where a study keeps the film of an episode."""
    outcome = "success" if record.success else "failure"
    name = f"{record.condition.replace(':', '_')}_{record.episode}_{outcome}.mp4"
    return run_dir / "videos" / record.scene / record.policy / name


def study_videos(
    run_dir: Path,
    design: Design,
    count: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Path]:
    """Film a handful of a study's episodes; those that are there are left alone.

    Per policy and scene, in turn: a nominal success and failure, then a failure and a success of
    each condition, the most harmful first.

    Args:
        run_dir: The study's folder, complete.
        design: The study.
        count: Videos in all.
        progress: Called with (videos done, total).
    """
    run = load_run(run_dir)
    queues = [list(_worth_seeing(run.of(g.scene, g.policy), g)) for g in run.summary.groups]
    chosen: list[EpisodeRecord] = []
    while len(chosen) < count and any(queues):
        for queue in queues:
            if queue and len(chosen) < count:
                chosen.append(queue.pop(0))
    missing = sorted(
        (item for item in chosen if not video_file(run_dir, item).exists()),
        key=lambda item: item.key,
    )
    scene: Scene | None = None
    try:
        for done, item in enumerate(missing):
            progress(done, len(missing))
            stored = stored_episode(run_dir, item.key, design.extra_dirs)
            if scene is None or scene.spec.name != item.scene:
                if scene is not None:
                    scene.close()
                scene = open_scene(stored)
            film(stored, scene, video_file(run_dir, item))
    finally:
        if scene is not None:
            scene.close()
    progress(len(missing), len(missing))
    return [video_file(run_dir, item) for item in chosen]


def _worth_seeing(records: list[EpisodeRecord], group: GroupSummary) -> Iterator[EpisodeRecord]:
    scored = [record for record in records if record.status == "scored" and record.steps]

    def first(condition: str, success: bool) -> list[EpisodeRecord]:
        found = [r for r in scored if (r.condition, r.success) == (condition, success)]
        return sorted(found, key=lambda record: record.episode)[:1]

    if group.nominal is not None:
        yield from first(group.nominal.condition, True)
        yield from first(group.nominal.condition, False)
    for item in group.conditions:
        yield from first(item.condition, False)
        yield from first(item.condition, True)
