"""A contact sheet: one episode of a scene under every factor, at several severities."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from robogen.errors import ConfigError, FactorError, RecordsError
from robogen.perturbations.base import Factor, check_severity
from robogen.perturbations.engine import Perturbation
from robogen.rollout.start import begin
from robogen.scenes.base import Scene
from robogen.seeding import EpisodeSeed
from robogen.specs import (
    CameraSpec,
    Draw,
    ObservationSpec,
    Orientation,
    RenderProfile,
    Split,
)

_PAPER, _INK, _FAINT, _LINE = (250, 250, 249), (28, 28, 30), (110, 110, 115), (214, 214, 212)
_LABEL = 232
"""Width of the column of names [px]."""
_GAP = 6
_TEXT = 34
"""Height of the lines under a picture [px]."""
_HEAD = 46
_VISIBLE = 0.05
"""Mean absolute difference of pixels (0..255) below which a picture shows nothing."""


@dataclass(frozen=True, kw_only=True)
class PreviewSettings:
    """How a contact sheet is drawn."""

    severities: tuple[float, ...] = (0.25, 0.5, 1.0)
    """Columns beside the nominal one, 0..1."""
    episode: int = 0
    """Which episode of the study with this seed."""
    seed: int = 0
    """Study seed."""
    split: Split = "eval"
    """Value pools of the factors."""
    size: int = 160
    """Edge of a picture [px]."""
    render: RenderProfile = "fast"
    """Render profile; fast is what studies use. An adapted environment has its own."""
    cameras: tuple[str, ...] | None = None
    """Cameras to show; null: all that policies may see."""
    orientation: Orientation | None = None
    """How frames are turned; null: as the scene's policies expect."""

    def __post_init__(self) -> None:
        for severity in self.severities:
            check_severity("severities", severity)
        if not self.severities:
            raise ConfigError("severities is empty. Give at least one, e.g. severities=[0.5,1].")
        if not 32 <= self.size <= 480:
            raise ConfigError(f"size must lie in 32..480 pixels, got {self.size}. Change it.")
        if self.episode < 0:
            raise ConfigError(f"episode must be at least 0, got {self.episode}. Change it.")

    def as_seen_by(self, observation: ObservationSpec) -> PreviewSettings:
        """The same, showing what a policy gets: its cameras, its profile, its way up."""
        return replace(
            self,
            cameras=tuple(camera.name for camera in observation.cameras) or self.cameras,
            orientation=observation.orientation or self.orientation,
            render=observation.render,
        )


class _Look(NamedTuple):
    """What one cell shows."""

    images: dict[str, NDArray[np.uint8]]
    instruction: str
    draw: Draw
    range: str


class _Row(NamedTuple):
    factor: Factor
    looks: list[_Look]
    shows: bool
    """Whether a picture differs from the nominal one."""


@dataclass(frozen=True)
class Sheet:
    """A drawn contact sheet."""

    image: Image.Image
    notes: tuple[str, ...]
    """Factors left out, with reasons."""
    invisible: tuple[str, ...]
    """Factors that show in no picture."""

    def save(self, file: Path) -> None:
        """Write a PNG.

        Raises:
            RecordsError: It cannot be written.
        """
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self.image.save(file)
        except (OSError, ValueError) as error:
            raise RecordsError(
                f"Cannot write the contact sheet {file} ({error}). Pass a .png path that you can "
                "write to with --out."
            ) from error


def contact_sheet(
    scene: Scene,
    factors: Sequence[Factor],
    settings: PreviewSettings,
    *,
    required: bool = False,
) -> Sheet:
    """Draw one episode under every factor.

    Args:
        scene: The scene.
        factors: Rows, in this order.
        settings: Severities and size.
        required: Whether a factor that does not apply is an error, or left out with a note.

    Raises:
        FactorError: A factor does not apply and ``required`` is set.
    """
    seed = EpisodeSeed(
        domain="evaluate", study=settings.seed, scene=scene.spec.name, episode=settings.episode
    )
    _, facts = scene.prepare(seed)
    nominal = _look(scene, Perturbation([], split=settings.split), None, seed, settings)
    rows: list[_Row] = []
    notes: list[str] = []
    for factor in factors:
        probe = Perturbation([(factor, 1.0)], split=settings.split)
        reason = probe.not_applicable(scene.world, facts).get(factor.name)
        if reason is not None:
            if required:
                raise FactorError(
                    f"Factor '{factor.name}' does not apply to scene '{scene.spec.name}': "
                    f"{reason.rstrip('.')}. Leave it out, or choose another scene."
                )
            notes.append(f"{factor.name} does not apply: {reason}")
            continue
        looks = [
            _look(scene, Perturbation([(factor, s)], split=settings.split), factor, seed, settings)
            for s in settings.severities
        ]
        rows.append(_Row(factor, looks, any(_differs(look, nominal) for look in looks)))
    ordered = [row for row in rows if row.shows] + [row for row in rows if not row.shows]
    title = f"{scene.spec.name}, episode {settings.episode}"
    way = settings.orientation or scene.spec.orientation
    if way != "upright":  # first, so that a long instruction never pushes it out
        title += f", frames {way.replace('_', ' by ')} as policies get them"
    title += f": {nominal.instruction}"
    return Sheet(
        _draw(title, nominal, ordered, settings),
        tuple(notes),
        tuple(row.factor.name for row in rows if not row.shows),
    )


