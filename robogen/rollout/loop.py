"""The episode loop: ask the policy, execute, repeat.

All slots of a worker ask in the same call, padded to the study's fixed batch size; then each
executes its chunk up to the next query. A slot whose episode ended takes the next one before the
next call.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from robogen.errors import PolicyError, PolicyUnavailable, RobogenError
from robogen.policies.base import Policy, RowsFailed
from robogen.rollout.episode import Episode, Outcome
from robogen.specs import Observation


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Decisions take simulated time: the world goes on while the policy thinks."""

    latency_s: float | None = None
    """Declared; None: as each call took."""


class Source(Protocol):
    """Hands out the next episode for a free slot, or None when there is none right now."""

    def __call__(self, slot: int) -> Episode | None:
        """The next episode for this slot."""


def run(
    policy: Policy,
    *,
    slots: int,
    batch: int,
    source: Source,
    sink: Callable[[Outcome], None],
    pulse: Callable[[], None] = lambda: None,
    timing: Timing | None = None,
) -> None:
    """Run episodes until the source has no more and all slots are idle.

    Args:
        policy: Answers queries, one row per slot.
        slots: Episodes in flight.
        batch: Fixed batch size that calls are padded to; at least ``slots``.
        source: Next episode for a slot.
        sink: Gets each outcome.
        pulse: Called once per round, for a watchdog.
        timing: What a decision costs; None: the world waits for it.
    """
    live: dict[int, Episode] = {}
    while True:
        for slot in range(slots):
            while slot not in live and (episode := source(slot)) is not None:
                if _start(policy, slot, episode, sink):
                    live[slot] = episode
        if not live:
            return
        pulse()
        _round(policy, live, batch, sink, timing)


def _start(policy: Policy, slot: int, episode: Episode, sink: Callable[[Outcome], None]) -> bool:
    """Start an episode in a slot; False when it ended before its first step."""
    try:
        episode.start()
        policy.reset([slot], [episode.task.seed.integer("policy", episode.task.repeat)])
    except Exception as error:
        _end(episode, error, sink, kind="setup")
        return False
    return True


def _round(
    policy: Policy,
    live: dict[int, Episode],
    batch: int,
    sink: Callable[[Outcome], None],
    timing: Timing | None,
) -> None:
    """One query of all live slots, and the execution of its answers."""
    rows, observations = [], []
    for slot in sorted(live):
        try:
            observations.append(live[slot].observe())
            rows.append(slot)
        except Exception as error:
            _end(live.pop(slot), error, sink, kind="observation")
    answers = _ask(policy, rows, observations, live, batch, sink)
    for slot, chunk in answers.items():
        episode = live[slot]
        outcome = None
        try:
            actions = episode.check(chunk)[: policy.spec.action.execute]
            over = timing is not None and episode.wait(timing.latency_s)
            if over or any(episode.execute(action) for action in actions):
                outcome = episode.finish()
        except Exception as error:
            _end(live.pop(slot), error, sink, kind="policy")
            continue
        if outcome is not None:
            del live[slot]
            sink(outcome)  # out here: a full disk is not this episode's fault


def _ask(
    policy: Policy,
    rows: Sequence[int],
    observations: Sequence[Observation],
    live: dict[int, Episode],
    batch: int,
    sink: Callable[[Outcome], None],
) -> dict[int, NDArray[np.float64]]:
    """Chunks by slot. When a shared call fails, each row asks alone and only the culprit ends."""
    if not rows:
        return {}
    clock = time.perf_counter()
    try:
        chunks = padded(policy, rows, observations, batch)
        latency = time.perf_counter() - clock
        for slot in rows:
            live[slot].answered(latency, len(rows))
        return dict(zip(rows, chunks, strict=True))
    except PolicyUnavailable:
        raise
    except RowsFailed as failed:
        latency = time.perf_counter() - clock
        for position in failed.answers:
            live[rows[position]].answered(latency, len(rows))
        for position, error in failed.failures.items():
            _end(live.pop(rows[position]), error, sink, kind="policy")
        return {rows[position]: chunk for position, chunk in failed.answers.items()}
    except Exception as error:
        if len(rows) == 1:
            _end(live.pop(rows[0]), error, sink, kind="policy")
            return {}
        answers: dict[int, NDArray[np.float64]] = {}
        for slot, observation in zip(rows, observations, strict=True):
            answers |= _ask(policy, [slot], [observation], live, batch, sink)
        return answers


def padded(
    policy: Policy, rows: Sequence[int], observations: Sequence[Observation], batch: int
) -> NDArray[np.float64]:
    """Answers (len(rows), chunk, dim); a policy that pads is called with ``batch`` rows.

    Raises:
        PolicyError: The policy answered another number of rows than it was asked.
    """
    missing = batch - len(observations) if policy.pad else 0
    filled = [*observations, *([observations[-1]] * missing)]
    numbers = [*rows, *([-1] * missing)]
    answer = np.asarray(policy.act(numbers, filled), dtype=np.float64)
    if answer.shape[:1] != (len(filled),):
        raise PolicyError(
            f"The policy was asked for {len(filled)} rows and returned an array of shape "
            f"{answer.shape}. act must return (rows, chunk, dim)."
        )
    return answer[: len(observations)]


def _reason(error: Exception) -> str:
    if isinstance(error, RobogenError):
        return str(error)
    return f"{error!r}; its traceback is in the telemetry table of records.sqlite"


def _end(episode: Episode, error: Exception, sink: Callable[[Outcome], None], *, kind: str) -> None:
    """Finish an episode unscored; a bug's traceback goes to telemetry."""
    episode.fail(kind, _reason(error))
    sink(episode.finish(traceback="".join(traceback.format_exception(error))))
