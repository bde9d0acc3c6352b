import numpy as np
import pytest
import torch

from robogen.errors import PolicyError
from robogen.policies.bc import BCPolicy
from robogen.specs import CameraSpec, SceneSpec, match


@pytest.fixture
def policy(make_checkpoint):
    return BCPolicy(checkpoint=make_checkpoint(), execute=4)


def test_the_spec_comes_from_the_checkpoint(policy):
    assert policy.pad
    assert policy.scene == "pick"
    spec = policy.spec
    assert spec.deterministic
    assert not spec.privileged
    assert spec.observation.cameras[0] == CameraSpec(name="front", width=96, height=96)
    assert spec.observation.state == ("eef_pos", "gripper_opening")
    assert spec.observation.instruction
    assert (spec.action.chunk, spec.action.execute) == (8, 4)
    scene = SceneSpec(
        name="pick",
        cameras=("front", "wrist"),
        state={"eef_pos": 3, "gripper_opening": 1},
        action_modes={"delta_eef": 7},
        control_hz=10.0,
        horizon=80,
    )
    assert match(spec, scene).action == spec.action


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 16])
def test_a_row_depends_on_nothing_but_itself(policy, make_observation, size):
    """At a fixed batch size: whatever is in the other rows, and wherever this one stands."""
    rng = np.random.default_rng(size)
    rows = range(size)
    mine = make_observation(0)
    wanted = policy.act(rows, [mine] * size)[0]
    for trial in range(12):
        others = [make_observation(100 * trial + row + 1) for row in rows]
        if trial == 0:
            others = [make_observation(1)] * size
        place = int(rng.integers(size))
        others[place] = mine
        actions = policy.act(rows, others)
        np.testing.assert_array_equal(actions[place], wanted)
        order = rng.permutation(size)
        shuffled = policy.act(rows, [others[index] for index in order])
        np.testing.assert_array_equal(shuffled, actions[order])


def test_actions_are_commands(policy, make_observation):
    actions = policy.act([0, 1], [make_observation(0), make_observation(1)])
    assert actions.shape == (2, 8, 7)
    assert actions.dtype == np.float64
    assert np.abs(actions[..., :6]).max() <= 1.0
    assert set(np.unique(actions[..., 6])) <= {-1.0, 1.0}


def test_a_gripper_that_was_never_binary_stays_so(make_checkpoint, make_observation):
    path = make_checkpoint(binary_gripper=False)
    actions = BCPolicy(checkpoint=path).act([0], [make_observation(0)])
    assert 0.0 < np.abs(actions[..., 6]).max() < 1.0


def test_image_state_and_words_all_count(policy, make_observation):
    one, two = make_observation(0), make_observation(1)
    base = policy.act([0], [one])
    for name in ("images", "state", "instruction"):
        changed = policy.act([0], [one._replace(**{name: getattr(two, name)})])
        assert not np.array_equal(base, changed), name


def test_one_frame_of_history_may_keep_its_axis(policy, make_observation):
    plain = make_observation(0)
    stacked = plain._replace(
        images={name: image[None] for name, image in plain.images.items()}, state=plain.state[None]
    )
    np.testing.assert_array_equal(policy.act([0], [plain]), policy.act([0], [stacked]))


def test_observations_that_do_not_fit(policy, make_observation):
    with pytest.raises(PolicyError, match=r"one \(96, 96, 3\) frame of camera 'front'"):
        policy.act([0], [make_observation(0, size=64)])
    with pytest.raises(PolicyError, match="state of 4 numbers"):
        policy.act([0], [make_observation(0, state=np.zeros(3, np.float32))])


@pytest.mark.parametrize("execute", [0, 9, 2.5, "four"])
def test_execute_lies_within_the_chunk(make_checkpoint, execute):
    with pytest.raises(PolicyError, match="whole number from 1 to 8"):
        BCPolicy(checkpoint=make_checkpoint(), execute=execute)


def test_identity_is_the_files(make_checkpoint, tmp_path):
    one = BCPolicy(checkpoint=make_checkpoint(tmp_path / "one.safetensors", size=32))
    same = BCPolicy(checkpoint=make_checkpoint(tmp_path / "same.safetensors", size=32))
    other = BCPolicy(checkpoint=make_checkpoint(tmp_path / "other.safetensors", size=32, seed=1))
    assert one.identity() == same.identity()
    assert one.identity() != other.identity()
    assert len(one.identity()["checkpoint"]) == 32


def test_a_worker_owns_one_core(make_checkpoint):
    before = torch.get_num_threads()
    BCPolicy(checkpoint=make_checkpoint())
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)
