"""Is B better than A? On matched episodes for checkpoints, over training seeds for recipes.

A checkpoint is one set of weights: its episodes are the sample. A recipe is a way of training: its
seeds are the sample, and a difference between two checkpoints says little about it.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from robogen.errors import ConfigError, RecordsError, unknown
from robogen.records import EpisodeRecord
from robogen.report.load import Run, load_run, reach
from robogen.stats import (
    NOMINAL,
    Estimate,
    PairedCounts,
    SeedSpread,
    episodes_needed,
    holm,
    mcnemar_exact,
    paired_difference,
    phi,
    rate,
    recipe_difference,
)

What = Literal["checkpoints", "recipes"]


class Answer(Enum):
    """What can be said of B against A under one condition."""

    BETTER = "better"
    WORSE = "worse"
    CANNOT_TELL = "cannot tell"
    NOT_COMPARABLE = "not comparable"


class Side(NamedTuple):
    """One side under one condition."""

    rate: Estimate | None
    """Of a checkpoint, with Wilson's interval."""
    spread: SeedSpread | None
    """Of a recipe."""
    episodes: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """A and B under one condition of one scene."""

    scene: str
    condition: str
    a: Side
    b: Side
    change: Estimate | None
    """Success of B minus success of A."""
    p: float | None
    p_holm: float | None
    """After Holm's correction over all rows."""
    answer: Answer
    needed: int | None
    """Where nothing can be told: matched episodes, or seeds per recipe, that would show a
    difference of the size seen; None when it is none."""
    why: str = ""
    """Why the two are not comparable."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Everything that was compared."""

    what: What
    a: tuple[str, ...]
    """Policies of side A: one checkpoint, or the seeds of a recipe."""
    b: tuple[str, ...]
    rows: tuple[Row, ...]
    alpha: float
    remarks: tuple[str, ...] = ()
    """What else differs between the runs."""

    def worse_by(self, points: float) -> list[Row]:
        """Rows where B is worse, and by at least so many percentage points."""
        return [
            row
            for row in self.rows
            if row.answer is Answer.WORSE
            and row.change is not None
            and -100 * row.change.value >= points
        ]


def compare(
    runs: Sequence[Path | str],
    *,
    a: Sequence[str],
    b: Sequence[str],
    what: What | None,
    alpha: float = 0.05,
) -> Comparison:
    """Compare policies that were evaluated on the same episodes.

    Args:
        runs: Run folders; side A is looked for in the first, side B in the last.
        a: Policy names of side A, wildcards allowed; empty: the only policy there is.
        b: The same of side B.
        what: Whether these very weights are compared, or the ways in which they were trained.
        alpha: Family-wise level.

    Raises:
        ConfigError: It is not said what is compared, a name is unknown, or a recipe has one seed.
        RecordsError: A folder is no run folder.
    """
    if not runs:
        raise ConfigError("Got no run folder. Pass one or two that 'robogen eval' wrote.")
    first, last = load_run(runs[0]), load_run(runs[-1])
    sides = _named(first, a, "a"), _named(last, b, "b")
    if set(sides[0]) & set(sides[1]) and first.folder.resolve() == last.folder.resolve():
        both = ", ".join(sorted(set(sides[0]) & set(sides[1])))
        raise ConfigError(f"{both} is on both sides of the comparison. Choose different policies.")
    what = _settled(what, sides)
    for run, side in zip((first, last), sides, strict=True):
        _refuse_twins(run, side)
    obstacle = _obstacle(first, last)
    tables = _by_cell(first, sides[0]), _by_cell(last, sides[1])
    cells = [cell for cell in tables[0] if cell in tables[1]]
    if not cells:
        raise RecordsError(
            f"{first.folder} and {last.folder} share no condition of any scene for these policies. "
            "Evaluate both on the same scenes and conditions."
        )
    make = _checkpoint_row if what == "checkpoints" else _recipe_row
    rows = [
        make(cell, tables[0][cell], tables[1][cell], obstacle, alpha, len(cells)) for cell in cells
    ]
    return Comparison(
        what=what,
        a=sides[0],
        b=sides[1],
        rows=tuple(_judged(rows, alpha)),
        alpha=alpha,
        remarks=tuple(_remarks(first, last)),
    )


# -- what is compared ------------------------------------------------------------------------------


