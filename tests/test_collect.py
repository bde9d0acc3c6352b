"""Which values and placements a collection visits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robogen.collect import CollectionRecipe, collect
from robogen.datasets.demos import DemoDataset
from robogen.errors import ConfigError
from robogen.perturbations.library import load_factor
from robogen.scenes.load import load_scene

RECIPE = CollectionRecipe(episodes=4, image_size=16, noise_share=0.0, state=("eef_pos",))


@pytest.fixture(scope="module")
def scene():
    scene = load_scene("push")
    yield scene
    scene.close()


def episodes(scene, folder, recipe, *names):
    found = collect(scene, folder, recipe, factors=[load_factor(name) for name in names])
    assert not found.failed
    dataset = DemoDataset(folder)
    return [dataset.read(index) for index in dataset.indices]


def start(episode):
    """Where the task's objects are in the first step, relative to the gripper."""
    return tuple(np.round(episode.points[0].ravel(), 6))


def test_values_and_positions_are_as_many_as_asked(scene, tmp_path):
    few = replace(RECIPE, episodes=8, values=2, positions=3)
    seen = episodes(scene, tmp_path, few, "table_color")
    assert [bool(episode.info.draws) for episode in seen] == [False, True] * 4
    varied = [str(episode.info.draws["table_color"]) for episode in seen[1::2]]
    assert varied[:2] == varied[2:]
    assert varied[0] != varied[1]
    assert [start(episode) for episode in seen[:3]] == [start(episode) for episode in seen[3:6]]
    assert len({start(episode) for episode in seen}) == 3


def test_a_collection_can_do_without_nominal_episodes(scene, tmp_path):
    seen = episodes(scene, tmp_path / "a", replace(RECIPE, nominal=False), "table_color")
    assert all("table_color" in episode.info.draws for episode in seen)
    assert len({str(episode.info.draws) for episode in seen}) == 4
    plain = episodes(scene, tmp_path / "b", replace(RECIPE, nominal=False))
    assert not any(episode.info.draws for episode in plain)
    assert len({start(episode) for episode in plain}) == 4


@pytest.mark.parametrize("name", ["values", "positions"])
def test_numbers_that_are_none_are_refused(name):
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got 0"):
        replace(RECIPE, **{name: 0})
