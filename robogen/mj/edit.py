"""In-place edits of one compiled model that know what they touched and undo it exactly."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Literal

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from robogen.errors import FactorError
from robogen.mj.roles import CameraKind, Roles

WriteMode = Literal["replace", "scale"]

HEADLIGHT = ("headlight_ambient", "headlight_diffuse", "headlight_specular")
"""Pseudo-fields (1, 3) for ``vis.headlight``, which is not an array field of mjModel."""

SET_CONST = ("body_mass", "body_inertia", "body_ipos", "body_iquat", "body_pos", "body_quat")
"""Fields after whose change ``mj_setConst`` must refresh the derived ones."""

SET_CONST_DERIVED = (
    "actuator_acc0",
    "body_invweight0",
    "body_subtreemass",
    "cam_mat0",
    "cam_pos0",
    "cam_poscom0",
    "dof_M0",
    "dof_invweight0",
    "light_dir0",
    "light_pos0",
    "light_poscom0",
    "tendon_invweight0",
    "tendon_length0",
)
"""What ``mj_setConst`` may rewrite (MuJoCo documentation of ``mj_setConst``)."""

CAMERA_DERIVED = ("cam_mat0", "cam_pos0", "cam_poscom0")
LIGHT_DERIVED = ("light_dir0", "light_pos0", "light_poscom0")


def array_fields(model: mujoco.MjModel) -> list[str]:
    """Names of every array field of a compiled model, sorted."""
    names = []
    for name in dir(model):
        if name.startswith("_") or name in ("names", "paths"):
            continue
        value = getattr(model, name)
        if isinstance(value, np.ndarray) and value.size:
            names.append(name)
    return names


class ModelEdit:
    """Edits of one model for one episode.

    Every write is declared (field, element ids, whether it replaces or scales), so that two factors
    that would overwrite each other are refused, and :meth:`restore` brings back each byte of the
    nominal model and of the textures on the device.

    Args:
        model: The compiled nominal model; copied once.
        data: A state of this model that is current at the time of an edit.
        roles: Names behind roles.
        upload: Sends one texture to every renderer of this model.
    """

    def __init__(
        self,
        *,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        roles: Roles,
        upload: Callable[[int], None],
    ) -> None:
        self.model = model
        self.data = data
        self.roles = roles
        self._upload = upload
        self.nominal: mujoco.MjModel = copy.copy(model)
        self._pairs = [
            (getattr(model, name), getattr(self.nominal, name))
            for name in array_fields(model)
            if name != "tex_data"
        ]
        self._headlight = {name: self._headlight_view(name).copy() for name in HEADLIGHT}
        self._scratch: mujoco.MjData | None = None
        self._writers: dict[tuple[str, int], list[tuple[str, WriteMode]]] = {}
        self._textures: set[int] = set()
        self._moved: set[str] = set()
        self._author = ""
        self._declared: frozenset[str] = frozenset()

    # -- reading ---------------------------------------------------------------------------------

    def _headlight_view(self, name: str) -> NDArray[np.float32]:
        return np.asarray(getattr(self.model.vis.headlight, name.removeprefix("headlight_")))[None]

    def read(self, field: str, ids: ArrayLike | None = None) -> NDArray[Any]:
        """Current values of a field's elements, as a copy: (len(ids), ...)."""
        if field in HEADLIGHT:
            return self._headlight_view(field).copy()
        array = getattr(self.model, field)
        return np.array(array if ids is None else array[np.asarray(ids)])

    def nominal_values(self, field: str, ids: ArrayLike | None = None) -> NDArray[Any]:
        """A field's elements in the nominal model, as a copy: (len(ids), ...)."""
        if field in HEADLIGHT:
            return self._headlight[field].copy()
        array = getattr(self.nominal, field)
        return np.array(array if ids is None else array[np.asarray(ids)])

    def nominal_texture(self, texture: int) -> NDArray[np.uint8]:
        """A texture's pixels in the nominal model, as :meth:`texture`; read-only."""
        pixels = self._pixels(self.nominal, texture)[:]
        pixels.flags.writeable = False
        return pixels

    @property
    def scene_center(self) -> NDArray[np.float64]:
        """Centre (3,) [m] of the nominal scene, world frame."""
        return np.array(self.nominal.stat.center)

    @property
    def headlight_active(self) -> bool:
        """Whether the light on the camera is on."""
        return bool(self.model.vis.headlight.active)

    # -- what a role means here ------------------------------------------------------------------

    def bodies(self, role: str) -> NDArray[np.intp]:
        """Bodies of a role, attached ones included."""
        return self.roles.body_ids(self.model, role)

    def geoms(self, role: str) -> NDArray[np.intp]:
        """Geoms of a role."""
        return self.roles.geom_ids(self.model, role)

    def materials(self, role: str) -> NDArray[np.intp]:
        """Materials that only this role's geoms wear."""
        return self.roles.material_ids(self.model, role)

    def textures(self, role: str) -> NDArray[np.intp]:
        """Textures that only this role's materials use."""
        return self.roles.texture_ids(self.model, role)

    def texture_of(self, materials: ArrayLike) -> NDArray[np.intp]:
        """The RGB texture of each material, -1 for none."""
        slot = int(mujoco.mjtTextureRole.mjTEXROLE_RGB)
        return np.array(self.model.mat_texid[np.asarray(materials), slot], dtype=np.intp)

    def plain_geoms(self, role: str) -> NDArray[np.intp]:
        """Visible geoms of a role that show their own ``geom_rgba``, not a material's."""
        ids = self.geoms(role)
        default = np.array([0.5, 0.5, 0.5, 1.0], np.float32)  # this value lets the material through
        own = (self.model.geom_matid[ids] < 0) | (self.model.geom_rgba[ids] != default).any(axis=1)
        shown = (self.model.geom_group[ids] <= 2) & (self.model.geom_rgba[ids, 3] > 0)
        return np.asarray(ids[own & shown])

    def colliding_geoms(self, role: str) -> NDArray[np.intp]:
        """Geoms of a role that can touch something."""
        ids = self.geoms(role)
        touch = (self.model.geom_contype[ids] != 0) | (self.model.geom_conaffinity[ids] != 0)
        return np.asarray(ids[touch])

    def sliding_geoms(self, role: str) -> NDArray[np.intp]:
        """Geoms whose friction decides how a role's geoms slide.

        Of two geoms in contact the one with the higher priority decides, else the larger friction:
        without a priority of its own, a role slides as what it touches does.
        """
        ids = self.colliding_geoms(role)
        if not ids.size:
            return ids
        touch = (self.model.geom_contype != 0) | (self.model.geom_conaffinity != 0)
        decide = touch & (self.model.geom_priority >= self.model.geom_priority[ids].max())
        return np.union1d(ids, np.flatnonzero(decide)).astype(np.intp)

    def has_meshes(self, role: str) -> bool:
        """Whether a role's geoms include meshes."""
        mesh = int(mujoco.mjtGeom.mjGEOM_MESH)
        return bool((self.model.geom_type[self.geoms(role)] == mesh).any())

    def is_articulated(self, role: str) -> bool:
        """Whether parts of a role's bodies slide or turn against each other."""
        inner = np.isin(self.model.jnt_bodyid, self.bodies(role))
        scalar = self.model.jnt_type >= int(mujoco.mjtJoint.mjJNT_SLIDE)
        return bool((inner & scalar).any())

    def movable_bodies(self, role: str) -> NDArray[np.intp]:
        """Bodies of a role that have mass and a joint between them and the world."""
        ids = self.bodies(role)
        moves = (self.model.body_treeid[ids] >= 0) & (self.model.body_mass[ids] > 0)
        return np.asarray(ids[moves])

    def cameras(self, kind: CameraKind) -> NDArray[np.intp]:
        """Cameras of a kind."""
        return self.roles.camera_ids(self.model, kind)

    def lights(self) -> NDArray[np.intp]:
        """The scene's active lights."""
        ids = self.roles.light_ids(self.model)
        return np.asarray(ids[self.model.light_active[ids] != 0])

    def fixed_lights(self) -> NDArray[np.intp]:
        """Active lights that hang still in the world frame."""
        ids = self.lights()
        fixed = self.model.light_mode[ids] == int(mujoco.mjtCamLight.mjCAMLIGHT_FIXED)
        return np.asarray(ids[fixed & (self.model.light_bodyid[ids] == 0)])

    # -- pixels ----------------------------------------------------------------------------------

    def texture(self, texture: int) -> NDArray[np.uint8]:
        """Current pixels of a texture (height, width, channels); a cube map's faces are stacked."""
        return np.array(self._pixels(self.model, texture))

    @staticmethod
    def _pixels(model: mujoco.MjModel, texture: int) -> NDArray[np.uint8]:
        height, width = int(model.tex_height[texture]), int(model.tex_width[texture])
        channels = int(model.tex_nchannel[texture])
        start = int(model.tex_adr[texture])
        flat = model.tex_data[start : start + height * width * channels]
        return np.asarray(flat.reshape(height, width, channels))

    # -- writing ---------------------------------------------------------------------------------

    def begin(self, author: str, declared: Iterable[str]) -> None:
        """Following writes belong to this factor and must stay within its declared fields."""
        self._author = author
        self._declared = frozenset(declared)

    def _note(self, field: str, ids: Iterable[int], mode: WriteMode) -> None:
        if field not in self._declared:
            raise FactorError(
                f"Factor '{self._author}' writes {field}, which it does not declare "
                f"(declared: {', '.join(sorted(self._declared)) or 'none'}). Add the field to the "
                "factor's declaration."
            )
        for element in ids:
            writers = self._writers.setdefault((field, int(element)), [])
            if mode == "replace" and any(author != self._author for author, _ in writers):
                others = ", ".join(author for author, _ in writers)
                raise FactorError(
                    f"Factors '{self._author}' and '{others}' both set {field}[{element}] and do "
                    "not compose. Evaluate them in separate conditions."
                )
            writers.append((self._author, mode))

    def write(self, field: str, ids: ArrayLike, values: ArrayLike, mode: WriteMode) -> None:
        """Set a field's elements.

        Args:
            field: mjModel field name, or one of :data:`HEADLIGHT`.
            ids: Element indices (n,); ignored length-1 for the headlight.
            values: New values (n, ...), broadcastable.
            mode: ``replace`` when the value does not depend on what an earlier factor wrote,
                ``scale`` when it was computed from :meth:`read` and so composes.
        """
        index = np.atleast_1d(np.asarray(ids, dtype=np.intp))
        if index.size == 0:
            raise FactorError(f"Factor '{self._author}' found no {field} to change in this scene.")
        self._note(field, index.tolist(), mode)
        before = self.read(field, index)
        if field in HEADLIGHT:
            self._headlight_view(field)[...] = values
        else:
            getattr(self.model, field)[index] = values
        if not np.array_equal(before, self.read(field, index)):
            self._moved.add(self._author)

    def stop_tracking(self, cameras: NDArray[np.intp]) -> None:
        """Leave cameras that follow or target a body looking as they do now, fixed to their own."""
        fixed = int(mujoco.mjtCamLight.mjCAMLIGHT_FIXED)
        for camera in cameras[self.model.cam_mode[cameras] != fixed].tolist():
            body = int(self.model.cam_bodyid[camera])
            frame = self.data.xmat[body].reshape(3, 3).T
            quat = np.empty(4)
            rotation = frame @ self.data.cam_xmat[camera].reshape(3, 3)
            mujoco.mju_mat2Quat(quat, rotation.ravel())
            place = frame @ (self.data.cam_xpos[camera] - self.data.xpos[body])
            self.write("cam_mode", camera, fixed, "replace")
            self.write("cam_quat", camera, quat, "replace")
            self.write("cam_pos", camera, place, "replace")

    def paint(self, texture: int, pixels: NDArray[np.uint8]) -> None:
        """Replace a texture's pixels (same shape as :meth:`texture` returns)."""
        self._note("tex_data", [texture], "replace")
        current = self._pixels(self.model, texture)
        if not np.array_equal(current, pixels):
            self._moved.add(self._author)
        current[...] = pixels
        self._textures.add(texture)

    def finish(self) -> None:
        """Refresh derived fields and the device's textures once all factors have written."""
        written = {field for field, _ in self._writers}
        if written & set(SET_CONST):
            if self._scratch is None:
                self._scratch = mujoco.MjData(self.model)
            mujoco.mj_setConst(self.model, self._scratch)
        for texture in sorted(self._textures):
            self._upload(texture)

    def rebase(self) -> None:
        """Take the model as it is now as nominal: an environment's own reset writes to it.

        Textures stay as they were compiled.

        Raises:
            RuntimeError: Edits have not been restored.
        """
        if self._writers:
            raise RuntimeError("restore() must come before rebase()")
        for current, nominal in self._pairs:
            nominal[...] = current

    def restore(self) -> None:
        """Make the model byte-equal to the nominal one, device textures included."""
        if not self._writers:
            return
        for current, nominal in self._pairs:
            current[...] = nominal
        for name, value in self._headlight.items():
            self._headlight_view(name)[...] = value
        stat, nominal_stat = self.model.stat, self.nominal.stat
        stat.meaninertia, stat.meanmass = nominal_stat.meaninertia, nominal_stat.meanmass
        stat.meansize, stat.extent = nominal_stat.meansize, nominal_stat.extent
        stat.center[:] = nominal_stat.center
        for texture in sorted(self._textures):
            self._pixels(self.model, texture)[...] = self._pixels(self.nominal, texture)
            self._upload(texture)
        self._writers.clear()
        self._textures.clear()
        self._moved.clear()

    # -- evidence --------------------------------------------------------------------------------

    def moved(self, author: str) -> bool:
        """Whether any write of this factor altered a value."""
        return author in self._moved

    def changed(self) -> set[str]:
        """Names of array fields and headlight pseudo-fields that differ from the nominal model."""
        different = {
            name
            for name in array_fields(self.model)
            if getattr(self.model, name).tobytes() != getattr(self.nominal, name).tobytes()
        }
        for name, value in self._headlight.items():
            if self._headlight_view(name).tobytes() != value.tobytes():
                different.add(name)
        return different

    def evidence(self, author: str) -> dict[str, str]:
        """Short hash of the current content of each field a factor wrote and changed."""
        found: dict[str, str] = {}
        for field in sorted(
            {f for (f, _), w in self._writers.items() if any(a == author for a, _ in w)}
        ):
            if field in HEADLIGHT:
                now, before = (
                    self._headlight_view(field).tobytes(),
                    self._headlight[field].tobytes(),
                )
            else:
                now = getattr(self.model, field).tobytes()
                before = getattr(self.nominal, field).tobytes()
            if now != before:
                found[field] = hashlib.blake2b(now, digest_size=6).hexdigest()
        return found
