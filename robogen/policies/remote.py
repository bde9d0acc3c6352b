"""Questions to policies that answer elsewhere: spread over servers, retried, given up one by one.

Transports know how to put one question to one server; this module knows what to do when that goes
wrong. A row whose question stays unanswered fails alone. Where nobody has answered anything for a
while, the policy is gone, and the study stops before it spoils more episodes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from robogen.errors import ConfigError, PolicyError, PolicyUnavailable
from robogen.policies.base import RowsFailed
from robogen.specs import ActionSpec

Endpoint = TypeVar("Endpoint")
Payload = TypeVar("Payload")
Chunk = NDArray[np.float64]

LARGEST_ANSWER = 16 * 2**20
"""Bytes of an answer that are read before it is refused; a chunk of actions has a few thousand."""
PATIENCE_S = 90.0
"""When nothing at all has been answered for so long within a call, no further tries begin: a study
takes a worker that is silent for two minutes to hang."""


class CallFailed(PolicyError):
    """One call went wrong in a way that another try may mend."""


class NoAnswer(CallFailed):
    """A call got no sign of life: it came too late, or the connection broke."""


class NobodyListens(NoAnswer):
    """Nothing accepts connections at the address."""


class _Lane(Generic[Endpoint]):
    """One server and how it has been lately."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.busy = False
        self.failures = 0
        """Calls in a row without a sign of life."""
        self.rests_until = 0.0


