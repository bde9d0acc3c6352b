"""Frames under every candidate, with what the policy's agreement was: for eyes to judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from robogen.probe.agreement import Agreement, Verdict
from robogen.probe.candidates import Candidate, Reading, observe
from robogen.probe.candidates import candidates as all_candidates
from robogen.probe.moments import Sample

TILE = 144
"""Edge of a frame [px]."""
LABEL = 34
GAP = 8
MOMENTS = 3
_INK, _PAPER, _RED = (24, 24, 27), (250, 250, 250), (190, 30, 30)


def contact_sheet(
    samples: Sequence[Sample], reading: Reading, agreement: Agreement
) -> Image.Image | None:
    """One row of frames as the policy gets them now, then one per candidate of its images.

    Returns:
        The picture, or None for a policy without cameras.
    """
    names = [camera.name for camera in reading.observation.cameras]
    if not names:
        return None
    now = f"as configured: {100 * agreement.agreement:.0f} %"
    rows: list[tuple[str, Reading, bool]] = [(now, reading, False)]
    wrong = {f.convention: f.best for f in agreement.findings if f.verdict is Verdict.SUSPICIOUS}
    scores = {(t.convention, t.name): t.agreement for t in agreement.tried}
    for option in all_candidates(reading, list(samples)):
        if option.reading.query != reading.query and _of_images(option):
            named = wrong.get(option.convention) == option.name
            score = scores.get((option.convention, option.name))
            title = f"{option.convention} {option.name}"
            if score is not None:
                title += f": {100 * score:.0f} %"
            rows.append((title, option.reading, named))
    places = np.linspace(0, len(samples) - 1, MOMENTS + 2).round().astype(int)[1:-1]
    columns = len(places) * len(names)
    width = GAP + columns * (TILE + GAP)
    sheet = Image.new("RGB", (width, GAP + len(rows) * (TILE + LABEL)), _PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=14)
    for row, (title, other, named) in enumerate(rows):
        top = GAP + row * (TILE + LABEL)
        text = f"{title}  <- agrees best with the demonstrations" if named else title
        draw.text((GAP, top), text, fill=_RED if named else _INK, font=font)
        shown = [observe(samples[place], other).images for place in places]
        tiles = [images[name] for name in names for images in shown]
        for column, tile in enumerate(tiles):
            left = GAP + column * (TILE + GAP)
            sheet.paste(_picture(tile, other), (left, top + LABEL - 12))
    return sheet


def _of_images(option: Candidate) -> bool:
    return option.convention in ("image orientation", "channel order", "crop", "cameras")


def _picture(image: NDArray[Any], reading: Reading) -> Image.Image:
    spec = reading.observation
    frame = image[-1] if spec.history != (0,) else image
    if spec.layout == "chw":
        frame = np.moveaxis(frame, -3, -1)
    if spec.pixels == "unit":
        frame = (255 * frame).round().astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(frame)).resize((TILE, TILE))
