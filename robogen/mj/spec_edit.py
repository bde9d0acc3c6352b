"""Changes that need recompilation: scaled objects and decorations without joints or contacts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import mujoco
import numpy as np

from robogen.errors import FactorError
from robogen.mj.roles import Roles

Shape = Literal["box", "cylinder", "sphere", "capsule", "ellipsoid", "cone", "torus"]
_TYPES = {
    "box": mujoco.mjtGeom.mjGEOM_BOX,
    "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
    "sphere": mujoco.mjtGeom.mjGEOM_SPHERE,
    "capsule": mujoco.mjtGeom.mjGEOM_CAPSULE,
    "ellipsoid": mujoco.mjtGeom.mjGEOM_ELLIPSOID,
}
_CONE_EDGES = 16
_TORUS_RESOLUTION = 12

Rgba = tuple[float, float, float, float]
Vector = tuple[float, float, float]
UPRIGHT = (1.0, 0.0, 0.0, 0.0)


class Part(NamedTuple):
    """One primitive of a decoration, in the decoration's frame (origin on the table, z up)."""

    shape: Shape
    size: Vector
    """MuJoCo's size of the shape [m]; ``cone``: bottom radius, half height, top radius; ``torus``
    (its hole along z): radius of the ring's middle line, radius of the tube, unused."""
    position: Vector
    rgba: Rgba
    quat_wxyz: tuple[float, float, float, float] = UPRIGHT


class SpecEdit:
    """Edits on a copy of the nominal specification, for one episode.

    Args:
        spec: The copy; compiled by the caller afterwards.
        roles: Names behind roles.
        author: Factor whose edits follow.
        ground: Height [m] that decorations stand at.
        group: Geom group of decorations, one that is drawn.
    """

    def __init__(
        self,
        spec: mujoco.MjSpec,
        roles: Roles,
        author: str = "",
        ground: float = 0.0,
        group: int = 0,
    ) -> None:
        self.spec = spec
        self.ground = ground
        self.group = group
        self.roles = roles
        self.author = author
        self.sizes: dict[str, float] = {}
        """Scale factors given to objects, by body name: who places them needs their new height."""
        self.decorations: list[str] = []
        """Names of the bodies added to be seen."""
        self._evidence: dict[str, dict[str, str]] = {}

    def evidence(self, author: str) -> dict[str, str]:
        """What a factor changed here, by element, in words."""
        return dict(self._evidence.get(author, {}))

    def moved(self, author: str) -> bool:
        """Whether this factor changed anything."""
        return bool(self._evidence.get(author))

    # -- size ------------------------------------------------------------------------------------

    def scale(self, role: str, factor: float) -> None:
        """Scale every object of a body role about its root frame; mass follows the volume.

        Raises:
            FactorError: The role has no body, or one of its geoms is not a primitive.
        """
        names = self.roles.bodies.get(role, ())
        if not names:
            raise FactorError(f"Factor '{self.author}' found no '{role}' object to scale.")
        for name in names:
            if name in self.sizes:
                raise FactorError(
                    f"Factor '{self.author}' scales '{name}', which another factor already scaled."
                )
            self._scale_body(self.spec.body(name), factor, root=True)
            self.sizes[name] = factor
            if factor != 1.0:
                self._evidence.setdefault(self.author, {})[name] = f"scaled by {factor:.6g}"

    def _scale_body(self, body: mujoco.MjsBody, factor: float, *, root: bool) -> None:
        if not root:
            body.pos = factor * np.asarray(body.pos)
        if body.explicitinertial:
            body.mass *= factor**3
            body.ipos = factor * np.asarray(body.ipos)
            body.inertia = factor**5 * np.asarray(body.inertia)
            body.fullinertia = factor**5 * np.asarray(body.fullinertia)  # NaN when unused
        for geom in body.geoms:
            if geom.type == mujoco.mjtGeom.mjGEOM_MESH:
                raise FactorError(
                    f"Factor '{self.author}' cannot scale '{body.name}': it has mesh geoms. Leave "
                    "this factor out for this scene."
                )
            geom.size = factor * np.asarray(geom.size)
            geom.pos = factor * np.asarray(geom.pos)
            geom.fromto = factor * np.asarray(geom.fromto)  # NaN when unused
            geom.mass *= factor**3  # NaN when it follows from density
        for site in body.sites:
            site.pos = factor * np.asarray(site.pos)
            site.size = factor * np.asarray(site.size)
            site.fromto = factor * np.asarray(site.fromto)
        for joint in body.joints:
            joint.pos = factor * np.asarray(joint.pos)
            if joint.type == mujoco.mjtJoint.mjJNT_SLIDE:
                joint.range = factor * np.asarray(joint.range)
        for child in body.bodies:
            self._scale_body(child, factor, root=False)

    # -- decorations -----------------------------------------------------------------------------

    def decorate(self, *, name: str, parts: Sequence[Part], position: Vector, yaw: float) -> None:
        """Add something that is only seen: no joint, no contact, no mass that moves.

        Args:
            name: Unique body name.
            parts: What it consists of.
            position: Where its origin stands (3,) [m], world frame; z counts from the ground.
            yaw: Rotation about the vertical [rad].
        """
        quat_wxyz = [math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)]
        place = [position[0], position[1], position[2] + self.ground]
        body = self.spec.worldbody.add_body(name=name, pos=place, quat=quat_wxyz)
        for index, part in enumerate(parts):
            label = f"{name}_{index}"
            geom = body.add_geom(
                name=label,
                pos=list(part.position),
                quat=list(part.quat_wxyz),
                rgba=list(part.rgba),
                contype=0,
                conaffinity=0,
                mass=0.0,
                group=self.group,
            )
            if part.shape in _TYPES:
                geom.type = _TYPES[part.shape]
                geom.size = list(part.size)
            else:
                geom.type = mujoco.mjtGeom.mjGEOM_MESH
                geom.meshname = label
                self._add_mesh(label, part)
        self.decorations.append(name)
        self._evidence.setdefault(self.author, {})[name] = f"added with {len(parts)} parts"

    def _add_mesh(self, name: str, part: Part) -> None:
        mesh = self.spec.add_mesh(name=name)
        first, second, third = part.size
        if part.shape == "cone":
            mesh.make_cone(nedge=_CONE_EDGES, radius=third / first)
            mesh.scale = [first, first, second]
        else:
            mesh.make_supertorus(resolution=_TORUS_RESOLUTION, radius=second / first, s=1.0, t=1.0)
            mesh.scale = [first, first, first]
