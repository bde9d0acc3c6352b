"""Procedural things to decorate a table with; none looks like a plain cube, can or puck."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from robogen.mj.patterns import hsv_to_rgb
from robogen.mj.spec_edit import UPRIGHT, Part, Rgba
from robogen.seeding import generator
from robogen.specs import Split

POOL_SIZE = 100
"""Models per split: 0..99 are ``train``, 100..199 ``eval``."""

_LYING = (math.sqrt(0.5), 0.0, math.sqrt(0.5), 0.0)
"""Turns the z axis of a part to x."""


class Model(NamedTuple):
    """A thing: its parts and the radius [m] of the disc that it covers."""

    family: str
    parts: tuple[Part, ...]
    radius: float


Make = Callable[[np.random.Generator, float, Rgba, Rgba], tuple[list[Part], float]]
"""From a generator, a size [m] and two colours to parts and radius."""


def _cone(rng: np.random.Generator, r: float, a: Rgba, b: Rgba) -> tuple[list[Part], float]:
    half = r * rng.uniform(1.0, 1.5)
    foot = 0.12 * r
    return [
        Part("box", (r, r, foot), (0, 0, foot), b),
        Part("cone", (0.8 * r, half, 0.12 * r), (0, 0, 2 * foot + half), a),
        Part("cylinder", (0.5 * r, 0.12 * half, 0), (0, 0, 2 * foot + half), b),
    ], math.sqrt(2) * r


def _rings(rng: np.random.Generator, r: float, a: Rgba, b: Rgba) -> tuple[list[Part], float]:
    count, tube = int(rng.integers(2, 5)), 0.24 * r
    parts = [
        Part("cylinder", (0.16 * r, count * tube + 0.2 * r, 0), (0, 0, count * tube + 0.2 * r), b)
    ]
    for level in range(count):
        middle = (0.76 - 0.1 * level) * r
        place = (0.0, 0.0, tube * (2 * level + 1))
        parts.append(Part("torus", (middle, tube, 0), place, a if level % 2 == 0 else b))
    return parts, r


def _ring(rng: np.random.Generator, r: float, a: Rgba, b: Rgba) -> tuple[list[Part], float]:
    tube = r * rng.uniform(0.16, 0.26)
    return [Part("torus", (r - tube, tube, 0), (0, 0, tube), a)], r


def _ball(rng: np.random.Generator, r: float, a: Rgba, b: Rgba) -> tuple[list[Part], float]:
    size = 0.8 * r
    band = 0.12 * size
    return [
        Part("sphere", (size, 0, 0), (0, 0, size), a),
        Part("torus", (size - 0.6 * band, band, 0), (0, 0, size), b),
    ], size


def _bottle(rng: np.random.Generator, r: float, a: Rgba, b: Rgba) -> tuple[list[Part], float]:
    belly = 0.62 * r
    body, shoulder, neck = r * rng.uniform(0.7, 1.05), 0.28 * r, 0.22 * r
    top = 2 * body + 2 * shoulder
    return [
        Part("cylinder", (belly, body, 0), (0, 0, body), a),
        Part("cone", (belly, shoulder, 0.36 * belly), (0, 0, 2 * body + shoulder), a),
        Part("cylinder", (0.36 * belly, neck, 0), (0, 0, top + neck), a),
        Part("cylinder", (0.42 * belly, 0.5 * neck, 0), (0, 0, top + 2 * neck), b),
        Part("cylinder", (1.01 * belly, 0.4 * body, 0), (0, 0, body), b),
    ], belly


def _mug(rng: np.random.Generator, r: float, a: Rgba, b: Rgba) -> tuple[list[Part], float]:
    cup, half = 0.68 * r, r * rng.uniform(0.6, 0.85)
    upright = (math.sqrt(0.5), math.sqrt(0.5), 0.0, 0.0)  # the handle's hole points sideways
    return [
        Part("cylinder", (cup, half, 0), (0, 0, half), a),
        Part("cylinder", (0.86 * cup, 0.02 * half, 0), (0, 0, 2 * half), b),
        Part("torus", (0.48 * half, 0.13 * half, 0), (cup + 0.2 * half, 0, half), a, upright),
    ], cup + 0.85 * half


def _tower(rng: np.random.Generator, r: float, a: Rgba, b: Rgba) -> tuple[list[Part], float]:
    parts, height, edge = [], 0.0, 0.68 * r
    twist = rng.uniform(0.2, 0.6)
    for level in range(int(rng.integers(3, 5))):
        half = 0.34 * r
        yaw = level * twist
        quat = (math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2))
        parts.append(
            Part("box", (edge, edge, half), (0, 0, height + half), b if level % 2 else a, quat)
        )
        height, edge = height + 2 * half, 0.8 * edge
    return parts, 0.68 * math.sqrt(2) * r


def _mushroom(rng: np.random.Generator, r: float, a: Rgba, b: Rgba) -> tuple[list[Part], float]:
    half = r * rng.uniform(0.5, 0.75)
    cap = 0.5 * r
    return [
        Part("cone", (0.42 * r, half, 0.28 * r), (0, 0, half), b),
        Part("ellipsoid", (0.9 * r, 0.9 * r, cap), (0, 0, 2 * half + 0.4 * cap), a),
    ], 0.9 * r


def _dumbbell(rng: np.random.Generator, r: float, a: Rgba, b: Rgba) -> tuple[list[Part], float]:
    ball = r * rng.uniform(0.4, 0.5)
    reach = 1.25 * r - ball
    return [
        Part("sphere", (ball, 0, 0), (-reach, 0, ball), a),
        Part("sphere", (ball, 0, 0), (reach, 0, ball), a),
        Part("cylinder", (0.3 * ball, reach, 0), (0, 0, ball), b, _LYING),
    ], 1.25 * r


def _snowman(rng: np.random.Generator, r: float, a: Rgba, b: Rgba) -> tuple[list[Part], float]:
    low, high = 0.72 * r, r * rng.uniform(0.42, 0.55)
    middle = 2 * low * 0.92 + high * 0.8
    return [
        Part("sphere", (low, 0, 0), (0, 0, low * 0.97), a),
        Part("sphere", (high, 0, 0), (0, 0, middle), a),
        Part("cone", (0.8 * high, 0.5 * high, 0.3 * high), (0, 0, middle + 1.2 * high), b, UPRIGHT),
    ], low


FAMILIES: dict[str, Make] = {
    "cone": _cone,
    "rings": _rings,
    "ring": _ring,
    "ball": _ball,
    "bottle": _bottle,
    "mug": _mug,
    "tower": _tower,
    "mushroom": _mushroom,
    "dumbbell": _dumbbell,
    "snowman": _snowman,
}


def _rgba(rng: np.random.Generator) -> Rgba:
    red, green, blue = hsv_to_rgb(
        rng.uniform(), rng.uniform(0.45, 0.95), rng.uniform(0.5, 0.95)
    ).tolist()
    return (red, green, blue, 1.0)


def pool_entry(index: int, split: Split) -> int:
    """Id of the ``index``-th (modulo :data:`POOL_SIZE`) model of a split's pool."""
    return int(index) % POOL_SIZE + (0 if split == "train" else POOL_SIZE)


@lru_cache(maxsize=2 * POOL_SIZE)
def model(identity: int, size: float) -> Model:
    """The model with this id, about ``size`` [m] in radius; the same on every call."""
    names = tuple(FAMILIES)
    family = names[identity % len(names)]
    rng = generator("decoration", identity)
    colour, accent = _rgba(rng), _rgba(rng)
    parts, radius = FAMILIES[family](rng, size * rng.uniform(0.8, 1.2), colour, accent)
    return Model(family, tuple(parts), float(radius))
