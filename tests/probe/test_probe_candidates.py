"""Every convention of commands, state and frames, broken by hand on data where truth is known."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.transform import Rotation as Turn

from robogen.conventions import derivable, from_scene, matrix_from_columns
from robogen.errors import SpecError
from robogen.policies.base import Normalization, Policy
from robogen.probe import ProbeConfig, Verdict, probe
from robogen.probe.run import moments, reading_of
from robogen.probe.samples import Data, Episode, split
from robogen.probe.scoring import Judge
from robogen.specs import (
    ROTATION_SIZE,
    ActionSpec,
    CameraSpec,
    ObservationSpec,
    PolicySpec,
    turned,
)

LENGTH, EPISODES = 24, 8
CONFIG = ProbeConfig(episodes=EPISODES, frames=80)
SIZES = {"eef_pos": 3, "eef_rot6d": 6, "gripper_opening": 1}


def episode(number):
    """Smooth commands with large rotations, and a tool that follows them."""
    rng = np.random.default_rng(number)
    time = np.arange(LENGTH)[:, None] / 4.0
    waves = np.sin(time * rng.uniform(0.5, 1.5, 6) + rng.uniform(0, 6, 6))
    actions = np.hstack([0.8 * waves, np.where(time < rng.uniform(2, 4), -1.0, 1.0)])
    position, turn, states = rng.uniform(-0.2, 0.2, 3), Turn.random(rng=rng), []
    for action in actions:
        columns = turn.as_matrix()[:, :2].T.reshape(-1)
        states.append(np.concatenate([position, columns, [0.04 - 0.04 * action[-1]]]))
        position = position + 0.05 * action[:3]
        turn = Turn.from_rotvec(0.5 * action[3:6]) * turn
    row = np.clip((16 + 15 * actions[:, 0]).astype(int), 1, 30)
    column = np.clip((16 + 15 * actions[:, 1]).astype(int), 1, 30)
    frames = {"front": dots(row, column, (255, 40, 0)), "wrist": dots(column, row, (0, 0, 255))}
    return Episode(
        number=number,
        instruction=f"task {number}",
        actions=actions,
        state=split(np.array(states), SIZES),
        frames=lambda camera, steps: frames[camera][list(steps)],
    )


def dots(rows, columns, colour):
    """Frames (T, 32, 32, 3) with a 3 x 3 dot."""
    frames = np.full((LENGTH, 32, 32, 3), 60, np.uint8)
    for frame, row, column in zip(frames, rows, columns, strict=True):
        frame[row - 1 : row + 2, column - 1 : column + 2] = colour
    return frames


@pytest.fixture(scope="module")
def data():
    episodes = [episode(number) for number in range(EPISODES)]
    return Data(
        name="waves",
        action=ActionSpec(),
        sizes=derivable(SIZES),
        cameras=("front", "wrist"),
        episodes=episodes,
    )


class Knows(Policy):
    """Says what was demonstrated, in its own convention; declares perhaps another one."""

    def __init__(self, data, action, declared=None, *, shift=0, change=None, numbers=None):
        self.data, self.action, self.shift, self.change = data, action, shift, change
        self.numbers = numbers
        self.spec = PolicySpec(
            observation=ObservationSpec(state=("eef_pos",), instruction=True),
            action=declared or action,
        )

    def act(self, rows, observations):
        return np.stack([self.answer(observation) for observation in observations])

    def answer(self, observation):
        known = self.data.episodes[int(observation.instruction.split()[1])]
        chunk = []
        for ahead in range(self.action.chunk):
            step = min(max(observation.step + ahead + self.shift, 0), LENGTH - 1)
            place = min(observation.step + ahead, LENGTH - 1)
            axes = np.stack(
                [known.state["eef_rot6d"][place][:3], known.state["eef_rot6d"][place][3:]]
            )
            tool = np.stack([*axes, np.cross(*axes)], axis=1)
            action = known.actions[step]
            if self.action.mode == "absolute_eef":
                here = known.state["eef_pos"][place] + 0.05 * action[:3]
                turn = Turn.from_rotvec(0.5 * action[3:6]) * Turn.from_matrix(tool)
                action = np.concatenate([here, turn.as_rotvec(), action[-1:]])
            said = from_scene(action, self.action, lambda tool=tool: tool)
            chunk.append(said if self.change is None else self.change(said))
        return np.array(chunk)

    def normalization(self):
        return self.numbers or {}


def spec(rotation="axis_angle", **changes):
    size = 4 + ROTATION_SIZE[rotation]
    return ActionSpec(rotation=rotation, dim=size, chunk=4, execute=4, **changes)


def found(result):
    """What was called suspicious, and what it should be."""
    return {
        finding.convention: finding.best
        for finding in result.agreement.findings
        if finding.verdict is Verdict.SUSPICIOUS
    }


@pytest.mark.parametrize("rotation", sorted(ROTATION_SIZE))
@pytest.mark.parametrize("frame", ["base", "tool"])
def test_the_intact_policy_agrees_whatever_its_convention(data, rotation, frame):
    own = spec(rotation, frame=frame, gripper="open_positive", gripper_range="unit")
    result = probe(Knows(data, own), data, config=CONFIG)
    assert result.agreement.agreement == pytest.approx(1.0, abs=1e-6)
    assert found(result) == {}
    assert result.suspicious == ()


@pytest.mark.parametrize(
    ("own", "declared", "convention", "best"),
    [
        ({"gripper": "open_positive"}, {}, "gripper", "open_positive, signed"),
        ({"gripper_range": "unit"}, {}, "gripper", "close_positive, unit"),
        ({}, {"gripper": "open_positive"}, "gripper", "close_positive, signed"),
        (
            {"gripper": "open_positive", "gripper_range": "unit"},
            {},
            "gripper",
            "open_positive, unit",
        ),
        ({"frame": "tool"}, {}, "action frame", "tool"),
        ({}, {"frame": "tool"}, "action frame", "base"),
        ({"mode": "absolute_eef"}, {}, "action mode", "absolute_eef"),
        ({}, {"mode": "absolute_eef"}, "action mode", "delta_eef"),
        ({"rotation": "euler_xyz"}, {}, "rotation representation", "euler_xyz"),
        (
            {"rotation": "quat_xyzw"},
            {"rotation": "quat_wxyz"},
            "rotation representation",
            "quat_xyzw",
        ),
        (
            {"rotation": "rot6d_interleaved"},
            {"rotation": "rot6d"},
            "rotation representation",
            "rot6d_interleaved",
        ),
        ({}, {"scale_position": 0.1}, "position scale", "×0.5"),
        ({}, {"scale_position": 0.005}, "position scale", "×10"),
        ({}, {"scale_rotation": 1.0}, "rotation scale", "×0.5"),
    ],
)
def test_a_misdeclared_command_is_named(data, own, declared, convention, best):
    truth, said = spec(**own), spec(**{**own, **declared}) if declared else spec()
    if own.get("rotation") and not declared:
        said = spec(**{**own, "rotation": "axis_angle"})
    result = probe(Knows(data, truth, said), data, config=CONFIG)
    assert found(result) == {convention: best}
    assert result.agreement.mended > 0.9
    assert result.remedies


@pytest.mark.parametrize(
    ("change", "convention", "best"),
    [
        (lambda a: a[[1, 0, 2, 3, 4, 5, 6]], "position axes", "x and y swapped"),
        (lambda a: a * [1, -1, 1, 1, 1, 1, 1], "position axes", "y reversed"),
        (lambda a: a * [1, 1, 1, -1, 1, -1, 1], "rotation axes", "rx and rz reversed"),
    ],
)
def test_mixed_up_axes_are_named(data, change, convention, best):
    assert found(probe(Knows(data, spec(), change=change), data, config=CONFIG)) == {
        convention: best
    }


@pytest.mark.parametrize(
    ("shift", "best"), [(1, "1 steps later"), (-1, "1 steps earlier"), (2, "2 steps later")]
)
def test_early_and_late_actions_are_named(data, shift, best):
    result = probe(Knows(data, spec(), shift=shift), data, config=CONFIG)
    assert found(result) == {"timing": best}


def test_two_faults_at_once_are_both_named(data):
    wrong = spec(gripper="open_positive", frame="tool")
    result = probe(Knows(data, spec(), wrong), data, config=CONFIG)
    assert found(result) == {"gripper": "close_positive, signed", "action frame": "base"}
    assert result.agreement.mended > 0.99


def test_a_policy_that_knows_nothing_is_not_judged(data):
    class Noise(Knows):
        def act(self, rows, observations):
            rng = np.random.default_rng(len(observations))
            return rng.uniform(-1, 1, (len(observations), 4, 7))

    result = probe(Noise(data, spec()), data, config=CONFIG)
    assert found(result) == {}
    assert "hardly agrees" in result.agreement.remark
    assert {f.verdict for f in result.agreement.findings} == {Verdict.CANNOT_TELL}


def test_an_action_mode_that_the_data_lack_is_refused(data):
    joint = ActionSpec(mode="delta_joint", dim=8, chunk=4, execute=4)
    with pytest.raises(SpecError, match="delta_joint"):
        probe(Knows(data, spec(), joint), data, config=CONFIG)


# -- state and frames ------------------------------------------------------------------------------


class Reads(Policy):
    """Commands that are plain functions of what it sees, for one true reading of it."""

    def __init__(self, observation, answer):
        self.spec = PolicySpec(observation=observation, action=ActionSpec())
        self.answer = answer

    def act(self, rows, observations):
        return np.stack([self.answer(o)[None] for o in observations])


def follow(values):
    """A command (7,) whose first numbers are these."""
    return np.concatenate([values, np.zeros(6 - len(values)), [-1.0]])


@pytest.fixture(scope="module")
def mirrored(data):
    """The same data, commanding what a policy could read off its state: the tool's quaternion."""
    episodes = []
    for one in data.episodes:
        matrices = np.stack([matrix_from_columns(c) for c in one.state["eef_rot6d"]])
        quats = Turn.from_matrix(matrices).as_quat(canonical=True)
        actions = np.hstack([quats[:, :3], np.zeros((LENGTH, 3)), -np.ones((LENGTH, 1))])
        episodes.append(one._replace(actions=actions))
    return replace(data, episodes=episodes)


