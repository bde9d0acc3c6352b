"""Several factors as one perturbation: drawn together, applied in a declared order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from robogen.errors import ConfigError, FactorError
from robogen.mj.edit import ModelEdit
from robogen.mj.spec_edit import SpecEdit
from robogen.mj.world import World
from robogen.perturbations.base import (
    ActionFactor,
    ActionFilter,
    DataFactor,
    Factor,
    InstructionFactor,
    ModelFactor,
    ObservationFactor,
    SpecFactor,
    check_severity,
)
from robogen.seeding import Domain, EpisodeSeed, generator
from robogen.specs import Draw, InitialState, SceneFacts, Split

Draws = Mapping[str, Draw]


@dataclass(frozen=True, kw_only=True)
class Values:
    """A few fixed values of every factor, in which episodes take turns.

    Value ``k`` is what episode ``k`` of ``(domain, study)`` draws when nothing is fixed, so a
    collection and an evaluation that name the same two have the same values. Placement is not
    touched.
    """

    number: int
    """How many."""
    domain: Domain
    study: int
    """Seed of the study or collection whose values they are."""
    every: int = 1
    """Episodes from one value to the next."""

    def __post_init__(self) -> None:
        if isinstance(self.number, bool) or not isinstance(self.number, int) or self.number < 1:
            raise ConfigError(
                f"values must be a whole number of at least 1, got {self.number!r}. Leave it out "
                "to draw a new value in every episode."
            )

    def of(self, seed: EpisodeSeed) -> EpisodeSeed:
        """The seed whose streams an episode's values come from."""
        return EpisodeSeed(
            domain=self.domain,
            study=self.study,
            scene=seed.scene,
            episode=seed.episode // self.every % self.number,
        )


