"""One word per comparison, and never one that the episodes could not have said.

The order of the questions matters:

1. Did the change reach the policy at all? If not, there is no comparison.
2. Is there a significant change after correction? Then it is named, whatever the sample size.
3. Could there have been one? With no nominal success there is nothing to lose: the nominal is at
   the floor. (Success can still be *gained* there.)
4. Would even a loss of all nominal success have been seen at this n? If not, the cause is the
   nominal, where it cannot be told from a policy that practically never succeeds, or else n.
5. Otherwise the study could see something and saw nothing: no evidence, of at least the smallest
   detectable drop.

A nominal at the ceiling is no problem when looking for losses: it is the easiest case. It only
prevents seeing a *gain*, so ``unmeasurable: nominal at ceiling`` answers that question alone.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

from robogen.stats.paired import PairedCounts
from robogen.stats.power import smallest_detectable_drop
from robogen.stats.proportions import clopper_pearson

FLOOR_RATE = 0.05
"""A nominal whose exact interval reaches down to this rate may be one that never works."""

FLOOR_CAUSES = (
    "the camera differs from training (name, pose, size, orientation or colour order)",
    "an action convention differs (frame, rotation, scale, gripper sign or control rate)",
    "the objects are placed outside the region the policy was trained on",
    "the scene looks unlike the training data (a simulator image to a policy trained on real ones)",
    "the instruction is worded unlike the training data",
    "the horizon is too short for this policy's speed",
)
"""Likely causes of a nominal that never succeeds, most common first."""


class Verdict(Enum):
    """What can be said about a condition against the nominal."""

    BREAKS = "breaks"
    IMPROVES = "improves"
    NO_EVIDENCE = "no evidence"
    TOO_FEW = "too few episodes"
    FLOOR = "unmeasurable: nominal at floor"
    CEILING = "unmeasurable: nominal at ceiling"
    NOT_OBSERVED = "not observed by this policy"
    DID_NOT_REACH = "did not reach"


def at_floor(successes: int, n: int) -> bool:
    """Whether a nominal cannot be told from a policy that practically never succeeds."""
    return n > 0 and clopper_pearson(successes, n).low <= FLOOR_RATE and 2 * successes < n


def verdict(
    counts: PairedCounts,
    *,
    adjusted_p: float,
    phi: float = 0.0,
    tests: int = 1,
    alpha: float = 0.05,
    power: float = 0.8,
    direction: Literal["drop", "rise"] = "drop",
) -> Verdict:
    """Judge one matched comparison.

    Args:
        counts: Outcomes of the episodes scored under both conditions.
        adjusted_p: Exact McNemar p-value after Holm's correction.
        phi: Correlation of matched outcomes assumed for what n could have shown.
        tests: Number of comparisons corrected together.
        alpha: Family-wise level.
        power: Power at which a drop counts as visible.
        direction: What was asked. ``"drop"``: does the factor break the policy? ``"rise"``: does it
            help? Losses and gains that are significant are named either way.
    """
    if counts.n == 0:
        return Verdict.TOO_FEW
    if adjusted_p <= alpha:
        lost = counts.only_reference > counts.only_other
        return Verdict.BREAKS if lost else Verdict.IMPROVES
    # A rise of success is a drop of failure.
    good = counts.reference_successes
    if direction == "rise":
        good = counts.n - good
    limit = Verdict.FLOOR if direction == "drop" else Verdict.CEILING
    if good == 0:
        return limit
    visible = smallest_detectable_drop(
        counts.n, nominal_rate=good / counts.n, phi=phi, alpha=alpha / tests, power=power
    )
    if visible is not None:
        return Verdict.NO_EVIDENCE
    best = smallest_detectable_drop(
        counts.n, nominal_rate=1.0, phi=phi, alpha=alpha / tests, power=power
    )
    if best is not None and at_floor(good, counts.n):
        return limit
    return Verdict.TOO_FEW
