"""The server against raw clients of the public protocol, well-behaved and not."""

from __future__ import annotations

import hmac
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import closing
from urllib.parse import urlsplit

import numpy as np
import pytest
from openpi_double import pack, unpack
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from robogen.errors import ConfigError, PolicyError, SpecError
from robogen.policies.base import Policy, RowsFailed
from robogen.policies.layout import Layout
from robogen.policies.openpi import OpenPIPolicy
from robogen.serve import PolicyServer, ServeConfig
from robogen.specs import (
    ActionSpec,
    CameraSpec,
    Observation,
    ObservationSpec,
    PolicySpec,
    SceneSpec,
)

SIZES = {"eef_pos": 3, "gripper_opening": 1}
SCENE = SceneSpec(
    name="pick",
    cameras=("front",),
    state=SIZES,
    action_modes={"delta_eef": 7},
    control_hz=10.0,
    horizon=50,
)


class Bee(Policy):
    """Answers with what it saw, and remembers how it was called."""

    def __init__(self, *, history=(0,), pad=False, privileged=False, **observation):
        self.pad = pad
        self.spec = PolicySpec(
            observation=ObservationSpec(
                cameras=(CameraSpec(name="front", width=8, height=6),),
                state=("eef_pos", "gripper_opening"),
                instruction=True,
                history=history,
                **observation,
            ),
            action=ActionSpec(chunk=3, execute=2),
            privileged=privileged,
        )
        self.scene = None
        self.calls: list[int] = []
        self.resets: list[tuple[int, int]] = []
        self.seen: list[Observation] = []
        self.hold = threading.Event()
        self.hold.set()

    def reset(self, rows, seeds):
        self.resets += zip(rows, seeds, strict=True)

    def act(self, rows, observations):
        self.hold.wait(20.0)
        self.calls.append(len(observations))
        self.seen += observations
        for observation in observations:
            if observation.instruction == "raise":
                raise ValueError("in /home/me/secret/model.py")
            if observation.instruction == "refuse":
                raise PolicyError("The policy has no words for that.")
        failures = {
            n: PolicyError("no") for n, o in enumerate(observations) if o.instruction == "no"
        }
        answers = np.stack([self._answer(observation) for observation in observations])
        if failures:
            raise RowsFailed({n: a for n, a in enumerate(answers) if n not in failures}, failures)
        return answers

    def _answer(self, observation):
        if observation.instruction == "nan":
            return np.full((3, 7), np.nan)
        value = float(observation.state[..., 0].sum() + observation.images["front"].mean())
        return np.full((3, 7), value)

    def identity(self):
        return {"checkpoint": "abc"}


def request(value=0.0, words="go", **more):
    return {
        "observation/images/front": np.zeros((6, 8, 3), np.uint8),
        "observation/state": np.array([value, 0, 0, 0], np.float32),
        "prompt": words,
        **more,
    }


class Client:
    """The public protocol, by hand."""

    def __init__(self, url, **changes):
        self._context = connect(url, compression=None, max_size=None, **changes)
        self.socket = self._context.__enter__()
        self.metadata = unpack(self.socket.recv(timeout=10.0))

    def send(self, message):
        self.socket.send(message if isinstance(message, bytes | str) else pack(message))

    def receive(self):
        answer = self.socket.recv(timeout=10.0)
        return answer if isinstance(answer, str) else unpack(answer)

    def ask(self, message):
        self.send(message)
        return self.receive()

    def close(self):
        self.socket.close()


def works(url, value=5.0):
    """A good client is served."""
    with closing(Client(url)) as client:
        answer = client.ask(request(value))
        assert answer["actions"].tolist() == np.full((3, 7), value).tolist()


def health(url):
    return urllib.request.urlopen(f"http{url.removeprefix('ws')}/healthz", timeout=10.0)


# -- the protocol ----------------------------------------------------------------------------------


def test_metadata_first_then_an_answer_per_request(start):
    bee = Bee()
    with closing(Client(start(bee, sizes=SIZES))) as client:
        ours = client.metadata["robogen"]
        assert ours["policy"] == "bee"
        assert ours["identity"] == {"checkpoint": "abc"}
        assert ours["layout"]["state"] == {"observation/state": ["eef_pos", "gripper_opening"]}
        for value in (1.0, 2.0):
            answer = client.ask(request(value, extra_key=[1]))
            assert answer["actions"].dtype == np.float64
            assert (answer["actions"] == value).all()
            assert answer["actions"].shape == (3, 7)
            assert answer["server_timing"]["infer_ms"] >= 0.0
    image = bee.seen[0].images["front"]
    assert image.flags.writeable
    assert bee.seen[1].step == 1
    assert bee.seen[0].instruction == "go"


