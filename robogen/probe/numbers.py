"""Statistics a policy normalises with against those of the data, and actions there and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robogen.conventions import from_scene
from robogen.policies.base import Normalization, Policy
from robogen.probe.agreement import Verdict
from robogen.probe.samples import Data, poses
from robogen.specs import ActionSpec

Floats = NDArray[np.float64]

FAR = 3.0
"""Standard deviations between two means that are suspicious."""
RATIO = 3.0
"""Factor between two spreads that is suspicious."""
OUTSIDE = 0.05
"""Share of the data outside a policy's range that is suspicious."""
TOLERANCE = 1e-2
"""Change of an action by its round trip, as a share of that dimension's range."""
_LEAST = 1e-4
"""A spread below this is none (metres, radians)."""


@dataclass(frozen=True, kw_only=True)
class NumberCheck:
    """One vector, checked."""

    what: str
    """``state statistics``, ``action statistics`` or ``action round trip``."""
    verdict: Verdict
    note: str


def check_numbers(policy: Policy, data: Data) -> list[NumberCheck]:
    """Statistics of state and action, and the round trip of demonstrated actions.

    Args:
        policy: The policy.
        data: Demonstrations with every state part that the policy reads.
    """
    found: list[NumberCheck] = []
    parts = policy.spec.observation.state
    own = policy.normalization()
    if parts:
        names = [f"{part}[{i}]" if data.sizes[part] > 1 else part
                 for part in parts for i in range(data.sizes[part])]  # fmt: skip
        found.append(_compared("state statistics", own.get("state"), data.all_state(parts), names))
    actions = policy_actions(data, policy.spec.action)
    if actions is not None:
        names = [f"action {i + 1}" for i in range(actions.shape[1])]
        if "action" in own:
            found.append(_compared("action statistics", own["action"], actions, names))
        found.append(_round_trip(policy, actions))
    return found


def policy_actions(data: Data, spec: ActionSpec) -> Floats | None:
    """Demonstrated actions (n, dim) as this policy would say them; None where modes differ."""
    if data.action.mode != spec.mode:
        return None
    units = np.ones(len(data.episodes[0].actions[0]))
    if spec.mode == "delta_eef":
        units[:3] = data.action.scale_position / spec.scale_position
    if spec.mode in ("delta_eef", "delta_joint"):
        units[3 if spec.mode == "delta_eef" else 0 : -1] = (
            data.action.scale_rotation / spec.scale_rotation
        )
    rows = []
    for episode in data.episodes:
        _, rotation = poses(episode.state)
        if spec.frame == "tool" and rotation is None:
            return None
        for step, action in enumerate(episode.actions):
            turn = np.eye(3) if rotation is None else rotation[step]
            scaled = action * units
            rows.append(from_scene(scaled, spec, lambda turn=turn: turn))  # type: ignore[misc]
    return np.stack(rows)


def _compared(
    what: str, own: Normalization | None, values: Floats, names: Sequence[str]
) -> NumberCheck:
    if own is None:
        return NumberCheck(
            what=what, verdict=Verdict.CANNOT_TELL, note="the policy does not show its statistics"
        )
    if own.kind == "identity":
        return NumberCheck(
            what=what,
            verdict=Verdict.SUSPICIOUS,
            note="the policy does not normalise at all (identity)",
        )
    sizes = {len(v) for v in (own.mean, own.std, own.low, own.high) if v is not None}
    if sizes != {values.shape[1]}:
        return NumberCheck(
            what=what,
            verdict=Verdict.SUSPICIOUS,
            note=f"the policy's are of {sorted(sizes)} numbers, the data's of {values.shape[1]}",
        )
    problems = _moments(own, values, names) if own.mean is not None else []
    problems += _range(own, values, names) if own.low is not None else []
    if problems:
        more = f", and {len(problems) - 3} more" if len(problems) > 3 else ""
        return NumberCheck(
            what=what, verdict=Verdict.SUSPICIOUS, note=f"{'; '.join(problems[:3])}{more}"
        )
    return NumberCheck(what=what, verdict=Verdict.OK, note="as the data's own")


def _moments(own: Normalization, values: Floats, names: Sequence[str]) -> list[str]:
    assert own.mean is not None
    assert own.std is not None
    mean, std = values.mean(axis=0), values.std(axis=0)
    found = []
    for i, name in enumerate(names):
        # What hardly varies is left unscaled by most trainers, whatever its mean.
        theirs, ours = float(own.std[i]), float(std[i])
        scale = max(theirs if theirs < 1.0 or ours > _LEAST else ours, ours, _LEAST)
        away = abs(float(own.mean[i] - mean[i])) / scale
        moving = ours > _LEAST and theirs > _LEAST
        ratio = max(theirs / ours, ours / theirs) if moving else 1.0
        if away > FAR or ratio > RATIO:
            found.append(
                f"{name}: policy {own.mean[i]:.3g} ± {theirs:.3g}, data {mean[i]:.3g} ± {ours:.3g}"
            )
    return found


def _range(own: Normalization, values: Floats, names: Sequence[str]) -> list[str]:
    assert own.low is not None
    assert own.high is not None
    found = []
    for i, name in enumerate(names):
        low, high = float(own.low[i]), float(own.high[i])
        margin = 0.1 * max(high - low, _LEAST)
        column = values[:, i]
        outside = float(np.mean((column < low - margin) | (column > high + margin)))
        span = float(np.quantile(column, 0.99) - np.quantile(column, 0.01))
        wide = span > _LEAST and (high - low) > RATIO**2 * span
        if outside > OUTSIDE or wide:
            found.append(
                f"{name}: policy {low:.3g} to {high:.3g}, data {column.min():.3g} to "
                f"{column.max():.3g}"
            )
    return found


def _round_trip(policy: Policy, actions: Floats) -> NumberCheck:
    what = "action round trip"
    back = policy.round_trip(actions)
    if back is None:
        return NumberCheck(
            what=what, verdict=Verdict.CANNOT_TELL, note="the policy offers no way to try it"
        )
    span = np.maximum(np.ptp(actions, axis=0), _LEAST)
    change = np.abs(np.asarray(back) - actions).max(axis=0) / span
    wrong = np.flatnonzero(~(change <= TOLERANCE))
    if len(wrong):
        told = ", ".join(f"{i + 1} (by {100 * change[i]:.0f} %)" for i in wrong[:4])
        return NumberCheck(
            what=what,
            verdict=Verdict.SUSPICIOUS,
            note=f"demonstrated actions do not survive normalisation in dimensions {told}",
        )
    return NumberCheck(
        what=what, verdict=Verdict.OK, note=f"all {len(actions)} actions come back as they were"
    )
