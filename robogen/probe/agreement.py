"""Does the policy say what was demonstrated, and would it under another convention?

One convention at a time is changed, the policy is asked (or its answer read) anew, and errors are
compared moment by moment. What helps most is adopted and everything else judged on top of it, so
that one wrong convention does not make others look wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from robogen.policies.base import Policy
from robogen.probe.candidates import (
    CONVENTIONS,
    FACTORS,
    Candidate,
    Reading,
    candidates,
    configured,
    scaled,
)
from robogen.probe.moments import Sample
from robogen.probe.scoring import FOLLOWS, Judge, Score
from robogen.specs import TOOL_MODES, ActionSpec

Floats = NDArray[np.float64]

MATERIAL = 0.15
"""Share of the error that another convention must remove to count."""
ALIKE = 0.03
"""Within this share of the error two conventions cannot be told apart in practice."""
HELD = 0.1
"""Least command of a gripper that is always held so, for its sign to say something."""
AGREES = 0.3
"""Least agreement, as a share of the best constant's error, at which conventions can be judged."""
_SCALES = {"position scale": slice(0, 3), "rotation scale": slice(3, 6)}
MOST_WRONG = 4
"""Conventions adopted at most: with more wrong at once nothing can be said."""


class Verdict(Enum):
    """What can be said of a convention."""

    OK = "ok"
    SUSPICIOUS = "suspicious"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One convention, judged."""

    convention: str
    configured: str
    best: str
    """The best alternative."""
    agreement: float
    """As configured (with what was adopted before)."""
    best_agreement: float
    """With the best alternative."""
    verdict: Verdict
    note: str = ""
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One candidate, everything else as configured."""

    convention: str
    name: str
    agreement: float
    gain: float
    """Agreement gained over what is configured, with its interval over episodes."""
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Everything the demonstrations say about a policy's conventions."""

    findings: tuple[Finding, ...]
    agreement: float
    """As configured."""
    mended: float
    """With every suspicious convention as its best candidate."""
    moments: int
    episodes: int
    agrees: bool = True
    """Whether the policy says about what was demonstrated, at least with what is suspicious put
    right; where it does not, conventions cannot be judged."""
    tried: tuple[Tried, ...] = ()
    """Every candidate against the conventions as configured."""
    remark: str = ""
    """What limits the whole."""


