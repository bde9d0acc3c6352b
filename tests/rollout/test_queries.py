"""Frames are drawn for queries and history alone, and they are the right ones."""

from __future__ import annotations

import numpy as np
import pytest

from robogen.errors import PolicyError
from robogen.perturbations.engine import Perturbation
from robogen.rollout.episode import Episode, EpisodeTask
from robogen.rollout.loop import padded, run
from robogen.scenes.scene import load_tabletop
from robogen.seeding import EpisodeSeed
from robogen.specs import ActionSpec, CameraSpec, ObservationSpec, PolicySpec

CAMERAS = (CameraSpec(name="front", width=24, height=24),)
STEPS = 12


class Scripted:
    """Moves along a fixed tape and keeps what it saw."""

    pad = False

    def __init__(self, *, history=(0,), chunk=1, execute=1):
        self.spec = PolicySpec(
            observation=ObservationSpec(cameras=CAMERAS, state=("eef_pos",), history=history),
            action=ActionSpec(chunk=chunk, execute=execute),
        )
        self.seen = []

    def reset(self, rows, seeds):
        pass

    def act(self, rows, observations):
        (observation,) = observations
        self.seen.append(observation)
        steps = observation.step + np.arange(self.spec.action.chunk)
        actions = np.zeros((len(steps), 7))
        actions[:, 0] = 0.5 * np.sin(steps)
        actions[:, 6] = -1.0
        return actions[None]


@pytest.fixture(scope="module")
def scene():
    made = load_tabletop("push", overrides={"horizon_s": STEPS / 10})
    yield made
    made.close()


def ran(scene, policy):
    """Observations, number of frames drawn, and the record of one episode."""
    drawn = []
    images = scene.images
    scene.images = lambda *words: (drawn.append(1), images(*words))[1]
    task = EpisodeTask(
        "push",
        "scripted",
        "nominal",
        0,
        0,
        EpisodeSeed(domain="validate", study=0, scene="push", episode=0),
    )
    episodes = iter(
        [
            Episode(
                scene=scene,
                perturbation=Perturbation(),
                task=task,
                policy=policy.spec,
                action=policy.spec.action,
            )
        ]
    )
    outcomes = []
    try:
        run(
            policy,
            slots=1,
            batch=1,
            source=lambda slot: next(episodes, None),
            sink=outcomes.append,
        )
    finally:
        del scene.images
    (outcome,) = outcomes
    return policy.seen, len(drawn), outcome.record


def test_every_step_is_the_reference(scene):
    seen, drawn, record = ran(scene, Scripted())
    assert [o.step for o in seen] == list(range(STEPS))
    assert drawn == STEPS
    assert record.steps == STEPS
    assert record.actions.shape == (STEPS, 7)


@pytest.mark.parametrize("execute", [2, 3, 4])
def test_only_queries_are_drawn_and_motion_does_not_change(scene, execute):
    every, _, reference = ran(scene, Scripted())
    seen, drawn, record = ran(scene, Scripted(chunk=4, execute=execute))
    assert [o.step for o in seen] == list(range(0, STEPS, execute))
    assert drawn == len(seen)
    np.testing.assert_array_equal(record.actions, reference.actions)
    for observation in seen:
        same = every[observation.step]
        np.testing.assert_array_equal(observation.images["front"], same.images["front"])
        np.testing.assert_array_equal(observation.state, same.state)


@pytest.mark.parametrize(("history", "execute"), [((-1, 0), 1), ((-2, 0), 4), ((-3, -1, 0), 2)])
def test_history_holds_the_frames_of_its_offsets(scene, history, execute):
    every, _, _ = ran(scene, Scripted())
    seen, drawn, _ = ran(scene, Scripted(history=history, chunk=4, execute=execute))
    for observation in seen:
        for row, offset in enumerate(history):
            step = max(0, observation.step + offset)
            np.testing.assert_array_equal(
                observation.images["front"][row], every[step].images["front"]
            )
            np.testing.assert_array_equal(observation.state[row], every[step].state)
    queries = range(0, STEPS, execute)
    needed = {max(0, step + offset) for step in queries for offset in history}
    assert len(needed) <= drawn <= STEPS


@pytest.mark.parametrize("wrong", [np.zeros((2, 1, 7)), np.zeros(7), np.zeros((0, 1, 7))])
def test_a_wrong_number_of_rows_is_named(wrong):
    policy = Scripted()
    policy.act = lambda rows, observations: wrong
    with pytest.raises(PolicyError, match="asked for 1 rows and returned an array of shape"):
        padded(policy, [0], [None], 1)
