"""Policies that break their contract on purpose, named in YAMLs that the tests write."""

import time

import numpy as np

from robogen.policies.base import Policy
from robogen.specs import ActionSpec, CameraSpec, ObservationSpec, PolicySpec


class Misbehaving(Policy):
    """Stays, or does what ``what`` says."""

    def __init__(self, *, what="stay"):
        cameras = (CameraSpec(name="left", width=32, height=32),) if what == "camera" else ()
        self.spec = PolicySpec(
            observation=ObservationSpec(cameras=cameras),
            action=ActionSpec(control_hz=25.0 if what == "rate" else 10.0),
        )
        self.what = what
        if what == "slow_to_load":
            time.sleep(1.5)

    def act(self, rows, observations):
        answer = np.zeros((len(observations), 1, 7))
        if self.what == "not_a_number":
            answer[..., 2] = np.nan
        elif self.what == "infinite":
            answer[..., 2] = np.inf
        elif self.what == "shape":
            answer = np.zeros((len(observations), 1, 6))
        elif self.what == "raise":
            raise ValueError("the network is on fire")
        elif self.what == "hang":
            time.sleep(60)
        elif self.what == "slow":
            time.sleep(0.1)
        return answer


class NotAPolicy:
    """Named by mistake."""
