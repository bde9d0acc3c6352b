"""A working scene from somebody's own model of an object: a table, a Panda, the object, a tray."""

from __future__ import annotations

import math
import os
import re
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import mujoco
import numpy as np
from numpy.typing import NDArray

from robogen.errors import ConfigError, SceneError
from robogen.mj.roles import Roles
from robogen.mj.world import World
from robogen.scenes.library import available
from robogen.scenes.scene import load_tabletop
from robogen.seeding import EpisodeSeed

_OPENING = 0.08
"""Between the open fingers of the Panda's hand [m]."""
_WIDEST = 0.072
"""Widest object that the fingers get around when they are a few millimetres off [m]."""
_FLATTEST = 0.015
_LONGEST = 0.13
"""Longest object that lies inside the tray [m]."""
_TALLEST = 0.16
_FINGERS = 0.036
"""How deep the fingers reach around an object below its top [m]."""
_BESIDE, _ALONG = 0.008, 0.02
"""How far the root may be beside the object's middle [m], across the fingers and along them."""
_INSIDE = 0.065
"""Highest root above an object's underside that the tray's inside still contains [m]."""
_HEAVIEST = 2.0
"""What a grasp of two small pads carries at ordinary friction [kg]."""


class ObjectFacts(NamedTuple):
    """What the scene file needs to know of an object."""

    low: NDArray[np.float64]
    """Lowest corner (3,) of its bounding box in the root's frame [m]."""
    high: NDArray[np.float64]
    mass: float
    """[kg]"""


class NewScene(NamedTuple):
    """What was written."""

    file: Path
    name: str
    facts: ObjectFacts


def write_scene(name: str, model: Path, folder: Path, *, force: bool = False) -> NewScene:
    """Write ``<folder>/scenes/<name>.yaml`` for an object and build it once.

    Args:
        name: Name of the scene and of its object.
        model: MJCF with exactly one root body; stays where it is.
        folder: Configuration folder, for ``--config-dir``.
        force: Replace an existing file.

    Raises:
        ConfigError: The name is not usable or taken.
        SceneError: The model cannot be read, or the gripper and the tray are not made for it.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(
            f"A scene's name is made of small letters, digits and underscores, got '{name}'. "
            "Choose such a name, e.g. red_mug."
        )
    file = folder / "scenes" / f"{name}.yaml"
    if name in ("tray", "robot", "target", "gripper"):
        raise ConfigError(f"'{name}' means something else inside a scene. Choose another name.")
    if file.exists() and not force:
        raise ConfigError(f"{file} exists. Choose another name, or pass --force to replace it.")
    if name in available():
        raise ConfigError(f"There is a shipped scene '{name}' already. Choose another name.")
    facts = examine(model)
    text = scene_text(name, facts, model=_reference(model, file), source=model.name)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"Cannot write {file} ({error.strerror or error}). Pass a folder that you can write to "
            "with --config-dir."
        ) from error
    try:
        _build_once(name, folder)
    except Exception:
        file.unlink()
        raise
    return NewScene(file, name, facts)


def _reference(model: Path, file: Path) -> str:
    """The model as the scene file names it: relative to it where that is possible."""
    try:
        return Path(os.path.relpath(model.resolve(), file.parent.resolve())).as_posix()
    except ValueError:  # another drive
        return model.resolve().as_posix()


def _build_once(name: str, folder: Path) -> None:
    """Load the new scene and start an episode, so that what is wrong is said now."""
    scene = load_tabletop(name, extra=[folder])
    try:
        seed = EpisodeSeed(domain="validate", study=0, scene=name, episode=0)
        initial, _ = scene.prepare(seed)
        scene.reset(initial)
        scene.check_task()
    finally:
        scene.close()


# -- the object ------------------------------------------------------------------------------------


def examine(model: Path) -> ObjectFacts:
    """Measure an object and check that a parallel gripper can put it into the tray.

    Raises:
        SceneError: It cannot.
    """
    if not model.is_file():
        raise SceneError(f"There is no file {model}. Pass the MJCF (.xml) of one object.")
    try:
        spec = mujoco.MjSpec.from_file(str(model))
    except Exception as error:
        reason = " ".join(str(error).split())
        raise SceneError(f"MuJoCo cannot read {model}: {reason}. Mend the model.") from error
    root = _root(spec, model)
    _needs_contact(root, model)
    if any(joint.type == mujoco.mjtJoint.mjJNT_FREE for joint in root.joints):
        raise SceneError(
            f"The root body '{root.name}' of {model} has a free joint already; the scene adds one. "
            "Remove <freejoint/> from the model."
        )
    try:
        world = World.compiled(spec, Roles(bodies={}, surfaces={}, lights=(), cameras={}), {})
    except Exception as error:
        reason = " ".join(str(error).split())
        raise SceneError(f"MuJoCo cannot compile {model}: {reason}. Mend the model.") from error
    world.forward()
    low, high = world.extent(root.name)
    facts = ObjectFacts(low, high, world.mass(root.name))
    _fits(facts, model)
    return facts


def _root(spec: Any, model: Path) -> Any:
    roots = list(spec.worldbody.bodies)
    if len(roots) != 1 or not roots[0].name:
        names = ", ".join(body.name or "(unnamed)" for body in roots) or "none"
        raise SceneError(
            f"{model} must have exactly one named body directly in worldbody, got {names}. Wrap "
            'the object\'s parts in one <body name="...">.'
        )
    if list(spec.worldbody.geoms):
        raise SceneError(
            f"{model} has geoms directly in worldbody, which belong to no object. Move them into "
            f"the body '{roots[0].name}', or leave a floor and the like out."
        )
    return roots[0]


def _geoms(body: Any) -> list[Any]:
    return [*body.geoms, *(geom for child in body.bodies for geom in _geoms(child))]


def _needs_contact(root: Any, model: Path) -> None:
    geoms = _geoms(root)
    if not geoms:
        raise SceneError(f"The body '{root.name}' of {model} has no geoms. Give it a shape.")
    if not any(geom.contype and geom.conaffinity for geom in geoms):
        raise SceneError(
            f"No geom of the body '{root.name}' of {model} collides (contype and conaffinity are "
            f"0 on all {len(geoms)}), so it would fall through the table. Let at least one collide."
        )


def _fits(facts: ObjectFacts, model: Path) -> None:
    size = facts.high - facts.low
    cm = " × ".join(f"{100 * side:.1f}" for side in size)
    narrow, long = sorted(size[:2].tolist())
    if narrow > _WIDEST:
        raise SceneError(
            f"{model} is {cm} cm (x, y, z): too wide for the gripper, which opens "
            f"{100 * _OPENING:.0f} cm and needs an object of at most {100 * _WIDEST:.1f} cm in x "
            "or y. Scale it, or turn it so that a narrow side lies along x or y; are the units "
            "metres?"
        )
    if math.hypot(narrow, long) > _LONGEST * math.sqrt(2) or long > _LONGEST:
        raise SceneError(
            f"{model} is {cm} cm (x, y, z): too long for the tray, which takes "
            f"{100 * _LONGEST:.0f} cm. Scale it, or write a scene with another receiver."
        )
    if not _FLATTEST <= size[2] <= _TALLEST:
        raise SceneError(
            f"{model} is {cm} cm (x, y, z): its height must lie in {100 * _FLATTEST:.1f}.."
            f"{100 * _TALLEST:.0f} cm for a grasp from above. Scale it, or lay it down."
        )
    centre = (facts.low + facts.high) / 2
    across = 0 if _turned(size) else 1
    if abs(centre[across]) > _BESIDE or abs(centre[1 - across]) > _ALONG:
        away = float(np.hypot(centre[0], centre[1]))
        raise SceneError(
            f"The root of {model} is {100 * away:.1f} cm beside the middle of the object, and "
            "grasps go to the root. Shift what is in the body by "
            f'pos="{-centre[0]:.4f} {-centre[1]:.4f} 0".'
        )
    if facts.mass > _HEAVIEST:
        raise SceneError(
            f"{model} weighs {facts.mass:.2f} kg, more than the {_HEAVIEST:g} kg that the gripper "
            "holds. Set mass or density in the model (MuJoCo's density is 1000 kg/m³ by default)."
        )


def _turned(size: NDArray[np.float64]) -> bool:
    """Whether the object's narrow side is x, so that it starts turned by a right angle."""
    return bool(size[0] < 0.9 * size[1])


# -- the file --------------------------------------------------------------------------------------


def scene_text(name: str, facts: ObjectFacts, *, model: str, source: str) -> str:
    """The scene file of an object."""
    size = facts.high - facts.low
    reach = np.maximum(np.abs(facts.low[:2]), np.abs(facts.high[:2]))
    # The fingers close along the table's y: an object whose narrow side is x starts turned.
    turned = _turned(size)
    around = math.pi / 2 if turned else 0.0
    narrow = float(size[0] if turned else size[1])
    alike = turned or size[0] <= 1.1 * size[1]
    template = (resources.files("robogen") / "templates" / "scene.yaml.j2").read_text("utf-8")
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, autoescape=False
    )
    depth = min(0.55, _FINGERS / float(size[2]))
    return (
        environment.from_string(template).render(
            name=name,
            key=name,
            words=name.replace("_", " "),
            model=model,
            source=source,
            footprint=round(float(np.hypot(*reach)) + 0.002, 3),
            yaw_low=round(around - 0.5, 3),
            yaw_high=round(around + 0.5, 3),
            across="x" if turned else "y",
            inside=-facts.low[2] <= _INSIDE,
            reach=round(max(0.06, float(np.abs([facts.low[2], facts.high[2]]).max()) + 0.03), 3),
            symmetry=90 if alike else 180,
            depth=round(depth, 3),
            largest=round(max(1.0, min(1.3, _WIDEST / narrow)), 2),
        )
        + "\n"
    )
