"""Every scene, factor and policy there is, and how the laws look at them.

Nothing here names one: a file added to ``scenes/``, ``perturbations/`` or ``policies/`` is under
every law at once. Other people's environments are under the same laws where ``ROBOGEN_LAW_SCENES``
names them, e.g. ``metaworld/drawer-open-v3 robosuite/Lift``, in a Python environment that has
their packages; the tests' own Gymnasium environment always is.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import os
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
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
from robogen.rollout.start import begin
from robogen.scenes import library as scene_library
from robogen.scenes.base import Scene
from robogen.scenes.load import load_scene
from robogen.seeding import EpisodeSeed
from robogen.specs import ActionSpec, SceneFacts, Split

TOYS = Path(__file__).parents[1] / "adapters"
"""Where the tests' own environment and its family file lie."""
EXTRA = (TOYS / "config",)
sys.path.append(str(TOYS))

ASKED = tuple(os.environ.get("ROBOGEN_LAW_SCENES", "").replace(",", " ").split())
SCENES = ASKED or (*scene_library.available(), "toy/ToyTable-v0")
OWN = tuple(name for name in SCENES if "/" not in name)
"""Scenes built from our scene files."""
ADAPTED = tuple(name for name in SCENES if "/" in name)
FACTORS = tuple(factor_library.available())
POLICIES = tuple(policy_library.available())
SPLITS: tuple[Split, ...] = ("train", "eval")
SIZE = 96
TAPE = 40
"""Commands on the tape of a scene without an expert."""
REACH = 0.3
"""Size of a random command, away from rest."""


@cache
def scene_named(name: str) -> Scene:
    """One scene for all laws; each law leaves it nominal."""
    return build(name)


def build(name: str, render: str = "fast") -> Scene:
    """A scene of its own; adapted ones are drawn without shadows, which costs a tenth."""
    with warnings.catch_warnings():
        if name in ASKED and name in ADAPTED:
            warnings.simplefilter("ignore")  # other people's packages warn when they are imported
        return load_scene(name, overrides={"render": render} if "/" in name else None, extra=EXTRA)


def few(scene: str, own: int, adapted: int) -> int:
    """How often a law looks: other people's environments take longer."""
    return own if scene in OWN else adapted


@cache
def factor_named(name: str) -> Factor:
    return factor_library.load_factor(name)


@cache
def action_spec(scene: str) -> ActionSpec:
    return scene_named(scene).spec.action


@cache
def has_expert(scene: str) -> bool:
    one = scene_named(scene)
    one.reset(one.prepare(seed_of(scene))[0])
    return one.has_expert


def seed_of(scene: str, episode: int = 0) -> EpisodeSeed:
    return EpisodeSeed(domain="evaluate", study=0, scene=scene, episode=episode)


@cache
def facts_of(scene: str, episode: int = 0) -> SceneFacts:
    return scene_named(scene).prepare(seed_of(scene, episode))[1]


@cache
def reason(factor: str, scene: str) -> str | None:
    """Why a factor does not apply to a scene."""
    one = Perturbation([(factor_named(factor), 1.0)])
    facts = facts_of(scene)
    return one.not_applicable(scene_named(scene).world, facts).get(factor)


def perturb(*names: str, severity: float = 1.0, split: Split = "eval") -> Perturbation:
    return Perturbation([(factor_named(name), severity) for name in names], split=split)


def applicable(scene: str) -> tuple[str, ...]:
    return tuple(name for name in FACTORS if reason(name, scene) is None)


PAIRS = tuple((factor, scene) for scene in SCENES for factor in applicable(scene))
"""Factor and scene, where the factor applies."""


def couples(scene: str) -> list[tuple[str, str]]:
    """Pairs of factors: all of them on our own scenes, every seventh on others."""
    return [*itertools.combinations(applicable(scene), 2)][:: few(scene, 1, 7)]


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


def model_digest(model: mujoco.MjModel) -> str:
    """Hash of every byte of a model; some are hundreds of megabytes."""
    buffer = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return hashlib.blake2b(buffer, digest_size=16).hexdigest()


def digest_besides_arrays(world: World) -> str:
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
    return model_digest(model)


def cameras(scene: Scene) -> tuple[str, ...]:
    """All of them, people's too."""
    return (*scene.spec.cameras, *scene.human_cameras)


def frames(scene: Scene) -> dict[str, bytes]:
    """What every camera sees now."""
    return {
        name: scene.render(name, width=SIZE, height=SIZE, profile="fast").tobytes()
        for name in cameras(scene)
    }


class Tape(NamedTuple):
    """An episode's commands and what they led to."""

    actions: list[NDArray[np.float64]]
    states: list[bytes]
    """Positions and velocities after every control step."""
    progress: list[float]
    success: bool


def state_bytes(scene: Scene) -> bytes:
    """Positions and velocities of the nominal model's joints."""
    return scene.world.data.qpos.tobytes() + scene.world.data.qvel.tobytes()


def play(
    name: str,
    perturbation: Perturbation,
    episode: int = 0,
    *,
    actions: list[NDArray[np.float64]] | None = None,
    scene: Scene | None = None,
) -> Tape:
    """Run the expert, or replay commands, under a perturbation; stops at success.

    Without an expert the commands are random ones, the same for the same scene and episode.
    """
    expert = actions is None and has_expert(name)
    scene = scene or scene_named(name)
    spec = action_spec(name)
    draws, _, _ = begin(scene, perturbation, seed_of(name, episode))
    filtered = perturbation.action_filter(draws, scene.rest_action(spec))
    if actions is None and not expert:
        random = np.random.default_rng([episode, spec.dim]).uniform(-REACH, REACH, (TAPE, spec.dim))
        actions = [*(scene.rest_action(spec) + random)]
    tape = Tape([], [state_bytes(scene)], [], False)
    for step in range(scene.spec.horizon if actions is None else len(actions)):
        wanted = scene.expert_action(spec, filtered.pending()) if expert else actions[step]
        command = filtered(wanted)
        result = scene.step(command, spec)
        assert result.finite
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
def nominal_tape(scene: str, episode: int = 0) -> Tape:
    """The nominal episode of the expert, or of chance."""
    return play(scene, Perturbation(), episode)
