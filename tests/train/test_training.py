import numpy as np
import pytest
import torch
from squares_world import WORDINGS, draw_squares, squares_episode, squares_meta, write_squares

from robogen.datasets import DemoWriter
from robogen.errors import ConfigError, PolicyError, RecordsError
from robogen.policies.bc import BCPolicy
from robogen.policies.checkpoint import load_checkpoint
from robogen.specs import Observation
from robogen.train import DemoSource, train_bc
from robogen.train.bc import learning_rate


def test_an_overfitted_policy_follows_image_and_words(tmp_path, small):
    """Two squares in view; only the words say which one to go to, only the pixels say where."""
    write_squares(tmp_path / "demos", range(512))
    recipe = small(
        steps=280, batch=32, warmup=20, channels=(16, 32), kernels=(4, 4), strides=(2, 2),
        camera_features=64, text_features=32, hidden=128, validation=0.0, save_every=1000,
    )  # fmt: skip
    reports = []
    result = train_bc([tmp_path / "demos"], tmp_path / "bc.safetensors", recipe, reports.append)
    assert reports[-1].motion < 0.05
    assert reports[-1].points_mm < 30.0
    policy = BCPolicy(checkpoint=result.checkpoint)
    errors, mixed_up, right = [], [], []
    for trial in range(16):
        frame, positions = draw_squares(np.random.default_rng(10_000 + trial))
        for target, colour in enumerate(("red", "green")):
            for words in (*WORDINGS["train"], *WORDINGS["eval"]):
                observation = Observation(
                    {"front": frame}, np.zeros(4, np.float32), words.format(colour), 0
                )
                action = policy.act([0], [observation])[0, 0]
                errors.append(np.abs(action[:2] - positions[target]).mean())
                mixed_up.append(np.abs(action[:2] - positions[1 - target]).mean())
                right.append((action[6] > 0.0) == (positions[target][0] < 0.0))
    assert np.mean(errors) < 0.15, "positions in [-1, 1] of frames never seen"
    assert np.mean(mixed_up) > 4.0 * np.mean(errors)
    assert np.mean(right) > 0.9


def test_the_same_seed_gives_the_same_file(tmp_path, squares, small):
    files = [tmp_path / f"{name}.safetensors" for name in "abc"]
    train_bc([squares], files[0], small(), command="robogen train")
    train_bc([squares], files[1], small(report_every=1, validate_every=1), command="robogen train")
    train_bc([squares], files[2], small(seed=1), command="robogen train")
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes() != files[2].read_bytes()


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_an_interrupted_training_ends_as_if_it_had_not_been(tmp_path, squares, small, ema):
    def stop(progress):
        if progress.step == 4:
            raise KeyboardInterrupt

    recipe = small(ema=ema, state_noise=0.1, shift=2, save_every=3)
    train_bc([squares], tmp_path / "whole.safetensors", recipe)
    out = tmp_path / "resumed.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train_bc([squares], out, recipe, stop)
    assert not out.exists()
    result = train_bc([squares], out, recipe)
    assert result.resumed_from == 3
    assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
    assert {file.name for file in tmp_path.iterdir()} == {out.name, "whole.safetensors"}


def test_a_complete_training_is_not_repeated(tmp_path, squares, small):
    out = tmp_path / "bc.safetensors"
    first = train_bc([squares], out, small())
    reports = []
    again = train_bc([str(squares)], out, small(), reports.append)
    assert reports == []
    assert again.resumed_from == 6
    assert again.validation == first.validation
    assert again.dataset == first.dataset


def test_another_training_at_the_output_is_refused(tmp_path, squares, small):
    out = tmp_path / "bc.safetensors"
    train_bc([squares], out, small())
    with pytest.raises(ConfigError, match=r"recipe\.learning_rate was 0\.001 and is now 0\.01"):
        train_bc([squares], out, small(learning_rate=0.01))
    with pytest.raises(ConfigError, match="dataset was"):
        train_bc([DemoSource(folder=squares, episodes=(0, 1, 2))], out, small())
    replaced = train_bc([squares], out, small(learning_rate=0.01), resume=False)
    assert replaced.resumed_from == 0