def test_quaternion_order_is_named(mirrored):
    def answer(o):
        return follow(o.state[:3])

    right = ObservationSpec(state=("eef_quat_xyzw", "eef_pos"))
    wrong = ObservationSpec(state=("eef_quat_wxyz", "eef_pos"))
    assert found(probe(Reads(right, answer), mirrored, config=CONFIG)) == {}
    result = probe(Reads(wrong, answer), mirrored, config=CONFIG)
    assert found(result) == {"quaternion order": "eef_quat_xyzw"}


def test_state_order_is_named(mirrored):
    def answer(o):
        return follow(o.state[3:6])

    wrong = ObservationSpec(state=("eef_quat_xyzw", "eef_pos"))
    result = probe(Reads(wrong, answer), mirrored, config=CONFIG)
    assert found(result) == {"state order": "eef_pos, eef_quat_xyzw"}


@pytest.fixture(scope="module")
def pointed(data):
    """The same data, commanding what a policy could see: where the dot is."""
    keep = np.array([1, 1, 0, 0, 0, 0, 0])
    rest = np.array([0, 0, 0, 0, 0, 0, -1.0])
    episodes = [one._replace(actions=keep * one.actions + rest) for one in data.episodes]
    return replace(data, episodes=episodes)


def centre(frame):
    """Where the red dot is, as the first two commands."""
    red = (frame[..., 0] > 200) & (frame[..., 0] <= 255) & (frame[..., 2] < 50)
    if not red.any():
        return np.zeros(2)
    return (np.argwhere(red).mean(axis=0) - 16) / 15


