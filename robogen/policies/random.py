"""The policy that flails: what a scene gives to luck."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robogen.policies.base import Policy
from robogen.seeding import generator
from robogen.specs import ActionSpec, Observation, ObservationSpec, PolicySpec


class RandomPolicy(Policy):
    """Uniform actions in [-1, 1], a pure function of (episode seed, control step).

    The generator is keyed by seed and step and not advanced from call to call, so an episode gets
    the same actions in any row, batch or order, and when its step is asked for twice. An episode's
    record is then reproducible bit by bit, which is what declaring ``deterministic`` promises.

    Args:
        control_hz: Control rate it is stepped at [Hz].
    """

    def __init__(self, *, control_hz: float = 10.0) -> None:
        self.spec = PolicySpec(
            observation=ObservationSpec(), action=ActionSpec(control_hz=float(control_hz))
        )
        self._seeds: dict[int, int] = {}

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
