# ruff: noqa: D102 - overrides are documented on the base class
"""Lights: how bright, what colour, from where."""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from robogen.mj.edit import HEADLIGHT, LIGHT_DERIVED, ModelEdit
from robogen.mj.patterns import hsv_to_rgb
from robogen.mj.world import World
from robogen.perturbations.base import ModelFactor, hue_sector, signed_band
from robogen.specs import Draw, SceneFacts, Split

_LAMPS = ("light_ambient", "light_diffuse", "light_specular")


class _Gains(ModelFactor):
    """Multiplies what every light of the scene, the headlight included, emits."""

    kind = "visual"
    channel = "camera"
    fields = (*HEADLIGHT, *_LAMPS)

    @abstractmethod
    def gains(self, draw: Draw) -> NDArray[np.float64]:
        """Factor per colour channel (3,)."""

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        del facts
        edit = world.edit
        if not edit.lights().size and not edit.headlight_active:
            return "the scene has no active light"
        return None

    def apply(self, edit: ModelEdit, draw: Draw) -> None:
        gains = self.gains(draw)
        lights = edit.lights()
        if not lights.size and not edit.headlight_active:
            raise self.nothing("active light")
        if lights.size:
            for field in _LAMPS:
                edit.write(field, lights, edit.read(field, lights) * gains, "scale")
        if edit.headlight_active:
            for field in HEADLIGHT:
                edit.write(field, 0, edit.read(field) * gains, "scale")


class LightIntensity(_Gains):
    """Dims or brightens all lights by one gain.

    Args:
        name: Factor name.
        dimmest_stops: Photographic stops (log2 of the gain) at full dose downwards.
        brightest_stops: The same upwards.
    """

    def __init__(self, *, name: str, dimmest_stops: float, brightest_stops: float) -> None:
        super().__init__(name=name)
        self.dimmest_stops = self.number("dimmest_stops", dimmest_stops, -6, 0)
        self.brightest_stops = self.number("brightest_stops", brightest_stops, 0, 4)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        del facts
        dose = signed_band(rng, split)
        stops = dose * self.brightest_stops if dose > 0 else -dose * self.dimmest_stops
        return {"stops": severity * stops}

    def gains(self, draw: Draw) -> NDArray[np.float64]:
        return np.full(3, 2.0 ** draw["stops"])

    def range_text(self, severity: float) -> str:
        low, high = 2 ** (severity * self.dimmest_stops), 2 ** (severity * self.brightest_stops)
        return f"light ×{low:.2f} to ×{high:.2f}"


class LightColor(_Gains):
    """Tints all lights, at unchanged mean energy.

    Args:
        name: Factor name.
        max_saturation: Saturation of the tint at full dose, 0 white, 1 pure colour.
    """

    def __init__(self, *, name: str, max_saturation: float) -> None:
        super().__init__(name=name)
        self.max_saturation = self.number("max_saturation", max_saturation, 0, 1)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        del facts
        tint = hsv_to_rgb(hue_sector(rng, split), self.max_saturation, 1.0).astype(float)
        direction = tint / tint.mean() - 1.0
        return {"gain_rgb": (1.0 + severity * direction).tolist()}

    def gains(self, draw: Draw) -> NDArray[np.float64]:
        return np.array(draw["gain_rgb"], dtype=float)

    def range_text(self, severity: float) -> str:
        return f"light tinted, saturation {severity * self.max_saturation:.2f}, any hue"


class LightDirection(ModelFactor):
    """Turns the fixed lights about the scene's vertical and tilts them.

    Args:
        name: Factor name.
        max_azimuth_deg: Turn at full dose, either way.
        max_tilt_deg: Change of elevation at full dose, either way; no light sinks below 15°.
    """

    kind = "visual"
    channel = "camera"
    fields = ("light_dir", "light_pos")
    derived = LIGHT_DERIVED

    def __init__(self, *, name: str, max_azimuth_deg: float, max_tilt_deg: float) -> None:
        super().__init__(name=name)
        self.max_azimuth_deg = self.number("max_azimuth_deg", max_azimuth_deg, 0, 180)
        self.max_tilt_deg = self.number("max_tilt_deg", max_tilt_deg, 0, 60)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        del facts
        azimuth, tilt = signed_band(rng, split), signed_band(rng, split)
        return {
            "azimuth_deg": severity * azimuth * self.max_azimuth_deg,
            "tilt_deg": severity * tilt * self.max_tilt_deg,
        }

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        del facts
        if not world.edit.fixed_lights().size:
            return "no light of the scene hangs still in the world"
        return None

    def apply(self, edit: ModelEdit, draw: Draw) -> None:
        lights = edit.fixed_lights()
        azimuth, tilt = math.radians(draw["azimuth_deg"]), math.radians(draw["tilt_deg"])
        cos, sin = math.cos(azimuth), math.sin(azimuth)
        turn = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
        centre = edit.scene_center
        positions = centre + (edit.read("light_pos", lights) - centre) @ turn.T
        directions = np.array([_tilt(turn @ d, tilt) for d in edit.read("light_dir", lights)])
        edit.write("light_pos", lights, positions, "replace")
        edit.write("light_dir", lights, directions, "replace")

    def range_text(self, severity: float) -> str:
        return (
            f"lights turned ±{severity * self.max_azimuth_deg:.0f}°, "
            f"tilted ±{severity * self.max_tilt_deg:.0f}°"
        )


def _tilt(direction: NDArray[np.float64], tilt: float) -> NDArray[np.float64]:
    """A light direction (3,) with its elevation changed, in 15° to 88° unless it starts outside."""
    direction = direction / np.linalg.norm(direction)
    elevation = math.asin(float(np.clip(-direction[2], -1, 1)))
    low = min(elevation, math.radians(15))
    high = max(elevation, math.radians(88))
    raised = min(max(elevation + tilt, low), high)
    flat = math.hypot(direction[0], direction[1])
    along = direction[:2] / flat if flat > 1e-9 else np.array([1.0, 0.0])
    return np.array([*(math.cos(raised) * along), -math.sin(raised)])
