# ruff: noqa: D102 - overrides are documented on the base class
"""Things added to the table that are only seen."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from robogen.errors import FactorError
from robogen.mj.spec_edit import SpecEdit
from robogen.mj.world import World
from robogen.perturbations.base import SpecFactor
from robogen.perturbations.models import POOL_SIZE, model, pool_entry
from robogen.specs import Circle, Draw, SceneFacts, Split

_TRIES = 400


class Distractors(SpecFactor):
    """Puts things beside the task on the table; they have no contacts and no joints.

    More severity puts more of the same episode's things, each where it would stand alone.

    Args:
        name: Factor name.
        max_count: Things at full dose; above severity 0 at least one.
        size_m: Typical radius of a thing.
        gap_m: Smallest distance between the discs of two things, or of one and the task's.
    """

    kind = "visual"
    channel = "camera"
    dose = "ordered"

    def __init__(self, *, name: str, max_count: int, size_m: float, gap_m: float) -> None:
        super().__init__(name=name)
        self.max_count = self.integer("max_count", max_count, 1, 50)
        self.size_m = self.number("size_m", size_m, 0.005, 0.5)
        self.gap_m = self.number("gap_m", gap_m, 0, 0.5)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        places: list[dict[str, Any]] = []
        taken = list(facts.occupied)
        for seed in rng.integers(2**63, size=self.max_count).tolist():
            stream = np.random.default_rng(seed)  # its own, so no thing's tries move another's
            identity = pool_entry(int(stream.integers(POOL_SIZE)), split)
            radius = model(identity, self.size_m).radius
            spot = self._spot(stream, facts.workspace, taken, radius)
            if spot is None:
                continue
            taken.append(Circle(x=spot[0], y=spot[1], radius=radius))
            yaw = float(stream.uniform(-math.pi, math.pi))
            places.append({"model": identity, "x_m": spot[0], "y_m": spot[1], "yaw_rad": yaw})
        if not places:
            raise FactorError(
                f"Factor '{self.name}' found no room on the table of scene '{facts.scene}' for a "
                f"thing of {self.size_m:g} m radius. Lower its size_m or gap_m, or leave it out."
            )
        return {"things": places[: math.ceil(severity * self.max_count)]}

    def _spot(
        self,
        rng: np.random.Generator,
        workspace: tuple[float, float, float, float],
        taken: list[Circle],
        radius: float,
    ) -> tuple[float, float] | None:
        x_low, x_high, y_low, y_high = workspace
        low = np.array([x_low + radius, y_low + radius])
        high = np.array([x_high - radius, y_high - radius])
        if (low > high).any():
            return None
        spots = rng.uniform(low, high, (_TRIES, 2))
        centres = np.array([(c.x, c.y) for c in taken]).reshape(-1, 2)
        reach = np.array([c.radius for c in taken]) + radius + self.gap_m
        apart = np.linalg.norm(spots[:, None] - centres[None], axis=2)
        free = np.flatnonzero((apart >= reach).all(axis=1))
        return tuple(spots[free[0]].tolist()) if free.size else None

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        reason = super().applies_to(world, facts)
        if reason is not None:
            return reason
        x_low, x_high, y_low, y_high = facts.workspace
        if min(x_high - x_low, y_high - y_low) < 2 * self.size_m:
            return "the scene has no table area for decorations"
        return None

    def apply(self, edit: SpecEdit, draw: Draw) -> None:
        for index, thing in enumerate(draw["things"]):
            edit.decorate(
                name=f"{self.name}_{index}",
                parts=model(thing["model"], self.size_m).parts,
                position=(thing["x_m"], thing["y_m"], 0.0),
                yaw=thing["yaw_rad"],
            )

    def range_text(self, severity: float) -> str:
        return f"up to {math.ceil(severity * self.max_count)} things beside the task"