class _Row:
    """One question of a call."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.tries = 0
        self.due = 0.0
        self.last: object = None
        """Lane of the last try."""


class RemotePool(Generic[Endpoint, Payload]):
    """Servers that answer for one policy, each one question at a time.

    What ``exchange`` raises decides what happens next: a :class:`CallFailed` is tried again, on
    another server where there is one; a :class:`~robogen.errors.PolicyUnavailable` ends the call;
    anything else, a plain :class:`~robogen.errors.PolicyError` above all, is this row's answer.

    Args:
        endpoints: Addresses, or connections of the transport; ``str`` names them in messages. One
            may stand several times, and is then asked several things at once.
        exchange: Puts one question to one server and returns a checked chunk (chunk, dim). It
            bounds its own time. Called from several threads, never twice at once for one endpoint's
            place in the list.
        retries: Further tries of a question after its first.
        backoff_s: Wait before the second try [s]; doubles with each further one.
        longest_backoff_s: Bound of that.
        what: What is at the endpoints, for messages.

    Raises:
        ConfigError: There is no endpoint, or a number is out of range.
    """

    def __init__(
        self,
        *,
        endpoints: Sequence[Endpoint],
        exchange: Callable[[Endpoint, Payload], Chunk],
        retries: int = 4,
        backoff_s: float = 0.2,
        longest_backoff_s: float = 5.0,
        what: str = "policy server",
    ) -> None:
        if not endpoints:
            raise ConfigError(f"No address of a {what} was given. Name at least one.")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise ConfigError(f"retries must be a whole number of at least 0, got {retries!r}.")
        if not 0.0 <= backoff_s <= longest_backoff_s:
            raise ConfigError(
                f"backoff_s must lie in 0..{longest_backoff_s:g} seconds, got {backoff_s!r}."
            )
        self._lanes = [_Lane(endpoint) for endpoint in endpoints]
        self._exchange = exchange
        self._most = 1 + retries
        self._backoff = (backoff_s, longest_backoff_s)
        self._what = what
        self._silence: list[tuple[int, int]] = []
        """Call and row of every try since the last sign of life."""
        self._calls = 0

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """In the order given."""
        return tuple(lane.endpoint for lane in self._lanes)

    def ask(self, payloads: Sequence[Payload]) -> list[Chunk]:
        """Answers in the order of the questions.

        Raises:
            RowsFailed: Some questions have no answer; the others' come with it.
            PolicyUnavailable: Nobody answers any more.
        """
        self._calls += 1
        call = _Call(self, payloads)
        call.run()
        if call.unavailable is not None:
            raise call.unavailable
        if call.failures:
            raise RowsFailed(call.answers, call.failures)
        return [call.answers[number] for number in range(len(payloads))]

    def try_out(self, payload: Payload) -> None:
        """One question before the first episode, so that a wrong convention costs none.

        Raises:
            PolicyError: It found no usable answer.
            PolicyUnavailable: Nobody answers.
        """
        try:
            self.ask([payload])
        except RowsFailed as failed:
            raise PolicyError(
                f"A first question, with black frames, found no usable answer: {failed}"
            ) from failed

    def _wait_after(self, failures: int) -> float:
        first, longest = self._backoff
        return float(min(longest, first * 2.0 ** min(failures - 1, 30)))

    def _gone(self, error: NoAnswer, *, out_of_tries: bool, out_of_patience: bool) -> bool:
        """Whether silence has lasted long enough to say that nobody answers.

        One question that a server chokes on must not look like that: only silence towards several
        questions counts, or an address where nothing listens.
        """
        if any(not lane.failures for lane in self._lanes):
            return False
        quiet = len(self._silence)
        absent = isinstance(error, NobodyListens)
        if out_of_tries and absent and quiet >= min(3, self._most):
            return True
        several = len(set(self._silence)) > 1
        enough = out_of_patience or quiet >= max(3, self._most * len(self._lanes))
        return (several or absent) and enough

    def _unavailable(self, error: NoAnswer) -> PolicyUnavailable:
        names = sorted({str(lane.endpoint) for lane in self._lanes})
        return PolicyUnavailable(
            f"No {self._what} answers any more at {', '.join(names)}: {len(self._silence)} calls "
            f"in a row got no sign of life, the last one: {error} Start the server again, then "
            "give the same command to go on where the study stopped."
        )


class _Call(Generic[Endpoint, Payload]):
    """The questions of one call on their way; threads share it under ``_changed``."""

    def __init__(self, pool: RemotePool[Endpoint, Payload], payloads: Sequence[Payload]) -> None:
        self._pool = pool
        self._payloads = payloads
        self._waiting = [_Row(number) for number in range(len(payloads))]
        self._changed = threading.Condition()
        self._stopped = False
        self._heard = time.monotonic()
        self.answers: dict[int, Chunk] = {}
        self.failures: dict[int, Exception] = {}
        self.unavailable: PolicyUnavailable | None = None

    def run(self) -> None:
        """Return when every row has an answer or a failure, or nobody answers any more."""
        helpers = [
            threading.Thread(target=self._work, daemon=True)
            for _ in range(min(len(self._pool._lanes), len(self._payloads)) - 1)
        ]
        for helper in helpers:
            helper.start()
        try:
            self._work()
            for helper in helpers:
                helper.join()
        finally:  # interrupted: the others begin nothing new
            with self._changed:
                self._stopped = True
                self._changed.notify_all()

    @property
    def _over(self) -> bool:
        return self._stopped or len(self.answers) + len(self.failures) == len(self._payloads)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            row, lane = job
            chunk, error = None, None
            try:
                chunk = self._pool._exchange(lane.endpoint, self._payloads[row.number])
            except Exception as caught:
                error = caught
            with self._changed:
                lane.busy = False
                if chunk is not None:
                    self._alive(lane)
                    self.answers[row.number] = chunk
                else:
                    assert error is not None
                    self._failed(row, lane, error)
                self._changed.notify_all()

    def _next(self) -> tuple[_Row, _Lane[Endpoint]] | None:
        """A question and the server to put it to; waits for both."""
        with self._changed:
            while not self._over:
                now = time.monotonic()
                options = [
                    (max(row.due, lane.rests_until, now), row.due, lane is row.last, row, lane)
                    for row in self._waiting
                    for lane in self._pool._lanes
                    if not lane.busy and not (lane is row.last and self._others(lane))
                ]
                if not options:
                    self._changed.wait(1.0)  # an interrupted call's server may still be busy
                    continue
                begin, _, _, row, lane = min(options, key=lambda option: option[:3])
                if begin <= now:
                    self._waiting.remove(row)
                    lane.busy = True
                    row.last = lane
                    row.tries += 1
                    return row, lane
                self._changed.wait(begin - now)
            return None

    def _others(self, lane: _Lane[Endpoint]) -> bool:
        """Whether there are servers besides this one that were well when last heard of."""
        return any(not other.failures for other in self._pool._lanes if other is not lane)

    def _alive(self, lane: _Lane[Endpoint]) -> None:
        lane.failures = 0
        lane.rests_until = 0.0
        self._heard = time.monotonic()
        self._pool._silence.clear()

    def _failed(self, row: _Row, lane: _Lane[Endpoint], error: Exception) -> None:
        pool, now = self._pool, time.monotonic()
        if isinstance(error, PolicyUnavailable):  # the transport itself knows that it is over
            self.unavailable = error
            self._stopped = True
            return
        out_of_patience = now - self._heard > PATIENCE_S
        out_of_tries = row.tries >= pool._most or out_of_patience
        if isinstance(error, NoAnswer):
            lane.failures += 1
            others = self._others(lane)
            lane.rests_until = now + (
                pool._backoff[1] if others else pool._wait_after(lane.failures)
            )
            if others and isinstance(error, NobodyListens):
                row.tries -= 1  # the question was not even put
                out_of_tries = out_of_patience
            pool._silence.append((pool._calls, row.number))
            if pool._gone(error, out_of_tries=out_of_tries, out_of_patience=out_of_patience):
                self.unavailable = pool._unavailable(error)
                self._stopped = True
                return
        else:
            self._alive(lane)
            row.due = now + pool._wait_after(row.tries)
        if isinstance(error, CallFailed) and not out_of_tries:
            self._waiting.append(row)
            return
        self.failures[row.number] = _after(error, row.tries)


def _after(error: Exception, tries: int) -> Exception:
    """The failure as the episode's record tells it: how often it was tried, too."""
    if not isinstance(error, CallFailed) or tries < 2:
        return error
    told = PolicyError(f"{error} Tried {tries} times.")
    told.__cause__ = error
    return told


