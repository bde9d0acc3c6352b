"""GR00T's ZeroMQ protocol against a double on the loopback interface."""

from __future__ import annotations

import contextlib
import io
import socket
import sys

import msgpack
import numpy as np
import pytest
from groot_double import MODALITIES, GrootDouble, moves

from robogen.errors import ConfigError, PolicyError, PolicyUnavailable, SpecError
from robogen.policies.base import RowsFailed
from robogen.policies.groot import GR00TPolicy
from robogen.policies.groot_wire import address, array_of, pack, unpack
from robogen.policies.library import load_policy
from robogen.specs import Observation, SceneSpec, match

SCENE = SceneSpec(
    name="lab",
    cameras=("front", "wrist"),
    state={"joint_pos": 7, "eef_pos": 3, "eef_axis_angle": 3, "gripper_qpos": 2},
    action_modes={"delta_eef": 7},
    control_hz=20.0,
    horizon=100,
)
FAST = {"backoff_s": 0.01, "retries": 2, "size": 32}


@pytest.fixture
def serve():
    doubles = []

    def make(**kwargs):
        doubles.append(GrootDouble(**kwargs))
        return doubles[-1]

    yield make
    for double in doubles:
        double.close()


@pytest.fixture
def connect():
    policies = []

    def make(url, **changes):
        overrides = {"servers": getattr(url, "url", url), **FAST, **changes}
        policies.append(load_policy("groot", overrides=overrides))
        policies[-1].fit(SCENE)
        return policies[-1]

    yield make
    for policy in policies:
        policy.close()


def seen(seed=0, size=32):
    rng = np.random.default_rng(seed)
    images = {n: rng.integers(0, 256, (size, size, 3), dtype=np.uint8) for n in SCENE.cameras}
    state = rng.normal(size=8).astype(np.float32)
    return Observation(images=images, state=state, instruction=f"move {seed}", step=0)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def expected(row, horizon=16):
    state = [row.state[n : n + 1] for n in range(6)] + [row.state[6:]]
    return moves(list(row.images.values()), state, row.instruction, horizon)


@pytest.mark.parametrize("protocol", ["nested", "batched_flat", "flat"])
@pytest.mark.parametrize("form", ["mapping", "text", "as_dict"])
def test_every_generation_of_the_protocol(serve, connect, protocol, form):
    server = serve(protocol=protocol, form=form)
    policy = connect(server, protocol=protocol)
    rows = [seen(n) for n in range(3)]
    chunks = policy.act([0, 1, 2], rows)
    assert chunks.shape == (3, 16, 7)
    for row, chunk in zip(rows, chunks, strict=True):
        np.testing.assert_allclose(chunk, expected(row), atol=1e-6)
    data = server.questions[-1]
    if protocol == "flat":
        assert data["video.image"].shape == (1, 32, 32, 3)
        assert data["state.gripper"].shape == (1, 2)
        assert data["annotation.human.action.task_description"] == ["move 2"]
    else:
        frames = data["observation"]
        frames = frames["video"] if protocol == "nested" else frames
        key = "image" if protocol == "nested" else "video.image"
        assert frames[key].shape == (1, 1, 32, 32, 3)
    assert policy.spec.observation.state == ("eef_pos", "eef_axis_angle", "gripper_qpos")
    assert match(policy.spec, SCENE).action.control_hz == 20.0
    assert policy.identity()["actions"] == "x, y, z, roll, pitch, yaw, gripper"


def test_a_model_with_history(serve, connect):
    told = {**MODALITIES}
    for kind in ("video", "state"):
        told[kind] = {**MODALITIES[kind], "delta_indices": [-1, 0]}
    server = serve(modalities=told)
    policy = connect(server, observation={"history": [-1, 0]})
    one = seen(1)
    both = one._replace(
        images={name: np.stack([image, image]) for name, image in one.images.items()},
        state=np.stack([one.state, one.state]),
    )
    assert policy.act([0], [both]).shape == (1, 16, 7)
    nested = server.questions[-1]["observation"]
    assert nested["video"]["image"].shape == (1, 2, 32, 32, 3)
    assert nested["state"]["gripper"].shape == (1, 2, 2)


