"""Whatever is wrong with somebody else's environment is said in one paragraph that helps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import toy_env
import yaml

import robogen
from robogen.errors import ConfigError, GraphicsError, RobogenError, SceneError
from robogen.perturbations.engine import Perturbation
from robogen.rollout.start import begin
from robogen.scenes.adapters.gymnasium_env import GymnasiumAdapter
from robogen.scenes.load import load_scene
from robogen.seeding import EpisodeSeed

CONFIG = Path(__file__).parent / "config"
TOY = yaml.safe_load((CONFIG / "scenes" / "families" / "toy.yaml").read_text())
SEED = EpisodeSeed(domain="evaluate", study=0, scene="toy", episode=0)

Load = Callable[..., Any]


class Listed(GymnasiumAdapter):
    """A codebase that knows its tasks."""

    @classmethod
    def tasks(cls) -> tuple[str, ...]:
        return ("ToyTable-v0", "ToyMute-v0")


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a scene of a user's family file, some keys of which are other than the toy's."""

    def loaded(task: str = "ToyTable-v0", **changes: Any) -> Any:
        folder = tmp_path / "scenes" / "families"
        folder.mkdir(parents=True, exist_ok=True)
        content = {**TOY, **changes, "settings": {**TOY["settings"], **changes.get("settings", {})}}
        (folder / "mine.yaml").write_text(yaml.safe_dump(content))
        return load_scene(f"mine/{task}", extra=(tmp_path,))

    return loaded


def said(caught: pytest.ExceptionInfo[RobogenError]) -> str:
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith((".", "!")), text
    assert not text.endswith(("..", "!.")), text
    return text


def test_a_package_that_is_missing(load: Load):
    with pytest.raises(SceneError) as caught:
        load(packages=["nobodys-simulator"], install="make env-nobody")
    text = said(caught)
    assert "'mine' need nobodys-simulator, not installed" in text
    assert "make env-nobody" in text


def test_another_mujoco(load: Load):
    import mujoco

    with pytest.raises(SceneError) as caught:
        load(mujoco="<3", install="make env-old")
    text = said(caught)
    assert "MuJoCo <3" in text
    assert mujoco.__version__ in text
    assert "make env-old" in text
    with pytest.raises(ConfigError) as caught:
        load(mujoco="three")
    assert "no version range" in said(caught)


def test_an_unknown_family_or_task(load: Load):
    with pytest.raises(ConfigError) as caught:
        load_scene("toi/ToyTable-v0", extra=(CONFIG,))
    assert "Did you mean 'toy'?" in said(caught)
    with pytest.raises(ConfigError) as caught:
        load("ToyTabel-v0", adapter=f"{__name__}.Listed")
    assert "Did you mean 'ToyTable-v0'?" in said(caught)
    with pytest.raises(SceneError) as caught:
        load("ToyTabel-v0")  # nobody knows its tasks: Gymnasium is asked
    assert "ToyTabel" in said(caught)


def test_an_adapter_that_is_none(load: Load):
    with pytest.raises(ConfigError) as caught:
        load(adapter="nowhere.to.be.Found")
    assert "cannot be imported" in said(caught)
    with pytest.raises(ConfigError) as caught:
        load(adapter="pathlib.Path")
    assert "not a class derived from Adapter" in said(caught)


def test_a_role_that_matches_nothing(load: Load):
    with pytest.raises(SceneError) as caught:
        load(roles={**TOY["roles"], "manipulated": ["boxx"]})
    text = said(caught)
    assert "manipulated boxx" in text
    assert "Did you mean 'box'?" in text
    with pytest.raises(SceneError) as caught:
        load(cameras={"frnt": "third_person"})
    assert "Did you mean 'front'?" in said(caught)
    with pytest.raises(SceneError) as caught:
        load(roles={**TOY["roles"], "lights": ["lmp*"]})
    assert "lamp" in said(caught)
    load(roles={**TOY["roles"], "fixture": ["shelf*"]}, optional=["fixture"]).close()


