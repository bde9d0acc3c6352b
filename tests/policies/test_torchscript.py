"""TorchScript modules as policies."""

from __future__ import annotations

import json
import pickle
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robogen.errors import ConfigError, PolicyError
from robogen.paths import config_root
from robogen.policies.bc import BCPolicy
from robogen.policies.library import load_policy
from robogen.policies.torchscript import TorchScriptPolicy
from robogen.records.reader import read_records
from robogen.rollout.loop import padded
from robogen.specs import Observation, SceneSpec
from robogen.study.config import compose_study
from robogen.study.design import resolve
from robogen.study.study import run_study

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")

SCENE = SceneSpec(
    name="lab",
    cameras=("front", "wrist"),
    state={"eef_pos": 3},
    action_modes={"delta_eef": 7},
    control_hz=10.0,
    horizon=100,
)
STATISTICS = {
    "state_mean": [1.0, 2.0, 3.0],
    "state_std": [0.5, 1.0, 2.0],
    "action_low": [-0.1] * 6 + [0.0],
    "action_high": [0.3] * 6 + [1.0],
}


class Sum(nn.Module):
    """Means of everything, tanh, two actions."""

    def forward(self, front: Tensor, state: Tensor, text: Tensor) -> Tensor:
        value = front.flatten(1).mean(1) + state.sum(1) + text.sum(1)
        return torch.tanh(value)[:, None, None].repeat(1, 2, 7)


class Reader(nn.Module):
    """Reads the words themselves; one action without a chunk axis."""

    def forward(self, instruction: list[str], scale: float = 2.0) -> Tensor:
        lengths = torch.zeros(len(instruction), 7)
        for n, words in enumerate(instruction):
            lengths[n] = scale * len(words)
        return lengths


class Odd(nn.Module):
    def __init__(self, kind: int) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, state: Tensor) -> Tensor:
        if self.kind == 0:
            return torch.zeros(len(state), 3, 7)
        if self.kind == 1:
            return torch.zeros(1, 7)
        raise RuntimeError("it is broken inside")


class Pair(nn.Module):
    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        return state, state


@pytest.fixture
def save(tmp_path):
    def saved(module, statistics=None, name="net.pt"):
        torch.jit.script(module.eval()).save(tmp_path / name)
        if statistics is not None:
            (tmp_path / name).with_suffix(".json").write_text(json.dumps(statistics))
        return tmp_path / name

    return saved


def make(path, **changes):
    values = {
        "cameras": ["front"],
        "size": 8,
        "state": ["eef_pos"],
        "action": {"chunk": 2},
        "text_size": 16,
        **changes,
    }
    policy = TorchScriptPolicy(checkpoint=path, **values)
    policy.fit(SCENE)
    return policy


def seen(n=0):
    rng = np.random.default_rng(n)
    return Observation(
        images={"front": rng.random((3, 8, 8)).astype(np.float32)},
        state=rng.normal(size=3).astype(np.float32),
        instruction=f"move {n}",
        step=0,
    )


def test_inputs_and_statistics(save):
    path = save(Sum(), STATISTICS)
    policy = make(path)
    rows = [seen(n) for n in range(3)]
    chunks = padded(policy, range(3), rows, 8)
    assert chunks.shape == (3, 2, 7)
    from robogen.policies import text

    for row, chunk in zip(rows, chunks, strict=True):
        state = (row.state - STATISTICS["state_mean"]) / STATISTICS["state_std"]
        words = text.features(row.instruction, size=16)
        value = np.tanh(row.images["front"].mean() + state.sum() + words.sum())
        low, high = np.array(STATISTICS["action_low"]), np.array(STATISTICS["action_high"])
        np.testing.assert_allclose(chunk[0], low + (value + 1) / 2 * (high - low), atol=1e-6)
    known = policy.normalization()
    assert known["state"].kind == "mean_std"
    assert known["action"].high.tolist() == STATISTICS["action_high"]
    actions = np.random.default_rng(0).normal(size=(5, 7))
    np.testing.assert_allclose(policy.round_trip(actions), actions)
    seen_as = policy.spec.observation
    assert (seen_as.layout, seen_as.pixels) == ("chw", "unit")


