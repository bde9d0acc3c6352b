"""From episodes to what can be said about them: one summary per scene and policy.

Unscored is never zero: an errored episode leaves every rate and every pair, and what it could have
changed is told by the missing-data bounds. Episodes whose condition did not reach the policy are
left out in the same way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robogen.stats.paired import PairedCounts, holm, mcnemar_exact, paired_difference, phi
from robogen.stats.power import episodes_needed, smallest_detectable_drop
from robogen.stats.proportions import Estimate, Interval, bounded_mean, mean_t, rate
from robogen.stats.ranking import Ranking, rank_sets
from robogen.stats.table import NOMINAL, EpisodeTable, matched
from robogen.stats.verdicts import Verdict, at_floor, verdict


@dataclass(frozen=True, kw_only=True)
class BehaviourChange:
    """One behaviour measurement under a condition, and its change on matched episodes."""

    name: str
    mean: float
    """Mean over the condition's scored episodes that have it."""
    change: Estimate | None
    """Matched mean difference to the nominal with Student's interval; None below two pairs."""
    pairs: int


@dataclass(frozen=True, kw_only=True)
class ConditionSummary:
    """What is known about one condition of one scene and policy."""

    condition: str
    factors: tuple[str, ...]
    scored: int
    errored: int
    unreached: int
    """Episodes left out because the condition did not reach the policy."""
    not_observed: int
    """Scored episodes whose change was outside what this policy observes."""
    successes: int
    rate: Estimate | None
    """Success rate with Wilson's interval; None when nothing was scored."""
    rate_bounds: Interval | None
    """Rate if all unscored episodes had failed, or succeeded; None when all were scored."""
    counts: PairedCounts
    """Matched outcomes, nominal first; all zero for the nominal itself."""
    degradation: Estimate | None
    """Matched change of success, negative for a loss, with Newcombe's paired interval."""
    degradation_bounds: Interval | None
    """Change under the worst and best outcomes of unscored episodes; None when there are none."""
    p: float | None
    """Exact McNemar p-value."""
    p_holm: float | None
    """The same after Holm's correction over the group's conditions."""
    phi: float | None
    """Correlation of matched outcomes."""
    progress: Estimate | None
    """Mean progress with a betting interval, valid at any n."""
    behaviour: tuple[BehaviourChange, ...]
    smallest_drop: float | None
    """Smallest drop that these pairs could have shown; None when not even a drop to zero."""
    verdict: Verdict | None
    """None for the nominal."""

    @property
    def pairs(self) -> int:
        """Episodes scored under both the nominal and this condition."""
        return self.counts.n


@dataclass(frozen=True, kw_only=True)
class NoiseFloor:
    """How often a policy disagrees with itself on the same episodes."""

    pairs: int
    """Reruns compared: repeat 0 with 1, 2 with 3, and so on."""
    disagreement: Estimate
    """Rate of pairs with different success, Wilson's interval."""


@dataclass(frozen=True, kw_only=True)
class GroupSummary:
    """One policy in one scene."""

    scene: str
    policy: str
    nominal: ConditionSummary | None
    conditions: tuple[ConditionSummary, ...]
    """Every other condition, the most harmful first."""
    at_floor: bool
    """Whether the nominal cannot be told from a policy that practically never succeeds."""
    tests: int
    """Number of comparisons that were corrected together."""
    power: float
    """Power at which a drop counts as visible."""
    phi: float
    """Mean measured correlation of matched outcomes, not below 0."""
    typical_pairs: int
    """Median number of pairs per tested condition."""
    smallest_drop: float | None
    """Smallest drop that this many pairs show after correction; None when not even one to zero."""
    needed_for_half: int | None
    """Pairs that show a loss of half the nominal success after correction."""
    ranking: Ranking | None
    """Single-factor conditions ranked; None when there are too few episodes to rank."""
    noise_floor: NoiseFloor | None

    @property
    def too_few_to_rank(self) -> bool:
        """Whether a factor that breaks the policy completely could have gone unseen."""
        return self.smallest_drop is None

    def find(self, condition: str) -> ConditionSummary:
        """The summary of one condition."""
        if self.nominal is not None and condition == NOMINAL:
            return self.nominal
        for item in self.conditions:
            if item.condition == condition:
                return item
        raise KeyError(condition)


@dataclass(frozen=True, kw_only=True)
class StudySummary:
    """Every scene and policy of a study."""

    groups: tuple[GroupSummary, ...]
    alpha: float
    """One minus the coverage of intervals, and the family-wise level of tests."""
    power: float
    """Power at which a drop counts as visible."""


