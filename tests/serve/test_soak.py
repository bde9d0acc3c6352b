"""A short soak; the long one is ``python benchmarks/soak.py``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))


def test_a_server_that_keeps_failing_loses_no_episode(tmp_path):
    from soak import FAULTS, soak

    found = soak(tmp_path / "soak", episodes=20, rate=0.2, horizon_s=0.5, deadline_s=1.0)
    assert (found.scored, found.errored) == (20, 0)
    assert set(found.faults) == set(FAULTS)
    assert found.same
