"""An episode run again from its recorded commands: the same physics, without the policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robogen.perturbations.engine import Perturbation
from robogen.rollout.start import begin
from robogen.scenes.base import Scene
from robogen.seeding import EpisodeSeed
from robogen.specs import ActionSpec, CameraSpec, Draw, Orientation, RenderProfile


class Moment(NamedTuple):
    """One control step of a rerun, as its cameras show it."""

    step: int
    """0 is the start, before any command."""
    images: dict[str, NDArray[np.uint8]]
    """Frames by camera, with the sensing factors' filters: what a policy would get."""
    instruction: str
    success: bool
    state: NDArray[np.float32]
    """Proprioception (D,), of the parts that were asked for."""


class Rerun(NamedTuple):
    """What a rerun came to, for comparison with the record."""

    draws: Mapping[str, Draw]
    instruction: str
    state_hash: str
    """Of the start."""
    steps: int
    success_step: int | None
    """Control steps until success."""
    progress: float
    behaviour: dict[str, float]


def rerun(
    scene: Scene,
    perturbation: Perturbation,
    seed: EpisodeSeed,
    actions: NDArray[np.float64],
    *,
    action: ActionSpec,
    cameras: Sequence[CameraSpec] = (),
    profile: RenderProfile = "fast",
    orientation: Orientation | None = None,
    state: Sequence[str] = (),
    watch: Callable[[Moment], None] | None = None,
    every: int = 1,
) -> Rerun:
    """Execute recorded applied commands from reset, up to success or the last of them.

    Commands were recorded behind the action filters, so these are not applied again.

    Args:
        scene: The scene, nominal again afterwards.
        perturbation: Factors of the episode's condition.
        seed: The episode's seed.
        actions: Applied commands (steps, dim).
        action: How they are read.
        cameras: Rendered at every step, for ``watch``.
        profile: Render profile.
        orientation: How frames are turned; None: as the scene's policies expect.
        state: State parts to read, for ``watch``.
        watch: Told the start, the end and every so many steps; nothing is rendered without it.
        every: How many.
    """
    draws, instruction, _ = begin(scene, perturbation, seed)
    state_hash = scene.world.state_hash()
    steps, progress, success = 0, 0.0, False

    def look() -> None:
        if watch is None:
            return
        images = scene.images(cameras, profile, orientation)
        if perturbation.has_image_filter:
            for name in images:
                rng = seed.stream("image", steps, name)
                images[name] = perturbation.filter_image(images[name], draws, rng)
        watch(Moment(steps, images, instruction, success, scene.proprioception(state)))

    look()
    for command in actions:
        result = scene.step(command, action)
        steps, progress, success = steps + 1, result.progress, result.success
        over = success or not result.finite
        if over or steps % every == 0 or steps == len(actions):
            look()
        if over:
            break
    behaviour = scene.behaviour()
    scene.world.edit.restore()
    scene.rebuild(None)
    return Rerun(
        draws, instruction, state_hash, steps, steps if success else None, progress, behaviour
    )
