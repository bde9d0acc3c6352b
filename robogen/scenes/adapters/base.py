"""What an adapter tells of somebody else's environment; the rest is the same for all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from robogen.mj.world import Pose
from robogen.specs import ActionMode, ActionSpec


class Start(NamedTuple):
    """Which start of an environment an episode has."""

    seed: int
    """For the environment's own random reset; a function of study seed and episode."""
    episode: int
    """For suites that ship numbered initial states."""


class Adapter(ABC):
    """One environment, reduced to what a scene needs of it.

    Frames are never asked of the environment: the scene draws its model itself, when a policy asks.

    Args of every constructor: the task's name in its codebase, and the family file's ``settings``.
    """

    @classmethod
    @abstractmethod
    def tasks(cls) -> tuple[str, ...]:
        """Every task of the installed codebase, by the name it has after the slash."""

    # -- the simulator ---------------------------------------------------------------------------

    @property
    @abstractmethod
    def model(self) -> mujoco.MjModel:
        """The compiled model behind the environment."""

    @property
    @abstractmethod
    def data(self) -> mujoco.MjData:
        """Its state."""

    def specification(self) -> mujoco.MjSpec | None:
        """What the model was compiled from, None when the environment cannot be recompiled."""
        return None

    def install(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Put another compilation of the same model behind the environment."""
        raise NotImplementedError(f"{type(self).__name__} has a specification but cannot install")

    # -- an episode ------------------------------------------------------------------------------

    @abstractmethod
    def reset(self, start: Start) -> None:
        """The environment's own reset; equal starts must lead to equal states."""

    @abstractmethod
    def step(self, action: NDArray[np.float64], spec: ActionSpec) -> None:
        """Execute one action (dim,) for one control step."""

    @abstractmethod
    def success(self) -> bool:
        """Whether the task is done now, by the environment's own measure."""

    def progress(self) -> float:
        """How far along the task is, 0 to 1."""
        return float(self.success())

    @property
    @abstractmethod
    def instruction(self) -> str:
        """The task in words; empty when the environment has none."""

    # -- conventions -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def action_modes(self) -> Mapping[ActionMode, int]:
        """Action modes it takes and their dimensions, the preferred one first."""

    @abstractmethod
    def rest(self, spec: ActionSpec) -> NDArray[np.float64]:
        """The action (dim,) that means "stay" right now."""

    @abstractmethod
    def state(self) -> Mapping[str, NDArray[np.float64]]:
        """State parts by name, see :data:`robogen.specs.STATE_LAYOUT`."""

    @property
    @abstractmethod
    def tool(self) -> Pose:
        """Tool centre point, world frame."""

    @property
    def roles(self) -> Mapping[str, Sequence[str]]:
        """Name patterns that the environment itself knows; they win over the family file's."""
        return {}

    def arm_moved(self) -> None:
        """Told that the arm's joints were set elsewhere, before the first step."""
        return

    def expert(
        self, spec: ActionSpec, pending: Sequence[NDArray[np.float64]]
    ) -> NDArray[np.float64] | None:
        """What a scripted expert does now (dim,), None when there is none."""
        del spec, pending
        return None

    def close(self) -> None:
        """Release what the environment holds."""
        return


Settings = Mapping[str, Any]
"""A family file's ``settings``, passed to the adapter's constructor as keywords."""
