"""Speed of robogen's control step beside other MuJoCo manipulation environments.

One step is the same kind of work everywhere: 50 ms of simulated time (20 Hz control) and two
128 x 128 px RGB frames read back. Every environment draws as it ships; what that means for
shadows, multisampling and meshes is read from its compiled model and printed beside its speed.

    python benchmarks/peers.py --install metaworld robosuite libero gauntlet
    python benchmarks/peers.py --markdown docs/results/peers.md
    python benchmarks/peers.py --adapted --markdown docs/results/adapted-speed.md

Each peer lives in a virtual environment of its own, ``.venv-peers/<name>``, made from the pins in
``benchmarks/peers/<name>.txt``, and is driven by ``benchmarks/peers/measure_<name>.py``. All
processes stay up for the whole run and take turns (robogen, peer, robogen, peer, ...), so both
halves of a ratio are taken seconds apart. A peer that cannot be installed or run is named with the
reason, and the others are measured all the same.

With ``--adapted``, each environment that robogen adapts is measured three ways in its own Python
environment (``make env-<name>``): its own loop, and through robogen's episode drawn ``native`` and
``fast``, at its own control rate.
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
HOMES = ("LIBERO_CONFIG_PATH", "MPLCONFIGDIR")
"""Where peers look for settings of theirs: in their environment, not in the user's home."""
PATIENCE_S = 600.0
"""Longest wait for an answer beyond ten times a turn: a first import compiles for minutes."""


class PeerError(Exception):
    """A peer could not be installed or run; the message is one line."""


class Turn(NamedTuple):
    """One turn of one environment."""

    wall: float
    """Control steps per second of wall time."""
    cpu: float
    """Control steps per second of processor time."""


