import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robogen.stats import bounded_mean, clopper_pearson, jeffreys, mean_t, rate, wilson

counts = st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("method", "k", "n", "low", "high"),
    [
        (wilson, 7, 10, 0.397, 0.892),
        (wilson, 0, 10, 0.0, 0.278),
        (wilson, 3, 5, 0.231, 0.882),
        (wilson, 18, 25, 0.524, 0.857),
        (wilson, 40, 50, 0.670, 0.888),
        (wilson, 160, 200, 0.739, 0.850),
        (clopper_pearson, 7, 10, 0.348, 0.933),
        (clopper_pearson, 0, 10, 0.0, 0.308),
        (clopper_pearson, 40, 50, 0.663, 0.900),
        (jeffreys, 7, 10, 0.394, 0.907),
    ],
)
def test_published_values(method, k, n, low, high):
    assert method(k, n) == pytest.approx((low, high), abs=6e-4)


def test_closed_form_of_wilson():
    z, k, n = 1.959963984540054, 13, 40
    p = k / n
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    expected = (p + z * z / (2 * n) + np.array([-half, half])) / (1 + z * z / n)
    assert wilson(k, n) == pytest.approx(expected)


def test_closed_form_of_clopper_pearson_without_successes():
    assert clopper_pearson(0, 20).high == pytest.approx(1 - 0.025 ** (1 / 20))


@pytest.mark.parametrize("method", [wilson, clopper_pearson, jeffreys])
@given(counts=counts)
def test_intervals_contain_the_rate_and_mirror(method, counts):
    k, n = counts
    low, high = method(k, n)
    assert 0 <= low <= k / n <= high <= 1
    assert method(n - k, n) == pytest.approx((1 - high, 1 - low), abs=1e-9)
    if k == 0:
        assert low == 0
    wide_low, wide_high = method(k, n, alpha=0.01)
    assert wide_low <= low <= high <= wide_high


@pytest.mark.parametrize("method", [wilson, clopper_pearson, jeffreys])
def test_nothing_tried_says_nothing_and_nonsense_is_refused(method):
    assert method(0, 0) == (0, 1)
    assert rate(0, 0) is None
    with pytest.raises(ValueError, match="successes must lie"):
        method(3, 2)


def test_exact_interval_covers_at_least_as_promised():
    n = 20
    intervals = [clopper_pearson(k, n) for k in range(n + 1)]
    for p in np.linspace(0.01, 0.99, 33):
        weights = np.array([_binomial(n, k, p) for k in range(n + 1)])
        covered = np.array([low <= p <= high for low, high in intervals])
        assert weights[covered].sum() >= 0.95


def _binomial(n, k, p):
    from math import comb

    return comb(n, k) * p**k * (1 - p) ** (n - k)


def test_wilson_covers_as_the_reference_table_says():
    n = 10
    intervals = [wilson(k, n) for k in range(n + 1)]
    coverage = [
        sum(_binomial(n, k, p) for k, (low, high) in enumerate(intervals) if low <= p <= high)
        for p in np.linspace(0.01, 0.99, 981)
    ]
    assert np.mean(coverage) == pytest.approx(0.954, abs=0.002)
    assert np.min(coverage) < 0.87


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_mean_of_scores_lies_in_its_interval(values):
    mean, low, high = bounded_mean(values)
    assert 0 <= low <= mean <= high <= 1
    assert mean == pytest.approx(np.mean(values))


def test_score_interval_covers_and_is_defined_for_constant_scores():
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(300):
        low, high = bounded_mean(rng.choice([0.0, 0.25, 1.0], size=15, p=[0.6, 0.2, 0.2])).interval
        hits += low <= 0.25 <= high
    assert hits / 300 >= 0.95
    one = bounded_mean(np.ones(50))
    assert one.high == 1
    assert 0.8 < one.low < 0.95
    sorted_scores = bounded_mean([1.0] * 10 + [0.0] * 40)  # easy episodes first
    assert 0.05 < sorted_scores.low < 0.15
    assert 0.3 < sorted_scores.high < 0.4
    assert bounded_mean([]) is None
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        bounded_mean([1.5])
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        bounded_mean([np.nan])


def test_student_interval():
    mean, low, high = mean_t([1.0, 2.0, 3.0])
    assert (mean, low, high) == pytest.approx((2.0, 2 - 2.48414, 2 + 2.48414), abs=1e-4)
    assert mean_t([1.0]) is None
