import numpy as np
import pytest
import torch
from squares_world import squares_episode, write_squares

from robogen.errors import ConfigError
from robogen.train import BCRecipe, DemoSource
from robogen.train.data import Demos


def demos(folder, recipe):
    return Demos([DemoSource(folder=folder)], recipe)


def test_a_misspelt_setting_is_named():
    with pytest.raises(ConfigError, match=r"'learning_rat'\. Did you mean 'learning_rate'"):
        BCRecipe.from_mapping({"learning_rat": 1})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"steps": "many"}, "wrong type"),
        ({"execute": 9}, r"execute \(9\) must not exceed chunk \(8\)"),
        ({"channels": [12, 32, 64]}, "multiples of 8"),
        ({"kernels": [3]}, "equally many"),
        ({"ema": 1.0}, "ema"),
        ({"gripper_loss": "mse"}, "one of bce, l1"),
        ({"validation": 1.0}, "validation"),
        ({"jitter": -0.1}, "jitter cannot be negative"),
        ({"episodes": 0}, "episodes must be at least 1"),
        ({"inputs": "pixels"}, "one of images, points"),
    ],
)
def test_impossible_recipes_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        BCRecipe.from_mapping(values)


def test_lists_from_yaml_become_tuples():
    recipe = BCRecipe.from_mapping({"channels": [8, 16, 8], "state": ["eef_pos"]})
    assert recipe.channels == (8, 16, 8)
    assert recipe.state == ("eef_pos",)
    assert BCRecipe.from_mapping(recipe.to_json()) == recipe


def test_actions_after_the_end_repeat_the_last(tmp_path, small):
    folder = write_squares(tmp_path, range(3), length=5)
    data = demos(folder, small(validation=0.0))
    batch = data.batch(np.array([5 + 3, 5 + 0]))
    actions = torch.from_numpy(squares_episode(1, length=5).action)
    for row, start in enumerate((3, 0)):
        wanted = actions[[min(start + ahead, 4) for ahead in range(8)]]
        assert torch.equal(batch.actions[row], wanted)


def test_a_batch_depends_on_seed_and_step_alone(squares, small):
    one, two = demos(squares, small()), demos(squares, small())
    two.sample(0)
    first, second = one.sample(5), two.sample(5)
    assert torch.equal(first.frames[0], second.frames[0])
    assert torch.equal(first.actions, second.actions)
    other = demos(squares, small(seed=1)).sample(5)
    assert not torch.equal(first.state, other.state)


def test_held_out_episodes_are_never_sampled(squares, small):
    data = demos(squares, small(validation=0.3))
    assert data.episodes == (7, 3)
    assert len(data.held_out) == 9
    assert set(data.held_out).isdisjoint(data.training)
    assert {row // 3 for row in data.held_out}.isdisjoint({row // 3 for row in data.training})


def test_statistics_ignore_constants(squares, small):
    data = demos(squares, small())
    statistics = data.statistics()
    assert statistics.state_mean.shape == (4,)
    assert (statistics.points_std[:, 2] == 1.0).all()
    assert (statistics.points_std[:, :2] < 0.2).all()


def test_shift_moves_frames_and_repeats_the_border(squares, small):
    plain = demos(squares, small()).sample(0).frames[0]
    shifted = demos(squares, small(shift=2)).sample(0).frames[0]
    assert not torch.equal(plain, shifted)
    matches = 0
    for before, after in zip(plain.numpy(), shifted.numpy(), strict=True):
        padded = np.pad(before, ((2, 2), (2, 2), (0, 0)), mode="edge")
        crops = [padded[r : r + 32, c : c + 32] for r in range(5) for c in range(5)]
        matches += any(np.array_equal(crop, after) for crop in crops)
    assert matches == len(plain)


def test_state_noise_touches_only_the_state(squares, small):
    plain, noisy = (demos(squares, small(state_noise=s)).sample(0) for s in (0.0, 0.5))
    assert torch.equal(plain.frames[0], noisy.frames[0])
    assert not torch.equal(plain.state, noisy.state)


def test_jitter_recolours_and_leaves_shapes_where_they_are(squares, small):
    plain = demos(squares, small()).sample(0).frames[0].numpy()
    jittered = demos(squares, small(jitter=0.5)).sample(0).frames[0].numpy()
    assert not np.array_equal(plain, jittered)
    assert len({frame.tobytes() for frame in jittered - plain}) > 1  # each its own way
    for before, after in zip(plain, jittered, strict=True):
        # One affine map of colours: pixels that were alike still are.
        colours, first, which = np.unique(
            before.reshape(-1, 3), axis=0, return_index=True, return_inverse=True
        )
        mapped = after.reshape(-1, 3)[first]
        np.testing.assert_array_equal(mapped[which.reshape(-1)], after.reshape(-1, 3))
        assert len(colours) == 3


def test_a_subset_is_chosen_by_the_seed(squares, small):
    chosen = [demos(squares, small(episodes=4, seed=seed)) for seed in (0, 0, 1)]
    assert [sum(data.episodes) for data in chosen] == [4, 4, 4]
    assert chosen[0].digest == chosen[1].digest != chosen[2].digest
    with pytest.raises(ConfigError, match="more than the 10 demonstrations"):
        demos(squares, small(episodes=11))


def test_points_replace_cameras_and_join_the_state(squares, small):
    data = demos(squares, small(inputs="points"))
    config = data.network_config()
    assert (config.cameras, config.points) == ((), 0)
    assert data.state == {"eef_pos": 3, "gripper_opening": 1, "points": 6}
    batch = data.sample(0)
    assert batch.frames == []
    assert batch.points.shape[1] == 0
    reference = demos(squares, small()).sample(0)
    assert torch.equal(batch.state[:, 4:], reference.points.reshape(len(batch.state), -1))
    assert torch.equal(batch.state[:, :4], reference.state)
