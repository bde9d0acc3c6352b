"""Assemble the report: numbers to JSON, and one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import markupsafe

from robogen.errors import RecordsError
from robogen.records import SCHEMA_VERSION as RECORDS_VERSION
from robogen.report import words
from robogen.report.figure import KINDS, SHAPES, Forest, forest
from robogen.report.load import FramePair, Latency, Run, Video, load_run
from robogen.stats import FLOOR_CAUSES, NOMINAL, GroupSummary, Verdict

REPORT_VERSION = 1
"""Version of ``report.json``."""

VIDEO_BUDGET = 40_000_000
"""Bytes of video embedded in a page; what is over is named with its path instead."""


class Media(NamedTuple):
    """A file made part of the page."""

    caption: str
    uri: str | None
    """Data URI, or None when the file was left out."""
    path: str


class Shot(NamedTuple):
    """One camera's first frame, nominal beside perturbed, as data URIs."""

    camera: str
    episode: int
    nominal: str | None
    seen: str | None


class Strip(NamedTuple):
    """Every camera's first frame under one condition."""

    condition: str
    shots: list[Shot]


class GroupView(NamedTuple):
    """One policy in one scene, as the template reads it."""

    anchor: str
    title: str
    headline: str
    group: GroupSummary
    forest: Forest | None
    ranking: list[str]
    strips: list[Strip]
    videos: list[Media]
    behaviour: list[str]
    """Names of the behaviour columns."""
    latency: Latency | None