def test_health_needs_no_websocket_and_no_key(start, monkeypatch):
    monkeypatch.setenv("KEY", "k")
    with health(start(Bee(), api_key_env="KEY")) as answer:
        assert answer.status == 200
        assert answer.read() == b"OK\n"


def test_every_connection_is_an_episode_of_its_own(start):
    bee = Bee()
    url = start(bee)
    one, two = Client(url), Client(url)
    for client in (one, two, one, two):
        client.ask(request())
    assert [row for row, _ in bee.resets] == [0, 1]
    assert len({seed for _, seed in bee.resets}) == 2
    one.close()
    two.close()
    with closing(Client(url)) as three:
        three.ask(request())
    assert len({seed for _, seed in bee.resets}) == 3


def wait_until(true, within_s=10.0):
    until = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_episodes_told_by_the_client_are_rows_wherever_they_come_from(start):
    bee = Bee()
    url = start(bee)

    def ours(row, episode, step):
        told = {"row": row, "episode": episode, "seed": 10 * episode, "step": step}
        return request(float(step), robogen=told)

    one, two = Client(url), Client(url)
    one.ask(ours("a", 1, 0))
    two.ask(ours("b", 1, 0))
    two.ask(ours("a", 1, 4))  # the same episode over another connection
    one.ask(ours("a", 2, 0))
    assert bee.resets == [(0, 10), (1, 10), (0, 20)]
    assert [seen.step for seen in bee.seen] == [0, 0, 4, 0]
    calls = len(bee.calls)
    assert two.ask(ours("a", 2, 0))["actions"][0, 0] == 0.0
    assert len(bee.calls) == calls  # asked again: the policy is not
    one.close()
    two.close()


def test_requests_that_come_together_are_one_call(start):
    bee = Bee()
    url = start(bee, batch=4, gather_ms=50.0)
    clients = [Client(url) for _ in range(6)]
    bee.hold.clear()
    for number, client in enumerate(clients):
        client.send(request(float(number)))
    # One call is held up; the others gather behind it, four at most.
    wait_until(lambda: len(bee.resets) > 0)
    bee.hold.set()
    assert [client.receive()["actions"][0, 0] for client in clients] == [*map(float, range(6))]
    assert sum(bee.calls) == 6
    assert max(bee.calls) <= 4
    assert len(bee.calls) < 6
    for client in clients:
        client.close()


def test_networks_are_called_with_their_batch(start):
    bee = Bee(pad=True)
    works(start(bee, batch=5))
    assert bee.calls == [5]


def test_a_busy_policy_holds_nobody_up(start):
    bee = Bee()
    url = start(bee)
    with closing(Client(url)) as client:
        bee.hold.clear()
        client.send(request(3.0))
        wait_until(lambda: len(bee.resets) == 1)
        with health(url) as answer:
            assert answer.status == 200
        client.socket.ping().wait(5.0)
        with closing(Client(url)) as other:
            assert "robogen" in other.metadata
        bee.hold.set()
        assert (client.receive()["actions"] == 3.0).all()


def test_a_history_is_sent_stacked(start):
    url = start(Bee(history=(-2, 0)), sizes=SIZES)
    with closing(Client(url)) as client:
        both = {
            "observation/images/front": np.zeros((2, 6, 8, 3), np.uint8),
            "observation/state": np.array([[1, 0, 0, 0], [2, 0, 0, 0]], np.float32),
            "prompt": "go",
        }
        assert (client.ask(both)["actions"] == 3.0).all()
        assert "of control steps (-2, 0), oldest first" in client.ask(request())


def test_a_layout_file_takes_other_keys(start):
    layout = Layout.read(
        images={"observation/image": "front"},
        state={"observation/state": ["gripper_opening", "eef_pos"]},
        prompt="task",
    )
    bee = Bee()
    with closing(Client(start(bee, layout=layout, sizes=SIZES))) as client:
        image = np.zeros((6, 8, 3), np.uint8)
        state = np.array([9, 1, 2, 3], np.float64)
        client.ask({"observation/image": image, "observation/state": state, "task": "go"})
        assert bee.seen[0].state.tolist() == [1, 2, 3, 9]  # in the policy's own order
        assert client.metadata["robogen"]["layout"]["images"] == {
            "observation/image": {"camera": "front", "size": [8, 6]}
        }


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"images": {"i": "left"}}, "'i' is for camera 'left'.*no key is for camera 'front'"),
        ({"images": {"i": {"camera": "front", "size": 9}}}, r"\(9, 9\), camera 'front' is \(8, 6"),
        ({"images": {"i": "front"}, "state": {"s": "eef_pos"}}, "its state is"),
        (
            {
                "images": {"i": "front"},
                "state": {"s": ["eef_pos", "gripper_opening"]},
                "prompt": None,
            },
            "no key is for the instruction",
        ),
    ],
)
def test_a_layout_that_misses_what_the_policy_reads_is_refused(keys, message):
    with pytest.raises(SpecError, match=message):
        PolicyServer(Bee(), name="bee", layout=Layout.read(**keys), sizes=SIZES)


