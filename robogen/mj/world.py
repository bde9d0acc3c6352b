"""A compiled model with its state, its roles, its renderers and its edits: what a scene drives."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from robogen.mj.edit import ModelEdit
from robogen.mj.render import FrameRenderer
from robogen.mj.roles import Roles

RAMP_PIECES = 10
"""Pieces a control step's ramp of actuator targets is cut into."""
_CORNERS = np.array(list(itertools.product((-1.0, 1.0), repeat=3)))
"""Of the unit box (8, 3)."""


@functools.cache
def _pieces(count: int) -> tuple[NDArray[np.float64], list[int]]:
    """Share of the way (pieces, 1) at each piece of a ramp over ``count`` steps, and its steps."""
    pieces = min(RAMP_PIECES, count)
    ends = [round(count * piece / pieces) for piece in range(pieces + 1)]
    shares = np.arange(1, pieces + 1)[:, None] / pieces
    return shares, [after - before for before, after in itertools.pairwise(ends)]


class Contact(NamedTuple):
    """One contact point: the two geoms' body names and the normal force [N]."""

    body1: str
    body2: str
    force: float


class Pose(NamedTuple):
    """Position (3,) [m] and rotation matrix (3, 3), world frame."""

    position: NDArray[np.float64]
    rotation: NDArray[np.float64]


