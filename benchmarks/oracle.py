"""How often each scene's oracle succeeds: nominal, and under every factor that moves nothing.

Prints counts with exact (Clopper-Pearson) 95 % intervals. The oracle reads the simulator, so only
physical and actuation factors can hurt it; a fall under another factor is a fault of a scene.

    python benchmarks/oracle.py            # 200 nominal episodes a scene, 100 a factor
    python benchmarks/oracle.py --quick    # 20 and 5
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import robogen
from robogen.perturbations.library import available as factors
from robogen.perturbations.library import load_factor
from robogen.scenes.library import available as scenes
from robogen.stats.proportions import clopper_pearson

MOVES = ("spatial", "embodiment")


def main() -> None:
    """Run what was asked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--scene", nargs="+", default=list(scenes()))
    parser.add_argument("--severity", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=None)
    asked = parser.parse_args()
    nominal, perturbed = (20, 5) if asked.quick else (200, 100)
    still = [name for name in factors() if load_factor(name).kind not in MOVES]
    print(
        f"severity {asked.severity:g}, eval split; robogen {version('robogen')}, "
        f"mujoco {version('mujoco')}, {os.cpu_count()} cores"
    )
    for scene in asked.scene:
        clock = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            report(run(scene, [], nominal, asked, Path(folder) / "nominal"))
            report(run(scene, still, perturbed, asked, Path(folder) / "factors"), skip="nominal")
        print(f"{scene}: {time.perf_counter() - clock:.0f} s")


def run(
    scene: str, names: list[str], episodes: int, asked: argparse.Namespace, out: Path
) -> robogen.Study:
    """Oracle episodes of one scene; nominal ones come along in any case."""
    applies = robogen.make(scene, "all", image_size=8)
    usable = [name for name in names if name in applies.perturbation.names]
    applies.close()
    return robogen.evaluate(
        scene=scene,
        policy="oracle",
        perturbation=usable or None,
        suite=None,
        episodes=episodes,
        severity=asked.severity,
        workers=asked.workers,
        frames=0,
        out=str(out),
    )


def report(study: robogen.Study, skip: str = "") -> None:
    """One line per condition."""
    counts: dict[tuple[str, str], list[bool]] = {}
    for record in study.records:
        if record.condition != skip and record.success is not None:
            counts.setdefault((record.scene, record.condition), []).append(record.success)
    for (scene, condition), outcomes in counts.items():
        low, high = clopper_pearson(sum(outcomes), len(outcomes))
        rate = 100 * sum(outcomes) / len(outcomes)
        print(
            f"{scene:8} {condition:24} {sum(outcomes):4}/{len(outcomes):<4} {rate:5.1f} % "
            f"[{100 * low:.1f}, {100 * high:.1f}]",
            flush=True,
        )


if __name__ == "__main__":
    main()
