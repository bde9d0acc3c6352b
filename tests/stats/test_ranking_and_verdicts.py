import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robogen.stats import (
    PairedCounts,
    Verdict,
    at_floor,
    mcnemar_exact,
    rank_sets,
    smallest_detectable_drop,
    verdict,
)


def columns(rng, rates, n):
    return (rng.random((n, len(rates))) < np.array(rates)).astype(float)


def test_clear_cut_factors_get_exact_ranks():
    rng = np.random.default_rng(0)
    ranking = rank_sets(["mild", "hard", "none"], columns(rng, [0.5, 0.02, 0.98], 200))
    assert [(item.factor, item.best, item.worst) for item in ranking.sets] == [
        ("hard", 1, 1),
        ("mild", 2, 2),
        ("none", 3, 3),
    ]
    assert ranking.inseparable == ()
    assert ranking.worst_candidates == ("hard",)


def test_equal_factors_cannot_be_separated():
    success = np.tile(np.array([[1.0], [0.0]]), (10, 3))
    ranking = rank_sets(["a", "b", "c"], success)
    assert [(item.best, item.worst) for item in ranking.sets] == [(1, 3)] * 3
    assert ranking.inseparable == (("a", "b"), ("a", "c"), ("b", "c"))
    assert ranking.worst_candidates == ("a", "b", "c")


def test_unscored_episodes_are_left_out_of_their_pairs():
    success = np.array([[0.0, 1.0]] * 12 + [[np.nan, 0.0]] * 50)
    ranking = rank_sets(["a", "b"], success)
    assert ranking.sets[0].factor == "a"
    assert ranking.inseparable == ()
    assert [item.factor for item in rank_sets(["a", "b"], success * [[np.nan, 1]]).sets] == ["b"]
    with pytest.raises(ValueError, match="shape"):
        rank_sets(["a"], success)


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 40))
def test_ranks_are_consistent_and_the_order_of_columns_does_not_matter(seed, factors, n):
    rng = np.random.default_rng(seed)
    success = columns(rng, rng.random(factors), n)
    names = [f"f{index}" for index in range(factors)]
    ranking = rank_sets(names, success)
    for place, item in enumerate(ranking.sets, start=1):
        assert 1 <= item.best <= place <= item.worst <= factors
    shuffled = rng.permutation(factors)
    again = rank_sets([names[index] for index in shuffled], success[:, shuffled])
    assert again == ranking


def test_excluded_ranks_are_wrong_rarely():
    rng = np.random.default_rng(3)
    rates = [0.5, 0.5, 0.55, 0.7]
    wrong = 0
    for _ in range(150):
        for item in rank_sets(["0", "1", "2", "3"], columns(rng, rates, 30)).sets:
            own = rates[int(item.factor)]
            possible = range(
                1 + sum(rate < own for rate in rates), 1 + sum(rate <= own for rate in rates)
            )
            if not any(item.best <= rank <= item.worst for rank in possible):
                wrong += 1
                break
    assert wrong / 150 <= 0.05


def judge(*cells, **options):
    counts = PairedCounts(*cells)
    return verdict(counts, adjusted_p=options.pop("p", mcnemar_exact(counts)), **options)


def test_significant_changes_are_named_in_their_direction():
    assert judge(10, 30, 2, 8) is Verdict.BREAKS
    assert judge(10, 2, 30, 8) is Verdict.IMPROVES
    assert judge(10, 30, 2, 8, p=0.2) is Verdict.NO_EVIDENCE  # not after correction


def test_no_evidence_needs_a_study_that_could_have_seen_something():
    assert judge(40, 3, 2, 5) is Verdict.NO_EVIDENCE
    assert judge(4, 0, 0, 0) is Verdict.TOO_FEW
    assert judge(0, 0, 0, 0) is Verdict.TOO_FEW
    assert judge(7, 0, 0, 0) is Verdict.NO_EVIDENCE
    assert judge(7, 0, 0, 0, tests=10) is Verdict.TOO_FEW  # correction costs episodes


def test_floor_is_told_apart_from_too_few():
    assert judge(0, 0, 0, 50) is Verdict.FLOOR
    assert judge(0, 0, 0, 3) is Verdict.FLOOR  # nothing to lose, at any n
    assert judge(1, 1, 0, 48) is Verdict.FLOOR
    assert judge(5, 3, 2, 30, tests=10) is Verdict.TOO_FEW  # 20 %: works, but n is short
    assert judge(1, 0, 1, 2) is Verdict.TOO_FEW


def test_ceiling_hides_gains_only():
    assert judge(50, 0, 0, 0) is Verdict.NO_EVIDENCE
    assert judge(50, 0, 0, 0, direction="rise") is Verdict.CEILING
    assert judge(25, 2, 2, 25, direction="rise") is Verdict.NO_EVIDENCE
    assert judge(0, 0, 0, 50, direction="rise") is Verdict.NO_EVIDENCE
    assert judge(5, 0, 30, 15, direction="rise") is Verdict.IMPROVES


def test_floor_is_a_statement_about_the_nominal_alone():
    assert at_floor(0, 1)
    assert at_floor(0, 100)
    assert at_floor(4, 100)
    assert not at_floor(20, 100)
    assert not at_floor(0, 0)
    assert not at_floor(1, 2)


@given(cells=st.tuples(*[st.integers(0, 40)] * 4), tests=st.integers(1, 20), phi=st.floats(0, 0.9))
def test_no_evidence_is_only_said_where_a_drop_could_have_been_seen(cells, tests, phi):
    counts = PairedCounts(*cells)
    found = judge(*cells, tests=tests, phi=phi)
    if found is Verdict.NO_EVIDENCE:
        assert (
            smallest_detectable_drop(
                counts.n,
                nominal_rate=counts.reference_successes / counts.n,
                phi=phi,
                alpha=0.05 / tests,
            )
            is not None
        )
    if found is Verdict.FLOOR:
        assert counts.reference_successes == 0 or at_floor(counts.reference_successes, counts.n)
    assert found not in (Verdict.CEILING, Verdict.DID_NOT_REACH, Verdict.NOT_OBSERVED)
