"""Offscreen frames: the other backend takes over when the first does not work."""

from __future__ import annotations

import subprocess
import sys
from ctypes.util import find_library

import pytest

FALLBACK = """
import os
import mujoco
from robogen.mj import render

first = render._make_context

def broken(backend):
    if backend == "egl":
        os.environ["PYOPENGL_PLATFORM"] = "egl"
        import mujoco.egl
        raise RuntimeError("made to fail, after PyOpenGL has settled on EGL")
    return first(backend)

render._make_context = broken
model = mujoco.MjModel.from_xml_string(
    "<mujoco><worldbody><light pos='0 0 3'/><geom size='1' rgba='1 0 0 1'/>"
    "<camera name='c' pos='0 0 5'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
frame = render.FrameRenderer(model, "fast").render(data, 0, 32, 32)
print(render.gl_info()["backend"], *frame[16, 16])
"""


@pytest.mark.skipif(find_library("OSMesa") is None, reason="libosmesa6 is not installed")
def test_osmesa_takes_over_in_the_same_process(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("PYOPENGL_PLATFORM", raising=False)
    done = subprocess.run(
        [sys.executable, "-c", FALLBACK], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    backend, red, green, blue = done.stdout.split()
    assert backend == "osmesa"
    assert int(red) > 100
    assert int(red) > 2 * max(int(green), int(blue))
