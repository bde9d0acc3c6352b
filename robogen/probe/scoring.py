"""A policy's answers on demonstrated moments, scored under one reading at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from robogen.errors import PolicyError
from robogen.policies.base import Policy, RowsFailed
from robogen.probe.candidates import Reading, commands, observe, rearranged
from robogen.probe.moments import AHEAD, Sample
from robogen.rollout.loop import padded
from robogen.specs import ActionSpec

Floats = NDArray[np.float64]

LEVEL = 0.005
"""Two-sided level at which a candidate must be better over episodes. It is not corrected for the
number of candidates: what keeps false alarms away as well is that the gain must be material. How
often they happen is measured in docs/results/probe.md."""
FOLLOWS = 0.5
"""Least correlation of predicted with demonstrated commands at which their scale is judged."""
SCALE_OFF = 1.4
"""Factor between predicted and demonstrated commands that is suspicious there."""
SCALE_FAR_OFF = 4.0
"""The same where predictions hardly follow."""


_STILL = 0.02
"""A command whose spread is smaller than this, in its own unit, says nothing."""


class Score(NamedTuple):
    """How well a policy agrees under one reading."""

    agreement: float
    """1: exactly what was demonstrated; 0: no better than always the median command."""
    error: Floats
    """By moment, (n,), in units of the best constant's mean error."""


class Scale(NamedTuple):
    """Slope of demonstrated on predicted commands through zero, with its interval over episodes.

    A trained policy is calibrated: where it is unsure its commands are small, and what was
    demonstrated is on average no larger. So the slope is 1 however well it predicts, unless its
    numbers have another unit.
    """

    slope: float
    low: float
    high: float
    follows: float
    """Correlation of predicted with demonstrated commands."""

    @property
    def wrong(self) -> bool:
        """Whether the unit must be another one."""
        if self.follows >= FOLLOWS:
            return self.low > SCALE_OFF or self.high < 1.0 / SCALE_OFF
        # Predictions that follow little may be badly calibrated, but not by as much as this.
        return self.slope > 0.0 and self.high < 1.0 / SCALE_FAR_OFF


