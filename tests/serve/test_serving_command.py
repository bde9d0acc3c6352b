"""``robogen serve`` as it is typed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from urllib.parse import urlsplit

import pytest

from robogen.cli.app import run

LAYOUT = """
images: {observation/image: {camera: front}, observation/wrist_image: {camera: wrist}}
state: {observation/state: [eef_pos, eef_rot6d, gripper_opening]}
prompt: prompt
action: {chunk: 8}
"""


def said(capfd, *words):
    capfd.readouterr()
    code = run(["serve", *words])
    assert code == 2
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("robogen: ")]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs policy="),
        (["policy=nobody", "scene=push"], "Unknown policy 'nobody'"),
        (["policy=bc"], "no scene was given"),
        (["policy=oracle", "scene=push"], "reads the simulator's own state"),
        (["policy=zero", "scene=push", "prot=1"], "Did you mean 'port'"),
        (["policy=zero", "scene=push", "port=70000"], "port must be at most 65535"),
        (["policy=zero", "scene=push", "api_key_env=NO_SUCH_KEY"], "'NO_SUCH_KEY', which is not"),
        (["policy=zero", "scene=push", "policy.bc.execute=2"], "Override of policy 'bc'"),
        (["policy=zero", "layout=none.yaml"], "Cannot read layout=none.yaml"),
    ],
)
def test_mistakes_are_told_in_a_paragraph(capfd, monkeypatch, words, message):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    assert message in said(capfd, *words)


def test_a_layout_must_fit_the_policy(capfd, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(LAYOUT.replace("wrist}", "left}"))
    message = said(capfd, "policy=bc", "scene=push", f"layout={file}")
    assert "'observation/wrist_image' is for camera 'left'" in message
    file.write_text("prompt: task\n")
    assert "names no images and no state" in said(capfd, "policy=bc", f"layout={file}")


def test_it_serves_until_ctrl_c(tmp_path):
    """As a user starts it, in a process of its own, with a layout, for other machines too."""
    layout = tmp_path / "libero.yaml"
    layout.write_text(LAYOUT)
    words = ["policy=bc", "scene=push", "port=0", "host=0.0.0.0", f"layout={layout}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "robogen", "serve", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        first = process.stdout.readline()
        assert first.startswith("Serving bc at ws://0.0.0.0:")
        port = urlsplit(first.split()[3]).port
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30.0) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60.0)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Stopped." in out
    assert "Warning: whoever can reach 0.0.0.0 can use this policy" in err
    assert "Traceback" not in err
