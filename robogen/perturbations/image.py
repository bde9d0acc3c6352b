# ruff: noqa: D102 - overrides are documented on the base class
"""Camera frames on their way to the policy: noise, blur, exposure."""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

import cv2
import numpy as np
from numpy.typing import NDArray

from robogen.mj.world import World
from robogen.perturbations.base import ObservationFactor, band_magnitude, signed_band
from robogen.specs import Draw, SceneFacts, Split


@lru_cache(maxsize=1)
def _normal_quantiles() -> NDArray[np.float64]:
    """256 equally likely values (256,) of unit variance.

    A random byte picks one: cheaper than drawing normals, and alike once rounded to grey levels.
    """
    normal = NormalDist()
    values = np.array([normal.inv_cdf((byte + 0.5) / 256) for byte in range(256)])
    return np.asarray(values / values.std())


class _ImageFactor(ObservationFactor):
    kind = "sensing"
    channel = "camera"

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        del facts
        return None if world.roles.cameras else "the scene has no camera"


class ImageNoise(_ImageFactor):
    """Adds Gaussian noise to every pixel and channel, new in every frame.

    Args:
        name: Factor name.
        max_sigma_levels: Standard deviation at full dose, in levels of 0..255.
    """

    order = 10  # the sensor comes after optics and exposure

    def __init__(self, *, name: str, max_sigma_levels: float) -> None:
        super().__init__(name=name)
        self.max_sigma_levels = self.number("max_sigma_levels", max_sigma_levels, 0, 255)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        del facts
        return {"sigma_levels": severity * band_magnitude(rng, split) * self.max_sigma_levels}

    def apply(
        self, image: NDArray[np.uint8], draw: Draw, rng: np.random.Generator
    ) -> NDArray[np.uint8]:
        levels = np.rint(draw["sigma_levels"] * _normal_quantiles()).astype(np.int16)
        noise = levels[np.frombuffer(rng.bytes(image.size), np.uint8)].reshape(image.shape)
        return np.asarray(cv2.add(image, noise, dtype=cv2.CV_8U))

    def range_text(self, severity: float) -> str:
        return f"noise up to σ = {severity * self.max_sigma_levels:.0f} of 255"


class ImageBlur(_ImageFactor):
    """Defocuses every frame with a Gaussian.

    Args:
        name: Factor name.
        max_sigma_percent: Standard deviation at full dose, in percent of the frame's width.
    """

    order = -10

    def __init__(self, *, name: str, max_sigma_percent: float) -> None:
        super().__init__(name=name)
        self.max_sigma_percent = self.number("max_sigma_percent", max_sigma_percent, 0, 20)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        del facts
        return {"sigma_percent": severity * band_magnitude(rng, split) * self.max_sigma_percent}

    def apply(
        self, image: NDArray[np.uint8], draw: Draw, rng: np.random.Generator
    ) -> NDArray[np.uint8]:
        del rng
        sigma = draw["sigma_percent"] * image.shape[1] / 100.0
        return np.asarray(cv2.GaussianBlur(image, (0, 0), max(sigma, 1e-3)))

    def range_text(self, severity: float) -> str:
        return f"blur up to σ = {severity * self.max_sigma_percent:.1f} % of the width"


class ImageBrightness(_ImageFactor):
    """Exposes every frame differently: a gain and an offset, clipped.

    Args:
        name: Factor name.
        max_stops: Photographic stops (log2 of the gain) at full dose, either way.
        max_offset_levels: Offset at full dose, either way, in levels of 0..255.
    """

    def __init__(self, *, name: str, max_stops: float, max_offset_levels: float) -> None:
        super().__init__(name=name)
        self.max_stops = self.number("max_stops", max_stops, 0, 4)
        self.max_offset_levels = self.number("max_offset_levels", max_offset_levels, 0, 255)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        del facts
        stops = signed_band(rng, split) * self.max_stops
        offset = np.copysign(band_magnitude(rng, split), stops) * self.max_offset_levels
        return {"stops": severity * stops, "offset_levels": float(severity * offset)}

    def apply(
        self, image: NDArray[np.uint8], draw: Draw, rng: np.random.Generator
    ) -> NDArray[np.uint8]:
        del rng
        levels = np.arange(256) * 2.0 ** draw["stops"] + draw["offset_levels"]
        return np.asarray(cv2.LUT(image, (levels + 0.5).clip(0, 255).astype(np.uint8)))

    def range_text(self, severity: float) -> str:
        stops, offset = severity * self.max_stops, severity * self.max_offset_levels
        return f"exposure ±{stops:.1f} stops and ±{offset:.0f} of 255"
