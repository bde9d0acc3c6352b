"""A study's episodes as LeRobotDatasets: run again from their records, and filmed on the way.

Nothing is recorded while a study runs, so that recording cannot change an outcome. Afterwards each
episode's applied commands are executed again; what comes out otherwise than it was recorded is
left out and named.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robogen.collect import STATE
from robogen.conventions import drawn, presented
from robogen.datasets.demos import DemoDataset, DemoWriter
from robogen.datasets.lerobot_writer import LeRobotForm, assemble, episodes_folder
from robogen.datasets.schema import DemoEpisode, DemoMeta, EpisodeInfo
from robogen.errors import RecordsError
from robogen.records.manifest import read_manifest
from robogen.records.reader import read_records
from robogen.records.schema import EpisodeKey, EpisodeRecord
from robogen.replay import Stored, check_unchanged, described, differences, open_scene
from robogen.rollout.evidence import observation_hash
from robogen.rollout.rerun import Moment, rerun
from robogen.scenes.base import Scene
from robogen.specs import ActionSpec, CameraSpec, Observation, ObservationSpec, SceneSpec, canonical

EDGE = 96
"""Edge of the frames of a policy that reads no camera [px]."""


class Recorded(NamedTuple):
    """What a recording came to."""

    folders: tuple[Path, ...]
    """A dataset per scene and policy."""
    written: int
    """Episodes that were run again now."""
    present: int
    """Episodes that were already there."""
    errored: int
    """Episodes without an outcome; left out."""
    differing: tuple[str, ...]
    """Episodes that came out otherwise, and in what; left out."""


def dataset_folders(out: Path, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Path]:
    """Where each (scene, policy) of a study goes: into ``out`` itself when there is only one."""
    if len(pairs) == 1:
        return {pairs[0]: out}
    return {pair: out / f"{pair[0].replace('/', '_')}-{pair[1]}" for pair in pairs}


def check_place(out: Path, pairs: Sequence[tuple[str, str]], study_hash: str) -> None:
    """Refuse a folder that a study's recording could not go into, before the study runs.

    Raises:
        RecordsError: It holds another study's dataset, or somebody else's.
    """
    for folder in dataset_folders(out, pairs).values():
        exact = episodes_folder(folder)
        try:
            found = DemoDataset(exact).meta.collection.get("study")
        except RecordsError:
            if exact.exists():
                raise
            continue
        if found != study_hash:
            raise RecordsError(
                f"{folder} already holds another dataset. Pass another record_dataset=..., or "
                "remove the folder."
            )


def record_dataset(
    run_dir: Path,
    out: Path,
    form: LeRobotForm,
    *,
    extra_dirs: tuple[Path, ...] = (),
    workers: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    assembling: Callable[[int, int], None] = lambda done, total: None,
) -> Recorded:
    """Write a complete study's episodes as one LeRobotDataset per scene and policy.

    The same call continues where a killed one stopped.

    Args:
        run_dir: The study's folder.
        out: The dataset's folder; with several scenes or policies, the folder of datasets.
        form: Version and codec.
        extra_dirs: Configuration folders; those of the study when empty.
        workers: Processes that run episodes again; 0 runs them in this one.
        progress: Called with (episodes done, total) while they are run again.
        assembling: Called with (episodes done, total) while datasets are put together.

    Raises:
        RecordsError: The study is not complete, a scene or factor changed since, or the disk
            refused.
    """
    manifest = read_manifest(run_dir)
    records = read_records(run_dir, actions=True)
    total = manifest.get("episodes_total")
    if total != len(records):
        raise RecordsError(
            f"{run_dir} holds {len(records)} of {total} episodes. Finish the study first: "
            f"{manifest.get('command') or 'the command that began it'}"
        )
    groups: dict[tuple[str, str], list[EpisodeRecord]] = {}
    for record in records:
        groups.setdefault((record.scene, record.policy), []).append(record)
    check_place(out, list(groups), records.study_hash)
    folders = dataset_folders(out, list(groups))
    errored = sum(record.status == "errored" for record in records)
    scored = len(records) - errored
    if not scored:
        raise RecordsError(
            f"No episode of {run_dir} was scored, so there is nothing to record. 'robogen report "
            f"{run_dir}' says why they errored."
        )
    written, present, differing = 0, 0, list[str]()
    for pair, group in groups.items():
        if all(record.status == "errored" for record in group):
            del folders[pair]
            continue
        with _Group(manifest, records.study_hash, group, extra_dirs) as recorder:
            form.check(recorder.view.cameras)
            writer = DemoWriter(episodes_folder(folders[pair]), recorder.meta)
            wanted = [n for n, record in enumerate(group) if record.status == "scored"]
            missing = writer.missing(wanted)
            present += len(wanted) - len(missing)
            task = _Task(run_dir, writer.folder, pair, extra_dirs)
            if workers > 1 and len(missing) > 1:
                answers = _spread(task, missing, min(workers, len(missing)))
            else:
                answers = ((n, recorder.write(writer, n, group[n])) for n in missing)
            progress(written + present + len(differing), scored)
            for number, found in answers:
                if found:
                    differing.append(f"{_named(group[number].key)}: {'; '.join(found)}")
                else:
                    written += 1
                progress(written + present + len(differing), scored)
            episodes = DemoDataset(writer.folder)
            turn = recorder.view.spec.orientation or recorder.scene.spec.orientation
            if len(episodes):
                assemble(episodes, folders[pair], form, orientation=turn, progress=assembling)
    return Recorded(tuple(folders.values()), written, present, errored, tuple(sorted(differing)))


def _named(key: EpisodeKey) -> str:
    return "/".join(map(str, key[:4])) + (f"/{key.repeat}" if key.repeat else "")


@dataclass(frozen=True, kw_only=True)
class _View:
    """What of an episode goes into its dataset."""

    spec: ObservationSpec
    """Of the policy, with cameras and state parts filled in, and pictures as files hold them."""
    seen: bool
    """Whether the policy itself saw these cameras."""
    felt: bool
    """Whether it read these state parts."""

    @property
    def cameras(self) -> tuple[CameraSpec, ...]:
        """At the size of the dataset's frames."""
        return self.spec.cameras

    @classmethod
    def of(cls, data: Mapping[str, Any], scene: SceneSpec) -> _View:
        """From the manifest's observation spec; without cameras or state, the scene's own."""
        cameras = tuple(
            CameraSpec(**{**item, "drawn": tuple(item["drawn"]) if item.get("drawn") else None})
            for item in data["cameras"]
        )
        spec = ObservationSpec(
            **{**data, "cameras": cameras, "state": tuple(data["state"]), "history": (0,)}
        )
        offered = tuple(CameraSpec(name=n, width=EDGE, height=EDGE) for n in scene.cameras)
        parts = tuple(part for part in STATE if part in scene.state)
        return cls(
            spec=replace(
                spec,
                cameras=cameras or offered,
                state=spec.state or parts,
                channels="rgb",
                layout="hwc",
                pixels="uint8",
            ),
            seen=bool(cameras),
            felt=bool(spec.state),
        )