def measure(
    policy: Policy,
    samples: Sequence[Sample],
    reading: Reading,
    data: ActionSpec,
    *,
    batch: int = 8,
    draws: int = 3,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Agreement:
    """Compare predicted with demonstrated commands under every candidate convention.

    Args:
        policy: Asked about every moment, in its own convention.
        samples: The moments.
        reading: The conventions as configured.
        data: How demonstrated commands are read.
        batch: Rows per call.
        draws: Answers averaged per moment for policies that are not deterministic.
        progress: Called with (candidates tried, candidates in all).
    """
    episodes = len({sample.episode for sample in samples})
    comparable = data.mode == reading.action.mode or {data.mode, reading.action.mode} <= set(
        TOOL_MODES
    )
    if not comparable:
        return Agreement(
            findings=(),
            agreement=math.nan,
            mended=math.nan,
            moments=len(samples),
            episodes=episodes,
            remark=f"The policy commands '{reading.action.mode}' and the demonstrations are "
            f"'{data.mode}': their actions cannot be compared.",
        )
    judge = Judge(policy, samples, data, batch=batch, draws=draws)
    if not judge.used.any():
        raise ValueError("the demonstrations hold no motion")
    first = judge.score(reading)
    adopted: list[tuple[Candidate, Score, Score]] = []
    now, current = first, reading
    every: tuple[Tried, ...] = ()
    while True:
        tried = _tried(judge, current, samples, adopted, progress)
        every = every or tuple(_told(judge, first, *entry) for entry in tried)
        best = _most_helpful(judge, now, tried)
        if best is None:  # a wrong scale looks like caution while other things are wrong
            scale = _wrong_scale(judge, current, {entry[0].convention for entry in adopted})
            best = None if scale is None else (scale, judge.score(scale.reading))
        if best is None or len(adopted) == MOST_WRONG:
            break
        adopted.append((best[0], now, best[1]))
        current, now = best[0].reading, best[1]
    agrees = now.agreement >= AGREES
    findings = [_finding(reading, *entry, agrees=agrees) for entry in adopted]
    done = {entry[0].convention for entry in adopted}
    for convention in CONVENTIONS:
        group = [(c, s) for c, s in tried if c.convention == convention]
        if group and convention == "gripper" and not judge.used[-1]:
            findings.append(_held_gripper(judge, current, now, group, agrees=agrees))
        elif group and convention not in done:
            findings.append(_judged(judge, current, now, group, agrees=agrees))
    findings += [
        _scale_finding(judge, current, now, convention)
        for convention in _SCALES
        if reading.action.mode in TOOL_MODES and convention not in done
    ]
    findings.sort(key=lambda finding: CONVENTIONS.index(finding.convention))
    return Agreement(
        findings=tuple(findings),
        agreement=first.agreement,
        mended=now.agreement,
        moments=len(samples),
        episodes=episodes,
        agrees=agrees,
        tried=every,
        remark=_remark(now, agrees, judge, adopted),
    )


def _wrong_scale(judge: Judge, reading: Reading, settled: set[str]) -> Candidate | None:
    """The scale at which commands would be as large as those demonstrated, if that is another."""
    if reading.action.mode != "delta_eef":
        return None
    for convention, part in _SCALES.items():
        scale = None if convention in settled else judge.scale(reading, part)
        if scale is not None and scale.wrong:
            what = convention.split()[0]
            factor = min(FACTORS, key=lambda f: abs(math.log(f / scale.slope)))
            return scaled(reading, what, factor)
    return None


def _scale_finding(judge: Judge, reading: Reading, now: Score, convention: str) -> Finding:
    scale = judge.scale(reading, _SCALES[convention])
    verdict, note = Verdict.OK, ""
    if scale is None:
        verdict, note = Verdict.CANNOT_TELL, "the demonstrations hold no such motion"
    elif scale.follows < FOLLOWS:
        verdict = Verdict.CANNOT_TELL
        note = "these predictions hardly follow the demonstrations"
    else:
        note = f"demonstrated commands are ×{scale.slope:.2f} those predicted"
    return Finding(
        convention=convention,
        configured=configured(reading, convention),
        best="",
        agreement=now.agreement,
        best_agreement=math.nan,
        verdict=verdict,
        note=note,
    )


_Tried = list[tuple[Candidate, Score]]


def _tried(
    judge: Judge,
    reading: Reading,
    samples: Sequence[Sample],
    adopted: Sequence[tuple[Candidate, Score, Score]],
    progress: Callable[[int, int], None],
) -> _Tried:
    settled = {entry[0].convention for entry in adopted}
    options = [c for c in candidates(reading, list(samples)) if c.convention not in settled]
    found: _Tried = []
    for done, option in enumerate(options):
        progress(done, len(options))
        try:
            found.append((option, judge.score(option.reading)))
        except Exception:
            if option.convention != "pixel range":
                raise
            # Numbers of a type that the policy cannot take are not what it was made for.
    progress(len(options), len(options))
    return found


def _most_helpful(judge: Judge, now: Score, tried: _Tried) -> tuple[Candidate, Score] | None:
    """The candidate that removes most error, if that is beyond chance and worth a word."""
    helpful = []
    for candidate, score in tried:
        gain, low, _ = judge.gain(now, score)
        if low > 0.0 and gain > MATERIAL * float(now.error.mean()):
            helpful.append((gain, candidate, score))
    if not helpful:
        return None
    most = max(gain for gain, _, _ in helpful)
    # Several may say the same (a tool's frame, or two axes reversed): the simplest is named.
    near = [entry for entry in helpful if entry[0] >= 0.97 * most]
    _, candidate, score = min(near, key=lambda entry: CONVENTIONS.index(entry[1].convention))
    return candidate, score


def _told(judge: Judge, first: Score, candidate: Candidate, score: Score) -> Tried:
    gain, low, high = judge.gain(first, score)
    return Tried(
        convention=candidate.convention,
        name=candidate.name,
        agreement=score.agreement,
        gain=gain,
        low=low,
        high=high,
    )


def _finding(
    reading: Reading, candidate: Candidate, before: Score, after: Score, *, agrees: bool
) -> Finding:
    # Smaller commands are nearer to any demonstration where predictions know nothing of it.
    judged = agrees or candidate.convention not in _SCALES
    return Finding(
        convention=candidate.convention,
        configured=configured(reading, candidate.convention),
        best=candidate.name,
        agreement=before.agreement,
        best_agreement=after.agreement,
        verdict=Verdict.SUSPICIOUS if judged else Verdict.CANNOT_TELL,
        note=f"looks like {candidate.name}" if judged else "agreement is low at every scale",
        remedy=candidate.remedy if judged else "",
    )


def _judged(judge: Judge, reading: Reading, now: Score, group: _Tried, *, agrees: bool) -> Finding:
    """A convention that no candidate mends: fine, or not to be told."""
    convention = group[0][0].convention
    best, score = min(group, key=lambda entry: float(entry[1].error.mean()))
    same, unsure = [], []
    for candidate, other in group:
        gain, _, high = judge.gain(now, other)
        if abs(gain) < ALIKE * float(now.error.mean()):
            same.append(candidate.name)
        elif high >= 0.0:
            unsure.append(candidate.name)
    told = len(same) + len(unsure) < len(group)
    verdict = Verdict.OK if told else Verdict.CANNOT_TELL
    note = _untold(same, unsure, len(group))
    if not agrees:
        verdict, note = Verdict.CANNOT_TELL, "agreement is low under every candidate"
    return Finding(
        convention=convention,
        configured=configured(reading, convention),
        best=best.name,
        agreement=now.agreement,
        best_agreement=score.agreement,
        verdict=verdict,
        note=note,
    )


def _held_gripper(
    judge: Judge, reading: Reading, now: Score, group: _Tried, *, agrees: bool
) -> Finding:
    """A gripper that no demonstration moves: does the policy at least hold it the same way?"""
    off = [(judge.gripper_off(candidate.reading), candidate) for candidate, _ in group]
    least, best = min(off, key=lambda entry: entry[0])
    mine = judge.gripper_off(reading)
    held = judge.gripper_held
    known = agrees and abs(held) > HELD and reading.action.mode != "native"
    near = 0.5 * abs(held)
    verdict, note = Verdict.CANNOT_TELL, "the demonstrations never move the gripper"
    if known and mine > 2.0 * near and least < near:
        verdict = Verdict.SUSPICIOUS
        note = f"looks like {best.name}; demonstrations hold it at {held:+.2g}"
    elif known and mine <= near < max(distance for distance, _ in off):
        verdict = Verdict.OK
        same = [candidate.name for distance, candidate in off if distance <= near]
        note = f"held at {held:+.2g}, as demonstrated"
        note += f"; as good: {', '.join(same)}" if same else ""
    return Finding(
        convention="gripper",
        configured=configured(reading, "gripper"),
        best=best.name,
        agreement=now.agreement,
        best_agreement=now.agreement,
        verdict=verdict,
        note=note,
        remedy=best.remedy if verdict is Verdict.SUSPICIOUS else "",
    )


def _untold(same: Sequence[str], unsure: Sequence[str], count: int) -> str:
    """Alternatives that the demonstrations do not exclude."""
    parts = []
    if len(same) == count:
        return "no other choice changes the agreement"
    if same:
        parts.append(f"as good: {', '.join(same)}")
    if unsure:
        parts.append(f"more episodes would separate: {', '.join(unsure)}")
    return "; ".join(parts)


def _remark(
    now: Score,
    agrees: bool,
    judge: Judge,
    adopted: Sequence[tuple[Candidate, Score, Score]],
) -> str:
    said = []
    if not agrees:
        more = "even with those changes " if adopted else ""
        said.append(
            f"The policy hardly agrees with the demonstrations ({100 * now.agreement:.0f} % better "
            f"than a constant command) {more}under any single change. It was trained for something "
            "else, or several conventions are wrong at once: then conventions cannot be judged."
        )
    if judge.still:
        said.append(
            f"The demonstrations never move command dimension{'s' if len(judge.still) > 1 else ''} "
            f"{', '.join(str(i + 1) for i in judge.still)}, so those say nothing."
        )
    return " ".join(said)
