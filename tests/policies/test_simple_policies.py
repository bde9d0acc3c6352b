from dataclasses import replace

import numpy as np
import pytest

from robogen.errors import PolicyError
from robogen.policies.oracle import OraclePolicy
from robogen.policies.random import RandomPolicy
from robogen.policies.zero import ZeroPolicy
from robogen.specs import SceneSpec


def test_zero_never_moves(make_observation):
    policy = ZeroPolicy(gripper=1.0)
    actions = policy.act([0, 3], [make_observation(0), make_observation(1)])
    assert actions.shape == (2, 1, 7)
    assert (actions[..., :6] == 0.0).all()
    assert (actions[..., 6] == 1.0).all()
    assert not policy.spec.privileged


def test_random_depends_on_seed_and_step_alone(make_observation):
    one, two = RandomPolicy(), RandomPolicy()
    one.reset([0, 1], [11, 12])
    two.reset([5, 0], [11, 12])
    a = one.act([0, 1], [make_observation(0, step=3), make_observation(1, step=4)])
    two.act([5], [make_observation(2, step=0)])
    b = two.act([0, 5], [make_observation(3, step=4), make_observation(4, step=3)])
    np.testing.assert_array_equal(a, b[::-1])
    other = two.act([5], [make_observation(0, step=4)])
    assert (np.abs(other[0] - a[0]) > 0).all()


def test_random_fills_the_action_range(make_observation):
    policy = RandomPolicy()
    policy.reset([0], [0])
    actions = np.concatenate([policy.act([0], [make_observation(0, step=s)]) for s in range(500)])
    assert np.abs(actions).max() <= 1.0
    assert np.abs(actions.mean(axis=(0, 1))).max() < 0.1
    assert actions.std(axis=(0, 1)) == pytest.approx(np.full(7, 3**-0.5), rel=0.1)


def test_oracle_relays_the_expert(make_observation):
    policy = OraclePolicy()
    assert policy.spec.privileged
    expert = np.linspace(-1, 1, 7)
    facts = [{"expert_action": expert}, {"expert_action": -expert}]
    actions = policy.act([0, 1], [make_observation(0, privileged=item) for item in facts])
    np.testing.assert_array_equal(actions, np.stack([expert, -expert])[:, None])


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (None, "no privileged facts"),
        ({"cube": 1}, "got cube"),
        ({"expert_action": np.zeros(8)}, r"shape \(8,\)"),
    ],
)
def test_oracle_says_what_it_misses(make_observation, facts, message):
    with pytest.raises(PolicyError, match=message):
        OraclePolicy().act([0], [make_observation(0, privileged=facts)])


def test_an_expert_of_a_family_acts_nowhere_else():
    scene = SceneSpec(
        name="pick",
        cameras=(),
        state={},
        action_modes={"delta_eef": 7},
        control_hz=10.0,
        horizon=10,
    )
    policy = OraclePolicy(family="metaworld")
    with pytest.raises(PolicyError, match=r"metaworld's own tasks, got scene 'pick'"):
        policy.fit(scene)
    policy.fit(replace(scene, name="metaworld/drawer-open-v3"))
    assert policy.spec.action == scene.action
