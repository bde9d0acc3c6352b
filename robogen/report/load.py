"""A run folder as the report sees it: records, manifest, pictures and videos."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from robogen.records import Attempt, EpisodeRecord, Records, read_manifest, read_records
from robogen.stats import NOMINAL, Reach, StudySummary, summarise

_FRAME = re.compile(r"(?P<episode>\d+)_(?P<camera>.+)_(?P<kind>nominal|seen)\.png")
_VIDEO = re.compile(r"(?P<condition>.+)_(?P<episode>\d+)_(?P<outcome>success|failure)\.mp4")


class FramePair(NamedTuple):
    """What a camera showed the policy first, with and without the factor."""

    condition: str
    episode: int
    camera: str
    nominal: Path | None
    seen: Path | None


class Video(NamedTuple):
    """A filmed episode."""

    condition: str
    episode: int
    outcome: str
    path: Path


class ErrorGroup(NamedTuple):
    """Episodes that errored for the same reason."""

    kind: str
    text: str
    conditions: tuple[str, ...]
    episodes: int


class ReachCount(NamedTuple):
    """How often a factor of a condition reached the policy."""

    condition: str
    factor: str
    channel: str
    reached: int
    not_observed: int
    did_not_reach: int


class Latency(NamedTuple):
    """How long decisions of a policy took, and what that meant for the world."""

    decisions: float
    """Mean number an episode."""
    median_ms: float
    """Median over episodes of their mean; a call may have served several episodes."""
    longest_ms: float
    rows: int
    """Most episodes that shared a call in one worker."""
    timing: str
    """``instant`` or ``realtime``."""
    declared_ms: float | None
    """What a decision counted as under ``realtime``; None: what it took."""


_SPELLED_OUT = 3


@dataclass(frozen=True, kw_only=True)
class Run:
    """One study as recorded so far."""

    folder: Path
    name: str
    manifest: Mapping[str, Any]
    records: Records
    summary: StudySummary
    planned: int | None
    """Episodes the study is made of, reruns included; None when its manifest does not say."""

    @property
    def ranges(self) -> dict[str, str]:
        """Physical range of each condition, in words; many at once are counted, not spelled out."""
        return {
            item["id"]: _range_text(item["ranges"])
            for item in self.manifest.get("conditions", [])
            if item.get("ranges")
        }

    def of(self, scene: str, policy: str) -> list[EpisodeRecord]:
        """Records of one policy in one scene, reruns left out."""
        return [
            record
            for record in self.records
            if (record.scene, record.policy, record.repeat) == (scene, policy, 0)
        ]

    def errors(self, scene: str, policy: str) -> list[ErrorGroup]:
        """Errored episodes by reason, the most frequent first."""
        found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for record in self.records:
            if (record.scene, record.policy) == (scene, policy) and record.status == "errored":
                found[record.error_kind or "error", record.error or ""].append(record.condition)
        groups = [
            ErrorGroup(kind, text, tuple(sorted(set(conditions))), len(conditions))
            for (kind, text), conditions in found.items()
        ]
        return sorted(groups, key=lambda item: (-item.episodes, item.kind, item.text))

    def reached(self, scene: str, policy: str) -> list[ReachCount]:
        """How often each factor of each condition reached the policy."""
        found: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
        for record in self.of(scene, policy):
            for factor, evidence in record.reached.items():
                key = (record.condition, factor, str(evidence.get("channel", "")))
                found[key][str(evidence.get("verdict", ""))] += 1
        return [
            ReachCount(
                *key, verdicts["reached"], verdicts["not observed"], verdicts["did not reach"]
            )
            for key, verdicts in sorted(found.items())
        ]

    @cached_property
    def _attempts(self) -> list[Attempt]:
        return self.records.telemetry()

    def latency(self, scene: str, policy: str) -> Latency | None:
        """How long a policy's decisions took; None where nobody measured."""
        measured = [
            attempt.telemetry
            for attempt in self._attempts
            if (attempt.key.scene, attempt.key.policy) == (scene, policy)
            and attempt.telemetry.decisions
            and attempt.telemetry.latency_ms is not None
        ]
        if not measured:
            return None
        study = self.manifest.get("study", {})
        return Latency(
            decisions=mean(item.decisions or 0 for item in measured),
            median_ms=median(item.latency_ms or 0.0 for item in measured),
            longest_ms=max(item.latency_max_ms or 0.0 for item in measured),
            rows=int(study.get("slots", 1)),
            timing=str(study.get("timing", "instant")),
            declared_ms=study.get("latency_ms"),
        )

    def frames(self, scene: str, policy: str) -> list[FramePair]:
        """First frames, one episode per condition and camera: the first that has both pictures."""
        best: dict[tuple[str, str], FramePair] = {}
        for folder in sorted(_folders(self.folder / "frames" / scene / policy)):
            pairs: dict[tuple[int, str], dict[str, Path]] = defaultdict(dict)
            for path in sorted(folder.glob("*.png")):
                match = _FRAME.fullmatch(path.name)
                if match:
                    pairs[int(match["episode"]), match["camera"]][match["kind"]] = path
            for (episode, camera), kinds in sorted(pairs.items()):
                pair = FramePair(
                    folder.name, episode, camera, kinds.get("nominal"), kinds.get("seen")
                )
                held = best.get((folder.name, camera))
                if held is None or (None in held and None not in pair):
                    best[folder.name, camera] = pair
        return [best[key] for key in sorted(best)]

    def videos(self, scene: str, policy: str) -> list[Video]:
        """Filmed episodes, one failure and one success per condition."""
        kept: dict[tuple[str, str], Video] = {}
        folder = self.folder / "videos" / scene / policy
        found = []
        for path in sorted(folder.glob("*.mp4")) if folder.is_dir() else []:
            match = _VIDEO.fullmatch(path.name)
            if match:
                found.append(
                    Video(match["condition"], int(match["episode"]), match["outcome"], path)
                )
        for video in sorted(found):
            kept.setdefault((video.condition, video.outcome), video)
        return list(kept.values())

    def remarks(self, scene: str) -> list[str]:
        """What to know of a scene that was adapted: how it was drawn, versions, notes."""
        about = dict(self.manifest.get("scenes", {}).get(scene, {}))
        about.pop("hash", None)
        drawn = about.pop("render", None)
        found = []
        if drawn is not None:
            versions = ", ".join(f"{name} {number}" for name, number in sorted(about.items()))
            found.append(f"Somebody else's environment ({versions}), drawn {drawn}.")
        notes = self.manifest.get("notes", {}).get(scene, [])
        return [*found, *(f"{note[:1].upper()}{note[1:]}." for note in notes)]

    def not_applicable(self, scene: str) -> list[tuple[str, str]]:
        """Factors that this scene cannot show, with reasons."""
        return [
            (str(item["factor"]), str(item.get("reason", "")))
            for item in self.manifest.get("not_applicable", [])
            if item.get("scene") == scene
        ]

    @property
    def command(self) -> str:
        """The command that runs the same study again."""
        said = self.manifest.get("command")
        if isinstance(said, str):
            return said
        if isinstance(said, list):
            return shlex.join(map(str, said))
        study = self.manifest.get("study", {})
        words = ["robogen", "eval"]
        for name, group in (("scene", "scenes"), ("policy", "policies")):
            names = sorted(self.manifest.get(group, {}))
            if names:
                words.append(f"{name}=[{','.join(names)}]")
        conditions = [
            str(item["id"]) for item in self.manifest.get("conditions", []) if item["id"] != NOMINAL
        ]
        if conditions:
            words.append(f"perturbation=[{','.join(conditions)}]")
        words += [f"{name}={study[name]}" for name in ("episodes", "seed") if name in study]
        return shlex.join(words)


