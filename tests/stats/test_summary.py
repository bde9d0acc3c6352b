import numpy as np
import pytest

from robogen.stats import EpisodeTable, PairedCounts, Verdict, mcnemar_exact, summarise


class Study:
    """Columns of a study, filled condition by condition."""

    def __init__(self):
        self.rows = []

    def add(self, condition, outcomes, *, scene="pick", policy="bc", repeat=0, reach="", **extra):
        for episode, outcome in enumerate(outcomes):
            if outcome == "absent":
                continue
            self.rows.append(
                {
                    "scene": scene,
                    "policy": policy,
                    "condition": condition,
                    "episode": episode,
                    "repeat": repeat,
                    "status": "errored" if outcome is None else "scored",
                    "success": outcome,
                    "progress": None if outcome is None else float(outcome),
                    "factors": () if condition == "nominal" else tuple(condition.split("+")),
                    "behaviour": {name: values[episode] for name, values in extra.items()},
                    "reach": reach,
                }
            )
        return self

    def columns(self, rows=None):
        rows = self.rows if rows is None else rows
        return {name: [row[name] for row in rows] for name in self.rows[0]}

    def summary(self):
        return summarise(self.columns())

    def group(self):
        (group,) = self.summary().groups
        return group


def outcomes(successes, n):
    return [index < successes for index in range(n)]


def test_a_study_with_one_harmful_factor():
    study = Study().add("nominal", outcomes(48, 50)).add("camera", outcomes(10, 50))
    study.add("light", outcomes(47, 50)).add("camera+light", outcomes(8, 50))
    group = study.group()
    assert [item.condition for item in group.conditions] == ["camera+light", "camera", "light"]
    camera = group.find("camera")
    assert camera.counts == PairedCounts(10, 38, 0, 2)
    assert camera.degradation.value == pytest.approx(-0.76)
    assert camera.degradation.high < -0.59
    assert camera.p == mcnemar_exact(camera.counts)
    assert camera.p_holm == pytest.approx(2 * camera.p)
    assert camera.verdict is Verdict.BREAKS
    assert group.find("light").verdict is Verdict.NO_EVIDENCE
    assert group.tests == 3
    assert not group.too_few_to_rank
    assert [item.factor for item in group.ranking.sets] == ["camera", "light"]
    assert group.ranking.worst_candidates == ("camera",)
    assert 0 < group.smallest_drop < 0.4
    nominal = group.find("nominal")
    assert nominal.rate.value == 0.96
    assert nominal.verdict is None
    assert nominal.degradation is None
    with pytest.raises(KeyError):
        group.find("wind")


def test_unscored_is_not_zero_and_bounds_say_what_is_missing():
    study = Study().add("nominal", [True] * 18 + [None] * 2)
    study.add("light", [True] * 15 + [None] * 4 + [True])
    light = study.group().find("light")
    assert (light.scored, light.errored, light.successes) == (16, 4, 16)
    assert light.rate.value == 1
    assert light.rate_bounds == (16 / 20, 1)
    assert light.pairs == 15
    assert light.degradation.value == 0
    # 15 matched without change, 3 nominal successes unmatched, 1 both missing, 1 nominal missing
    assert light.degradation_bounds == pytest.approx((-4 / 20, 2 / 20))
    complete = Study().add("nominal", [True] * 5).add("light", [True] * 5).group().find("light")
    assert complete.rate_bounds is None
    assert complete.degradation_bounds is None


def test_an_errored_success_flag_is_ignored():
    columns = Study().add("nominal", [True, False]).columns()
    columns["status"] = ["scored", "errored"]
    (group,) = summarise(columns).groups
    assert (group.nominal.scored, group.nominal.errored) == (1, 1)


def test_everything_errored():
    group = Study().add("nominal", [None] * 5).add("light", [None] * 5).group()
    light = group.find("light")
    assert (light.rate, light.degradation, light.p, light.progress) == (None, None, None, None)
    assert light.verdict is Verdict.TOO_FEW
    assert group.too_few_to_rank
    assert group.ranking is None
    assert group.tests == 0


def test_a_condition_without_nominal_and_a_nominal_alone():
    group = Study().add("light", [True] * 5).group()
    assert group.nominal is None
    assert group.find("light").degradation is None
    assert group.find("light").rate.value == 1
    assert Study().add("nominal", [True] * 5).group().conditions == ()


