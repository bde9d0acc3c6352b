"""B against A: the same episodes for checkpoints, several seeds for recipes."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import numpy as np
import pytest

from robogen.cli import app
from robogen.compare import Answer, compare
from robogen.errors import ConfigError, RecordsError
from robogen.records import EpisodeRecord, RecordStore, write_manifest
from robogen.stats import PairedCounts, mcnemar_exact, paired_difference

N = 60


def study(folder, rates, *, seed=0, conditions=("nominal", "blur"), manifest=None, shift=0, n=N):
    """A run folder; ``rates`` is policy to success probability by condition."""
    with RecordStore.create_or_open(folder, study_hash="h") as store:
        store._connection.execute("PRAGMA synchronous=OFF")  # thousands of rows, none precious
        for policy, by_condition in rates.items():
            # Weights of a name succeed where they succeed, whatever else is in the folder.
            rng = np.random.default_rng([seed, *policy.encode()])
            for condition in conditions:
                luck = rng.random(n)
                for episode in range(n):
                    store.add(
                        EpisodeRecord(
                            scene="pick",
                            policy=policy,
                            condition=condition,
                            episode=episode,
                            status="scored",
                            success=bool(luck[episode] < by_condition[condition]),
                            progress=1.0,
                            steps=9,
                            draws={} if condition == "nominal" else {"blur": {"px": 1.0}},
                            state_hash=f"start {episode + shift}",
                        )
                    )
    about = {
        "schema_version": 1,
        "study": {"seed": 0, "episodes": n},
        "scenes": {"pick": {"hash": "a"}},
        "factors": {"blur": {"hash": "b"}},
        "policies": {policy: {} for policy in rates},
        "conditions": [{"id": condition, "factors": []} for condition in conditions],
        **(manifest or {}),
    }
    write_manifest(folder, about)
    return folder


@pytest.fixture
def both(tmp_path):
    return study(
        tmp_path / "both",
        {"good": {"nominal": 0.95, "blur": 0.9}, "poor": {"nominal": 0.95, "blur": 0.3}},
    )


def test_checkpoints_are_compared_episode_by_episode(both):
    result = compare([both], a=["good"], b=["poor"], what="checkpoints")
    nominal, blur = result.rows
    outcomes = []
    for policy in ("good", "poor"):
        rng = np.random.default_rng([0, *policy.encode()])
        rates = {"good": (0.95, 0.9), "poor": (0.95, 0.3)}[policy]
        outcomes.append([rng.random(N) < rate for rate in rates])
    counts = PairedCounts.from_outcomes(outcomes[0][1], outcomes[1][1])
    assert blur.p == mcnemar_exact(counts)
    assert blur.p_holm == pytest.approx(2 * blur.p)
    assert blur.change == paired_difference(counts)
    assert blur.answer is Answer.WORSE
    assert nominal.answer is Answer.CANNOT_TELL
    assert nominal.needed is None or nominal.needed > N
    assert result.worse_by(10) == [blur]
    assert result.worse_by(99) == []
    mirrored = compare([both], a=["poor"], b=["good"], what="checkpoints").rows[1]
    assert mirrored.answer is Answer.BETTER
    assert mirrored.change.value == -blur.change.value


@pytest.mark.parametrize("what", ["checkpoints", "recipes"])
def test_two_runs_are_compared_across_folders(tmp_path, what):
    rates = {"nominal": 0.9, "blur": 0.5}
    a = study(tmp_path / "a", {f"s{seed}": rates for seed in range(3)})
    b = study(tmp_path / "b", {f"t{seed}": {**rates, "blur": 1.0} for seed in range(3)})
    names = (["s0"], ["t0"]) if what == "checkpoints" else (["s*"], ["t*"])
    result = compare([a, b], a=names[0], b=names[1], what=what)
    assert result.rows[1].answer is Answer.BETTER
    assert result.rows[1].change.value > 0.3


def test_recipes_are_judged_by_their_seeds_not_their_episodes(tmp_path):
    """Thousands of episodes cannot make two seeds that disagree into evidence."""
    wide = [{"nominal": rate} for rate in (0.2, 0.9)]
    narrow = [{"nominal": rate} for rate in (0.5, 0.95)]
    rates = {f"a-{i}": r for i, r in enumerate(wide)} | {f"b-{i}": r for i, r in enumerate(narrow)}
    folder = study(tmp_path / "run", rates, conditions=("nominal",), n=400)
    (row,) = compare([folder], a=["a-*"], b=["b-*"], what="recipes").rows
    assert row.answer is Answer.CANNOT_TELL
    assert row.a.spread.seeds == 2
    assert row.a.spread.sd > 0.3
    assert row.needed > 2
    (alone,) = compare([folder], a=["a-0"], b=["b-1"], what="checkpoints").rows
    assert alone.answer is Answer.BETTER


def test_what_is_compared_must_be_said(both):
    with pytest.raises(ConfigError, match=r"--of checkpoints asks .* --of recipes asks"):
        compare([both], a=["good"], b=["poor"], what=None)


def test_a_recipe_with_one_seed_is_refused(both):
    with pytest.raises(ConfigError, match="cannot be judged by one seed: 'good'"):
        compare([both], a=["good"], b=["poor"], what="recipes")


def test_one_checkpoint_under_two_names_is_one_seed(tmp_path):
    rates = {name: {"nominal": 0.9} for name in ("a-0", "a-1", "b-0", "b-1")}

    def made(folder, hashes):
        policies = {
            name: {"pick": {"checkpoint": h, "spec": {}, "deterministic": True}}
            for name, h in zip(rates, hashes, strict=True)
        }
        return study(folder, rates, conditions=("nominal",), manifest={"policies": policies})

    twins = made(tmp_path / "twins", "xyzz")
    with pytest.raises(ConfigError, match="'b-0' and 'b-1' are the same policy"):
        compare([twins], a=["a-*"], b=["b-*"], what="recipes")
    seeds = made(tmp_path / "seeds", "wxyz")
    assert compare([seeds], a=["a-*"], b=["b-*"], what="recipes").rows


def test_several_checkpoints_on_a_side_are_refused(tmp_path):
    folder = study(tmp_path / "r", {name: {"nominal": 1.0, "blur": 1.0} for name in "xyz"})
    with pytest.raises(ConfigError, match="one policy with one, got 2 and 1"):
        compare([folder], a=["x", "y"], b=["z"], what="checkpoints")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"shift": 1}, "episode 0 did not start alike"),
        ({"manifest": {"study": {"seed": 1, "episodes": N}}}, "study seeds differ"),
        ({"manifest": {"scenes": {"pick": {"hash": "z"}}}}, "scene 'pick' differs"),
        ({"manifest": {"factors": {"blur": {"hash": "z"}}}}, "factor 'blur' differs"),
    ],
)
def test_other_episodes_are_not_comparable(tmp_path, changes, why):
    rates = {"nominal": 0.9, "blur": 0.2}
    a = study(tmp_path / "a", {"p": rates})
    b = study(tmp_path / "b", {"q": {"nominal": 0.9, "blur": 0.9}}, **changes)
    rows = compare([a, b], a=[], b=[], what="checkpoints").rows
    assert all(row.answer is Answer.NOT_COMPARABLE and why in row.why for row in rows)
    assert all(row.p is None and row.change is None for row in rows)


def test_thinking_time_that_counts_differently_is_remarked(tmp_path):
    rates = {"nominal": 0.9, "blur": 0.5}
    slow = {"study": {"seed": 0, "episodes": N, "timing": "realtime", "latency_ms": 200}}
    a = study(tmp_path / "a", {"p": rates})
    b = study(tmp_path / "b", {"p": rates}, manifest=slow)
    (remark,) = compare([a, b], a=[], b=[], what="checkpoints").remarks
    assert "realtime, 200 ms" in remark


def test_errored_episodes_leave_the_pairs(tmp_path):
    folder = study(tmp_path / "r", {"p": {"nominal": 0.9}, "q": {"nominal": 0.9}}, n=20,
                   conditions=("nominal",))  # fmt: skip
    with RecordStore.create_or_open(folder, study_hash="h") as store:
        store._connection.execute(
            "UPDATE episodes SET status = 'errored', success = NULL, progress = NULL "
            "WHERE policy = 'q' AND episode < 5"
        )
    (row,) = compare([folder], a=["p"], b=["q"], what="checkpoints").rows
    assert (row.a.episodes, row.b.episodes) == (15, 15)


def test_unknown_names_and_empty_overlap(both, tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'good'"):
        compare([both], a=["goood"], b=["poor"], what="checkpoints")
    with pytest.raises(ConfigError, match="several policies"):
        compare([both], a=[], b=["poor"], what="checkpoints")
    with pytest.raises(ConfigError, match="both sides"):
        compare([both], a=["good"], b=["good"], what="checkpoints")
    other = study(tmp_path / "o", {"p": {"noise": 1.0}}, conditions=("noise",))
    with pytest.raises(RecordsError, match="share no condition"):
        compare([both, other], a=["good"], b=["p"], what="checkpoints")


def test_the_command_prints_writes_and_fails_as_asked(both, tmp_path, capsys):
    words = ["compare", str(both), "--a", "good", "--b", "poor", "--of", "checkpoints"]
    assert app.run(words) == 0
    said = capsys.readouterr().out
    assert "B is worse under blur" in said
    assert "another question" in said
    files = ["--json", str(tmp_path / "x" / "c.json"), "--junit", str(tmp_path / "c.xml")]
    files += ["--markdown", str(tmp_path / "c.md")]
    assert app.run([*words, "--fail-if-worse", "5", *files]) == 1
    rows = json.loads((tmp_path / "x" / "c.json").read_text())["rows"]
    assert [row["answer"] for row in rows] == ["cannot tell", "worse"]
    page = (tmp_path / "c.md").read_text()
    assert page.count("| worse |") == 1
    assert "B is worse under blur" in page
    suite = ElementTree.parse(tmp_path / "c.xml").getroot()
    assert suite.get("failures") == "1"
    assert [case.find("failure") is not None for case in suite] == [False, True]
    assert app.run([*words, "--fail-if-worse", "90"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--of", "recipe"], "Did you mean 'recipes'"),
        ([], "--of checkpoints"),
        (["--of", "checkpoints", "--alpha", "2"], "between 0 and 1"),
    ],
)
def test_mistakes_are_one_paragraph(both, capsys, words, message):
    assert app.run(["compare", str(both), "--a", "good", "--b", "poor", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
