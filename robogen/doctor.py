"""What of this machine is fit to evaluate: graphics, versions, processor, disk, and fingerprints.

Whatever can crash (an OpenGL driver, a broken install) is tried in a process of its own; this one
never imports MuJoCo, which fails at once when ``MUJOCO_GL`` asks for what is not there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NamedTuple

from packaging.requirements import Requirement

from robogen.errors import RobogenError
from robogen.mj import APT
from robogen.paths import config_root

Status = Literal["ok", "note", "broken"]

_TIMEOUT_S = 120.0
_GL = "import json; from robogen.mj.render import gl_info; print(json.dumps(gl_info()))"
_DEVICES = (
    "import json; from mujoco.egl import egl_ext as EGL; "
    "print(json.dumps(len(EGL.eglQueryDevicesEXT())))"
)
_PROCESSOR = (
    "import json; from robogen.study.fingerprint import processor; print(json.dumps(processor()))"
)
_TORCH = (
    "import json, torch; print(json.dumps([torch.__version__, torch.get_num_threads(), "
    "torch.cuda.is_available()]))"
)
_GOLDEN = (
    "import json, sys; from robogen.scenes.load import load_scene; "
    "from robogen.study.fingerprint import golden; "
    "print(json.dumps(golden(load_scene(sys.argv[1]))))"
)


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    status: Status
    """``broken``: evaluating will not work; ``note``: worth knowing."""
    text: str


def examine() -> Iterator[Check]:
    """Look at everything, one check after the other."""
    yield from _versions()
    yield _processor()
    working = None
    for backend in ("egl", "osmesa"):
        check, info = _backend(backend)
        yield check
        working = working or (backend if info else None)
    yield from _chosen(working)
    yield from _gpu()
    yield _torch()
    yield _writable(Path.cwd())
    if working is not None:
        yield from _scenes(working)
        yield from _environments(working)


def _try(code: str, *arguments: str, **environment: str) -> tuple[Any, str]:
    """What a process prints as JSON, or None and why there is nothing."""
    chosen = {**os.environ, "LP_NUM_THREADS": "0", **environment}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=chosen,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {_TIMEOUT_S:g} s"
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return json.loads(lines[-1]), ""
    if done.returncode < 0:
        return None, f"the process died of signal {-done.returncode}"
    errors = [line.strip() for line in done.stderr.strip().splitlines() if line.strip()]
    return None, errors[-1] if errors else f"exit code {done.returncode}"


# -- software --------------------------------------------------------------------------------------


def _versions() -> Iterator[Check]:
    python = ".".join(map(str, sys.version_info[:3]))
    try:
        requires = metadata.requires("robogen") or []
        own = metadata.version("robogen")
    except metadata.PackageNotFoundError:
        yield Check("robogen", "broken", "is not installed; run pip install -e . in its checkout")
        return
    found: list[str] = []
    wrong: list[str] = []
    for text in requires:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is not installed ({requirement} is needed)")
            continue
        found.append(f"{requirement.name} {version}")
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} is {version}, {requirement} is needed")
    core = [item for item in found if item.split()[0] in ("mujoco", "torch", "numpy", "mink")]
    yield Check("versions", "ok", f"robogen {own}, Python {python}, {', '.join(core)}")
    if wrong:
        yield Check("requirements", "broken", f"{'; '.join(wrong)}. Run pip install -e . again")
    else:
        yield Check("requirements", "ok", f"all {len(found)} are met")
    yield from _pins()


def _pins() -> Iterator[Check]:
    """Versions the checkout pins, where there is a checkout."""
    file = config_root() / "constraints.txt"
    if not file.is_file():
        return
    other: list[str] = []
    pinned = 0
    for line in file.read_text(encoding="utf-8").splitlines():
        match = re.match(r"([\w.-]+)==([^\s;]+)", line)
        if match is None:
            continue
        try:
            version = metadata.version(match[1])
        except metadata.PackageNotFoundError:
            continue
        pinned += 1
        if version.partition("+")[0] != match[2].partition("+")[0]:
            other.append(f"{match[1]} {version} (pinned {match[2]})")
    if other:
        text = f"differ: {', '.join(other)}. Results may differ in their last bits from others'"
        yield Check("constraints", "note", text)
    else:
        yield Check("constraints", "ok", f"all {pinned} installed pins match")


def _processor() -> Check:
    kind, why = _try(_PROCESSOR, MUJOCO_GL="disable")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text = f"{kind or why}, {usable} of {os.cpu_count()} cores usable; one worker per core"
    return Check("processor", "ok", text)


def _torch() -> Check:
    found, why = _try(_TORCH)
    if found is None:
        return Check("torch", "broken", why)
    version, threads, cuda = found
    device = "CUDA available" if cuda else "no CUDA"
    return Check("torch", "ok", f"{version}, {threads} threads (workers use 1 each), {device}")


# -- graphics --------------------------------------------------------------------------------------


def _backend(name: str) -> tuple[Check, dict[str, str] | None]:
    info, why = _try(_GL, MUJOCO_GL=name, PYOPENGL_PLATFORM=name)
    if info is None:
        return Check(f"graphics: {name}", "note", f"does not work ({why})"), None
    text = f"{info['renderer']}, {info['vendor']}, {info['version']}"
    return Check(f"graphics: {name}", "ok", text), info


def _chosen(working: str | None) -> Iterator[Check]:
    asked = os.environ.get("MUJOCO_GL", "").lower()
    if working is None:
        yield Check("graphics", "broken", f"no offscreen OpenGL works. On Debian: {APT}")
        return
    if not asked:
        yield Check("graphics", "ok", f"{working} is used (MUJOCO_GL is not set)")
        return
    info, why = _try(_GL)
    if info is None:
        text = f"MUJOCO_GL={asked} does not work ({why}). Unset it, or set MUJOCO_GL={working}"
        yield Check("graphics", "broken", text)
    else:
        yield Check("graphics", "ok", f"{info['backend']} is used (MUJOCO_GL={asked})")


def _gpu() -> Iterator[Check]:
    cards: list[str] = []
    tool = shutil.which("nvidia-smi")
    if tool is not None:
        try:
            listed = subprocess.run(
                [tool, "-L"], capture_output=True, text=True, timeout=30, check=False
            )
            cards = re.findall(r"^GPU \d+: ([^(\n]+)", listed.stdout, re.MULTILINE)
        except (OSError, subprocess.TimeoutExpired):
            cards = []
    devices, _ = _try(_DEVICES, MUJOCO_GL="egl", PYOPENGL_PLATFORM="egl")
    count = int(devices or 0)
    if not cards:
        yield Check("GPU", "ok", f"no GPU; {count} EGL device(s), frames are drawn in software")
        return
    names = ", ".join(card.strip() for card in cards)
    yield Check("GPU", "ok", f"{len(cards)} ({names}), {count} EGL device(s)")
    for device in range(count):
        info, why = _try(
            _GL, MUJOCO_GL="egl", PYOPENGL_PLATFORM="egl", MUJOCO_EGL_DEVICE_ID=str(device)
        )
        text = info["renderer"] if info else f"does not work ({why})"
        yield Check(f"EGL device {device}", "ok" if info else "note", text)


# -- disk and scenes -------------------------------------------------------------------------------


def _writable(folder: Path) -> Check:
    try:
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(b"0")
    except OSError as error:
        reason = error.strerror or str(error)
        text = f"{folder} cannot be written ({reason}); give studies a folder with out=..."
        return Check("disk", "broken", text)
    free = shutil.disk_usage(folder).free / 1e9
    status: Status = "ok" if free > 1 else "note"
    return Check("disk", status, f"{folder} can be written, {free:.0f} GB free")


def _scenes(backend: str, names: Sequence[str] | None = None) -> Iterator[Check]:
    """Every shipped scene builds, and what its pixels and its physics hash to here."""
    from robogen.scenes.library import available

    asked = os.environ.get("MUJOCO_GL", "").lower() or backend
    try:
        found = list(names or available())
    except RobogenError as error:
        yield Check("scenes", "broken", str(error))
        return
    for name in found:
        hashes, why = _try(_GOLDEN, name, MUJOCO_GL=asked, PYOPENGL_PLATFORM=asked)
        if hashes is None:
            yield Check(f"scene {name}", "broken", why)
        else:
            text = f"frame {hashes['frame']}, physics {hashes['physics']}"
            yield Check(f"scene {name}", "ok", text)


def _environments(backend: str) -> Iterator[Check]:
    """Which families of other people's environments this Python environment can run."""
    from robogen.scenes.adapters.family import families, load_family, refuse_unfit

    asked = os.environ.get("MUJOCO_GL", "").lower() or backend
    for family in families():
        try:
            config = load_family(family, "")
            refuse_unfit(family, config)
        except RobogenError as error:
            yield Check(f"environments {family}", "note", f"not here: {error}")
            continue
        name = f"{family}/{config.example}"
        hashes, why = _try(_GOLDEN, name, MUJOCO_GL=asked, PYOPENGL_PLATFORM=asked)
        if hashes is None:
            yield Check(f"environments {family}", "broken", f"{name} failed: {why}")
        else:
            text = f"{name} works, frame {hashes['frame']}, physics {hashes['physics']}"
            yield Check(f"environments {family}", "ok", text)
