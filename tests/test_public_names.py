"""The Python surface is what is written here, and importing it costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import robogen

NAMES = [
    "ActionSpec",
    "AdaptedScene",
    "CameraSpec",
    "ConfigError",
    "EpisodeRecord",
    "Factor",
    "FactorError",
    "GraphicsError",
    "Observation",
    "ObservationSpec",
    "Perturbation",
    "Policy",
    "PolicyError",
    "PolicySpec",
    "RecordsError",
    "RobogenError",
    "Scene",
    "SceneEnv",
    "SceneError",
    "SceneSpec",
    "SpecError",
    "Study",
    "TabletopScene",
    "evaluate",
    "make",
    "open_study",
    "register_envs",
    "wrap",
]


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def test_the_exported_names():
    assert robogen.__all__ == NAMES
    assert dir(robogen) == NAMES
    for name in NAMES:
        value = getattr(robogen, name)
        assert value.__name__ == name
        assert value.__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'evaluat'"):
        robogen.evaluat  # noqa: B018


def test_type_checkers_see_every_name():
    from pathlib import Path

    text = Path(robogen.__file__).read_text(encoding="utf-8")
    for name in NAMES:
        assert f"import {name} as {name}" in text


def test_import_is_quick_and_touches_nothing():
    """Of the best of some tries, since other processes share the machine."""
    script = (
        "import sys, time\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == 'open' "
        "else None)\n"
        "before = set(sys.modules)\n"
        "start = time.perf_counter()\n"
        "import robogen\n"
        "print(time.perf_counter() - start)\n"
        "print(*[n for n in ('mujoco', 'torch', 'numpy', 'OpenGL', 'gymnasium') "
        "if n in set(sys.modules) - before])\n"
        "print(*[f for f in opened if not f.endswith(('.py', '.pyc', '.pth'))])\n"
    )
    times = []
    for _ in range(3):
        seconds, heavy, files = (line.strip() for line in run(script).split("\n")[:3])
        times.append(float(seconds))
        assert heavy == ""
        assert not [f for f in files.split() if "robogen" in f and "__pycache__" not in f]
    assert min(times) < 0.3


def test_reading_a_study_needs_no_simulator():
    script = (
        "import sys, robogen\n"
        "robogen.open_study, robogen.EpisodeRecord, robogen.RobogenError\n"
        "print(*[n for n in ('mujoco', 'torch', 'OpenGL', 'gymnasium') if n in sys.modules])\n"
    )
    assert run(script).strip() == ""