class Judge:
    """Scores readings against one set of moments."""

    def __init__(
        self, policy: Policy, samples: Sequence[Sample], data: ActionSpec, *, batch: int, draws: int
    ) -> None:
        self._policy = policy
        self._samples = list(samples)
        self._data = data
        self._batch = batch
        self._draws = 1 if policy.spec.deterministic else draws
        self._answers: dict[tuple[Any, ...], Floats] = {}
        self._commands: dict[tuple[Any, ...], Floats] = {}
        self.actions = len(self._samples[0].wanted) - 2 * AHEAD
        self._wanted = np.stack([sample.wanted for sample in self._samples])
        inside = self._wanted[:, AHEAD : AHEAD + self.actions]
        flat = inside.reshape(-1, inside.shape[-1])
        spread = flat.std(axis=0)
        self.used = spread >= _STILL
        self._null = np.abs(flat - np.median(flat, axis=0)).mean(axis=0)
        self.clusters = np.array([sample.episode for sample in self._samples])

    @property
    def still(self) -> list[int]:
        """Command dimensions that the demonstrations never move."""
        return [int(i) for i in np.flatnonzero(~self.used)]

    def answers(self, reading: Reading) -> Floats:
        """The policy's chunks (draws, n, K, dim) under a reading, asked once."""
        if reading.query not in self._answers:
            observations = [observe(sample, reading) for sample in self._samples]
            found = [self._ask(observations, draw) for draw in range(self._draws)]
            self._answers[reading.query] = np.stack(found)
        return self._answers[reading.query]

    def _ask(self, observations: Sequence[Any], draw: int) -> Floats:
        rows: list[Floats] = []
        for begin in range(0, len(observations), self._batch):
            part = observations[begin : begin + self._batch]
            numbers = list(range(len(part)))
            self._policy.reset(numbers, [1000 * draw + begin + n for n in numbers])
            try:
                answer = padded(self._policy, numbers, part, self._batch)
            except RowsFailed as failed:
                raise PolicyError(
                    f"The policy did not answer {len(failed.failures)} of {len(part)} questions "
                    f"({next(iter(failed.failures.values()))}). A probe needs every answer; mend "
                    "that and run it again."
                ) from failed
            rows += list(self._checked(answer)[:, : self.actions])
        return np.stack(rows)

    def _checked(self, answer: Floats) -> Floats:
        action = self._policy.spec.action
        if answer.shape[1:] != (action.chunk, action.dim):
            raise PolicyError(
                f"The policy returned actions of shape {answer.shape[1:]} where its spec promises "
                f"{(action.chunk, action.dim)} (chunk, dim). Correct the spec or the policy."
            )
        if not np.isfinite(answer).all():
            raise PolicyError(
                f"The policy returned {np.count_nonzero(~np.isfinite(answer))} values that are NaN "
                "or infinite on demonstrated observations. Look for a missing normalisation."
            )
        return answer

    def _read(self, reading: Reading) -> Floats:
        """Answers as canonical commands (draws, n, K, A), before axes and scales; read once."""
        key = (reading.query, reading.action)
        if key not in self._commands:
            self._commands[key] = np.stack(
                [
                    [
                        commands(chunk, sample, reading.action, self._data)
                        for chunk, sample in zip(answers, self._samples, strict=True)
                    ]
                    for answers in self.answers(reading)
                ]
            )
        return self._commands[key]

    def _demonstrated(self, reading: Reading) -> Floats:
        begin = AHEAD + reading.shift
        return self._wanted[:, begin : begin + self.actions]

    def score(self, reading: Reading) -> Score:
        """Error per moment: each moving dimension's share of the best constant's error."""
        said = rearranged(self._read(reading), reading, self._data)
        missed = np.abs(said - self._demonstrated(reading)).mean(axis=(0, 2))
        parts = missed[:, self.used] / self._null[self.used]
        # Motion and gripper count half each, however many numbers the motion has.
        motion, gripper = parts, np.zeros((len(parts), 0))
        if self.used[-1]:
            motion, gripper = parts[:, :-1], parts[:, -1:]
        error = np.mean([p.mean(axis=1) for p in (motion, gripper) if p.shape[1]], axis=0)
        return Score(agreement=1.0 - float(error.mean()), error=error)

    def scale(self, reading: Reading, part: slice) -> Scale | None:
        """How large predicted commands are beside demonstrated ones; None where these rest."""
        used = np.flatnonzero(self.used[part]) + (part.start or 0)
        if not len(used):
            return None
        wanted = self._demonstrated(reading)[..., used]
        said = rearranged(self._read(reading)[0], reading, self._data, clip=False)[..., used]
        unit = wanted.std(axis=(0, 1))
        x, y = said / unit, wanted / unit
        names = np.unique(self.clusters)
        over = np.array([(x[self.clusters == c] * y[self.clusters == c]).sum() for c in names])
        under = np.array([(x[self.clusters == c] ** 2).sum() for c in names])
        left_out = (over.sum() - over) / np.maximum(under.sum() - under, 1e-12)
        n = len(names)
        error = math.sqrt((n - 1) / n * float(((left_out - left_out.mean()) ** 2).sum()))
        reach = float(stats.t.ppf(1 - LEVEL / 2, n - 1)) * error
        slope = float(over.sum() / max(under.sum(), 1e-12))
        both = np.array([x.ravel(), y.ravel()])
        follows = float(np.corrcoef(both)[0, 1]) if x.std() > 0.0 else 0.0
        return Scale(slope, slope - reach, slope + reach, follows)

    def gripper_off(self, reading: Reading) -> float:
        """Mean distance of predicted from demonstrated gripper commands, which are -1 to 1."""
        said = rearranged(self._read(reading), reading, self._data)[..., -1]
        return float(np.abs(said - self._demonstrated(reading)[..., -1]).mean())

    @property
    def gripper_held(self) -> float:
        """Mean demonstrated gripper command."""
        return float(self._wanted[..., -1].mean())

    def gain(self, before: Score, after: Score) -> tuple[float, float, float]:
        """Mean error removed, with its interval over episodes."""
        difference = before.error - after.error
        means = np.array([difference[self.clusters == c].mean() for c in np.unique(self.clusters)])
        mean = float(difference.mean())
        if len(means) < 2:
            return mean, -math.inf, math.inf
        spread = float(means.std(ddof=1)) / math.sqrt(len(means))
        reach = float(stats.t.ppf(1 - LEVEL / 2, len(means) - 1)) * max(spread, 1e-9)
        return mean, mean - reach, mean + reach
