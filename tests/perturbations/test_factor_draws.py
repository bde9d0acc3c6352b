"""Laws of sampling, for every factor there is; no simulator."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_world import CONTINUOUS, FACTS, NAMES

from robogen.errors import ConfigError
from robogen.perturbations.base import band_magnitude, check_severity, hue_sector, signed_band
from robogen.perturbations.engine import Perturbation
from robogen.perturbations.library import load_factor
from robogen.seeding import EpisodeSeed
from robogen.specs import Draw, Split

factor_named = cache(load_factor)


def draw(name: str, seed: int, severity: float, split: Split = "eval") -> Draw:
    rng = np.random.default_rng(seed)
    return factor_named(name).sample(rng, split, severity, FACTS)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}/{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}/{index}")
    else:
        yield path, value


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_draw_and_json_keeps_it(name: str):
    for seed in range(20):
        one = draw(name, seed, 0.7)
        assert one == draw(name, seed, 0.7)
        assert json.loads(json.dumps(one)) == one
        assert one


@pytest.mark.parametrize("name", NAMES)
def test_severity_zero_draws_the_identity_whatever_the_seed(name: str):
    assert all(draw(name, seed, 0.0) == {} for seed in range(5))


@pytest.mark.parametrize("name", [n for n in NAMES if load_factor(n).pooled])
def test_splits_share_no_value(name: str):
    factor = load_factor(name)
    pools = {
        split: {json.dumps(draw(name, seed, 1.0, split), sort_keys=True) for seed in range(200)}
        for split in ("train", "eval")
    }
    assert pools["train"].isdisjoint(pools["eval"])
    assert factor.range_text(1.0)


def magnitudes(name: str, split: Split, key: str) -> np.ndarray:
    return np.array([abs(draw(name, seed, 1.0, split)[key]) for seed in range(600)])


@pytest.mark.parametrize(("name", "key", "low", "high"), [("image_noise", "sigma_levels", 15, 30)])
def test_bands_of_the_splits_interleave_and_the_strongest_is_held_out(name, key, low, high):
    train, held_out = magnitudes(name, "train", key), magnitudes(name, "eval", key)
    bands = {
        split: set(np.floor((values - low) / (high - low) * 8).astype(int).tolist())
        for split, values in (("train", train), ("eval", held_out))
    }
    assert bands == {"train": {0, 2, 4, 6}, "eval": {1, 3, 5, 7}}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_doses_of_one_episode_lie_on_one_line(name: str):
    for seed in range(20):
        quarter, half, full = (dict(leaves(draw(name, seed, s))) for s in (0.25, 0.5, 1.0))
        assert quarter.keys() == half.keys() == full.keys()
        for path, end in full.items():
            start, middle = quarter[path], half[path]
            if path.endswith("_ratio"):  # ratios move geometrically
                start, middle, end = (math.log(value) for value in (start, middle, end))
            if isinstance(end, float):
                assert end - middle == pytest.approx(2 * (middle - start), abs=1e-9), path
            else:
                assert start == middle == end, path


def test_more_severity_keeps_the_things_that_were_there():
    for seed in range(10):
        doses = [draw("distractors", seed, s)["things"] for s in (0.1, 0.4, 0.7, 1.0)]
        for fewer, more in pairwise(doses):
            assert more[: len(fewer)] == fewer
        assert len(doses[0]) == 1
        assert len(doses[-1]) > len(doses[0])


def test_distractors_keep_off_the_task_and_each_other():
    factor = load_factor("distractors")
    from robogen.perturbations.models import model

    for seed in range(20):
        things = draw("distractors", seed, 1.0)["things"]
        discs = [(t["x_m"], t["y_m"], model(t["model"], factor.size_m).radius) for t in things]
        for index, (x, y, radius) in enumerate(discs):
            assert FACTS.workspace[0] <= x - radius
            assert x + radius <= FACTS.workspace[1]
            others = [(c.x, c.y, c.radius) for c in FACTS.occupied] + discs[:index]
            for ox, oy, reach in others:
                assert math.hypot(x - ox, y - oy) >= radius + reach + factor.gap_m - 1e-12


def test_latency_is_whole_steps_and_at_least_one():
    steps = [draw("control_latency", 0, s)["delay_steps"] for s in (0.01, 0.25, 0.5, 0.75, 1.0)]
    assert steps[0] == 1
    assert steps == sorted(steps)
    assert steps[-1] == 2


def test_paraphrases_get_further_away_and_stay_in_their_split():
    for seed in range(20):
        for split in ("train", "eval"):
            doses = [draw("instruction_paraphrase", seed, s, split) for s in (0.2, 0.6, 1.0)]
            distances = [dose["distance"] for dose in doses]
            assert distances == sorted(distances)
            assert all(dose["text"] in FACTS.paraphrases[split] for dose in doses)


def test_robot_pose_stays_within_limits():
    for seed in range(50):
        offset = np.array(draw("robot_pose", seed, 1.0)["offset_rad"])
        pose = np.array(FACTS.robot_qpos) + offset
        limits = np.array(FACTS.robot_limits)
        assert (pose >= limits[:, 0]).all()
        assert (pose <= limits[:, 1]).all()


@given(seed=st.integers(0, 2**32 - 1), lowest=st.floats(0.0, 0.9))
@settings(max_examples=50, deadline=None)
def test_magnitudes_lie_between_lowest_and_one(seed, lowest):
    for split in ("train", "eval"):
        assert lowest <= band_magnitude(np.random.default_rng(seed), split, lowest) <= 1
        assert -1 <= signed_band(np.random.default_rng(seed), split, lowest) <= 1
        assert 0.1 <= hue_sector(np.random.default_rng(seed), split, 0.1) <= 0.9


@pytest.mark.parametrize("severity", [-0.1, 1.1, float("nan"), "much", None])
def test_a_severity_outside_the_dose_is_refused(severity):
    with pytest.raises(ConfigError, match=r"0\.\.1"):
        check_severity("light_intensity", severity)
    with pytest.raises(ConfigError, match=r"0\.\.1"):
        load_factor("light_intensity").sample(np.random.default_rng(0), "eval", severity, FACTS)


def test_adding_a_factor_moves_no_other_draw():
    seed = EpisodeSeed(domain="evaluate", study=3, scene="small", episode=7)
    alone = Perturbation([(load_factor("mass"), 1.0)]).sample(seed, FACTS)
    everything = Perturbation([(load_factor(name), 1.0) for name in NAMES]).sample(seed, FACTS)
    assert everything["mass"] == alone["mass"]
    assert set(everything) == set(NAMES)
