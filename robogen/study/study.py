"""Run or resume a study: lock, manifest, workers, records, frames."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import cv2

from robogen.errors import RecordsError
from robogen.records.manifest import MANIFEST, fingerprint_difference, read_manifest, write_manifest
from robogen.records.schema import (
    SCHEMA_VERSION,
    EpisodeKey,
    EpisodeRecord,
    Telemetry,
    plain,
)
from robogen.records.store import RecordStore, database_error
from robogen.rollout.episode import FirstFrames, Outcome
from robogen.study.config import measured_items
from robogen.study.design import Design
from robogen.study.fingerprint import fingerprint
from robogen.study.pool import Pool
from robogen.study.runner import GroupRunner


class Observer(Protocol):
    """Watches a study run."""

    def begin(self, design: Design, done: int, total: int) -> None:
        """The study starts with this many episodes already recorded."""

    def record(self, record: EpisodeRecord) -> None:
        """An episode is on disk."""

    def tick(self) -> None:
        """Some time has passed."""


class Silent:
    """An observer that looks away."""

    def begin(self, design: Design, done: int, total: int) -> None:
        """Nothing."""

    def record(self, record: EpisodeRecord) -> None:
        """Nothing."""

    def tick(self) -> None:
        """Nothing."""


class StudyResult(NamedTuple):
    """What a run of a study came to."""

    run_dir: Path
    total: int
    ran: int
    """Episodes run now; the others were on disk."""
    errored: int
    """Errored episodes on disk."""
    seconds: float


def default_run_dir(design: Design) -> Path:
    """``runs/<scenes>-<policies>-<suite>``."""
    config = design.config
    what = "+".join(config.names("perturbation")) or (config.suite or "nominal")
    scenes = "+".join(scene.replace("/", "_") for scene in design.scenes)
    name = "-".join([scenes, "+".join(design.policies), what])
    return Path("runs") / (name if len(name) <= 80 else f"{name[:70]}-{design.hash[:8]}")


def worker_count(design: Design) -> int:
    """Workers to start: as asked, else one per core this process may use."""
    return cores() if design.config.workers is None else design.config.workers


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_study(
    design: Design, run_dir: Path, observer: Observer | None = None, *, command: str = ""
) -> StudyResult:
    """Run what is missing of a study.

    Args:
        design: The resolved study.
        run_dir: Its folder; resumed when it holds part of this very study.
        observer: Watches; silent by default.
        command: What the user typed, for the manifest.

    Raises:
        RecordsError: The folder is locked, foreign, unwritable or from a machine that differs.
    """
    observer = observer or Silent()
    clock = time.monotonic()
    _refuse_another_study(design, run_dir)
    with RecordStore.create_or_open(run_dir, study_hash=design.hash) as store:
        _manifest(design, run_dir, command)
        keys = list(design.keys())
        done = store.keys("scored" if design.config.retry_errors else None)
        retried = store.errored_keys() if design.config.retry_errors else set()
        missing = [key for key in keys if key not in done]
        observer.begin(design, len(keys) - len(missing), len(keys))

        def keep(record: EpisodeRecord, telemetry: Telemetry | None) -> None:
            write = store.replace if record.key in retried else store.add
            write(record, telemetry)
            observer.record(record)

        def sink(outcome: Outcome) -> None:
            if outcome.frames is not None:
                _write_frames(run_dir, outcome.record.key, outcome.frames)
            keep(outcome.record, outcome.telemetry)

        def lost(key: EpisodeKey, kind: str, why: str) -> None:
            keep(_lost_record(design, key, kind, why), None)

        workers = worker_count(design)
        if workers == 0:
            _inline(design, missing, sink)
        elif missing:
            Pool(design, workers, sink=sink, lost=lost, tick=observer.tick).run(missing)
        errored = len(store.errored_keys())
    return StudyResult(run_dir, len(keys), len(missing), errored, time.monotonic() - clock)


def _inline(design: Design, keys: Iterable[EpisodeKey], sink: Any) -> None:
    """Run in this process, group by group."""
    queue = deque(keys)
    runner = GroupRunner(design)
    try:
        while queue:
            scene, policy = queue[0].scene, queue[0].policy

            def source(group: tuple[str, str] = (scene, policy)) -> EpisodeKey | None:
                if not queue or (queue[0].scene, queue[0].policy) != group:
                    return None
                return queue.popleft()

            runner.run(scene, policy, source=source, sink=sink)
    finally:
        runner.close()


def _lost_record(design: Design, key: EpisodeKey, kind: str, why: str) -> EpisodeRecord:
    condition = design.condition(key.scene, key.condition)
    return EpisodeRecord(
        scene=key.scene,
        policy=key.policy,
        condition=key.condition,
        episode=key.episode,
        repeat=key.repeat,
        factors=condition.factors,
        severity=condition.severity if condition.factors else 0.0,
        split=condition.split,
        status="errored",
        error_kind=kind,
        error=why,
    )


# -- manifest --------------------------------------------------------------------------------------


_HOW = (
    "out", "workers", "slots", "deadline_s", "retry_errors", "force", "frames", "videos",
    "record_dataset",
)  # fmt: skip
"""Settings that say how a study is run, not what it measures."""


def _refuse_another_study(design: Design, run_dir: Path) -> None:
    """Say what differs, where a folder holds another study; the store would only see that it does.

    Raises:
        RecordsError: It does.
    """
    if not (run_dir / MANIFEST).exists():
        return
    old = read_manifest(run_dir)
    if old.get("study_hash") in (None, design.hash):
        return
    now = plain(describe(design, {"versions": {}}))
    for manifest in (old, now):
        asked = manifest.get("study", {})
        for key in _HOW:
            asked.pop(key, None)
        asked["items"] = measured_items(asked.get("items", {}), design.practical)
        for what in ("scenes", "factors"):
            for about in manifest.get(what, {}).values():
                about.pop("hash", None)  # says that something differs, not what
    changes = []
    for part in ("study", "scenes", "policies"):
        changes += fingerprint_difference(old.get(part, {}), now.get(part, {}))
    told = "; ".join(changes[:4]) or "a scene or factor file was edited since"
    raise RecordsError(
        f"{run_dir} holds another study ({told}). Pass another run folder with out=..., or the "
        "settings it was begun with."
    )


def _manifest(design: Design, run_dir: Path, command: str) -> None:
    """Write the manifest, or compare with the one that is there."""
    now = fingerprint()
    manifest = describe(design, now, command)
    if command:
        manifest["command"] = command
    if (run_dir / MANIFEST).exists():
        old = read_manifest(run_dir)
        changes = fingerprint_difference(old.get("fingerprint", {}), now)
        if changes and not design.config.force:
            raise RecordsError(
                f"{run_dir} was begun under other conditions: {'; '.join(changes)}. Episodes would "
                "no longer be comparable. Use another run folder (out=...), or force=true to "
                "resume all the same and have the run marked."
            )
        manifest["created"] = old.get("created", manifest["created"])
        if "command" in old:
            manifest.setdefault("command", old["command"])
        manifest["fingerprint"] = old.get("fingerprint", now)
        manifest["mixed_fingerprints"] = [
            *old.get("mixed_fingerprints", []),
            *([now] if changes else []),
        ]
    write_manifest(run_dir, manifest)


def describe(design: Design, machine: dict[str, Any], command: str = "") -> dict[str, Any]:
    """The manifest of a design on a machine."""
    config = asdict(design.config)
    conditions: dict[str, dict[str, Any]] = {}
    for scene in design.scenes:
        for condition in design.conditions[scene]:
            entry = conditions.setdefault(
                condition.id,
                {
                    "id": condition.id,
                    "factors": list(condition.factors),
                    "severity": condition.severity if condition.factors else 0.0,
                    "split": condition.split,
                    "ranges": dict(design.ranges.get(condition.id, {})),
                    "scenes": [],
                },
            )
            entry["scenes"].append(scene)
    return {
        "schema_version": SCHEMA_VERSION,
        "study": {**config, "episodes": design.episodes},
        "study_hash": design.hash,
        "conditions": list(conditions.values()),
        "not_applicable": [asdict(item) for item in design.skipped],
        "versions": machine["versions"],
        "fingerprint": machine,
        "scenes": {s: design.identities[f"scene {s}"] for s in design.scenes},
        "factors": {
            name.removeprefix("factor "): identity
            for name, identity in design.identities.items()
            if name.startswith("factor ")
        },
        "extra_dirs": [str(folder) for folder in design.extra_dirs],
        "policies": {
            p: {s: design.identities[f"policy {p} on {s}"] for s in design.scenes}
            for p in design.policies
        },
        "notes": {k: list(v) for k, v in design.notes.items() if v},
        "adaptations": {k: list(v) for k, v in design.adaptations.items() if v},
        "command": command,
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "episodes_total": sum(1 for _ in iter(design.keys())),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


# -- frames ----------------------------------------------------------------------------------------


def frame_folder(run_dir: Path, key: EpisodeKey) -> Path:
    """Where a condition's first frames lie."""
    return run_dir / "frames" / key.scene / key.policy / key.condition.replace(":", "_")


def _write_frames(run_dir: Path, key: EpisodeKey, frames: FirstFrames) -> None:
    folder = frame_folder(run_dir, key)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise database_error(error, folder) from error
    views = {"seen": frames.seen, **({"nominal": frames.nominal} if frames.nominal else {})}
    for view, images in views.items():
        for camera, image in images.items():
            last = image[-1] if image.ndim == 4 else image
            file = folder / f"{key.episode}_{camera}_{view}.png"
            if not cv2.imwrite(str(file), cv2.cvtColor(last, cv2.COLOR_RGB2BGR)):
                raise RecordsError(
                    f"Cannot write {file}. Every episode finished before is stored; check the "
                    "folder's permissions and free space and run the same command again."
                )