def load_run(folder: Path | str) -> Run:
    """Read a run folder.

    Raises:
        RecordsError: It is not one, or its records cannot be read.
    """
    path = Path(folder)
    records = read_records(path)
    manifest = read_manifest(path)
    columns = records.table()
    columns["reach"] = [reach(record) for record in records]
    study = manifest.get("study", {})
    return Run(
        folder=path,
        name=str(study.get("name") or path.resolve().name),
        manifest=manifest,
        records=records,
        summary=summarise(columns),
        planned=_planned(manifest, records),
    )


def reach(record: EpisodeRecord) -> Reach:
    """Whether an episode's condition reached the policy, over all its factors.

    One factor that did not reach makes the condition another than its name says. A condition is
    unobserved only when none of its factors is observed.
    """
    verdicts = {str(evidence.get("verdict", "")) for evidence in record.reached.values()}
    if "did not reach" in verdicts:
        return "did not reach"
    if verdicts == {"not observed"}:
        return "not observed"
    return "reached" if "reached" in verdicts else ""


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


def _planned(manifest: Mapping[str, Any], records: Records) -> int | None:
    """Episodes of the design; reruns are taken as recorded, since they are asked for separately."""
    episodes = manifest.get("study", {}).get("episodes")
    conditions = manifest.get("conditions", [])
    if not isinstance(episodes, int) or not conditions:
        return None
    impossible = (
        {(item.get("scene"), item.get("factor")) for item in manifest["not_applicable"]}
        if (manifest.get("not_applicable"))
        else set()
    )
    total = sum(
        episodes
        for scene in manifest.get("scenes", {})
        for _ in manifest.get("policies", {})
        for condition in conditions
        if not any((scene, factor) in impossible for factor in condition.get("factors", []))
    )
    return total + sum(record.repeat > 0 for record in records)


def _range_text(ranges: Mapping[str, str]) -> str:
    if len(ranges) == 1:
        return str(next(iter(ranges.values())))
    if len(ranges) <= _SPELLED_OUT:
        return "; ".join(f"{name}: {text}" for name, text in ranges.items())
    return f"{len(ranges)} factors at once, each over its own range"
