"""Demonstrations however they were recorded, and answers that cannot be judged."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from robogen.datasets.demos import DemoWriter
from robogen.datasets.lerobot_writer import LeRobotForm, assemble
from robogen.datasets.schema import DemoEpisode, DemoMeta, EpisodeInfo
from robogen.errors import ConfigError, PolicyError, SceneError
from robogen.policies.base import Normalization, Policy, RowsFailed
from robogen.probe import ProbeConfig, Verdict, probe
from robogen.probe.samples import from_dataset, from_scene, scene_of
from robogen.scenes.load import load_scene
from robogen.specs import ActionSpec, CameraSpec, ObservationSpec, PolicySpec, turned

LENGTH, EPISODES, SIZE = 20, 4, 32
CONFIG = ProbeConfig(episodes=EPISODES, frames=40)
CAMERA = CameraSpec(name="front", width=SIZE, height=SIZE)


def upright(actions):
    """A red dot whose row and column are the first two commands."""
    frames = np.full((LENGTH, SIZE, SIZE, 3), 60, np.uint8)
    for frame, (row, column) in zip(frames, (16 + 14 * actions[:, :2]).astype(int), strict=True):
        frame[row - 1 : row + 2, column - 1 : column + 2] = (255, 0, 0)
    return frames


def record(folder, scene, orientation, **action):
    """A few episodes as robogen records them: frames as the scene's policies expect them."""
    meta = DemoMeta(
        scene=scene,
        cameras=(CAMERA,),
        state={"eef_pos": 3, "eef_rot6d": 6},
        action=ActionSpec(**action),
    )
    writer = DemoWriter(folder, meta)
    for index in range(EPISODES):
        rng = np.random.default_rng(index)
        phase = np.arange(LENGTH)[:, None] / 3 + rng.uniform(0, 6, 6)
        moves = 0.9 * np.sin(phase[:, :2])
        actions = np.hstack([moves, np.zeros((LENGTH, 4)), -np.ones((LENGTH, 1))])
        frames = np.stack([turned(frame, orientation) for frame in upright(actions)])
        tool = np.tile([1, 0, 0, 0, 1, 0], (LENGTH, 1))
        writer.write(
            DemoEpisode(
                images={"front": frames},
                state=np.hstack([0.1 * actions[:, :3], tool]).astype(np.float32),
                action=actions.astype(np.float32),
                points=np.zeros((LENGTH, 0, 3), np.float32),
                info=EpisodeInfo(
                    index=index, instruction=f"task {index}", length=LENGTH, success=True
                ),
            )
        )
    return folder


class Looks(Policy):
    """Moves as the dot says, in frames turned as it was trained with."""

    def __init__(self, orientation, *, declared=None, action=None):
        self.orientation = orientation
        self.spec = PolicySpec(
            observation=ObservationSpec(cameras=(CAMERA,), orientation=declared),
            action=action or ActionSpec(),
        )

    def act(self, rows, observations):
        del rows
        return np.stack([self.answer(observation) for observation in observations])

    def answer(self, observation):
        frame = turned(observation.images["front"], self.orientation)
        red = np.argwhere((frame[..., 0] > 160) & (frame[..., 2] < 60))
        row, column = red.mean(axis=0) if len(red) else (15.5, 15.5)
        return np.array([[(row - 15.5) / 14, (column - 15.5) / 14, 0, 0, 0, 0, -1]])


def orientation_found(result):
    finding = next(f for f in result.agreement.findings if f.convention == "image orientation")
    return finding.verdict, finding.best


@pytest.mark.parametrize("scene", ["pick", "metaworld/drawer-open-v3", "libero/spatial_0"])
@pytest.mark.parametrize("declared", [False, True])
def test_recorded_frames_are_turned_back_whatever_their_scene(tmp_path, scene, declared):
    """A policy trained on recorded frames is right, whether or not it says how they are turned."""
    turns = {"pick": "upright", "metaworld": "rotated_180", "libero": "mirrored"}
    own = turns[scene.partition("/")[0]]
    data = from_dataset(record(tmp_path / "d", scene, own), EPISODES, seed=0)
    assert data.orientation == data.spec.orientation == own
    first = data.episodes[0]
    np.testing.assert_array_equal(first.frames("front", [3])[0], upright(first.actions)[3])
    policy = Looks(own, declared=own if declared else None)
    assert orientation_found(probe(policy, data, config=CONFIG))[0] is Verdict.OK
    wrong = Looks("flipped", declared=own)
    assert orientation_found(probe(wrong, data, config=CONFIG)) == (Verdict.SUSPICIOUS, "flipped")


