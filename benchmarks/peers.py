"""Speed of robogen's control step beside other MuJoCo manipulation environments.

One step is the same piece of work everywhere: 50 ms of simulated time (20 Hz control) and two
128 x 128 px RGB frames read back. Every environment is measured as it ships; what that means for
shadows, multisampling and meshes is read from its compiled model and printed beside its speed.

    python benchmarks/peers.py --install metaworld robosuite libero gauntlet
    python benchmarks/peers.py --markdown docs/results/peers.md

Each peer lives in a virtual environment of its own, ``.venv-peers/<name>``, made from the pins in
``benchmarks/peers/<name>.txt``, and is driven by ``benchmarks/peers/measure_<name>.py``. All
processes stay up for the whole run and take turns (robogen, peer, robogen, peer, ...), so both
halves of a ratio are taken seconds apart. A peer that cannot be installed or run is named with the
reason, and the others are measured all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE / "peers"
VENVS = HERE.parent / ".venv-peers"
PEERS = {
    "metaworld": "Meta-World",
    "robosuite": "robosuite",
    "libero": "LIBERO",
    "gauntlet": "gauntlet-robotics",
}
OWN = {"fast": "robogen, profile fast", "nice": "robogen, profile nice"}
START_S = 600.0
"""Longest wait for a process's first answer: a first import compiles for minutes."""


class PeerError(Exception):
    """A peer could not be installed or run; the message is one line."""


class Round(NamedTuple):
    """One turn of one environment."""

    wall: float
    """Control steps per second of wall time."""
    cpu: float
    """Control steps per second of processor time."""


def install(name: str) -> None:
    """Make a peer's environment from its pins; nothing is done when it already has them."""
    pins = SCRIPTS / f"{name}.txt"
    home = VENVS / name
    if _installed(name):
        return
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(home)],
        [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(pins)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise PeerError(_last_line(done.stderr, prefer="ERROR"))
    (home / "pins.txt").write_text(pins.read_text(encoding="utf-8"), encoding="utf-8")


def _installed(name: str) -> bool:
    """Whether an installation from exactly these pins came to its end."""
    stamp = VENVS / name / "pins.txt"
    pins = (SCRIPTS / f"{name}.txt").read_text(encoding="utf-8")
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == pins


def _last_line(text: str, *, prefer: str = "Error") -> str:
    """The line of an output that says what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if prefer in line.split(":")[0]]
    return (telling or lines or ["it ended without a word"])[-1]


class Subject:
    """One environment in a process of its own, which waits between its turns.

    Args:
        title: Name in the table.
        command: Starts the process.
        home: Folder that the process may keep configuration in.
    """

    def __init__(self, title: str, command: Sequence[str], home: Path) -> None:
        self.title = title
        self.facts: dict[str, Any] = {}
        self.rounds: list[Round] = []
        self._errors: list[str] = []
        alone = {"MUJOCO_GL": "egl", "LP_NUM_THREADS": "0", "OMP_NUM_THREADS": "1"}
        environment = alone | dict(os.environ)
        environment |= {"OPENBLAS_NUM_THREADS": "1", "LIBERO_CONFIG_PATH": str(home / "config")}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """Keep standard error from filling up, and its end for a message."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-60:], line]

    def measure(self, seconds: float) -> Round:
        """Let the environment step for a while.

        Raises:
            PeerError: It ended, or did not answer in time.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        guard = threading.Timer(START_S + 10 * seconds, process.kill)
        guard.start()
        try:
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
            answer = ""
            while not answer.startswith("{"):
                answer = process.stdout.readline()
                if not answer:
                    process.wait()
                    raise PeerError(_last_line("".join(self._errors)))
        except BrokenPipeError:
            process.wait()
            raise PeerError(_last_line("".join(self._errors))) from None
        finally:
            guard.cancel()
        self.facts = json.loads(answer)
        return Round(
            self.facts["steps"] / self.facts["wall_s"], self.facts["steps"] / self.facts["cpu_s"]
        )

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
