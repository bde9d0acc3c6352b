"""Frames of demonstrations, upright, whenever they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from robogen.datasets.schema import DemoEpisode, DemoMeta
from robogen.errors import SceneError
from robogen.scenes.base import Scene
from robogen.specs import Orientation, turned

if TYPE_CHECKING:
    from robogen.collect import CollectionRecipe


def upright(
    images: Mapping[str, NDArray[np.uint8]], orientation: Orientation
) -> dict[str, NDArray[np.uint8]]:
    """Frames (T, H, W, 3) by camera, turned back."""
    return {n: np.stack([turned(f, orientation) for f in frames]) for n, frames in images.items()}


class Again:
    """Frames of a demonstration that was made without them: made once more, looking."""

    def __init__(
        self, scene: Scene, demo: DemoEpisode, recipe: CollectionRecipe, meta: DemoMeta
    ) -> None:
        self._scene, self._demo, self._recipe, self._meta = scene, demo, recipe, meta
        self._frames: dict[int, dict[str, NDArray[np.uint8]]] = {}
        """Upright, by step and camera."""

    def __call__(self, camera: str, steps: Sequence[int]) -> NDArray[np.uint8]:
        """Frames (n, H, W, 3) of a camera at these steps."""
        missing = sorted({*steps} - self._frames.keys())
        if missing:
            self._look(missing)
        return np.stack([self._frames[step][camera] for step in steps])

    def _look(self, steps: list[int]) -> None:
        from robogen.collect import demonstrate

        again = demonstrate(
            self._scene,
            self._demo.info.index,
            self._recipe,
            meta=self._meta,
            watched=lambda step: step in steps,
        )
        if again is None or not np.array_equal(again.action, self._demo.action):
            raise SceneError(
                f"Scene '{self._meta.scene}' does not repeat itself: its expert acts differently "
                "from the same start. Give demonstrations: dataset=FOLDER."
            )
        images = upright(again.images, self._scene.spec.orientation)
        for place, step in enumerate(steps):
            self._frames[step] = {name: frames[place] for name, frames in images.items()}


def held(
    images: Mapping[str, NDArray[np.uint8]],
) -> Callable[[str, Sequence[int]], NDArray[np.uint8]]:
    """Frames (T, H, W, 3) by camera, handed out by camera and steps."""
    return lambda camera, steps: images[camera][list(steps)]
