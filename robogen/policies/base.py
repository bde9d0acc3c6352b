"""What the harness asks of a policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from robogen.specs import Observation, PolicySpec, SceneSpec


class Policy(ABC):
    """Maps observations of several episodes to chunks of actions, one row per episode.

    The harness owns chunk queues and observation history; a policy only answers queries. A row's
    answer must depend on that row's observation alone (and, for policies that are not
    deterministic, on its seed), never on which other rows share the call.

    Attributes:
        spec: The policy's declared conventions.
        pad: Whether calls are padded to the study's fixed batch size. True for networks, whose rows
            differ in the last bits between batch sizes; False where padding only costs time.
    """

    spec: PolicySpec
    pad: ClassVar[bool] = False
    scene: str | None = None
    """Scene the policy was trained for; None when it does not say."""

    def fit(self, scene: SceneSpec) -> None:
        """Told the scene before conventions are compared.

        Policies without conventions of their own take the scene's here; others leave this alone.
        """
        del scene

    def reset(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        """Episodes begin in these rows.

        Args:
            rows: Row numbers (slots of the harness).
            seeds: One seed per row, a function of the episode alone.
        """
        del rows, seeds

    @abstractmethod
    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> NDArray[np.float64]:
        """Chunks of actions (len(rows), chunk, dim) in the convention of the spec."""

    def identity(self) -> dict[str, str]:
        """What tells this policy from another of the same name, e.g. the checkpoint's hash."""
        return {}

    def close(self) -> None:
        """Release what the policy holds."""
        return
