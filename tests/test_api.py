"""Studies from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import robogen
from robogen.errors import ConfigError, RecordsError

SHORT = {"scene": {"push": {"horizon_s": 1.0}}}


class HalfSpeed(robogen.Policy):
    """A policy of the caller's own, with no file."""

    def __init__(self) -> None:
        self.spec = robogen.PolicySpec(
            observation=robogen.ObservationSpec(
                cameras=(robogen.CameraSpec(name="front", width=24, height=24),)
            ),
            action=robogen.ActionSpec(),
        )
        self.closed = 0

    def act(self, rows: Sequence[int], observations: Sequence[robogen.Observation]) -> np.ndarray:
        return np.full((len(rows), 1, 7), 0.5)

    def close(self) -> None:
        self.closed += 1


def test_a_policy_object_is_evaluated_in_this_process(tmp_path: Path):
    policy = HalfSpeed()
    study = robogen.evaluate(
        scene="push",
        policy=policy,
        perturbation=["camera_pose"],
        episodes=2,
        items=SHORT,
        out=str(tmp_path / "run"),
    )
    assert policy.closed == 0, "it belongs to the caller"
    records = list(study.records)
    assert {(r.policy, r.condition) for r in records} == {
        ("half_speed", "nominal"),
        ("half_speed", "camera_pose"),
    }
    assert all(isinstance(record, robogen.EpisodeRecord) for record in records)
    assert {r.reached["camera_pose"]["verdict"] for r in records if r.factors} == {"reached"}
    (group,) = study.summary.groups
    assert (group.scene, group.policy) == ("push", "half_speed")
    assert study.manifest["study"]["episodes"] == 2


def test_several_objects_go_by_their_names(tmp_path: Path):
    study = robogen.evaluate(
        scene="push",
        policy={"a": HalfSpeed(), "b": HalfSpeed()},
        suite=None,
        episodes=1,
        items=SHORT,
        out=str(tmp_path / "run"),
    )
    one, other = study.records
    assert (one.policy, other.policy) == ("a", "b")
    assert one.state_hash == other.state_hash
    assert one.behaviour == other.behaviour


def test_a_study_opens_again_and_resumes(tmp_path: Path):
    settings = {
        "scene": "push",
        "policy": "random",
        "perturbation": ["mass"],
        "episodes": 1,
        "workers": 0,
        "items": SHORT,
        "out": str(tmp_path / "run"),
    }
    ran = robogen.evaluate(**settings)
    files = {f: f.stat().st_mtime_ns for f in tmp_path.rglob("*") if f.is_file()}
    read = robogen.open_study(tmp_path / "run")
    assert read.records.digest() == ran.records.digest()
    assert read.summary == ran.summary
    assert {f: f.stat().st_mtime_ns for f in tmp_path.rglob("*") if f.is_file()} == files
    assert robogen.evaluate(**settings).records.digest() == ran.records.digest()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"episode": 3}, "Did you mean 'episodes'"),
        ({"items": {"factor": {}}}, "perturbation"),
        ({"scene": "pik"}, "Did you mean 'pick'"),
        ({"policy": "orcale"}, "Did you mean 'oracle'"),
        ({"episodes": 0}, "at least 1"),
        ({"policy": HalfSpeed(), "workers": 2}, "workers=0"),
    ],
)
def test_mistakes_name_the_remedy(settings: dict[str, object], message: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=message):
        robogen.evaluate(**{"policy": "zero", "out": str(tmp_path / "run"), **settings})


def test_no_study_there(tmp_path: Path):
    with pytest.raises(RecordsError, match="no run folder"):
        robogen.open_study(tmp_path / "nowhere")