def test_a_role_there_is_not(load: Load):
    with pytest.raises(ConfigError) as caught:
        load(roles={"manipulatd": ["box"]})
    assert "manipulatd" in said(caught)
    with pytest.raises(ConfigError) as caught:
        robogen.wrap(gymnasium.make("ToyTable-v0"), roles={"tabel": "top"}, cameras={})
    assert "Did you mean 'table'?" in said(caught)


def test_a_joint_that_is_not_there(load: Load):
    with pytest.raises(SceneError) as caught:
        load(arm=["pann"])
    text = said(caught)
    assert "pann" in text
    assert "Did you mean 'pan'?" in text


@pytest.mark.parametrize(
    "reason", ["", "Cannot initialize a EGL device display. This likely means that EGL is broken"]
)
def test_a_constructor_that_raises(load: Load, reason: str):
    with pytest.raises(SceneError) as caught:
        load("ToyBroken-v0", settings={"make": {"reason": reason}})
    text = said(caught)
    assert "'mine/ToyBroken-v0' cannot be made" in text
    assert (reason or "cannot find the assets; please download them") in text
    assert "RuntimeError" in text
    assert gymnasium.__version__ in text


def test_an_environment_without_mujoco(load: Load):
    with pytest.raises(SceneError) as caught:
        robogen.wrap(gymnasium.make("CartPole-v1"), roles={}, cameras={})
    text = said(caught)
    assert "CartPoleEnv has no MuJoCo model" in text
    assert "model_path" in text
    with pytest.raises(SceneError) as caught:
        load("CartPole-v1")
    assert "CartPoleEnv has no MuJoCo model" in said(caught)


def test_actions_that_are_no_flat_box(load: Load):
    with pytest.raises(SceneError) as caught:
        load("ToyDiscrete-v0")
    text = said(caught)
    assert "Discrete(5)" in text
    assert "flat Box" in text


def test_an_environment_that_never_says_it_is_done(load: Load):
    scene = load("ToyMute-v0")
    try:
        begin(scene, Perturbation(), SEED)
        with pytest.raises(SceneError) as caught:
            scene.step(scene.rest_action(scene.spec.action), scene.spec.action)
        text = said(caught)
        assert "info has reward_run" in text
        assert "is_success" in text
    finally:
        scene.close()


def test_what_an_environment_does_not_say_must_be_said():
    bare = toy_env.ToyTable()  # made without an id, so nobody knows its longest episode
    with pytest.raises(SceneError) as caught:
        robogen.wrap(bare, roles={}, cameras={})
    assert "horizon=" in said(caught)
    scene = robogen.wrap(bare, roles={}, cameras={}, horizon=5, name="bare")
    assert scene.spec.control_hz == 20.0
    assert scene.spec.name == "wrapped/bare"
    scene.close()


def test_a_frame_larger_than_the_offscreen_buffer(load: Load):
    scene = load()
    try:
        begin(scene, Perturbation(), SEED)
        assert scene.render("front", width=480, height=480, profile="fast").shape == (480, 480, 3)
        with pytest.raises(GraphicsError) as caught:
            scene.render("front", width=512, height=480, profile="fast")
        text = said(caught)
        assert "512 x 480" in text
        assert "480 x 480" in text
        with pytest.raises(ConfigError) as caught:
            scene.render("frnt", width=32, height=32, profile="fast")
        assert "Did you mean 'front'?" in said(caught)
    finally:
        scene.close()


def test_a_task_without_an_expert(load: Load):
    scene = load()
    try:
        assert not scene.has_expert
        with pytest.raises(SceneError) as caught:
            scene.expert_action(scene.spec.action)
        assert "no scripted expert" in said(caught)
    finally:
        scene.close()


def test_a_family_file_that_is_wrong(load: Load):
    with pytest.raises(ConfigError) as caught:
        load(camera={"front": "third_person"})
    assert "did you mean 'cameras'?" in said(caught)
    with pytest.raises(ConfigError) as caught:
        load(rewordings=[{"match": "("}])
    assert "no regular expression" in said(caught)
    with pytest.raises(ConfigError) as caught:
        load(tasks={"Toy*": "nothing"})
    assert "tasks.Toy*" in said(caught)
