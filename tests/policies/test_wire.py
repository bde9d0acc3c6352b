"""The codec: what the public package writes, byte for byte, and anything at all as input."""

import contextlib

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from robogen.errors import ConfigError
from robogen.policies import wire

SENT = hnp.scalar_dtypes().filter(lambda dtype: dtype.kind in "biuf" and dtype.itemsize <= 8)


def same(one, two):
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one:
            same(one[key], two[key])
    elif isinstance(one, np.ndarray | np.generic):
        assert type(one) is type(two)
        assert one.dtype == two.dtype
        np.testing.assert_array_equal(one, two)
    else:
        assert one == two


@given(hnp.arrays(SENT, hnp.array_shapes(min_dims=0, min_side=0)))
@settings(max_examples=100, deadline=None)
def test_arrays_come_back(array):
    same(wire.unpack(wire.pack({"a": array}))["a"], array)


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
    | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
))  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_plain_values_come_back(value):
    assert wire.unpack(wire.pack(value)) == value


def test_the_bytes_are_those_of_the_public_package():
    """Its form, written out: keys are bytes, in this order, and the shape is a list."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert wire.pack({"state": array, "n": np.int16(-3)}) == msgpack.packb(
        {
            "state": {
                b"__ndarray__": True,
                b"data": array.tobytes(),
                b"dtype": "<f4",
                b"shape": [2, 3],
            },
            "n": {b"__npgeneric__": True, b"data": -3, b"dtype": "<i2"},
        }
    )


def test_memory_order_does_not_matter():
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    for view in (array.transpose(2, 0, 1), array[:, ::-1], np.asfortranarray(array)):
        same(wire.unpack(wire.pack(view)), np.ascontiguousarray(view))


def test_big_endian_is_read():
    same(wire.unpack(wire.pack(np.array([1.5, 2.0], ">f8"))), np.array([1.5, 2.0], ">f8"))


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.zeros(2, [("x", "f4")]),
        np.zeros(2, complex),
        np.array(["2020-01-01"], "M8[D]"),
        object(),
        {1, 2},
        2**70,
    ],
    ids=lambda value: str(getattr(value, "dtype", type(value))),
)
def test_what_has_no_form_is_not_sent(value):
    with pytest.raises(wire.WireError, match="cannot be sent"):
        wire.pack({"x": value})


def array(**changes):
    good = {b"__ndarray__": True, b"data": bytes(8), b"dtype": "<f4", b"shape": [2]}
    return msgpack.packb({**good, **{key.encode(): value for key, value in changes.items()}})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not msgpack"),
        (b"\xc1", "not msgpack"),
        (b"\x91" * 100_000, "not msgpack"),
        (b"\xdd\xff\xff\xff\xff", "not msgpack"),
        (msgpack.packb(1) + b"x", "not msgpack"),
        (b"\x81\x90\x01", "not msgpack"),
        (b"\xa2\xff\xfe", "not msgpack"),
        (array(dtype="|O"), "not accepted"),
        (array(dtype="O8"), "not accepted"),
        (array(dtype="|V8"), "not accepted"),
        (array(dtype="f4,f4"), "not accepted"),
        (array(dtype="<c8"), "not accepted"),
        (array(dtype="float32"), "not accepted"),
        (array(dtype=["<f4"]), "not a short text"),
        (array(dtype="<" * 1000), "not a short text"),
        (array(shape=[3]), "8 bytes, not 12"),
        (array(shape=[-2]), "not a short list"),
        (array(shape=[2.0]), "not a short list"),
        (array(shape=[True, 2]), "not a short list"),
        (array(shape=[1] * 40), "not a short list"),
        (array(shape=2), "not a short list"),
        (array(shape=[2**62, 2**62]), "8 bytes, not"),
        (array(dtype="<U0"), "8 bytes, not"),
        (array(data="text"), "not bytes"),
        (msgpack.packb({b"__ndarray__": True}), "not a short text"),
        (msgpack.packb({b"__npgeneric__": True, b"dtype": "<f4"}), "scalar's data"),
        (msgpack.packb({b"__npgeneric__": True, b"dtype": "<i1", b"data": 999}), "not msgpack"),
    ],
)
def test_bytes_that_are_no_message_are_told_so(data, message):
    with pytest.raises(wire.WireError, match=message):
        wire.unpack(data)


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_a_value_or_one_kind_of_error(data):
    with contextlib.suppress(wire.WireError):
        wire.unpack(data)


def test_damaged_messages_give_a_value_or_one_kind_of_error():
    good = wire.pack({"a": np.arange(10.0), "b": [1, "x", np.float32(2)]})
    rng = np.random.default_rng(0)
    for _ in range(500):
        bad = bytearray(good)
        bad[rng.integers(len(bad))] = rng.integers(256)
        with contextlib.suppress(wire.WireError):
            wire.unpack(bytes(bad[: rng.integers(len(bad)) + 1]))


def test_more_than_the_limit_is_not_looked_at():
    data = wire.pack(bytes(100))
    assert wire.unpack(data, limit=len(data)) == bytes(100)
    with pytest.raises(wire.WireError, match="more than the 50 allowed"):
        wire.unpack(data, limit=50)


def test_a_missing_package_says_what_to_install():
    with pytest.raises(ConfigError, match=r"package 'no_such_thing'.*pip install 'robogen\[openpi"):
        wire.optional("no_such_thing.inner", "openpi")