def _look(
    scene: Scene,
    perturbation: Perturbation,
    factor: Factor | None,
    seed: EpisodeSeed,
    settings: PreviewSettings,
) -> _Look:
    draws, instruction, _ = begin(scene, perturbation, seed)
    names = scene.spec.cameras if settings.cameras is None else settings.cameras
    cameras = [CameraSpec(name=name, width=settings.size, height=settings.size) for name in names]
    images = scene.images(cameras, settings.render, settings.orientation)
    if perturbation.has_image_filter:
        for name in images:
            rng = seed.stream("image", 0, name)
            images[name] = perturbation.filter_image(images[name], draws, rng)
    scene.world.edit.restore()
    scene.rebuild(None)
    if factor is None:
        return _Look(images, instruction, {}, "")
    return _Look(images, instruction, draws[factor.name], perturbation.ranges[factor.name])


def _differs(look: _Look, nominal: _Look) -> bool:
    return any(
        np.abs(image.astype(np.int16) - nominal.images[name]).mean() > _VISIBLE
        for name, image in look.images.items()
    )


# -- drawing ---------------------------------------------------------------------------------------


def _draw(
    title: str, nominal: _Look, rows: Sequence[_Row], settings: PreviewSettings
) -> Image.Image:
    cell = len(nominal.images) * (settings.size + 2) + _GAP
    width = _LABEL + (1 + len(settings.severities)) * cell
    heights = [settings.size + _TEXT if row.shows else _words_height(row) for row in rows]
    height = _HEAD + sum(heights) + _GAP * (len(rows) + 1)
    page = Image.new("RGB", (width, height), _PAPER)
    pen = ImageDraw.Draw(page)
    pen.text((_GAP, 6), _wrapped(pen, title, width - 2 * _GAP, 1)[0], _INK, font=_font(15))
    columns = ["nominal", *(f"severity {severity:g}" for severity in settings.severities)]
    for number, name in enumerate(columns):
        pen.text((_LABEL + number * cell, 27), name, _INK, font=_font(13))
    top = _HEAD
    for row, tall in zip(rows, heights, strict=True):
        pen.line((_GAP, top, width - _GAP, top), _LINE)
        _name(pen, row, top + 5)
        if row.shows:
            _pictures(page, pen, [nominal, *row.looks], top + 4, cell, settings.size)
        else:
            _words(pen, row, top + 5, cell)
        top += tall + _GAP
    return page


def _name(pen: ImageDraw.ImageDraw, row: _Row, top: int) -> None:
    factor = row.factor
    pen.text((_GAP, top), factor.name, _INK, font=_font(14))
    pen.text((_GAP, top + 19), f"{factor.kind}, {factor.phase} phase", _FAINT, font=_font(12))
    pen.text((_GAP, top + 35), f"noticed by: {factor.channel}", _FAINT, font=_font(12))
    if not row.shows:
        pen.text((_GAP, top + 51), "shows in no picture", _FAINT, font=_font(12))


def _pictures(
    page: Image.Image,
    pen: ImageDraw.ImageDraw,
    looks: Sequence[_Look],
    top: int,
    cell: int,
    size: int,
) -> None:
    for number, look in enumerate(looks):
        left = _LABEL + number * cell
        for place, image in enumerate(look.images.values()):
            page.paste(Image.fromarray(image), (left + place * (size + 2), top))
        for line, text in enumerate(_wrapped(pen, look.range, cell - _GAP, 2)):
            pen.text((left, top + size + 2 + 14 * line), text, _FAINT, font=_font(11))


def _words_height(row: _Row) -> int:
    return 72 if row.factor.channel != "instruction" else 88


def _words(pen: ImageDraw.ImageDraw, row: _Row, top: int, cell: int) -> None:
    for number, look in enumerate(row.looks, start=1):
        left = _LABEL + number * cell
        lines = _wrapped(pen, look.range, cell - _GAP, 2)
        if row.factor.channel == "instruction":
            lines += _wrapped(pen, f'"{look.instruction}"', cell - _GAP, 2)
        else:
            lines += _wrapped(pen, f"here {_plain(look.draw)}", cell - _GAP, 2)
        for line, text in enumerate(lines):
            pen.text((left, top + 15 * line), text, _INK, font=_font(12))


def _plain(draw: Draw) -> str:
    """A draw in a few words."""

    def number(value: Any) -> str:
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    parts = []
    for key, value in draw.items():
        text = ", ".join(map(number, value)) if isinstance(value, list) else number(value)
        parts.append(f"{key.replace('_', ' ')} {text}")
    return "; ".join(parts) or "nominal"


def _wrapped(pen: ImageDraw.ImageDraw, text: str, width: int, lines: int) -> list[str]:
    """Text in at most so many lines of a width [px]."""
    for letter, written in (("×", "x "), ("σ", "sigma"), ("−", "-")):  # the font lacks them
        text = text.replace(letter, written)
    letters = max(8, int(width / (pen.textlength("abcdefghij", font=_font(12)) / 10)))
    return textwrap.wrap(text, letters, max_lines=lines, placeholder=" …")


def _font(size: Literal[11, 12, 13, 14, 15]) -> Any:
    return ImageFont.load_default(size=size)