@pytest.mark.parametrize("orientation", ["upright", "flipped", "mirrored", "rotated_180"])
@pytest.mark.parametrize("declared", ["upright", "rotated_180"])
def test_image_orientation_is_named(pointed, orientation, declared):
    own = ObservationSpec(
        cameras=(CameraSpec(name="front", width=32, height=32),), orientation=declared
    )
    policy = Reads(own, lambda o: follow(centre(turned(o.images["front"], orientation))))
    result = probe(policy, pointed, config=CONFIG)
    wanted = {} if orientation == declared else {"image orientation": orientation}
    assert found(result) == wanted


CAMERAS = (
    CameraSpec(name="front", width=32, height=32),
    CameraSpec(name="wrist", width=32, height=32),
)


@pytest.mark.parametrize(
    ("see", "changes", "wanted"),
    [
        (lambda i: i["front"], {}, {}),
        (lambda i: i["front"][..., ::-1], {}, {"channel order": "bgr"}),
        (lambda i: i["front"], {"channels": "bgr"}, {"channel order": "rgb"}),
        (lambda i: i["front"], {"pixels": "unit"}, {"pixel range": "0 to 255"}),
        (lambda i: 255 * i["front"].astype(float), {}, {"pixel range": "0 to 1"}),
        (lambda i: i["wrist"], {}, {"cameras": "front and wrist swapped"}),
        (
            lambda i: (255 * i["front"].transpose(1, 2, 0)).astype(np.uint8),
            {"layout": "chw", "pixels": "unit"},
            {},
        ),
    ],
)
def test_channel_order_and_cameras_are_named(pointed, see, changes, wanted):
    own = ObservationSpec(cameras=CAMERAS, **changes)
    policy = Reads(own, lambda o: follow(centre(see(o.images))))
    assert found(probe(policy, pointed, config=CONFIG)) == wanted


