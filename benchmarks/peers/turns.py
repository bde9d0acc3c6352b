"""What the measuring scripts share: facts of a compiled model, and turns at stepping.

A script waits on standard input. A line there is a number of seconds; it steps its environment for
that long and prints one line of JSON about that turn. By hand:
``echo 5 | .venv-peers/metaworld/bin/python benchmarks/peers/measure_metaworld.py``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

MESH = 7
"""``mjGEOM_MESH`` in every MuJoCo since 2.0."""
FEWEST = 4
"""Steps that even a turn of no length takes."""


def drawing(model: Any, groups: Sequence[int] = (0, 1, 2)) -> dict[str, Any]:
    """What a frame of a model costs to draw under MuJoCo's default renderer settings.

    Args:
        model: ``mujoco.MjModel`` or a wrapper with its fields.
        groups: Geom groups that the environment draws.
    """
    drawn = np.isin(model.geom_group, groups) & (model.geom_rgba[:, 3] > 0)
    meshes = model.geom_dataid[drawn & (model.geom_type == MESH)]
    material = model.geom_matid[drawn]
    casting = int(np.count_nonzero(model.light_castshadow & model.light_active))
    return {
        "shadow_map": int(model.vis.quality.shadowsize) if casting else 0,
        "shadow_lights": casting,
        "samples": int(model.vis.quality.offsamples),
        "mesh_faces": int(model.mesh_facenum[meshes].sum()) if meshes.size else 0,
        "reflecting": int(np.count_nonzero(model.mat_reflectance[material[material >= 0]] > 0)),
    }


def versions(*packages: str) -> dict[str, str]:
    """Installed versions."""
    return {name: version(name) for name in packages}


def serve(
    *,
    reset: Callable[[], Any],
    step: Callable[[np.ndarray], Sequence[np.ndarray]],
    clock: Callable[[], float],
    actions: int,
    facts: Callable[[], dict[str, Any]],
) -> None:
    """Answer every line of standard input with a measurement.

    Args:
        reset: Starts an episode; not timed.
        step: Executes one control step with an action and returns its frames.
        clock: Simulated time [s].
        actions: Numbers in an action, each in -1..1.
        facts: Anything to report beside the speed.
    """
    rng = np.random.default_rng(0)
    for line in sys.stdin:
        seconds = float(line)
        reset()
        frames = step(np.zeros(actions))
        steps, simulated, wall, cpu = 0, clock(), time.perf_counter(), time.process_time()
        while steps < FEWEST or time.perf_counter() - wall < seconds:
            frames = step(rng.uniform(-0.2, 0.2, actions))
            steps += 1
        answer = {
            "steps": steps,
            "wall_s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
            "simulated_s": (clock() - simulated) / steps,
            "frames": [[*frame.shape, str(frame.dtype)] for frame in frames],
            "blank": any(int(np.ptp(frame)) == 0 for frame in frames),
        }
        print("\n" + json.dumps(answer | facts()), flush=True)
