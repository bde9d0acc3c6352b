# ruff: noqa: D102 - overrides are documented on the base class
"""Materials: colours and textures of what a role's geoms wear."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robogen.errors import ConfigError
from robogen.mj.edit import ModelEdit
from robogen.mj.patterns import PATTERNS, POOL_SIZE, hsv_to_rgb, pattern, pool_entry
from robogen.mj.roles import BODY_ROLES, SURFACE_ROLES
from robogen.mj.world import World
from robogen.perturbations.base import ModelFactor, hue_sector
from robogen.specs import Draw, SceneFacts, Split

_ROLES = (*SURFACE_ROLES, *BODY_ROLES)
_GREY = 0.2
"""Saturation below which a part has no hue of its own."""


_LARGEST = 1024
"""Largest edge of a pattern [px]; photographs on other people's objects are larger, and slow."""


class RoleTexture(ModelFactor):
    """Blends the texture of a role into a procedural pattern with colours of its own.

    The material's colour moves into the pixels, so that at a blend of 1 the pattern is seen as it
    is, and at 0 the surface as it was.

    Args:
        name: Factor name.
        role: Whose textures: table, floor, background, manipulated, receiver, fixture or robot.
        max_blend: Weight of the pattern at full dose, 0 to 1.
        families: Families of patterns to draw from; ``all`` of them, or a list.
        zoom: Enlargement of the pattern, so that its parts show on a small object; a whole number.
    """

    kind = "visual"
    channel = "camera"
    fields = ("mat_rgba", "tex_data")
    order = -10  # sets pixels and whitens; colour factors then tint what it left

    def __init__(
        self, *, name: str, role: str, max_blend: float, families: str | Sequence[str], zoom: int
    ) -> None:
        super().__init__(name=name)
        self.role = self.choice("role", role, _ROLES)
        self.max_blend = self.number("max_blend", max_blend, 0, 1)
        self.zoom = self.integer("zoom", zoom, 1, 8)
        asked = [families] if isinstance(families, str) else list(families)
        allowed = ("all", *PATTERNS)
        chosen = {self.choice("families", family, allowed) for family in asked}
        self._entries: dict[Split, list[tuple[str, int]]] = {
            split: [
                entry
                for entry in (pool_entry(index, split) for index in range(POOL_SIZE))
                if "all" in chosen or entry[0] in chosen
            ]
            for split in ("train", "eval")
        }
        if not chosen:
            raise ConfigError(
                f"Parameter 'families' of factor '{name}' is empty. Name some of "
                f"{', '.join(PATTERNS)}, or write all."
            )

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        del facts
        entries = self._entries[split]
        name, seed = entries[int(rng.integers(len(entries)))]
        return {"pattern": name, "seed": seed, "blend": severity * self.max_blend}

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        del facts
        if not world.edit.textures(self.role).size:
            return f"the scene has no '{self.role}' with a texture of its own"
        return None

    def apply(self, edit: ModelEdit, draw: Draw) -> None:
        textures, materials = edit.textures(self.role), edit.materials(self.role)
        if not textures.size:
            raise self.nothing(f"texture that only '{self.role}' wears")
        worn = edit.texture_of(materials)
        for texture in textures.tolist():
            wearers = materials[worn == texture]
            nominal = edit.nominal_values("mat_rgba", wearers)
            self._paint(edit, texture, nominal[0, :3], draw)
            rgba = edit.read("mat_rgba", wearers)
            rgba[:, :3] += 1.0 - nominal[:, :3]
            edit.write("mat_rgba", wearers, rgba, "scale")

    def _paint(
        self, edit: ModelEdit, texture: int, colour: NDArray[np.float32], draw: Draw
    ) -> None:
        pixels = edit.nominal_texture(texture)
        height, width, channels = pixels.shape
        face = (
            min(height, width) if height % width == 0 or width % height == 0 else max(height, width)
        )
        size = min(face * self.zoom, _LARGEST)
        seen_part = np.arange(face) * size // (face * self.zoom)
        tile = pattern(draw["pattern"], draw["seed"], size)[np.ix_(seen_part, seen_part)]
        repeats = (-(-height // face), -(-width // face), 1)
        mixed = np.tile(tile, repeats)[:height, :width]  # cube faces alike
        blend = np.float32(draw["blend"])
        if blend < 1:  # else the pattern is all that is left
            seen = pixels[..., :3].astype(np.float32)
            seen *= (1 - blend) * colour
            seen += blend * mixed
            mixed = (seen + np.float32(0.5)).clip(0, 255).astype(np.uint8)
        if channels > 3:
            mixed = np.concatenate([mixed, pixels[..., 3:]], axis=2)
        edit.paint(texture, mixed)

    def range_text(self, severity: float) -> str:
        return f"{self.role} texture blended {100 * severity * self.max_blend:.0f} % into a pattern"


class RoleColor(ModelFactor):
    """Moves the colour of a role towards another hue; parts keep their differences.

    Textured materials (an object's main one) always change, the others only if they have a hue.

    Args:
        name: Factor name.
        role: Whose colour: table, floor, background, manipulated, receiver, fixture or robot.
        min_turn_deg: Smallest angle on the hue circle between nominal and target.
        min_saturation: The target is at least this saturated, so that a grey thing changes too.
        max_blend: How far towards the target at full dose, 0 to 1.
    """

    kind = "visual"
    channel = "camera"
    fields = ("geom_rgba", "mat_rgba")

    def __init__(
        self,
        *,
        name: str,
        role: str,
        min_turn_deg: float,
        min_saturation: float,
        max_blend: float,
    ) -> None:
        super().__init__(name=name)
        self.role = self.choice("role", role, _ROLES)
        self.min_turn_deg = self.number("min_turn_deg", min_turn_deg, 0, 170)
        self.min_saturation = self.number("min_saturation", min_saturation, 0.2, 1)
        self.max_blend = self.number("max_blend", max_blend, 0, 1)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        del facts
        turn = 360.0 * hue_sector(rng, split, self.min_turn_deg / 360.0)
        return {"hue_turn_deg": turn, "blend": severity * self.max_blend}

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        del facts
        edit = world.edit
        if not edit.materials(self.role).size and not edit.plain_geoms(self.role).size:
            return f"the scene has no '{self.role}' with a colour of its own"
        return None

    def apply(self, edit: ModelEdit, draw: Draw) -> None:
        materials, geoms = edit.materials(self.role), edit.plain_geoms(self.role)
        if not materials.size and not geoms.size:
            raise self.nothing(f"colour that only '{self.role}' wears")
        tints = np.ones((materials.size, 3))
        for row, texture in enumerate(edit.texture_of(materials).tolist()):
            if texture >= 0:
                pixels = edit.nominal_texture(texture)[..., :3]
                tints[row] = pixels.reshape(-1, 3).mean(axis=0) / 255.0
        tints = np.concatenate([tints, np.ones((geoms.size, 3))])
        nominal = np.concatenate(
            [edit.nominal_values("mat_rgba", materials), edit.nominal_values("geom_rgba", geoms)]
        )[:, :3]
        main = np.concatenate([edit.texture_of(materials) >= 0, np.zeros(geoms.size, bool)])
        targets = self._targets(nominal * tints, draw["hue_turn_deg"] / 360.0, main)
        targets /= np.maximum(tints, 1e-2)  # the texture multiplies it again
        targets /= np.maximum(targets.max(axis=1, keepdims=True), 1.0)
        keep = np.isnan(targets)
        for field, ids, part in (
            ("mat_rgba", materials, slice(0, materials.size)),
            ("geom_rgba", geoms, slice(materials.size, None)),
        ):
            if ids.size:
                rgba = edit.read(field, ids).astype(float)
                moved = rgba[:, :3] + draw["blend"] * (targets[part] - rgba[:, :3])
                rgba[:, :3] = np.where(keep[part], rgba[:, :3], moved)
                edit.write(field, ids, rgba, "scale")

    def _targets(
        self, seen: NDArray[np.float64], turn: float, main: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Target colours (n, 3) for seen ones.

        NaN where a part stays as it is: a grey trim, such as a can's lid, beside parts that change.
        """
        hsv = np.array([colorsys.rgb_to_hsv(*colour) for colour in seen.clip(0, 1).tolist()])
        changes = main | (hsv[:, 1] >= _GREY)
        targets = np.array(
            [
                hsv_to_rgb(hue + turn, max(saturation, self.min_saturation), max(value, 0.4))
                for hue, saturation, value in hsv
            ],
            dtype=float,
        )
        if changes.any():
            targets[~changes] = np.nan
        return targets

    def range_text(self, severity: float) -> str:
        return (
            f"{self.role} colour moved {100 * severity * self.max_blend:.0f} % towards a hue "
            f"{self.min_turn_deg:.0f}° to 180° away"
        )
