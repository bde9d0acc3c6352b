"""Where objects start: drawn before anything else, the same under every condition.

An object's place is a fixed function of three uniforms. The wide region of ``object_position`` maps
the same uniforms into a larger area; ``train`` and ``eval`` land on opposite squares of a
checkerboard over it. Draws are rejected until no two footprints, enlarged to the largest size, meet
at any width and in either pool, so no factor ever forces a second draw.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robogen.errors import SceneError
from robogen.scenes.schema import ObjectConfig, Region, SceneConfig
from robogen.specs import Circle, InitialState, Split

CELL = 0.04
"""Edge of the checkerboard's squares [m]."""
ATTEMPTS = 2000
GAP = 0.01
"""Least distance between two enlarged footprints [m]."""


class Place(NamedTuple):
    """Where an object's base stands: x, y [m] and yaw [rad], world frame."""

    x: float
    y: float
    yaw: float


def _into(region: Region, uniforms: tuple[float, float, float]) -> NDArray[np.float64]:
    low = np.array([region.x[0], region.y[0], region.yaw[0]])
    high = np.array([region.x[1], region.y[1], region.yaw[1]])
    return np.asarray(low + np.asarray(uniforms) * (high - low))


def _on_board(point: NDArray[np.float64], region: Region, pool: Split) -> NDArray[np.float64]:
    """Shift a point by one square where it stands on the other pool's colour."""
    low = np.array([region.x[0], region.y[0]])
    high = np.array([region.x[1], region.y[1]])
    wanted = 0 if pool == "train" else 1
    if int(np.floor((point[:2] - low) / CELL).sum()) % 2 == wanted:
        return point
    for axis in (1, 0):
        for step in (CELL, -CELL):
            moved = point.copy()
            moved[axis] += step
            if low[axis] <= moved[axis] <= high[axis]:
                return moved
    return point  # the region is smaller than a square: nothing to tell apart


def full_width(
    config: ObjectConfig, uniforms: tuple[float, float, float], pool: Split
) -> NDArray[np.float64]:
    """x, y, yaw (3,) at the widest placement of a pool."""
    if config.wide is None:
        return _into(config.region, uniforms)
    return _on_board(_into(config.wide, uniforms), config.wide, pool)


def place(
    config: ObjectConfig, uniforms: tuple[float, float, float], *, widen: float, pool: Split
) -> Place:
    """Where an object stands: the nominal place moved by ``widen`` towards the widest one."""
    nominal = _into(config.region, uniforms)
    moved = nominal + widen * (full_width(config, uniforms, pool) - nominal)
    return Place(float(moved[0]), float(moved[1]), float(moved[2]))


def places(config: SceneConfig, initial: InitialState) -> dict[str, Place]:
    """Every object's place for an initial state."""
    return {
        name: place(item, initial.uniforms[name], widen=initial.widen, pool=initial.pool)
        for name, item in config.objects.items()
    }


def _closest(
    a: tuple[NDArray[np.float64], NDArray[np.float64]],
    b: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> float:
    """Least distance over s in [0, 1] between two points that move linearly in s."""
    start = a[0][:2] - b[0][:2]
    change = (a[1][:2] - b[1][:2]) - start
    squared = float(change @ change)
    s = 0.0 if squared == 0 else float(np.clip(-(start @ change) / squared, 0.0, 1.0))
    return float(np.linalg.norm(start + s * change))


def draw_uniforms(
    config: SceneConfig, rng: np.random.Generator
) -> dict[str, tuple[float, float, float]]:
    """Uniforms per object that stay apart at every width and pool.

    Raises:
        SceneError: The regions do not fit the footprints.
    """
    names = list(config.objects)
    for _ in range(ATTEMPTS):
        uniforms: dict[str, tuple[float, float, float]] = {}
        for name in names:
            x, y, yaw = rng.uniform(size=3).tolist()
            uniforms[name] = (x, y, yaw)
        if all(_apart(config, uniforms, a, b) for a, b in itertools.combinations(names, 2)):
            return uniforms
    raise SceneError(
        f"Scene '{config.name}': no placement of {', '.join(names)} without overlap in {ATTEMPTS} "
        "draws. Enlarge the regions, shrink the footprints, or lower largest_size."
    )


def _apart(config: SceneConfig, uniforms: Mapping[str, tuple[float, ...]], a: str, b: str) -> bool:
    one, two = config.objects[a], config.objects[b]
    needed = GAP + sum(
        item.footprint * (config.largest_size if item.role == "manipulated" else 1.0)
        for item in (one, two)
    )
    pools: tuple[Split, Split] = ("train", "eval")
    for pool in pools:
        lines = []
        for name, item in ((a, one), (b, two)):
            u = (uniforms[name][0], uniforms[name][1], uniforms[name][2])
            lines.append((_into(item.region, u), full_width(item, u, pool)))
        if _closest(lines[0], lines[1]) < needed:
            return False
    return True


def occupied(
    config: SceneConfig, uniforms: Mapping[str, tuple[float, float, float]]
) -> tuple[Circle, ...]:
    """Discs that objects cover at any width, and the robot's base."""
    circles = [Circle(x=0.0, y=0.0, radius=0.2)]
    pools: tuple[Split, Split] = ("train", "eval")
    for name, item in config.objects.items():
        radius = item.footprint * (config.largest_size if item.role == "manipulated" else 1.0)
        for pool, widen in itertools.product(pools, (0.0, 0.5, 1.0)):
            spot = place(item, uniforms[name], widen=widen, pool=pool)
            circle = Circle(x=spot.x, y=spot.y, radius=radius)
            if circle not in circles:
                circles.append(circle)
    return tuple(circles)
