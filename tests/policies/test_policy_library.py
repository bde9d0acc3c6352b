import pytest

from robogen.errors import ConfigError, PolicyError
from robogen.policies.bc import BCPolicy
from robogen.policies.library import available, checkpoints, load_policy
from robogen.policies.oracle import OraclePolicy
from robogen.policies.random import RandomPolicy
from robogen.policies.zero import ZeroPolicy
from robogen.specs import ActionSpec, SceneSpec, match


@pytest.fixture
def mine(tmp_path):
    """A user's configuration folder with a policy per scene."""
    folder = tmp_path / "mine"
    (folder / "policies" / "weights").mkdir(parents=True)
    (folder / "policies" / "my_bc.yaml").write_text(
        "_target_: robogen.policies.bc.BCPolicy\n"
        "checkpoint: weights/{scene}.safetensors\nexecute: 2\n"
    )
    return folder


def write(folder, text, name="broken"):
    (folder / "policies" / f"{name}.yaml").write_text(text)
    return name


@pytest.mark.parametrize(
    ("name", "kind"), [("zero", ZeroPolicy), ("random", RandomPolicy), ("oracle", OraclePolicy)]
)
def test_shipped_policies_load(name, kind):
    policy = load_policy(name)
    assert type(policy) is kind
    scene = SceneSpec(
        name="elsewhere",
        cameras=(),
        state={},
        action_modes={"native": 4, "delta_eef": 7},
        control_hz=20.0,
        horizon=10,
    )
    policy.fit(scene)
    assert policy.spec.action == ActionSpec(mode="native", dim=4, control_hz=20.0)
    assert match(policy.spec, scene).adaptations == ()


def test_shipped_names(mine):
    assert {"zero", "random", "oracle", "bc"} <= set(available())
    assert "my_bc" in available([mine])
    assert "my_bc" in available([mine / "policies"])


def test_a_users_policy_wins_over_a_shipped_one(mine):
    write(mine, "_target_: robogen.policies.zero.ZeroPolicy\n", name="random")
    assert isinstance(load_policy("random", extra_dirs=[mine]), ZeroPolicy)


def test_an_unknown_policy_names_the_nearest():
    with pytest.raises(ConfigError, match=r"Unknown policy 'orcale'\. Did you mean 'oracle'"):
        load_policy("orcale")


def test_an_unknown_parameter_names_the_nearest(mine):
    with pytest.raises(ConfigError, match=r"'griper'\. Did you mean 'gripper'"):
        load_policy("zero", overrides={"griper": 1})
    name = write(mine, "_target_: robogen.policies.zero.ZeroPolicy\ngriper: 1\n")
    with pytest.raises(ConfigError, match=r"broken\.yaml 'griper'\. Did you mean 'gripper'"):
        load_policy(name, extra_dirs=[mine])


def test_a_checkpoint_per_scene(mine, make_checkpoint):
    weights = mine / "policies" / "weights"
    make_checkpoint(weights / "pick.safetensors", size=32)
    make_checkpoint(weights / "push.safetensors", size=32, scene="push", seed=1)
    policy = load_policy("my_bc", scene="push", extra_dirs=[mine])
    assert isinstance(policy, BCPolicy)
    assert policy.scene == "push"
    assert policy.spec.action.execute == 2
    assert set(checkpoints(mine / "policies" / "my_bc.yaml", "weights/{scene}.safetensors")) == {
        "pick",
        "push",
    }
    with pytest.raises(PolicyError, match=r"for scene 'pour'.*that have one: pick, push"):
        load_policy("my_bc", scene="pour", extra_dirs=[mine])
    with pytest.raises(ConfigError, match="no scene was given"):
        load_policy("my_bc", extra_dirs=[mine])


def test_an_overriding_checkpoint_lies_in_the_working_folder(
    mine, make_checkpoint, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    make_checkpoint(tmp_path / "here.safetensors", size=32)
    override = {"checkpoint": "here.safetensors", "execute": 8}
    policy = load_policy("my_bc", scene="pick", overrides=override, extra_dirs=[mine])
    assert policy.spec.action.execute == 8
    with pytest.raises(PolicyError, match=r"no checkpoint at .*there\.safetensors"):
        load_policy("bc", scene="pick", overrides={"checkpoint": "there.safetensors"})


def test_a_placeholder_may_stand_twice(mine, make_checkpoint):
    weights = mine / "policies" / "weights"
    for place in ("pick/pick", "push/other"):
        make_checkpoint(weights / f"{place}.safetensors", size=32)
    pattern = "weights/{scene}/{scene}.safetensors"
    assert list(checkpoints(mine / "policies" / "my_bc.yaml", pattern)) == ["pick"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a list\n", "must hold a mapping"),
        ("control_hz: 10\n", "must name the policy's class"),
        ("_target_: ZeroPolicy\n", "must name the policy's class"),
        ("_target_: robogen.policies.zero.ZeroPolice\n", "cannot be imported"),
        ("_target_: nowhere.at.All\n", "cannot be imported"),
        ("_target_: robogen.policies.base.Sequence\nx: [\n", "Cannot read"),
        ("_target_: collections.OrderedDict\n", "makes a OrderedDict, which is not a"),
        ("_target_: robogen.policies.text.SIZE\n", "not a class"),
    ],
)
def test_files_that_are_not_policies(mine, text, message):
    name = write(mine, text)
    with pytest.raises(ConfigError, match=message):
        load_policy(name, extra_dirs=[mine])
