"""How fast episodes run beside a bare MuJoCo loop that does the same work.

The bare loop steps the same compiled model with the same timesteps and control ramp, settles it as
a reset does, and reads back the same cameras at the same size; it does nothing else. Both take
turns in one process and the median of the pairs' ratios is printed: 1.0 means that robogen costs
nothing. CPU time is printed beside wall time, since other processes may share the machine.

    python benchmarks/rollout.py                  # ratio, scaling, cost of factors
    python benchmarks/rollout.py --memory         # 2,000 short episodes
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

os.environ.setdefault("MUJOCO_GL", "egl")
os.environ.setdefault("LP_NUM_THREADS", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import mujoco
import numpy as np
import psutil

from robogen.mj.render import gl_context, gl_info
from robogen.mj.world import RAMP_PIECES
from robogen.perturbations.engine import Perturbation
from robogen.perturbations.library import available, load_factor
from robogen.policies.zero import ZeroPolicy
from robogen.rollout.episode import Episode, EpisodeTask
from robogen.rollout.loop import run
from robogen.scenes.scene import TabletopScene, load_tabletop
from robogen.seeding import EpisodeSeed
from robogen.specs import CameraSpec, ObservationSpec, PolicySpec


class Cost(NamedTuple):
    """What something took."""

    wall: float
    cpu: float


class Staring(ZeroPolicy):
    """Does not move, but wants every camera at every step, as a policy that executes one action."""

    def __init__(self, cameras: tuple[str, ...], size: int) -> None:
        super().__init__()
        seen = tuple(CameraSpec(name=name, width=size, height=size) for name in cameras)
        observation = ObservationSpec(cameras=seen)
        self.spec = PolicySpec(observation=observation, action=self.spec.action)


def timed(work: Callable[[], object]) -> Cost:
    """Wall and CPU seconds of some work."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def episode(
    scene: TabletopScene, policy: Staring, number: int, condition: Perturbation | None = None
) -> Episode:
    """An episode of the staring policy."""
    name = scene.spec.name
    seed = EpisodeSeed(domain="evaluate", study=0, scene=name, episode=number)
    return Episode(
        scene=scene,
        perturbation=condition or Perturbation(),
        task=EpisodeTask(name, "staring", "benchmark", number, 0, seed),
        policy=policy.spec,
        action=policy.spec.action,
    )


def robogen_episodes(scene: TabletopScene, policy: Staring, numbers: list[int]) -> None:
    """Whole episodes through the episode loop, records included."""
    left = iter(numbers)

    def source(slot: int) -> Episode | None:
        number = next(left, None)
        return None if number is None else episode(scene, policy, number)

    run(policy, slots=1, batch=1, source=source, sink=lambda outcome: None)


class Bare:
    """The loop that somebody would write around MuJoCo for this scene alone."""

    def __init__(self, scene: TabletopScene, size: int) -> None:
        self.model = scene.world.model
        self.data = mujoco.MjData(self.model)
        self.start = scene.world.get_state()
        self.steps = scene.spec.horizon
        timestep = self.model.opt.timestep
        self.settle = round(scene.config.settle_s / timestep)
        per_step = round(1 / (scene.spec.control_hz * timestep))
        ends = [round(per_step * piece / RAMP_PIECES) for piece in range(RAMP_PIECES + 1)]
        self.pieces = [after - before for before, after in itertools.pairwise(ends)]
        names = [self.model.camera(i).name for i in range(self.model.ncam)]
        self.cameras = [
            next(i for i, full in enumerate(names) if full.split("/")[-1] == name)
            for name in scene.spec.cameras
        ]
        gl_context()
        quality = self.model.vis.quality
        before = quality.shadowsize, quality.offsamples
        quality.shadowsize, quality.offsamples = 1, 0
        self.context = mujoco.MjrContext(self.model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        quality.shadowsize, quality.offsamples = before
        self.scene = mujoco.MjvScene(self.model, maxgeom=self.model.ngeom + 256)
        self.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
        self.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        self.option, self.camera = mujoco.MjvOption(), mujoco.MjvCamera()
        self.camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self.view = mujoco.MjrRect(0, 0, size, size)
        self.pixels = np.empty((size, size, 3), np.uint8)

    def episode(self) -> None:
        """One episode, thrown away."""
        model, data = self.model, self.data
        mujoco.mj_setState(model, data, self.start, mujoco.mjtState.mjSTATE_INTEGRATION)
        target = data.ctrl.copy()
        mujoco.mj_step(model, data, nstep=self.settle)
        for _ in range(self.steps):
            self.look()
            for count in self.pieces:
                data.ctrl[:] = target
                mujoco.mj_step(model, data, nstep=count)

    def look(self) -> None:
        """Draw every camera and read it back."""
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self.context)
        for camera in self.cameras:
            self.camera.fixedcamid = camera
            mujoco.mjv_updateScene(
                self.model,
                self.data,
                self.option,
                None,
                self.camera,
                mujoco.mjtCatBit.mjCAT_ALL,
                self.scene,
            )
            mujoco.mjr_render(self.view, self.scene, self.context)
            mujoco.mjr_readPixels(self.pixels, None, self.view, self.context)


