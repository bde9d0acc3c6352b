"""What a study would do: conditions, what is skipped, and a measured guess of time and disk."""

from __future__ import annotations

import os
import shutil
from collections import Counter, deque
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import cv2
from rich.console import Console
from rich.table import Table

from robogen.cli.progress import duration
from robogen.errors import RecordsError
from robogen.records.reader import read_records
from robogen.records.schema import EpisodeKey, to_row
from robogen.records.store import DATABASE
from robogen.report.words import count
from robogen.rollout.episode import Outcome
from robogen.study.design import Design
from robogen.study.runner import GroupRunner
from robogen.study.study import worker_count

STARTUP_S = 3.0
"""Seconds that a worker takes to import everything and to build its scenes, roughly."""
VIDEO_BYTES = 150_000
VIDEO_S = 1.5
"""Size and cost of one video, roughly."""
REPORT_BYTES = 3_000_000


class Cost(NamedTuple):
    """What one episode costs, averaged over the episodes that were tried."""

    seconds: float
    """On one core."""
    longest: float
    """If it ran to the horizon."""
    row: int
    """Bytes of its record."""
    frames: int
    """Bytes of its first frames, where they are kept."""


def show(design: Design, run_dir: Path, out: Console, progress: Console) -> None:
    """Print everything."""
    for scene in design.scenes:
        out.print(_conditions(design, scene))
    for item in design.skipped:
        out.print(f"Skipped on {item.scene}: {item.factor}: {item.reason}", soft_wrap=True)
    for scene, notes in design.notes.items():
        for note in notes:
            out.print(f"Note on {scene}: {note}", soft_wrap=True)
    for who, what in design.adaptations.items():
        for line in what:
            out.print(f"Adapted for {who}: {line}", soft_wrap=True)
    keys = list(design.keys())
    done = _done(design, run_dir, out)
    missing = [key for key in keys if key not in done]
    cells = sum(len(design.conditions[scene]) for scene in design.scenes) * len(design.policies)
    again = sum(key.repeat > 0 for key in keys)
    reruns = f" and {again} reruns for the noise floor" if again else ""
    out.print(
        f"{count(len(design.scenes), 'scene')} × {_policies(len(design.policies))}, "
        f"{count(cells, 'condition')} in all, {count(design.episodes, 'episode')} each{reruns}: "
        f"{count(len(keys), 'episode')}, "
        f"{len(keys) - len(missing)} of them already in {run_dir}.",
        soft_wrap=True,
    )
    if not missing:
        out.print("Nothing is left to run.")
        return
    with progress.status("Trying two episodes") if progress.is_terminal else nullcontext():
        costs = {group: measure(design, group) for group in _groups(missing)}
    _predict(design, missing, costs, out)


def _policies(number: int) -> str:
    return "1 policy" if number == 1 else f"{number} policies"


def _conditions(design: Design, scene: str) -> Table:
    table = Table(title=f"Conditions on {scene}", title_justify="left", title_style="bold")
    table.add_column("condition")
    table.add_column("severity", justify="right")
    table.add_column("split")
    table.add_column("physical range")
    for condition in design.conditions[scene]:
        ranges = design.ranges.get(condition.id, {})
        nominal = not condition.factors
        text = "; ".join(
            ranges[name] if len(condition.factors) == 1 else f"{name}: {ranges[name]}"
            for name in condition.factors
            if name in ranges
        )
        if condition.everything:
            text = f"{len(condition.factors)} factors at once, each as above"
        table.add_row(
            condition.id,
            "" if nominal else f"{condition.severity:g}",
            "" if nominal else condition.split,
            text,
        )
    return table


def _done(design: Design, run_dir: Path, out: Console) -> set[EpisodeKey]:
    if not (run_dir / DATABASE).exists():
        return set()
    try:
        records = read_records(run_dir)
    except RecordsError as error:
        out.print(f"Note: {error}", soft_wrap=True)
        return set()
    if records.study_hash != design.hash:
        out.print(
            f"Note: {run_dir} holds another study, so this one would be refused there. Pass "
            "another run folder with out=....",
            soft_wrap=True,
        )
        return set()
    retry = design.config.retry_errors
    return {r.key for r in records if not (retry and r.status == "errored")}


