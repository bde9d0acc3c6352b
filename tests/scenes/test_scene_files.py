"""A scene file's mistakes come back as one paragraph that says where and what is near."""

from __future__ import annotations

import pytest

from robogen.errors import ConfigError, SceneError
from robogen.scenes.library import load_scene_config
from robogen.scenes.scene import load_tabletop


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"horizon": 3}, "unknown key 'horizon' .did you mean 'horizon_s'"),
        ({"objects.cube.rol": "fixture"}, "unknown key 'objects.cube.rol' .did you mean 'role'"),
        ({"horizon_s": -1}, "horizon_s: .*greater than 0"),
        ({"objects.cube.region.x": [0.6, 0.4]}, r"x must be \[low, high\]"),
        ({"task.success.all": [{"onto": {}}]}, "unknown predicate 'onto' .known: on, inside"),
        ({"task.oracle": [{"grab": {"object": "cube"}}]}, "unknown skill 'grab'"),
        ({"task.choices": [{"target": "mug", "words": "mug"}]}, "names 'mug'"),
    ],
)
def test_wrong_values_are_named(overrides, words):
    with pytest.raises(ConfigError, match=words) as caught:
        load_scene_config("pick", overrides=overrides)
    assert "\n" not in str(caught.value)


def test_an_unknown_scene_offers_the_nearest():
    with pytest.raises(ConfigError, match=r"Did you mean 'drawer'\? Available: drawer, pick, push"):
        load_scene_config("drawr")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"objects.cube.model": "objects/nothing.xml"}, "names the model 'objects/nothing.xml'"),
        ({"arena.lights": ["moon"]}, "arena.lights 'moon' matches nothing"),
        ({"cameras": {"top": {"kind": "third_person"}}}, "Camera 'top' of scene 'pick'"),
        ({"arena.textures": {"sky": {"pattern": "wood"}}}, "arena.textures names 'sky'"),
        ({"robot.home": [0.0, 0.0]}, "has 2 numbers, panda has 7 joints"),
        ({"robot.name": "pandas"}, "Did you mean 'panda'"),
    ],
)
def test_parts_that_are_not_there_are_named(overrides, words):
    with pytest.raises((ConfigError, SceneError), match=words):
        load_tabletop("pick", overrides=overrides)
