"""What a number of matched episodes can and cannot show, computed exactly.

Power is that of the exact McNemar test to reject in the right direction: the number of discordant
pairs is binomial, and so is their split, so that both are summed and nothing is simulated.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats


def drop_power(
    n: int,
    *,
    nominal_rate: float,
    drop: float,
    phi: float | None = None,
    discordance: float | None = None,
    alpha: float = 0.05,
) -> float:
    """Probability that n matched episodes show a true drop of the success rate.

    Args:
        n: Matched episodes.
        nominal_rate: True success rate of the reference.
        drop: Fall of the true rate, 0..nominal_rate.
        phi: Correlation of the matched outcomes, cut to what the two rates allow.
        discordance: Instead of ``phi``: rate of pairs whose outcome changes, raised to the least
            that such a drop needs.
        alpha: Two-sided level of the test.
    """
    lost, won = _discordant_rates(nominal_rate, drop, phi=phi, discordance=discordance)
    total = lost + won
    if n == 0 or total <= 0.0:
        return 0.0
    m = np.arange(1, n + 1)
    # Reject when 2 P(B >= k) <= alpha for a fair coin.
    critical = stats.binom.isf(alpha / 2, m, 0.5) + 1
    split = stats.binom.sf(critical - 1, m, min(1.0, lost / total))
    return float(np.sum(stats.binom.pmf(m, n, min(1.0, total)) * split))


def smallest_detectable_drop(
    n: int,
    *,
    nominal_rate: float,
    phi: float | None = None,
    discordance: float | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
) -> float | None:
    """Smallest true drop that n matched episodes show with the given power.

    Divide ``alpha`` by the number of factors tested together: that is Holm's first, hardest step.

    Returns:
        A drop in 0..nominal_rate, or None when not even a drop to zero would be seen.
    """

    def found(drop: float) -> bool:
        return power <= drop_power(
            n,
            nominal_rate=nominal_rate,
            drop=drop,
            phi=phi,
            discordance=discordance,
            alpha=alpha,
        )

    if not found(nominal_rate):
        return None
    low, high = 0.0, nominal_rate
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


def episodes_needed(
    drop: float,
    *,
    nominal_rate: float,
    phi: float | None = None,
    discordance: float | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
    limit: int = 20_000,
) -> int | None:
    """Matched episodes that show a true drop with the given power; None beyond ``limit``.

    The power of an exact test rises in a saw-tooth; the answer has the power asked for, and is at
    most a tooth above the smallest number that has.
    """

    def found(n: int) -> bool:
        return power <= drop_power(
            n,
            nominal_rate=nominal_rate,
            drop=drop,
            phi=phi,
            discordance=discordance,
            alpha=alpha,
        )

    high = 1
    while not found(high):
        if high >= limit:
            return None
        high = min(2 * high, limit)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


def _discordant_rates(
    nominal: float, drop: float, *, phi: float | None, discordance: float | None
) -> tuple[float, float]:
    """Rates of pairs lost and won."""
    if not 0.0 <= nominal <= 1.0 or not 0.0 <= drop <= nominal + 1e-12:
        raise ValueError(f"need 0 <= drop <= nominal rate <= 1, got drop {drop} of {nominal}")
    if (phi is None) == (discordance is None):
        raise ValueError("give either phi or discordance")
    other = max(0.0, nominal - drop)
    if discordance is not None:
        # Both outcomes can change only as often as there is success or failure to change.
        most = min(nominal + other, 2.0 - nominal - other)
        total = max(drop, min(discordance, most))
        return (total + drop) / 2, (total - drop) / 2
    assert phi is not None
    spread = math.sqrt(nominal * (1 - nominal) * other * (1 - other))
    both = nominal * other + phi * spread
    both = min(max(both, 0.0, nominal + other - 1.0), nominal, other)
    return nominal - both, other - both
