"""Requests that come in one by one, answered by calls of a policy for several rows.

The policy works in a thread of its own, so that a long call holds up nobody who only wants to
connect. What comes in meanwhile is answered by its next call.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robogen.errors import PolicyError
from robogen.policies.base import Policy, RowsFailed
from robogen.rollout.loop import padded
from robogen.specs import Observation

ROWS = 4096
"""Episodes of clients that are remembered; the one not heard of for longest goes first."""
Chunk = NDArray[np.float64]
Answer = dict[str, Any]


class Place(NamedTuple):
    """Where a request belongs."""

    row: str
    """One client's episodes that follow each other."""
    episode: int
    seed: int
    step: int
    repeats: bool
    """Whether the same step may be asked for twice and then means the same."""


@dataclass(eq=False)
class _Job:
    """A request on its way to the policy."""

    row: int
    seed: int | None
    """Set when an episode begins with it."""
    observation: Observation
    answer: asyncio.Future[Answer]
    came: float


@dataclass(eq=False)
class _Row:
    """A row of the policy and the episode that is in it."""

    number: int
    episode: int | None = None
    step: int | None = None
    answer: asyncio.Future[Answer] | None = None


class Batches:
    """Answers requests of many clients from one policy.

    Args:
        policy: The policy; all its calls come from one thread.
        batch: Rows of a call.
        gather_s: How long a request waits for others.
        clients: How many requests can come in at the same time.
    """

    def __init__(
        self, policy: Policy, *, batch: int, gather_s: float, clients: Callable[[], int]
    ) -> None:
        self._policy = policy
        self._batch = batch
        self._gather_s = gather_s
        self._clients = clients
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        self._rows: OrderedDict[str, _Row] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, "policy")

    async def ask(self, place: Place, observation: Observation) -> Answer:
        """The answer to one request; raises what the policy raised."""
        row = self._row(place.row)
        again = row.answer if place.repeats and row.step == place.step else None
        if again is not None and row.episode == place.episode and not _failed(again):
            return await asyncio.shield(again)  # the first answer was lost on its way
        begins = row.episode != place.episode
        row.episode, row.step = place.episode, place.step
        row.answer = asyncio.get_running_loop().create_future()

        def settled(answer: asyncio.Future[Answer]) -> None:
            if _failed(answer) and begins:
                row.episode = None  # whether the policy was told is not known

        row.answer.add_done_callback(settled)
        seed = place.seed if begins else None
        job = _Job(row.number, seed, observation, row.answer, time.perf_counter())
        await self._jobs.put(job)
        return await asyncio.shield(row.answer)

    def forget(self, row: str) -> None:
        """Nobody will ask for this row again."""
        self._rows.pop(row, None)

    def _row(self, name: str) -> _Row:
        if name not in self._rows:
            if len(self._rows) >= ROWS:
                self._rows.popitem(last=False)
            taken = {row.number for row in self._rows.values()}
            self._rows[name] = _Row(next(n for n in itertools.count() if n not in taken))
        self._rows.move_to_end(name)
        return self._rows[name]

    # -- the policy ------------------------------------------------------------------------------

    async def work(self) -> None:
        """Give the policy what has come in, until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                jobs = await self._gathered()
                results = await loop.run_in_executor(self._thread, self._call, jobs)
                for job, result in zip(jobs, results, strict=True):
                    if isinstance(result, Exception):
                        job.answer.set_exception(result)
                    else:
                        job.answer.set_result(result)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _gathered(self) -> list[_Job]:
        jobs = [await self._jobs.get()]
        until = time.monotonic() + self._gather_s
        while len(jobs) < min(self._batch, max(1, self._clients())):
            if not self._jobs.empty():
                jobs.append(self._jobs.get_nowait())
                continue
            left = until - time.monotonic()
            if left <= 0:
                break
            try:
                jobs.append(await asyncio.wait_for(self._jobs.get(), left))
            except TimeoutError:
                break
        return jobs

    def _call(self, jobs: Sequence[_Job]) -> list[Answer | Exception]:
        """In the policy's thread: what each request gets."""
        begin = time.perf_counter()
        results = self._chunks(jobs)
        spent = time.perf_counter() - begin
        return [
            result
            if isinstance(result, Exception)
            else {
                "actions": result,
                "server_timing": {
                    "infer_ms": 1e3 * spent,
                    "wait_ms": 1e3 * (begin - job.came),
                    "rows": len(jobs),
                },
            }
            for job, result in zip(jobs, results, strict=True)
        ]

    def _chunks(self, jobs: Sequence[_Job]) -> list[Chunk | Exception]:
        try:
            for job in jobs:
                if job.seed is not None:
                    self._policy.reset([job.row], [job.seed])
            rows, observations = [j.row for j in jobs], [j.observation for j in jobs]
            chunks = padded(self._policy, rows, observations, self._batch)
            return [self._checked(chunk) for chunk in chunks]
        except RowsFailed as failed:
            return [
                failed.failures[n] if n in failed.failures else self._checked(failed.answers[n])
                for n in range(len(jobs))
            ]
        except Exception as error:
            if len(jobs) == 1:
                return [error]
            return [self._chunks([job])[0] for job in jobs]  # only the culprit's

    def _checked(self, chunk: Chunk) -> Chunk | Exception:
        wanted = (self._policy.spec.action.chunk, self._policy.spec.action.dim)
        if chunk.shape != wanted or not np.isfinite(chunk).all():
            return PolicyError(
                f"The policy returned actions of shape {chunk.shape} where its spec promises "
                f"{wanted}, or NaN or infinities among them."
            )
        return chunk


def _failed(answer: asyncio.Future[Answer]) -> bool:
    return answer.done() and (answer.cancelled() or answer.exception() is not None)
