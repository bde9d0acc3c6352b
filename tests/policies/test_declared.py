"""Conventions from a policy's YAML."""

from __future__ import annotations

from dataclasses import fields

import pytest

from robogen.errors import ConfigError, SpecError
from robogen.policies.declared import (
    Declaration,
    action_spec,
    blank,
    observation_spec,
    state_parts,
)
from robogen.specs import (
    ActionSpec,
    CameraSpec,
    ObservationSpec,
    PolicySpec,
    SceneSpec,
    match,
)

SCENE = SceneSpec(
    name="lab",
    cameras=("front", "wrist", "side"),
    state={"eef_pos": 3, "joint_pos": 7},
    action_modes={"delta_eef": 7},
    control_hz=15.0,
    horizon=100,
)


def test_every_field_of_the_specs_can_be_written():
    observation = {
        "instruction": True,
        "history": [-2, 0],
        "render": "nice",
        "orientation": "mirrored",
        "crop": 0.9,
        "fit": "pad",
        "channels": "bgr",
        "layout": "chw",
        "pixels": "unit",
    }
    spec = observation_spec(observation)
    assert {*observation, "cameras", "state"} == {item.name for item in fields(ObservationSpec)}
    assert all(
        getattr(spec, key) == (tuple(value) if key == "history" else value)
        for key, value in observation.items()
    )
    action = {
        "mode": "absolute_eef",
        "dim": 8,
        "scale_position": 1,
        "scale_rotation": 2.0,
        "frame": "tool",
        "rotation": "quat_wxyz",
        "gripper": "open_positive",
        "gripper_range": "unit",
        "control_hz": 5,
        "chunk": 4,
        "execute": 2,
    }
    assert set(action) == {item.name for item in fields(ActionSpec)}
    assert action_spec(action) == ActionSpec(**action)
    assert isinstance(action_spec(action).control_hz, float)


def test_what_is_not_written_keeps_the_base():
    base = ActionSpec(gripper="open_positive", chunk=16, execute=8)
    assert action_spec(None, base=base) == base
    assert action_spec({"chunk": None, "mode": None}, base=base) == base
    assert action_spec({"chunk": 4}, base=base).execute == 4
    assert observation_spec({}) == ObservationSpec()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layuot": "chw"}, r"key in observation 'layuot'. Did you mean 'layout'"),
        ({"layout": "chv"}, r"value of observation.layout 'chv'. Did you mean 'chw'.*chw, hwc"),
        ({"orientation": "mirored"}, "Did you mean 'mirrored'"),
        ({"crop": 0}, "observation.crop must lie above 0"),
        ({"crop": 1.5}, "observation.crop must lie above 0"),
        ({"crop": "all"}, "observation.crop must be a number, got 'all'"),
        ({"crop": True}, "observation.crop must be a number"),
        ({"instruction": 1}, "must be true or false"),
        ({"history": [0, -1]}, "rise and end in 0"),
        ({"history": [-1]}, "rise and end in 0"),
        ({"history": []}, "rise and end in 0"),
        ({"history": "all"}, "rise and end in 0"),
        ({"cameras": ["front"]}, "'cameras' stands beside observation"),
        ({"state": ["eef_pos"]}, "'state' stands beside observation"),
        (["layout"], "observation must be a mapping"),
    ],
)
def test_wrong_observations(values, message):
    with pytest.raises(ConfigError, match=message):
        observation_spec(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"chunk": 0}, "action.chunk must be above 0"),
        ({"chunk": 1.5}, "action.chunk must be a whole number"),
        ({"dim": True}, "action.dim must be a whole number"),
        ({"execute": 3}, "action.execute is 3, more than the 1"),
        ({"control_hz": -1}, "action.control_hz must be above 0"),
        ({"control_hz": float("nan")}, "action.control_hz must be a number"),
        ({"scale_position": 0}, "action.scale_position must be above 0"),
        ({"gripper": "close_positiv"}, "Did you mean 'close_positive'"),
        ({"griper": "close_positive"}, "Did you mean 'gripper'"),
        (3, "action must be a mapping"),
    ],
)
def test_wrong_actions(values, message):
    with pytest.raises(ConfigError, match=message):
        action_spec(values)


def test_state_parts():
    assert state_parts("eef_pos") == ("eef_pos",)
    assert state_parts(["joint_pos", "eef_pos"]) == ("joint_pos", "eef_pos")
    with pytest.raises(ConfigError, match=r"'joint_position'. Did you mean 'joint_pos'"):
        state_parts(["joint_position"])
    with pytest.raises(ConfigError, match="list of state parts"):
        state_parts(3)


