# ruff: noqa: D102 - overrides are documented on the base class
"""Commands on their way to the robot: latency."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from robogen.perturbations.base import ActionFactor, ActionFilter
from robogen.specs import Draw, SceneFacts, Split


class ControlLatency(ActionFactor):
    """Executes every command a whole number of control steps late.

    Both splits share the value, which follows from severity alone.

    Args:
        name: Factor name.
        max_latency_s: Delay at full dose, rounded to control steps; above severity 0 at least one.
    """

    kind = "actuation"
    channel = "action"
    dose = "ordered"
    pooled = False

    def __init__(self, *, name: str, max_latency_s: float) -> None:
        super().__init__(name=name)
        self.max_latency_s = self.number("max_latency_s", max_latency_s, 0, 5)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        del rng, split
        steps = max(1, round(severity * self.max_latency_s * facts.control_hz))
        return {"delay_steps": steps, "delay_s": steps / facts.control_hz}

    def start(self, draw: Draw, rest: NDArray[np.float64]) -> ActionFilter:
        return Delay(draw["delay_steps"], rest)

    def range_text(self, severity: float) -> str:
        late = 1000 * severity * self.max_latency_s
        return f"commands {late:.0f} ms late, rounded to control steps, at least one"


class Delay(ActionFilter):
    """A queue of fixed length, filled with ``rest`` at first.

    Args:
        steps: Length, in control steps.
        rest: The command (dim,) that means "stay".
    """

    def __init__(self, steps: int, rest: NDArray[np.float64]) -> None:
        self._queue = deque(np.array(rest, dtype=float) for _ in range(steps))
        self._resting = steps

    def __call__(self, action: NDArray[np.float64]) -> NDArray[np.float64]:
        self._queue.append(np.array(action, dtype=float))
        self._resting = max(self._resting - 1, 0)
        return self._queue.popleft()

    def pending(self) -> list[NDArray[np.float64]]:
        return [command.copy() for command in list(self._queue)[self._resting :]]
