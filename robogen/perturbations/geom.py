# ruff: noqa: D102 - overrides are documented on the base class
"""Geoms of manipulated objects: their size and how they slide."""

from __future__ import annotations

import numpy as np

from robogen.mj.edit import ModelEdit
from robogen.mj.roles import BODY_ROLES
from robogen.mj.spec_edit import SpecEdit
from robogen.mj.world import World
from robogen.perturbations.base import ModelFactor, SpecFactor, ratio, signed_band
from robogen.specs import Draw, SceneFacts, Split


class ObjectSize(SpecFactor):
    """Scales every object of a role in all directions; its mass follows the volume.

    Physical, not visual: a grasp that fits one size misses another.

    Args:
        name: Factor name.
        role: manipulated, receiver, fixture or robot.
        smallest_ratio: Factor on lengths at full dose downwards.
        largest_ratio: The same upwards; what is grasped must still fit the gripper (8 cm).
    """

    kind = "physical"
    channel = "dynamics"

    def __init__(
        self, *, name: str, role: str, smallest_ratio: float, largest_ratio: float
    ) -> None:
        super().__init__(name=name)
        self.role = self.choice("role", role, BODY_ROLES)
        self.smallest_ratio = self.number("smallest_ratio", smallest_ratio, 0.2, 1)
        self.largest_ratio = self.number("largest_ratio", largest_ratio, 1, 3)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        del facts
        dose = signed_band(rng, split)
        step = dose * (self.largest_ratio - 1) if dose > 0 else -dose * (self.smallest_ratio - 1)
        return {"scale": 1.0 + severity * step}

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        reason = super().applies_to(world, facts)
        if reason is not None:
            return reason
        if not world.edit.bodies(self.role).size:
            return f"the scene has no '{self.role}' object"
        if world.edit.is_articulated(self.role):
            return (
                f"the '{self.role}' object is articulated, and its handle is made to fit the hand"
            )
        if world.edit.has_meshes(self.role):
            return f"the '{self.role}' object is made of meshes, which are not scaled"
        return None

    def apply(self, edit: SpecEdit, draw: Draw) -> None:
        edit.scale(self.role, draw["scale"])

    def range_text(self, severity: float) -> str:
        low = 1 + severity * (self.smallest_ratio - 1)
        high = 1 + severity * (self.largest_ratio - 1)
        return f"{self.role} size ×{low:.2f} to ×{high:.2f}"


class Friction(ModelFactor):
    """Multiplies the sliding friction of a role against everything it touches.

    Where the role's geoms have no priority over others, those are scaled along: MuJoCo takes the
    larger friction of a contact's two geoms, so that less on one side alone would not be felt.

    Args:
        name: Factor name.
        role: manipulated, receiver, fixture or robot.
        lowest_ratio: Factor at full dose downwards.
        highest_ratio: The same upwards.
    """

    kind = "physical"
    channel = "dynamics"
    fields = ("geom_friction",)

    def __init__(self, *, name: str, role: str, lowest_ratio: float, highest_ratio: float) -> None:
        super().__init__(name=name)
        self.role = self.choice("role", role, BODY_ROLES)
        self.lowest_ratio = self.number("lowest_ratio", lowest_ratio, 0.01, 1)
        self.highest_ratio = self.number("highest_ratio", highest_ratio, 1, 20)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        del facts
        dose = signed_band(rng, split)
        return {"friction_ratio": ratio(self.lowest_ratio, self.highest_ratio, severity * dose)}

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        del facts
        if not world.edit.colliding_geoms(self.role).size:
            return f"the scene has no '{self.role}' object that touches anything"
        return None

    def apply(self, edit: ModelEdit, draw: Draw) -> None:
        geoms = edit.sliding_geoms(self.role)
        friction = edit.read("geom_friction", geoms)
        friction[:, 0] *= draw["friction_ratio"]
        edit.write("geom_friction", geoms, friction, "scale")

    def range_text(self, severity: float) -> str:
        return (
            f"{self.role} friction ×{self.lowest_ratio**severity:.2f} to "
            f"×{self.highest_ratio**severity:.2f}"
        )
