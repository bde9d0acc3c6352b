"""Worker processes seen from the parent: started, fed, watched, replaced."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from robogen.errors import RobogenError
from robogen.mj.render import choose_backend
from robogen.records.schema import EpisodeKey
from robogen.rollout.episode import Outcome
from robogen.study.design import Design

_POLL_S = 0.5
_STARTUP_S = 180.0
"""How long a worker may take to import, build scenes and load its policy, at least."""
_STILLBORN = 3
"""So many workers in a row that do not come up mean that none will."""


@dataclass
class _Worker:
    number: int
    process: subprocess.Popen[bytes]
    connection: Connection
    queued: deque[EpisodeKey] = field(default_factory=deque)
    """Sent, not begun."""
    running: list[EpisodeKey] = field(default_factory=list)
    heard: float = field(default_factory=time.monotonic)
    busy: bool = False
    """Whether it has episodes in flight: an idle worker has no deadline."""
    solo: bool = False

    @property
    def load(self) -> int:
        return len(self.queued) + len(self.running)


class Pool:
    """Runs episodes on worker processes.

    A worker that dies or says nothing for the deadline is replaced. What it was running is tried
    again one episode at a time, and only an episode that fails alone is reported as lost; what it
    had merely been sent goes back to the queue.

    Args:
        design: The study; sent to every worker.
        workers: Number of processes.
        sink: Gets each outcome.
        lost: Gets an episode that took its worker down on its own, and why.
        tick: Called at least twice a second.
    """

    def __init__(
        self,
        design: Design,
        workers: int,
        *,
        sink: Callable[[Outcome], None],
        lost: Callable[[EpisodeKey, str, str], None],
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._design = design
        self._count = workers
        self._sink = sink
        self._lost = lost
        self._tick = tick
        self._workers: list[_Worker] = []
        self._queue: deque[EpisodeKey] = deque()
        self._suspects: deque[EpisodeKey] = deque()
        self._stillborn = 0
        """Workers lost before they began an episode, since the last one that did."""

    def run(self, keys: Iterable[EpisodeKey]) -> None:
        """Run episodes to the end; raises what a worker could not set up."""
        self._queue = deque(keys)
        try:
            for number in range(min(self._count, max(1, len(self._queue)))):
                self._workers.append(self._start(number))
            while self._queue or self._suspects or any(w.load for w in self._workers):
                self._feed()
                self._listen()
                self._watch()
                self._tick()
        finally:
            self.close()

    # -- processes -------------------------------------------------------------------------------

    def _start(self, number: int) -> _Worker:
        ours, theirs = Pipe(duplex=True)
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "LP_NUM_THREADS": "0",
            "MUJOCO_GL": choose_backend(),
            **_egl_device(number),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "robogen.study.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=2,  # what a policy prints must not end up among the results
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the parent alone
        )
        theirs.close()
        _pin(process.pid, number)
        ours.send((self._design, number))
        return _Worker(number=number, process=process, connection=ours)

    def _replace(self, worker: _Worker, why: str, kind: str) -> None:
        """Kill a worker, sort out its episodes, start another in its place."""
        _kill(worker)
        if not worker.running:  # it never got as far as an episode
            self._stillborn += 1
        if self._stillborn >= _STILLBORN:
            raise RobogenError(
                f"Worker {worker.number} did not start: {why}. What it printed is above; 'robogen "
                "doctor' checks this machine. Nothing recorded is lost."
            )
        if worker.solo and worker.running:
            for key in worker.running:
                self._lost(key, kind, why)
        else:
            self._suspects.extend(worker.running)
        self._queue.extendleft(reversed(worker.queued))
        self._workers[self._workers.index(worker)] = self._start(worker.number)

    def close(self) -> None:
        """Stop every worker."""
        for worker in self._workers:
            with contextlib.suppress(OSError):
                worker.connection.send(("stop",))
        deadline = time.monotonic() + 5.0
        for worker in self._workers:
            if worker.load:
                _kill(worker)
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.1, deadline - time.monotonic()))
            _kill(worker)
        self._workers.clear()

    # -- episodes --------------------------------------------------------------------------------

    def _feed(self) -> None:
        ahead = 2 * self._design.config.slots
        for worker in self._workers:
            if worker.solo:
                continue
            room = min(ahead - worker.load, len(self._queue))
            if room > 0:
                self._send(worker, [self._queue.popleft() for _ in range(room)])
        if self._queue:
            return
        for worker in self._workers:
            if self._suspects and worker.load == 0 and not worker.solo:
                worker.solo = True
                self._send(worker, [self._suspects.popleft()])

    def _send(self, worker: _Worker, keys: list[EpisodeKey]) -> None:
        worker.queued.extend(keys)
        if not worker.busy:
            worker.busy = True
            worker.heard = max(worker.heard, time.monotonic())
        with contextlib.suppress(OSError):  # a dead worker is noticed by _watch
            worker.connection.send(("run", keys))

    def _listen(self) -> None:
        connections = {worker.connection: worker for worker in self._workers}
        for ready in wait(list(connections), timeout=_POLL_S):
            worker = connections[ready]  # type: ignore[index]
            try:
                while worker.connection.poll():
                    self._hear(worker, worker.connection.recv())
            except (EOFError, ConnectionResetError):
                worker.process.wait(10)

    def _hear(self, worker: _Worker, message: tuple[Any, ...]) -> None:
        worker.heard = time.monotonic()
        what = message[0]
        if what in ("started", "outcome"):
            self._stillborn = 0
        if what == "started":
            worker.queued.remove(message[1])
            worker.running.append(message[1])
        elif what == "outcome":
            outcome: Outcome = message[1]
            worker.running.remove(outcome.record.key)
            if not worker.load:
                worker.busy = worker.solo = False
            self._sink(outcome)
        elif what == "fatal":
            if message[1]:
                raise RobogenError(message[1])
            raise RuntimeError(f"worker {worker.number} failed:\n{message[2]}")

    def _watch(self) -> None:
        for worker in list(self._workers):
            code = worker.process.poll()
            if code is not None:
                self._replace(
                    worker,
                    f"the worker process died (exit code {code}); what it printed is on standard "
                    "error. retry_errors=true runs the episode again",
                    "crash",
                )
            elif worker.busy and time.monotonic() - worker.heard > self._allowed(worker):
                self._replace(
                    worker,
                    f"no sign of life for {self._allowed(worker):g} s; raise deadline_s "
                    "if the policy is merely slow, and run again with retry_errors=true",
                    "hang",
                )

    def _allowed(self, worker: _Worker) -> float:
        """Seconds of silence: until an episode has begun, scenes and policies are being loaded."""
        deadline = self._design.config.deadline_s
        return deadline if worker.running else max(deadline, _STARTUP_S)


def _kill(worker: _Worker) -> None:
    with contextlib.suppress(ProcessLookupError):
        worker.process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.process.wait(5)
    worker.connection.close()


def _pin(process: int, number: int) -> None:
    """One core per worker, where the platform can."""
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    with contextlib.suppress(OSError):
        os.sched_setaffinity(process, {cores[number % len(cores)]})


def _egl_device(number: int) -> dict[str, str]:
    """Spread workers over the visible GPUs' EGL devices."""
    visible = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d.strip()]
    if len(visible) < 2 or "MUJOCO_EGL_DEVICE_ID" in os.environ:
        return {}
    return {"MUJOCO_EGL_DEVICE_ID": str(number % len(visible))}
