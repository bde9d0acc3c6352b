"""Several factors as one perturbation, and the phases that need no model."""

from __future__ import annotations

import numpy as np
import pytest
from small_world import FACTS, NAMES

from robogen.errors import ConfigError, FactorError
from robogen.perturbations.engine import Perturbation, Values
from robogen.perturbations.library import load_factor
from robogen.seeding import EpisodeSeed
from robogen.specs import InitialState

SEED = EpisodeSeed(domain="evaluate", study=1, scene="small", episode=4)
IMAGE = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)


def perturbation(*names: str, severity: float = 1.0, split: str = "eval") -> Perturbation:
    return Perturbation([(load_factor(name), severity) for name in names], split)


def test_nominal_is_the_empty_perturbation():
    nominal = Perturbation()
    rest = np.zeros(7)
    draws = nominal.sample(SEED, FACTS)
    assert draws == {}
    assert nominal.names == ()
    assert not nominal.needs_recompile
    assert not nominal.has_image_filter
    assert nominal.instruction("go", draws) == "go"
    assert nominal.filter_image(IMAGE, draws, np.random.default_rng(0)) is IMAGE
    chain = nominal.action_filter(draws, rest)
    np.testing.assert_array_equal(chain(np.ones(7)), np.ones(7))
    assert chain.pending() == []


def test_severity_zero_is_the_identity_in_every_phase():
    idle = perturbation(*NAMES, severity=0.0)
    draws = idle.sample(SEED, FACTS)
    assert draws == {name: {} for name in NAMES}
    assert not idle.needs_recompile
    assert not idle.has_image_filter
    initial = InitialState(
        robot_qpos=np.array(FACTS.robot_qpos), uniforms={"cube": (0.1, 0.2, 0.3)}
    )
    idle.edit_initial(initial, draws)
    np.testing.assert_array_equal(initial.robot_qpos, FACTS.robot_qpos)
    assert initial.widen == 0.0
    assert idle.instruction(FACTS.instruction, draws) == FACTS.instruction
    assert idle.filter_image(IMAGE, draws, np.random.default_rng(0)) is IMAGE
    chain = idle.action_filter(draws, np.zeros(2))
    np.testing.assert_array_equal(chain(np.ones(2)), np.ones(2))


def test_a_factor_named_twice_is_refused():
    with pytest.raises(ConfigError, match="'mass' is named twice"):
        perturbation("mass", "mass")


def test_an_unknown_split_is_refused():
    with pytest.raises(ConfigError, match="train, eval"):
        perturbation("mass", split="test")


def test_two_factors_that_set_the_instruction_are_refused_by_name():
    first = load_factor("instruction_paraphrase")
    second = type(first)(name="rephrase", ngram=2)
    with pytest.raises(FactorError, match=r"'instruction_paraphrase' and 'rephrase'"):
        Perturbation([(first, 1.0), (second, 0.5)])


def test_order_given_does_not_matter():
    assert perturbation(*NAMES).names == perturbation(*reversed(NAMES)).names
    assert perturbation("table_color", "table_texture").names == ("table_texture", "table_color")


def test_initial_state_gets_offset_and_region():
    both = perturbation("object_position", "robot_pose", severity=0.5, split="train")
    draws = both.sample(SEED, FACTS)
    initial = InitialState(
        robot_qpos=np.array(FACTS.robot_qpos), uniforms={"cube": (0.1, 0.2, 0.3)}
    )
    both.edit_initial(initial, draws)
    assert (initial.widen, initial.pool) == (0.5, "train")
    moved = np.abs(initial.robot_qpos - FACTS.robot_qpos)
    assert (moved > 0).all()
    assert (moved <= 0.075 + 1e-12).all()
    assert initial.uniforms == {"cube": (0.1, 0.2, 0.3)}


@pytest.mark.parametrize("name", [n for n in NAMES if load_factor(n).phase == "observation"])
def test_image_filters_keep_shape_and_input_and_are_keyed(name: str):
    one = perturbation(name)
    draws = one.sample(SEED, FACTS)
    before = IMAGE.copy()
    first = one.filter_image(IMAGE, draws, np.random.default_rng(5))
    np.testing.assert_array_equal(first, one.filter_image(IMAGE, draws, np.random.default_rng(5)))
    assert first.shape == IMAGE.shape
    assert first.dtype == np.uint8
    assert (first != IMAGE).any()
    np.testing.assert_array_equal(IMAGE, before)


def test_noise_has_its_sigma_and_differs_between_keys():
    one = perturbation("image_noise")
    draws = one.sample(SEED, FACTS)
    grey = np.full((96, 96, 3), 128, np.uint8)
    a, b = (one.filter_image(grey, draws, np.random.default_rng(k)).astype(int) for k in (0, 1))
    assert (a != b).any()
    assert (a - 128).std() == pytest.approx(draws["image_noise"]["sigma_levels"], rel=0.03)
    assert abs((a - 128).mean()) < 1


