# ruff: noqa: D102 - overrides are documented on the base class
"""The initial state: where objects lie and how the arm starts."""

from __future__ import annotations

import numpy as np

from robogen.mj.world import World
from robogen.perturbations.base import DataFactor, signed_band
from robogen.specs import Draw, InitialState, SceneFacts, Split


class ObjectPosition(DataFactor):
    """Widens the regions in which objects lie; each object keeps its uniforms.

    The wide region is a checkerboard, half of whose fields belong to each split.

    Args:
        name: Factor name.
        max_widen: How far from the nominal region to the scene's wide one at full dose, 0 to 1.
    """

    kind = "spatial"
    channel = "camera"
    sets = ("placement",)

    def __init__(self, *, name: str, max_widen: float) -> None:
        super().__init__(name=name)
        self.max_widen = self.number("max_widen", max_widen, 0, 1)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        del rng, facts
        return {"widen": severity * self.max_widen, "pool": split}

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        del world
        return None if facts.can_widen else "no object of the scene has a wide region"

    def apply(self, initial: InitialState, draw: Draw) -> None:
        initial.widen = draw["widen"]
        initial.pool = draw["pool"]

    def range_text(self, severity: float) -> str:
        return f"object regions {100 * severity * self.max_widen:.0f} % of the way to the wide ones"


class RobotPose(DataFactor):
    """Starts the arm with every joint off its nominal angle, within the joints' limits.

    Args:
        name: Factor name.
        max_offset_rad: Offset of each joint at full dose, either way.
    """

    kind = "spatial"
    channel = "state"

    def __init__(self, *, name: str, max_offset_rad: float) -> None:
        super().__init__(name=name)
        self.max_offset_rad = self.number("max_offset_rad", max_offset_rad, 0, 1)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        nominal = np.array(facts.robot_qpos)
        limits = np.array(facts.robot_limits).reshape(-1, 2)
        doses = np.array([signed_band(rng, split) for _ in nominal])
        full = np.clip(nominal + doses * self.max_offset_rad, limits[:, 0], limits[:, 1]) - nominal
        return {"offset_rad": (severity * full).tolist()}

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        del world
        return None if facts.robot_qpos else "the scene has no arm whose joints could be moved"

    def apply(self, initial: InitialState, draw: Draw) -> None:
        initial.robot_qpos = initial.robot_qpos + np.array(draw["offset_rad"])

    def range_text(self, severity: float) -> str:
        return f"initial joints ±{severity * self.max_offset_rad:.3f} rad"
