"""Procedural textures: pure functions of (name, seed, size), tileable, a few milliseconds each.

Scenes paint their nominal surfaces with these; texture factors replace them from a pool of seeds. A
pattern given ``rgb`` keeps to that colour and its shades; with white it is a relief that a
material's own colour shows through. Without, its seed chooses the colours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from robogen.errors import ConfigError, unknown
from robogen.seeding import generator
from robogen.specs import Split

Image = NDArray[np.float32]
Colour = tuple[float, float, float]
Family = Callable[[np.random.Generator, int, Colour | None], Image]
"""Makes (size, size, 3) float32 in [0, 1] from a generator, a size and a base colour."""

POOL_SIZE = 100
"""Seeds per split: 0..99 are ``train``, 100..199 ``eval``."""


# -- ingredients -----------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _taps(size: int, cells: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Periodic Catmull-Rom interpolation to ``size`` pixels: indices and weights (4, size)."""
    position = np.arange(size) * cells / size
    start, t = np.floor(position).astype(np.intp), position % 1.0
    weights = np.stack(
        [
            -0.5 * t + t**2 - 0.5 * t**3,
            1 - 2.5 * t**2 + 1.5 * t**3,
            0.5 * t + 2 * t**2 - 1.5 * t**3,
            -0.5 * t**2 + 0.5 * t**3,
        ]
    ).astype(np.float32)
    return (start + np.arange(-1, 3)[:, None]) % cells, weights


