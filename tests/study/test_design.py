"""A study is settled once: what was asked is used, and files changed later do not matter."""

from __future__ import annotations

import numpy as np
import pytest

from robogen.errors import ConfigError, PolicyError, PolicyUnavailable
from robogen.paths import config_root
from robogen.records import read_records
from robogen.study.config import compose_study
from robogen.study.design import resolve
from robogen.study.study import run_study

PUSH = config_root() / "policies" / "bc" / "push.safetensors"
DIMMER = """
_target_: robogen.perturbations.light.LightIntensity
dimmest_stops: {stops}
brightest_stops: 0.1
"""


def test_editing_a_factors_file_does_not_change_a_resolved_study(tmp_path):
    folder = tmp_path / "perturbations"
    folder.mkdir()
    file = folder / "dimmer.yaml"
    file.write_text(DIMMER.format(stops=-0.5))
    words = ["scene=push", "policy=zero", "perturbation=[dimmer]", "episodes=1"]
    design = resolve(compose_study(words), [tmp_path])
    condition = design.conditions["push"][1]
    before = design.perturbation(condition).ranges
    file.write_text(DIMMER.format(stops=-6.0))
    assert design.perturbation(condition).ranges == before
    again = resolve(compose_study(words), [tmp_path])
    assert again.perturbation(condition).ranges != before
    assert again.hash != design.hash


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("perturbation.masss.severity=0.5", "Unknown factor 'masss'. Did you mean 'mass'"),
        ("perturbation.friction.severity=0.3", "this study does not use that factor .it uses mass"),
    ],
)
def test_an_override_that_nothing_reads_is_refused(word, message):
    words = ["scene=push", "policy=zero", "perturbation=[mass]", "episodes=1", word]
    with pytest.raises(ConfigError, match=message):
        resolve(compose_study(words))


def test_another_scenes_checkpoint_is_refused():
    words = ["scene=pick", "policy=bc", f"policy.bc.checkpoint={PUSH}"]
    with pytest.raises(PolicyError, match="trained for scene 'push' and is asked to act in 'pick'"):
        resolve(compose_study([*words, "suite=null", "episodes=1"]))


def test_all_stands_alone():
    with pytest.raises(ConfigError, match="perturbation=all already means every factor"):
        resolve(compose_study(["scene=push", "policy=zero", "perturbation=[all,mass]"]))


@pytest.mark.parametrize("word", ["severity=abc", "episodes=ten"])
def test_a_value_of_the_wrong_type_says_so(word):
    with pytest.raises(ConfigError, match=f"'{word.split('=')[1]}'.*--help"):
        compose_study(["scene=push", "policy=zero", word])


def test_conditions_come_interleaved():
    words = ["scene=push", "policy=zero", "perturbation=[mass,friction]", "episodes=3"]
    keys = list(resolve(compose_study(words)).keys())
    assert len(keys) == 9
    np.testing.assert_array_equal([key.episode for key in keys], np.repeat([0, 1, 2], 3))
    assert {key.condition for key in keys[:3]} == {"nominal", "mass", "friction"}


def test_a_checkpoint_exchanged_after_the_study_was_settled_stops_it(tmp_path, monkeypatch):
    """Whoever loads it next, a worker or a server's client, must not mix two policies."""
    checkpoint = tmp_path / "mine.safetensors"
    checkpoint.write_bytes(PUSH.read_bytes())
    words = ["scene=push", "policy=bc", f"policy.bc.checkpoint={checkpoint}", "suite=null"]
    design = resolve(compose_study([*words, "episodes=1", "workers=0"]))
    checkpoint.write_bytes((PUSH.parent / "pick.safetensors").read_bytes())
    monkeypatch.setattr(
        "robogen.study.design.load_study_policy",
        lambda *given: _another(checkpoint, PUSH),
    )
    with pytest.raises(PolicyUnavailable, match="another one than the study began with"):
        run_study(design, tmp_path / "run")
    assert len(read_records(tmp_path / "run")) == 0


def _another(checkpoint, original):
    """The scene's policy with another file's hash, as a retrained one has."""
    from robogen.policies.bc import BCPolicy

    policy = BCPolicy(checkpoint=original)
    policy._hash = BCPolicy(checkpoint=checkpoint).identity()["checkpoint"]
    return policy