@dataclass(frozen=True)
class Report:
    """A report that can be shown, saved and read by programs."""

    runs: tuple[Run, ...]

    @property
    def title(self) -> str:
        """Names of the studies."""
        return ", ".join(run.name for run in self.runs)

    def data(self) -> dict[str, Any]:
        """Every number of the report, as plain JSON values."""
        return {
            "report_version": REPORT_VERSION,
            "records_version": RECORDS_VERSION,
            "studies": [_study_data(run) for run in self.runs],
        }

    def json(self) -> str:
        """The text of ``report.json``."""
        return json.dumps(self.data(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def html(self) -> str:
        """The text of ``report.html``: one page without scripts, links or requests."""
        environment = jinja2.Environment(
            loader=jinja2.FunctionLoader(_template),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters.update(
            percent=words.percent,
            rate=words.rate_text,
            change=words.change_text,
            score=words.score_text,
            measured=words.measured_text,
            number=words.significant,
            p=words.p_text,
            factor=words.factor_name,
            bounds_percent=words.percent_interval,
            bounds_points=words.points_interval,
            noise=words.noise_text,
            latency=words.latency_text,
            listed=words.listed,
            pretty=_pretty,
            measurement=words.measurement_name,
            breakable=_breakable,
        )
        return environment.get_template("report.html.j2").render(
            report=self,
            css=_template("report.css"),
            studies=[
                (run, [_view(run, group) for group in run.summary.groups]) for run in self.runs
            ],
            methods=words.method_paragraphs(self.runs[0].summary),
            count=words.count,
            kinds=KINDS,
            marks=words.MARKS,
            shapes=SHAPES,
            verdicts=Verdict,
            causes=FLOOR_CAUSES,
            dash=words.DASH,
        )

    def write(self, folder: Path | str) -> tuple[Path, Path]:
        """Write ``report.html`` and ``report.json``; return their paths.

        Raises:
            RecordsError: The folder cannot be written.
        """
        target = Path(folder)
        paths = target / "report.html", target / "report.json"
        try:
            target.mkdir(parents=True, exist_ok=True)
            for path, text in zip(paths, (self.html(), self.json()), strict=True):
                temporary = path.with_name(f".{path.name}.{os.getpid()}")
                temporary.write_text(text, encoding="utf-8")
                os.replace(temporary, path)  # somebody may be reading the old one
        except OSError as error:
            raise RecordsError(
                f"Cannot write the report to {target} ({error.strerror or error}). Pass a folder "
                "that you can write to."
            ) from error
        return paths


def build_report(run_dirs: Sequence[Path | str]) -> Report:
    """Read run folders and assemble their report; nothing is run and nothing is pooled.

    Args:
        run_dirs: One folder per study; each gets its own part of the page.

    Raises:
        RecordsError: A folder is not a run folder, or no folder was given.
    """
    if not run_dirs:
        raise RecordsError("No run folder was given. Pass the folder that 'robogen eval' wrote.")
    return Report(tuple(load_run(folder) for folder in run_dirs))


def _view(run: Run, group: GroupSummary) -> GroupView:
    order = [NOMINAL, *(item.condition for item in group.conditions)]

    def place(condition: str) -> int:
        return order.index(condition) if condition in order else len(order)

    frames = sorted(
        run.frames(group.scene, group.policy),
        key=lambda pair: (place(pair.condition), pair.condition, pair.camera),
    )
    videos = sorted(
        run.videos(group.scene, group.policy),
        key=lambda video: (
            place(video.condition),
            video.condition,
            video.outcome,
        ),
    )
    title = f"{group.policy} on {group.scene}"
    return GroupView(
        anchor="".join(
            letter if letter.isalnum() else "-" for letter in f"{run.name} {title}".lower()
        ),
        title=title,
        headline=words.headline(group),
        group=group,
        forest=forest(group),
        ranking=words.ranking_sentences(group),
        strips=[
            Strip(condition, [_shot(pair) for pair in pairs])
            for condition, pairs in groupby(frames, key=lambda pair: pair.condition)
            if condition != NOMINAL
        ],
        videos=_embed(run, videos),
        behaviour=sorted({change.name for item in group.conditions for change in item.behaviour}),
        latency=run.latency(group.scene, group.policy),
    )


def _shot(pair: FramePair) -> Shot:
    return Shot(
        pair.camera,
        pair.episode,
        _uri(pair.nominal, "image/png"),
        _uri(pair.seen, "image/png"),
    )


def _embed(run: Run, videos: Sequence[Video]) -> list[Media]:
    left = VIDEO_BUDGET
    media = []
    for video in videos:
        size = video.path.stat().st_size
        fits = size <= left
        left -= size if fits else 0
        caption = f"{words.factor_name(video.condition)}, episode {video.episode}: {video.outcome}"
        media.append(
            Media(
                caption,
                _uri(video.path, "video/mp4") if fits else None,
                video.path.relative_to(run.folder).as_posix(),
            )
        )
    return media


def _uri(path: Path | None, kind: str) -> str | None:
    if path is None:
        return None
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _template(name: str) -> str:
    folder = resources.files("robogen.report") / "templates"
    return (folder / name).read_text(encoding="utf-8")


def _breakable(name: str) -> markupsafe.Markup:
    """A name that may be broken after an underscore, where the eye expects it."""
    text = str(markupsafe.escape(words.factor_name(name)))
    return markupsafe.Markup(text.replace("_", "_<wbr>"))


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)


def _study_data(run: Run) -> dict[str, Any]:
    return {
        "name": run.name,
        "study_hash": run.records.study_hash,
        "episodes_recorded": len(run.records),
        "episodes_planned": run.planned,
        "alpha": run.summary.alpha,
        "power": run.summary.power,
        "command": run.command,
        "groups": [_group_data(run, group) for group in run.summary.groups],
        "not_applicable": list(run.manifest.get("not_applicable", [])),
        "manifest": dict(run.manifest),
    }


def _group_data(run: Run, group: GroupSummary) -> dict[str, Any]:
    data: dict[str, Any] = _jsonable(group)
    data["headline"] = words.headline(group)
    data["ranking_sentences"] = words.ranking_sentences(group)
    data["too_few_to_rank"] = group.too_few_to_rank
    for item, summary in zip(data["conditions"], group.conditions, strict=True):
        item["pairs"] = summary.pairs
        item["range"] = run.ranges.get(summary.condition)
    data["errors"] = [error._asdict() for error in run.errors(group.scene, group.policy)]
    latency = run.latency(group.scene, group.policy)
    data["latency"] = None if latency is None else latency._asdict()
    data["reached"] = [row._asdict() for row in run.reached(group.scene, group.policy)]
    return data


def _jsonable(value: Any) -> Any:
    """Dataclasses and named tuples by field name, enums by value."""
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "__dataclass_fields__"):
        return {name: _jsonable(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: _jsonable(getattr(value, name)) for name in value._fields}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    return value