def gripper_decided(chunks: Chunk, action: ActionSpec) -> Chunk:
    """Chunks (..., dim) whose gripper opens or closes fully, parted at the middle of its range."""
    low = 0.0 if action.gripper_range == "unit" else -1.0
    decided = chunks.copy()
    decided[..., -1] = np.where(chunks[..., -1] > (low + 1.0) / 2.0, 1.0, low)
    return decided


def chunk_of(values: Any, action: ActionSpec, source: str) -> Chunk:
    """An answer's numbers as a chunk (chunk, dim); a single action may come without its axis.

    A senseless answer may be one of a server that was disturbed, so it is worth another try.

    Args:
        values: What the server sent.
        action: What the policy's spec promises.
        source: Who sent it, to begin a sentence with.

    Raises:
        CallFailed: Not numbers, another shape, or NaN or infinity among them.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "fiu":
            raise TypeError(f"they are of type {array.dtype}")
        chunk = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise CallFailed(
            f"{source} answered with actions that are not numbers ({error}). Look at the server's "
            "own output."
        ) from error
    wanted = (action.chunk, action.dim)
    if chunk.shape == (action.dim,) and action.chunk == 1:
        chunk = chunk[None]
    if chunk.shape != wanted:
        raise CallFailed(
            f"{source} answered with actions of shape {chunk.shape} where the policy's spec "
            f"promises {wanted} (chunk, dim). Correct chunk or dim in the policy's file, or serve "
            "the checkpoint it describes."
        )
    if not np.isfinite(chunk).all():
        raise CallFailed(
            f"{source} answered with {np.count_nonzero(~np.isfinite(chunk))} numbers that are NaN "
            "or infinite. Look for missing statistics or a diverged checkpoint."
        )
    return chunk
