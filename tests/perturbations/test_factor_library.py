"""Factors and suites by name, and the messages for what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_world import NAMES

from robogen.errors import ConfigError
from robogen.perturbations.base import Factor
from robogen.perturbations.library import (
    Condition,
    available_suites,
    load_factor,
    load_suite,
)


@pytest.mark.parametrize("name", NAMES)
def test_every_yaml_makes_its_factor_and_says_what_it_does(name: str):
    from robogen.perturbations.library import available

    factor = load_factor(name)
    assert isinstance(factor, Factor)
    assert factor.name == name
    assert factor.kind
    assert factor.channel
    first = available()[name].read_text().splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith(".") or first.endswith(").")
    assert factor.range_text(0.5) != factor.range_text(1.0)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_parameter_names_file_and_nearest(name: str):
    with pytest.raises(ConfigError, match=f"{name}.yaml") as caught:
        load_factor(name, {"max_offset": 1})
    assert "'max_offset'" in str(caught.value)


def test_the_nearest_parameter_is_offered():
    with pytest.raises(ConfigError, match="Did you mean 'max_offset_m'"):
        load_factor("camera_pose", {"max_ofset_m": 0.2})


def test_overrides_replace_the_yaml_s_values():
    assert load_factor("camera_pose", {"max_offset_m": 0.2}).max_offset_m == 0.2


@pytest.mark.parametrize("value", ["far", -1, None, True, [1]])
def test_a_wrong_value_says_what_is_allowed(value):
    with pytest.raises(ConfigError, match=r"'max_offset_m' of factor 'camera_pose'.*0\.\.2"):
        load_factor("camera_pose", {"max_offset_m": value})


@pytest.mark.parametrize("value", [2.5, 0, "six", True])
def test_a_wrong_count_says_what_is_allowed(value):
    with pytest.raises(ConfigError, match=r"'max_count' of factor 'distractors'.*whole number"):
        load_factor("distractors", {"max_count": value})


def test_a_wrong_role_lists_the_roles():
    with pytest.raises(ConfigError, match="receiver"):
        load_factor("table_color", {"role": "tabel"})


@pytest.mark.parametrize("families", [["weave"], [], "plaid"])
def test_wrong_families_list_the_patterns(families):
    with pytest.raises(ConfigError, match="checker"):
        load_factor("table_texture", {"families": families})


def test_an_unknown_factor_offers_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'camera_pose'"):
        load_factor("camera_poze")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_offset_m: 1\n", "names no class"),
        ("_target_: [\n", "cannot be read as YAML"),
        ("- a\n- b\n", "key: value"),
        ("_target_: robogen.nowhere.Thing\n", "cannot be imported"),
        ("_target_: pathlib.Path\n", "not a factor"),
        ("_target_: robogen.perturbations.base.ModelFactor\n", "not a factor"),
        ("_target_: robogen.perturbations.body.Mass\nrole: manipulated\n", "lacks parameter"),
    ],
)
def test_a_broken_yaml_names_the_file(write_factor, text: str, message: str):
    folder = write_factor("mine", text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_factor("mine", extra_dirs=[folder])
    assert "mine" in str(caught.value)


def test_a_user_s_factor_is_found_and_a_clash_refused(write_factor):
    text = "_target_: robogen.perturbations.image.ImageBlur\nmax_sigma_percent: 9\n"
    assert load_factor("fog", extra_dirs=[write_factor("fog", text)]).max_sigma_percent == 9
    with pytest.raises(ConfigError, match="Two files"):
        load_factor("fog", extra_dirs=[write_factor("mass", text)])
    with pytest.raises(ConfigError, match="does not exist"):
        load_factor("fog", extra_dirs=["/nowhere/at/all"])


# -- suites ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(available_suites()))
def test_every_suite_loads_and_starts_with_nominal(name: str):
    suite = load_suite(name)
    ids = [condition.id for condition in suite.conditions]
    assert ids[0] == "nominal"
    assert len(ids) == len(set(ids))
    assert {name for c in suite.conditions for name in c.factors} <= set(NAMES)


def test_the_suite_of_everything_has_each_factor_and_all():
    ids = [condition.id for condition in load_suite("all").conditions]
    assert ids == ["nominal", *NAMES, "all"]


def test_condition_ids_say_what_differs_from_the_default():
    assert Condition().id == "nominal"
    assert Condition(factors=("a", "b")).id == "a+b"
    assert Condition(factors=("a",), severity=0.5, split="train").id == "a@0.5:train"
    assert Condition(factors=("a", "b"), everything=True, severity=0.25).id == "all@0.25"


def write_suite(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "perturbations" / "suites"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(text)
    return tmp_path


def test_a_user_s_suite_expands(tmp_path: Path):
    text = """
factors: [mass, friction]
conditions:
  - nominal
  - {factors: each, severity: 0.5}
  - pairs
  - {factors: [mass, camera_pose], split: train}
  - camera_fov
  - all
episodes: 3
parameters: {mass: {heaviest_ratio: 2.0}}
"""
    suite = load_suite("mine", [write_suite(tmp_path, text)])
    assert [c.id for c in suite.conditions] == [
        "nominal",
        "mass@0.5",
        "friction@0.5",
        "friction+mass",
        "camera_pose+mass:train",
        "camera_fov",
        "all",
    ]
    assert suite.episodes == 3
    assert suite.parameters == {"mass": {"heaviest_ratio": 2.0}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conditions: []\n", "must list 'conditions'"),
        ("conditions: [nominl]\n", "nominal"),
        ("conditions: [each]\nfactors: [mas]\n", "Did you mean 'mass'"),
        ("conditions: [each]\nfactors: [mass, mass]\n", "twice"),
        ("conditions: [each]\nepisodes: none\n", "whole number"),
        ("conditions: [each]\nseeds: 3\n", "'seeds'"),
        ("conditions: [{factors: [mass], dose: 1}]\n", "'dose'"),
        ("conditions: [{factors: [mass], split: test}]\n", "'test'"),
        ("conditions: [{factors: [mass], severity: 2}]\n", r"0\.\.1"),
        ("conditions: [each]\nparameters: {mass: {heavy: 2}}\n", "'heavy'"),
        ("conditions: [each]\nparameters: {mas: {heavy: 2}}\n", "Did you mean 'mass'"),
        ("conditions: [each]\nparameters: [mass]\n", "must map"),
        ("conditions: [[mass, 3]]\n", "list of names"),
    ],
)
def test_a_broken_suite_names_the_file(tmp_path: Path, text: str, message: str):
    with pytest.raises(ConfigError, match=message) as caught:
        load_suite("mine", [write_suite(tmp_path, text)])
    assert "mine.yaml" in str(caught.value) or "factor 'mass'" in str(caught.value)


def test_an_unknown_suite_offers_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'colosseum'"):
        load_suite("coloseum")