def test_slices_of_the_state(serve):
    told = {**MODALITIES, "state": {"delta_indices": [0], "modality_keys": ["arm", "both"]}}
    server = serve(modalities=told)
    policy = load_policy(
        "groot",
        overrides={
            "servers": server.url,
            "state": {"arm": "joint_pos[2:5]", "both": ["gripper_qpos[1]", "joint_pos"]},
            **FAST,
        },
    )
    policy.fit(SCENE)
    assert policy.spec.observation.state == ("joint_pos", "gripper_qpos")
    row = seen()._replace(state=np.arange(9, dtype=np.float32))
    policy.act([0], [row])
    state = server.questions[-1]["observation"]["state"]
    assert state["arm"].ravel().tolist() == [2, 3, 4]
    assert state["both"].ravel().tolist() == [8, 0, 1, 2, 3, 4, 5, 6]
    policy.close()


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ({"x": "eefpos"}, ConfigError, "'eefpos'. Did you mean 'eef_pos'"),
        ({"x": "eef_pos[a]"}, ConfigError, "or a slice of one"),
        ({"x": 3}, ConfigError, "or a slice of one"),
        ({"x": []}, ConfigError, "names no state part"),
        ({"x": "eef_pos[3]"}, SpecError, r"eef_pos\[3:4\], and eef_pos has 3 numbers"),
        ({"x": "eef_pos[2:1]"}, SpecError, r"eef_pos\[2:1\]"),
    ],
)
def test_wrong_slices(serve, state, error, message):
    with pytest.raises(error, match=message):
        load_policy("groot", overrides={"servers": serve().url, "state": state}).fit(SCENE)


def test_keys_and_horizons_are_compared_with_the_models(serve, connect):
    told = {
        **MODALITIES,
        "video": {"delta_indices": [-1, 0], "modality_keys": ["ego_view"]},
        "action": {"delta_indices": list(range(8)), "modality_keys": ["arm", "hand"]},
        "language": {"delta_indices": [0], "modality_keys": ["task"]},
    }
    with pytest.raises(SpecError) as refused:
        connect(serve(modalities=told))
    for part in (
        "video keys are image, wrist_image here and ego_view there",
        "history of video is 1 here and 2 there",
        "action keys are gripper, pitch",
        "chunk of action is 16 here and 8 there",
        "language keys are annotation.human.action.task_description here and task there",
    ):
        assert part in str(refused.value)
    assert "state keys" not in str(refused.value)


def test_a_server_that_does_not_tell_its_keys(serve, connect):
    assert connect(serve(modalities=None)).act([0], [seen()]).shape == (1, 16, 7)


def test_the_wrong_protocol_is_told_before_the_first_episode(serve, connect):
    with pytest.raises(PolicyError, match=r"first question.*replied with an error"):
        connect(serve(protocol="flat"), protocol="nested")


FAULTS = {
    "error": "replied with an error: 'CUDA out of memory'",
    "garbage": "40 bytes that cannot be read: not msgpack",
    "pickle": "a pickle, as the first release",
    "object": "only a pickle can hold",
    "huge": "sent 100 MiB",
    "nan": "112 numbers that are NaN",
    "shape": r"shape \(5, 7\).*promises \(16, 7\)",
    "key": "without numbers for the action 'gripper'; it has x, y",
    "late": "no answer within 0.3 s",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_goes_wrong_is_tried_again_and_fails_only_its_row(serve, connect, fault):
    server = serve(late_s=0.4)
    policy = connect(server, deadline_s=0.3 if fault == "late" else 20.0, retries=1)
    rows = [seen(n) for n in range(4)]
    good = policy.act(range(4), rows)

    tries = []

    def on_the_third(number):
        tries.append(server.questions[number]["observation"]["language"])
        ((text,),) = tries[-1].values()
        return fault if text == ["move 2"] else None

    server.fault = on_the_third
    with pytest.raises(RowsFailed) as failed:
        policy.act(range(4), rows)
    assert set(failed.value.failures) == {2}
    (error,) = failed.value.failures.values()
    assert "\n" not in str(error)
    with pytest.raises(PolicyError, match=FAULTS[fault]):
        raise error
    for place in (0, 1, 3):
        np.testing.assert_array_equal(failed.value.answers[place], good[place])
    assert sum(list(told.values()) == [[["move 2"]]] for told in tries) == 2

    flaky = iter([fault])
    server.fault = lambda n: next(flaky, None)
    np.testing.assert_array_equal(policy.act(range(4), rows), good)


def test_several_servers_share_the_rows(serve, connect):
    servers = [serve(), serve()]
    policy = connect([server.url for server in servers])
    rows = [seen(n) for n in range(8)]
    for row, chunk in zip(rows, policy.act(range(8), rows), strict=True):
        np.testing.assert_allclose(chunk, expected(row), atol=1e-6)
    assert all(len(server.questions) > 1 for server in servers)


def test_a_server_that_is_not_there(connect):
    with pytest.raises(PolicyUnavailable, match=r"No GR00T server answers: Nothing.*Start it"):
        connect(f"127.0.0.1:{free_port()}", deadline_s=0.2)


def test_something_else_listens(connect):
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(PolicyUnavailable, match="Nothing that speaks ZeroMQ"),
    ):  # the kernel takes the connection, and nobody ever says a word
        connect(f"127.0.0.1:{other.getsockname()[1]}", deadline_s=0.3)


