"""Two ways of training, compared over their training seeds.

Episodes of one checkpoint say nothing about the next training. Seeds do, and there are few of
them: Welch's t test on per-seed success rates, whose interval is honest about that.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from robogen.stats.proportions import Estimate

MOST_SEEDS = 200
"""Beyond this many seeds per recipe a difference is as good as not there."""


class SeedSpread(NamedTuple):
    """Success rates of one recipe's seeds."""

    mean: float
    sd: float
    """Standard deviation between seeds, sampling noise of the episodes included."""
    low: float
    high: float
    seeds: int
    noise: float
    """Standard deviation that the number of episodes alone would cause."""

    @classmethod
    def of(cls, successes: ArrayLike, n: ArrayLike) -> SeedSpread:
        """From successes and scored episodes per seed, both (seeds,)."""
        rates = _rates(successes, n)
        return cls(
            mean=float(rates.mean()),
            sd=float(rates.std(ddof=1)) if rates.size > 1 else math.nan,
            low=float(rates.min()),
            high=float(rates.max()),
            seeds=int(rates.size),
            noise=math.sqrt(_sampling_variance(successes, n)),
        )


class RecipeDifference(NamedTuple):
    """What the seeds say about recipe B against recipe A."""

    change: Estimate
    """Mean rate of B minus that of A, with Welch's interval."""
    p: float
    """Two-sided."""
    seeds_needed: int | None
    """Seeds per recipe that would show this very difference at 80 % power; None: hardly any
    number would."""


def recipe_difference(
    a: tuple[ArrayLike, ArrayLike],
    b: tuple[ArrayLike, ArrayLike],
    *,
    alpha: float = 0.05,
    tests: int = 1,
) -> RecipeDifference:
    """Compare two recipes under one condition.

    Args:
        a: Successes and scored episodes of each seed of the reference recipe.
        b: The same of the other recipe.
        alpha: One minus the coverage of the interval.
        tests: Comparisons corrected together, for the number of seeds needed.

    Raises:
        ValueError: A recipe has fewer than two seeds: no spread, no comparison.
    """
    rates = [_rates(*a), _rates(*b)]
    if min(r.size for r in rates) < 2:
        raise ValueError("a recipe needs at least two seeds")
    # Seeds that happen to agree are not a spread of zero: episodes alone make them differ.
    variances = [
        max(float(r.var(ddof=1)), _sampling_variance(*x))
        for r, x in zip(rates, (a, b), strict=True)
    ]
    parts = [v / r.size for v, r in zip(variances, rates, strict=True)]
    error = math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(p**2 / (r.size - 1) for p, r in zip(parts, rates, strict=True))
    change = float(rates[1].mean() - rates[0].mean())
    reach = float(stats.t.ppf(1 - alpha / 2, freedom)) * error
    return RecipeDifference(
        change=Estimate(change, max(-1.0, change - reach), min(1.0, change + reach)),
        p=float(2 * stats.t.sf(abs(change) / error, freedom)),
        seeds_needed=seeds_needed(
            change,
            *(math.sqrt(variance) for variance in variances),
            alpha=alpha / tests,
            least=min(r.size for r in rates) + 1,
        ),
    )


def seeds_needed(
    change: float,
    sd: float,
    other_sd: float | None = None,
    *,
    alpha: float = 0.05,
    power: float = 0.8,
    least: int = 2,
) -> int | None:
    """Seeds per recipe at which Welch's two-sided test shows a difference.

    Args:
        change: True difference of the mean rates.
        sd: Standard deviation between seeds of one recipe.
        other_sd: Of the other; None: the same.
        alpha: Level of the test.
        power: Probability to show it.
        least: Smallest answer; what was seen with fewer seeds has not shown it.
    """
    one, two = sd**2, sd**2 if other_sd is None else other_sd**2
    for seeds in range(least, MOST_SEEDS + 1):
        freedom = (one + two) ** 2 * (seeds - 1) / (one**2 + two**2)
        shift = abs(change) / math.sqrt((one + two) / seeds)
        edge = stats.t.ppf(1 - alpha / 2, freedom)
        if stats.nct.sf(edge, freedom, shift) >= power:
            return seeds
    return None


def _rates(successes: ArrayLike, n: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(successes, dtype=np.float64) / np.asarray(n, dtype=np.float64)


def _sampling_variance(successes: ArrayLike, n: ArrayLike) -> float:
    """Of one seed's rate, by Laplace's estimate, which is never zero."""
    k, m = (np.asarray(x, dtype=np.float64) for x in (successes, n))
    rate = (k.sum() + 1) / (m.sum() + 2)
    return float(rate * (1 - rate) / m.mean())
