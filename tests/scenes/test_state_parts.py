"""State parts of the project's own scenes say the same thing in different words."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation as Turn

from robogen.conventions import matrix_from_columns
from robogen.errors import ConfigError
from robogen.scenes.scene import load_tabletop
from robogen.seeding import EpisodeSeed
from robogen.specs import ActionSpec


@pytest.fixture(scope="module")
def scene():
    made = load_tabletop("push")
    made.reset(made.prepare(EpisodeSeed(domain="validate", study=0, scene="push", episode=0))[0])
    yield made
    made.close()


def test_every_part_offered_has_its_size(scene):
    for part, size in scene.spec.state.items():
        values = scene.proprioception([part])
        assert values.shape == (size,), part
        assert np.isfinite(values).all()
    with pytest.raises(ConfigError, match="Did you mean 'eef_quat_xyzw'"):
        scene.proprioception(["eef_quat_xyz"])


def test_orientations_agree(scene):
    turn = Turn.from_matrix(matrix_from_columns(scene.proprioception(["eef_rot6d"])))
    for part, other in (
        ("eef_quat_xyzw", Turn.from_quat),
        ("eef_axis_angle", Turn.from_rotvec),
        ("eef_euler_xyz", lambda values: Turn.from_euler("xyz", values)),
    ):
        assert (other(scene.proprioception([part])) * turn.inv()).magnitude() < 1e-5, part


def test_the_gripper_closes_from_0_to_1(scene):
    parts = ["gripper_closed", "gripper_opening", "gripper_qpos"]
    closed, opening, left, right = scene.proprioception(parts)
    assert closed == pytest.approx(0.0, abs=0.05)
    assert opening == pytest.approx(left + right)
    for _ in range(15):
        scene.step(np.array([0, 0, 0, 0, 0, 0, 1.0]), ActionSpec())
    assert scene.proprioception(["gripper_closed"])[0] == pytest.approx(1.0, abs=0.05)