@pytest.mark.parametrize(
    ("cameras", "expected"),
    [
        (["front", "side"], {"front": ("front", 64, 48), "side": ("side", 64, 48)}),
        ("wrist", {"wrist": ("wrist", 64, 48)}),
        ({"image": "side"}, {"image": ("side", 64, 48)}),
        ({"a": None, "b": "front", "c": None},
         {"a": ("wrist", 64, 48), "b": ("front", 64, 48), "c": ("side", 64, 48)}),
        ({"a": {"camera": "side", "width": 10}}, {"a": ("side", 10, 48)}),
        (None, {}),
    ],
)  # fmt: skip
def test_cameras_by_the_policys_names(cameras, expected):
    declared = Declaration.read(cameras=cameras, size=[64, 48])
    fitted = declared.fitted(SCENE)
    sizes = {c.name: (c.name, c.width, c.height) for c in fitted.spec.observation.cameras}
    assert {key: sizes[name] for key, name in fitted.cameras.items()} == expected
    assert fitted.spec.action.control_hz == 15.0, "the scene's"
    assert match(fitted.spec, SCENE).action.dim == 7


def test_a_frame_drawn_larger():
    wanted = {"a": {"camera": "front", "drawn": [640, 480]}}
    (camera,) = Declaration.read(cameras=wanted, size=224).fitted(SCENE).spec.observation.cameras
    assert camera == CameraSpec(name="front", width=224, height=224, drawn=(640, 480))


def test_a_rate_that_is_written_stays():
    declared = Declaration.read(cameras=(), action={"control_hz": 20})
    spec = declared.fitted(SCENE).spec
    with pytest.raises(SpecError, match="20 Hz differs from the scene's 15 Hz"):
        match(spec, SCENE)


@pytest.mark.parametrize(
    ("cameras", "message"),
    [
        ({"image": "frnt"}, r"cameras\.image=front` .*cameras: \{image: front\}"),
        ({"image": "agentview"}, r"has front, wrist, side.*cameras\.image=front"),
        (dict.fromkeys("abcd"), "a camera for 'd'"),
        ({"a": {"camera": "front", "width": 3}, "b": "front"}, "wanted in two sizes"),
    ],
)
def test_cameras_that_the_scene_does_not_have(cameras, message):
    with pytest.raises(SpecError, match=message):
        Declaration.read(cameras=cameras).fitted(SCENE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cameras": 3}, "cameras must be names"),
        ({"cameras": {"a": 3}}, "cameras.a must be the name"),
        ({"cameras": {"a": {"width": 3}}}, "cameras.a must say `camera: NAME`"),
        ({"cameras": {"a": {"camera": "x", "widht": 3}}}, "Did you mean 'width'"),
        ({"cameras": {"a": {"camera": "x", "width": 0}}}, "cameras.a.width must be above 0"),
        ({"cameras": {"a": {"camera": "x", "drawn": [1]}}}, "cameras.a.drawn must be a size"),
        ({"size": 0}, "size must be a size in pixels"),
        ({"size": [1, 2, 3]}, "size must be a size in pixels"),
        ({"size": True}, "size must be a size in pixels"),
        ({"deterministic": "yes"}, "deterministic must be true or false"),
    ],
)
def test_wrong_declarations(changes, message):
    with pytest.raises(ConfigError, match=message):
        Declaration.read(**{"cameras": ["front"], **changes})


def test_a_spec_with_a_strange_camera_offers_a_rename_map():
    spec = PolicySpec(
        observation=ObservationSpec(
            cameras=tuple(CameraSpec(name=n, width=8, height=8) for n in ("wrist_cam", "top"))
        ),
        action=ActionSpec(control_hz=15.0),
    )
    with pytest.raises(SpecError, match=r"cameras=\{wrist_cam: wrist, top: front\}"):
        match(spec, SCENE)


def test_blank_observations_have_the_specs_shapes():
    spec = (
        Declaration.read(
            cameras={"a": "front"},
            size=[8, 6],
            state=["joint_pos", "eef_pos"],
            observation={"history": [-1, 0], "layout": "chw", "pixels": "unit"},
        )
        .fitted(SCENE)
        .spec.observation
    )
    empty = blank(spec, SCENE)
    assert empty.images["front"].shape == (2, 3, 6, 8)
    assert empty.images["front"].dtype == "float32"
    assert empty.state.shape == (2, 10)
    plain = blank(ObservationSpec(cameras=spec.cameras), SCENE)
    assert plain.images["front"].shape == (6, 8, 3)
    assert plain.state.shape == (0,)
