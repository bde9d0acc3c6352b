from __future__ import annotations

import numpy as np
import pytest

from robogen.errors import ConfigError
from robogen.mj.patterns import PATTERNS, POOL_SIZE, pattern, pattern_from_pool, pool_entry

TILEABLE = tuple(PATTERNS)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("size", [32, 64, 100, 256])
def test_shape_and_determinism(name: str, size: int):
    image = pattern(name, 3, size)
    assert image.shape == (size, size, 3)
    assert image.dtype == np.uint8
    np.testing.assert_array_equal(image, pattern(name, 3, size))
    assert (image != pattern(name, 4, size)).any()
    assert image.std() > 0.5


@pytest.mark.parametrize("name", TILEABLE)
def test_the_seam_of_two_tiles_is_no_sharper_than_the_inside(name: str):
    for seed in range(6):
        image = pattern(name, seed, 128).astype(float)
        for axis in (0, 1):
            inside = np.abs(np.diff(image, axis=axis)).mean(axis=(1 - axis, 2))
            seam = np.abs(image.take(0, axis) - image.take(-1, axis)).mean()
            assert seam <= inside.max() * 1.3 + 2


@pytest.mark.parametrize("name", PATTERNS)
def test_a_base_colour_is_kept(name: str):
    image = pattern(name, 5, 64, rgb=(0.8, 0.4, 0.2)).reshape(-1, 3).mean(axis=0)
    assert image[0] > image[1] > image[2]
    white = pattern(name, 5, 64, rgb=(1.0, 1.0, 1.0)).reshape(-1, 3).mean(axis=0)
    assert white.min() > 120
    assert np.ptp(white) < 25


def test_pools_are_disjoint_and_hold_every_family():
    train = {pool_entry(i, "train") for i in range(POOL_SIZE)}
    held_out = {pool_entry(i, "eval") for i in range(POOL_SIZE)}
    assert {seed for _, seed in train}.isdisjoint({seed for _, seed in held_out})
    assert {n for n, _ in train} == {n for n, _ in held_out} == set(PATTERNS)
    np.testing.assert_array_equal(
        pattern_from_pool(3, "eval", 32), pattern(*pool_entry(3, "eval"), 32)
    )


def test_an_unknown_pattern_or_size_is_refused():
    with pytest.raises(ConfigError, match="Did you mean 'checker'"):
        pattern("cheker", 0)
    with pytest.raises(ConfigError, match="at least 8"):
        pattern("wood", 0, 4)
