"""The pool of servers: order, retries, failing rows, silence. Servers here are functions."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from robogen.errors import ConfigError, PolicyError, PolicyUnavailable
from robogen.policies import remote
from robogen.policies.base import RowsFailed
from robogen.policies.remote import (
    CallFailed,
    NoAnswer,
    NobodyListens,
    RemotePool,
    chunk_of,
    gripper_decided,
)
from robogen.specs import ActionSpec


def chunk(number):
    return np.full((1, 7), float(number))


def make(exchange, endpoints=("a",), **changes):
    values = {"retries": 2, "backoff_s": 0.001, "longest_backoff_s": 0.01, **changes}
    return RemotePool(endpoints=endpoints, exchange=exchange, **values)


@pytest.mark.parametrize("endpoints", [("a",), ("a", "b", "c"), tuple("abcdefghij")])
def test_answers_come_in_the_order_of_the_questions(endpoints):
    pool = make(lambda endpoint, payload: chunk(payload), endpoints)
    for rows in (0, 1, 5):
        answers = pool.ask(range(rows))
        assert [answer[0, 0] for answer in answers] == list(range(rows))


def test_servers_work_at_the_same_time():
    meet = threading.Barrier(3, timeout=10)

    def exchange(endpoint, payload):
        meet.wait()  # passes only when three are in here at once
        return chunk(payload)

    assert len(make(exchange, ("a", "b", "c")).ask(range(6))) == 6


def test_a_server_is_asked_one_thing_at_a_time():
    busy = {name: threading.Lock() for name in "ab"}

    def exchange(endpoint, payload):
        assert busy[endpoint].acquire(blocking=False)
        time.sleep(0.001)
        busy[endpoint].release()
        return chunk(payload)

    assert len(make(exchange, ("a", "b")).ask(range(20))) == 20


@pytest.mark.parametrize("kind", [CallFailed, NoAnswer, NobodyListens])
def test_a_failed_call_is_tried_again(kind):
    tries = {}

    def exchange(endpoint, payload):
        tries[payload] = tries.get(payload, 0) + 1
        if payload == 1 and tries[payload] < 3:
            raise kind("not now.")
        return chunk(payload)

    answers = make(exchange).ask(range(4))
    assert [answer[0, 0] for answer in answers] == [0, 1, 2, 3]
    assert tries == {0: 1, 1: 3, 2: 1, 3: 1}


@pytest.mark.parametrize("endpoints", [("a",), ("a", "b")])
@pytest.mark.parametrize(
    ("error", "tries"),
    [(CallFailed("it said no."), 3), (PolicyError("it said no."), 1), (KeyError("a bug"), 1)],
)
def test_only_the_failing_row_fails(endpoints, error, tries):
    seen = []

    def exchange(endpoint, payload):
        seen.append(payload)
        if payload == 1:
            raise error
        return chunk(payload)

    with pytest.raises(RowsFailed) as failed:
        make(exchange, endpoints).ask(range(4))
    assert {n: a[0, 0] for n, a in failed.value.answers.items()} == {0: 0, 2: 2, 3: 3}
    assert seen.count(1) == tries
    (told,) = failed.value.failures.values()
    if tries > 1:
        assert str(told) == "it said no. Tried 3 times."
        assert isinstance(told, PolicyError)
    else:
        assert told is error


def test_a_dead_server_costs_no_row_where_another_lives():
    asked = []

    def exchange(endpoint, payload):
        asked.append(endpoint)
        if endpoint == "dead":
            raise NobodyListens("gone.")
        time.sleep(0.002)
        return chunk(payload)

    pool = make(exchange, ("dead", "alive"), longest_backoff_s=5.0, backoff_s=5.0)
    for _ in range(3):
        assert len(pool.ask(range(8))) == 8
    assert asked.count("dead") == 1, "it rests after it was not there"


def test_a_dead_server_costs_no_tries_while_the_living_one_is_busy():
    def exchange(endpoint, payload):
        if endpoint == "dead":
            raise NobodyListens("gone.")
        time.sleep(0.02)
        return chunk(payload)

    pool = make(exchange, ("dead", "alive"), backoff_s=0.0, longest_backoff_s=0.001)
    assert len(pool.ask(range(8))) == 8


def test_a_row_that_one_server_chokes_on_goes_to_another():
    asked = []

    def exchange(endpoint, payload):
        asked.append((endpoint, payload))
        if endpoint == "wedged":
            time.sleep(0.005)
            raise NoAnswer("late.")
        time.sleep(0.02)
        return chunk(payload)

    pool = make(exchange, ("wedged", "well"), retries=1, backoff_s=0.0, longest_backoff_s=0.001)
    assert len(pool.ask(range(4))) == 4
    assert len(set(asked)) == len(asked), "never the same question twice to the wedged one"


def test_nobody_listening_stops_everything():
    calls = []

    def exchange(endpoint, payload):
        calls.append(payload)
        raise NobodyListens("refused.")

    pool = make(exchange, ("one", "two"), what="toy server")
    with pytest.raises(PolicyUnavailable, match=r"No toy server answers any more at one, two.*ref"):
        pool.ask(range(3))
    assert len(calls) <= 3 * 3
    calls.clear()
    with pytest.raises(PolicyUnavailable):
        pool.ask([0])
    assert len(calls) <= 3


def test_a_server_that_dies_with_a_question_in_hand_is_gone_when_nobody_listens_after():
    kinds = iter([NoAnswer, NobodyListens, NobodyListens])

    def exchange(endpoint, payload):
        raise next(kinds)("gone.")

    with pytest.raises(PolicyUnavailable):
        make(exchange).ask([0])


def test_one_question_that_a_server_chokes_on_is_only_that_row():
    def exchange(endpoint, payload):
        if payload == "heavy":
            raise NoAnswer("late.")
        return chunk(1)

    pool = make(exchange)
    with pytest.raises(RowsFailed) as failed:
        pool.ask(["light", "heavy"])
    assert set(failed.value.answers) == {0}
    assert len(pool.ask(["light"])) == 1
    with pytest.raises(RowsFailed):
        pool.ask(["heavy"])


def test_silence_towards_several_questions_is_a_server_that_is_gone():
    def exchange(endpoint, payload):
        raise NoAnswer("late.")

    pool = make(exchange)
    with pytest.raises(PolicyUnavailable, match="no sign of life"):
        pool.ask(range(4))
    alone = make(exchange)
    with pytest.raises(RowsFailed):
        alone.ask([0])
    with pytest.raises(PolicyUnavailable):
        alone.ask([0])


def test_no_further_tries_when_patience_is_out(monkeypatch):
    monkeypatch.setattr(remote, "PATIENCE_S", 0.01)
    calls = []

    def exchange(endpoint, payload):
        calls.append(payload)
        time.sleep(0.02)
        raise NoAnswer("late.")

    with pytest.raises(PolicyUnavailable):
        make(exchange, retries=50).ask(range(3))
    assert len(calls) <= 3


def test_backing_off_doubles_up_to_its_bound():
    pool = make(lambda e, p: chunk(p), backoff_s=0.5, longest_backoff_s=3.0)
    assert [pool._wait_after(n) for n in (1, 2, 3, 4, 90)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_server_that_fails_at_random_loses_no_row():
    rng = np.random.default_rng(0)
    lock = threading.Lock()

    def exchange(endpoint, payload):
        with lock:
            luck = rng.random()
        if luck < 0.05:
            raise (CallFailed, NoAnswer, NobodyListens)[int(luck * 60)]("unlucky.")
        return chunk(payload)

    pool = make(exchange, ("a", "b"), retries=4)
    for _ in range(500):
        assert [a[0, 0] for a in pool.ask(range(8))] == list(range(8))


@pytest.mark.parametrize(
    "changes",
    [{"endpoints": ()}, {"retries": -1}, {"retries": True}, {"retries": 1.5}, {"backoff_s": -1}],
)
def test_senseless_numbers_are_refused(changes):
    with pytest.raises(ConfigError):
        make(lambda e, p: chunk(p), **changes)


def test_a_chunk_is_checked():
    spec = ActionSpec(chunk=2, execute=1)
    good = np.ones((2, 7), np.float32)
    assert chunk_of(good, spec, "x").dtype == np.float64
    assert chunk_of([*good], spec, "x").shape == (2, 7)
    assert chunk_of(np.ones(7), ActionSpec(), "x").shape == (1, 7)
    assert chunk_of(np.ones((1, 7)), ActionSpec(), "x").shape == (1, 7)
    for bad, message in [
        (np.ones(7), r"shape \(7,\).*\(2, 7\)"),
        (np.ones((3, 7)), r"shape \(3, 7\)"),
        (np.full((2, 7), np.nan), "14 numbers that are NaN"),
        ([[1, 2], [3]], "not numbers"),
        ("error", "not numbers"),
        ({"a": 1}, "not numbers"),
    ]:
        with pytest.raises(CallFailed, match=message):
            chunk_of(bad, spec, "It")


def test_a_decided_gripper():
    signed = np.array([[0.1, -0.2], [0.1, 0.7]])
    assert gripper_decided(signed, ActionSpec(dim=2))[:, -1].tolist() == [-1, 1]
    unit = gripper_decided(signed + 0.5, ActionSpec(dim=2, gripper_range="unit"))
    assert unit[:, -1].tolist() == [0, 1]
    assert unit[:, 0].tolist() == [0.6, 0.6]


def test_a_question_that_was_never_put_costs_no_try():
    asked = set()

    def exchange(endpoint, payload):
        if endpoint == "dead":
            raise NobodyListens("nobody")
        if payload not in asked:
            asked.add(payload)
            raise CallFailed("once")
        return chunk(payload)

    answers = make(exchange, ("dead", "live"), retries=1).ask(range(4))
    assert [answer[0, 0] for answer in answers] == [0, 1, 2, 3]


def test_a_transport_that_knows_it_is_over_ends_the_call():
    def exchange(endpoint, payload):
        raise PolicyUnavailable("another checkpoint")

    with pytest.raises(PolicyUnavailable, match="another checkpoint"):
        make(exchange, ("a", "b")).ask(range(5))
