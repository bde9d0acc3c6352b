"""What the parts of a compiled scene mean to a factor: roles resolved to MuJoCo ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import mujoco
import numpy as np
from numpy.typing import NDArray

CameraKind = Literal["third_person", "wrist"]
BODY_ROLES = ("manipulated", "receiver", "fixture", "robot")
SURFACE_ROLES = ("table", "floor", "background")


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Names behind each role; ids differ between compilations, names do not.

    A body role covers the named bodies and everything attached below them.
    """

    bodies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    surfaces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Geom names of the table, the floor and the background."""
    surface_bodies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Bodies whose own geoms, named or not, belong to a surface."""
    lights: tuple[str | int, ...] = ()
    """Names, or ids of lights without one."""
    cameras: Mapping[str, CameraKind] = field(default_factory=dict)

    def body_ids(self, model: mujoco.MjModel, role: str) -> NDArray[np.intp]:
        """Ids of all bodies under a body role, ascending; empty when the role is unused."""
        roots = {model.body(name).id for name in self.bodies.get(role, ())}
        inside: set[int] = set()
        for body in range(model.nbody):
            parent = int(model.body_parentid[body])
            if body in roots or (body != 0 and parent in inside):
                inside.add(body)
        return np.array(sorted(inside), dtype=np.intp)

    def geom_ids(self, model: mujoco.MjModel, role: str) -> NDArray[np.intp]:
        """Ids of all geoms of a body or surface role, ascending."""
        if role in SURFACE_ROLES:
            ids = {model.geom(name).id for name in self.surfaces.get(role, ())}
            whole = [model.body(name).id for name in self.surface_bodies.get(role, ())]
            ids |= set(np.flatnonzero(np.isin(model.geom_bodyid, whole)).tolist())
            return np.array(sorted(ids), dtype=np.intp)
        bodies = self.body_ids(model, role)
        return np.flatnonzero(np.isin(model.geom_bodyid, bodies)).astype(np.intp)

    def material_ids(self, model: mujoco.MjModel, role: str) -> NDArray[np.intp]:
        """Materials worn by a role's geoms that nothing outside the role wears."""
        inside = self.geom_ids(model, role)
        worn = set(model.geom_matid[inside].tolist()) - {-1}
        outside = np.setdiff1d(np.arange(model.ngeom), inside)
        shared = set(model.geom_matid[outside].tolist())
        return np.array(sorted(worn - shared), dtype=np.intp)

    def texture_ids(self, model: mujoco.MjModel, role: str) -> NDArray[np.intp]:
        """RGB textures of a role's own materials that no other material uses."""
        slot = int(mujoco.mjtTextureRole.mjTEXROLE_RGB)
        own = self.material_ids(model, role)
        used = set(model.mat_texid[own, slot].tolist()) - {-1}
        others = np.setdiff1d(np.arange(model.nmat), own)
        shared = set(model.mat_texid[others].ravel().tolist())
        return np.array(sorted(used - shared), dtype=np.intp)

    def camera_ids(self, model: mujoco.MjModel, kind: CameraKind) -> NDArray[np.intp]:
        """Ids of the cameras of a kind."""
        names = [name for name, its_kind in self.cameras.items() if its_kind == kind]
        return np.array(sorted(model.camera(name).id for name in names), dtype=np.intp)

    def light_ids(self, model: mujoco.MjModel) -> NDArray[np.intp]:
        """Ids of the scene's lights."""
        return np.array(sorted(model.light(light).id for light in self.lights), dtype=np.intp)