def summarise(
    table: EpisodeTable | Mapping[str, Sequence[Any]], *, alpha: float = 0.05, power: float = 0.8
) -> StudySummary:
    """Summarise a study.

    p-values are corrected within a scene and policy, over all their conditions. They are not
    corrected across scenes or policies: each group answers its own question.

    Args:
        table: The episodes, or the columns of :meth:`EpisodeTable.from_columns`.
        alpha: One minus the coverage of intervals, and the family-wise level of tests.
        power: Power at which a drop counts as visible.
    """
    if not isinstance(table, EpisodeTable):
        table = EpisodeTable.from_columns(table)
    names = sorted(set(zip(table.scene, table.policy, strict=True)))
    groups = tuple(_group(table, scene, policy, alpha, power) for scene, policy in names)
    return StudySummary(groups=groups, alpha=alpha, power=power)


def _group(
    table: EpisodeTable, scene: str, policy: str, alpha: float, power: float
) -> GroupSummary:
    own = table.rows(scene=scene, policy=policy, repeat=0)
    nominal_rows = own[table.condition[own] == NOMINAL]
    nominal = _condition(table, nominal_rows, nominal_rows, NOMINAL, alpha)
    names = sorted({name for name in table.condition[own] if name != NOMINAL})
    found = [
        _condition(table, own[table.condition[own] == name], nominal_rows, name, alpha)
        for name in names
    ]
    # What a policy cannot observe is known before any outcome, so it is no test to correct for.
    tested = [item for item in found if item.pairs and item.not_observed < item.scored]
    adjusted = dict(
        zip(
            [item.condition for item in tested],
            holm(np.array([item.p for item in tested], dtype=np.float64)).tolist(),
            strict=True,
        )
    )
    correlations = [item.phi for item in tested if item.phi is not None]
    shared_phi = max(0.0, float(np.mean(correlations))) if correlations else 0.0
    tests = max(1, len(tested))
    rate_nominal = nominal.rate.value if nominal.rate else 0.0

    def visible(pairs: int) -> float | None:
        if rate_nominal == 0.0:
            return None
        return smallest_detectable_drop(
            pairs, nominal_rate=rate_nominal, phi=shared_phi, alpha=alpha / tests, power=power
        )

    cache = {pairs: visible(pairs) for pairs in {item.pairs for item in found}}
    judged = []
    for item in found:
        p = adjusted.get(item.condition)
        judged.append(
            replace(
                item,
                p=None if p is None else item.p,
                p_holm=p,
                smallest_drop=cache[item.pairs],
                verdict=_judge(item, p, shared_phi, tests, alpha, power),
            )
        )
    judged.sort(key=_harm)
    typical = int(np.median([item.pairs for item in tested])) if tested else 0
    smallest = visible(typical)
    return GroupSummary(
        scene=scene,
        policy=policy,
        nominal=nominal if nominal_rows.size else None,
        conditions=tuple(judged),
        at_floor=at_floor(nominal.successes, nominal.scored),
        tests=len(tested),
        power=power,
        phi=shared_phi,
        typical_pairs=typical,
        smallest_drop=smallest,
        needed_for_half=episodes_needed(
            rate_nominal / 2,
            nominal_rate=rate_nominal,
            phi=shared_phi,
            alpha=alpha / tests,
            power=power,
        )
        if rate_nominal > 0
        else None,
        ranking=None if smallest is None else _rank(table, own, tested, alpha),
        noise_floor=_noise_floor(table, scene, policy, alpha),
    )


def _harm(item: ConditionSummary) -> tuple[bool, float, str]:
    change = item.degradation
    return (change is None, change.value if change else 0.0, item.condition)


def _judge(
    item: ConditionSummary, p: float | None, phi: float, tests: int, alpha: float, power: float
) -> Verdict:
    if item.unreached and not item.scored:
        return Verdict.DID_NOT_REACH
    if item.scored and item.not_observed == item.scored:
        return Verdict.NOT_OBSERVED
    return verdict(
        item.counts,
        adjusted_p=1.0 if p is None else p,
        phi=phi,
        tests=tests,
        alpha=alpha,
        power=power,
    )


