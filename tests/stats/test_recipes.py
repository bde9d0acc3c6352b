import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestIndPower

from robogen.stats import SeedSpread, recipe_difference, seeds_needed


def test_the_interval_and_p_are_welchs():
    a, b, n = [80, 74, 88], [95, 90, 99], [100] * 3
    found = recipe_difference((a, n), (b, n))
    wanted = stats.ttest_ind(np.divide(b, n), np.divide(a, n), equal_var=False)
    low, high = wanted.confidence_interval(0.95)
    assert found.p == pytest.approx(wanted.pvalue)
    assert found.change.value == pytest.approx(0.14)
    assert (found.change.low, found.change.high) == pytest.approx((low, high))


def test_seeds_that_agree_by_chance_are_not_certain():
    """Three seeds at exactly 90 of 100 have a spread of zero; 100 episodes do not."""
    found = recipe_difference(([90] * 3, [100] * 3), ([91] * 3, [100] * 3))
    assert found.p > 0.5
    assert found.change.low < 0 < found.change.high
    perfect = recipe_difference(([100] * 3, [100] * 3), ([100] * 3, [100] * 3))
    assert perfect.p == 1.0
    assert perfect.seeds_needed is None


def test_one_seed_is_refused():
    with pytest.raises(ValueError, match="two seeds"):
        recipe_difference(([1], [2]), ([1, 1], [2, 2]))


def test_the_interval_covers_the_true_difference():
    """Seeds vary as beta, episodes as binomial: 95 % intervals cover 93 to 99 %."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(600):
        sides = []
        for mean in (0.6, 0.75):
            rates = rng.beta(20 * mean, 20 * (1 - mean), size=4)
            sides.append((rng.binomial(100, rates), np.full(4, 100)))
        change = recipe_difference(*sides).change
        covered.append(change.low <= 0.15 <= change.high)
    assert 0.93 <= np.mean(covered) <= 0.99


@pytest.mark.parametrize(("change", "sd"), [(0.2, 0.1), (0.1, 0.1), (0.3, 0.05)])
def test_seeds_needed_are_those_of_the_t_tests_power(change, sd):
    needed = seeds_needed(change, sd)
    power = TTestIndPower()
    assert power.power(change / sd, needed, 0.05) >= 0.8
    assert needed == 2 or power.power(change / sd, needed - 1, 0.05) < 0.8
    assert seeds_needed(1e-4, 0.2) is None


def test_spread_tells_seeds_from_episodes():
    spread = SeedSpread.of([50, 60, 70], [100, 100, 100])
    assert (spread.mean, spread.low, spread.high) == pytest.approx((0.6, 0.5, 0.7))
    assert spread.sd == pytest.approx(0.1)
    assert spread.noise == pytest.approx(np.sqrt(0.6 * 0.4 / 100), rel=0.01)
