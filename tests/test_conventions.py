"""Every convention a spec can name, turned into the scenes' own and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation as Turn

from robogen.conventions import (
    derivable,
    derived,
    drawn,
    from_scene,
    matrix_from_columns,
    presented,
    to_scene,
)
from robogen.errors import SpecError
from robogen.specs import (
    ROTATION_SIZE,
    ActionSpec,
    CameraSpec,
    ObservationSpec,
    PolicySpec,
    SceneSpec,
    canonical,
    match,
)

AXES = Turn.from_euler("xyz", [0.3, -0.8, 1.9]).as_matrix()


def spec(rotation="axis_angle", **changes):
    return ActionSpec(rotation=rotation, dim=4 + ROTATION_SIZE[rotation], **changes)


specs = st.builds(
    spec,
    rotation=st.sampled_from(sorted(ROTATION_SIZE)),
    mode=st.sampled_from(["delta_eef", "absolute_eef"]),
    frame=st.sampled_from(["base", "tool"]),
    gripper=st.sampled_from(["close_positive", "open_positive"]),
    gripper_range=st.sampled_from(["signed", "unit"]),
    scale_rotation=st.sampled_from([0.1, 0.5, 1.0]),
)
commands = st.lists(st.floats(-1, 1), min_size=7, max_size=7).map(np.array)


@settings(deadline=None, max_examples=200)
@given(specs, commands)
def test_there_and_back_is_the_same_command(policy, command):
    said = from_scene(command, policy, lambda: AXES)
    assert said.shape == (policy.dim,)
    np.testing.assert_allclose(to_scene(said, policy, lambda: AXES), command, atol=1e-9)


def test_the_scenes_own_convention_passes_untouched():
    command = np.arange(7.0)

    def asked():
        raise AssertionError("the tool's pose costs time and is not needed")

    assert to_scene(command, ActionSpec(), asked) is command
    assert canonical(ActionSpec()) == ActionSpec()


@pytest.mark.parametrize(
    ("changes", "said", "meant"),
    [
        ({"gripper": "open_positive"}, 1.0, -1.0),
        ({"gripper_range": "unit"}, 0.0, -1.0),
        ({"gripper_range": "unit"}, 1.0, 1.0),
        ({"gripper_range": "unit", "gripper": "open_positive"}, 1.0, -1.0),  # RLDS: 1 is open
        ({"gripper_range": "unit", "gripper": "open_positive"}, 0.0, 1.0),
    ],
)
def test_gripper_conventions(changes, said, meant):
    command = np.array([0.1, 0, 0, 0, 0, 0, said])
    assert to_scene(command, ActionSpec(**changes), lambda: AXES)[-1] == meant
    native = ActionSpec(mode="native", dim=4, **changes)
    assert to_scene(command[-4:], native, lambda: AXES)[-1] == meant


@pytest.mark.parametrize("rotation", sorted(set(ROTATION_SIZE) - {"axis_angle"}))
def test_rotations_mean_what_scipy_means(rotation):
    turn = Turn.from_rotvec([0.2, -0.4, 0.3])
    values = {
        "euler_xyz": turn.as_euler("xyz"),
        "quat_xyzw": turn.as_quat(),
        "quat_wxyz": turn.as_quat(scalar_first=True),
        "rot6d": np.concatenate([turn.as_matrix()[:, 0], turn.as_matrix()[:, 1]]),
        "rot6d_interleaved": turn.as_matrix()[:, :2].ravel(),
    }[rotation]
    command = np.concatenate([np.zeros(3), values, [1.0]])
    absolute = to_scene(command, spec(rotation, mode="absolute_eef"), lambda: AXES)
    np.testing.assert_allclose(absolute[3:6], turn.as_rotvec())
    delta = spec(rotation, scale_rotation=0.5)
    if rotation == "euler_xyz":
        command[3:6] /= 0.5
    np.testing.assert_allclose(to_scene(command, delta, lambda: AXES)[3:6], turn.as_rotvec() / 0.5)


def test_a_tool_frame_delta_is_turned_to_the_base():
    command = np.array([1.0, 0, 0, 0, 0, 1.0, 1.0])
    turned = to_scene(command, ActionSpec(frame="tool"), lambda: AXES)
    np.testing.assert_allclose(turned[:3], AXES[:, 0])
    np.testing.assert_allclose(turned[3:6], AXES[:, 2])


def test_noisy_columns_become_the_nearest_frame():
    columns = AXES[:, :2].T.reshape(-1)
    np.testing.assert_allclose(matrix_from_columns(3.0 * columns), AXES, atol=1e-12)
    skewed = matrix_from_columns(columns + 0.01)
    np.testing.assert_allclose(skewed @ skewed.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(skewed) == pytest.approx(1.0)


# -- images ----------------------------------------------------------------------------------------

FRAME = np.random.default_rng(0).integers(0, 256, size=(48, 64, 3), dtype=np.uint8)


def shown(camera, image=FRAME, **changes):
    return presented(image, camera, ObservationSpec(cameras=(camera,), **changes))


def test_what_is_wanted_as_it_is_stays_as_it_is():
    camera = CameraSpec(name="front", width=64, height=48)
    np.testing.assert_array_equal(shown(camera), FRAME)
    assert drawn(camera) == camera


def test_order_layout_and_type():
    camera = CameraSpec(name="front", width=64, height=48)
    np.testing.assert_array_equal(shown(camera, channels="bgr"), FRAME[..., ::-1])
    np.testing.assert_array_equal(shown(camera, layout="chw"), FRAME.transpose(2, 0, 1))
    unit = shown(camera, pixels="unit", layout="chw", channels="bgr")
    assert unit.dtype == np.float32
    np.testing.assert_allclose(unit, FRAME[..., ::-1].transpose(2, 0, 1) / 255, atol=1e-7)
    history = np.stack([FRAME, FRAME[::-1]])
    assert shown(camera, history, layout="chw").shape == (2, 3, 48, 64)
    np.testing.assert_array_equal(shown(camera, history, layout="chw")[1, 0], FRAME[::-1, :, 0])


def test_padding_keeps_proportions_and_centres():
    camera = CameraSpec(name="front", width=32, height=32, drawn=(64, 48))
    assert (drawn(camera).width, drawn(camera).height) == (64, 48)
    padded = shown(camera, fit="pad")
    assert padded.shape == (32, 32, 3)
    assert not padded[:4].any()
    assert not padded[-4:].any()
    assert padded[4:28].any(axis=(1, 2)).all()
    flat = np.full_like(FRAME, 77)
    assert (shown(camera, flat)[:] == 77).all()
    assert set(np.unique(shown(camera, flat, fit="pad"))) == {0, 77}


def test_a_crop_keeps_the_middle():
    camera = CameraSpec(name="front", width=32, height=24)
    np.testing.assert_array_equal(shown(camera, crop=0.5), FRAME[12:36, 16:48])


# -- state -----------------------------------------------------------------------------------------


def test_orientations_follow_from_the_rotation_matrix():
    offered = {"eef_rot6d": AXES[:, :2].T.reshape(-1)}
    turn = Turn.from_matrix(AXES)
    xyzw = derived("eef_quat_xyzw", offered)
    np.testing.assert_allclose(xyzw, turn.as_quat(canonical=True))
    np.testing.assert_allclose(derived("eef_quat_wxyz", offered), np.roll(xyzw, 1))
    np.testing.assert_allclose(derived("eef_euler_xyz", offered), [0.3, -0.8, 1.9])
    np.testing.assert_allclose(derived("eef_axis_angle", offered), turn.as_rotvec())
    assert derivable({"eef_rot6d": 6})["eef_quat_xyzw"] == 4
    assert derivable({"native": 3}) == {"native": 3}
    own = {**offered, "eef_axis_angle": np.zeros(3)}  # what a codebase offers itself wins
    assert not derived("eef_axis_angle", own).any()


# -- matching --------------------------------------------------------------------------------------

SCENE = SceneSpec(
    name="table",
    cameras=("front",),
    state={"eef_pos": 3},
    action_modes={"delta_eef": 7, "absolute_joint": 8},
    control_hz=10.0,
    horizon=50,
)


def fitted(**changes):
    observation = changes.pop("observation", ObservationSpec())
    return match(PolicySpec(observation=observation, action=ActionSpec(**changes)), SCENE)


def test_what_is_turned_is_said():
    fit = fitted(
        dim=8, rotation="quat_wxyz", frame="tool", gripper="open_positive", gripper_range="unit"
    )
    assert fit.action == ActionSpec()
    said = " ".join(item.what for item in fit.adaptations)
    for word in ("tool's axes", "quat_wxyz", "opens", "0 to 1"):
        assert word in said
    assert fitted().adaptations == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rotation": "quat_xyzw"}, "have 8 numbers, the policy's have 7"),
        ({"mode": "absolute_joint", "dim": 8, "frame": "tool"}, "frame 'tool'"),
        ({"observation": ObservationSpec(crop=0.0)}, "crop 0"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(SpecError, match=message):
        fitted(**changes)
