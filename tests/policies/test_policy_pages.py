"""What the pages on own code and on servers tell people to write works as written."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
from groot_double import GrootDouble
from openvla_double import OpenVLADouble, moves

from robogen.policies.library import load_policy
from robogen.specs import SceneSpec, match
from robogen.study.config import compose_study
from robogen.study.design import resolve
from robogen.study.study import run_study

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```\w+\n(?:#|//) mine/(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def written(page: str, folder: Path) -> list[Path]:
    """The files of a page, with their contents, in a folder of their own."""
    files = []
    for name, text in BLOCK.findall((DOCS / page).read_text()):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        files.append(file)
    return files


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files = written("callable.md", tmp_path)
    templates = [file for file in files if file.suffix == ".py"]
    assert {file.name for file in templates} == {"my_functions.py", "my_policies.py", "export.py"}
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["export.py", str(tmp_path / "policies" / "net.pt")])
    runpy.run_path(str(tmp_path / "export.py"), run_name="__main__")
    words = ["scene=pick", "policy=[mine,wiggle,net]", "suite=null", "episodes=1"]
    words += ["scene.pick.horizon_s=1.0", "workers=0", "slots=2", "frames=0", "videos=0"]
    result = run_study(resolve(compose_study(words), (tmp_path,)), tmp_path / "run")
    assert (result.total, result.errored) == (3, 0)
    for module in ("my_functions", "my_policies"):
        sys.modules.pop(module)


def test_templates_are_short():
    for name, text in BLOCK.findall((DOCS / "callable.md").read_text()):
        lines = [line for line in text.splitlines() if line.strip()]
        assert len(lines) <= 25, f"{name} has grown to {len(lines)} lines"


LIBERO = SceneSpec(
    name="libero/spatial_0",
    cameras=("agentview", "robot0_eye_in_hand", "front"),
    state={"eef_pos": 3, "eef_axis_angle": 3, "gripper_qpos": 2},
    action_modes={"delta_eef": 7},
    control_hz=20.0,
    horizon=280,
)
ARM = SceneSpec(
    name="arm",
    cameras=("front", "wrist"),
    state={"joint_pos": 7, "gripper_opening": 1},
    action_modes={"absolute_joint": 8},
    control_hz=10.0,
    horizon=100,
)


def test_openvla_files(tmp_path: Path):
    names = [file.stem for file in written("openvla.md", tmp_path)]
    assert names == ["openvla_oft", "openvla_bridge"]
    for name in names:
        chunk = 8 if name == "openvla_oft" else 1
        with OpenVLADouble(lambda r, n=chunk: moves(r, n), wire="list") as server:
            overrides = {"servers": server.url, "action.control_hz": 20.0}
            policy = load_policy(name, overrides=overrides, extra_dirs=[tmp_path])
            policy.fit(LIBERO)
            assert match(policy.spec, LIBERO).action.dim == 7
            policy.close()


def test_groot_files(tmp_path: Path):
    (file,) = written("groot.md", tmp_path)
    modalities = {
        "video": {"delta_indices": [0], "modality_keys": ["front", "hand"]},
        "state": {"delta_indices": [0], "modality_keys": ["single_arm", "gripper"]},
        "action": {"delta_indices": list(range(16)), "modality_keys": ["single_arm", "gripper"]},
        "language": {
            "delta_indices": [0],
            "modality_keys": ["annotation.human.task_description"],
        },
    }
    with GrootDouble(modalities=modalities, widths={"single_arm": 7}) as server:
        policy = load_policy(file.stem, overrides={"servers": server.url}, extra_dirs=[tmp_path])
        policy.fit(ARM)
        assert match(policy.spec, ARM).action.dim == 8
        policy.close()