def settings(name: str, size: int) -> tuple[TabletopScene, Staring, Bare]:
    """A scene, a policy and a bare loop, warm."""
    scene = load_tabletop(name)
    policy = Staring(scene.spec.cameras, size)
    first = episode(scene, policy, 0)
    first.start()
    bare = Bare(scene, size)
    first.finish()
    robogen_episodes(scene, policy, [0])
    bare.episode()
    return scene, policy, bare


def pairs(name: str, size: int, count: int) -> None:
    """Robogen and the bare loop in turns."""
    scene, policy, bare = settings(name, size)
    ours: list[Cost] = []
    theirs: list[Cost] = []
    for number in range(count):
        turns = [
            (ours, lambda number=number: robogen_episodes(scene, policy, [number])),
            (theirs, bare.episode),
        ]
        for into, work in turns if number % 2 == 0 else reversed(turns):
            into.append(timed(work))
    steps = scene.spec.horizon
    wall = statistics.median(b.wall / a.wall for a, b in zip(ours, theirs, strict=True))
    cpu = statistics.median(b.cpu / a.cpu for a, b in zip(ours, theirs, strict=True))
    mine, bares = (statistics.median(c.wall for c in costs) for costs in (ours, theirs))
    print(
        f"{name}: {steps / mine:.0f} control steps/s ({1 / mine:.2f} episodes/s), bare loop "
        f"{steps / bares:.0f}; speed relative to the bare loop {wall:.3f} (wall), {cpu:.3f} (CPU)"
    )
    scene.close()