class _Group:
    """Runs the episodes of one policy in one scene again; use it in a ``with``."""

    def __init__(
        self,
        manifest: Mapping[str, Any],
        study_hash: str,
        records: Sequence[EpisodeRecord],
        extra_dirs: tuple[Path, ...],
    ) -> None:
        self._manifest = manifest
        self._extra_dirs = extra_dirs
        self._checked: set[str] = set()
        first = next(record for record in records if record.status == "scored")
        stored = described(first, manifest, extra_dirs)
        self.scene: Scene = open_scene(stored)
        spec = manifest["policies"][first.policy][first.scene]["spec"]
        self.view = _View.of(spec["observation"], self.scene.spec)
        action = replace(canonical(ActionSpec(**spec["action"])), chunk=1, execute=1)
        self.meta = DemoMeta(
            scene=first.scene,
            cameras=tuple(
                CameraSpec(name=c.name, width=c.width, height=c.height) for c in self.view.cameras
            ),
            state={part: self.scene.spec.state[part] for part in self.view.spec.state},
            action=action,
            render=self.scene.spec.render or self.view.spec.render,
            collection={"study": study_hash, "policy": first.policy, "seed": stored.config.seed},
            command=str(manifest.get("command", "")),
        )

    def __enter__(self) -> _Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.scene.close()

    def write(self, writer: DemoWriter, number: int, record: EpisodeRecord) -> list[str]:
        """Put an episode on disk, unless it differs from its record: then say in what."""
        episode, found = self.record(number, record)
        if not found:
            writer.write(episode)
        return found

    def record(self, number: int, record: EpisodeRecord) -> tuple[DemoEpisode, list[str]]:
        """An episode by its place in the dataset, and how it differs from its record."""
        stored = described(record, self._manifest, self._extra_dirs)
        if record.condition not in self._checked:
            check_unchanged(stored, self.scene)
            self._checked.add(record.condition)
        moments: list[Moment] = []
        first: list[str] = []

        def watch(moment: Moment) -> None:
            if not moments:
                first.append(observation_hash(self._observation(moment)))
            images = {
                camera.name: presented(moment.images[camera.name], camera, self.view.spec)
                for camera in self.view.cameras
            }
            moments.append(moment._replace(images=images))

        assert record.actions is not None
        again = rerun(
            self.scene,
            stored.perturbation,
            stored.seed,
            record.actions,
            action=stored.action,
            cameras=tuple(drawn(camera) for camera in self.view.cameras),
            profile=self.view.spec.render,
            orientation=self.view.spec.orientation,
            state=self.view.spec.state,
            watch=watch,
        )
        found = list(differences(record, again))
        if record.observation_hash != first[0]:
            found.append("first frames and state: not those that the policy got")
        length = min(len(record.actions), again.steps)
        return self._episode(number, record, stored, moments[:length]), found

    def _observation(self, moment: Moment) -> Observation:
        """What the policy itself got of a moment."""
        empty: NDArray[np.float32] = np.empty(0, np.float32)
        return Observation(
            images=moment.images if self.view.seen else {},
            state=moment.state if self.view.felt else empty,
            instruction=moment.instruction,
            step=moment.step,
        )

    def _episode(
        self, number: int, record: EpisodeRecord, stored: Stored, moments: Sequence[Moment]
    ) -> DemoEpisode:
        assert record.actions is not None
        return DemoEpisode(
            images={
                camera.name: np.stack([moment.images[camera.name] for moment in moments])
                for camera in self.view.cameras
            },
            state=np.stack([moment.state for moment in moments]),
            action=record.actions[: len(moments)].astype(np.float32),
            points=np.empty((len(moments), 0, 3), np.float32),
            info=EpisodeInfo(
                index=number,
                instruction=record.instruction,
                length=len(moments),
                success=bool(record.success),
                domain="evaluate",
                split=stored.condition.split,
                draws=record.draws,
                extras=dict(_extras(record, stored)),
            ),
        )