def test_noise_does_not_depend_on_other_filters():
    noise = load_factor("image_noise")
    silent = type(noise)(name="grain", max_sigma_levels=1e-9)  # uses randomness, changes no level
    alone, both = Perturbation([(noise, 1.0)]), Perturbation([(silent, 1.0), (noise, 1.0)])
    assert both.names == ("grain", "image_noise")
    draws = both.sample(SEED, FACTS)
    np.testing.assert_array_equal(
        alone.filter_image(IMAGE, draws, np.random.default_rng(2)),
        both.filter_image(IMAGE, draws, np.random.default_rng(2)),
    )


def test_brightness_moves_levels_monotonically():
    one = perturbation("image_brightness")
    ramp = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
    bright = one.filter_image(ramp, one.sample(SEED, FACTS), np.random.default_rng(0))
    assert (np.diff(bright[0, :, 0].astype(int)) >= 0).all()


def test_latency_delays_from_rest_and_tells_what_is_under_way():
    late = perturbation("control_latency")
    draws = late.sample(SEED, FACTS)
    steps = draws["control_latency"]["delay_steps"]
    rest = np.array([0.0, -1.0])
    chain = late.action_filter(draws, rest)
    given = [np.array([float(k), 1.0]) for k in range(6)]
    executed = []
    for k, action in enumerate(given):
        executed.append(chain(action))
        under_way = [command[0] for command in chain.pending()]
        assert under_way == [float(i) for i in range(max(0, k + 1 - steps), k + 1)]
    np.testing.assert_array_equal(executed[:steps], [rest] * steps)
    np.testing.assert_array_equal(executed[steps:], given[: len(given) - steps])


def test_latency_does_not_alias_the_caller_s_arrays():
    late = perturbation("control_latency")
    chain = late.action_filter(late.sample(SEED, FACTS), np.zeros(1))
    action = np.array([1.0])
    chain(action)
    action[0] = 99.0
    assert all(command[0] == 1.0 for command in chain.pending())


def test_the_instruction_is_the_paraphrase_drawn():
    one = perturbation("instruction_paraphrase")
    draws = one.sample(SEED, FACTS)
    text = one.instruction(FACTS.instruction, draws)
    assert text == draws["instruction_paraphrase"]["text"] != FACTS.instruction


def test_a_split_without_paraphrases_does_not_apply(world):
    from dataclasses import replace

    only_train = replace(FACTS, paraphrases={"train": ("lift it",), "eval": ()})
    one = perturbation("instruction_paraphrase")
    assert "instruction_paraphrase" in one.not_applicable(world, only_train)
    with pytest.raises(FactorError, match="no 'eval' paraphrase"):
        one.sample(SEED, only_train)
    assert (
        perturbation("instruction_paraphrase", split="train").not_applicable(world, only_train)
        == {}
    )


def test_no_room_for_distractors_is_an_error():
    from dataclasses import replace

    from robogen.specs import Circle

    full = replace(FACTS, occupied=(Circle(x=0.5, y=0.0, radius=2.0),))
    with pytest.raises(FactorError, match="no room"):
        perturbation("distractors").sample(SEED, full)


def test_ranges_are_given_for_every_factor():
    ranges = perturbation(*NAMES, severity=0.5).ranges
    assert set(ranges) == set(NAMES)
    assert all(ranges.values())


def test_fixed_values_come_in_turn_and_are_those_of_their_collection():
    def drawn(domain, study, episode, values=None):
        colour = Perturbation([(load_factor("table_color"), 1.0)], "train", values)
        seed = EpisodeSeed(domain=domain, study=study, scene="small", episode=episode)
        return colour.sample(seed, FACTS)["table_color"]

    three = Values(number=3, domain="collect", study=5, every=2)
    collected = [drawn("collect", 5, episode, three) for episode in range(12)]
    assert collected[::2] == collected[1::2]
    assert collected[:6] == collected[6:]
    own = [drawn("collect", 5, value) for value in range(3)]
    assert collected[:6:2] == own
    assert len({str(draw) for draw in own}) == 3
    again = Values(number=3, domain="collect", study=5)
    assert [drawn("evaluate", 9, episode, again) for episode in range(3)] == own


@pytest.mark.parametrize("number", [0, -1, 2.5, True])
def test_a_number_of_values_that_is_none_is_refused(number):
    with pytest.raises(ConfigError, match="values must be a whole number"):
        Values(number=number, domain="collect", study=0)