def test_numbers_as_they_are_must_be_said(save):
    path = save(Sum())
    with pytest.raises(PolicyError, match=r"no statistics beside it.*net\.json.*`normalization: n"):
        make(path)
    policy = make(path, normalization="none")
    assert policy.normalization() == {}
    assert policy.round_trip(np.zeros((1, 7))) is None
    assert policy.identity()["normalization"] == "none"
    assert abs(policy.act([0], [seen()])).max() <= 1.0


def test_words_themselves(save):
    policy = make(save(Reader()), cameras=(), state=(), action={}, normalization="none")
    assert policy.act([0], [seen(3)]).tolist() == [[[2.0 * len("move 3")] * 7]]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Odd(0), r"shape \(2, 3, 7\).*promises \(2, 2, 7\)"),
        (Odd(1), r"shape \(1, 7\)"),
        (Odd(2), r"failed on state \(2, 3\).*it is broken inside"),
        (Pair(), "returned a tuple; forward must return one tensor"),
    ],
)
def test_wrong_answers(save, module, message):
    policy = make(save(module), cameras=(), normalization="none")
    with pytest.raises(PolicyError, match=message) as refused:
        policy.act([0, 1], [seen(), seen(1)])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cameras": ["frontal"]}, r"forward wants argument 'front'. Did you mean 'frontal'"),
        ({"cameras": ["front", "wrist"]}, r"gives it wrist too"),
        ({"state": []}, "forward wants argument 'state'"),
    ],
)
def test_arguments_are_given_by_name(save, changes, message):
    with pytest.raises(PolicyError, match=message):
        make(save(Sum()), normalization="none", **changes)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"state_std": [1, 0, 1]}, PolicyError, "state_std must hold 3 numbers above 0"),
        ({"state_std": [1, 1]}, PolicyError, "state_std must hold 3 numbers"),
        ({"state_mean": None}, PolicyError, "state_mean must be a list of finite numbers"),
        ({"state_mean": [float("nan")] * 3}, PolicyError, "finite numbers"),
        ({"action_low": [0] * 6}, PolicyError, "action_low and action_high have 6 and 7"),
        ({"action_low": [1] * 7}, PolicyError, "action_high must be above action_low"),
        ({"state_maen": [1]}, ConfigError, "'state_maen'. Did you mean 'state_mean'"),
    ],
)
def test_wrong_statistics(save, change, error, message):
    path = save(Sum(), {**STATISTICS, **change})
    with pytest.raises(error, match=message):
        make(path)


@pytest.mark.parametrize("missing", STATISTICS)
def test_no_statistic_is_left_out_silently(save, missing):
    path = save(Sum(), {key: value for key, value in STATISTICS.items() if key != missing})
    with pytest.raises(PolicyError, match=f"lacks {missing}, and numbers are never silently"):
        make(path)


def test_statistics_of_another_state(save):
    path = save(Sum(), {**STATISTICS, "state_mean": [0] * 4, "state_std": [1] * 4})
    with pytest.raises(PolicyError, match="for a state of 4 numbers, and eef_pos has 3"):
        make(path).act([0], [seen()])


def test_statistics_that_are_no_json(save):
    path = save(Sum())
    path.with_name("other.json").write_text("{")
    with pytest.raises(PolicyError, match=r"Cannot read .*other\.json as JSON"):
        make(path, normalization="other.json")
    path.with_name("other.json").write_text("[1]")
    with pytest.raises(PolicyError, match="must hold state_mean"):
        make(path, normalization="other.json")


