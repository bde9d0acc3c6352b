"""Offscreen frames: one OpenGL context a process, one ``MjrContext`` a model.

Making an OpenGL context costs about 0.3 s and an ``MjrContext`` on a live one about 10 ms, so the
first is kept for the life of the process. An ``MjrContext`` holds one model's textures and meshes
on the device; drawing a second model through it would show the first's (seen on MuJoCo 3.17).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robogen.errors import GraphicsError
from robogen.mj import APT

OFFSCREEN_PIXELS = (640, 480)
"""Largest frame (width, height) a context is made for."""


@dataclass(frozen=True)
class Quality:
    """What a render profile costs."""

    shadow_size: int | None
    """Edge of the shadow map [px]; 0: no shadows; None: what the model asks for."""
    samples: int | None
    """Samples per pixel; None: what the model asks for."""
    reflections: bool = False


PROFILES: dict[str, Quality] = {
    "fast": Quality(shadow_size=0, samples=0),
    "nice": Quality(shadow_size=1024, samples=4),
    "native": Quality(shadow_size=None, samples=None, reflections=True),
}


_RENDERERS = {
    "dm_control._render",
    "gymnasium.envs.mujoco.mujoco_rendering",
    "robosuite.utils.binding_utils",
}
"""Modules that draw with contexts of their own."""


class _Process:
    """The process's only OpenGL context."""

    context: Any = None
    backend: str = ""
    owner: int = 0
    """Process that made the context; a forked child must not draw with it."""
    shared: bool = False
    """Whether somebody else draws in this process, too."""


def choose_backend() -> str:
    """Name of the offscreen backend in use or to be used: ``MUJOCO_GL``, else EGL, else OSMesa."""
    return _Process.backend or os.environ.get("MUJOCO_GL", "") or "egl"


def gl_context() -> Any:
    """The process's OpenGL context, made current; created on first use.

    Raises:
        GraphicsError: No backend works (the message has the apt line), or this process was forked
            from one that draws.
    """
    if _Process.context is not None and _Process.owner != os.getpid():
        raise GraphicsError(
            "This process was forked from one that already draws, and OpenGL does not survive a "
            "fork. Start processes with 'spawn' or 'forkserver' (for Gymnasium: "
            "AsyncVectorEnv(..., context='spawn'))."
        )
    if _Process.context is None:
        asked = os.environ.get("MUJOCO_GL", "").lower()
        backends = (asked,) if asked else ("egl", "osmesa")
        failures = []
        for backend in backends:
            try:
                _Process.context = _make_context(backend)
            except Exception as error:
                failures.append(f"{backend}: {error}")
                _forget_opengl()
                continue
            _Process.backend, _Process.owner = backend, os.getpid()
            os.environ["MUJOCO_GL"] = backend  # MuJoCo's own loader of OpenGL functions reads it
            break
        else:
            raise GraphicsError(
                f"No offscreen OpenGL backend works here ({'; '.join(failures)}). "
                f"On Debian: {APT}. Then try again, or set MUJOCO_GL to egl or osmesa."
            )
    if not _is_current():
        _Process.context.make_current()
    return _Process.context


def _is_current() -> bool:
    """Whether the process's context is current in this thread; asking is cheaper than making so."""
    handle = getattr(_Process.context, "_context", None)
    if _Process.backend != "egl" or not hasattr(handle, "address"):
        return False
    from OpenGL.EGL import eglGetCurrentContext

    current = eglGetCurrentContext()
    return bool(current) and current.address == handle.address  # type: ignore[union-attr]


@contextmanager
def _drawing() -> Iterator[None]:
    """The process's context is current, and not left so where somebody else draws, too.

    Renderers of other codebases make theirs current once, when they are made: left with ours, they
    would draw into it. And when one is collected as garbage, it deletes its textures and buffers by
    number in whatever context is current: ours of the same numbers, if it is ours.
    """
    theirs = _foreign()
    if not _Process.shared:
        _Process.shared = theirs is not None or any(name in sys.modules for name in _RENDERERS)
    gl_context()
    if not _Process.shared or _Process.backend != "egl":
        yield
        return
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        from OpenGL import EGL

        nobody = (EGL.EGL_NO_SURFACE, EGL.EGL_NO_SURFACE, EGL.EGL_NO_CONTEXT)
        EGL.eglMakeCurrent(*(theirs or (EGL.eglGetCurrentDisplay(), *nobody)))
        if collecting:
            gc.enable()


def _foreign() -> tuple[Any, Any, Any, Any] | None:
    """Display, surfaces and context that are current and not ours; None where there are none."""
    if "OpenGL.EGL" not in sys.modules or _is_current():
        return None
    from OpenGL import EGL

    context = EGL.eglGetCurrentContext()
    if not context:
        return None
    surfaces = (EGL.eglGetCurrentSurface(EGL.EGL_DRAW), EGL.eglGetCurrentSurface(EGL.EGL_READ))
    return EGL.eglGetCurrentDisplay(), *surfaces, context


