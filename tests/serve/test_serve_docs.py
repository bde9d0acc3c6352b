"""What docs/serve.md and docs/openpi.md tell users to write works as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml
from openpi_double import free_port

from robogen.policies.library import load_policy
from robogen.records.reader import read_records
from robogen.scenes.load import load_scene
from robogen.study.config import compose_study
from robogen.study.design import resolve
from robogen.study.study import run_study

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_server_for_another_environment(tmp_path):
    """The script and the file of the page, in a process of its own and in a study."""
    (script,) = [block for block in blocks("serve.md", "python") if "def model" in block]
    (file,) = blocks("serve.md", "yaml")
    (tmp_path / "server.py").write_text(script)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.yaml").write_text(file)
    port = free_port()
    server = subprocess.Popen([sys.executable, str(tmp_path / "server.py"), str(port)])
    try:
        words = [
            "scene=pick", "scene.pick.horizon_s=0.7", "policy=mine", "suite=null", "episodes=2",
            f"policy.mine.servers=ws://127.0.0.1:{port}", "policy.mine.wait_s=60", "workers=0",
            "slots=1", "batch=1", "frames=0", "videos=0", "repeats=0",
        ]  # fmt: skip
        run_study(resolve(compose_study(words), (tmp_path,)), tmp_path / "run")
    finally:
        server.kill()
        server.wait()
    records = list(read_records(tmp_path / "run", actions=True))
    assert [record.status for record in records] == ["scored", "scored"]
    assert all((record.actions == 0.0).all() for record in records)


def test_the_request_of_the_page_is_what_the_policy_reads():
    """Keys and shapes of the example, for the policy and scene that the page begins with."""
    (example,) = [block for block in blocks("serve.md", "python") if "client.infer" in block]
    said = dict(re.findall(r'"(observation/[^"]+)": np\.zeros\((\([\d, ]+\)|\d+),', example))
    spec = load_policy("bc", scene="pick").spec.observation
    scene = load_scene("pick")
    size = sum(scene.spec.state[part] for part in spec.state)
    scene.close()
    assert said == {
        **{f"observation/images/{c.name}": str((c.height, c.width, 3)) for c in spec.cameras},
        "observation/state": str(size),
    }


def test_the_layout_of_the_page_is_one(tmp_path):
    (file,) = blocks("openpi.md", "yaml")
    (tmp_path / "mine.yaml").write_text(file)
    spec = load_policy("mine", extra_dirs=[tmp_path]).spec
    assert [camera.name for camera in spec.observation.cameras] == ["front", "wrist"]
    assert (spec.action.chunk, spec.action.execute) == (10, 5)
    assert set(yaml.safe_load(file)) >= {"images", "state", "prompt", "extras", "nested", "action"}
