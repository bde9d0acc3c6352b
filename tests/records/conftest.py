import numpy as np
import pytest
from hypothesis import settings

from robogen.records import EpisodeRecord

# No deadline: a shared machine is slow at times, and that is not a failure.
settings.register_profile("records", deadline=None, max_examples=60)
settings.load_profile("records")


@pytest.fixture
def make_record():
    def make(episode=0, condition="nominal", **changes):
        values = {
            "scene": "pick",
            "policy": "bc",
            "condition": condition,
            "episode": episode,
            "factors": () if condition == "nominal" else (condition,),
            "status": "scored",
            "success": episode % 2 == 0,
            "progress": 0.5,
            "steps": 3,
            "draws": {} if condition == "nominal" else {condition: {"gain": 0.25 * episode}},
            "placement": {"cube": {"position": [0.5, 0.01 * episode, 0.02]}},
            "reached": {},
            "behaviour": {"path_length_m": 1.5, "drops": 0},
            "actions": np.full((3, 7), float(episode)),
        }
        values.update(changes)
        return EpisodeRecord(**values)

    return make


@pytest.fixture
def make_errored(make_record):
    def make(episode=0, condition="nominal", **changes):
        values = {
            "status": "errored",
            "success": None,
            "progress": None,
            "actions": None,
            "error_kind": "nan_action",
            "error": "The policy returned NaN at step 4.",
        }
        return make_record(episode, condition, **{**values, **changes})

    return make