def _make_context(backend: str) -> Any:
    """Create a context of one backend by name, independent of what ``mujoco`` chose at import."""
    os.environ.setdefault(
        "LP_NUM_THREADS", "0"
    )  # threads of llvmpipe only burn cores at these sizes
    width, height = OFFSCREEN_PIXELS
    if backend == "egl":
        os.environ.setdefault("PYOPENGL_PLATFORM", "egl")
        from mujoco.egl import GLContext
    elif backend == "osmesa":
        os.environ.setdefault("PYOPENGL_PLATFORM", "osmesa")
        from mujoco.osmesa import GLContext
    elif backend == "glfw":
        from mujoco.glfw import GLContext
    else:
        raise GraphicsError(f"unknown MUJOCO_GL backend '{backend}' (egl, osmesa or glfw)")
    context = GLContext(width, height)
    context.make_current()
    return context


def _forget_opengl() -> None:
    """Let another backend be tried: PyOpenGL settles on a platform when it is first imported."""
    os.environ.pop("PYOPENGL_PLATFORM", None)
    for name in [*sys.modules]:
        if name.split(".")[0] == "OpenGL" or name.startswith(("mujoco.egl", "mujoco.osmesa")):
            del sys.modules[name]


def gl_info() -> dict[str, str]:
    """Vendor, renderer and version strings of the OpenGL in use, plus the backend's name."""

    def text(name: Any) -> str:
        value = GL.glGetString(name)
        return value.decode() if isinstance(value, bytes) else str(value)

    with _drawing():
        from OpenGL import GL

        return {
            "backend": _Process.backend,
            "vendor": text(GL.GL_VENDOR),
            "renderer": text(GL.GL_RENDERER),
            "version": text(GL.GL_VERSION),
        }


@contextmanager
def _quality(model: mujoco.MjModel, quality: Quality) -> Iterator[None]:
    """Lend the model a profile's quality while its context is made; leave the model as it was."""
    visual = model.vis.quality
    before = (visual.shadowsize, visual.offsamples)
    if quality.shadow_size is not None:
        visual.shadowsize = max(quality.shadow_size, 1)
    if quality.samples is not None:
        visual.offsamples = quality.samples
    try:
        yield
    finally:
        visual.shadowsize, visual.offsamples = before


class FrameRenderer:
    """Draws one compiled model under one profile.

    Args:
        model: The model; its fields are read at every frame, its textures once (see
            :meth:`upload`).
        profile: Name in :data:`PROFILES`.
        groups: Geom groups that are drawn; None: MuJoCo's default, 0 to 2.
    """

    def __init__(
        self, model: mujoco.MjModel, profile: str, groups: Sequence[int] | None = None
    ) -> None:
        quality = PROFILES[profile]
        self._model = model
        with _drawing(), _quality(model, quality):
            self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        self._scene = mujoco.MjvScene(model, maxgeom=model.ngeom + 256)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = quality.shadow_size != 0
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = quality.reflections
        self._option = mujoco.MjvOption()
        if groups is not None:
            self._option.geomgroup[:] = [number in groups for number in range(mujoco.mjNGROUP)]
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._buffers: dict[tuple[int, int], NDArray[np.uint8]] = {}

    def render(
        self, data: mujoco.MjData, camera: int, width: int, height: int
    ) -> NDArray[np.uint8]:
        """One upright RGB frame (height, width, 3) uint8 from the camera with this id."""
        most = (self._context.offWidth, self._context.offHeight)
        if width > most[0] or height > most[1]:
            raise GraphicsError(
                f"A frame of {width} x {height} pixels was asked for, and this model's offscreen "
                f"buffer holds {most[0]} x {most[1]}. Ask for smaller frames."
            )
        with _drawing():
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
            self._camera.fixedcamid = camera
            mujoco.mjv_updateScene(
                self._model,
                data,
                self._option,
                None,
                self._camera,
                mujoco.mjtCatBit.mjCAT_ALL,
                self._scene,
            )
            viewport = mujoco.MjrRect(0, 0, width, height)
            mujoco.mjr_render(viewport, self._scene, self._context)
            buffer = self._buffers.get((width, height))
            if buffer is None:
                buffer = self._buffers[(width, height)] = np.empty((height, width, 3), np.uint8)
            mujoco.mjr_readPixels(buffer, None, viewport, self._context)
        return buffer[::-1].copy()

    def upload(self, texture: int) -> None:
        """Send one texture's current ``tex_data`` to the device."""
        with _drawing():
            mujoco.mjr_uploadTexture(self._model, self._context, texture)

    def close(self) -> None:
        """Free what the device holds for this model."""
        with _drawing():
            self._context.free()
