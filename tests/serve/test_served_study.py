"""Studies through a server: the same records, interrupted or disturbed, and none lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from openpi_double import Die, Double, doubles

from robogen.errors import PolicyUnavailable
from robogen.policies.library import load_policy
from robogen.records.reader import read_records
from robogen.records.schema import to_row
from robogen.scenes.load import load_scene
from robogen.study.config import compose_study
from robogen.study.design import resolve
from robogen.study.study import run_study

WORDS = (
    "scene.push.horizon_s=0.5", "suite=null", "workers=0", "slots=2", "batch=4",
    "frames=0", "videos=0", "repeats=0",
)  # fmt: skip


def study(out, policy, *words):
    design = resolve(compose_study([*WORDS, "scene=push", f"policy={policy}", *words]))
    return run_study(design, out)


def episodes(out):
    """Everything recorded, without the policy's name."""
    return [to_row(replace(r, policy="")) for r in read_records(out, actions=True)]


@pytest.fixture(scope="module")
def sizes():
    scene = load_scene("push")
    yield scene.spec.state
    scene.close()


def test_a_served_policy_leaves_the_records_that_it_leaves_at_home(tmp_path, start, sizes):
    """Bit for bit, and for a network that is more than it seems.

    A network's answers differ in the last bits between batch sizes, and a server cannot know how
    many requests will come together. So it pads each call to its ``batch``, as a study does, and
    where the two are equal every row is computed by the same kernels as at home; frames and states
    pass the wire unchanged, actions as float64. Any lossy step would show in some action here.
    """
    study(tmp_path / "home", "bc", "episodes=4")
    url = start(load_policy("bc", scene="push"), name="bc", sizes=sizes, batch=4)
    servers = f"policy.openpi.servers={url}"
    study(tmp_path / "away", "openpi", "episodes=4", servers)
    home, away = episodes(tmp_path / "home"), episodes(tmp_path / "away")
    assert len(home) == 4
    assert home == away


def test_a_policy_with_seeds_is_served_by_them(tmp_path, start, sizes):
    """``random`` draws from the episode's seed and step, which our client tells our server."""
    study(tmp_path / "home", "random", "episodes=4")
    scene = load_scene("push")
    policy = load_policy("random")
    policy.fit(scene.spec)
    scene.close()
    url = start(policy, name="random", sizes=sizes)
    study(tmp_path / "away", "openpi", "episodes=4", f"policy.openpi.servers={url}")
    assert episodes(tmp_path / "home") == episodes(tmp_path / "away")


# -- servers that fail -----------------------------------------------------------------------------

FILE = """
_target_: robogen.policies.openpi.OpenPIPolicy
servers: []
images: {observation/image: {camera: front, size: 16}}
state: {observation/state: [eef_pos, gripper_opening]}
action: {chunk: 2, execute: 2}
backoff_s: 0.002
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "mine.yaml").write_text(FILE)

    def run(out, url, *words):
        words = [*WORDS, "scene=push", "policy=mine", f"policy.mine.servers={url}", *words]
        return run_study(resolve(compose_study(words), (tmp_path,)), out)

    return run


def moves(request):
    mean = float(request["observation/image"].mean()) / 255 + float(request["observation/state"][0])
    return {"actions": np.tile(np.sin(9 * mean + np.arange(7.0)), (2, 1))}


def test_a_server_that_dies_stops_the_study_and_it_is_resumed_elsewhere(tmp_path, own):
    """Nothing is recorded of episodes that nobody could act in, so none is spoilt."""
    whole = Double(lambda request, number: moves(request))
    with doubles(whole):
        own(tmp_path / "whole", whole.url, "episodes=5")
    dying = Double(lambda request, number: moves(request) if number < 10 else Die)
    with doubles(dying), pytest.raises(PolicyUnavailable, match=r"answers any more.*same command"):
        own(tmp_path / "run", dying.url, "episodes=5")
    before = len(read_records(tmp_path / "run"))
    assert 0 < before < 5
    assert all(record.status == "scored" for record in read_records(tmp_path / "run"))
    other = Double(lambda request, number: moves(request))
    with doubles(other):
        result = own(tmp_path / "run", other.url, "episodes=5", "policy.mine.deadline_s=9")
    assert result.ran == 5 - before
    assert episodes(tmp_path / "run") == episodes(tmp_path / "whole")


def test_a_request_that_is_always_refused_ends_its_episode_alone(tmp_path, own):
    """Episodes differ in nothing that a test could foresee, the server picks one by its start."""
    marked: list[float] = []

    def answer(request, number):
        start = float(request["observation/image"].astype(int).sum())
        if number == 2:  # after the try-out and in the first call of two episodes
            marked.append(start)
        return "not this one" if start in marked else moves(request)

    plain, picky = Double(lambda request, number: moves(request)), Double(answer)
    with doubles(plain, picky):
        own(tmp_path / "plain", plain.url, "episodes=6")
        result = own(tmp_path / "picky", picky.url, "episodes=6")
    assert result.errored == 1
    expected = {r.episode: r for r in read_records(tmp_path / "plain", actions=True)}
    for record in read_records(tmp_path / "picky", actions=True):
        if record.status == "errored":
            assert record.error_kind == "policy"
            assert "answered with an error: not this one." in record.error
        else:
            np.testing.assert_array_equal(record.actions, expected[record.episode].actions)