def test_a_state_over_several_keys_needs_a_scene():
    layout = Layout.read(images={"i": "front"}, state={"a": "eef_pos", "b": "gripper_opening"})
    with pytest.raises(SpecError, match="Add scene=NAME"):
        PolicyServer(Bee(), name="bee", layout=layout)


def test_policies_that_read_the_simulator_are_refused():
    with pytest.raises(PolicyError, match="reads the simulator's own state"):
        PolicyServer(Bee(privileged=True), name="bee")


# -- bad requests: told, and the connection lives on -----------------------------------------------

IMAGE = "observation/images/front"
BAD = {
    "text": ("hello", "binary message"),
    "garbage": (b"\xc1\xff\x00", "not msgpack"),
    "empty": (b"", "not msgpack"),
    "list": ([1, 2], "must be a map, got a list"),
    "pickle": (b"\x80\x04\x95\x10\x00\x00\x00", "not msgpack|must be a map"),
    "no_image": ({"prompt": "go"}, f"no '{IMAGE}'.*it has prompt"),
    "near_key": (
        {**request(), "observation/image/front": 1} | {IMAGE: None},
        "must be an array",
    ),
    "wrong_size": ({**request(), IMAGE: np.zeros((8, 6, 3), np.uint8)}, r"\(6, 8, 3\).*\(8, 6, 3"),
    "channels_first": ({**request(), IMAGE: np.zeros((3, 6, 8), np.uint8)}, r"got \(3, 6, 8\)"),
    "floats": ({**request(), IMAGE: np.zeros((6, 8, 3))}, "uint8, got .* float64"),
    "no_array": ({**request(), IMAGE: "front.png"}, "got a str"),
    "state_nan": ({**request(np.nan)}, "NaN"),
    "state_long": ({**request(), "observation/state": np.zeros(5)}, r"shape \(4,\), got \(5,\)"),
    "state_words": ({**request(), "observation/state": "home"}, "must be numbers"),
    "state_map": ({**request(), "observation/state": {"a": 1}}, "must be numbers"),
    "prompt": ({**request(), "prompt": 7}, "must be text"),
    "episode": ({**request(), "robogen": "x"}, "'robogen' must be a map"),
    "row": (
        {**request(), "robogen": {"row": 3, "episode": 0, "seed": 0, "step": 0}},
        "'robogen' must be",
    ),
    "seed": (
        {**request(), "robogen": {"row": "a", "episode": 0, "seed": -1, "step": 0}},
        "'robogen' must be",
    ),
    "nan_answer": (request(words="nan"), "NaN"),
    "policy_error": (request(words="refuse"), "no words for that"),
    "row_failed": (request(words="no"), "no"),
    "bug": (request(words="raise"), "failed on this request with ValueError"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_gets_a_paragraph_and_the_next_one_an_answer(start, name):
    import re

    message, says = BAD[name]
    url = start(Bee(), sizes=SIZES)
    with closing(Client(url)) as client:
        answer = client.ask(message)
        assert isinstance(answer, str)
        assert re.search(says, answer), answer
        assert "Traceback" not in answer
        assert "/home" not in answer
        assert "\n" not in answer
        assert (client.ask(request(2.0))["actions"] == 2.0).all()


def test_a_culprit_does_not_spoil_its_neighbours(start):
    bee = Bee()
    url = start(bee, gather_ms=500.0)
    clients = [Client(url) for _ in range(3)]
    for client, words in zip(clients, ("go", "raise", "go"), strict=True):
        client.send(request(4.0, words))
    answers = [client.receive() for client in clients]
    assert (answers[0]["actions"] == 4.0).all()
    assert "ValueError" in answers[1]
    assert (answers[2]["actions"] == 4.0).all()
    for client in clients:
        client.close()


def test_details_are_for_the_server_unless_asked_for(start):
    lines: list[str] = []
    with closing(Client(start(Bee(), say=lines.append))) as client:
        client.ask(request(words="raise"))
    assert any("secret/model.py" in line and "Traceback" in line for line in lines)
    with closing(Client(start(Bee(), details=True))) as client:
        assert "secret/model.py" in client.ask(request(words="raise"))


# -- bad clients: they lose their connection, and the next one is served ---------------------------


def raw(url, data=b""):
    there = urlsplit(url)
    one = socket.create_connection((there.hostname, there.port), timeout=10.0)
    one.sendall(data)
    return one


def test_a_frame_of_100_megabytes_ends_its_connection_alone(start):
    url = start(Bee(), max_message_mb=1.0)
    with closing(Client(url)) as good, closing(Client(url)) as bad:
        with pytest.raises(ConnectionClosed):
            bad.ask(bytes(100_000_000))
        assert (good.ask(request(1.0))["actions"] == 1.0).all()
    works(url)


def test_http_junk_and_half_open_connections_harm_nobody(start):
    url = start(Bee())
    junk = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /act HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",  # the beginning of TLS
        b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        os.urandom(5000),
        b"",
    ]
    open_ones = [raw(url, data) for data in junk for _ in range(5)]
    works(url)
    with health(url) as answer:
        assert answer.status == 200
    for one in open_ones:
        one.close()
    works(url)


def handshake(url):
    """A connection that speaks websockets by hand, its metadata not read yet."""
    one = raw(
        url,
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    )
    assert b"101" in one.recv(4096)
    return one


@pytest.mark.parametrize(
    "data",
    [
        os.urandom(200),
        b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00",  # a frame of 2**63 bytes
        b"\x82\x05hello",  # not masked, as clients must
        b"\x82\xfe\xff\xff\x00\x00\x00\x00only a part",
        b"\xf2\x80\x00\x00\x00\x00",  # reserved bits
    ],
    ids=["random", "huge", "unmasked", "cut_off", "reserved"],
)
def test_broken_frames_harm_nobody(start, data):
    url = start(Bee())
    with closing(handshake(url)) as one:
        one.sendall(data)
        works(url)
    works(url)


def test_a_client_that_leaves_without_its_answer_harms_nobody(start):
    bee = Bee()
    url = start(bee)
    bee.hold.clear()
    for _ in range(3):
        client = Client(url)
        client.send(request())
        client.socket.close_socket()
    bee.hold.set()
    works(url)


def test_a_web_page_cannot_come_in(start):
    url = start(Bee())
    with pytest.raises(InvalidStatus, match="403"):
        Client(url, origin="http://evil.example")
    works(url)


def test_there_is_room_for_so_many_and_no_more(start):
    url = start(Bee(), max_connections=2)
    one, two = Client(url), Client(url)
    with pytest.raises(InvalidStatus, match="503"):
        Client(url)
    with health(url) as answer:
        assert answer.status == 200
    assert (one.ask(request(1.0))["actions"] == 1.0).all()
    one.close()
    wait_until(lambda: can_connect(url))
    two.close()


def can_connect(url):
    try:
        works(url)
    except InvalidStatus:
        return False
    return True


@pytest.mark.parametrize("header", [None, "Api-Key wrong", "Bearer right", "Api-Key", "Api-Key ä"])
def test_another_key_is_refused(start, monkeypatch, header):
    monkeypatch.setenv("KEY", "right")
    url = start(Bee(), api_key_env="KEY")
    headers = {} if header is None else {"Authorization": header}
    with pytest.raises(InvalidStatus, match="401"):
        Client(url, additional_headers=headers)
    with closing(Client(url, additional_headers={"Authorization": "Api-Key right"})) as client:
        assert (client.ask(request(1.0))["actions"] == 1.0).all()


def test_keys_are_compared_in_constant_time(start, monkeypatch):
    """Else a caller could find the key letter by letter from how long a refusal takes."""
    compared = []
    constant = hmac.compare_digest
    monkeypatch.setattr(
        hmac, "compare_digest", lambda a, b: compared.append((a, b)) or constant(a, b)
    )
    monkeypatch.setenv("KEY", "right")
    url = start(Bee(), api_key_env="KEY")
    with pytest.raises(InvalidStatus):
        Client(url, additional_headers={"Authorization": "Api-Key wrong"})
    assert (b"wrong", b"right") in compared


def test_our_client_tells_that_its_key_is_wrong(start, monkeypatch):
    monkeypatch.setenv("KEY", "right")
    monkeypatch.setenv("MINE", "wrong")
    url = start(Bee(), api_key_env="KEY", sizes=SIZES)
    with pytest.raises(PolicyError, match=r"refused the API key \(HTTP 401\)"):
        OpenPIPolicy(servers=url, api_key_env="MINE").fit(SCENE)
    OpenPIPolicy(servers=url, api_key_env="KEY").fit(SCENE)


# -- bounds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"batch": 0}, {"port": -1}, {"port": 70000}, {"max_message_mb": 0.0}, {"gather_ms": -1.0}],
)
def test_bounds_out_of_range_are_refused(changes):
    with pytest.raises(ConfigError, match=next(iter(changes))):
        PolicyServer(Bee(), name="bee", config=ServeConfig(**changes))


