"""The public openpi-client against ``robogen serve`` (``make test-openpi``).

The package wants NumPy below 2, so this runs in its own environment, without robogen; the server
and the policy in process run in the project's.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("ROBOGEN_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
pytestmark = [
    pytest.mark.extras,
    pytest.mark.skipif(
        importlib.util.find_spec("openpi_client") is None, reason="no openpi-client"
    ),
    pytest.mark.filterwarnings("ignore"),  # the package's own
]
KEYS = {
    "image": "observation/image",
    "wrist": "observation/wrist_image",
    "state": "observation/state",
}
LAYOUT = """
images: {observation/image: {camera: front}, observation/wrist_image: {camera: wrist}}
state: {observation/state: [eef_pos, eef_rot6d, gripper_opening]}
prompt: prompt
"""
AT_HOME = """
import sys
import numpy as np
from robogen.policies.library import load_policy
from robogen.rollout.loop import padded
from robogen.specs import Observation

seen = np.load(sys.argv[1])
policy = load_policy("bc", scene="push")
made = [
    Observation({"front": i, "wrist": w}, s, "push the puck onto the disc", 0)
    for i, w, s in zip(seen["image"], seen["wrist"], seen["state"])
]
np.save(sys.argv[2], np.stack([padded(policy, [0], [one], 8)[0] for one in made]))
"""
PROMPT = "push the puck onto the disc"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Some observations, and what the policy makes of them in a process of its own."""
    folder = tmp_path_factory.mktemp("seen")
    rng = np.random.default_rng(0)
    found = {
        "image": rng.integers(0, 256, (5, 96, 96, 3), dtype=np.uint8),
        "wrist": rng.integers(0, 256, (5, 96, 96, 3), dtype=np.uint8),
        "state": rng.normal(size=(5, 10)).astype(np.float32),
    }
    np.savez(folder / "seen.npz", **found)
    subprocess.run(
        [PYTHON, "-c", AT_HOME, str(folder / "seen.npz"), str(folder / "actions.npy")],
        check=True,
        cwd=ROOT,
    )
    return {**found, "actions": np.load(folder / "actions.npy")}


def serve(*words: str, key: str | None = None) -> Iterator[int]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **({"SERVE_KEY": key} if key else {})}
    process = subprocess.Popen(
        [PYTHON, "-m", "robogen", "serve", "policy=bc", "scene=push", "port=0", *words],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("Serving bc at ws://127.0.0.1:"), first
        yield int(first.split()[3].rpartition(":")[2])
    finally:
        process.terminate()
        process.communicate(timeout=30.0)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    yield from serve()


@pytest.fixture(scope="module")
def port_with_layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    file = tmp_path_factory.mktemp("layout") / "mine.yaml"
    file.write_text(LAYOUT)
    yield from serve(f"layout={file}", "api_key_env=SERVE_KEY", key="s3cret")


def client(port: int, api_key: str | None = None) -> Any:
    from openpi_client.websocket_client_policy import WebsocketClientPolicy

    return WebsocketClientPolicy(host="127.0.0.1", port=port, api_key=api_key)


def request(seen: dict[str, Any], number: int, keys: dict[str, str]) -> dict[str, Any]:
    return {**{keys[name]: seen[name][number] for name in keys}, "prompt": PROMPT}


OURS = {
    "image": "observation/images/front",
    "wrist": "observation/images/wrist",
    "state": "observation/state",
}


def test_numpy_is_the_old_one():
    assert int(np.__version__.split(".")[0]) < 2


def test_its_client_gets_the_policys_actions(port: int, seen: dict[str, Any]):
    one = client(port)
    assert one.get_server_metadata()["robogen"]["policy"] == "bc"
    for number, expected in enumerate(seen["actions"]):
        answer = one.infer(request(seen, number, OURS))
        np.testing.assert_array_equal(answer["actions"], expected)
        assert answer["server_timing"]["infer_ms"] > 0


def test_its_client_gets_them_under_libero_keys_and_with_a_key(
    port_with_layout: int, seen: dict[str, Any]
):
    one = client(port_with_layout, "s3cret")
    for number, expected in enumerate(seen["actions"]):
        np.testing.assert_array_equal(one.infer(request(seen, number, KEYS))["actions"], expected)
    with pytest.raises(Exception, match="401"):
        client(port_with_layout, "another")


def test_its_chunk_broker_replays_them(port: int, seen: dict[str, Any]):
    from openpi_client.action_chunk_broker import ActionChunkBroker

    broker = ActionChunkBroker(client(port), action_horizon=4)
    for expected in seen["actions"][0][:4]:
        np.testing.assert_array_equal(broker.infer(request(seen, 0, OURS))["actions"], expected)
    np.testing.assert_array_equal(
        broker.infer(request(seen, 1, OURS))["actions"], seen["actions"][1][0]
    )


def test_an_error_is_raised_there_and_the_connection_lives_on(port: int, seen: dict[str, Any]):
    one = client(port)
    bad = request(seen, 0, OURS)
    del bad["observation/images/wrist"]
    with pytest.raises(RuntimeError, match="The request has no 'observation/images/wrist'"):
        one.infer(bad)
    answer = one.infer(request(seen, 0, OURS))
    np.testing.assert_array_equal(answer["actions"], seen["actions"][0])