class Bomb:
    """A pickle that would leave a mark if anybody read it."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return Path.touch, (Path(self.mark),)


def test_pickles_are_refused_by_what_they_are(tmp_path, save):
    mark = tmp_path / "exploded"
    raw = tmp_path / "raw.pt"
    raw.write_bytes(pickle.dumps(Bomb(mark)))
    saved = tmp_path / "saved.pt"
    torch.save({"weights": Bomb(mark)}, saved)
    exported = tmp_path / "exported.pt2"  # named as torch.export names what it writes
    with zipfile.ZipFile(exported, "w") as archive:
        archive.writestr("net/models/model.json", "{}")
        archive.writestr("net/data/weights/model.pt", pickle.dumps(Bomb(mark)))
    other = tmp_path / "other.pt"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Bomb(mark)))
    for file in (raw, saved, exported, other):
        with pytest.raises(PolicyError, match=r"could run any code.*torch\.jit\.save"):
            make(file)
    assert not mark.exists()


def test_files_that_are_nothing_of_the_kind(tmp_path, save):
    text = tmp_path / "text.pt"
    text.write_text("hello")
    with pytest.raises(PolicyError, match="is no TorchScript archive"):
        make(text)
    with pytest.raises(PolicyError, match="Cannot read"):
        make(tmp_path / "absent.pt")
    whole = save(Sum()).read_bytes()
    for size in (len(whole) // 2, len(whole) - 30):
        (tmp_path / "cut.pt").write_bytes(whole[:size])
        with pytest.raises(PolicyError):
            make(tmp_path / "cut.pt")


def test_code_is_damaged(tmp_path, save):
    path = save(Sum())
    broken = tmp_path / "broken.pt"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(broken, "w") as new:
        for name in old.namelist():
            new.writestr(name, b"def (" if name.endswith(".py") else old.read(name))
    with pytest.raises(PolicyError, match="cannot be loaded"):
        make(broken)


class Exported(nn.Module):
    """The shipped network from frames and state to actions as the policy gives them."""

    def __init__(self, policy: BCPolicy) -> None:
        super().__init__()
        self.network = policy._network
        self.binary = policy._binary_gripper

    def forward(self, front: Tensor, wrist: Tensor, state: Tensor, text: Tensor) -> Tensor:
        output = self.network([front, wrist], state, text)
        gripper = torch.tanh(output.gripper)
        if self.binary:
            gripper = torch.where(output.gripper > 0.0, 1.0, -1.0)
        return torch.cat([output.motion.clamp(-1.0, 1.0), gripper[..., None]], dim=-1)


def test_the_shipped_network_exported_acts_the_same_in_a_study(tmp_path):
    shipped = config_root() / "policies" / "bc" / "pick.safetensors"
    bc = BCPolicy(checkpoint=shipped)
    config, spec, batch = bc._network.config, bc.spec, 8
    frames = [torch.zeros(batch, h, w, 3, dtype=torch.uint8) for _, h, w in config.cameras]
    numbers = [torch.zeros(batch, config.state_size), torch.zeros(batch, config.text_size)]
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the layers unroll over the batch, which is meant
        traced = torch.jit.trace(Exported(bc).eval(), (*frames, *numbers), check_trace=False)
    folder = tmp_path / "policies"
    folder.mkdir()
    traced.save(folder / "net.pt")
    (folder / "exported.yaml").write_text(
        "_target_: robogen.policies.torchscript.TorchScriptPolicy\n"
        "checkpoint: net.pt\nnormalization: none\ncameras: [front, wrist]\n"
        f"size: {config.cameras[0][1]}\nstate: [{', '.join(spec.observation.state)}]\n"
        "observation: {layout: hwc, pixels: uint8}\n"
        f"action: {{chunk: {spec.action.chunk}, execute: {spec.action.execute}}}\n"
        f"text_size: {config.text_size}\n"
    )
    words = ["scene=pick", "policy=[bc,exported]", "suite=null", "episodes=2"]
    words += ["scene.pick.horizon_s=2.0", "workers=0", "slots=2", "frames=0", "videos=0"]
    result = run_study(resolve(compose_study(words), (tmp_path,)), tmp_path / "run")
    assert (result.ran, result.errored) == (4, 0)
    records = read_records(tmp_path / "run", actions=True)
    both = {(r.policy, r.episode): r for r in records}
    for episode in range(2):
        ours, theirs = both["bc", episode], both["exported", episode]
        np.testing.assert_allclose(theirs.actions, ours.actions, atol=1e-5)
        assert theirs.observation_hash == ours.observation_hash
    assert load_policy("exported", extra_dirs=[tmp_path]).identity()["checkpoint"]
