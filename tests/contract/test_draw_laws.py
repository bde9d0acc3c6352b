"""Laws of what a factor draws, on every scene it applies to; no simulation."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from colorsys import rgb_to_hsv

import numpy as np
import pytest
from contract_world import (
    ASKED,
    FACTORS,
    PAIRS,
    SCENES,
    SPLITS,
    applicable,
    factor_named,
    facts_of,
    few,
    leaves,
    perturb,
    reason,
    seed_of,
)

from robogen.perturbations.base import BANDS


@pytest.mark.parametrize("name", FACTORS)
def test_a_factor_applies_somewhere_and_says_why_not_elsewhere(name: str):
    reasons = {scene: reason(name, scene) for scene in SCENES}
    assert ASKED or None in reasons.values(), f"{name} applies to no scene: {reasons}"
    for why in filter(None, reasons.values()):
        assert len(why.split()) >= 4, why


@pytest.mark.parametrize(("name", "scene"), PAIRS)
def test_same_seed_same_draw_and_json_keeps_it(name: str, scene: str):
    for episode in range(few(scene, 10, 5)):
        facts = facts_of(scene, episode)
        for split in SPLITS:
            for severity in (0.3, 1.0):
                one = perturb(name, severity=severity, split=split)
                draws = one.sample(seed_of(scene, episode), facts)
                assert draws == one.sample(seed_of(scene, episode), facts)
                assert json.loads(json.dumps(draws, allow_nan=False)) == draws
                assert draws[name]
        assert perturb(name, severity=0.0).sample(seed_of(scene, episode), facts) == {name: {}}


@pytest.mark.parametrize(
    ("name", "scene"), [pair for pair in PAIRS if factor_named(pair[0]).dose == "continuous"]
)
def test_doses_of_one_episode_lie_on_one_line(name: str, scene: str):
    for episode in range(few(scene, 10, 5)):
        facts = facts_of(scene, episode)
        quarter, half, full = (
            dict(leaves(perturb(name, severity=s).sample(seed_of(scene, episode), facts)))
            for s in (0.25, 0.5, 1.0)
        )
        assert quarter.keys() == half.keys() == full.keys()
        for path, end in full.items():
            start, middle = quarter[path], half[path]
            if not isinstance(end, float):
                assert start == middle == end, path
                continue
            if path.endswith("_ratio"):  # ratios move geometrically
                start, middle, end = (math.log(value) for value in (start, middle, end))
            assert end - middle == pytest.approx(2 * (middle - start), abs=1e-9), path


@pytest.mark.parametrize("scene", SCENES)
def test_a_factor_added_moves_no_other_draw(scene: str):
    names = applicable(scene)
    for episode in range(5):
        facts = facts_of(scene, episode)
        together = perturb(*names).sample(seed_of(scene, episode), facts)
        for name in names:
            assert perturb(name).sample(seed_of(scene, episode), facts)[name] == together[name]


@pytest.mark.parametrize(
    ("name", "scene"), [pair for pair in PAIRS if factor_named(pair[0]).pooled]
)
def test_train_and_eval_share_no_value(name: str, scene: str):
    """Some part of the draw tells the splits apart for good.

    Words and indices must come from disjoint sets. Of continuous values two sets of draws never
    share one, so there the splits must alternate in few bands: sorted by size, the label seldom
    changes, where one common pool would change it at every other draw.
    """
    count = few(scene, 150, 80)
    found: dict[str, dict[str, list[object]]] = defaultdict(lambda: {"train": [], "eval": []})
    for episode in range(count):
        facts = facts_of(scene, episode)
        for split in SPLITS:
            draw = perturb(name, split=split).sample(seed_of(scene, episode), facts)[name]
            vectors: dict[str, list[float]] = defaultdict(list)
            for path, value in leaves(draw):
                found[path][split].append(value)
                if isinstance(value, float):
                    vectors[path.rpartition("/")[0]].append(value)
            for path, vector in vectors.items():
                found[f"{path}/norm"][split].append(float(np.linalg.norm(vector)))
                if path.endswith("_rgb"):
                    red, green, blue = np.array(vector) / max(vector)
                    found[f"{path}/hue"][split].append(rgb_to_hsv(red, green, blue)[0])
    assert any(_apart(values["train"], values["eval"]) for values in found.values()), sorted(found)


def _apart(train: list[object], held_out: list[object]) -> bool:
    if not train or not held_out:
        return False
    if not isinstance(train[0], float):
        return set(train).isdisjoint(held_out) and len(set(train) | set(held_out)) > 1
    labelled = [(value, 0) for value in train] + [(value, 1) for value in held_out]
    for key in (lambda pair: abs(pair[0]), lambda pair: pair[0]):
        labels = [label for _, label in sorted(labelled, key=key)]
        changes = sum(one != other for one, other in itertools.pairwise(labels))
        if 1 <= changes < 2 * BANDS:
            return True
    return False
