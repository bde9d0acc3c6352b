"""OpenVLA's REST protocol against a double on the loopback interface."""

from __future__ import annotations

import socket
import sys

import json_numpy
import numpy as np
import pytest
from openvla_double import OpenVLADouble, moves

from robogen.errors import ConfigError, PolicyError, PolicyUnavailable, SpecError
from robogen.policies.base import RowsFailed
from robogen.policies.library import load_policy
from robogen.policies.openvla import OpenVLAPolicy, address
from robogen.policies.remote import CallFailed
from robogen.records.reader import read_records
from robogen.specs import Observation, SceneSpec, match
from robogen.study.config import compose_study
from robogen.study.design import resolve
from robogen.study.study import run_study

SCENE = SceneSpec(
    name="lab",
    cameras=("front", "wrist"),
    state={"eef_pos": 3, "eef_axis_angle": 3, "gripper_qpos": 2},
    action_modes={"delta_eef": 7},
    control_hz=20.0,
    horizon=100,
)
FAST = {"backoff_s": 0.01, "retries": 2, "size": 32}


@pytest.fixture
def serve():
    doubles = []

    def make(*args, **kwargs):
        doubles.append(OpenVLADouble(*args, **kwargs))
        return doubles[-1]

    yield make
    for double in doubles:
        double.close()


@pytest.fixture
def connect():
    policies = []

    def make(url, **changes):
        values = {"unnorm_key": "bridge_orig", **FAST, **changes}
        policies.append(OpenVLAPolicy(servers=getattr(url, "url", url), **values))
        policies[-1].fit(SCENE)
        return policies[-1]

    yield make
    for policy in policies:
        policy.close()


def seen(seed=0, size=32, state=0):
    rng = np.random.default_rng(seed)
    images = {n: rng.integers(0, 256, (size, size, 3), dtype=np.uint8) for n in SCENE.cameras}
    return Observation(
        images=images,
        state=rng.normal(size=state).astype(np.float32),
        instruction=f"do {'this' if seed % 2 else 'that'} {seed}",
        step=0,
    )


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_what_is_asked_and_what_comes_back(serve, connect):
    server = serve()
    policy = connect(server)
    rows = [seen(n) for n in range(3)]
    chunks = policy.act([0, 1, 2], rows)
    assert chunks.shape == (3, 1, 7)
    asked = {request["instruction"]: request for request in server.requests}
    for row, chunk in zip(rows, chunks, strict=True):
        request = asked[row.instruction]
        assert set(request) == {"image", "instruction", "unnorm_key"}
        assert request["unnorm_key"] == "bridge_orig"
        assert request["image"].dtype == np.uint8
        np.testing.assert_array_equal(request["image"], row.images["front"])
        np.testing.assert_allclose(chunk, moves(request))
    spec = policy.spec
    assert spec.observation.instruction
    assert (spec.action.gripper, spec.action.gripper_range) == ("open_positive", "unit")
    assert spec.action.control_hz == 20.0, "the scene's"
    assert [camera.width for camera in spec.observation.cameras] == [32]
    assert match(spec, SCENE).action.gripper == "close_positive"
    assert not spec.deterministic
    assert not policy.pad
    assert policy.identity()["unnorm_key"] == "bridge_orig"


def test_both_encodings_say_the_same(serve, connect):
    plain, double = serve(), serve()
    rows = [seen(n) for n in range(2)]
    answers = [
        connect(server, encoding=encoding).act([0, 1], rows)
        for server, encoding in ((plain, "plain"), (double, "double"))
    ]
    np.testing.assert_array_equal(*answers)
    assert all(set(body) == {"encoded"} for body in double.bodies)
    assert all("image" in body for body in plain.bodies)


def test_the_chunks_of_openvla_oft(serve, connect):
    server = serve(lambda request: moves(request, chunk=8), wire="list")
    policy = connect(
        server,
        cameras={"full_image": "front", "wrist_image": "wrist"},
        state=["eef_pos", "eef_axis_angle", "gripper_qpos"],
        action={"chunk": 8},
    )
    row = seen(3, state=8)
    chunk = policy.act([0], [row])
    assert chunk.shape == (1, 8, 7)
    assert policy.spec.action.execute == 8
    request = server.requests[-1]
    np.testing.assert_array_equal(request["state"], row.state)
    np.testing.assert_array_equal(request["wrist_image"], row.images["wrist"])
    np.testing.assert_allclose(chunk[0], moves(request, chunk=8))