def test_a_resumable_state_of_another_training_is_refused(tmp_path, squares, small):
    def stop(progress):
        if progress.step == 4:
            raise KeyboardInterrupt

    out = tmp_path / "bc.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train_bc([squares], out, small(), stop)
    with pytest.raises(ConfigError, match=r"partial belongs to another .*seed was 0 and is now 1"):
        train_bc([squares], out, small(seed=1))
    partial = tmp_path / "bc.safetensors.partial"
    partial.write_bytes(partial.read_bytes()[:-100])
    with pytest.raises(PolicyError, match="truncated"):
        train_bc([squares], out, small())
    assert train_bc([squares], out, small(), resume=False).resumed_from == 0


def test_the_checkpoint_says_where_it_came_from(tmp_path, squares, small):
    out = tmp_path / "bc.safetensors"
    result = train_bc([squares], out, small(state=("gripper_opening",)), command="robogen train x")
    config = load_checkpoint(out).config
    assert config.scene == result.scene == "squares"
    assert config.state == {"gripper_opening": 1}
    assert config.binary_gripper
    assert (config.action.chunk, config.action.execute) == (8, 4)
    training = config.training
    assert training["command"] == "robogen train x"
    assert training["dataset"] == result.dataset
    assert training["recipe"]["seed"] == 0
    assert training["episodes"] == result.episodes == 8
    assert training["validation"] == result.validation._asdict()
    assert result.held_out == 2
    assert result.validation.frames == 6
    assert result.parameters > 0


def test_without_points_or_validation(tmp_path, squares, small):
    out = tmp_path / "bc.safetensors"
    reports = []
    recipe = small(points_weight=0.0, validation=0.0, gripper_loss="l1")
    result = train_bc([squares], out, recipe, reports.append)
    assert result.validation is None
    assert reports[-1].points_mm is None
    assert load_checkpoint(out).config.network.points == 0
    assert BCPolicy(checkpoint=out).spec.action.chunk == 8


def test_torch_threads_are_left_as_they_were(tmp_path, squares, small):
    before = torch.get_num_threads()
    random_state = torch.random.get_rng_state()
    train_bc([squares], tmp_path / "bc.safetensors", small())
    assert torch.get_num_threads() == before
    assert torch.equal(torch.random.get_rng_state(), random_state)


def test_nothing_to_train_on(tmp_path, squares, small):
    out = tmp_path / "bc.safetensors"
    with pytest.raises(ConfigError, match="no folder"):
        train_bc([], out, small())
    writer = DemoWriter(tmp_path / "failed", squares_meta())
    writer.write(squares_episode(0, success=False))
    with pytest.raises(ConfigError, match="1 episodes, of which 0 succeeded"):
        train_bc([tmp_path / "failed"], out, small())
    train_bc([tmp_path / "failed"], out, small(successes_only=False))
    with pytest.raises(ConfigError, match=r"part 'eef_pose'\. Did you mean 'eef_pos'"):
        train_bc([squares], out, small(state=("eef_pose",)))


def test_datasets_of_other_conventions_do_not_mix(tmp_path, squares, small):
    out = tmp_path / "bc.safetensors"
    write_squares(tmp_path / "more", range(20, 24), collection={"factors": ["light"]})
    both = train_bc([squares, tmp_path / "more"], out, small())
    assert both.episodes + both.held_out == 14
    write_squares(tmp_path / "nice", range(2), render="nice")
    with pytest.raises(RecordsError, match="differ in render"):
        train_bc([squares, tmp_path / "nice"], out, small())


def test_the_rate_rises_then_falls(small):
    recipe = small(steps=100, warmup=10, learning_rate=1.0, final_rate=0.1)
    rates = [learning_rate(recipe, step) for step in range(100)]
    assert rates[0] == pytest.approx(1 / 11)
    assert max(rates) == rates[10] == 1.0
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] == pytest.approx(0.1, abs=0.01)
