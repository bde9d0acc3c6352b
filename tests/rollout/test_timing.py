"""Under realtime the world goes on while the policy thinks; the robot holds its command."""

from __future__ import annotations

import time

import numpy as np
import pytest

from robogen.errors import ConfigError
from robogen.perturbations.engine import Perturbation
from robogen.policies.base import RowsFailed
from robogen.rollout.episode import Episode, EpisodeTask
from robogen.rollout.loop import Timing, run
from robogen.rollout.rerun import rerun
from robogen.scenes.scene import load_tabletop
from robogen.seeding import EpisodeSeed
from robogen.specs import ActionSpec, CameraSpec, ObservationSpec, PolicySpec
from robogen.study.config import compose_study
from robogen.study.design import resolve

STEPS = 12
SEED = EpisodeSeed(domain="validate", study=0, scene="push", episode=0)


class Closing:
    """Closes the gripper and moves along x; may be slow."""

    pad = False

    def __init__(self, *, chunk=2, mode="delta_eef", history=(0,), seconds=0.0):
        dim = 7 if mode == "delta_eef" else 8
        cameras = (CameraSpec(name="front", width=16, height=16),) if history != (0,) else ()
        self.spec = PolicySpec(
            observation=ObservationSpec(
                cameras=cameras, state=("joint_pos", "eef_pos"), history=history
            ),
            action=ActionSpec(mode=mode, dim=dim, chunk=chunk, execute=chunk),
        )
        self.seconds = seconds
        self.seen = []

    def reset(self, rows, seeds):
        pass

    def act(self, rows, observations):
        (observation,) = observations
        self.seen.append(observation)
        time.sleep(self.seconds)
        action = np.zeros(self.spec.action.dim)
        if self.spec.action.mode == "absolute_joint":
            action[:7] = np.atleast_2d(observation.state)[-1, :7]
            action[0] += 0.05
        else:
            action[0] = 0.5
        action[-1] = 1.0
        return np.tile(action, (1, self.spec.action.chunk, 1))


@pytest.fixture(scope="module")
def scene():
    made = load_tabletop("push", overrides={"horizon_s": STEPS / 10})
    yield made
    made.close()


def ran(scene, policy, timing):
    episode = Episode(
        scene=scene,
        perturbation=Perturbation(),
        task=EpisodeTask("push", "closing", "nominal", 0, 0, SEED),
        policy=policy.spec,
        action=policy.spec.action,
    )
    waiting, outcomes = iter([episode]), []
    run(
        policy,
        slots=1,
        batch=1,
        source=lambda slot: next(waiting, None),
        sink=outcomes.append,
        timing=timing,
    )
    (outcome,) = outcomes
    return outcome


@pytest.mark.parametrize(("latency_ms", "held"), [(0, 0), (99, 0), (100, 1), (250, 2)])
def test_whole_control_steps_pass_while_the_policy_thinks(scene, latency_ms, held):
    policy = Closing()
    outcome = ran(scene, policy, Timing(latency_s=latency_ms / 1e3))
    moving = outcome.record.actions[:, 0] > 0
    pattern = ([False] * held + [True] * 2) * STEPS
    assert moving.tolist() == pattern[:STEPS]
    assert [o.step for o in policy.seen] == list(range(0, STEPS, held + 2))
    assert outcome.telemetry.decisions == len(policy.seen)


def test_a_held_gripper_stays_as_it_was_told(scene):
    actions = ran(scene, Closing(), Timing(latency_s=0.2)).record.actions
    assert (actions[:2, -1] == -1.0).all()  # nothing was asked yet: open, as it starts
    assert (actions[2:, -1] == 1.0).all()


def test_an_absolute_command_is_held_as_it_is(scene):
    actions = ran(scene, Closing(mode="absolute_joint"), Timing(latency_s=0.2)).record.actions
    for start in range(4, STEPS, 4):
        np.testing.assert_array_equal(actions[start : start + 2], actions[[start - 1] * 2])


def test_history_follows_the_clock_of_the_world(scene):
    policy = Closing(history=(-1, 0))
    ran(scene, policy, Timing(latency_s=0.2))
    reference = Closing(history=(-1, 0), chunk=1)
    ran(scene, reference, None)
    assert [o.step for o in policy.seen] == [0, 4, 8]
    for observation in policy.seen[1:]:  # the tool moved in one of the two frames' interval
        before, now = observation.state[:, 7]
        assert now > before


def test_a_measured_decision_counts_as_long_as_it_took(scene):
    outcome = ran(scene, Closing(seconds=0.21), Timing())
    moving = outcome.record.actions[:, 0] > 0
    assert not moving[:2].any()
    assert outcome.telemetry.latency_ms >= 210.0
    assert outcome.telemetry.latency_max_ms >= outcome.telemetry.latency_ms


def test_an_episode_with_held_commands_replays_exactly(scene):
    outcome = ran(scene, Closing(), Timing(latency_s=0.2))
    again = rerun(scene, Perturbation(), SEED, outcome.record.actions, action=ActionSpec())
    assert again.state_hash == outcome.record.state_hash
    assert again.progress == outcome.record.progress
    assert again.behaviour == outcome.record.behaviour


def test_an_instant_world_waits(scene):
    reference = ran(scene, Closing(), None).record
    slow = ran(scene, Closing(seconds=0.02), None).record
    np.testing.assert_array_equal(slow.actions, reference.actions)


def test_only_the_rows_that_failed_end():
    scenes = [load_tabletop("push", overrides={"horizon_s": 0.3}) for _ in range(2)]

    class Picky(Closing):
        def act(self, rows, observations):
            chunk = np.zeros((self.spec.action.chunk, 7))
            good = {place: chunk for place, row in enumerate(rows) if row == 0}
            bad = {place: ValueError("no") for place, row in enumerate(rows) if row == 1}
            if bad:
                raise RowsFailed(good, bad)
            return np.stack(list(good.values()))

    policy = Picky()
    episodes = {
        slot: Episode(
            scene=scene,
            perturbation=Perturbation(),
            task=EpisodeTask("push", "picky", "nominal", slot, 0, SEED),
            policy=policy.spec,
            action=policy.spec.action,
        )
        for slot, scene in enumerate(scenes)
    }
    outcomes = []
    run(
        policy,
        slots=2,
        batch=2,
        source=lambda slot: episodes.pop(slot, None),
        sink=outcomes.append,
    )
    by_episode = {outcome.record.episode: outcome.record for outcome in outcomes}
    assert by_episode[0].status == "scored"
    assert (by_episode[1].status, by_episode[1].error_kind) == ("errored", "policy")
    for scene in scenes:
        scene.close()


def test_measured_latency_means_one_episode_at_a_time_and_a_noise_floor():
    words = ["scene=push", "policy=zero", "suite=null", "episodes=1"]
    instant = resolve(compose_study(words))
    measured = resolve(compose_study([*words, "timing=realtime"]))
    declared = resolve(compose_study([*words, "timing=realtime", "latency_ms=50"]))
    assert (measured.config.slots, measured.config.batch) == (1, 1)
    assert (declared.config.slots, declared.config.batch) == (8, 8)
    assert [d.repeats["zero"] for d in (instant, declared, measured)] == [0, 0, 1]
    assert len({d.hash for d in (instant, declared, measured)}) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["timing=realtme"], "Did you mean 'realtime'"),
        (["latency_ms=20"], "Add timing=realtime"),
        (["timing=realtime", "latency_ms=-1"], "0 or more"),
    ],
)
def test_impossible_timings_are_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        compose_study(["scene=push", "policy=zero", *words])
