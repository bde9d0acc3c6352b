"""A plain function as a policy."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest

from robogen.errors import ConfigError, PolicyError
from robogen.policies.base import RowsFailed
from robogen.policies.callable import CallablePolicy
from robogen.policies.library import load_policy
from robogen.rollout.loop import padded
from robogen.specs import Observation, SceneSpec

SCENE = SceneSpec(
    name="lab",
    cameras=("front", "wrist"),
    state={"eef_pos": 3},
    action_modes={"delta_eef": 7},
    control_hz=10.0,
    horizon=100,
)
MODULE = """
import numpy as np

SEEN = []


def one(images, state, instruction):
    SEEN.append((sorted(images), state.shape, instruction))
    return np.full((2, 7), state.sum() + len(instruction) + images["image"].mean() / 255)


def flat(images, state, instruction):
    return [state.sum()] * 7


def many(images, state, instruction):
    SEEN.append((images["image"].shape, state.shape, instruction))
    words = np.array([len(text) for text in instruction])
    value = state.sum(axis=1) + words + images["image"].mean(axis=(1, 2, 3)) / 255
    return np.broadcast_to(value[:, None, None], (len(state), 2, 7))


def fussy(images, state, instruction):
    if instruction == "move 2":
        raise KeyError("no such cup")
    return np.zeros(7)


def wrong(images, state, instruction):
    return np.zeros((3, 7))


def none(images, state, instruction):
    return None


def words(images, state, instruction):
    return "left"


class NotAPolicy:
    def __init__(self, size=1):
        pass


NUMBER = 3
"""


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    (tmp_path / "my_functions.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("my_functions", None)


def make(function="my_functions.one", **changes):
    values = {
        "cameras": {"image": "front"},
        "size": 8,
        "state": ["eef_pos"],
        "action": {"chunk": 2},
        **changes,
    }
    policy = CallablePolicy(function=function, **values)
    policy.fit(SCENE)
    return policy


def seen(n):
    return Observation(
        images={"front": np.full((8, 8, 3), 10 * n, np.uint8)},
        state=np.full(3, n, np.float32),
        instruction=f"move {n}",
        step=0,
    )


def test_a_function_per_episode():
    policy = make()
    chunks = padded(policy, [0, 1, 2], [seen(n) for n in range(3)], 8)
    assert chunks.shape == (3, 2, 7)
    np.testing.assert_allclose(chunks[:, 0, 0], [3 * n + 6 + 10 * n / 255 for n in range(3)])
    module = importlib.import_module("my_functions")
    assert [(["image"], (3,), f"move {n}") for n in range(3)] == module.SEEN, "no padding asked"
    assert policy.spec.action.execute == 2
    assert policy.spec.deterministic


def test_a_function_of_all_episodes_says_the_same():
    rows = [seen(n) for n in range(3)]
    many = make("my_functions.many", batched=True)
    np.testing.assert_allclose(padded(many, [0, 1, 2], rows, 8), padded(make(), [0, 1, 2], rows, 8))
    shape, state, words = importlib.import_module("my_functions").SEEN[0]
    assert (shape, state, len(words)) == ((8, 8, 8, 3), (8, 3), 8)


def test_a_single_action_needs_no_chunk():
    policy = make("my_functions.flat", action=None)
    assert policy.act([0], [seen(1)]).tolist() == [[[3.0] * 7]]


def test_a_function_itself():
    def still(images, state, instruction):
        return np.zeros(7)

    policy = make(still, action={})
    assert padded(policy, [0], [seen(0)], 4).shape == (1, 1, 7)
    assert policy.identity()["function"].endswith("still")


def test_only_the_episode_it_fails_on_ends():
    with pytest.raises(RowsFailed) as failed:
        padded(make("my_functions.fussy", action={}), range(4), [seen(n) for n in range(4)], 8)
    assert set(failed.value.answers) == {0, 1, 3}
    assert isinstance(failed.value.failures[2], KeyError), "a bug of the user's keeps its traceback"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "wrong",
            r"my_functions.wrong returned actions of shape \(3, 7\).*\(2, 7\) \(chunk, dim\)",
        ),
        ("none", "returned"),
        ("words", "returned a str, which is no array of numbers"),
    ],
)
def test_wrong_answers(function, message):
    with pytest.raises(RowsFailed) as failed:
        make(f"my_functions.{function}").act([0], [seen(0)])
    with pytest.raises(PolicyError, match=message):
        raise failed.value.failures[0]


def test_a_wrong_answer_to_all_episodes():
    with pytest.raises(PolicyError, match=r"\(1, 2, 7\) \(rows, chunk, dim\)"):
        make("my_functions.wrong", batched=True).act([0], [seen(0)])


def test_its_identity_is_its_source(mine):
    before = make().identity()
    assert before["function"] == "my_functions.one"
    (mine / "my_functions.py").write_text(MODULE + "# edited\n")
    assert make().identity()["source"] != before["source"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nowhere.f", r"no module 'nowhere' here.*PYTHONPATH=FOLDER"),
        ("my_functions.oen", r"'oen'. Did you mean 'one'"),
        ("my_functions.NUMBER", "must name a function"),
        ("my_functions.NotAPolicy", "policy class goes into `_target_`"),
        ("f", "no dotted name"),
        (7, "must name a function"),
    ],
)
def test_functions_that_are_not_there(function, message):
    with pytest.raises(ConfigError, match=message):
        make(function)


def test_a_module_that_fails_itself(mine):
    (mine / "broken_one.py").write_text("import not_installed_anywhere\n")
    with pytest.raises(ConfigError, match=r"broken_one itself fails.*'import broken_one'"):
        make("broken_one.f")


@pytest.fixture
def write(mine):
    (mine / "policies").mkdir()

    def written(text, name="mine"):
        (mine / "policies" / f"{name}.yaml").write_text(text)
        return {"name": name, "extra_dirs": [mine]}

    return written


def test_a_file(write):
    text = (
        "_target_: robogen.policies.callable.CallablePolicy\n"
        "function: my_functions.one\ncameras: {image: front}\nstate: [eef_pos]\n"
        "action: {chunk: 2, execute: 1, gripper: open_positive}\n"
    )
    asked = write(text)
    policy = load_policy(**asked, overrides={"action.execute": 2, "cameras.image": "wrist"})
    policy.fit(SCENE)
    assert policy.spec.action.execute == 2
    assert policy.spec.action.gripper == "open_positive", "one key of a mapping is replaced"
    assert [camera.name for camera in policy.spec.observation.cameras] == ["wrist"]
    with pytest.raises(ConfigError, match=r"parameter of policy 'mine' 'acton'. Did you mean 'act"):
        load_policy(**asked, overrides={"acton.execute": 2})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("_target_: my_functions.one\n", r"function of images.*`function: my_functions\.one`"),
        ("_target_: my_functions.NotAPolicy\n", r"not a robogen.policies.base.Policy.*CallablePol"),
        ("_target_: my_function.one\n", r"no module 'my_function' here.*PYTHONPATH"),
        (
            "_target_: robogen.policies.callable.CallablePolicy\n",
            r"lacks function, which.*policy\.NAME\.function=",
        ),
    ],
)
def test_files_that_are_not_quite_policies(write, text, message):
    with pytest.raises(ConfigError, match=message):
        load_policy(**write(text))
