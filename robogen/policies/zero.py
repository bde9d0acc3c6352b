"""The policy that does not move: what a scene gives away for free."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robogen.policies.base import Policy
from robogen.specs import ActionSpec, Observation, ObservationSpec, PolicySpec


class ZeroPolicy(Policy):
    """Commands no motion and keeps the gripper where it is told.

    Args:
        control_hz: Control rate it is stepped at [Hz].
        gripper: Gripper command; -1 stays open, 1 closes.
    """

    def __init__(self, *, control_hz: float = 10.0, gripper: float = -1.0) -> None:
        self.spec = PolicySpec(
            observation=ObservationSpec(), action=ActionSpec(control_hz=float(control_hz))
        )
        self._action = np.zeros(self.spec.action.dim)
        self._action[-1] = gripper

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> NDArray[np.float64]:
        """The same command for every row."""
        del rows
        return np.tile(self._action, (len(observations), 1, 1))