def test_too_few_to_rank_follows_from_power_not_from_a_number():
    def group(n, factors):
        study = Study().add("nominal", [True] * n)
        for index in range(factors):
            study.add(f"f{index}", [index > 0] * n)
        return study.group()

    assert group(5, 2).too_few_to_rank
    assert group(5, 2).find("f0").verdict is Verdict.TOO_FEW
    assert not group(8, 2).too_few_to_rank
    assert group(8, 12).too_few_to_rank  # more factors, more episodes
    assert not group(12, 12).too_few_to_rank


def test_nominal_at_floor_has_nothing_to_rank():
    study = Study().add("nominal", [False] * 30).add("light", [False] * 30)
    group = study.add("camera", [False] * 30).group()
    assert group.at_floor
    assert {item.verdict for item in group.conditions} == {Verdict.FLOOR}
    assert group.ranking is None
    assert group.needed_for_half is None


def test_conditions_that_did_not_reach_are_no_degradation():
    study = Study().add("nominal", outcomes(28, 30))
    study.add("light", outcomes(28, 30), reach="did not reach")
    study.add("camera", outcomes(2, 30), reach="reached")
    study.add("table", outcomes(28, 30), reach="not observed")
    group = study.group()
    light = group.find("light")
    assert light.verdict is Verdict.DID_NOT_REACH
    assert (light.degradation, light.rate, light.unreached) == (None, None, 30)
    assert group.find("camera").verdict is Verdict.BREAKS
    table = group.find("table")
    assert table.verdict is Verdict.NOT_OBSERVED
    assert table.not_observed == 30
    assert table.p_holm is None
    assert group.tests == 1


def test_some_unreached_episodes_are_left_out():
    study = Study().add("nominal", [True] * 20)
    study.add("light", [False] * 20, reach="reached")
    for row in study.rows:
        if row["condition"] == "light" and row["episode"] < 4:
            row["reach"], row["success"] = "did not reach", True
    light = study.group().find("light")
    assert (light.scored, light.unreached, light.pairs) == (16, 4, 16)
    assert light.degradation.value == -1
    assert light.verdict is Verdict.BREAKS


def test_noise_floor_compares_reruns_in_disjoint_pairs():
    study = Study().add("nominal", [True] * 10)
    study.add("nominal", [True] * 8 + [False] * 2, repeat=1)
    study.add("nominal", [True] * 10, repeat=2)
    study.add("nominal", [True] * 9 + [None], repeat=3)
    group = study.group()
    assert group.noise_floor.pairs == 19
    assert group.noise_floor.disagreement.value == pytest.approx(2 / 19)
    assert group.nominal.scored == 10  # reruns are not more episodes
    assert Study().add("nominal", [True]).group().noise_floor is None


def test_behaviour_changes_are_matched():
    force = np.linspace(1, 5, 10)
    study = Study().add("nominal", [True] * 10, force=force, drops=[0] * 10)
    study.add("light", [True] * 9 + [None], force=force + 2, drops=[None] * 10)
    (change,) = study.group().find("light").behaviour
    assert change.name == "force"
    assert change.pairs == 9
    assert change.change.value == pytest.approx(2)
    assert change.change.low == pytest.approx(2)
    assert change.mean == pytest.approx(np.mean(force[:9] + 2))


def test_matching_is_by_episode_and_groups_are_apart():
    study = Study().add("nominal", [True, "absent", False]).add("light", ["absent", True, True])
    study.add("nominal", [False], policy="other").add("nominal", [True], scene="push")
    summary = study.summary()
    assert [(group.scene, group.policy) for group in summary.groups] == [
        ("pick", "bc"),
        ("pick", "other"),
        ("push", "bc"),
    ]
    light = summary.groups[0].find("light")
    assert light.counts == PairedCounts(0, 0, 1, 0)


def test_the_order_of_rows_does_not_matter():
    rng = np.random.default_rng(1)
    study = Study().add("nominal", outcomes(20, 25), force=rng.random(25))
    study.add("a", outcomes(9, 25), force=rng.random(25)).add("b", outcomes(15, 25))
    shuffled = [study.rows[index] for index in rng.permutation(len(study.rows))]
    assert summarise(EpisodeTable.from_columns(study.columns(shuffled))) == study.summary()