def test_an_answer_under_a_key_and_an_undecided_gripper(serve, connect):
    server = serve(lambda request: {"action": np.full(7, 0.7)})
    assert connect(server).act([0], [seen()])[0, 0].tolist() == [0.7] * 6 + [1.0]
    raw = connect(server, binary_gripper=False)
    assert raw.act([0], [seen()])[0, 0].tolist() == [0.7] * 7


def test_several_servers_share_the_rows(serve, connect):
    servers = [serve(), serve(), serve()]
    policy = connect([server.url for server in servers])
    rows = [seen(n) for n in range(12)]
    alone = connect(servers[0])
    np.testing.assert_array_equal(policy.act(range(12), rows), alone.act(range(12), rows))
    assert all(server.requests for server in servers)


FAULTS = {
    "error": r"answered 'error'.*own output.*unnorm_key 'bridge_orig'",
    "500": "HTTP 500: 'Internal Server Error'",
    "garbage": "128 bytes that are not json_numpy",
    "huge": "more than 16 MiB",
    "nan": "7 numbers that are NaN",
    "shape": r"shape \(5,\).*promises \(1, 7\)",
    "null": "'None' where actions belong",
    "close": "connection to .* broke",
    "late": "no answer within 0.3 s",
    "trickle": "no answer within 0.3 s",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_goes_wrong_is_tried_again_and_fails_only_its_row(serve, connect, fault):
    bad = {"words": "do that 2"}
    server = serve(late_s=0.5)
    policy = connect(server, deadline_s=0.3 if fault in ("late", "trickle") else 10.0, retries=1)
    rows = [seen(n) for n in range(4)]
    good = policy.act(range(4), rows)

    server.fault = lambda n: fault if _words(server.bodies[n]) == bad["words"] else None
    before = len(server.bodies)
    with pytest.raises(RowsFailed) as failed:
        policy.act(range(4), rows)
    assert set(failed.value.failures) == {2}
    (error,) = failed.value.failures.values()
    assert isinstance(error, PolicyError)
    assert "\n" not in str(error)
    assert len(str(error)) < 700
    with pytest.raises(PolicyError, match=FAULTS[fault]):
        raise error
    for place in (0, 1, 3):
        np.testing.assert_array_equal(failed.value.answers[place], good[place])
    tries = [_words(body) for body in server.bodies[before:]]
    assert tries.count(bad["words"]) == 2

    flaky = iter([fault])
    server.fault = lambda n: next(flaky, None)
    np.testing.assert_array_equal(policy.act(range(4), rows), good)


def _words(body):
    return body["instruction"]


def test_a_wrong_path_is_not_tried_again(serve):
    server = serve()
    policy = OpenVLAPolicy(servers=f"{server.url}/predict", unnorm_key="x", **FAST)
    with pytest.raises(PolicyError, match=r"HTTP 404.*takes POST /act"):
        policy.fit(SCENE)
    assert not server.bodies
    policy.close()


def test_a_server_that_is_not_there(connect):
    with pytest.raises(PolicyUnavailable, match=r"No OpenVLA server answers: http://127.*Start it"):
        connect(f"127.0.0.1:{free_port()}")


def test_one_of_two_servers_is_not_there(serve, connect):
    server = serve()
    policy = connect([f"127.0.0.1:{free_port()}", server.url])
    assert policy.act(range(4), [seen(n) for n in range(4)]).shape == (4, 1, 7)


def test_a_server_that_dies_stops_the_study_and_may_come_back():
    server = OpenVLADouble()
    policy = OpenVLAPolicy(servers=server.url, unnorm_key="x", **FAST)
    policy.fit(SCENE)
    policy.act([0], [seen()])
    server.close()
    with pytest.raises(PolicyUnavailable, match=r"Start the server again"):
        policy.act([0, 1], [seen(), seen(1)])
    with OpenVLADouble(port=server.port):
        assert policy.act([0], [seen()]).shape == (1, 1, 7)
        policy.close()


def test_a_wrong_statistics_key_is_told_before_the_first_episode(serve, connect):
    def answer(request):
        assert request["unnorm_key"] == "libero_spatial"
        return moves(request)[0]

    with pytest.raises(PolicyError, match=r"first question.*'error'.*unnorm_key 'bridge_orig'"):
        connect(serve(answer))


def test_the_statistics_key_is_required():
    with pytest.raises(ConfigError, match=r"unnorm_key must be.*dataset_statistics.json"):
        load_policy("openvla")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoding": "dubble"}, r"'dubble'. Did you mean 'double'"),
        ({"deadline_s": 0}, "deadline_s must be above 0"),
        ({"cameras": {"state": "front"}}, "'state' is another key"),
        ({"observation": {"layout": "chw"}}, "layout must be hwc"),
        ({"observation": {"history": [-1, 0]}}, "layout must be hwc"),
        ({"action": {"gripper": "open"}}, "value of action.gripper 'open'"),
        ({"servers": "ftp://x"}, "servers must be addresses"),
        ({"servers": None}, "servers must be addresses"),
        ({"servers": []}, "No address of a OpenVLA server"),
        ({"servers": "http://me:secret@h:1"}, "must not hold a name or password"),
    ],
)
def test_parameters_are_checked(changes, message):
    with pytest.raises(ConfigError, match=message):
        OpenVLAPolicy(**{"servers": "http://localhost:1", "unnorm_key": "x", **changes})


