"""Statistics of dataset columns, as LeRobotDatasets keep them beside the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

QUANTILES: Mapping[str, float] = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
"""Name and level of the quantiles that are kept."""
_MOMENTS = ("mean", "std", "min", "max")


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureStatistics:
    """Numbers that describe a feature, each (D,), or (3,) in 0..1 for the channels of a camera."""

    mean: Floats
    std: Floats
    """Population standard deviation."""
    min: Floats
    max: Floats
    quantiles: Mapping[str, Floats]
    """By name, see :data:`QUANTILES`; empty where the dataset has none."""
    count: int
    """Values, or sampled frames of a camera, that went into them."""

    @property
    def q01(self) -> Floats | None:
        """The 1 % quantile."""
        return self.quantiles.get("q01")

    @property
    def q99(self) -> Floats | None:
        """The 99 % quantile."""
        return self.quantiles.get("q99")

    def to_json(self, *, quantiles: bool = True, camera: bool = False) -> dict[str, list[Any]]:
        """Lists as LeRobot stores them; a camera's are shaped (3, 1, 1)."""

        def listed(values: Floats) -> list[Any]:
            numbers: list[Any] = (values.reshape(-1, 1, 1) if camera else values).tolist()
            return numbers

        found = {name: listed(getattr(self, name)) for name in _MOMENTS}
        if quantiles:
            found |= {name: listed(values) for name, values in self.quantiles.items()}
        return {**found, "count": [self.count]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FeatureStatistics:
        """Inverse of :meth:`to_json`; raises KeyError, TypeError or ValueError on other data."""

        def array(name: str) -> Floats:
            return np.asarray(data[name], dtype=np.float64).reshape(-1)

        # Datasets before v2.1 do not say how many values went in.
        count = int(np.asarray(data.get("count", 0)).reshape(-1)[0])
        return cls(
            **{name: array(name) for name in _MOMENTS},
            quantiles={name: array(name) for name in QUANTILES if name in data},
            count=count,
        )


def of_values(values: NDArray[Any]) -> FeatureStatistics:
    """Exact statistics over the first axis of (T, ...); further axes are flattened."""
    rows = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    levels = np.quantile(rows, list(QUANTILES.values()), axis=0)
    return FeatureStatistics(
        mean=rows.mean(axis=0),
        std=rows.std(axis=0),
        min=rows.min(axis=0),
        max=rows.max(axis=0),
        quantiles=dict(zip(QUANTILES, levels, strict=True)),
        count=len(rows),
    )


def sampled(length: int) -> NDArray[np.int64]:
    """Which of ``length`` frames go into a camera's statistics: LeRobot's own choice."""
    least = min(100, length)
    number = max(least, min(int(length**0.75), 10_000))
    return np.round(np.linspace(0, length - 1, number)).astype(np.int64)


def of_frames(frames: NDArray[np.uint8]) -> FeatureStatistics:
    """Statistics per channel, in 0..1, of a sample of frames (T, H, W, 3); large ones thinned out.

    The sample and the thinning are LeRobot's, so that numbers compare with those it computes.
    """
    chosen = frames[sampled(len(frames))]
    height, width = chosen.shape[1:3]
    if max(height, width) >= 300:
        step = int(width / 150) if width > height else int(height / 150)
        chosen = chosen[:, ::step, ::step]
    pixels = chosen.reshape(-1, chosen.shape[-1])
    # Counted by value: a few hundred frames are millions of pixels, of only 256 values.
    counts = np.stack([np.bincount(channel, minlength=256) for channel in pixels.T])
    levels = np.arange(256) / 255.0
    total = counts.sum(axis=1)
    mean = counts @ levels / total
    std = np.sqrt(np.maximum(counts @ levels**2 / total - mean**2, 0.0))
    below = np.cumsum(counts, axis=1)

    def quantile(level: float) -> Floats:
        return np.array(
            [levels[np.searchsorted(row, level * n)] for row, n in zip(below, total, strict=True)]
        )

    present = counts > 0
    return FeatureStatistics(
        mean=mean,
        std=std,
        min=levels[present.argmax(axis=1)],
        max=levels[255 - present[:, ::-1].argmax(axis=1)],
        quantiles={name: quantile(level) for name, level in QUANTILES.items()},
        count=len(chosen),
    )


def merged(parts: Sequence[FeatureStatistics]) -> FeatureStatistics:
    """Statistics of several samples together; quantiles are averaged, which is what LeRobot does.

    Args:
        parts: At least one.
    """
    weight = np.array([max(part.count, 1) for part in parts], dtype=np.float64)
    share = weight / weight.sum()

    def average(values: Sequence[Floats]) -> Floats:
        return np.asarray(share @ np.stack(values), dtype=np.float64)

    mean = average([part.mean for part in parts])
    variance = average([part.std**2 + (part.mean - mean) ** 2 for part in parts])
    shared = [name for name in QUANTILES if all(name in part.quantiles for part in parts)]
    return FeatureStatistics(
        mean=mean,
        std=np.sqrt(variance),
        min=np.min([part.min for part in parts], axis=0),
        max=np.max([part.max for part in parts], axis=0),
        quantiles={name: average([part.quantiles[name] for part in parts]) for name in shared},
        count=sum(part.count for part in parts),
    )