def _extras(record: EpisodeRecord, stored: Stored) -> Iterator[tuple[str, Any]]:
    yield "policy", record.policy
    yield "condition", record.condition
    yield "factors", list(record.factors)
    yield "severity", float(record.severity)
    yield "seed", stored.config.seed
    yield "source_episode", record.episode
    yield "repeat", record.repeat
    yield "progress", record.progress
    yield "study", stored.manifest["study_hash"]


# -- several processes -----------------------------------------------------------------------------


class _Task(NamedTuple):
    """What a worker process needs to know."""

    run_dir: Path
    folder: Path
    pair: tuple[str, str]
    extra_dirs: tuple[Path, ...]


_WORKER: dict[str, Any] = {}
"""Of a worker process: its open scene, the records and the writer."""


def _open(task: _Task) -> None:
    """Begin a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    records = read_records(task.run_dir, actions=True)
    group = [record for record in records if (record.scene, record.policy) == task.pair]
    recorder = _Group(read_manifest(task.run_dir), records.study_hash, group, task.extra_dirs)
    writer = DemoWriter(task.folder, recorder.meta)
    _WORKER.update(group=group, recorder=recorder, writer=writer)


def _one(number: int) -> tuple[int, list[str]]:
    found = _WORKER["recorder"].write(_WORKER["writer"], number, _WORKER["group"][number])
    return number, found


def _spread(task: _Task, numbers: Sequence[int], workers: int) -> Iterator[tuple[int, list[str]]]:
    """Run episodes again in several processes; answers come as they are ready."""
    context = multiprocessing.get_context("spawn")  # a graphics context does not survive a fork
    pool = ProcessPoolExecutor(workers, context, initializer=_open, initargs=(task,))
    try:
        for answer in as_completed([pool.submit(_one, number) for number in numbers]):
            yield answer.result()
    except BrokenProcessPool as error:
        raise RecordsError(
            f"A process that recorded {task.pair[1]} on {task.pair[0]} died, perhaps for want of "
            "memory. What was recorded is kept; run the same command again, with fewer workers."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