def test_the_caller_may_say_how_frames_are_turned(tmp_path):
    folder = record(tmp_path / "d", "mine/task", "flipped")
    assert from_dataset(folder, EPISODES, seed=0).orientation == "upright"
    data = from_dataset(folder, EPISODES, seed=0, orientation="flipped")
    assert orientation_found(probe(Looks("flipped"), data, config=CONFIG))[0] is Verdict.OK


def test_somebody_elses_rate_and_size_are_the_datas(tmp_path):
    from robogen.datasets.demos import DemoDataset

    exact = record(tmp_path / "exact", "pick", "upright", control_hz=20.0)
    whole = tmp_path / "whole"
    assemble(DemoDataset(exact), whole, LeRobotForm(codec="png"), orientation="upright")
    assert scene_of(whole) == scene_of(exact) == "pick"
    (whole / "meta" / "robogen.json").unlink()
    shutil.rmtree(whole / "robogen", ignore_errors=True)
    assert scene_of(whole) is None
    assert scene_of(tmp_path / "nothing") is None
    data = from_dataset(whole, EPISODES, seed=0, action={"mode": "delta_eef"})
    assert (data.action.control_hz, data.action.dim) == (20.0, 7)
    slower = from_dataset(whole, EPISODES, seed=0, action={"mode": "delta_eef", "control_hz": 5.0})
    assert slower.action.control_hz == 5.0
    with pytest.raises(ConfigError, match="said to have 8 numbers"):
        from_dataset(whole, EPISODES, seed=0, action={"mode": "delta_joint", "dim": 8})


# -- scenes that draw slowly -----------------------------------------------------------------------


class Slow:
    """A scene whose frames are dear, as those of adapted environments are."""

    def __init__(self, scene):
        self._scene, self.drawn, self.whim = scene, 0, 0.0
        self.spec = replace(scene.spec, render="native")

    def __getattr__(self, name):
        return getattr(self._scene, name)

    def images(self, cameras, profile, orientation=None):
        self.drawn += 1
        return self._scene.images(cameras, "fast", orientation)

    def expert_action(self, spec, pending=()):
        action = self._scene.expert_action(spec, pending)
        return action + self.whim * np.eye(len(action))[0]


@pytest.fixture(scope="module")
def pick():
    scene = load_scene("pick")
    yield scene
    scene.close()


def test_only_moments_that_are_asked_about_are_drawn(pick):
    slow, spec = Slow(pick), ObservationSpec(cameras=(CAMERA,))
    now = from_scene(pick, spec, 1, seed=0, progress=lambda done, total: None).episodes[0]
    later = from_scene(slow, spec, 1, seed=0, progress=lambda done, total: None).episodes[0]
    assert slow.drawn == 0
    np.testing.assert_array_equal(later.actions, now.actions)
    for steps in ([0, 9, 3], [9, 9], [12]):
        np.testing.assert_array_equal(later.frames("front", steps), now.frames("front", steps))
    assert slow.drawn == 4
    slow.whim = 0.01
    with pytest.raises(SceneError, match="does not repeat itself"):
        later.frames("front", [1])


# -- what is not told by scores alone --------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = record(tmp_path_factory.mktemp("demos") / "d", "pick", "upright")
    return from_dataset(folder, EPISODES, seed=0)


class Says(Looks):
    """Answers whatever the dot says."""

    def __init__(self, chunk):
        super().__init__("upright")
        self.chunk = chunk

    def answer(self, observation):
        del observation
        return self.chunk


@pytest.mark.parametrize("command", [np.zeros((1, 7)), np.full((1, 7), 0.9)])
def test_a_policy_that_always_says_the_same_does_not_pass(data, command):
    """With the wrong statistics a policy hardly moves, and nothing else gives it away."""
    result = probe(Says(command), data, config=CONFIG)
    assert not result.agreement.agrees
    assert "low agreement" in result.suspicious
    scales = [f for f in result.agreement.findings if f.convention.endswith("scale")]
    assert {f.verdict for f in scales} == {Verdict.CANNOT_TELL}
    assert not any("scale" in remedy for remedy in result.remedies)


