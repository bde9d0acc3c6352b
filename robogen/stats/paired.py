"""Two conditions on the same episodes: what changed, and whether it is more than chance."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from robogen.stats.proportions import Estimate, Interval, wilson


class PairedCounts(NamedTuple):
    """Episodes by what happened to them under the reference and under the other condition."""

    both: int
    only_reference: int
    only_other: int
    neither: int

    @classmethod
    def from_outcomes(cls, reference: ArrayLike, other: ArrayLike) -> PairedCounts:
        """Count matched outcomes.

        Args:
            reference: Successes under the reference, shape (n,), boolean.
            other: Successes of the same episodes under the other condition, shape (n,), boolean.
        """
        a, b = np.asarray(reference), np.asarray(other)
        if a.shape != b.shape or a.ndim != 1:
            raise ValueError(f"outcomes must be matched 1-D arrays, got {a.shape} and {b.shape}")
        if a.dtype != np.bool_ or b.dtype != np.bool_:
            # NaN would count as success otherwise
            raise TypeError("outcomes must be boolean; leave unscored episodes out")
        return cls(
            both=int(np.sum(a & b)),
            only_reference=int(np.sum(a & ~b)),
            only_other=int(np.sum(~a & b)),
            neither=int(np.sum(~a & ~b)),
        )

    @property
    def n(self) -> int:
        """Number of pairs."""
        return sum(self)

    @property
    def reference_successes(self) -> int:
        """Successes under the reference."""
        return self.both + self.only_reference

    @property
    def other_successes(self) -> int:
        """Successes under the other condition."""
        return self.both + self.only_other

    @property
    def discordant(self) -> int:
        """Pairs whose outcome changed."""
        return self.only_reference + self.only_other


def mcnemar_exact(counts: PairedCounts) -> float:
    """Two-sided exact p-value that success is as likely under both conditions."""
    if counts.discordant == 0:
        return 1.0
    fewer = min(counts.only_reference, counts.only_other)
    # A fair coin's tails are equal, so both are twice one; bdtr is the binomial's distribution.
    return min(1.0, 2.0 * float(special.bdtr(fewer, counts.discordant, 0.5)))


def phi(counts: PairedCounts) -> float | None:
    """Correlation of matched outcomes; None where one condition always or never succeeded."""
    e, f, g, h = counts
    margins = (e + f) * (g + h) * (e + g) * (f + h)
    if margins == 0:
        return None
    return (e * h - f * g) / math.sqrt(margins)


def paired_difference(
    counts: PairedCounts,
    *,
    alpha: float = 0.05,
    method: Literal["newcombe", "tango"] = "newcombe",
) -> Estimate | None:
    """Change of the success rate from the reference to the other condition, with its interval.

    Args:
        counts: Matched outcomes.
        alpha: One minus the coverage.
        method: ``"newcombe"``: square-and-add with the outcomes' correlation (method 10 of Newcombe
            1998, closed form); ``"tango"``: inverted score test (Tango 1998).

    Returns:
        ``other - reference``, negative for a loss; None without pairs.
    """
    if counts.n == 0:
        return None
    value = (counts.only_other - counts.only_reference) / counts.n
    interval = _newcombe(counts, alpha) if method == "newcombe" else _tango(counts, alpha)
    return Estimate(value, max(-1.0, interval.low), min(1.0, interval.high))


def _newcombe(counts: PairedCounts, alpha: float) -> Interval:
    n = counts.n
    e, f, g, h = counts
    other, reference = counts.other_successes / n, counts.reference_successes / n
    low_other, high_other = wilson(counts.other_successes, n, alpha=alpha)
    low_reference, high_reference = wilson(counts.reference_successes, n, alpha=alpha)
    margins = (e + f) * (g + h) * (e + g) * (f + h)
    product = float(e * h - f * g)
    if product > 0:
        product = max(product - n / 2, 0.0)  # Newcombe's continuity correction of the correlation
    correlation = 0.0 if margins == 0 else product / math.sqrt(margins)

    def combine(a: float, b: float) -> float:
        return math.sqrt(max(0.0, a * a - 2 * correlation * a * b + b * b))

    difference = other - reference
    return Interval(
        difference - combine(other - low_other, high_reference - reference),
        difference + combine(high_other - other, reference - low_reference),
    )


def _tango(counts: PairedCounts, alpha: float) -> Interval:
    n, b, c = counts.n, counts.only_other, counts.only_reference
    z = float(stats.norm.ppf(1 - alpha / 2))

    def score(delta: float) -> float:
        first = -b - c + (2 * n - b + c) * delta
        last = -c * delta * (1 - delta)
        q = (math.sqrt(max(0.0, first * first - 8 * n * last)) - first) / (4 * n)
        variance = n * (2 * q + delta * (1 - delta))
        gap = b - c - n * delta
        if abs(gap) < 1e-12:
            return 0.0
        return gap / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, gap)

    value, edge = (b - c) / n, 1 - 1e-9

    def end(side: float, target: float) -> float:
        # The score falls from +inf to -inf; at a rate of +-1 the interval ends there.
        if abs(side - value) < 1e-9:
            return side
        return float(optimize.brentq(lambda d: _finite(score(d) - target), value, side, xtol=1e-10))

    return Interval(end(-edge, z), end(edge, -z))


def _finite(value: float) -> float:
    return max(-1e9, min(1e9, value))


def holm(pvalues: ArrayLike) -> NDArray[np.float64]:
    """Holm-adjusted p-values, shape (m,); NaN stands for a test that was not made.

    The same numbers as statsmodels' ``multipletests``, which takes 80 ms a call and a second to
    import.
    """
    p = np.asarray(pvalues, dtype=np.float64)
    adjusted = np.full(p.shape, np.nan)
    made = ~np.isnan(p)
    order = np.argsort(p[made], kind="stable")
    stepped = np.maximum.accumulate(p[made][order] * np.arange(order.size, 0, -1))
    result = np.empty(order.size)
    result[order] = np.minimum(1.0, stepped)
    adjusted[made] = result
    return adjusted
