"""What is installed from the wheel is the whole project, and works from anywhere.

No network: the wheel is built with the tools that are here, and the clean environment borrows the
heavy dependencies through a path file behind its own packages.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import robogen
from robogen.paths import GROUPS
from robogen.records.reader import read_records

ROOT = Path(__file__).resolve().parent.parent


def run(*command: object, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that the checkout gets no build folders."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "robogen", *GROUPS):
        (source / name).symlink_to(ROOT / name)
    run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--wheel-dir", out, source),
        cwd=out,
    )
    (built,) = out.glob("robogen-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the wheel, borrowing only dependencies."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    packages = Path(run(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=folder))
    packages = Path(str(packages).strip())
    run(
        *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"),
        *("--no-index", wheel),
        cwd=folder,
    )
    # Path files of the borrowed folders are not read, so an editable robogen stays out of sight.
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return python


def test_the_wheel_holds_code_data_and_types(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "robogen/py.typed" in names
    for group in GROUPS:
        here = {
            f"robogen/_data/{group}/{file.relative_to(ROOT / group)}"
            for file in (ROOT / group).rglob("*")
            if file.is_file() and file.suffix in (".yaml", ".xml", ".safetensors", ".json")
        }
        assert here
        assert here <= names
    package = Path(robogen.__file__).parent
    for file in package.rglob("*"):
        inside = f"robogen/{file.relative_to(package)}"
        if (
            file.is_file()
            and "__pycache__" not in inside
            and not inside.startswith("robogen/_data")
        ):
            assert inside in names, f"{inside} is not in the wheel"
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_it_runs_a_study_from_elsewhere(installed: Path, tmp_path: Path):
    where = run(installed, "-c", "import robogen; print(robogen.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(installed.parent.parent)
    command = installed.parent / "robogen"
    run(
        *(command, "eval", "scene=push", "policy=oracle", "perturbation=camera_pose"),
        *("episodes=1", "workers=1", "videos=0", "out=run"),
        cwd=tmp_path,
    )
    records = list(read_records(tmp_path / "run"))
    assert [(r.condition, r.status, r.success) for r in records] == [
        ("camera_pose", "scored", True),
        ("nominal", "scored", True),
    ]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]