def test_a_missing_key_is_told_at_the_start(monkeypatch):
    monkeypatch.delenv("NO_KEY", raising=False)
    with pytest.raises(ConfigError, match="'NO_KEY', which is not set"):
        PolicyServer(Bee(), name="bee", config=ServeConfig(api_key_env="NO_KEY"))


def test_a_port_that_is_taken_is_told(start):
    port = urlsplit(start(Bee())).port
    with pytest.raises(ConfigError, match=rf"Cannot listen on 127\.0\.0\.1:{port}.*another port"):
        start_on(port)


def start_on(port):
    from robogen.serve import serving

    with serving(PolicyServer(Bee(), name="bee", config=ServeConfig(port=port))):
        pass


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("gpu1", False)],
)
def test_who_can_connect(host, local):
    assert ServeConfig(host=host).local is local


# -- both ends -------------------------------------------------------------------------------------


def seen(value):
    return Observation(
        images={"front": np.full((6, 8, 3), 3, np.uint8)},
        state=np.array([value, 0, 0, 0], np.float32),
        instruction="go",
        step=7,
    )


def test_our_client_needs_no_layout_for_our_server(start):
    bee = Bee(orientation="flipped", crop=0.9)
    bee.scene = "pick"
    one = OpenPIPolicy(servers=start(bee, sizes=SIZES), connections=3)
    one.fit(SCENE)
    assert one.spec.observation == bee.spec.observation
    assert one.spec.action == bee.spec.action
    assert one.scene == "pick"
    assert one.identity()["served checkpoint"] == "abc"
    one.reset([4, 6], [44, 66])
    answers = one.act([4, 6], [seen(1.0), seen(2.0)])
    assert [answer[0, 0] for answer in answers] == [4.0, 5.0]
    assert {seed for _, seed in bee.resets} == {0, 44, 66}  # 0: the try-out
    assert bee.seen[-1].step == 7
    one.close()


