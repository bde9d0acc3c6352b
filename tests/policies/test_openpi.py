"""The client against servers of the public protocol, and against everything that can go wrong."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from openpi_double import Double, Drop, Hang, doubles, free_port

from robogen.errors import ConfigError, PolicyError, PolicyUnavailable, SpecError
from robogen.policies.base import RowsFailed
from robogen.policies.library import load_policy
from robogen.policies.openpi import OpenPIPolicy
from robogen.specs import CameraSpec, Observation, SceneSpec

SCENE = SceneSpec(
    name="pick",
    cameras=("front", "wrist"),
    state={"eef_pos": 3, "eef_axis_angle": 3, "gripper_qpos": 2, "joint_pos": 7},
    action_modes={"delta_eef": 7},
    control_hz=10.0,
    horizon=50,
)
LAYOUT = {
    "images": {
        "observation/image": {"camera": "front", "size": 8, "drawn": [16, 12]},
        "observation/wrist_image": {"camera": "wrist", "size": [8, 6]},
    },
    "state": {"observation/state": ["eef_pos", "gripper_qpos"], "observation/joints": "joint_pos"},
    "observation": {"fit": "pad", "orientation": "mirrored"},
    "action": {"dim": 7, "chunk": 4, "execute": 2},
}
QUICK = {"backoff_s": 0.002, "deadline_s": 5.0, "retries": 3}


def policy(*urls, **changes):
    return OpenPIPolicy(**{"servers": list(urls), **LAYOUT, **QUICK, **changes})


def seen(number=0, state=12, step=0):
    rng = np.random.default_rng(number)
    return Observation(
        images={
            "front": rng.integers(0, 256, (8, 8, 3), dtype=np.uint8),
            "wrist": rng.integers(0, 256, (6, 8, 3), dtype=np.uint8),
        },
        state=np.full(state, number, np.float32),
        instruction=f"do {number}",
        step=step,
    )


def actions(request, number=0):
    """Tells from which request the answer is."""
    del number
    return {"actions": np.full((4, 7), request["observation/state"][0])}


def fitted(*urls, **changes):
    one = policy(*urls, **changes)
    one.fit(SCENE)
    return one


@contextmanager
def meeting(*answers, **changes):
    """Servers that answer as told, and a policy that has met them; the first is given alone."""
    servers = [Double(answer) for answer in answers]
    with doubles(*servers):
        one = fitted(*(server.url for server in servers), **changes)
        try:
            yield (one, *servers)
        finally:
            one.close()


def faulty(fault, times):
    """Answers ``fault`` the first times after the try-out."""

    def answer(request, number):
        if 1 <= number <= times:
            return fault(request) if callable(fault) and not isinstance(fault, type) else fault
        return actions(request)

    return answer


# -- what is said ----------------------------------------------------------------------------------


def test_a_request_holds_what_the_layout_says():
    with meeting(actions, extras={"observation/gain": [1, 2], "mode": "fast"}) as (one, server):
        assert one.spec.observation.cameras == (
            CameraSpec(name="front", width=8, height=8, drawn=(16, 12)),
            CameraSpec(name="wrist", width=8, height=6),
        )
        assert one.spec.observation.state == ("eef_pos", "gripper_qpos", "joint_pos")
        assert one.spec.observation.orientation == "mirrored"
        assert not one.spec.deterministic
        answer = one.act([3], [seen(5)])
        assert answer.shape == (1, 4, 7)
        assert answer.dtype == np.float64
        assert (answer == 5.0).all()
        blank, request = server.requests
        assert list(request) == [
            "observation/image", "observation/wrist_image", "observation/state",
            "observation/joints", "prompt", "observation/gain", "mode",
        ]  # fmt: skip
        np.testing.assert_array_equal(request["observation/image"], seen(5).images["front"])
        assert request["observation/image"].dtype == np.uint8
        assert request["observation/state"].shape == (5,)
        assert request["observation/joints"].shape == (7,)
        assert request["observation/state"].dtype == np.float32
        assert request["observation/gain"].tolist() == [1.0, 2.0]
        assert request["prompt"] == "do 5"
        assert request["mode"] == "fast"
        # The try-out has the same form, so that a server refuses before the first episode.
        assert {k: np.shape(v) for k, v in blank.items()} == {
            k: np.shape(v) for k, v in request.items()
        }


def test_maps_in_maps_and_channels_first():
    layout = {
        "images": {"images/cam_high": {"camera": "front", "size": 8}},
        "state": {"state": "joint_pos"},
        "observation": {"layout": "chw"},
    }

    def answer(request, number):
        assert set(request) == {"images", "state"}
        assert request["images"]["cam_high"].shape == (3, 8, 8)
        return {"actions": np.zeros((4, 7)).tolist()}  # plain lists will do

    with meeting(answer, nested=True, prompt=None, **layout) as (one, _):
        assert not one.spec.observation.instruction
        image = np.zeros((3, 8, 8), np.uint8)
        there = seen(1, state=7)._replace(images={"front": image})
        assert one.act([0], [there]).shape == (1, 4, 7)


def test_a_history_goes_as_it_is():
    def answer(request, number):
        assert request["observation/image"].shape == (2, 8, 8, 3)
        assert request["observation/state"].shape == (2, 5)
        return {"actions": np.full((4, 7), request["observation/state"][1, 0])}

    with meeting(answer, observation={"history": [-1, 0]}) as (one, _):
        old, new = seen(1), seen(2)
        both = new._replace(
            images={k: np.stack([old.images[k], new.images[k]]) for k in new.images},
            state=np.stack([old.state, new.state]),
        )
        assert (one.act([0], [both]) == 2.0).all()


def test_without_a_rate_the_scenes_is_taken():
    server = Double(actions)
    with doubles(server):
        for given, rate in ((None, 10.0), (20.0, 20.0)):
            one = policy(server.url, action={**LAYOUT["action"], "control_hz": given})
            one.fit(SCENE)
            assert one.spec.action.control_hz == rate
            one.close()


def test_a_foreign_server_is_told_nothing_of_ours():
    with meeting(actions) as (one, server):
        one.reset([0], [7])
        one.act([0], [seen()])
        assert not any("robogen" in request for request in server.requests)


def test_a_gripper_can_be_decided():
    def answer(request, number):
        return {"actions": np.tile(np.r_[np.full(6, 0.3), 0.6], (4, 1))}

    unit = {**LAYOUT["action"], "gripper_range": "unit"}
    with meeting(answer, binary_gripper=True, action=unit) as (one, _):
        answer = one.act([0], [seen()])[0]
        assert (answer[:, -1] == 1.0).all()
        assert (answer[:, :-1] == 0.3).all()


def test_one_action_may_come_without_its_axis():
    single = {"dim": 7, "chunk": 1}
    with meeting(lambda request, number: {"actions": np.ones(7)}, action=single) as (one, _):
        assert one.act([0], [seen()]).shape == (1, 1, 7)


def test_the_key_comes_from_the_environment_and_is_not_told(monkeypatch):
    monkeypatch.setenv("THE_KEY", "s3cret")
    with meeting(actions, api_key_env="THE_KEY") as (one, server):
        assert server.headers[0]["Authorization"] == "Api-Key s3cret"
        assert "s3cret" not in str(one.identity())
    monkeypatch.delenv("THE_KEY")
    with pytest.raises(ConfigError, match="'THE_KEY', which is not set"):
        policy("h:1", api_key_env="THE_KEY")


# -- several servers -------------------------------------------------------------------------------


def test_rows_are_spread_over_servers_and_asked_at_the_same_time():
    both = threading.Barrier(2, timeout=10.0)

    def answer(request, number):
        if number:
            both.wait()  # passes only when two requests are on their way at once
        return actions(request)

    with meeting(answer, answer) as (one, first, second):
        result = one.act([0, 1, 2, 3], [seen(n) for n in range(4)])
        assert [row[0, 0] for row in result] == [0.0, 1.0, 2.0, 3.0]
        assert len(first.requests) == len(second.requests) == 3


def test_a_server_that_dies_leaves_its_rows_to_the_other():
    with meeting(actions, actions) as (one, first, second):
        one.act([0, 1], [seen(0), seen(1)])
        first.stop()
        for _ in range(3):
            result = one.act([0, 1], [seen(6), seen(7)])
            assert [row[0, 0] for row in result] == [6.0, 7.0]
        assert len(second.requests) >= 6


def test_one_of_two_servers_is_enough_to_begin():
    server = Double(actions)
    with doubles(server):
        one = fitted(f"127.0.0.1:{free_port()}", server.url)
        assert (one.act([0], [seen(3)]) == 3.0).all()
        one.close()


def test_servers_of_different_policies_are_refused():
    one = Double(actions, metadata={"robogen": {"policy": "a", "identity": {"checkpoint": "1"}}})
    two = Double(actions, metadata={"robogen": {"policy": "b", "identity": {"checkpoint": "2"}}})
    with doubles(one, two), pytest.raises(SpecError, match=r"'a'.*'1'.*'b'.*'2'"):
        fitted(one.url, two.url)


# -- what goes wrong on the way --------------------------------------------------------------------

NAN = {"actions": np.full((4, 7), np.nan)}
FAULTS = {
    "text": "Traceback (most recent call last):\n  File x\nValueError: out of memory",
    "closed": Drop,
    "garbage": b"\xc1\x00garbage",
    "not_a_map": b"\x01",
    "no_actions": {"action": np.zeros((4, 7))},
    "nan": NAN,
    "shape": {"actions": np.zeros((3, 7))},
    "size": {"actions": np.zeros((4, 8))},
    "words": {"actions": [["a"]]},
    "too_large": bytes(5_000_000),
}
SAYS = {
    "text": "answered with an error: ValueError: out of memory",
    "closed": "closed the connection",
    "garbage": "not msgpack",
    "not_a_map": "without 'actions'",
    "no_actions": "it sent action",
    "nan": "NaN",
    "shape": r"shape \(3, 7\).*\(4, 7\)",
    "size": r"shape \(4, 8\).*\(4, 7\)",
    "words": "not numbers",
    "too_large": "message too big",
}


@pytest.mark.parametrize("name", FAULTS)
def test_one_failure_is_made_good_by_another_try(name):
    with meeting(faulty(FAULTS[name], 1), max_answer_mb=1.0) as (one, server):
        assert (one.act([0], [seen(4)]) == 4.0).all()
        _, bad, good = server.requests
        np.testing.assert_array_equal(bad["observation/image"], good["observation/image"])
        assert (one.act([0], [seen(5)]) == 5.0).all()


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ("closed", "too_large")])
def test_only_the_row_that_always_fails_ends(name):
    def answer(request, number):
        return FAULTS[name] if request["prompt"] == "do 1" else actions(request)

    with meeting(answer, max_answer_mb=1.0) as (one, _):
        with pytest.raises(RowsFailed, match=SAYS[name]) as caught:
            one.act([0, 1, 2], [seen(0), seen(1), seen(2)])
        assert set(caught.value.failures) == {1}
        assert isinstance(caught.value.failures[1], PolicyError)
        assert "Tried 4 times" in str(caught.value.failures[1])
        assert "Traceback" not in str(caught.value.failures[1])
        assert [caught.value.answers[n][0, 0] for n in (0, 2)] == [0.0, 2.0]


def test_a_late_answer_is_never_taken_for_the_next():
    """The answer to request 1 comes after its deadline; request 2 must not get it."""
    go_on = threading.Event()

    def answer(request, number):
        if number == 1:
            go_on.wait(10.0)
            return {"actions": np.full((4, 7), -99.0)}
        return actions(request)

    with meeting(answer, deadline_s=0.3) as (one, server):
        assert (one.act([0], [seen(4)]) == 4.0).all()
        go_on.set()
        for number in range(5, 9):
            assert (one.act([0], [seen(number)]) == number).all()
        assert server.opened == 4  # metadata, try-out, the late one, and one for all the rest


def test_a_server_that_always_hangs_costs_the_row_its_deadlines_and_no_more():
    def answer(request, number):
        return Hang if request["prompt"] == "do 1" else actions(request)

    with meeting(answer, deadline_s=0.1, retries=2) as (one, _):
        begin = time.monotonic()
        with pytest.raises(RowsFailed, match=r"no answer within 0\.1 s") as caught:
            one.act([0, 1], [seen(0), seen(1)])
        assert time.monotonic() - begin < 5.0
        assert set(caught.value.failures) == {1}


def test_a_server_that_is_gone_for_good_stops_the_study():
    with meeting(actions) as (one, server):
        one.act([0], [seen()])
        server.stop()
        with pytest.raises(PolicyUnavailable, match=r"ws://127.*took no connection.*same command"):
            one.act([0, 1], [seen(0), seen(1)])


def test_a_server_that_comes_back_is_asked_again():
    with meeting(actions, retries=20, backoff_s=0.05) as (one, server):
        one.act([0], [seen()])
        server.stop()
        again: list[Double] = []
        timer = threading.Timer(0.3, lambda: again.append(Double(actions, port=server.port)))
        timer.start()
        assert (one.act([0], [seen(8)]) == 8.0).all()
        timer.join()
        again[0].stop()


# -- before the first episode ----------------------------------------------------------------------


def test_nobody_there_is_said_before_the_first_episode():
    port = free_port()
    with pytest.raises(PolicyError, match=rf"No policy server answers.*127.0.0.1:{port}.*servers="):
        fitted(f"127.0.0.1:{port}")


def test_a_server_that_is_starting_can_be_waited_for():
    port = free_port()
    found: list[Double] = []
    timer = threading.Timer(0.5, lambda: found.append(Double(actions, port=port)))
    timer.start()
    one = fitted(f"ws://127.0.0.1:{port}", wait_s=20.0)
    assert (one.act([0], [seen(1)]) == 1.0).all()
    timer.join()
    found[0].stop()
    one.close()


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("HTTP/1.1", "something else than a policy server: .* HTTP 404"),
        ("HTTP/1.0", "does not speak the websocket protocol"),
    ],
)
def test_a_web_server_on_the_port_is_recognised(version, message):
    class Quiet(http.server.BaseHTTPRequestHandler):
        protocol_version = version

        def do_GET(self):
            self.send_error(404)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with pytest.raises(PolicyError, match=message):
                fitted(f"127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()


@pytest.mark.parametrize("says", [b"SSH-2.0-OpenSSH_9.2\r\n", b""])
def test_something_else_on_the_port_is_recognised(says):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet():
            there, _ = listener.accept()
            there.sendall(says)
            there.close()

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(
            PolicyError, match=r"does not speak the websocket protocol|took no conn"
        ):
            fitted(f"127.0.0.1:{listener.getsockname()[1]}")


@pytest.mark.parametrize("first", [b"\xc1", "not allowed here", b"\x05"])
def test_a_server_that_begins_with_no_metadata_is_refused(first):
    server = Double(actions, metadata=first)
    with doubles(server), pytest.raises(PolicyError, match="No policy server answers"):
        fitted(server.url)


def test_a_layout_that_the_server_does_not_take_is_told_before_the_first_episode():
    server = Double(lambda request, number: "Traceback\nKeyError: 'observation/image_left'")
    with (
        doubles(server),
        pytest.raises(PolicyError, match=r"first request.*KeyError: 'observ.*layo"),
    ):
        fitted(server.url)


def test_another_chunk_length_is_told_before_the_first_episode():
    server = Double(lambda request, number: {"actions": np.zeros((50, 7))})
    with doubles(server), pytest.raises(PolicyError, match=r"shape \(50, 7\).*\(4, 7\)"):
        fitted(server.url)


def test_the_try_out_survives_a_failure():
    server = Double(lambda request, number: Drop if number == 0 else actions(request))
    with doubles(server):
        fitted(server.url).close()
        assert len(server.requests) == 2


def test_unknown_cameras_get_a_rename_map():
    other = replace(SCENE, name="other", cameras=("robot0_eye_in_hand", "agentview"))
    server = Double(actions)
    with doubles(server):
        one = policy(server.url)
        offered = "{observation/image: agentview, observation/wrist_image: robot0_eye_in_hand}"
        with pytest.raises(SpecError, match=rf"cameras front, wrist.*cameras='{offered}'"):
            one.fit(other)
        names = {
            "observation/image": "agentview",
            "observation/wrist_image": "robot0_eye_in_hand",
        }
        renamed = policy(server.url, cameras=names)
        renamed.fit(other)
        assert [c.name for c in renamed.spec.observation.cameras] == [*names.values()]
        renamed.close()
        one.close()
    with pytest.raises(ConfigError, match="Did you mean 'observation/image'"):
        policy(server.url, cameras={"observation/imag": "agentview"})


# -- identity --------------------------------------------------------------------------------------


def test_identity_knows_layout_and_server_but_not_the_address():
    def identity(metadata=None, **changes):
        server = Double(actions, metadata=metadata)
        with doubles(server):
            one = fitted(server.url, **changes)
            one.close()
            return one.identity()

    plain = identity()
    assert plain == identity(retries=9, deadline_s=4.0)
    assert all(isinstance(value, str) for value in plain.values())
    others = [
        identity({"checkpoint": "b"}),
        identity(extras={"x": 1}),
        identity(prompt="task"),
        identity(label="pi05 at step 30000"),
        identity(binary_gripper=True),
    ]
    assert all(plain != other for other in others)


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"servers": []}, "address"),
        ({"servers": ["http://h:1"]}, "ws://host:port"),
        ({"servers": ["ws://"]}, "ws://host:port"),
        ({"servers": ["ws://h:port"]}, "ws://host:port"),
        ({"servers": [7]}, "got 7"),
        ({"servers": ["ws://me:secret@h:1"]}, "api_key_env"),
        ({"images": {"a": {"size": 8}}}, "must name a camera"),
        ({"images": {"a": {"camera": "front", "sise": 8}}}, "Did you mean 'size'"),
        ({"images": {"a": {"camera": "front", "size": 0}}}, "must be pixels"),
        ({"images": {"a": {"camera": "front", "size": [8]}}}, "must be pixels"),
        ({"images": ["front"]}, "must map keys"),
        ({"images": {"a": {"camera": "f", "size": 8}, "b": {"camera": "f"}}}, "in two sizes"),
        ({"state": {"s": ["eef_poss"]}}, "Did you mean 'eef_pos'"),
        ({"state": {"observation/image": ["eef_pos"]}}, "key 'observation/image' twice"),
        ({"prompt": 3}, "prompt must be"),
        ({"nested": "yes"}, "nested must be"),
        ({"observation": {"orientatoin": "upright"}}, "Did you mean 'orientation'"),
        ({"observation": {"layout": "hcw"}}, "layout"),
        ({"action": {"mode": "delta"}}, "mode"),
        ({"action": {"chunk": 4, "execute": 5}}, "execute"),
        ({"action": None}, "needs images or state, and action"),
        ({"execute": 5}, "from 1 to 4"),
        ({"execute": 0}, "from 1 to 4"),
        ({"deadline_s": 0}, "deadline_s"),
        ({"connections": 0}, "connections"),
        ({"retries": -1}, "retries"),
        ({"cameras": ["front"]}, "cameras must map"),
    ],
)
def test_a_mistake_in_the_file_is_told(changes, message):
    with pytest.raises(ConfigError, match=message):
        policy("h:1", **changes)


def test_addresses_may_be_short():
    from robogen.policies.websocket import address

    assert address("gpu1") == "ws://gpu1:8000"
    assert address("gpu1:9000") == "ws://gpu1:9000"
    assert address("wss://gpu1/policy") == "wss://gpu1/policy"


SHIPPED = {
    "openpi_libero": ("delta_eef", 7, 20.0, 10, 5, ("agentview", "robot0_eye_in_hand")),
    "openpi_droid": ("delta_joint", 8, 15.0, 15, 8, ("front", "wrist")),
    "openpi_aloha": ("native", 14, 50.0, 50, 10, ("top",)),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_layouts_say_what_openpis_examples_do(name):
    one = load_policy(name)
    spec = one.spec
    told = (
        spec.action.mode,
        spec.action.dim,
        spec.action.control_hz,
        spec.action.chunk,
        spec.action.execute,
        tuple(camera.name for camera in spec.observation.cameras),
    )
    assert told == SHIPPED[name]
    assert spec.observation.fit == "pad"
    assert {(c.width, c.height) for c in spec.observation.cameras} == {(224, 224)}
    assert load_policy(name, overrides={"action.chunk": 20}).spec.action.chunk == 20
    assert load_policy(name, overrides={"execute": 3}).spec.action.execute == 3


def test_without_a_layout_the_server_must_describe_itself():
    server = Double(actions)
    with doubles(server), pytest.raises(PolicyError, match="does not say what its policy reads"):
        load_policy("openpi", overrides={"servers": server.url}).fit(SCENE)


# -- another policy at the same address ------------------------------------------------------------


def test_servers_that_name_different_checkpoints_are_refused_unless_that_may_differ():
    one = Double(actions, metadata={"checkpoint": "A", "host": "x"})
    two = Double(actions, metadata={"checkpoint": "B", "host": "y"})
    with doubles(one, two):
        with pytest.raises(SpecError, match=r"differ in checkpoint \('A' and 'B'\); host"):
            fitted(one.url, two.url)
        alike = fitted(one.url, two.url, ignore_metadata=["checkpoint", "host"])
        alike.close()


def test_a_server_restarted_with_another_checkpoint_stops_the_study():
    first = Double(actions, metadata={"checkpoint": "A"})
    with doubles(first):
        one = fitted(first.url, ignore_metadata=["started"])
        assert (one.act([0], [seen(3)]) == 3.0).all()
        port = first.port
    second = Double(actions, metadata={"checkpoint": "B"}, port=port)
    with doubles(second), pytest.raises(PolicyUnavailable, match=r"'A' and 'B'.*same command"):
        one.act([0], [seen(4)])
    assert second.requests == []
    again = Double(actions, metadata={"checkpoint": "A", "started": 7}, port=port)
    with doubles(again):
        assert (one.act([0], [seen(5)]) == 5.0).all()
        one.close()