class World:
    """One compiled scene.

    Args:
        model: The compiled model, as it is nominal.
        data: Its state, which the caller may share.
        roles: Names behind roles.
        groups: Geom groups that are drawn; None: MuJoCo's default.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        roles: Roles,
        groups: Sequence[int] | None = None,
    ) -> None:
        self.model = model
        self.data = data
        self.roles = roles
        self.groups = groups
        self.body_names = [self.model.body(i).name for i in range(self.model.nbody)]
        """Names of all bodies; the world itself first."""
        self.written = b""
        """Where things are that have no state of their own, as an environment's reset wrote it."""
        self._renderers: dict[str, FrameRenderer] = {}
        # Not a bound method: a world in a reference cycle would hold its megabytes until Python
        # next collects cycles, and worlds come by the hundred.
        self.edit = ModelEdit(
            model=self.model,
            data=self.data,
            roles=roles,
            upload=functools.partial(_upload, self._renderers),
        )
        self._state_size = mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_INTEGRATION)
        self._body_ids = {name: number for number, name in enumerate(self.body_names)}
        self._site_ids = {self.model.site(i).name: i for i in range(self.model.nsite)}
        self._camera_ids = {name: number for number, name in enumerate(self.camera_names)}
        self._geom_bodies = [self.body_names[body] for body in self.model.geom_bodyid]
        self._subtree_geoms: dict[str, NDArray[np.intp]] = {}
        self._force = np.empty(6)

    @classmethod
    def compiled(
        cls,
        spec: mujoco.MjSpec,
        roles: Roles,
        paint: Mapping[str, NDArray[np.uint8]] = MappingProxyType({}),
        groups: Sequence[int] | None = None,
        adjust: Callable[[mujoco.MjModel], object] = lambda model: None,
    ) -> World:
        """A world of its own, from a specification.

        Args:
            spec: Assembled specification; compiled here, not kept.
            roles: Names behind roles.
            paint: Nominal pixels by texture name, (H, W, 3) uint8; a cube texture's faces all get
                them.
            groups: Geom groups that are drawn; None: MuJoCo's default.
            adjust: What to do to the compiled model before it counts as nominal.
        """
        model: mujoco.MjModel = spec.compile()
        adjust(model)
        for name, pixels in paint.items():
            _paint(model, name, pixels)
        return cls(model, mujoco.MjData(model), roles, groups)

    # -- rendering -------------------------------------------------------------------------------

    def render(self, camera: str, *, width: int, height: int, profile: str) -> NDArray[np.uint8]:
        """One upright RGB frame (height, width, 3) uint8 of the current state."""
        renderer = self._renderers.get(profile)
        if renderer is None:
            renderer = self._renderers[profile] = FrameRenderer(self.model, profile, self.groups)
        number = _number(self._camera_ids, "camera", camera)
        return renderer.render(self.data, number, width, height)

    def close(self) -> None:
        """Free device memory; the world cannot be drawn afterwards."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()

    # -- state -----------------------------------------------------------------------------------

    def step(self, count: int) -> None:
        """Advance physics by ``count`` timesteps under the current controls."""
        mujoco.mj_step(self.model, self.data, nstep=count)

    def ramp(self, count: int, actuators: NDArray[np.intp], targets: NDArray[np.float64]) -> None:
        """Advance physics by ``count`` timesteps while controls move linearly to ``targets``.

        A stepped position target jerks the arm and shakes what it holds; the ramp is what a
        robot's own interpolator does. Controls change :data:`RAMP_PIECES` times.
        """
        model, data = self.model, self.data
        controls = data.ctrl
        shares, counts = _pieces(count)
        start = controls[actuators]
        for values, steps in zip(start + shares * (targets - start), counts, strict=True):
            controls[actuators] = values
            mujoco.mj_step(model, data, nstep=steps)

    def forward(self) -> None:
        """Recompute everything that follows from positions and controls."""
        mujoco.mj_forward(self.model, self.data)

    def reset(self) -> None:
        """Zero time, velocities and warm starts; joints to ``qpos0``."""
        mujoco.mj_resetData(self.model, self.data)

    @property
    def time(self) -> float:
        """Simulated time [s]."""
        return float(self.data.time)

    @property
    def timestep(self) -> float:
        """Physics timestep [s]."""
        return float(self.model.opt.timestep)

    def get_state(self) -> NDArray[np.float64]:
        """Full integration state (``mjSTATE_INTEGRATION``): exact to continue from."""
        state = np.empty(self._state_size)
        mujoco.mj_getState(self.model, self.data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
        return state

    def set_state(self, state: NDArray[np.float64]) -> None:
        """Restore what :meth:`get_state` returned on this model."""
        mujoco.mj_setState(self.model, self.data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
        mujoco.mj_forward(self.model, self.data)

    def state_hash(self) -> str:
        """Hash of all positions (also of placed static bodies), velocities and controls."""
        data = self.data
        digest = hashlib.blake2b(self.written, digest_size=12)
        for part in (data.qpos, data.qvel, data.ctrl, data.mocap_pos, data.mocap_quat):
            digest.update(part.tobytes())
        return digest.hexdigest()

    def is_finite(self) -> bool:
        """Whether positions and velocities are all finite numbers."""
        return math.isfinite(self.data.qpos.sum() + self.data.qvel.sum())

    # -- joints and actuators --------------------------------------------------------------------

    def qpos_addresses(self, joints: Sequence[str]) -> NDArray[np.intp]:
        """``qpos`` addresses of scalar joints."""
        return np.array([self.model.joint(j).qposadr[0] for j in joints], dtype=np.intp)

    def actuator_ids(self, actuators: Sequence[str]) -> NDArray[np.intp]:
        """Control indices of actuators."""
        return np.array([self.model.actuator(a).id for a in actuators], dtype=np.intp)

    def joint_limits(self, joints: Sequence[str]) -> NDArray[np.float64]:
        """Lower and upper limits (n, 2) [rad or m]."""
        return np.array([self.model.joint(j).range for j in joints])

    def joint_position(self, joint: str) -> float:
        """Position of a scalar joint [rad or m]."""
        return float(self.data.qpos[self.model.joint(joint).qposadr[0]])

    def joint_positions(self, addresses: NDArray[np.intp]) -> NDArray[np.float64]:
        """Positions of scalar joints at these addresses, as a copy [rad or m]."""
        return np.array(self.data.qpos[addresses])

    def set_joint_positions(
        self, addresses: NDArray[np.intp], positions: NDArray[np.float64] | float
    ) -> None:
        """Put scalar joints where they should be [rad or m]."""
        self.data.qpos[addresses] = positions

    def set_controls(self, actuators: NDArray[np.intp], targets: NDArray[np.float64]) -> None:
        """Set actuator controls at once; :meth:`ramp` moves them smoothly."""
        self.data.ctrl[actuators] = targets

    def set_free_body(
        self, body: str, position: NDArray[np.float64], quat_wxyz: NDArray[np.float64]
    ) -> None:
        """Place a body that hangs on a free joint; world frame."""
        address = self.model.joint(self.model.body(body).jntadr[0]).qposadr[0]
        self.data.qpos[address : address + 3] = position
        self.data.qpos[address + 3 : address + 7] = quat_wxyz

    def move_free_body(self, body: str, position: NDArray[np.float64]) -> None:
        """Put a body on a free joint elsewhere (3,) [m], world frame, turned as it is."""
        address = self.model.joint(self.model.body(body).jntadr[0]).qposadr[0]
        self.data.qpos[address : address + 3] = position

    def set_static_body(
        self, body: str, position: NDArray[np.float64], quat_wxyz: NDArray[np.float64]
    ) -> None:
        """Place a mocap body; world frame."""
        mocap = int(self.model.body(body).mocapid[0])
        self.data.mocap_pos[mocap] = position
        self.data.mocap_quat[mocap] = quat_wxyz

    # -- geometry --------------------------------------------------------------------------------

    @property
    def camera_names(self) -> list[str]:
        """Names of all cameras."""
        return [self.model.camera(i).name for i in range(self.model.ncam)]

    def body_pose(self, body: str) -> Pose:
        """World pose of a body."""
        found = _number(self._body_ids, "body", body)
        return Pose(self.data.xpos[found].copy(), self.data.xmat[found].reshape(3, 3).copy())

    def body_position(self, body: str) -> NDArray[np.float64]:
        """World position (3,) [m] of a body."""
        return np.array(self.data.xpos[_number(self._body_ids, "body", body)])

    def body_velocity(self, body: str) -> NDArray[np.float64]:
        """Linear velocity (3,) [m/s] of a body's centre of mass, world frame."""
        velocity = np.empty(6)
        mujoco.mj_objectVelocity(
            self.model,
            self.data,
            mujoco.mjtObj.mjOBJ_BODY,
            self._body_ids[body],
            velocity,
            0,
        )
        return velocity[3:].copy()

    def site_pose(self, site: str) -> Pose:
        """World pose of a site."""
        found = _number(self._site_ids, "site", site)
        position, rotation = self.data.site_xpos[found], self.data.site_xmat[found]
        return Pose(position.copy(), rotation.reshape(3, 3).copy())

    def site_position(self, site: str) -> NDArray[np.float64]:
        """World position (3,) [m] of a site."""
        return np.array(self.data.site_xpos[_number(self._site_ids, "site", site)])

    def site_size(self, site: str) -> NDArray[np.float64]:
        """Size (3,) [m] of a site; half lengths of a box."""
        return np.array(self.model.site_size[_number(self._site_ids, "site", site)])

    def site_offset(self, site: str) -> NDArray[np.float64]:
        """Position (3,) [m] of a site in its body's frame."""
        return np.array(self.model.site_pos[_number(self._site_ids, "site", site)])

    def extent(self, body: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Axis-aligned bounds (3,), (3,) [m] of a body's subtree in the body's own frame."""
        pose = self.body_pose(body)
        geoms = self._geoms_under(body)
        rotations = self.data.geom_xmat[geoms].reshape(-1, 3, 3)
        boxes = self.model.geom_aabb[geoms]
        corners = boxes[:, None, :3] + _CORNERS * boxes[:, None, 3:]  # (geoms, 8, 3)
        world = corners @ rotations.transpose(0, 2, 1) + self.data.geom_xpos[geoms][:, None]
        local = ((world - pose.position) @ pose.rotation).reshape(-1, 3)
        return local.min(axis=0), local.max(axis=0)

    def _geoms_under(self, body: str) -> NDArray[np.intp]:
        """Geoms of a body and of all bodies attached below it."""
        if body not in self._subtree_geoms:
            inside = {_number(self._body_ids, "body", body)}
            for number in range(self.model.nbody):  # parents come before their children
                if int(self.model.body_parentid[number]) in inside:
                    inside.add(number)
            self._subtree_geoms[body] = np.flatnonzero(
                np.isin(self.model.geom_bodyid, sorted(inside))
            ).astype(np.intp)
        return self._subtree_geoms[body]

    def mass(self, body: str) -> float:
        """Mass of a body with everything that hangs on it [kg]."""
        return float(self.model.body_subtreemass[_number(self._body_ids, "body", body)])

    # -- contacts --------------------------------------------------------------------------------

    def touches(self) -> list[tuple[str, str]]:
        """The two bodies of every active contact, by name."""
        names = self._geom_bodies
        pairs = self.data.contact.geom[: self.data.ncon].tolist()
        return [(names[one], names[other]) for one, other in pairs]

    def contacts(self, prefix: str = "") -> list[Contact]:
        """Active contacts with their normal forces, bodies by name.

        Args:
            prefix: Only contacts of bodies whose names begin with this; forces cost time.
        """
        found = []
        for index, (one, other) in enumerate(self.touches()):
            if one.startswith(prefix) or other.startswith(prefix):
                mujoco.mj_contactForce(self.model, self.data, index, self._force)
                found.append(Contact(one, other, float(self._force[0])))
        return found


def _paint(model: mujoco.MjModel, name: str, pixels: NDArray[np.uint8]) -> None:
    texture = model.texture(name).id
    height, width = int(model.tex_height[texture]), int(model.tex_width[texture])
    start = int(model.tex_adr[texture])
    faces = height // width if height > width else 1
    tiled = np.concatenate([pixels] * faces, axis=0)
    if tiled.shape != (height, width, 3):
        raise ValueError(f"texture {name} is {(height, width, 3)}, got pixels {pixels.shape}")
    model.tex_data[start : start + tiled.size] = tiled.reshape(-1)


def _upload(renderers: Mapping[str, FrameRenderer], texture: int) -> None:
    """Send a texture to every renderer of a world."""
    for renderer in renderers.values():
        renderer.upload(texture)


def _number(table: Mapping[str, int], what: str, name: str) -> int:
    """Id of a name.

    Raises:
        KeyError: There is none; the message lists what there is.
    """
    if name not in table:
        raise KeyError(f"no {what} '{name}'; there are {', '.join(filter(None, table))}")
    return table[name]
