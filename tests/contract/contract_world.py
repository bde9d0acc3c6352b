"""Every scene, factor and policy there is, and how the laws look at them.

Nothing here names one: a file added to ``scenes/``, ``perturbations/`` or ``policies/`` is under
every law at once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from robogen.mj.edit import HEADLIGHT, array_fields
from robogen.mj.world import World
from robogen.perturbations import library as factor_library
from robogen.perturbations.base import Factor
from robogen.perturbations.engine import Perturbation
from robogen.policies import library as policy_library
from robogen.rollout.episode import begin
from robogen.scenes import library as scene_library
from robogen.scenes.scene import TabletopScene, load_tabletop
from robogen.seeding import EpisodeSeed
from robogen.specs import ActionSpec, SceneFacts, Split

SCENES = tuple(scene_library.available())
FACTORS = tuple(factor_library.available())
POLICIES = tuple(policy_library.available())
SPLITS: tuple[Split, ...] = ("train", "eval")
SIZE = 96


@cache
def scene_named(name: str) -> TabletopScene:
    """One scene for all laws; each law leaves it nominal."""
    return load_tabletop(name)


@cache
def factor_named(name: str) -> Factor:
    return factor_library.load_factor(name)


@cache
def action_spec(scene: str) -> ActionSpec:
    return ActionSpec(control_hz=scene_named(scene).spec.control_hz)


def seed_of(scene: str, episode: int = 0) -> EpisodeSeed:
    return EpisodeSeed(domain="evaluate", study=0, scene=scene, episode=episode)


def facts_of(scene: str, episode: int = 0) -> SceneFacts:
    return scene_named(scene).prepare(seed_of(scene, episode))[1]


@cache
def reason(factor: str, scene: str) -> str | None:
    """Why a factor does not apply to a scene."""
    one = Perturbation([(factor_named(factor), 1.0)])
    return one.not_applicable(scene_named(scene).world, facts_of(scene)).get(factor)


def perturb(*names: str, severity: float = 1.0, split: Split = "eval") -> Perturbation:
    return Perturbation([(factor_named(name), severity) for name in names], split=split)


def applicable(scene: str) -> tuple[str, ...]:
    return tuple(name for name in FACTORS if reason(name, scene) is None)


PAIRS = tuple((factor, scene) for scene in SCENES for factor in applicable(scene))
"""Factor and scene, where the factor applies."""


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}/{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}/{index}")
    else:
        yield path, value


# -- what is compared ------------------------------------------------------------------------------


def model_bytes(model: mujoco.MjModel) -> bytes:
    buffer = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer.tobytes()


def bytes_besides_arrays(world: World) -> bytes:
    """The model with every array field and derived statistic put back to nominal."""
    model = copy.copy(world.model)
    for name in array_fields(model):
        getattr(model, name)[...] = getattr(world.edit.nominal, name)
    for name in HEADLIGHT:
        part = name.removeprefix("headlight_")
        getattr(model.vis.headlight, part)[:] = world.edit.nominal_values(name)[0]
    nominal = world.edit.nominal.stat
    for name in ("meaninertia", "meanmass", "meansize", "extent"):
        setattr(model.stat, name, getattr(nominal, name))
    model.stat.center[:] = nominal.center
    return model_bytes(model)


def frames(scene: TabletopScene) -> dict[str, bytes]:
    """What every camera sees now, people's cameras too."""
    return {
        name: scene.render(name, width=SIZE, height=SIZE, profile="fast").tobytes()
        for name in scene.config.cameras
    }


class Tape(NamedTuple):
    """An episode's commands and what they led to."""

    actions: list[NDArray[np.float64]]
    states: list[bytes]
    """Positions and velocities after every control step."""
    progress: list[float]
    success: bool


def state_bytes(scene: TabletopScene) -> bytes:
    """Positions and velocities of the nominal model's joints."""
    return scene.world.data.qpos.tobytes() + scene.world.data.qvel.tobytes()


def play(
    name: str,
    perturbation: Perturbation,
    episode: int = 0,
    *,
    actions: list[NDArray[np.float64]] | None = None,
    scene: TabletopScene | None = None,
) -> Tape:
    """Run the oracle, or replay commands, under a perturbation; stops at success."""
    scene = scene or scene_named(name)
    spec = action_spec(name)
    draws, _, _ = begin(scene, perturbation, seed_of(name, episode))
    filtered = perturbation.action_filter(draws, scene.rest_action(spec))
    tape = Tape([], [state_bytes(scene)], [], False)
    steps = scene.spec.horizon if actions is None else len(actions)
    for step in range(steps):
        expert = actions is None
        wanted = scene.expert_action(spec, filtered.pending()) if expert else actions[step]
        command = filtered(wanted)
        result = scene.step(command, spec)
        tape.actions.append(command)
        tape.states.append(state_bytes(scene))
        tape.progress.append(result.progress)
        if result.success:
            tape = tape._replace(success=True)
            break
    scene.world.edit.restore()
    scene.rebuild(None)
    return tape


@cache
def oracle_tape(scene: str, episode: int = 0) -> Tape:
    """The oracle's nominal episode."""
    return play(scene, Perturbation(), episode)