class Perturbation:
    """A set of factors, each at its severity, with one split.

    A factor at severity 0 draws the nominal value and is left out of everything else. Within a
    phase, factors act in the order of ``Factor.order``, then of their names, whatever the order
    given.

    Args:
        factors: Factors and their severities; none at all is the nominal condition.
        split: Whose value pools are drawn from.
        values: Fixed values to take turns in; None draws anew in every episode.

    Raises:
        ConfigError: A factor is named twice, a severity lies outside 0..1, the split is unknown.
        FactorError: Two factors set the same thing.
    """

    def __init__(
        self,
        factors: Sequence[tuple[Factor, float]] = (),
        split: Split = "eval",
        values: Values | None = None,
    ) -> None:
        if split not in get_args(Split):
            raise ConfigError(
                f"Split must be one of {', '.join(get_args(Split))}, got {split!r}. Choose one."
            )
        self.split: Split = split
        self._values = values
        self._severities: dict[str, float] = {}
        self._factors = sorted((f for f, _ in factors), key=lambda f: (f.order, f.name))
        for factor, severity in factors:
            if factor.name in self._severities:
                raise ConfigError(
                    f"Factor '{factor.name}' is named twice in one condition. Name each once."
                )
            self._severities[factor.name] = check_severity(factor.name, severity)
        self._refuse_rivals()

    def _refuse_rivals(self) -> None:
        owner: dict[str, str] = {}
        for factor in self._active():
            for thing in factor.sets:
                if thing in owner:
                    raise FactorError(
                        f"Factors '{owner[thing]}' and '{factor.name}' both set the {thing} and do "
                        "not compose. Evaluate them in separate conditions."
                    )
                owner[thing] = factor.name

    def _active(self, draws: Draws | None = None) -> Iterator[Factor]:
        """Factors above severity 0 and, where draws are given, drawn off nominal."""
        for factor in self._factors:
            if self._severities[factor.name] > 0 and (draws is None or draws.get(factor.name)):
                yield factor

    # -- what it is ------------------------------------------------------------------------------

    @property
    def factors(self) -> tuple[Factor, ...]:
        """All factors, in the order in which they act."""
        return tuple(self._factors)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all factors, in the order in which they act."""
        return tuple(factor.name for factor in self._factors)

    @property
    def severities(self) -> dict[str, float]:
        """Severity by factor."""
        return dict(self._severities)

    @property
    def ranges(self) -> dict[str, str]:
        """Physical range by factor, for people."""
        return {f.name: f.range_text(self._severities[f.name]) for f in self._factors}

    @property
    def needs_recompile(self) -> bool:
        """Whether an episode needs a model compiled for it."""
        return any(isinstance(factor, SpecFactor) for factor in self._active())

    @property
    def has_image_filter(self) -> bool:
        """Whether frames change on their way to the policy."""
        return any(isinstance(factor, ObservationFactor) for factor in self._active())

    def not_applicable(self, world: World, facts: SceneFacts) -> dict[str, str]:
        """Why each factor that cannot act on this scene cannot, by name."""
        facts = self._restrict(facts)
        reasons = {factor.name: factor.applies_to(world, facts) for factor in self._factors}
        return {name: reason for name, reason in reasons.items() if reason is not None}

    def _restrict(self, facts: SceneFacts) -> SceneFacts:
        """Facts with the other split's pools left out."""
        return replace(facts, paraphrases={self.split: facts.paraphrases.get(self.split, ())})

    # -- drawing ---------------------------------------------------------------------------------

    def sample(self, seed: EpisodeSeed, facts: SceneFacts) -> dict[str, Draw]:
        """One episode's draw of every factor, each from a stream of its own."""
        facts = self._restrict(facts)
        seed = seed if self._values is None else self._values.of(seed)
        draws = {}
        for factor in self._factors:
            rng = seed.stream("factor", factor.name, self.split)
            draws[factor.name] = factor.sample(
                rng, self.split, self._severities[factor.name], facts
            )
        return draws

    # -- applying --------------------------------------------------------------------------------

    def edit_spec(self, edit: SpecEdit, draws: Draws) -> None:
        """Apply the factors that need recompilation to a copy of the nominal specification."""
        for factor in self._active(draws):
            if isinstance(factor, SpecFactor):
                edit.author = factor.name
                factor.apply(edit, draws[factor.name])
                if not edit.moved(factor.name):
                    raise _idle(factor.name)

    def edit_model(self, edit: ModelEdit, draws: Draws) -> None:
        """Apply the factors that edit the compiled model, starting from the nominal one.

        Raises:
            FactorError: A factor found nothing to change, wrote an undeclared field, or collides
                with another; the model is nominal again.
        """
        edit.restore()
        try:
            for factor in self._active(draws):
                if isinstance(factor, ModelFactor):
                    edit.begin(factor.name, factor.fields)
                    factor.apply(edit, draws[factor.name])
                    if not edit.moved(factor.name):
                        raise _idle(factor.name)
        except BaseException:
            edit.restore()
            raise
        edit.finish()

    def edit_initial(self, initial: InitialState, draws: Draws) -> None:
        """Apply the factors that change where the episode starts, in place."""
        for factor in self._active(draws):
            if isinstance(factor, DataFactor):
                factor.apply(initial, draws[factor.name])

    def filter_image(
        self, image: NDArray[np.uint8], draws: Draws, rng: np.random.Generator
    ) -> NDArray[np.uint8]:
        """The frame (H, W, 3) uint8 the policy gets.

        Args:
            image: The rendered frame; not written to.
            draws: This episode's draws.
            rng: Keyed by (episode, step, camera); each factor's noise is derived from it and the
                factor's name, so one filter's noise does not depend on the others.
        """
        base = int(rng.integers(2**63))
        for factor in self._active(draws):
            if isinstance(factor, ObservationFactor):
                own = generator("image filter", base, factor.name)
                image = factor.apply(image, draws[factor.name], own)
        return image

    def action_filter(self, draws: Draws, rest: NDArray[np.float64]) -> ActionFilter:
        """What stands between policy and controller for one episode.

        Args:
            draws: This episode's draws.
            rest: The command (dim,) that means "stay" in the policy's action mode.
        """
        active = [factor for factor in self._active(draws) if isinstance(factor, ActionFactor)]
        return _Chain([factor.start(draws[factor.name], rest) for factor in active])

    def instruction(self, text: str, draws: Draws) -> str:
        """The instruction the policy gets, given the nominal one."""
        for factor in self._active(draws):
            if isinstance(factor, InstructionFactor):
                text = factor.apply(text, draws[factor.name])
        return text

    # -- evidence --------------------------------------------------------------------------------

    def edit_evidence(
        self, edit: ModelEdit, spec: SpecEdit | None = None
    ) -> dict[str, dict[str, str]]:
        """What each factor changed in the model: field and hash, or element and words.

        Args:
            edit: The edits of this episode, applied and not yet restored.
            spec: The specification's edits, where the episode was recompiled.
        """
        found: dict[str, dict[str, str]] = {}
        for factor in self._active():
            if isinstance(factor, ModelFactor):
                found[factor.name] = edit.evidence(factor.name)
            elif isinstance(factor, SpecFactor):
                found[factor.name] = spec.evidence(factor.name) if spec is not None else {}
        return found


class _Chain(ActionFilter):
    """Filters one after the other; none of them is the identity."""

    def __init__(self, filters: Sequence[ActionFilter]) -> None:
        self._filters = list(filters)

    def __call__(self, action: NDArray[np.float64]) -> NDArray[np.float64]:
        for one in self._filters:
            action = one(action)
        return action

    def pending(self) -> list[NDArray[np.float64]]:
        return [command for one in reversed(self._filters) for command in one.pending()]


def _idle(name: str) -> FactorError:
    return FactorError(
        f"Factor '{name}' was applied and changed nothing in this scene, so its condition would "
        "measure nothing. Leave it out for this scene, or widen its range."
    )