def child(which: str, name: str, size: int, seconds: float, core: int) -> None:
    """Run one side for some time on one core and print control steps per second."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    scene, policy, bare = settings(name, size)
    print("ready", flush=True)
    sys.stdin.readline()
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        if which == "robogen":
            robogen_episodes(scene, policy, [done])
        else:
            bare.episode()
        done += 1
    print(json.dumps(done * scene.spec.horizon / (time.perf_counter() - start)))


def throughput(which: str, processes: int, name: str, size: int, seconds: float) -> float:
    """Control steps per second of some processes that run at once, one per core."""
    command = [sys.executable, __file__, "--scene", name, "--size", str(size)]
    command += ["--seconds", str(seconds), "--child", which]
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0, 1]
    running = [
        subprocess.Popen(
            [*command, "--core", str(cores[i % len(cores)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(processes)
    ]
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return sum(float(process.communicate()[0]) for process in running)


def scaling(name: str, size: int, rounds: int, seconds: float) -> None:
    """Two processes at once against one alone, on both sides."""
    found: dict[str, list[float]] = {"robogen": [], "bare": []}
    for _ in range(rounds):
        for which, into in found.items():
            single = throughput(which, 1, name, size, seconds)
            into.append(throughput(which, 2, name, size, seconds) / (2 * single))
    text = ", ".join(f"{which} {statistics.median(values):.2f}" for which, values in found.items())
    print(f"{name}: two processes against twice one: {text}")


def factor_share(name: str, size: int) -> None:
    """Share of an episode that is spent before its first and after its last control step."""
    scene, policy, _ = settings(name, size)
    shares: dict[str, float] = {}
    names: list[str | None] = [None]
    for factor in available():
        one = Perturbation([(load_factor(factor), 1.0)])
        seed = EpisodeSeed(domain="evaluate", study=0, scene=name, episode=0)
        if one.factors[0].phase == "model" and not one.not_applicable(
            scene.world, scene.prepare(seed)[1]
        ):
            names.append(factor)
    rest = np.zeros(policy.spec.action.dim)
    for factor in names:
        condition = Perturbation([(load_factor(factor), 1.0)] if factor else [])
        own, whole = [], []
        for number in range(6):
            running = episode(scene, policy, number, condition)
            start = timed(running.start)

            def steps(running: Episode = running) -> None:
                over = False
                while not over:
                    running.observe()
                    over = running.execute(rest)

            body = timed(steps)
            end = timed(running.finish)
            own.append(start.cpu + end.cpu)
            whole.append(start.cpu + body.cpu + end.cpu)
        shares[factor or "nominal"] = statistics.median(
            a / b for a, b in zip(own, whole, strict=True)
        )
    worst = max(shares, key=lambda key: shares[key])
    mean = statistics.mean(share for key, share in shares.items() if key != "nominal")
    print(
        f"{name}: setting up, looking at nominal, sampling, applying, restoring and recording take "
        f"{100 * mean:.1f} % of an episode's CPU time under a model factor on average, at most "
        f"{100 * shares[worst]:.1f} % ({worst}); nominal {100 * shares['nominal']:.1f} %"
    )
    scene.close()


def memory(name: str, size: int, episodes: int) -> None:
    """Resident memory over many short episodes, factors one after the other."""
    scene = load_tabletop(name, overrides={"horizon_s": 0.3})
    policy = Staring(scene.spec.cameras, size)
    process = psutil.Process()
    seed = EpisodeSeed(domain="evaluate", study=0, scene=name, episode=0)
    every = [Perturbation([(load_factor(factor), 1.0)]) for factor in available()]
    facts = scene.prepare(seed)[1]
    conditions = [one for one in every if not one.not_applicable(scene.world, facts)]
    rest = np.zeros(policy.spec.action.dim)
    for number in range(episodes + 1):
        if number % (episodes // 10) == 0:
            print(
                f"{name}: episode {number}, {process.memory_info().rss / 2**20:.0f} MiB", flush=True
            )
        running = episode(scene, policy, number, conditions[number % len(conditions)])
        running.start()
        over = False
        while not over:
            running.observe()
            over = running.execute(rest)
        running.finish()
    scene.close()


def machine() -> str:
    """What the numbers were taken on."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("robogen", "mujoco", "numpy"))
    info: dict[str, Any] = gl_info()
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"{packages}; {info['renderer']} {info['version']}; load {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    """Run what was asked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scene", nargs="+", default=["pick", "push", "drawer"])
    parser.add_argument("--size", type=int, default=96, help="edge of the frames [px]")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3, help="of the scaling measurement")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each scaling run")
    parser.add_argument("--memory", action="store_true", help="only follow memory")
    parser.add_argument("--episodes", type=int, default=2000, help="for --memory")
    parser.add_argument("--no-scaling", action="store_true")
    parser.add_argument("--child", choices=["robogen", "bare"], help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child, asked.scene[0], asked.size, asked.seconds, asked.core)
        return
    print(f"{asked.size} px; {machine()}")
    if asked.memory:
        for name in asked.scene[:1]:
            memory(name, asked.size, asked.episodes)
        return
    for name in asked.scene:
        pairs(name, asked.size, asked.pairs)
    for name in asked.scene:
        factor_share(name, asked.size)
    if not asked.no_scaling:
        scaling(asked.scene[0], asked.size, asked.rounds, asked.seconds)


if __name__ == "__main__":
    main()
