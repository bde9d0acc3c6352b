"""Which factor hurts most, as far as the episodes can tell.

The drops of two factors differ by the difference of their own success rates on the episodes they
share: the nominal outcome cancels. So two factors are compared by the same exact McNemar test that
compares each with the nominal, and Holm's correction over all pairs makes every statement hold at
once. A bootstrap of drop differences was not chosen: it needs random numbers, is not exact at a
few dozen episodes, and breaks down where a factor always or never succeeds, which is common.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robogen.stats.paired import PairedCounts, holm, mcnemar_exact


class RankSet(NamedTuple):
    """A factor and the ranks that cannot be excluded for it; rank 1 hurts most."""

    factor: str
    rate: float
    """Success rate under the factor."""
    best: int
    worst: int


class Ranking(NamedTuple):
    """Factors from the most harmful to the least, with what cannot be told apart."""

    sets: tuple[RankSet, ...]
    inseparable: tuple[tuple[str, str], ...]
    """Pairs of factors, in ranking order, whose drops cannot be told apart."""

    @property
    def worst_candidates(self) -> tuple[str, ...]:
        """Factors for which rank 1 cannot be excluded."""
        return tuple(item.factor for item in self.sets if item.best == 1)


def rank_sets(
    factors: Sequence[str], success: NDArray[np.float64], *, alpha: float = 0.05
) -> Ranking:
    """Rank factors by success and say which ranks cannot be excluded.

    Args:
        factors: Names, one per column.
        success: Outcomes 0, 1 or NaN (unscored), shape (episodes, factors); one row is one matched
            episode. Each pair of factors uses the rows where both are scored.
        alpha: Probability that any excluded rank is the true one.

    Returns:
        The ranking; ``best``..``worst`` of every factor hold together with confidence 1 - alpha.
        Factors without a scored episode are left out.
    """
    if success.ndim != 2 or success.shape[1] != len(factors):
        raise ValueError(f"need shape (episodes, {len(factors)}), got {success.shape}")
    scored = ~np.isnan(success)
    there = [column for column in range(len(factors)) if scored[:, column].any()]
    rates = {column: float(np.nanmean(success[:, column])) for column in there}
    order = sorted(there, key=lambda column: (rates[column], factors[column]))
    pairs = list(combinations(order, 2))
    pvalues, signs = [], []
    for a, b in pairs:
        shared = scored[:, a] & scored[:, b]
        counts = PairedCounts.from_outcomes(success[shared, a] == 1, success[shared, b] == 1)
        pvalues.append(mcnemar_exact(counts))
        signs.append(np.sign(counts.only_other - counts.only_reference))
    adjusted = holm(pvalues)
    worse_than = dict.fromkeys(order, 0)  # how many factors certainly hurt more than this one
    better_than = dict.fromkeys(order, 0)
    inseparable = []
    for (a, b), p, sign in zip(pairs, adjusted, signs, strict=True):
        if p > alpha:
            inseparable.append((factors[a], factors[b]))
            continue
        harmful, harmless = (a, b) if sign > 0 else (b, a)
        worse_than[harmless] += 1
        better_than[harmful] += 1
    sets = tuple(
        RankSet(
            factors[column],
            rates[column],
            1 + worse_than[column],
            len(order) - better_than[column],
        )
        for column in order
    )
    return Ranking(sets, tuple(inseparable))
