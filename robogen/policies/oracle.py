"""The scene's own expert, as a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from robogen.errors import PolicyError
from robogen.policies.base import Policy
from robogen.specs import ActionSpec, Observation, ObservationSpec, PolicySpec, SceneSpec

EXPERT_ACTION = "expert_action"
"""Key of ``Observation.privileged`` under which a scene offers its expert's action (7,)."""


class OraclePolicy(Policy):
    """Relays what the scene's expert would do now: an upper bound that reads the simulator.

    It acts in any scene's own mode.

    Args:
        family: Family of environments whose experts it is the name of; None: any scene's.
    """

    def __init__(self, *, family: str | None = None) -> None:
        self._family = family
        self.spec = PolicySpec(observation=ObservationSpec(), action=ActionSpec(), privileged=True)

    def fit(self, scene: SceneSpec) -> None:
        """Take the scene's preferred action mode and its rate.

        Raises:
            PolicyError: The scene is not of the policy's family.
        """
        if self._family is not None and not scene.name.startswith(f"{self._family}/"):
            raise PolicyError(
                f"This policy stands for the experts of {self._family}'s own tasks, got scene "
                f"'{scene.name}'. Choose scene={self._family}/<task>, or policy=oracle."
            )
        self.spec = replace(self.spec, action=scene.action)

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
