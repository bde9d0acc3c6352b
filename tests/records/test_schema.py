import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robogen.records import EpisodeRecord
from robogen.records.schema import canonical_json, from_row, plain, to_row

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_canonical_json_round_trips(value):
    assert json.loads(canonical_json(value)) == value


@given(st.dictionaries(st.text(), json_values, min_size=2))
def test_canonical_json_ignores_insertion_order(value):
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


def test_numpy_values_become_plain():
    value = {"a": np.float32(0.5), "b": np.arange(3), "c": (np.bool_(True), np.int64(2))}
    assert canonical_json(value) == '{"a":0.5,"b":[0,1,2],"c":[true,2]}'


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_nonfinite_numbers_are_refused_with_their_place(bad):
    with pytest.raises(ValueError, match=r"value\.light\[1\] is"):
        canonical_json({"light": [0.0, bad]})
    assert canonical_json({"light": [0.0, bad]}, nonfinite="null") == '{"light":[0.0,null]}'


def test_values_without_a_json_form_are_refused():
    with pytest.raises(TypeError, match=r"value\.x is a set"):
        plain({"x": {1}})
    with pytest.raises(TypeError, match="keys must be strings"):
        plain({1: 2})


def test_success_is_none_exactly_when_errored():
    key = {"scene": "s", "policy": "p", "condition": "nominal", "episode": 0}
    with pytest.raises(ValueError, match="exactly when the episode errored"):
        EpisodeRecord(**key, status="errored", success=False)
    with pytest.raises(ValueError, match="exactly when the episode errored"):
        EpisodeRecord(**key, status="scored")
    with pytest.raises(ValueError, match="status"):
        EpisodeRecord(**key, status="fine", success=True)
    with pytest.raises(ValueError, match="shape"):
        EpisodeRecord(**key, status="scored", success=True, actions=np.zeros(3))


@given(steps=st.integers(0, 5), dim=st.integers(0, 8))
def test_rows_round_trip_bit_for_bit(steps, dim):
    actions = np.random.default_rng(steps * 10 + dim).normal(size=(steps, dim))
    record = EpisodeRecord(
        scene="s",
        policy="p",
        condition="a+b",
        episode=3,
        factors=("a", "b"),
        severity=0.5,
        status="scored",
        success=True,
        progress=1.0,
        steps=steps,
        draws={"a": {"gain": 0.1 + 0.2}},
        behaviour={"drops": 0, "mean_jerk": math.nan},
        actions=actions,
    )
    again = from_row(to_row(record))
    assert again == record
    assert again.actions is not None
    assert again.actions.shape == (steps, dim)
    assert again.actions.tobytes() == actions.tobytes()
    assert again.behaviour == {"drops": 0, "mean_jerk": None}
    assert again.draws["a"]["gain"] == 0.1 + 0.2
