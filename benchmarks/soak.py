"""Hundreds of episodes against a policy server that keeps failing; none may be lost.

    python benchmarks/soak.py                    # 500 episodes, 5 % of calls fail
    python benchmarks/soak.py --episodes 50 --rate 0.2

The server speaks openpi's protocol and fails at random in every way that a server can while it is
still there: it answers with an error text, closes the connection, sends garbage, answers too late,
with NaN, or with actions of another shape. The same study against a server that never fails must
leave the same records, bit for bit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from robogen.policies import wire
from robogen.records.reader import read_records
from robogen.records.schema import to_row
from robogen.study.config import compose_study
from robogen.study.design import resolve
from robogen.study.study import run_study

FAULTS = ("text", "closed", "garbage", "late", "nan", "shape")
CHUNK, DIM = 2, 7
FILE = """
_target_: robogen.policies.openpi.OpenPIPolicy
images: {observation/image: {camera: front, size: 32}}
state: {observation/state: [eef_pos, gripper_opening]}
action: {chunk: 2, execute: 2}
"""


class FailingServer:
    """Answers from what it sees, and fails at a rate.

    Args:
        rate: Share of calls that fail.
        late_s: How late a late answer is.
        seed: Of which calls fail, and how.
    """

    def __init__(self, *, rate: float, late_s: float, seed: int = 0) -> None:
        self.rate = rate
        self.late_s = late_s
        self.calls = 0
        self.faults: Counter[str] = Counter()
        self._random = np.random.default_rng(seed)
        self._lock = threading.Lock()

    def handle(self, connection: ServerConnection) -> None:
        """One client."""
        try:
            connection.send(wire.pack({"policy": "soak"}))
            for message in connection:
                fault = self._draw()
                answer = self._answer(wire.unpack(message))
                if fault == "closed":
                    return
                if fault == "text":
                    connection.send("RuntimeError: out of memory")
                elif fault == "garbage":
                    connection.send(b"\xc1" + bytes(50))
                else:
                    if fault == "late":
                        time.sleep(self.late_s)
                        answer = np.full_like(answer, -1.0)  # would show, if anybody took it
                    elif fault == "nan":
                        answer[0, 3] = np.nan
                    elif fault == "shape":
                        answer = answer[:1]
                    connection.send(wire.pack({"actions": answer}))
        except ConnectionClosed:
            pass

    def _draw(self) -> str | None:
        with self._lock:
            self.calls += 1
            # Not the try-out before the first episode, so that every fault is an episode's.
            if self.calls == 1 or self._random.random() >= self.rate:
                return None
            fault = FAULTS[sum(self.faults.values()) % len(FAULTS)]
            self.faults[fault] += 1
            return fault

    @staticmethod
    def _answer(request: dict[str, Any]) -> np.ndarray:
        seen = request["observation/image"].astype(float).mean(axis=(0, 1)).sum() / 100.0
        where = float(request["observation/state"].sum())
        return np.sin(seen + 9.0 * where + np.arange(CHUNK * DIM)).reshape(CHUNK, DIM)

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve on the loopback interface; gives the address."""
        with serve(self.handle, "127.0.0.1", 0, compression=None, max_size=None) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
            finally:
                server.shutdown()
                thread.join()


class Soak(NamedTuple):
    """What came of it."""

    scored: int
    errored: int
    calls: int
    faults: Counter[str]
    same: bool
    """Whether the records are those of the study against a server that never fails."""
    seconds: float


def soak(folder: Path, *, episodes: int, rate: float, horizon_s: float, deadline_s: float) -> Soak:
    """Run the study against a failing server and against a good one.

    Args:
        folder: Where the runs go.
        episodes: How many.
        rate: Share of calls that fail.
        horizon_s: Length of an episode [s].
        deadline_s: For an answer.
    """
    (folder / "policies").mkdir(parents=True)
    (folder / "policies" / "soak.yaml").write_text(
        FILE + f"servers: []\ndeadline_s: {deadline_s}\n"
    )
    begin = time.monotonic()
    rows = {}
    bad = FailingServer(rate=rate, late_s=2.0 * deadline_s)
    for name, server in (("bad", bad), ("good", FailingServer(rate=0.0, late_s=0.0))):
        with server.running() as url:
            words = [
                "scene=push", f"scene.push.horizon_s={horizon_s}", "suite=null", "policy=soak",
                f"policy.soak.servers=[{url},{url}]", "policy.soak.backoff_s=0.02", "repeats=0",
                f"episodes={episodes}", "workers=0", "slots=4", "frames=0", "videos=0",
            ]  # fmt: skip
            run_study(resolve(compose_study(words), (folder,)), folder / name)
        records = read_records(folder / name, actions=True)
        rows[name] = [to_row(replace(record, policy="")) for record in records]
        if name == "bad":
            status = Counter(record.status for record in records)
    return Soak(
        scored=status["scored"],
        errored=status["errored"],
        calls=bad.calls,
        faults=bad.faults,
        same=rows["bad"] == rows["good"],
        seconds=time.monotonic() - begin,
    )


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--horizon-s", type=float, default=2.0)
    parser.add_argument("--deadline-s", type=float, default=1.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = soak(
            Path(folder) / "soak",
            episodes=asked.episodes,
            rate=asked.rate,
            horizon_s=asked.horizon_s,
            deadline_s=asked.deadline_s,
        )
    kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(found.faults.items()))
    failed = sum(found.faults.values())
    print(
        f"{found.scored} of {asked.episodes} episodes scored, {found.errored} errored; {failed} of "
        f"{found.calls} calls failed ({kinds}); records equal to those of a server that never "
        f"fails: {found.same}; {found.seconds:.0f} s"
    )
    return 0 if found.scored == asked.episodes and found.same else 1


if __name__ == "__main__":
    sys.exit(main())
