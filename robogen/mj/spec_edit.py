"""Changes that need recompilation: scaled objects and decorations without joints or contacts."""

from __future__ import annotations

import math
from typing import Literal

import mujoco

from robogen.errors import FactorError
from robogen.mj.roles import Roles

Shape = Literal["box", "cylinder", "sphere", "capsule", "ellipsoid"]
_TYPES = {
    "box": mujoco.mjtGeom.mjGEOM_BOX,
    "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
    "sphere": mujoco.mjtGeom.mjGEOM_SPHERE,
    "capsule": mujoco.mjtGeom.mjGEOM_CAPSULE,
    "ellipsoid": mujoco.mjtGeom.mjGEOM_ELLIPSOID,
}


class SpecEdit:
    """Edits on a copy of the nominal specification, for one episode.

    Args:
        spec: The copy; compiled by the caller afterwards.
        roles: Names behind roles.
        author: Factor whose edits follow.
    """

    def __init__(self, spec: mujoco.MjSpec, roles: Roles, author: str = "") -> None:
        self.spec = spec
        self.roles = roles
        self.author = author
        self.sizes: dict[str, float] = {}
        """Scale factors given to objects, by body name: who places them needs their new height."""
        self.decorations: list[str] = []

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

    def _scale_body(self, body: mujoco.MjsBody, factor: float, *, root: bool) -> None:
        if not root:
            body.pos = [factor * value for value in body.pos]
        for geom in body.geoms:
            if geom.type == mujoco.mjtGeom.mjGEOM_MESH:
                raise FactorError(
                    f"Factor '{self.author}' cannot scale '{body.name}': it has mesh geoms. Leave "
                    "this factor out for this scene."
                )
            geom.size = [factor * value for value in geom.size]
            geom.pos = [factor * value for value in geom.pos]
            geom.fromto = [factor * value for value in geom.fromto]  # NaN when unused
        for site in body.sites:
            site.pos = [factor * value for value in site.pos]
        for joint in body.joints:
            joint.pos = [factor * value for value in joint.pos]
        for child in body.bodies:
            self._scale_body(child, factor, root=False)

    def decorate(
        self,
        *,
        name: str,
        shape: Shape,
        size: tuple[float, float, float],
        position: tuple[float, float, float],
        yaw: float,
        rgba: tuple[float, float, float, float],
    ) -> None:
        """Add something that is only seen: no joint, no contact, no mass that moves.

        Args:
            name: Unique body name.
            shape: Geom type.
            size: MuJoCo geom size parameters [m].
            position: Centre (3,) [m], world frame.
            yaw: Rotation about the vertical [rad].
            rgba: Colour in [0, 1].
        """
        quat_wxyz = [math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)]
        body = self.spec.worldbody.add_body(name=name, pos=list(position), quat=quat_wxyz)
        body.add_geom(
            name=f"{name}_geom",
            type=_TYPES[shape],
            size=list(size),
            rgba=list(rgba),
            contype=0,
            conaffinity=0,
            mass=0.0,
        )
        self.decorations.append(name)
