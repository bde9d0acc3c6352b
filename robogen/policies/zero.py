"""The policy that does not move: what a scene gives away for free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from robogen.policies.base import Policy
from robogen.specs import ActionSpec, Observation, ObservationSpec, PolicySpec, SceneSpec


class ZeroPolicy(Policy):
    """Commands no motion and keeps the gripper where it is told; acts in any scene's own mode.

    In a mode of absolute positions zero is a place like any other, and the arm goes there.

    Args:
        gripper: Last number of the command; -1 stays open, 1 closes where that is the convention.
    """

    def __init__(self, *, gripper: float = -1.0) -> None:
        self.spec = PolicySpec(observation=ObservationSpec(), action=ActionSpec())
        self._gripper = gripper

    def fit(self, scene: SceneSpec) -> None:
        """Take the scene's preferred action mode and its rate."""
        self.spec = replace(self.spec, action=scene.action)

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> NDArray[np.float64]:
        """The same command for every row."""
        del rows
        action = np.zeros(self.spec.action.dim)
        action[-1] = self._gripper
        return np.tile(action, (len(observations), 1, 1))
