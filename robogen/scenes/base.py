"""What the rest of robogen asks of a scene, whoever made it.

Rollout, factors, records and reports know only this protocol. One maker builds scenes from scene
files (:mod:`robogen.scenes.scene`); adapters of other people's environments are the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from robogen.mj.roles import CameraKind
from robogen.mj.spec_edit import SpecEdit
from robogen.mj.world import World
from robogen.seeding import EpisodeSeed
from robogen.specs import (
    ActionSpec,
    CameraSpec,
    InitialState,
    Orientation,
    RenderProfile,
    SceneFacts,
    SceneSpec,
    Split,
)


class StepResult(NamedTuple):
    """What one control step led to."""

    success: bool
    progress: float
    finite: bool
    """Whether the simulation is still made of numbers."""


class Scene(Protocol):
    """A world with a task.

    An episode is: :meth:`prepare`, perhaps :meth:`rebuild` and edits of ``world``, :meth:`reset`,
    then observations and steps. ``rebuild(None)`` and ``world.edit.restore()`` bring the nominal
    scene back.
    """

    @property
    def spec(self) -> SceneSpec:
        """What the scene offers to policies."""

    @property
    def world(self) -> World:
        """The compiled world this episode runs in."""

    @property
    def spec_edit(self) -> SpecEdit | None:
        """This episode's edits of the specification, when it was recompiled."""

    @property
    def placement(self) -> Mapping[str, Sequence[float]]:
        """Where objects stood at the last reset, by name."""

    @property
    def target(self) -> str:
        """Object this episode's instruction asks for."""

    @property
    def camera_kinds(self) -> Mapping[str, CameraKind]:
        """``third_person`` or ``wrist``, by name of each camera offered to policies."""

    @property
    def human_cameras(self) -> tuple[str, ...]:
        """Cameras for people and videos, never offered to policies."""

    @property
    def point_names(self) -> tuple[str, ...]:
        """Names of the task's points, see :meth:`points`."""

    def prepare(self, seed: EpisodeSeed) -> tuple[InitialState, SceneFacts]:
        """Draw where this episode starts and what it asks, before any factor is looked at."""

    def rebuild(self, edit: Callable[[SpecEdit], None] | None) -> None:
        """Recompile for one episode with an edited specification; None goes back to nominal."""

    def reset(self, initial: InitialState) -> None:
        """Write the initial state into the current world and let things come to rest."""

    def wordings(self, split: Split) -> tuple[str, ...]:
        """The nominal instruction of this episode and a split's paraphrases of it."""

    def render(
        self, camera: str, *, width: int, height: int, profile: RenderProfile
    ) -> NDArray[np.uint8]:
        """One upright RGB frame (height, width, 3) uint8."""

    def images(
        self,
        cameras: Iterable[CameraSpec],
        profile: RenderProfile,
        orientation: Orientation | None = None,
    ) -> dict[str, NDArray[np.uint8]]:
        """Frames by camera name, turned as asked; None: as ``spec.orientation`` says."""

    def proprioception(self, parts: Sequence[str]) -> NDArray[np.float32]:
        """Concatenated state parts (D,), see :data:`robogen.specs.STATE_LAYOUT`."""

    def points(self) -> NDArray[np.float32]:
        """Positions (K, 3) [m] of the task's points relative to the tool, base frame."""

    def expert_action(
        self, spec: ActionSpec, pending: Sequence[NDArray[np.float64]] = ()
    ) -> NDArray[np.float64]:
        """What the scene's expert does now, given commands still under way."""

    @property
    def has_expert(self) -> bool:
        """Whether :meth:`expert_action` answers."""

    def rest_action(self, spec: ActionSpec) -> NDArray[np.float64]:
        """The action that means "stay" right now."""

    def step(self, action: NDArray[np.float64], spec: ActionSpec) -> StepResult:
        """Execute one action for one control step."""

    def behaviour(self) -> dict[str, float]:
        """This episode's behaviour measures so far."""

    def notes(self) -> tuple[str, ...]:
        """What a reader of results should know of this scene, one clause each."""

    def identity(self) -> dict[str, str]:
        """What tells this scene from another of the same name."""

    def close(self) -> None:
        """Free what the scene holds."""
