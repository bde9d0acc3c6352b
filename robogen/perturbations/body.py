# ruff: noqa: D102 - overrides are documented on the base class
"""Bodies of manipulated objects: how heavy they are."""

from __future__ import annotations

import numpy as np

from robogen.mj.edit import SET_CONST_DERIVED, ModelEdit
from robogen.mj.roles import BODY_ROLES
from robogen.mj.world import World
from robogen.perturbations.base import ModelFactor, ratio, signed_band
from robogen.specs import Draw, SceneFacts, Split


class Mass(ModelFactor):
    """Multiplies mass and inertia of every body of a role.

    Args:
        name: Factor name.
        role: manipulated, receiver, fixture or robot.
        lightest_ratio: Factor at full dose downwards.
        heaviest_ratio: The same upwards.
    """

    kind = "physical"
    channel = "dynamics"
    fields = ("body_inertia", "body_mass")
    derived = SET_CONST_DERIVED

    def __init__(
        self, *, name: str, role: str, lightest_ratio: float, heaviest_ratio: float
    ) -> None:
        super().__init__(name=name)
        self.role = self.choice("role", role, BODY_ROLES)
        self.lightest_ratio = self.number("lightest_ratio", lightest_ratio, 0.01, 1)
        self.heaviest_ratio = self.number("heaviest_ratio", heaviest_ratio, 1, 50)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        del facts
        dose = signed_band(rng, split)
        return {"mass_ratio": ratio(self.lightest_ratio, self.heaviest_ratio, severity * dose)}

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        del facts
        if not world.edit.movable_bodies(self.role).size:
            return f"the scene has no '{self.role}' object that moves"
        return None

    def apply(self, edit: ModelEdit, draw: Draw) -> None:
        bodies = edit.movable_bodies(self.role)
        for field in self.fields:
            edit.write(field, bodies, edit.read(field, bodies) * draw["mass_ratio"], "scale")

    def range_text(self, severity: float) -> str:
        return (
            f"{self.role} mass ×{self.lightest_ratio**severity:.2f} to "
            f"×{self.heaviest_ratio**severity:.2f}"
        )
