"""Laws of every policy file, through the call the episode loop makes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from contract_world import ASKED, POLICIES, SCENES, has_expert, scene_named, seed_of
from stand_ins import OPEN, behind

from robogen.errors import PolicyError
from robogen.perturbations.engine import Perturbation
from robogen.policies.base import Policy
from robogen.policies.library import available, load_policy
from robogen.rollout.loop import padded
from robogen.rollout.start import begin
from robogen.scenes.library import read_yaml
from robogen.specs import Observation, PolicySpec, match

BATCH = 8


@pytest.fixture(scope="module", autouse=True)
def stand_ins_end() -> Iterator[None]:
    yield
    behind.cache_clear()
    OPEN.close()


def load(name: str, scene: str) -> Policy | None:
    """The policy, or None where the scene has no checkpoint of it, or no expert to relay."""
    parameters = behind(name, scene)
    if parameters is None:
        return None
    try:
        policy = load_policy(name, scene=scene, overrides=parameters)
        policy.fit(scene_named(scene).spec)
    except PolicyError as error:
        if "no checkpoint for scene" in str(error) or "own tasks" in str(error):
            return None
        raise
    return policy if has_expert(scene) or not policy.spec.privileged else None


FITTING = tuple((p, s) for p in POLICIES for s in SCENES)


def observations(policy: PolicySpec, scene_name: str, count: int) -> list[Observation]:
    """First observations of some episodes, history filled with the first."""
    scene, found = scene_named(scene_name), []
    spec = policy.observation
    for episode in range(count):
        _, instruction, _ = begin(scene, Perturbation(), seed_of(scene_name, episode))
        images = scene.images(spec.cameras, spec.render)
        state = scene.proprioception(spec.state)
        if spec.history != (0,):
            length = len(spec.history)
            images = {name: np.stack([image] * length) for name, image in images.items()}
            state = np.stack([state] * length)
        facts = None
        if policy.privileged:
            facts = {"expert_action": scene.expert_action(policy.action), "points": scene.points()}
        found.append(
            Observation(
                images=images,
                state=state,
                instruction=instruction,
                step=0,
                privileged=facts,
            )
        )
    return found


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_fits_some_scene(name: str):
    policies = {scene: load(name, scene) for scene in SCENES}
    there = {scene: policy for scene, policy in policies.items() if policy is not None}
    if not there and "family" in read_yaml(available()[name]):
        pytest.skip("its family of environments has a Python environment of its own")
    if not there and all(behind(name, scene) is None for scene in SCENES):
        pytest.skip(
            "what it is made for (environments, LeRobot) has a Python environment of its own"
        )
    assert there or ASKED, f"{name} has a checkpoint for none of {SCENES}"
    for scene, policy in there.items():
        fit = match(policy.spec, scene_named(scene).spec)
        assert fit.action.dim == scene_named(scene).spec.action_modes[fit.action.mode]
        assert isinstance(policy.spec.deterministic, bool)
        assert all(isinstance(value, str) for value in policy.identity().values())
        policy.close()


@pytest.mark.parametrize(("name", "scene"), FITTING)
def test_a_row_depends_on_nothing_but_itself(name: str, scene: str):
    policy = load(name, scene)
    if policy is None:
        return  # this policy is not for this scene, which the law above knows
    seen = observations(policy.spec, scene, 5)
    rows = list(range(len(seen)))
    policy.reset(rows, [seed_of(scene, row).integer("policy", 0) for row in rows])
    whole = padded(policy, rows, seen, BATCH)
    spec = policy.spec.action
    assert whole.shape == (len(rows), spec.chunk, spec.dim)
    assert whole.dtype == np.float64
    assert np.isfinite(whole).all()
    if not policy.spec.deterministic:
        policy.close()
        return
    for row in rows:  # alone, so that the others are padding
        assert padded(policy, [row], [seen[row]], BATCH).tobytes() == whole[row].tobytes()
    order = [3, 0, 4, 2, 1]
    mixed = padded(policy, order, [seen[row] for row in order], BATCH)
    for place, row in enumerate(order):
        assert mixed[place].tobytes() == whole[row].tobytes()
    again = load(name, scene)
    assert again is not None
    again.reset(rows, [seed_of(scene, row).integer("policy", 0) for row in rows])
    assert padded(again, rows, seen, BATCH).tobytes() == whole.tobytes()
    assert again.identity() == policy.identity()
    again.close()
    policy.close()
