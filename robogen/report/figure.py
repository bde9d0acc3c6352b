"""Geometry of the degradation plot, in per cent of its width.

The plot is a list of rows, each a small SVG between a label and numbers that stay text. So it
reflows on a narrow screen, and nothing in it shrinks below the size of the page's type.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from robogen.report.words import factor_name, points
from robogen.stats import ConditionSummary, GroupSummary, Verdict

SHAPES: dict[Verdict, str] = {
    Verdict.BREAKS: "M0-6.5 6.5 0 0 6.5-6.5 0Z",
    Verdict.IMPROVES: "M0-6 6 5H-6Z",
    Verdict.NO_EVIDENCE: "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0Z",
    Verdict.TOO_FEW: "M-4.2-4.2H4.2V4.2H-4.2Z",
    Verdict.FLOOR: "M0 6 6-5H-6Z",
    Verdict.CEILING: "M0-6 6 5H-6Z",
    Verdict.NOT_OBSERVED: "M0-6V6",
    Verdict.DID_NOT_REACH: "M-5-5 5 5M5-5-5 5",
}
"""Outline of each verdict's mark around the origin [px]."""

KINDS: dict[Verdict, str] = {
    Verdict.BREAKS: "breaks",
    Verdict.IMPROVES: "improves",
    Verdict.NO_EVIDENCE: "none",
    Verdict.TOO_FEW: "few",
    Verdict.FLOOR: "limit",
    Verdict.CEILING: "limit",
    Verdict.NOT_OBSERVED: "unseen",
    Verdict.DID_NOT_REACH: "error",
}
"""CSS class of each verdict."""


class Row(NamedTuple):
    """One condition; positions in per cent of the plot's width, None where nothing is drawn."""

    item: ConditionSummary
    label: str
    kind: str
    shape: str
    value: float | None
    low: float | None
    high: float | None


class Tick(NamedTuple):
    """A labelled place on the axis."""

    at: float
    label: str

    @property
    def anchor(self) -> str:
        """Alignment that keeps the label inside the plot."""
        return "start" if self.at < 3 else "end" if self.at > 97 else "middle"


class Forest(NamedTuple):
    """The degradation plot of one group."""

    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    zero: float
    unseen: float | None
    """Left end of the band of losses that could have gone unseen; it ends at zero."""


def forest(group: GroupSummary) -> Forest | None:
    """The plot of a group; None when no change was measured."""
    changes = [item.degradation for item in group.conditions if item.degradation is not None]
    if not changes:
        return None
    step = 0.2
    low = min(-step, math.floor(min(change.low for change in changes) / 0.1 - 1e-9) * 0.1)
    high = max(0.1, math.ceil(max(change.high for change in changes) / 0.1 + 1e-9) * 0.1)
    low, high = max(low, -1.0), min(high, 1.0)

    def place(value: float) -> float:
        return round(100 * (min(max(value, low), high) - low) / (high - low), 2)

    rows = []
    for item in group.conditions:
        assert item.verdict is not None
        change = item.degradation
        rows.append(
            Row(
                item,
                factor_name(item.condition),
                KINDS[item.verdict],
                SHAPES[item.verdict],
                None if change is None else place(change.value),
                None if change is None else place(change.low),
                None if change is None else place(change.high),
            )
        )
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = tuple(
        Tick(
            place(index * step),
            points(index * step),
        )
        for index in range(first, last + 1)
    )
    drop = group.smallest_drop
    return Forest(tuple(rows), ticks, place(0.0), None if drop is None else place(-drop))