def _condition(
    table: EpisodeTable,
    rows: NDArray[np.int64],
    nominal: NDArray[np.int64],
    name: str,
    alpha: float,
) -> ConditionSummary:
    unreached = table.reach[rows] == "did not reach"
    scored = ~np.isnan(table.success[rows]) & ~unreached
    good = rows[scored]
    n, successes = int(scored.sum()), int(np.sum(table.success[good]))
    missing = rows.size - n
    bounds = None
    if missing:
        bounds = Interval(successes / rows.size, (successes + missing) / rows.size)
    counts, degradation_bounds = PairedCounts(0, 0, 0, 0), None
    reference = other = np.empty(0, dtype=np.int64)
    if name != NOMINAL:
        reference, other = matched(table, nominal, rows)
        outcome = table.success[other].copy()
        outcome[table.reach[other] == "did not reach"] = np.nan
        degradation_bounds = _bounds(table.success[reference], outcome)
        both = ~np.isnan(outcome) & ~np.isnan(table.success[reference])
        reference, other = reference[both], other[both]
        counts = PairedCounts.from_outcomes(table.success[reference] == 1, outcome[both] == 1)
    progress = table.progress[good]
    factors = tuple(table.factors[rows[0]]) if rows.size else ()
    return ConditionSummary(
        condition=name,
        factors=factors,
        scored=n,
        errored=int(np.isnan(table.success[rows]).sum()),
        unreached=int((unreached & ~np.isnan(table.success[rows])).sum()),
        not_observed=int(np.sum(table.reach[good] == "not observed")),
        successes=successes,
        rate=rate(successes, n, alpha=alpha),
        rate_bounds=bounds,
        counts=counts,
        degradation=paired_difference(counts, alpha=alpha),
        degradation_bounds=degradation_bounds,
        p=mcnemar_exact(counts) if counts.n else None,
        p_holm=None,
        phi=phi(counts),
        progress=bounded_mean(progress[~np.isnan(progress)], alpha=alpha),
        behaviour=_behaviour(table, good, reference, other, alpha),
        smallest_drop=None,
        verdict=None,
    )


def _bounds(reference: NDArray[np.float64], other: NDArray[np.float64]) -> Interval | None:
    if reference.size == 0 or not (np.isnan(reference).any() or np.isnan(other).any()):
        return None
    low = np.nan_to_num(other, nan=0.0) - np.nan_to_num(reference, nan=1.0)
    high = np.nan_to_num(other, nan=1.0) - np.nan_to_num(reference, nan=0.0)
    return Interval(float(low.mean()), float(high.mean()))


def _measured(table: EpisodeTable, rows: NDArray[np.int64], name: str) -> NDArray[np.float64]:
    values = [table.behaviour[row].get(name) for row in rows]
    return np.array([math.nan if value is None else float(value) for value in values])


def _behaviour(
    table: EpisodeTable,
    scored: NDArray[np.int64],
    reference: NDArray[np.int64],
    other: NDArray[np.int64],
    alpha: float,
) -> tuple[BehaviourChange, ...]:
    changes = []
    for name in sorted({name for row in scored for name in table.behaviour[row]}):
        values = _measured(table, scored, name)
        values = values[~np.isnan(values)]
        if values.size == 0:
            continue
        difference = _measured(table, other, name) - _measured(table, reference, name)
        difference = difference[~np.isnan(difference)]
        changes.append(
            BehaviourChange(
                name=name,
                mean=float(values.mean()),
                change=mean_t(difference, alpha=alpha),
                pairs=int(difference.size),
            )
        )
    return tuple(changes)


def _rank(
    table: EpisodeTable,
    own: NDArray[np.int64],
    tested: Sequence[ConditionSummary],
    alpha: float,
) -> Ranking | None:
    """Rank the conditions that move one factor; sets of factors contain each other."""
    names = [item.condition for item in tested if len(item.factors) == 1]
    if len(names) < 2:
        return None
    episodes = np.unique(table.episode[own])
    success = np.full((episodes.size, len(names)), np.nan)
    for column, name in enumerate(names):
        rows = own[(table.condition[own] == name) & (table.reach[own] != "did not reach")]
        success[np.searchsorted(episodes, table.episode[rows]), column] = table.success[rows]
    return rank_sets(names, success, alpha=alpha)


def _noise_floor(table: EpisodeTable, scene: str, policy: str, alpha: float) -> NoiseFloor | None:
    rows = table.rows(scene=scene, policy=policy)
    outcome = {
        (table.condition[row], int(table.episode[row]), int(table.repeat[row])): table.success[row]
        for row in rows
        if not np.isnan(table.success[row])
    }
    # Disjoint pairs, so that no run is counted twice.
    agreement = Counter(
        bool(value == outcome[condition, episode, repeat + 1])
        for (condition, episode, repeat), value in outcome.items()
        if repeat % 2 == 0 and (condition, episode, repeat + 1) in outcome
    )
    pairs = agreement.total()
    found = rate(agreement[False], pairs, alpha=alpha)
    return None if found is None else NoiseFloor(pairs=pairs, disagreement=found)