def _groups(keys: list[EpisodeKey]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((key.scene, key.policy) for key in keys))


def measure(design: Design, group: tuple[str, str]) -> Cost:
    """Run one nominal episode and one of the largest condition, and see what they cost."""
    scene, policy = group
    largest = max(design.conditions[scene], key=lambda condition: len(condition.factors))
    keys = deque(
        EpisodeKey(scene, policy, name, 0, 0) for name in dict.fromkeys(["nominal", largest.id])
    )
    # One slot: an episode's own costs. A padded policy call serves all slots at once.
    alone = replace(design, config=replace(design.config, slots=1, frames=1))
    outcomes: list[Outcome] = []
    horizons: list[int] = []
    pads: list[bool] = []
    runner = GroupRunner(alone)

    try:
        runner.run(
            scene,
            policy,
            source=lambda: keys.popleft() if keys else None,
            sink=outcomes.append,
        )
        pads.append(runner.policy.pad)
        horizons.append(runner.scene.horizon)
    finally:
        runner.close()
    share = design.config.slots if pads[0] else 1
    seconds, longest = [], []
    for outcome in outcomes:
        t = outcome.telemetry
        call = (t.policy_ms or 0.0) / 1e3
        moving = (t.render_ms or 0.0) / 1e3 + (t.physics_ms or 0.0) / 1e3 + call / share
        fixed = max(0.0, (t.wall_s or 0.0) - moving - call * (1 - 1 / share))
        steps = outcome.record.steps or horizons[0]
        seconds.append(fixed + moving)
        longest.append(fixed + moving * horizons[0] / steps)
    rows = [
        sum(len(cell) for cell in to_row(o.record) if isinstance(cell, str | bytes))
        for o in outcomes
    ]
    frames = [_png_bytes(outcome) for outcome in outcomes]
    return Cost(
        seconds=sum(seconds) / len(seconds),
        longest=sum(longest) / len(longest),
        row=sum(rows) // len(rows) + 500,
        frames=max(frames),
    )


def _png_bytes(outcome: Outcome) -> int:
    if outcome.frames is None:
        return 0
    views = [outcome.frames.seen, outcome.frames.nominal or {}]
    images = [image[-1] if image.ndim == 4 else image for view in views for image in view.values()]
    return sum(len(cv2.imencode(".png", image)[1]) for image in images)


def _predict(
    design: Design,
    missing: list[EpisodeKey],
    costs: dict[tuple[str, str], Cost],
    out: Console,
) -> None:
    episodes = Counter((key.scene, key.policy) for key in missing)
    framed = Counter(
        (key.scene, key.policy)
        for key in missing
        if key.episode < design.config.frames and key.repeat == 0
    )
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    workers = worker_count(design)
    parallel = max(1, min(workers, cores, len(missing)))
    videos = min(design.config.videos, len(missing))
    overhead = (STARTUP_S if workers else 0.0) + videos * VIDEO_S
    likely = sum(episodes[g] * cost.seconds for g, cost in costs.items()) / parallel + overhead
    longest = sum(episodes[g] * cost.longest for g, cost in costs.items()) / parallel + overhead
    size = sum(episodes[g] * cost.row + framed[g] * cost.frames for g, cost in costs.items())
    size += videos * VIDEO_BYTES + REPORT_BYTES
    free = shutil.disk_usage(_existing(Path.cwd())).free
    how = f"{workers} workers" if workers != 1 else "1 worker"
    out.print(
        f"About {duration(likely)} with {how}, at most about {duration(longest)} if every episode "
        "runs to its horizon (measured on two episodes per scene and policy).",
        soft_wrap=True,
    )
    out.print(f"About {size / 1e6:.0f} MB of disk, {free / 1e9:.0f} GB are free.", soft_wrap=True)


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder
