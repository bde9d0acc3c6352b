"""What is needed to work on a simulator that somebody else's environment owns.

Its model was compiled elsewhere, its names are not ours, and its reset writes to both model and
state. Here roles are found by name pattern, states are kept and put back exactly, and what an
environment wrote into its model is carried over to a recompiled one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from robogen.mj.edit import array_fields
from robogen.mj.roles import SURFACE_ROLES, CameraKind, Roles
from robogen.mj.world import World

BODY = "body:"
"""Prefix of a surface's pattern that means bodies instead of geoms."""
_WHOLE = mujoco.mjtState.mjSTATE_INTEGRATION.value
_COMMON = _WHOLE & ~mujoco.mjtState.mjSTATE_XFRC_APPLIED.value
"""All of it that does not grow with the number of bodies."""
_NOT_CARRIED = ("tex_data", "names_map")
_REACH_ABOVE = 0.25
"""What hangs less than this above the table [m] covers it."""


# -- roles -----------------------------------------------------------------------------------------


def _names(model: mujoco.MjModel, kind: str) -> list[str]:
    """All names of a kind (``body``, ``geom``, ``light``, ``camera``, ``joint``) by id."""
    counts = {
        "body": model.nbody,
        "geom": model.ngeom,
        "light": model.nlight,
        "camera": model.ncam,
        "joint": model.njnt,
    }
    element = getattr(model, kind)
    return [element(number).name for number in range(counts[kind])]


def matching(names: Iterable[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """Names that match any shell-style pattern, in the order of the patterns."""
    pool = [name for name in names if name]
    found = [name for pattern in patterns for name in pool if fnmatchcase(name, pattern)]
    return tuple(dict.fromkeys(found))


class Found(NamedTuple):
    """Roles of a model, and what had no match."""

    roles: Roles
    missing: Mapping[str, tuple[str, ...]]
    """Patterns by role (or ``camera``) that nothing matched."""


def find_roles(
    model: mujoco.MjModel,
    patterns: Mapping[str, Sequence[str]],
    cameras: Mapping[str, CameraKind],
) -> Found:
    """Look up roles by name pattern.

    Args:
        model: The compiled model.
        patterns: Shell-style patterns by role. Body roles name bodies; surfaces name geoms, or
            bodies with the prefix ``body:``. ``lights`` defaults to every light.
        cameras: Kind by camera name.
    """
    bodies, geoms = _names(model, "body"), _names(model, "geom")
    missing: dict[str, tuple[str, ...]] = {}
    kept: dict[str, dict[str, tuple[str, ...]]] = {"bodies": {}, "geoms": {}, "wholes": {}}
    for role, wanted in patterns.items():
        if role == "lights":
            continue
        if role in SURFACE_ROLES:
            whole = [p.removeprefix(BODY) for p in wanted if p.startswith(BODY)]
            kept["wholes"][role] = matching(bodies, whole)
            kept["geoms"][role] = matching(geoms, [p for p in wanted if not p.startswith(BODY)])
            hit = kept["wholes"][role] + kept["geoms"][role]
        else:
            hit = kept["bodies"][role] = matching(bodies, wanted)
        if wanted and not hit:
            missing[role] = tuple(wanted)
    lights: tuple[str | int, ...] = tuple(range(model.nlight))
    if "lights" in patterns:
        lights = matching(_names(model, "light"), patterns["lights"])
        if patterns["lights"] and not lights:
            missing["lights"] = tuple(patterns["lights"])
    have = _names(model, "camera")
    absent = tuple(name for name in cameras if name not in have)
    if absent:
        missing["camera"] = absent
    return Found(
        Roles(
            bodies=kept["bodies"],
            surfaces=kept["geoms"],
            surface_bodies=kept["wholes"],
            lights=lights,
            cameras={name: kind for name, kind in cameras.items() if name in have},
        ),
        missing,
    )


def inventory(model: mujoco.MjModel, role: str) -> list[str]:
    """Names that a role's patterns are matched against, for messages."""
    kind = "body"
    if role in SURFACE_ROLES:
        kind = "geom"
    elif role in ("lights", "camera", "joint"):
        kind = role.removesuffix("s")
    return [name for name in _names(model, kind) if name]


def joints_matching(model: mujoco.MjModel, patterns: Sequence[str]) -> tuple[str, ...]:
    """Names of scalar joints that match."""
    scalar = model.jnt_type >= int(mujoco.mjtJoint.mjJNT_SLIDE)
    return matching([n for n, s in zip(_names(model, "joint"), scalar, strict=True) if s], patterns)


# -- state -----------------------------------------------------------------------------------------


class State(NamedTuple):
    """An integration state, for the model it was taken from and for an extended one."""

    whole: NDArray[np.float64]
    common: NDArray[np.float64]


def _read(world: World, what: int) -> NDArray[np.float64]:
    state = np.empty(mujoco.mj_stateSize(world.model, what))
    mujoco.mj_getState(world.model, world.data, state, what)
    return state


def keep_state(world: World) -> State:
    """The state of a world as it is now."""
    return State(_read(world, _WHOLE), _read(world, _COMMON))


def put_state(world: World, state: State) -> None:
    """Put a state back bit for bit, with everything that follows from it recomputed.

    The world may be a recompilation with more bodies, provided that they have no joints.
    """
    size = mujoco.mj_stateSize(world.model, _WHOLE)
    what, values = (_WHOLE, state.whole) if state.whole.size == size else (_COMMON, state.common)
    mujoco.mj_setState(world.model, world.data, values, what)
    mujoco.mj_forward(world.model, world.data)
    mujoco.mj_setState(world.model, world.data, values, what)  # warm starts, which forward moved


def fixed_places(model: mujoco.MjModel) -> bytes:
    """Where a model has its bodies and sites: environments place fixtures and goals in there."""
    return b"".join(getattr(model, n).tobytes() for n in ("body_pos", "body_quat", "site_pos"))


def free_roots(world: World, role: str) -> tuple[str, ...]:
    """Bodies of a role that hang on a free joint of their own."""
    model = world.model
    free = int(mujoco.mjtJoint.mjJNT_FREE)
    found = []
    for name in world.roles.bodies.get(role, ()):
        body = model.body(name)
        if body.jntnum[0] and model.jnt_type[body.jntadr[0]] == free:
            found.append(name)
    return tuple(found)


# -- recompilation ---------------------------------------------------------------------------------


def carry_over(
    source: mujoco.MjModel, plain: mujoco.MjModel, target: mujoco.MjModel
) -> tuple[str, ...]:
    """Repeat in a recompiled model what an environment wrote into its own.

    Args:
        source: The environment's model.
        plain: Its specification compiled without edits.
        target: The specification compiled with edits that only append elements.

    Returns:
        Names of the fields that were carried over.

    Raises:
        ValueError: The specification is not that of the environment's model.
    """
    for kind in ("body", "geom", "camera", "joint"):
        theirs, ours = _names(source, kind), _names(plain, kind)
        if theirs != ours or _names(target, kind)[: len(ours)] != ours:
            raise ValueError(f"{kind} names or their order differ")
    carried = []
    for name in array_fields(source):
        if name in _NOT_CARRIED or name.startswith("name_"):
            continue
        theirs, ours, new = (getattr(m, name) for m in (source, plain, target))
        if theirs.shape != ours.shape:
            raise ValueError(f"{name} has shape {theirs.shape}, recompiled {ours.shape}")
        rows = np.flatnonzero((theirs != ours).reshape(len(theirs), -1).any(axis=1))
        if rows.size:
            new[rows] = theirs[rows]
            carried.append(name)
    for part in ("headlight", "global_", "map", "quality", "scale", "rgba"):
        _copy_struct(getattr(source.vis, part), getattr(target.vis, part))
    _copy_struct(source.opt, target.opt)
    target.stat.extent, target.stat.center[:] = source.stat.extent, source.stat.center
    return tuple(carried)


def _copy_struct(source: Any, target: Any) -> None:
    """Copy the numbers of one of the model's plain structures."""
    for name in dir(source):
        value = None if name.startswith("_") else getattr(source, name)
        if isinstance(value, np.ndarray):
            getattr(target, name)[:] = value
        elif isinstance(value, int | float):
            setattr(target, name, value)


def model_hash(model: mujoco.MjModel) -> str:
    """Hash of a model's numbers: equal on every machine, whatever path it was read from."""
    digest = hashlib.blake2b(digest_size=12)
    for name in array_fields(model):
        if name != "names_map" and not name.startswith("name_"):
            digest.update(name.encode())
            digest.update(getattr(model, name).tobytes())
    return digest.hexdigest()


# -- where things are ------------------------------------------------------------------------------


class Disc(NamedTuple):
    """A disc on the table that something covers: centre and radius [m], world frame."""

    x: float
    y: float
    radius: float


def _boxes(world: World, geoms: NDArray[np.intp]) -> tuple[NDArray[np.float64], ...]:
    """World bounds (n, 3), (n, 3) [m] of geoms; planes are left out by the caller."""
    model, data = world.model, world.data
    rotation = data.geom_xmat[geoms].reshape(-1, 3, 3)
    middle = np.einsum("nij,nj->ni", rotation, model.geom_aabb[geoms, :3]) + data.geom_xpos[geoms]
    half = np.einsum("nij,nj->ni", np.abs(rotation), model.geom_aabb[geoms, 3:])
    return middle - half, middle + half


def _solid(world: World, geoms: NDArray[np.intp]) -> NDArray[np.intp]:
    kinds = world.model.geom_type[geoms]
    return np.asarray(geoms[kinds != int(mujoco.mjtGeom.mjGEOM_PLANE)])


class Surface(NamedTuple):
    """The top of the table: height and bounds [m], world frame."""

    height: float
    x_low: float
    x_high: float
    y_low: float
    y_high: float


def _exact_boxes(world: World, geoms: NDArray[np.intp]) -> tuple[NDArray[np.float64], ...]:
    """As :func:`_boxes`, with meshes by their vertices: the box of a turned mesh is too large."""
    model, data = world.model, world.data
    low, high = _boxes(world, geoms)
    for row, geom in enumerate(geoms.tolist()):
        if model.geom_type[geom] == int(mujoco.mjtGeom.mjGEOM_MESH):
            mesh = int(model.geom_dataid[geom])
            start, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
            turned = model.mesh_vert[start : start + count] @ data.geom_xmat[geom].reshape(3, 3).T
            low[row] = turned.min(axis=0) + data.geom_xpos[geom]
            high[row] = turned.max(axis=0) + data.geom_xpos[geom]
    return low, high


def table_top(world: World) -> Surface | None:
    """Where things can stand: the table's highest wide geom that collides; None without a table."""
    touched = _solid(world, world.edit.colliding_geoms("table"))
    geoms = touched if touched.size else _solid(world, world.edit.geoms("table"))
    if not geoms.size:
        return None
    low, high = _exact_boxes(world, geoms)
    area = np.prod(high[:, :2] - low[:, :2], axis=1)
    wide = area >= 0.5 * area.max()  # not the walls of a bin
    height = float(high[wide, 2].max())
    widest = int(np.where(wide & (high[:, 2] > height - 0.03), area, -1.0).argmax())
    return Surface(
        float(high[widest, 2]),
        float(low[widest, 0]),
        float(high[widest, 0]),
        float(low[widest, 1]),
        float(high[widest, 1]),
    )


def covered(world: World, height: float) -> list[Disc]:
    """Discs of the table that bodies stand on or hang low over."""
    surfaces = np.concatenate([world.edit.geoms(role) for role in SURFACE_ROLES])
    every = np.arange(world.model.ngeom)
    seen = (world.model.geom_rgba[every, 3] > 0) & (world.model.geom_bodyid[every] > 0)
    geoms = _solid(world, np.setdiff1d(every[seen], surfaces).astype(np.intp))
    discs: list[Disc] = []
    if not geoms.size:
        return discs
    low, high = _boxes(world, geoms)
    near = (low[:, 2] < height + _REACH_ABOVE) & (high[:, 2] > height - 0.02)
    for body in np.unique(world.model.geom_bodyid[geoms[near]]).tolist():
        rows = near & (world.model.geom_bodyid[geoms] == body)
        corner, other = low[rows, :2].min(axis=0), high[rows, :2].max(axis=0)
        middle, radius = (corner + other) / 2, float(np.linalg.norm(other - corner)) / 2
        discs.append(Disc(float(middle[0]), float(middle[1]), radius))
    return discs
