"""The scene's own expert, as a policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robogen.errors import PolicyError
from robogen.policies.base import Policy
from robogen.specs import ActionSpec, Observation, ObservationSpec, PolicySpec

EXPERT_ACTION = "expert_action"
"""Key of ``Observation.privileged`` under which a scene offers its expert's action (7,)."""


class OraclePolicy(Policy):
    """Relays what the scene's expert would do now: an upper bound that reads the simulator.

    Args:
        control_hz: Control rate it is stepped at [Hz].
    """

    def __init__(self, *, control_hz: float = 10.0) -> None:
        self.spec = PolicySpec(
            observation=ObservationSpec(),
            action=ActionSpec(control_hz=float(control_hz)),
            privileged=True,
        )

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> NDArray[np.float64]:
        """The expert's action of every row.

        Raises:
            PolicyError: The scene offers no expert.
        """
        del rows
        return np.stack([self._expert(observation)[None] for observation in observations])

    def _expert(self, observation: Observation) -> NDArray[np.float64]:
        facts = observation.privileged or {}
        if EXPERT_ACTION not in facts:
            raise PolicyError(
                f"The oracle needs the scene's '{EXPERT_ACTION}', got "
                f"{', '.join(sorted(facts)) or 'no privileged facts'}. Use it only on scenes with "
                "an oracle, or choose another policy."
            )
        action = np.asarray(facts[EXPERT_ACTION], dtype=np.float64)
        if action.shape != (self.spec.action.dim,):
            raise PolicyError(
                f"The scene's '{EXPERT_ACTION}' has shape {action.shape}, the oracle relays "
                f"({self.spec.action.dim},) '{self.spec.action.mode}' actions. Correct the scene's "
                "oracle."
            )
        return action