def test_a_server_that_dies_stops_the_study_and_may_come_back(connect):
    with GrootDouble(fault=lambda n: "die" if n else None) as server:
        policy = connect(server, deadline_s=0.5)
        with pytest.raises(PolicyUnavailable, match="Start the server again"):
            policy.act([0, 1], [seen(), seen(1)])
    with GrootDouble(port=server.port):
        np.testing.assert_allclose(policy.act([0], [seen()])[0], expected(seen()), atol=1e-6)


def test_a_token(serve, connect, monkeypatch):
    server = serve(token="secret")
    with pytest.raises(PolicyError, match="wants an API token"):
        connect(server)
    monkeypatch.setenv("GROOT_TOKEN", "secret")
    assert connect(server, api_token_env="GROOT_TOKEN").act([0], [seen()]).shape == (1, 16, 7)
    assert "secret" not in str(connect(server, api_token_env="GROOT_TOKEN").identity())
    monkeypatch.delenv("GROOT_TOKEN")
    with pytest.raises(ConfigError, match="GROOT_TOKEN, which api_token_env names, is not set"):
        connect(server, api_token_env="GROOT_TOKEN")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol": "nestd"}, r"'nestd'. Did you mean 'nested'"),
        ({"deadline_s": -1}, "deadline_s must be above 0"),
        ({"actions": []}, "actions must list"),
        ({"observation": {"pixels": "unit"}}, "layout must be hwc"),
        ({"servers": "http://x:1"}, "addressed as tcp://host:port"),
        ({"servers": "tcp://me:secret@x:1"}, "must not hold a name or password"),
        ({"cameras": {"image": 4}}, "cameras.image must be the name"),
    ],
)
def test_parameters_are_checked(changes, message):
    with pytest.raises(ConfigError, match=message):
        load_policy("groot", overrides={"servers": "localhost:1", **changes})


def test_addresses():
    assert address("host") == "tcp://host:5555"
    assert address("tcp://host:7/") == "tcp://host:7"


def test_arrays_survive_the_wire():
    rng = np.random.default_rng(0)
    for array in (
        rng.integers(0, 256, (2, 3, 4, 3), dtype=np.uint8),
        np.asfortranarray(rng.normal(size=(3, 4))),
        np.zeros((0, 4), np.float32),
        np.array(2.5),
        rng.normal(size=5).astype(">f4"),
    ):
        back = unpack(pack({"a": [array]}))["a"][0]
        np.testing.assert_array_equal(back, array)
        assert back.dtype == array.dtype


def npy(header):
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + b"\0" * 16


@pytest.mark.parametrize(
    "data",
    [
        b"",
        "text",
        b"PK\x03\x04",
        b"\x93NUMPY",
        b"\x93NUMPY\x09\x09" + b"\0" * 40,
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999,), }"),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-2,), }"),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }"),
        npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2,), }"),
        npy("__import__('os').abort()"),
    ],
)
def test_no_array_is_believed(data):
    with pytest.raises(ValueError, match=r"."):
        array_of(data)
    message = msgpack.packb({"x": {"__ndarray_class__": True, "as_npy": data}})
    with pytest.raises(ValueError, match="not msgpack"):
        unpack(message)


def test_random_bytes_are_no_messages():
    rng = np.random.default_rng(1)
    whole = pack({"action": np.zeros((2, 3)), "__ModalityConfig_class__": 1, "as_json": "{"})
    for _ in range(300):
        data = bytearray(whole if rng.random() < 0.5 else rng.bytes(40))
        data[rng.integers(len(data))] = rng.integers(256)
        with contextlib.suppress(ValueError):
            unpack(bytes(data))


def test_a_missing_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(ConfigError, match=r"pip install 'robogen\[groot\]'"):
        GR00TPolicy(servers="localhost:1", cameras=["front"], state={}, actions=["x"])


def test_pickles_are_named():
    file = io.BytesIO()
    np.save(file, np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match="only a pickle can hold"):
        array_of(file.getvalue())
