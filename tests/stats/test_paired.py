import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from robogen.stats import (
    PairedCounts,
    holm,
    mcnemar_exact,
    paired_difference,
    phi,
    wilson,
)

PUBLISHED = Path(__file__).resolve().parents[1] / "data" / "paired_policy_trials.csv"

cells = st.tuples(*[st.integers(0, 60)] * 4).filter(lambda c: sum(c) > 0)


def published():
    lines = [line for line in PUBLISHED.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def counts_of(row):
    n, k0, b, c = (int(row[name]) for name in ("n", "k0", "only_first", "only_second"))
    return PairedCounts(k0 - b, b, c, n - k0 - c)


@pytest.mark.parametrize("row", published(), ids=lambda row: row["data_set"])
def test_published_mcnemar(row):
    counts = counts_of(row)
    assert (counts.n, counts.reference_successes, counts.other_successes) == (
        int(row["n"]),
        int(row["k0"]),
        int(row["k1"]),
    )
    assert mcnemar_exact(counts) == pytest.approx(float(row["mcnemar_exact"]), rel=5e-3)


@pytest.mark.parametrize("row", published(), ids=lambda row: row["data_set"])
def test_published_difference_is_the_unpaired_one(row):
    """The table's interval ignores the pairing: square-and-add without the correlation."""
    counts = counts_of(row)
    n, p0, p1 = counts.n, counts.reference_successes / counts.n, counts.other_successes / counts.n
    (l0, u0), (l1, u1) = wilson(counts.reference_successes, n), wilson(counts.other_successes, n)
    low = p0 - p1 - np.hypot(p0 - l0, u1 - p1)
    high = p0 - p1 + np.hypot(u0 - p0, p1 - l1)
    assert (low, high) == pytest.approx((float(row["low"]), float(row["high"])), abs=6e-4)
    estimate = paired_difference(counts)
    correlation = phi(counts)
    assert estimate.value == pytest.approx(p1 - p0)
    width = estimate.high - estimate.low
    assert (
        width < high - low if correlation > 0.15 else width == pytest.approx(high - low, abs=0.03)
    )


@pytest.mark.parametrize(
    ("cells", "method", "low", "high"),
    [
        # Complete response before and after consolidation therapy (Cavo et al., 2012), as computed
        # by the R package contingencytables; its difference has the other sign.
        ((59, 6, 16, 80), "newcombe", 0.0046, 0.1186),
        ((59, 6, 16, 80), "tango", 0.0054, 0.1240),
    ],
)
def test_published_paired_intervals(cells, method, low, high):
    estimate = paired_difference(PairedCounts(*cells), method=method)
    assert estimate.interval == pytest.approx((low, high), abs=6e-5)


@pytest.mark.parametrize("method", ["newcombe", "tango"])
@given(cells=cells)
def test_intervals_contain_the_estimate_and_mirror(method, cells):
    counts = PairedCounts(*cells)
    value, low, high = paired_difference(counts, method=method)
    assert -1 <= low <= value + 1e-9
    assert value - 1e-9 <= high <= 1
    swapped = paired_difference(PairedCounts(cells[0], cells[2], cells[1], cells[3]), method=method)
    assert swapped == pytest.approx((-value, -high, -low), abs=1e-7)
    wide = paired_difference(counts, method=method, alpha=0.01)
    assert wide.low <= low + 1e-9
    assert wide.high >= high - 1e-9


@given(cells=cells)
def test_tango_ends_are_where_the_score_is_the_quantile(cells):
    counts = PairedCounts(*cells)
    n, b, c = counts.n, counts.only_other, counts.only_reference
    _, low, high = paired_difference(counts, method="tango")
    for delta in (low, high):
        if abs(delta) > 1 - 1e-6:
            continue
        first, last = -b - c + (2 * n - b + c) * delta, -c * delta * (1 - delta)
        q = (np.sqrt(max(0, first**2 - 8 * n * last)) - first) / (4 * n)
        variance = n * (2 * q + delta * (1 - delta))
        assert abs(b - c - n * delta) / np.sqrt(variance) == pytest.approx(1.959964, abs=1e-3)


@pytest.mark.parametrize("method", ["newcombe", "tango"])
def test_paired_interval_covers(method):
    """Correlated outcomes with known rates: the difference is covered about 95 % of the time."""
    rng = np.random.default_rng(11)
    for p11, p10, p01 in [(0.6, 0.25, 0.05), (0.3, 0.2, 0.2), (0.1, 0.8, 0.02)]:
        draws = rng.multinomial(40, [p11, p10, p01, 1 - p11 - p10 - p01], size=1200)
        unique, number = np.unique(draws, axis=0, return_counts=True)
        hits = 0
        for cells, times in zip(unique, number, strict=True):
            _, low, high = paired_difference(PairedCounts(*map(int, cells)), method=method)
            hits += times * (low <= p01 - p10 <= high)
        assert 0.92 <= hits / 1200 <= 0.985


@given(cells=cells)
def test_mcnemar_is_the_binomial_test_and_is_symmetric(cells):
    counts = PairedCounts(*cells)
    b, c = counts.only_reference, counts.only_other
    tail = 2 * scipy_stats.binom.cdf(min(b, c), b + c, 0.5)
    assert mcnemar_exact(counts) == pytest.approx(min(1.0, tail))
    assert mcnemar_exact(PairedCounts(0, c, b, 0)) == mcnemar_exact(counts)


@given(cells=cells)
def test_phi_is_the_correlation_of_outcomes(cells):
    reference = np.repeat([True, True, False, False], cells)
    other = np.repeat([True, False, True, False], cells)
    counts = PairedCounts.from_outcomes(reference, other)
    assert counts == cells
    if reference.std() == 0 or other.std() == 0:
        assert phi(counts) is None
    else:
        assert phi(counts) == pytest.approx(np.corrcoef(reference, other)[0, 1], abs=1e-9)


def test_unmatched_or_unscored_outcomes_are_refused():
    with pytest.raises(ValueError, match="matched"):
        PairedCounts.from_outcomes([True], [True, False])
    with pytest.raises(TypeError, match="unscored"):
        PairedCounts.from_outcomes([1.0, np.nan], [1.0, 0.0])
    assert paired_difference(PairedCounts(0, 0, 0, 0)) is None
    assert mcnemar_exact(PairedCounts(5, 0, 0, 5)) == 1


def test_holm_equals_statsmodels():
    from statsmodels.stats.multitest import multipletests

    values = np.random.default_rng(2).random(12) ** 4
    assert holm(values) == pytest.approx(multipletests(values, method="holm")[1])


def test_holm_closed_form():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    with_gap = holm([0.01, np.nan, 0.04, 0.03])
    assert np.isnan(with_gap[1])
    assert with_gap[[0, 2, 3]] == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]).size == 0


@given(st.lists(st.floats(1e-12, 1), min_size=1, max_size=20))
def test_holm_lies_between_raw_and_bonferroni(values):
    adjusted = holm(values)
    raw = np.array(values)
    assert np.all(adjusted >= raw - 1e-12)
    assert np.all(adjusted <= np.minimum(1, raw * raw.size) + 1e-12)
    assert np.all(np.diff(adjusted[np.argsort(raw, kind="stable")]) >= -1e-12)
