"""What the harness asks of a policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from robogen.specs import Observation, PolicySpec, SceneSpec


class RowsFailed(Exception):
    """Some rows of a call have no answer, and the others do: only those episodes end.

    Attributes:
        answers: Chunks (chunk, dim) by position in the call.
        failures: What went wrong, by position in the call.
    """

    def __init__(
        self,
        answers: Mapping[int, NDArray[np.float64]],
        failures: Mapping[int, Exception],
    ) -> None:
        super().__init__("; ".join(str(error) for error in failures.values()))
        self.answers = dict(answers)
        self.failures = dict(failures)


@dataclass(frozen=True, kw_only=True, eq=False)
class Normalization:
    """Numbers that a policy normalises a vector with; those it does not have are None."""

    kind: Literal["mean_std", "min_max", "quantiles", "identity"]
    mean: NDArray[np.float64] | None = None
    std: NDArray[np.float64] | None = None
    low: NDArray[np.float64] | None = None
    """Least value, or the 1 % quantile."""
    high: NDArray[np.float64] | None = None
    """Greatest value, or the 99 % quantile."""


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
    practical: ClassVar[frozenset[str]] = frozenset()
    """Constructor parameters that say how the policy is reached and not what it answers, such as a
    server's address: a study may be resumed with other values of these."""
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

    def normalization(self) -> Mapping[str, Normalization]:
        """What ``state`` is normalised and ``action`` is un-normalised with, where known."""
        return {}

    def round_trip(self, actions: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Demonstrated actions (n, dim) through the policy's own normalisation and back.

        None when the policy offers no such way.
        """
        del actions
        return None

    def close(self) -> None:
        """Release what the policy holds."""
        return