def _enlarge(rows: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Interpolate the first axis to ``size``; gathers, as threaded BLAS is slower when small."""
    indices, weights = _taps(size, len(rows))
    total = rows[indices[0]] * weights[0][:, None]
    for index, weight in zip(indices[1:], weights[1:], strict=True):
        total += rows[index] * weight[:, None]
    return np.asarray(total, np.float32)


def _noise(rng: np.random.Generator, size: int, rows: int, columns: int) -> NDArray[np.float32]:
    """Smooth periodic noise (size, size) about [-1, 1] with the given number of cells."""
    grid = rng.uniform(-1, 1, (min(columns, size), min(rows, size))).astype(np.float32)
    return _enlarge(np.ascontiguousarray(_enlarge(grid, size).T), size)


def _fractal(
    rng: np.random.Generator,
    size: int,
    rows: int,
    columns: int,
    octaves: int = 4,
    gain: float = 0.5,
) -> NDArray[np.float32]:
    """Octaves of :func:`_noise`, scaled to unit standard deviation."""
    total = np.zeros((size, size), np.float32)
    for octave in range(octaves):
        total += gain**octave * _noise(rng, size, rows << octave, columns << octave)
    return np.asarray(total / max(float(total.std()), 1e-6), np.float32)


@lru_cache(maxsize=8)
def _grid(size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Pixel centres in [0, 1): x (1, size) and y (size, 1)."""
    axis = ((np.arange(size) + 0.5) / size).astype(np.float32)
    return axis[None, :], axis[:, None]


def hsv_to_rgb(hue: float, saturation: float, value: float) -> NDArray[np.float32]:
    """One colour (3,) in [0, 1]; ``hue`` in turns, any real."""
    channel = (np.array([5.0, 3.0, 1.0]) + hue * 6.0) % 6.0
    ramp = np.clip(np.minimum(channel, 4.0 - channel), 0.0, 1.0)
    return np.asarray(value - value * saturation * ramp, np.float32)


def _colours(rng: np.random.Generator, rgb: Colour | None) -> tuple[Image, Image]:
    """A base colour and one that stands out from it, each (3,)."""
    hue, shift = rng.uniform(), rng.uniform(0.08, 0.5)
    saturation, value = rng.uniform(0.3, 0.85), rng.uniform(0.65, 0.97)
    other_saturation, darker = rng.uniform(0.2, 0.8), rng.uniform(0.4, 0.62)
    if rgb is not None:
        base = np.asarray(rgb, np.float32)
        return base, base * np.float32(0.35 + 0.65 * darker)
    base = hsv_to_rgb(hue, saturation, value)
    return base, hsv_to_rgb(hue + shift, other_saturation, value * darker)


def _mix(low: Image, high: Image, weight: NDArray[np.float32]) -> Image:
    """``low`` where the weight (size, size) is 0, ``high`` where it is 1."""
    planes = [weight * (high[c] - low[c]) + low[c] for c in range(3)]
    return np.asarray(cv2.merge(planes), np.float32)


def _shade(colour: Image, relief: NDArray[np.float32]) -> Image:
    """A colour times a brightness relief (size, size) around 1."""
    return np.asarray(cv2.merge([relief * colour[c] for c in range(3)]), np.float32)


def _edge(distance: NDArray[Any], size: int) -> NDArray[np.float32]:
    """0 to 1 across one pixel around distance 0 [fraction of the texture]."""
    return np.asarray(np.clip(distance * size + 0.5, 0, 1), np.float32)


# -- families --------------------------------------------------------------------------------------


def wood(rng: np.random.Generator, size: int, rgb: Colour | None) -> Image:
    """Planks along x with grain, seams and staggered joints."""
    hue, saturation = rng.uniform(0.055, 0.1), rng.uniform(0.35, 0.6)
    value, planks = rng.uniform(0.5, 0.9), int(rng.integers(3, 7))
    if rgb is None:
        rgb = tuple(hsv_to_rgb(hue, saturation, value).tolist())
    x, y = _grid(size)
    warp = _fractal(rng, size, 6, 2, 2)
    fibre = _fractal(rng, size, size // 3, 3, 2)
    broad = _fractal(rng, size, 12, 1, 2)
    rings = np.sin(2 * np.pi * (y * int(rng.integers(7, 13)) + 0.45 * warp)).astype(np.float32)
    grain = 0.05 * fibre + 0.05 * broad + 0.055 * rings * (0.6 + 0.4 * warp.clip(-1, 1))
    plank = (y[:, 0] * planks).astype(int)
    shifts, tints = rng.integers(0, size, planks), rng.uniform(-0.09, 0.07, planks)
    columns = (np.arange(size)[None, :] + shifts[plank][:, None]) % size
    grain = np.take_along_axis(grain, columns, axis=1) + tints.astype(np.float32)[plank][:, None]
    seam = 0.5 - np.abs((y * planks) % 1.0 - 0.5)
    ends = (shifts / size).astype(np.float32)[:, None]
    joint = _edge(np.abs((x + ends) % 1.0 - 0.5) - 0.5 / size, size)  # one row per plank
    groove = np.minimum(_edge(seam / planks - 0.5 / size, size), joint[plank])
    relief = (0.9 + grain) * (0.6 + 0.4 * groove)
    deep = (relief - 1).clip(-0.8, 0.1)
    warmth = (1.0, 1.12, 1.25)  # dark grain is also redder
    return np.asarray(cv2.merge([(1 + w * deep) * c for w, c in zip(warmth, rgb, strict=True)]))


def noise(rng: np.random.Generator, size: int, rgb: Colour | None) -> Image:
    """Cloudy fractal noise between two colours."""
    low, high = _colours(rng, rgb)
    cells = int(rng.integers(3, 9))
    return _mix(low, high, np.clip(0.5 + 0.42 * _fractal(rng, size, cells, cells, 5), 0, 1))


def checker(rng: np.random.Generator, size: int, rgb: Colour | None) -> Image:
    """Chessboard of two colours."""
    low, high = _colours(rng, rgb)
    cells = 2 * int(rng.integers(2, 7))
    x, y = _grid(size)
    return _mix(
        low, high, (((x * cells).astype(int) + (y * cells).astype(int)) % 2).astype(np.float32)
    )


def stripes(rng: np.random.Generator, size: int, rgb: Colour | None) -> Image:
    """Straight stripes, level, upright or diagonal."""
    low, high = _colours(rng, rgb)
    count, duty = int(rng.integers(3, 11)), float(rng.uniform(0.3, 0.7))
    x, y = _grid(size)
    across = (x + 0 * y, y + 0 * x, x + y, x - y)[int(rng.integers(4))] * count
    wave = np.abs((across % 1.0) - 0.5)
    return _mix(low, high, _edge((wave - duty / 2) / count, size))


def dots(rng: np.random.Generator, size: int, rgb: Colour | None) -> Image:
    """Discs on a staggered grid."""
    low, high = _colours(rng, rgb)
    cells, radius = 2 * int(rng.integers(2, 6)), float(rng.uniform(0.2, 0.42))
    x, y = _grid(size)
    row = np.floor(y * cells)
    u = (x * cells + 0.5 * (row % 2)) % 1.0 - 0.5
    v = (y * cells) % 1.0 - 0.5
    return _mix(low, high, _edge((radius - np.sqrt(u * u + v * v)) / cells, size))


def tiles(rng: np.random.Generator, size: int, rgb: Colour | None) -> Image:
    """Square tiles, each a shade of its own, with grout."""
    base, other = _colours(rng, rgb)
    cells = int(rng.integers(3, 8))
    grout = 0.5 * other + 0.5 * float(base.mean())
    x, y = _grid(size)
    column, row = (x * cells).astype(int), (y * cells).astype(int)
    shade = rng.uniform(0.78, 1.08, (cells, cells)).astype(np.float32)[row, column]
    edge = np.minimum(0.5 - np.abs((x * cells) % 1 - 0.5), 0.5 - np.abs((y * cells) % 1 - 0.5))
    mottle = 1 + 0.03 * _fractal(rng, size, 8, 8, 3)
    face = shade * mottle * (0.88 + 0.12 * np.clip(edge * 9, 0, 1))
    inside = _edge((edge - 0.045) / cells, size)
    planes = [grout[c] + inside * (base[c] * face - grout[c]) for c in range(3)]
    return np.asarray(cv2.merge(planes), np.float32)


def gradient(rng: np.random.Generator, size: int, rgb: Colour | None) -> Image:
    """Smooth swings between two colours."""
    low, high = _colours(rng, rgb)
    kx, ky = [(1, 0), (0, 1), (1, 1), (1, -1)][int(rng.integers(4))]
    x, y = _grid(size)
    phase = 2 * np.pi * (kx * x + ky * y + float(rng.uniform()))
    return _mix(low, high, (0.5 - 0.5 * np.cos(phase)).astype(np.float32) + np.zeros_like(x + y))


def fabric(rng: np.random.Generator, size: int, rgb: Colour | None) -> Image:
    """Plain weave of two threads."""
    warp, weft = _colours(rng, rgb)
    if rgb is not None:
        weft = warp * np.float32(0.86)
    if rgb is None:
        weft = 0.45 * warp + 0.55 * weft
    threads = 2 * int(rng.integers(8, 16))
    x, y = _grid(size)
    u, v = x * threads, y * threads
    over = ((np.floor(u) + np.floor(v)) % 2).astype(np.float32)
    round_u, round_v = np.sin(np.pi * (u % 1.0)), np.sin(np.pi * (v % 1.0))
    relief = np.where(
        over > 0, round_u * (0.55 + 0.45 * round_v), round_v * (0.55 + 0.45 * round_u)
    )
    relief = (0.72 + 0.32 * relief + 0.03 * _fractal(rng, size, 24, 24, 3)).astype(np.float32)
    planes = [(weft[c] + over * (warp[c] - weft[c])) * relief for c in range(3)]
    return np.asarray(cv2.merge(planes), np.float32)


def terrazzo(rng: np.random.Generator, size: int, rgb: Colour | None) -> Image:
    """Stone chips in a bright ground."""
    base, other = _colours(rng, rgb)
    ground = 0.25 * base + 0.75 * float(base.max())
    image = np.ascontiguousarray(_shade(ground, 1 + 0.02 * _fractal(rng, size, 16, 16, 3)))
    count = int(rng.integers(60, 130))
    centres = rng.uniform(0, size, (count, 2))
    radii = size * rng.uniform(0.008, 0.04, count)
    corners = np.sort(rng.uniform(0, 2 * np.pi, (count, 6)), axis=1)
    mixes = rng.uniform(0, 1, count)
    colours = base + mixes[:, None] * (other - base)
    chips = centres[:, None] + radii[:, None, None] * np.stack(
        [np.cos(corners), np.sin(corners)], -1
    )
    for chip, colour in zip(chips, colours.tolist(), strict=True):
        low, high = chip.min(0), chip.max(0)
        shifts = [
            (0, *([size] if low[a] < 0 else []), *([-size] if high[a] > size else []))
            for a in (0, 1)
        ]
        for dx in shifts[0]:
            for dy in shifts[1]:
                polygon = np.round(16 * (chip + np.array([dx, dy]))).astype(np.int32)
                cv2.fillConvexPoly(image, polygon, colour, cv2.LINE_8, shift=4)
    return image


def plaster(rng: np.random.Generator, size: int, rgb: Colour | None) -> Image:
    """Nearly even wall paint with a trowel's fine relief."""
    hue, saturation, value = rng.uniform(), rng.uniform(0.05, 0.35), rng.uniform(0.7, 0.95)
    base = hsv_to_rgb(hue, saturation, value) if rgb is None else np.asarray(rgb, np.float32)
    height = _fractal(rng, size, 12, 12, 4, 0.7)
    slope = height - np.roll(height, (1, 1), (0, 1))
    broad = _fractal(rng, size, 2, 2, 2)
    return _shade(base, 0.97 + 0.1 * slope.clip(-0.5, 0.5) + 0.012 * broad)


def concrete(rng: np.random.Generator, size: int, rgb: Colour | None) -> Image:
    """Blotched grey with grit and pores."""
    hue, saturation, value = rng.uniform(), rng.uniform(0.0, 0.12), rng.uniform(0.45, 0.8)
    base = hsv_to_rgb(hue, saturation, value) if rgb is None else np.asarray(rgb, np.float32)
    blotch = _fractal(rng, size, 3, 3, 5, 0.6)
    grit = rng.standard_normal((size, size), np.float32)
    pores = (_noise(rng, size, size // 4, size // 4) > 0.82).astype(np.float32)
    return _shade(base, 0.93 + 0.05 * blotch + 0.022 * grit - 0.16 * pores)


PATTERNS: dict[str, Family] = {
    family.__name__: family
    for family in (
        wood,
        noise,
        checker,
        stripes,
        dots,
        tiles,
        gradient,
        fabric,
        terrazzo,
        plaster,
        concrete,
    )
}
"""Every family by name."""


def pattern(name: str, seed: int, size: int = 256, rgb: Colour | None = None) -> NDArray[np.uint8]:
    """A texture.

    Args:
        name: Family, a key of :data:`PATTERNS`.
        seed: Chooses layout and, unless ``rgb`` is given, colours.
        size: Edge [px].
        rgb: Base colour in [0, 1]; the pattern then consists of its shades.

    Returns:
        Pixels (size, size, 3) uint8, RGB.

    Raises:
        ConfigError: No such family, or a size below 8.
    """
    family = PATTERNS.get(name)
    if family is None:
        raise ConfigError(unknown("pattern", name, PATTERNS, "Choose one of these."))
    if size < 8:
        raise ConfigError(
            f"Pattern '{name}' needs a size of at least 8 px, got {size}. Enlarge it."
        )
    image = family(generator("pattern", name, int(seed)), size, rgb)
    return np.asarray(cv2.convertScaleAbs(image, alpha=255.0), np.uint8)


def pattern_from_pool(index: int, split: Split, size: int = 256) -> NDArray[np.uint8]:
    """The ``index``-th texture of a split's pool; see :func:`pool_entry`."""
    name, seed = pool_entry(index, split)
    return pattern(name, seed, size)


def pool_entry(index: int, split: Split) -> tuple[str, int]:
    """Family and seed of the ``index``-th (modulo :data:`POOL_SIZE`) texture of a split's pool.

    Both pools hold every family; their seeds are disjoint.
    """
    place = int(index) % POOL_SIZE
    names = tuple(PATTERNS)
    return names[place % len(names)], place + (0 if split == "train" else POOL_SIZE)
