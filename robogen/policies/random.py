"""The policy that flails: what a scene gives to luck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from robogen.policies.base import Policy
from robogen.seeding import generator
from robogen.specs import ActionSpec, Observation, ObservationSpec, PolicySpec, SceneSpec


class RandomPolicy(Policy):
    """Uniform actions in [-1, 1], a pure function of (episode seed, control step).

    The generator is keyed by seed and step and not advanced from call to call, so an episode gets
    the same actions in any row, batch or order, and when its step is asked for twice. An episode's
    record is then reproducible bit by bit, which is what declaring ``deterministic`` promises. It
    acts in any scene's own mode.
    """

    def __init__(self) -> None:
        self.spec = PolicySpec(observation=ObservationSpec(), action=ActionSpec())
        self._seeds: dict[int, int] = {}

    def fit(self, scene: SceneSpec) -> None:
        """Take the scene's preferred action mode and its rate."""
        self.spec = replace(self.spec, action=scene.action)

    def reset(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        """Remember each row's seed."""
        self._seeds.update(zip(rows, seeds, strict=True))

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> NDArray[np.float64]:
        """One random action per row."""
        return np.stack(
            [
                generator("random-policy", self._seeds[row], observation.step).uniform(
                    -1.0, 1.0, size=(1, self.spec.action.dim)
                )
                for row, observation in zip(rows, observations, strict=True)
            ]
        )
