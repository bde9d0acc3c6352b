"""What of this machine can change a result: versions, graphics, processor, and golden hashes."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from robogen.mj.render import gl_info
from robogen.perturbations.engine import Perturbation
from robogen.rollout.start import begin
from robogen.scenes.base import Scene
from robogen.seeding import EpisodeSeed

PACKAGES = (
    "robogen",
    "mujoco",
    "torch",
    "numpy",
    "scipy",
    "mink",
    "daqp",
    "opencv-python-headless",
)
_ISA = ("avx512f", "avx2", "avx", "sse4_2", "asimd")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that compute results."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def processor() -> str:
    """Architecture and the widest vector instructions of the processor."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        flags = set()
    widest = next((name for name in _ISA if name in flags), "unknown")
    return f"{platform.machine()} {widest}"


def fingerprint() -> dict[str, Any]:
    """Everything a resume compares: a change means results may differ in their last bits."""
    return {"versions": versions(), "gl": gl_info(), "cpu": processor()}


def golden(scene: Scene, steps: int = 20) -> dict[str, str]:
    """Hashes of a scene's first frame and of its state after some steps of its expert.

    Two machines with equal hashes draw the same pixels and compute the same physics.
    """
    seed = EpisodeSeed(domain="validate", study=0, scene=scene.spec.name, episode=0)
    begin(scene, Perturbation([]), seed)
    frames = hashlib.blake2b(digest_size=12)
    for camera in scene.spec.cameras:
        frames.update(scene.render(camera, width=96, height=96, profile="fast").tobytes())
    action = scene.spec.action
    choose = scene.expert_action if scene.has_expert else scene.rest_action
    for _ in range(steps):
        scene.step(choose(action), action)
    return {"frame": frames.hexdigest(), "physics": scene.world.state_hash()}
