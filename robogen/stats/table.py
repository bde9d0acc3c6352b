"""Episodes as columns, and the matching of one condition's episodes with another's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Reach = Literal["reached", "not observed", "did not reach", ""]

NOMINAL = "nominal"


@dataclass(frozen=True, kw_only=True)
class EpisodeTable:
    """Columns of equal length, one entry per recorded episode."""

    scene: NDArray[np.object_]
    policy: NDArray[np.object_]
    condition: NDArray[np.object_]
    episode: NDArray[np.int64]
    repeat: NDArray[np.int64]
    success: NDArray[np.float64]
    """0, 1, or NaN where the episode was not scored."""
    progress: NDArray[np.float64]
    """0..1, or NaN."""
    factors: NDArray[np.object_]
    """A tuple of names; empty for the nominal condition."""
    behaviour: NDArray[np.object_]
    """A mapping of names to measurements."""
    reach: NDArray[np.object_]
    """Whether the condition reached the policy: a :data:`Reach`, empty where it was not audited."""

    @classmethod
    def from_columns(cls, columns: Mapping[str, Sequence[Any]]) -> EpisodeTable:
        """Build from plain columns.

        Args:
            columns: ``scene``, ``policy``, ``condition``, ``episode``, ``status`` and ``success``;
                optionally ``repeat``, ``progress``, ``factors``, ``behaviour`` and ``reach``. An
                episode whose status is not ``"scored"`` counts as unscored whatever else it says.
        """
        size = len(columns["scene"])
        scored = np.array([status == "scored" for status in columns["status"]], dtype=bool)

        def objects(name: str, default: Any) -> NDArray[np.object_]:
            column = np.empty(size, dtype=object)
            for index, value in enumerate(columns.get(name, [default] * size)):
                column[index] = default if value is None else value
            return column

        def numbers(name: str) -> NDArray[np.float64]:
            values = columns.get(name, [None] * size)
            filled = [np.nan if value is None else float(value) for value in values]
            return np.where(scored, np.array(filled, dtype=np.float64), np.nan)

        return cls(
            scene=objects("scene", ""),
            policy=objects("policy", ""),
            condition=objects("condition", ""),
            episode=np.array(columns["episode"], dtype=np.int64),
            repeat=np.array(columns.get("repeat", [0] * size), dtype=np.int64),
            success=numbers("success"),
            progress=numbers("progress"),
            factors=objects("factors", ()),
            behaviour=objects("behaviour", {}),
            reach=objects("reach", ""),
        )

    def rows(self, **where: Any) -> NDArray[np.int64]:
        """Indices of the rows that equal every given column value, ordered by episode."""
        keep = np.ones(self.episode.shape, dtype=bool)
        for name, value in where.items():
            keep &= getattr(self, name) == value
        found = np.flatnonzero(keep)
        return found[np.argsort(self.episode[found], kind="stable")]


def matched(
    table: EpisodeTable, reference: NDArray[np.int64], other: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of two conditions that are the same episode, in the order of their episodes.

    Args:
        table: The episodes.
        reference: Row indices, shape (a,), one per episode.
        other: Row indices, shape (b,), one per episode.

    Returns:
        Two arrays of row indices of equal shape (pairs,).
    """
    _, first, second = np.intersect1d(
        table.episode[reference], table.episode[other], assume_unique=True, return_indices=True
    )
    return reference[first], other[second]