def test_a_camera_of_another_name_offers_a_rename(serve):
    policy = OpenVLAPolicy(servers=serve().url, unnorm_key="x", cameras={"image": "frontal"})
    with pytest.raises(SpecError, match=r"policy\.NAME\.cameras\.image=front"):
        policy.fit(SCENE)
    policy.close()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 100_000,
        b'{"__numpy__": "AAAA", "dtype": "<f8", "shape": [7]}',
        b'{"__numpy__": "AAAAAAAAAAA=", "dtype": "|O", "shape": [1]}',
        b'{"__numpy__": 3, "dtype": "<f8", "shape": []}',
        b'{"__numpy__": "", "dtype": "(1,f8", "shape": [0]}',
        b'{"__numpy__": ""}',
        b"[1, 2, 3]",
        b'[[1, 2], "x"]',
        b'"0.1 0.2"',
        b'"[1, 2]"',
        b"{}",
        b"true",
        b"[NaN, 1, 1, 1, 1, 1, 1]",
    ],
)
def test_an_answer_may_be_anything(body):
    policy = OpenVLAPolicy(servers="localhost:1", unnorm_key="x")

    class Server:
        def post(self, request):
            return body

    with pytest.raises(CallFailed):
        policy._exchange(Server(), b"")
    policy.close()


def test_addresses():
    assert address("host:8000") == "http://host:8000/act"
    assert address("http://host:8000/") == "http://host:8000/act"
    assert address("https://host/v1/act") == "https://host/v1/act"


def test_nothing_of_json_is_patched(serve, connect):
    import json

    connect(serve()).act([0], [seen()])
    assert json.dumps is not json_numpy.dumps


def test_a_missing_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "json_numpy", None)
    with pytest.raises(ConfigError, match=r"pip install 'robogen\[openvla\]'"):
        OpenVLAPolicy(servers="http://localhost:1", unnorm_key="x")


def test_in_a_study_one_episode_is_lost_and_can_be_run_again(serve, tmp_path):
    server = serve()

    def study(folder, *words):
        words = [
            *("scene=push", "policy=openvla", "suite=null", "episodes=3", "repeats=0"),
            *("scene.push.horizon_s=0.4", "workers=0", "frames=0", "videos=0"),
            *(f"policy.openvla.servers={server.url}", "policy.openvla.unnorm_key=toy"),
            *("policy.openvla.size=32", "policy.openvla.backoff_s=0.01", *words),
        ]
        run_study(resolve(compose_study(words)), tmp_path / folder)
        return {r.episode: r for r in read_records(tmp_path / folder, actions=True)}

    good = study("good", "slots=1")
    frames = [r["image"].tobytes() for r in server.requests if r["instruction"] != "do nothing"]
    assert len(frames) == 3 * 4
    unlucky = frames[4]  # the first frame of the second episode

    def answer(request):
        assert request["image"].tobytes() != unlucky
        return moves(request)[0]

    healthy, server.answer = server.answer, answer
    broken = study("broken", "slots=3")
    assert [r.status for _, r in sorted(broken.items())] == ["scored", "errored", "scored"]
    assert broken[1].error_kind == "policy"
    assert "answered 'error'" in broken[1].error
    assert "Tried 5 times." in broken[1].error
    for episode in (0, 2):
        np.testing.assert_array_equal(broken[episode].actions, good[episode].actions)
    server.answer = healthy
    again = study("broken", "slots=3", "retry_errors=true")
    np.testing.assert_array_equal(again[1].actions, good[1].actions)
