"""A factor: one named axis of variation, its pure draw and its exact application."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from robogen.errors import ConfigError, FactorError
from robogen.mj.edit import ModelEdit
from robogen.mj.spec_edit import SpecEdit
from robogen.mj.world import World
from robogen.specs import Channel, Draw, InitialState, SceneFacts, Split

Kind = Literal["visual", "spatial", "physical", "semantic", "embodiment", "sensing", "actuation"]
Phase = Literal["spec", "model", "data", "observation", "action", "instruction"]
Dose = Literal["continuous", "ordered", "binary"]

NOMINAL: Draw = {}
"""The identity draw: what every factor draws at severity 0, whatever the seed."""

BANDS = 8
"""Bands the value range of a scalar is cut into; even ones are the train pool, odd ones eval."""


class Factor(ABC):
    """One axis of variation.

    A factor draws from the pool of a split without touching a simulator (:meth:`sample`), and a
    subclass of one phase applies that draw without randomness. ``severity`` 0 draws
    :data:`NOMINAL`, which is never applied; in between, a continuous factor moves from nominal
    towards a direction that is fixed by the episode. Authors write :meth:`draw`, ``apply`` and
    :meth:`range_text`.

    Args:
        name: Name of the factor; also its condition's and its YAML's.
    """

    kind: ClassVar[Kind]
    phase: ClassVar[Phase]
    channel: ClassVar[Channel]
    dose: ClassVar[Dose] = "continuous"
    fields: ClassVar[tuple[str, ...]] = ()
    """mjModel fields (or headlight pseudo-fields) the factor writes."""
    derived: ClassVar[tuple[str, ...]] = ()
    """Fields that follow from those and may change with them."""
    sets: ClassVar[tuple[str, ...]] = ()
    """Things outside the model that the factor sets outright, e.g. the instruction; two factors
    that set the same one do not compose."""
    pooled: ClassVar[bool] = True
    """Whether the splits hold different values; False when a value follows from severity alone."""
    order: ClassVar[int] = 0
    """Factors are applied in this order, then by name; ``replace`` comes before ``scale``."""

    def __init__(self, *, name: str) -> None:
        self.name = name

    def sample(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        """Draw this episode's value: pure, JSON-able, the same for the same generator state.

        Raises:
            ConfigError: The severity lies outside 0..1.
            FactorError: The split's pool is empty.
        """
        severity = check_severity(self.name, severity)
        return self.draw(rng, split, severity, facts) if severity > 0 else dict(NOMINAL)

    @abstractmethod
    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        """What :meth:`sample` returns at a severity above 0.

        The direction is drawn before severity is looked at, so one episode's draws at two
        severities lie on one line.
        """

    @abstractmethod
    def range_text(self, severity: float) -> str:
        """Physical range at a severity, for people: ``"fovy ±12°"``."""

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        """None when the factor can act on this scene, else the reason why not, one sentence."""
        del world, facts
        return None

    # -- checks of parameters, for constructors ----------------------------------------------------

    def number(self, key: str, value: object, low: float, high: float) -> float:
        """A parameter as a float within its allowed range.

        Raises:
            ConfigError: It is not a number, or lies outside.
        """
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not low <= float(cast(float, value)) <= high:
            raise ConfigError(
                f"Parameter '{key}' of factor '{self.name}' must be a number in {low:g}..{high:g}, "
                f"got {value!r}. Change it in the factor's YAML or on the command line."
            )
        return float(cast(float, value))

    def integer(self, key: str, value: object, low: int, high: int) -> int:
        """A parameter as an int within its allowed range.

        Raises:
            ConfigError: It is not a whole number, or lies outside.
        """
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ConfigError(
                f"Parameter '{key}' of factor '{self.name}' must be a whole number "
                f"in {low}..{high}, got {value!r}. Change it in the factor's YAML or on the "
                "command line."
            )
        return value

    def choice(self, key: str, value: object, allowed: Sequence[str]) -> str:
        """A parameter that is one of a few words.

        Raises:
            ConfigError: It is none of them.
        """
        if not isinstance(value, str) or value not in allowed:
            raise ConfigError(
                f"Parameter '{key}' of factor '{self.name}' must be one of {', '.join(allowed)}, "
                f"got {value!r}. Change it in the factor's YAML or on the command line."
            )
        return value

    def nothing(self, what: str) -> FactorError:
        """The error for a factor that found nothing to change; ``what`` it looked for."""
        return FactorError(
            f"Factor '{self.name}' found no {what} in this scene, so it would change nothing. "
            "Leave it out for this scene."
        )


class SpecFactor(Factor):
    """Changes the specification; the scene is recompiled for the episode."""

    phase: ClassVar[Phase] = "spec"

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        """Overrides ask this first: without recompilation there is nothing to edit."""
        del world
        if not facts.can_recompile:
            return "the scene cannot be recompiled, and this factor edits its specification"
        return None

    @abstractmethod
    def apply(self, edit: SpecEdit, draw: Draw) -> None:
        """Edit the copy of the nominal specification."""


class ModelFactor(Factor):
    """Edits fields of the compiled model in place."""

    phase: ClassVar[Phase] = "model"

    @abstractmethod
    def apply(self, edit: ModelEdit, draw: Draw) -> None:
        """Write this factor's declared fields through ``edit``, whose current author it is."""