def test_large_answers_with_little_sense_are_not_a_matter_of_scale(data):
    """Smaller commands are nearer to small demonstrations whatever they say."""

    class Noise(Looks):
        def answer(self, observation):
            rng = np.random.default_rng(observation.images["front"].sum() + observation.step)
            return 0.25 * super().answer(observation) + rng.uniform(-1, 1, (1, 7))

    small = [e._replace(actions=e.actions * [*[0.1] * 6, 1.0]) for e in data.episodes]
    result = probe(Noise("upright"), replace(data, episodes=small), config=CONFIG)
    assert result.suspicious == ("low agreement",)
    assert result.remedies == ()
    scale = next(f for f in result.agreement.findings if f.convention == "position scale")
    assert scale.best_agreement > scale.agreement + 1.0
    assert scale.verdict is Verdict.CANNOT_TELL


def test_every_candidate_is_on_record(data):
    result = probe(Looks("flipped"), data, config=CONFIG)
    tried = {(t.convention, t.name): t for t in result.agreement.tried}
    cure = tried["image orientation", "flipped"]
    assert cure.low > 0.0
    assert cure.low <= cure.gain <= cure.high
    assert cure.gain == pytest.approx(cure.agreement - result.agreement.agreement)
    assert len(tried) == len(result.agreement.tried) > 20
    assert json.dumps(result.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        (np.full((1, 7), np.nan), "NaN"),
        (np.zeros((1, 6)), r"\(1, 7\)"),
        (np.zeros((3, 7)), r"\(1, 7\)"),
    ],
)
def test_answers_outside_the_contract_are_said_to_be(data, chunk, message):
    with pytest.raises(PolicyError, match=message):
        probe(Says(chunk), data, config=CONFIG)


def test_questions_without_an_answer_end_the_probe_with_the_reason(data):
    class Silent(Says):
        def act(self, rows, observations):
            raise RowsFailed({}, {0: PolicyError("the server took too long")})

    with pytest.raises(PolicyError, match=r"1 of 8 questions \(the server took too long\)"):
        probe(Silent(np.zeros((1, 7))), data, config=CONFIG)


@pytest.mark.parametrize(
    ("held", "declared", "verdict", "best"),
    [
        (-1.0, "close_positive", Verdict.OK, None),
        (-1.0, "open_positive", Verdict.SUSPICIOUS, "close_positive, signed"),
        (-0.25, "open_positive", Verdict.SUSPICIOUS, "close_positive, signed"),
        (-0.25, "close_positive", Verdict.OK, None),
        (0.0, "open_positive", Verdict.CANNOT_TELL, None),
    ],
)
def test_a_gripper_that_is_only_held_must_be_held_the_same_way(data, held, declared, verdict, best):
    class Holds(Looks):
        def answer(self, observation):
            command = super().answer(observation)
            command[..., -1] = held
            return command

    episodes = [
        e._replace(actions=np.hstack([e.actions[:, :-1], np.full((LENGTH, 1), held)]))
        for e in data.episodes
    ]
    policy = Holds("upright", action=ActionSpec(gripper=declared))
    result = probe(policy, replace(data, episodes=episodes), config=CONFIG)
    finding = next(f for f in result.agreement.findings if f.convention == "gripper")
    assert finding.verdict is verdict, finding.note
    assert best in (None, finding.best)
    assert bool(result.remedies) == (verdict is Verdict.SUSPICIOUS)


@pytest.mark.parametrize("size", [0.5, 2.0])
def test_action_statistics_are_compared_in_the_policys_own_unit(data, size):
    """A policy of another declared scale says other numbers for the same motion."""

    class Other(Looks):
        def normalization(self):
            return {"action": Normalization(kind="mean_std", mean=mean, std=std)}

    action = ActionSpec(scale_position=0.05 / size**3, scale_rotation=0.5 / size**3)
    values = data.all_actions() * [*[size**3] * 6, 1.0]
    mean, std = values.mean(axis=0), values.std(axis=0)
    result = probe(Other("upright", action=action), data, config=CONFIG)
    check = next(c for c in result.numbers if c.what == "action statistics")
    assert check.verdict is Verdict.OK, check.note
    mean, std = mean / size**3, std / size**3
    result = probe(Other("upright", action=action), data, config=CONFIG)
    check = next(c for c in result.numbers if c.what == "action statistics")
    assert check.verdict is Verdict.SUSPICIOUS
