"""Placement is drawn once and never collides, at any width and in either pool."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from robogen.errors import SceneError
from robogen.scenes.library import available, load_scene_config
from robogen.scenes.placement import CELL, GAP, draw_uniforms, occupied, place
from robogen.scenes.schema import ObjectConfig, Region

SCENES = list(available())


def footprint(config, item):
    return item.footprint * (config.largest_size if item.role == "manipulated" else 1.0)


@pytest.mark.parametrize("name", SCENES)
def test_no_two_footprints_ever_meet(name):
    config, _ = load_scene_config(name)
    for seed in range(60):
        uniforms = draw_uniforms(config, np.random.default_rng(seed))
        for pool, widen in itertools.product(("train", "eval"), np.linspace(0, 1, 7)):
            spots = {
                key: place(item, uniforms[key], widen=widen, pool=pool)
                for key, item in config.objects.items()
            }
            for a, b in itertools.combinations(spots, 2):
                apart = np.hypot(spots[a].x - spots[b].x, spots[a].y - spots[b].y)
                needed = footprint(config, config.objects[a]) + footprint(config, config.objects[b])
                assert apart >= needed + GAP - 1e-9


def test_width_moves_along_a_line_from_the_nominal_place():
    config, _ = load_scene_config("pick")
    item = config.objects["cube"]
    uniforms = (0.1, 0.9, 0.4)
    ends = [np.array(place(item, uniforms, widen=s, pool="eval")) for s in (0.0, 1.0)]
    half = np.array(place(item, uniforms, widen=0.5, pool="eval"))
    np.testing.assert_allclose(half, (ends[0] + ends[1]) / 2)
    low, high = item.region.x
    assert ends[0][0] == pytest.approx(low + 0.1 * (high - low))


def test_the_pools_lie_on_opposite_squares():
    wide = Region(x=(0.0, 0.4), y=(0.0, 0.4))
    item = ObjectConfig(
        model="m.xml",
        role="manipulated",
        mount="free",
        region=Region(x=(0.2, 0.2), y=(0.2, 0.2)),
        wide=wide,
        footprint=0.02,
    )
    rng = np.random.default_rng(0)
    for uniforms in rng.uniform(size=(300, 3)):
        colours = {}
        for pool in ("train", "eval"):
            spot = place(item, tuple(uniforms), widen=1.0, pool=pool)
            assert 0.0 <= spot.x <= 0.4
            assert 0.0 <= spot.y <= 0.4
            colours[pool] = (int(spot.x // CELL) + int(spot.y // CELL)) % 2
        assert colours == {"train": 0, "eval": 1}


def test_occupied_covers_every_place():
    config, _ = load_scene_config("push")
    uniforms = draw_uniforms(config, np.random.default_rng(5))
    circles = occupied(config, uniforms)
    for key, item in config.objects.items():
        for widen in (0.0, 1.0):
            spot = place(item, uniforms[key], widen=widen, pool="train")
            assert any(
                np.hypot(spot.x - c.x, spot.y - c.y) + footprint(config, item) <= c.radius + 1e-9
                for c in circles
            )


def test_regions_too_small_for_their_footprints_are_refused():
    config, _ = load_scene_config(
        "pick",
        overrides={"objects.can.region": {"x": [0.5, 0.5], "y": [0.0, 0.0]}}
        | {"objects.cube.region": {"x": [0.5, 0.5], "y": [0.0, 0.0]}}
        | {"objects.can.wide": None, "objects.cube.wide": None},
    )
    with pytest.raises(SceneError, match="no placement of cube, can, tray without overlap"):
        draw_uniforms(config, np.random.default_rng(0))