def _named(run: Run, patterns: Sequence[str], side: str) -> tuple[str, ...]:
    there = sorted({record.policy for record in run.records})
    if not patterns:
        if len(there) == 1:
            return tuple(there)
        raise ConfigError(
            f"{run.folder} holds several policies ({', '.join(there)}). Say which with --{side}."
        )
    found: list[str] = []
    for pattern in patterns:
        names = [name for name in there if fnmatch.fnmatchcase(name, pattern)]
        if not names:
            raise ConfigError(unknown(f"policy in {run.folder}", pattern, there))
        found += [name for name in names if name not in found]
    return tuple(found)


def _settled(what: What | None, sides: tuple[tuple[str, ...], tuple[str, ...]]) -> What:
    counts = [len(side) for side in sides]
    if what is None:
        raise ConfigError(
            "Are these checkpoints or recipes that are compared? --of checkpoints asks whether "
            "these very weights differ, for which episodes are enough. --of recipes asks whether "
            "one way of training is better than another, for which each side needs several "
            "training seeds (policies that differ in nothing else)."
        )
    if what == "checkpoints" and max(counts) > 1:
        raise ConfigError(
            f"--of checkpoints compares one policy with one, got {counts[0]} and {counts[1]}. Name "
            "one on each side, or compare them --of recipes, as seeds of two ways of training."
        )
    if what == "recipes" and min(counts) < 2:
        alone = sides[counts.index(min(counts))][0]
        raise ConfigError(
            f"A recipe cannot be judged by one seed: '{alone}' stands alone on its side, and the "
            "next training of the same recipe may differ by more than what is compared here. "
            "Train it again with other seeds (three or more), evaluate them in the same study and "
            "name them all, or compare these very weights with --of checkpoints."
        )
    return what


def _refuse_twins(run: Run, side: Sequence[str]) -> None:
    """Seeds of a recipe are different trainings; the same weights under two names are not.

    Raises:
        ConfigError: Two policies of a side have one identity.
    """
    seen: dict[str, str] = {}
    for name in side:
        by_scene = run.manifest.get("policies", {}).get(name, {})
        told = {
            scene: {k: v for k, v in about.items() if k not in ("spec", "deterministic")}
            for scene, about in by_scene.items()
            if isinstance(about, Mapping)
        }
        if not any(told.values()):
            continue  # it does not say what it is
        twin = seen.setdefault(repr(sorted(told.items())), name)
        if twin != name:
            raise ConfigError(
                f"'{twin}' and '{name}' are the same policy under two names (their checkpoints "
                "have one hash), so they are one seed and not two. Name each training once."
            )


def _obstacle(first: Run, last: Run) -> str:
    """Why episodes of two runs are not the same ones, or nothing."""
    if first.folder.resolve() == last.folder.resolve():
        return ""
    mine, theirs = first.manifest, last.manifest
    if mine.get("study", {}).get("seed") != theirs.get("study", {}).get("seed"):
        return "the study seeds differ"
    for part in ("scenes", "factors"):
        for name in set(mine.get(part, {})) & set(theirs.get(part, {})):
            if mine[part][name] != theirs[part][name]:
                return f"the {part[:-1]} '{name}' differs between the runs"
    return ""


def _remarks(first: Run, last: Run) -> Iterable[str]:
    """Differences between two runs that a reader must know but may have wanted."""
    studies = [run.manifest.get("study", {}) for run in (first, last)]
    timing = [(s.get("timing", "instant"), s.get("latency_ms")) for s in studies]
    if timing[0] != timing[1]:
        said = [t if ms is None else f"{t}, {ms:g} ms a decision" for t, ms in timing]
        yield f"Thinking time counts differently: A {said[0]}, B {said[1]}."
    if first.manifest.get("fingerprint") != last.manifest.get("fingerprint"):
        yield "The runs were made with other versions, graphics or processors."


Cell = tuple[str, str]


def _by_cell(run: Run, policies: Iterable[str]) -> dict[Cell, dict[str, dict[int, EpisodeRecord]]]:
    """Scored and reached records by scene and condition, then policy, then episode."""
    wanted = set(policies)
    found: dict[Cell, dict[str, dict[int, EpisodeRecord]]] = {}
    for record in run.records:
        if record.policy not in wanted or record.repeat:
            continue
        if record.status != "scored" or reach(record) == "did not reach":
            continue
        cell = found.setdefault((record.scene, record.condition), {})
        cell.setdefault(record.policy, {})[record.episode] = record
    return dict(sorted(found.items(), key=lambda item: (item[0][0], item[0][1] != NOMINAL)))


