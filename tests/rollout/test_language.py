"""Words must matter: the shipped policy does what it is told, not what it saw most often."""

from __future__ import annotations

import numpy as np

from robogen.perturbations.engine import Perturbation
from robogen.policies.library import load_policy
from robogen.rollout.loop import padded
from robogen.rollout.start import begin
from robogen.scenes.scene import load_tabletop
from robogen.seeding import EpisodeSeed
from robogen.specs import Observation

EPISODES = 6


def final_place(scene, policy, episode: int, *, swapped: bool) -> str | None:
    """Object that ended up in the tray, under the true or the other instruction."""
    seed = EpisodeSeed(domain="validate", study=11, scene="pick", episode=episode)
    _, instruction, _ = begin(scene, Perturbation([]), seed)
    if swapped:
        words = scene.config.task.choices
        other = next(choice for choice in words if choice.target != scene.target)
        instruction = scene.config.task.instruction.replace("{target}", other.words)
    spec = policy.spec
    state = scene._state
    for step in range(scene.spec.horizon):
        if step % spec.action.execute == 0:
            observation = Observation(
                images=scene.images(spec.observation.cameras, spec.observation.render),
                state=scene.proprioception(spec.observation.state),
                instruction=instruction,
                step=step,
            )
            chunk = padded(policy, [0], [observation], 8)[0]
        scene.step(chunk[step % spec.action.execute], spec.action)
        for name in ("cube", "can"):
            if state.inside(object=name, container="tray") and state.released(object=name):
                return name
    return None


def test_swapping_the_instruction_swaps_the_object():
    scene = load_tabletop("pick")
    policy = load_policy("bc", scene="pick")
    other = {"cube": "can", "can": "cube"}
    followed = np.zeros(2, dtype=int)
    for episode in range(EPISODES):
        placed = final_place(scene, policy, episode, swapped=False)
        followed[0] += placed == scene.target
        placed = final_place(scene, policy, episode, swapped=True)
        followed[1] += placed == other[scene.target]
    scene.close()
    # picking objects at random, 5 of 6 or better comes up in 11 % of trials, and twice in 1 %
    assert followed.min() >= EPISODES - 1, followed