def install(name: str) -> None:
    """Make a peer's environment from its pins; nothing is done when it already has them."""
    pins = SCRIPTS / f"{name}.txt"
    home = VENVS / name
    if installed(name):
        return
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(home)],
        [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(pins)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise PeerError(telling_line(done.stderr, done.returncode, prefer="ERROR"))
    (home / "pins.txt").write_text(pins.read_text(encoding="utf-8"), encoding="utf-8")


def installed(name: str) -> bool:
    """Whether an installation from exactly these pins came to its end."""
    stamp = VENVS / name / "pins.txt"
    pins = (SCRIPTS / f"{name}.txt").read_text(encoding="utf-8")
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == pins


def telling_line(text: str, status: int, *, prefer: str = "Error") -> str:
    """The line of a failed process's output that says what went wrong, without machine paths."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if prefer in line.split(":")[0]]
    found = (telling or lines or [f"it ended with status {status} and no message"])[-1]
    return found.replace(f"{HERE.parent}{os.sep}", "")


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
        self.turns: list[Turn] = []
        self._errors: list[str] = []
        self._late = False
        single = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        defaults = {"MUJOCO_GL": "egl", "LP_NUM_THREADS": "0"} | single
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=defaults | os.environ | dict.fromkeys(HOMES, str(home / "settings")),
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        """Keep standard error from filling up, and its end for a message."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-100:], line]

    def measure(self, seconds: float) -> Turn:
        """Let the environment step for a while.

        Raises:
            PeerError: It ended, did not answer in time or drew nothing.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        guard = threading.Timer(PATIENCE_S + 10 * seconds, self._give_up)
        guard.start()
        answer = ""
        try:
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
            while not answer.startswith("{"):
                answer = self._process.stdout.readline()
                if not answer:
                    raise BrokenPipeError
        except BrokenPipeError:
            status = self._process.wait()
            self._listener.join(timeout=5)
            reason = telling_line("".join(self._errors), status)
            if self._late:
                reason = f"no answer within {PATIENCE_S + 10 * seconds:g} s"
            raise PeerError(reason) from None
        finally:
            guard.cancel()
        self.facts = json.loads(answer)
        if self.facts["blank"]:
            raise PeerError("its frames are blank")
        steps = self.facts["steps"]
        return Turn(steps / self.facts["wall_s"], steps / self.facts["cpu_s"])

    def _give_up(self) -> None:
        self._late = True
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


class Pair(NamedTuple):
    """An environment and robogen's own turns right before each of its turns."""

    subject: Subject
    own: list[Turn]

    def ratio(self, part: int) -> str:
        """Robogen's speed divided by this environment's: median and range over the rounds."""
        both = zip(self.own, self.subject.turns, strict=True)
        found = [own[part] / peer[part] for own, peer in both]
        return f"{statistics.median(found):.1f} ({min(found):.1f} to {max(found):.1f})"


def compare(
    own: Subject, others: Sequence[Subject], *, rounds: int, seconds: float
) -> tuple[list[Pair], dict[str, str]]:
    """Measure in turns: robogen, an environment, robogen, the next.

    Returns:
        What could be measured, and why the rest could not, by title.
    """
    pairs = [Pair(subject, []) for subject in others]
    failed: dict[str, str] = {}
    own.measure(0)
    for number in range(-1, rounds):
        for pair in list(pairs):
            subject = pair.subject
            try:
                if number < 0:  # imports, compilation and first frames
                    subject.measure(0)
                    say(f"{subject.title} is ready")
                    continue
                before = own.measure(seconds)
                subject.turns.append(subject.measure(seconds))
            except PeerError as error:
                failed[subject.title] = str(error)
                pairs.remove(pair)
                continue
            pair.own.append(before)
            own.turns.append(before)
            say(f"round {number + 1}: {subject.title} {subject.turns[-1].wall:.1f} steps/s wall")
    return pairs, failed


ADAPTED = ("metaworld", "robosuite", "libero", "aloha")
MODES = ("own", "native", "fast")


def measure_adapted(
    families: Sequence[str], *, rounds: int, seconds: float
) -> tuple[dict[str, dict[str, Subject]], dict[str, str]]:
    """Own loop, native, fast, own loop, ...: one family after the other.

    Returns:
        Subjects by family and mode, and why the rest could not be measured.
    """
    found: dict[str, dict[str, Subject]] = {}
    failed: dict[str, str] = {}
    for family in families:
        home = HERE.parent / f".venv-{family}"
        if not (home / ".installed").is_file():
            failed[family] = f"not installed; `make env-{family}` does it"
            continue
        python = str(home / "bin" / "python")
        script = str(SCRIPTS / "measure_adapted.py")
        subjects = {mode: Subject(mode, [python, script, family, mode], home) for mode in MODES}
        try:
            for subject in subjects.values():
                subject.measure(0)
            for number in range(rounds):
                for mode, subject in subjects.items():
                    subject.turns.append(subject.measure(seconds))
                    speed = subject.turns[-1].wall
                    say(f"{family}, round {number + 1}: {mode} {speed:.1f} steps/s wall")
            found[family] = subjects
        except PeerError as error:
            failed[family] = str(error)
        finally:
            for subject in subjects.values():
                subject.close()
    return found, failed


def adapted_markdown(
    found: dict[str, dict[str, Subject]], missing: dict[str, str], *, rounds: int, seconds: float
) -> str:
    """The report of ``--adapted``."""
    command = shlex.join(["python", "benchmarks/peers.py", *sys.argv[1:]])
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    lines = [
        "# Other people's environments: their own loop beside robogen's",
        "",
        f"Written by `{command}`.",
        "",
        "One step is one control step of the environment and what a policy is shown: two frames of",
        "128 × 128 px (gym-aloha one, where its own loop draws three of 640 × 480 px whatever is",
        "asked). `native` is drawn with the environment's own shadows, samples and geom groups,",
        "`fast` without shadows and multisampling. robogen draws only when a policy asks; here it",
        "asks at every step, so what chunks of actions save comes on top.",
        "",
        f"- Machine: {processor()}, {os.cpu_count()} cores; load average at the end {load}",
        f"- {rounds} round(s) with turns of {seconds:g} s in the order own, native, fast; medians,"
        " of the ratios also the range",
        "",
        "| scene | own loop, steps/s | native, steps/s | fast, steps/s | native ÷ own |"
        " fast ÷ own | MuJoCo |",
        "|---|---|---|---|---|---|---|",
    ]
    for subjects in found.values():
        walls = {mode: [turn.wall for turn in s.turns] for mode, s in subjects.items()}

        def ratio(mode: str, walls: dict[str, list[float]] = walls) -> str:
            values = [a / b for a, b in zip(walls[mode], walls["own"], strict=True)]
            return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"

        facts = subjects["own"].facts
        lines.append(
            row(
                facts["task"],
                *(f"{statistics.median(walls[mode]):.1f}" for mode in MODES),
                ratio("native"),
                ratio("fast"),
                facts["versions"]["mujoco"],
            )
        )
    if missing:
        lines += ["", "Not measured:", "", *(f"- {who}: {why}" for who, why in missing.items())]
    return "\n".join(lines) + "\n"


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def processor() -> str:
    """Model name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def markdown(
    own: Subject, pairs: Sequence[Pair], missing: dict[str, str], *, rounds: int, seconds: float
) -> str:
    """The report: speeds, what a step consisted of, what was not measured."""
    command = shlex.join(["python", "benchmarks/peers.py", *sys.argv[1:]])
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    gl = own.facts["gl"]
    subjects = [own, *(pair.subject for pair in pairs)]
    lines = [
        "# Speed beside other MuJoCo manipulation environments",
        "",
        f"Written by `{command}`.",
        "",
        "One step is 50 ms of simulated time and two RGB frames read back, on one core, by one",
        "process. Every environment draws as it ships: robots, meshes, scenes and renderer",
        "settings differ. The second table says how, and whose control rate was set to 20 Hz.",
        "The ratios compare what a step costs, not what the environments are for. Profile fast is",
        "what robogen's evaluations run with unless told otherwise; profile nice adds shadows and",
        "multisampling, as some of the others have.",
        "",
        f"- Machine: {processor()}, {os.cpu_count()} cores; load average at the end {load};"
        f" process priority nice {os.nice(0)}",
        f"- OpenGL: {gl['renderer']} ({gl['backend']})",
        f"- Python {platform.python_version()}, {rounds} round(s) with turns of {seconds:g} s"
        " (robogen, an environment, robogen, the next environment); medians over the"
        " rounds, of the ratios also the range",
        "- CPU: steps per second of processor time, which other jobs on the machine disturb less"
        " than wall time. It leaves out work done by a GPU.",
        "",
        "| environment | task | steps/s, wall | steps/s, CPU | robogen fast ÷ it, wall |"
        " robogen fast ÷ it, CPU |",
        "|---|---|---|---|---|---|",
    ]
    ratios = [["1", "1"], *([pair.ratio(0), pair.ratio(1)] for pair in pairs)]
    for subject, ratio in zip(subjects, ratios, strict=True):
        speeds = [f"{statistics.median(turn[i] for turn in subject.turns):.1f}" for i in (0, 1)]
        lines.append(row(subject.title, subject.facts["task"], *speeds, *ratio))
    lines += [
        "",
        "What one step consisted of, read from each environment while it ran:",
        "",
        "| environment | simulated | physics steps | frames | shadow map | samples per pixel |"
        " mesh faces drawn | reflecting geoms | versions |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [row(subject.title, *contents(subject.facts)) for subject in subjects]
    if missing:
        lines += ["", "Not measured:", "", *(f"- {who}: {why}" for who, why in missing.items())]
    return "\n".join(lines) + "\n"


def row(*cells: str) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def contents(facts: dict[str, Any]) -> list[str]:
    """Cells that say what a step of an environment consisted of."""
    height, width, *_ = facts["frames"][0]
    physics = f"{facts['simulated_s'] / facts['timestep']:.0f} of {1e3 * facts['timestep']:g} ms"
    changed = f" ({facts['changed']})" if "changed" in facts else ""
    shadow = "none"
    if facts["shadow_map"]:
        lights = facts["shadow_lights"]
        shadow = f"{facts['shadow_map']} px, {lights} light{'s' if lights > 1 else ''}"
    return [
        f"{1e3 * facts['simulated_s']:.0f} ms",
        physics + changed,
        f"{len(facts['frames'])} of {width} × {height} px",
        shadow,
        str(max(facts["samples"], 1)),
        f"{facts['mesh_faces']:,}",
        str(facts["reflecting"]),
        ", ".join(f"{name} {number}" for name, number in facts["versions"].items()),
    ]


def main() -> int:
    """Install or measure, as asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    names = list(PEERS)
    parser.add_argument("--install", nargs="+", choices=names, metavar="PEER", default=[])
    parser.add_argument("--only", nargs="+", choices=names, metavar="PEER", default=names)
    parser.add_argument("--adapted", nargs="*", choices=ADAPTED, metavar="FAMILY", default=None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="length of one turn")
    parser.add_argument("--markdown", type=Path, help="write the report here")
    options = parser.parse_args()
    for name in options.install:
        try:
            install(name)
            say(f"{PEERS[name]} is installed")
        except PeerError as error:
            say(f"{PEERS[name]} cannot be installed: {error}")
    if options.install:
        return 0
    if options.adapted is not None:
        found, failed = measure_adapted(
            options.adapted or ADAPTED, rounds=options.rounds, seconds=options.seconds
        )
        sizes = {"rounds": options.rounds, "seconds": options.seconds}
        return publish(adapted_markdown(found, failed, **sizes), options.markdown)

    missing: dict[str, str] = {}
    subjects: list[Subject] = []

    def start(title: str, python: str, script: str, *arguments: str, home: Path = VENVS) -> Subject:
        command = [python, str(SCRIPTS / script), *arguments]
        subjects.append(Subject(title, command, home))
        return subjects[-1]

    try:
        own = start("robogen, profile fast", sys.executable, "measure_robogen.py", "fast")
        start("robogen, profile nice", sys.executable, "measure_robogen.py", "nice")
        for name in options.only:
            home = VENVS / name
            if installed(name):
                python = str(home / "bin" / "python")
                start(PEERS[name], python, f"measure_{name}.py", home=home)
            else:
                missing[PEERS[name]] = (
                    f"not installed; `python benchmarks/peers.py --install {name}` does it"
                )
        try:
            pairs, failed = compare(
                own, subjects[1:], rounds=options.rounds, seconds=options.seconds
            )
        except PeerError as error:
            say(f"robogen itself cannot be measured: {error}")
            return 1
        text = markdown(
            own, pairs, missing | failed, rounds=options.rounds, seconds=options.seconds
        )
    finally:
        for subject in subjects:
            subject.close()
    return publish(text, options.markdown)


def publish(text: str, file: Path | None) -> int:
    """Print a report, and write it where asked."""
    print(text)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