# -- rows ------------------------------------------------------------------------------------------

_Records = Mapping[str, Mapping[int, EpisodeRecord]]


def _checkpoint_row(
    cell: Cell, a: _Records, b: _Records, obstacle: str, alpha: float, tests: int
) -> Row:
    (mine,), (theirs,) = a.values(), b.values()
    shared = sorted(set(mine) & set(theirs))
    why = obstacle or _unmatched(mine, theirs, shared)
    outcomes = [[bool(side[i].success) for i in shared] for side in (mine, theirs)]
    counts = PairedCounts.from_outcomes(*(np.array(o, dtype=bool) for o in outcomes))
    change = None if why else paired_difference(counts, alpha=alpha)
    return Row(
        scene=cell[0],
        condition=cell[1],
        a=Side(rate(sum(outcomes[0]), len(shared)), None, len(shared)),
        b=Side(rate(sum(outcomes[1]), len(shared)), None, len(shared)),
        change=change,
        p=None if why else mcnemar_exact(counts),
        p_holm=None,
        answer=Answer.NOT_COMPARABLE if why else Answer.CANNOT_TELL,
        needed=None if change is None else _episodes_needed(counts, change.value, alpha / tests),
        why=why,
    )


def _unmatched(
    mine: Mapping[int, EpisodeRecord], theirs: Mapping[int, EpisodeRecord], shared: Sequence[int]
) -> str:
    if not shared:
        return "no episode was scored on both sides"
    for episode in shared:
        one, other = mine[episode], theirs[episode]
        if one.state_hash != other.state_hash or dict(one.draws) != dict(other.draws):
            return f"episode {episode} did not start alike on both sides"
    return ""


def _episodes_needed(counts: PairedCounts, change: float, alpha: float) -> int | None:
    if change == 0.0:
        return None
    best = max(counts.reference_successes, counts.other_successes) / counts.n
    return episodes_needed(abs(change), nominal_rate=best, phi=phi(counts) or 0.0, alpha=alpha)


def _recipe_row(
    cell: Cell, a: _Records, b: _Records, obstacle: str, alpha: float, tests: int
) -> Row:
    totals = [_totals(side) for side in (a, b)]
    few = min(len(n) for _, n in totals) < 2
    why = obstacle or ("fewer than two seeds were scored on one side" if few else "")
    difference = None if why else recipe_difference(*totals, alpha=alpha, tests=tests)
    sides = [Side(None, SeedSpread.of(*total), sum(total[1])) for total in totals]
    return Row(
        scene=cell[0],
        condition=cell[1],
        a=sides[0],
        b=sides[1],
        change=None if difference is None else difference.change,
        p=None if difference is None else difference.p,
        p_holm=None,
        answer=Answer.NOT_COMPARABLE if why else Answer.CANNOT_TELL,
        needed=None if difference is None else difference.seeds_needed,
        why=why,
    )


def _totals(side: _Records) -> tuple[list[int], list[int]]:
    """Successes and scored episodes of every seed."""
    return (
        [sum(bool(record.success) for record in seed.values()) for seed in side.values()],
        [len(seed) for seed in side.values()],
    )


def _judged(rows: Sequence[Row], alpha: float) -> Iterable[Row]:
    """Rows with p-values corrected over all of them, and what follows."""
    adjusted = holm([np.nan if row.p is None else row.p for row in rows])
    for row, p in zip(rows, adjusted, strict=True):
        if row.p is None or row.change is None:
            yield row
        elif p <= alpha:
            answer = Answer.BETTER if row.change.value > 0 else Answer.WORSE
            yield replace(row, p_holm=float(p), answer=answer, needed=None)
        else:
            yield replace(row, p_holm=float(p))


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Plain data."""

    def plain(value: Any) -> Any:
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return {key: plain(item) for key, item in value._asdict().items()}
        if isinstance(value, tuple):
            return [plain(item) for item in value]
        if hasattr(value, "__dataclass_fields__"):
            return {key: plain(getattr(value, key)) for key in value.__dataclass_fields__}
        return value

    data: dict[str, Any] = plain(comparison)
    return data