def test_a_layout_of_ones_own_is_compared_with_the_servers(start):
    url = start(Bee(), sizes=SIZES)
    own = {
        "images": {"observation/images/front": {"camera": "front", "size": [8, 6]}},
        "state": {"observation/state": ["eef_pos", "gripper_opening"]},
        "action": {"chunk": 3, "execute": 1},
    }
    one = OpenPIPolicy(servers=url, **own)
    one.fit(SCENE)
    one.close()
    wrong = {**own, "action": {"chunk": 3, "gripper": "open_positive", "scale_position": 0.1}}
    with pytest.raises(
        SpecError,
        match=r"action.scale_position is 0.1 here and 0.05 there.*action.gripper is 'open_pos",
    ):
        OpenPIPolicy(servers=url, **wrong).fit(SCENE)
    turned = {**own, "observation": {"orientation": "flipped"}}
    with pytest.raises(SpecError, match="orientation is 'flipped' here and None there"):
        OpenPIPolicy(servers=url, **turned).fit(SCENE)


def test_the_answer_of_an_interrupted_call_is_not_lost(start):
    """The first answer comes too late; asked again, the server gives the same one."""
    bee = Bee()
    url = start(bee, sizes=SIZES)
    one = OpenPIPolicy(servers=url, deadline_s=0.3, backoff_s=0.01, retries=30)
    one.fit(SCENE)
    one.reset([0], [9])
    calls = len(bee.calls)
    bee.hold.clear()
    threading.Timer(0.8, bee.hold.set).start()
    assert one.act([0], [seen(1.0)])[0, 0, 0] == 4.0
    assert len(bee.calls) == calls + 1
    one.close()


def test_http_errors_are_no_success(start):
    with pytest.raises(urllib.error.HTTPError, match="426"):
        urllib.request.urlopen(f"http{start(Bee()).removeprefix('ws')}/", timeout=10.0)