def test_a_crop_that_the_policy_was_not_trained_with_is_named(pointed):
    own = ObservationSpec(cameras=CAMERAS[:1], crop=0.8)
    policy = Reads(own, lambda o: follow(centre(o.images["front"])))
    assert found(probe(policy, pointed, config=CONFIG)) == {"crop": "whole frame"}


# -- statistics ------------------------------------------------------------------------------------


def numbers(data, **changes):
    values = data.all_state(["eef_pos"])
    own = {"mean": values.mean(axis=0), "std": values.std(axis=0), **changes}
    return {"state": Normalization(kind="mean_std", **own)}


@pytest.mark.parametrize(
    ("statistics", "verdict", "note"),
    [
        (lambda d: numbers(d), Verdict.OK, "as the data's own"),
        (lambda d: {}, Verdict.CANNOT_TELL, "does not show"),
        (lambda d: {"state": Normalization(kind="identity")}, Verdict.SUSPICIOUS, "identity"),
        (lambda d: numbers(d, mean=np.array([0, 0, 5.0])), Verdict.SUSPICIOUS, r"eef_pos\[2\]"),
        (lambda d: numbers(d, std=np.full(3, 4.0)), Verdict.SUSPICIOUS, r"eef_pos\[0\]"),
        (
            lambda d: {"state": Normalization(kind="mean_std", mean=np.zeros(2), std=np.ones(2))},
            Verdict.SUSPICIOUS,
            r"\[2\] numbers",
        ),
        (
            lambda d: {
                "state": Normalization(kind="min_max", low=np.full(3, -1e-3), high=np.full(3, 1e-3))
            },
            Verdict.SUSPICIOUS,
            "policy -0.001 to 0.001",
        ),
        (
            lambda d: {
                "state": Normalization(
                    kind="quantiles",
                    low=np.quantile(d.all_state(["eef_pos"]), 0.01, axis=0),
                    high=np.quantile(d.all_state(["eef_pos"]), 0.99, axis=0),
                )
            },
            Verdict.OK,
            "own",
        ),
    ],
)
def test_statistics_against_the_datas_own(data, statistics, verdict, note):
    policy = Knows(data, spec(), numbers=statistics(data))
    result = probe(policy, data, config=CONFIG)
    check = next(c for c in result.numbers if c.what == "state statistics")
    assert check.verdict is verdict
    assert re.search(note, check.note)


def test_a_round_trip_that_loses_a_dimension_is_named(data):
    class Lossy(Knows):
        def round_trip(self, actions):
            back = actions.copy()
            back[:, 2] *= 0.5
            return back

    result = probe(Lossy(data, spec()), data, config=CONFIG)
    check = next(c for c in result.numbers if c.what == "action round trip")
    assert check.verdict is Verdict.SUSPICIOUS
    assert "dimensions 3 " in check.note


# -- scores ----------------------------------------------------------------------------------------


def judge_of(data, policy):
    samples, _ = moments(policy, data, None, CONFIG)
    return Judge(policy, samples, data.action, batch=8, draws=1), reading_of(policy, data.spec)


def test_motion_and_gripper_count_half_each(data):
    """Perfect motion and a gripper that is always wrong: half of the gripper's share of error."""
    wrong, reading = judge_of(data, Knows(data, spec(), change=lambda a: np.append(a[:6], -a[6])))
    gripper = np.concatenate([sample.wanted[2:-2, -1] for sample in wrong._samples])
    share = 2.0 / np.abs(gripper - np.median(gripper)).mean()
    assert wrong.score(reading).agreement == pytest.approx(1.0 - 0.5 * share)


def test_the_scales_interval_is_that_of_the_episodes(data):
    """Episodes whose commands have scales of their own: the jackknife is their standard error."""
    scales = np.linspace(0.8, 1.25, EPISODES)

    class Uneven(Knows):
        def answer(self, observation):
            number = int(observation.instruction.split()[1])
            return super().answer(observation) / ([scales[number]] * 6 + [1.0])

    judge, reading = judge_of(data, Uneven(data, spec()))
    found = judge.scale(reading, slice(0, 3))
    error = scales.std(ddof=1) / np.sqrt(EPISODES)
    reach = stats.t.ppf(1 - 0.005 / 2, EPISODES - 1) * error
    assert found.slope == pytest.approx(1.0, abs=0.05)
    assert found.high - found.slope == pytest.approx(reach, rel=0.25)
