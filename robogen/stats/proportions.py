"""Intervals for one success rate, and for the mean of scores in [0, 1]."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A value with its confidence interval."""

    value: float
    low: float
    high: float

    @property
    def interval(self) -> Interval:
        """The interval alone."""
        return Interval(self.low, self.high)


def wilson(successes: int, n: int, *, alpha: float = 0.05) -> Interval:
    """Wilson's score interval of a rate; [0, 1] when nothing was tried.

    The interval to show: its coverage is close to nominal for every rate, where the textbook
    interval falls to a fifth of it.
    """
    _check(successes, n)
    if n == 0:
        return Interval(0.0, 1.0)
    found = stats.binomtest(successes, n).proportion_ci(1.0 - alpha, method="wilson")
    # The formula gives 0 and 1 at the ends up to rounding.
    return Interval(
        0.0 if successes == 0 else max(0.0, float(found.low)),
        1.0 if successes == n else min(1.0, float(found.high)),
    )


def clopper_pearson(successes: int, n: int, *, alpha: float = 0.05) -> Interval:
    """Clopper and Pearson's exact interval: never covers less than it says. For pass/fail gates."""
    _check(successes, n)
    if n == 0:
        return Interval(0.0, 1.0)
    found = stats.binomtest(successes, n).proportion_ci(1.0 - alpha, method="exact")
    return Interval(float(found.low), float(found.high))


def jeffreys(successes: int, n: int, *, alpha: float = 0.05) -> Interval:
    """Jeffreys' interval, equal-tailed, extended to 0 and 1 where all or none succeeded."""
    _check(successes, n)
    if n == 0:
        return Interval(0.0, 1.0)
    posterior = stats.beta(successes + 0.5, n - successes + 0.5)
    return Interval(
        0.0 if successes == 0 else float(posterior.ppf(alpha / 2)),
        1.0 if successes == n else float(posterior.ppf(1 - alpha / 2)),
    )


def rate(successes: int, n: int, *, alpha: float = 0.05) -> Estimate | None:
    """A success rate with Wilson's interval; None when nothing was tried."""
    if n == 0:
        return None
    return Estimate(successes / n, *wilson(successes, n, alpha=alpha))


def bounded_mean(values: ArrayLike, *, alpha: float = 0.05, grid: int = 2000) -> Estimate | None:
    """Mean of scores in [0, 1] with the hedged betting interval of Waudby-Smith and Ramdas.

    Valid at every n and for every distribution on [0, 1], without resampling: a bootstrap is
    neither at the n of a robot study, nor defined where all scores are equal, and a binomial
    interval is wrong for partial scores.

    Args:
        values: Scores, shape (n,), ordered by episode.
        alpha: One minus the coverage.
        grid: Resolution of the interval's ends.

    Returns:
        None when there are no scores.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size == 0:
        return None
    mean = float(x.mean())
    # The bets assume that early scores resemble late ones: any order fixed beforehand is valid,
    # and a shuffled one is safe where episodes were laid out easy to hard.
    x = x[np.random.default_rng(x.size).permutation(x.size)]
    if not np.all((x >= 0.0) & (x <= 1.0)):
        raise ValueError("scores must lie in [0, 1]")
    count = np.arange(1, x.size + 1)
    running = (0.5 + np.cumsum(x)) / (count + 1)
    variance = (0.25 + np.cumsum((x - running) ** 2)) / (count + 1)
    # A bet may only know the past.
    known = np.concatenate([[0.25], variance[:-1]])
    bet = np.sqrt(2.0 * np.log(2.0 / alpha) / (x.size * known))[:, None]
    m = np.linspace(0.0, 1.0, grid + 1)[None, :]
    with np.errstate(divide="ignore"):
        up = np.log1p(np.minimum(bet, 0.5 / m) * (x[:, None] - m))
        down = np.log1p(-np.minimum(bet, 0.5 / (1.0 - m)) * (x[:, None] - m))
    wealth = np.maximum(np.cumsum(up, axis=0), np.cumsum(down, axis=0)).max(axis=0) + np.log(0.5)
    kept = m[0, wealth < np.log(1.0 / alpha)]
    if kept.size == 0:  # the bets excluded everything, which has a probability below alpha
        half = float(np.sqrt(np.log(2.0 / alpha) / (2.0 * x.size)))  # Hoeffding
        return Estimate(mean, max(0.0, mean - half), min(1.0, mean + half))
    step = 1.0 / grid
    return Estimate(
        mean,
        min(mean, max(0.0, float(kept[0]) - step)),
        max(mean, min(1.0, float(kept[-1]) + step)),
    )


def mean_t(values: ArrayLike, *, alpha: float = 0.05) -> Estimate | None:
    """Mean of unbounded measurements with Student's interval; None below two of them."""
    x = np.asarray(values, dtype=np.float64)
    if x.size < 2:
        return None
    half = float(stats.t.ppf(1 - alpha / 2, x.size - 1) * x.std(ddof=1) / np.sqrt(x.size))
    mean = float(x.mean())
    return Estimate(mean, mean - half, mean + half)


def _check(successes: int, n: int) -> None:
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie in 0..n, got {successes} of {n}")
