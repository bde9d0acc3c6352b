from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robogen.stats import (
    PairedCounts,
    drop_power,
    episodes_needed,
    mcnemar_exact,
    smallest_detectable_drop,
)


def enumerated(n, lost, won, alpha):
    """Power by going through every table of n pairs."""
    total = 0.0
    for b in range(n + 1):
        for c in range(n + 1 - b):
            if b > c and mcnemar_exact(PairedCounts(0, b, c, n - b - c)) <= alpha:
                ways = comb(n, b) * comb(n - b, c)
                total += ways * lost**b * won**c * (1 - lost - won) ** (n - b - c)
    return total


@pytest.mark.parametrize(
    ("n", "p0", "drop", "phi"), [(12, 0.8, 0.5, 0.0), (15, 0.9, 0.7, 0.1), (10, 0.5, 0.4, -0.1)]
)
def test_power_equals_enumeration(n, p0, drop, phi):
    p1 = p0 - drop
    both = p0 * p1 + phi * np.sqrt(p0 * (1 - p0) * p1 * (1 - p1))
    expected = enumerated(n, p0 - both, p1 - both, 0.05)
    assert drop_power(n, nominal_rate=p0, drop=drop, phi=phi) == pytest.approx(expected, abs=1e-10)


def test_discordance_is_the_other_parametrisation():
    both = 0.8 * 0.5 + 0.3 * np.sqrt(0.16 * 0.25)
    total = 0.8 + 0.5 - 2 * both
    assert drop_power(40, nominal_rate=0.8, drop=0.3, discordance=total) == pytest.approx(
        drop_power(40, nominal_rate=0.8, drop=0.3, phi=0.3)
    )
    with pytest.raises(ValueError, match="either"):
        drop_power(40, nominal_rate=0.8, drop=0.3)
    with pytest.raises(ValueError, match="drop <= nominal"):
        drop_power(40, nominal_rate=0.2, drop=0.3, phi=0)


def test_closed_form_of_a_complete_break_from_a_perfect_policy():
    # Every pair is discordant: six of six gives p = 1/32, five of five p = 1/16.
    assert drop_power(6, nominal_rate=1, drop=1, phi=0) == pytest.approx(1)
    assert drop_power(5, nominal_rate=1, drop=1, phi=0) == 0
    assert smallest_detectable_drop(5, nominal_rate=1, phi=0) is None
    assert smallest_detectable_drop(6, nominal_rate=1, phi=0, power=0.8) == pytest.approx(
        0.8 ** (1 / 6), abs=2e-4
    )
    assert episodes_needed(1.0, nominal_rate=1, phi=0) == 6


@given(n=st.integers(6, 120), p0=st.floats(0.05, 1), phi=st.floats(0, 0.9))
def test_smallest_drop_has_the_power_and_less_has_not(n, p0, phi):
    drop = smallest_detectable_drop(n, nominal_rate=p0, phi=phi)
    if drop is None:
        assert drop_power(n, nominal_rate=p0, drop=p0, phi=phi) < 0.8
        return
    assert 0 < drop <= p0
    assert drop_power(n, nominal_rate=p0, drop=drop, phi=phi) >= 0.8
    assert drop_power(n, nominal_rate=p0, drop=0.95 * drop, phi=phi) < 0.8


@given(p0=st.floats(0.2, 1), drop=st.floats(0.1, 1), phi=st.floats(0, 0.5))
def test_episodes_needed_have_the_power(p0, drop, phi):
    drop = min(drop, p0)
    n = episodes_needed(drop, nominal_rate=p0, phi=phi)
    assert drop_power(n, nominal_rate=p0, drop=drop, phi=phi) >= 0.8
    assert drop_power(n - 1, nominal_rate=p0, drop=drop, phi=phi) < 0.8


def test_more_tests_need_more_episodes_and_the_impossible_is_none():
    one = episodes_needed(0.3, nominal_rate=0.9, phi=0.1)
    ten = episodes_needed(0.3, nominal_rate=0.9, phi=0.1, alpha=0.005)
    assert ten > one
    assert episodes_needed(0.001, nominal_rate=0.9, phi=0, limit=500) is None


def test_agrees_with_the_reference_sample_sizes_for_correlated_pairs():
    """Normal-theory sizes for phi 0.4; the exact test needs a little more."""
    for p0, p1, expected in [(0.6, 0.5, 231), (0.7, 0.5, 55), (0.8, 0.7, 176), (0.9, 0.8, 121)]:
        n = episodes_needed(p0 - p1, nominal_rate=p0, phi=0.4)
        assert expected <= n <= 1.25 * expected