class DataFactor(Factor):
    """Changes where the episode starts."""

    phase: ClassVar[Phase] = "data"

    @abstractmethod
    def apply(self, initial: InitialState, draw: Draw) -> None:
        """Edit the initial state in place."""


class ObservationFactor(Factor):
    """Filters camera frames on their way to the policy."""

    phase: ClassVar[Phase] = "observation"

    @abstractmethod
    def apply(
        self, image: NDArray[np.uint8], draw: Draw, rng: np.random.Generator
    ) -> NDArray[np.uint8]:
        """The frame (H, W, 3) uint8 the policy gets.

        ``rng`` is keyed by (episode, step, camera, factor), never by how often this is called.
        """


class ActionFilter(ABC):
    """Stands between policy and controller for one episode."""

    @abstractmethod
    def __call__(self, action: NDArray[np.float64]) -> NDArray[np.float64]:
        """The command that is executed now, given the command the policy gives now."""

    @abstractmethod
    def pending(self) -> list[NDArray[np.float64]]:
        """Commands given but not executed yet, oldest first."""


class ActionFactor(Factor):
    """Changes commands on their way to the robot."""

    phase: ClassVar[Phase] = "action"

    @abstractmethod
    def start(self, draw: Draw, rest: NDArray[np.float64]) -> ActionFilter:
        """A filter for one episode; ``rest`` is the command that means "stay" in this mode."""


class InstructionFactor(Factor):
    """Changes the words."""

    phase: ClassVar[Phase] = "instruction"

    @abstractmethod
    def apply(self, instruction: str, draw: Draw) -> str:
        """The instruction the policy gets."""


def band_magnitude(rng: np.random.Generator, split: Split, lowest: float = 0.5) -> float:
    """A magnitude in [``lowest``, 1] from the split's bands.

    The range is cut into :data:`BANDS` equal bands; even ones belong to ``train`` and odd ones to
    ``eval``, so the pools are disjoint and interleaved, and the strongest band is always ``eval``.
    """
    offset = 0 if split == "train" else 1
    band = 2 * int(rng.integers(BANDS // 2)) + offset
    width = (1.0 - lowest) / BANDS
    return float(lowest + width * (band + rng.uniform(0.0, 1.0)))


def signed_band(rng: np.random.Generator, split: Split, lowest: float = 0.5) -> float:
    """A magnitude of :func:`band_magnitude` with a random sign: in [-1, 1]."""
    sign = 1.0 if rng.uniform() < 0.5 else -1.0
    return sign * band_magnitude(rng, split, lowest)


def ratio(lowest: float, highest: float, dose: float) -> float:
    """A ratio that moves geometrically from 1: ``lowest`` at dose -1, ``highest`` at dose 1."""
    return float((highest if dose > 0 else lowest) ** abs(dose))


def hue_sector(rng: np.random.Generator, split: Split, away: float = 0.0) -> float:
    """A hue [turns] at least ``away`` from 0, from sectors that alternate between the splits."""
    offset = 0 if split == "train" else 1
    sector = 2 * int(rng.integers(BANDS // 2)) + offset
    width = (1.0 - 2.0 * away) / BANDS
    return float(away + width * (sector + rng.uniform(0.0, 1.0)))


def unit_vector(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """A uniformly random direction (size,)."""
    vector = rng.normal(size=size)
    return np.asarray(vector / np.linalg.norm(vector))


def check_severity(name: str, severity: float) -> float:
    """The severity as a float in [0, 1].

    Raises:
        ConfigError: It is outside, or not a number.
    """
    try:
        value = float(severity)
    except (TypeError, ValueError):
        value = float("nan")
    if not 0.0 <= value <= 1.0:
        raise ConfigError(
            f"Severity of '{name}' must lie in 0..1 (0 is nominal, 1 the full range), got "
            f"{severity!r}. Choose a value in that range."
        )
    return value
