"""Laws of a study: how it is run, interrupted or disturbed never shows in its records."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mujoco
import psutil
import pytest
from contract_world import ASKED, EXTRA, OWN, TOYS, applicable, has_expert, scene_named

from robogen.records.reader import Records, read_records
from robogen.records.schema import EpisodeRecord, to_row
from robogen.seeding import EpisodeSeed
from robogen.study.config import compose_study
from robogen.study.design import resolve
from robogen.study.study import Silent, StudyResult, run_study

SCENE = ASKED[0] if ASKED else "push"
BAD = 1
"""The episode on which the faulty policies misbehave."""

MODULE = '''
import time

from dataclasses import replace

import numpy as np

from robogen.policies.base import Policy
from robogen.specs import ActionSpec, CameraSpec, ObservationSpec, PolicySpec


class Watcher(Policy):
    """Moves by what it sees, so that a wrong pixel shows in every later number."""

    pad = True

    def __init__(self, *, fault="", seed=-1):
        self._fault, self._seed, self._seeds = fault, seed, {}
        self.spec = PolicySpec(observation=ObservationSpec(), action=ActionSpec())

    def fit(self, scene):
        camera = CameraSpec(name=scene.cameras[0], width=32, height=24)
        state = (next(iter(scene.state)),)
        self.spec = PolicySpec(
            observation=ObservationSpec(cameras=(camera,), state=state, instruction=True),
            action=replace(scene.action, chunk=4, execute=4),
        )

    def reset(self, rows, seeds):
        self._seeds.update(zip(rows, seeds))

    def act(self, rows, observations):
        for row, seen in zip(rows, observations):
            if self._seeds.get(row) == self._seed and seen.step >= 4:
                if self._fault == "hang":
                    time.sleep(3600)
                if self._fault == "raise":
                    raise ValueError("something in the network broke")
        chunks = []
        for seen in observations:
            (image,) = seen.images.values()
            means = image.reshape(-1, 3).mean(axis=0) / 255
            move = np.concatenate([means, seen.state, [len(seen.instruction) / 50]])
            chunks.append(np.tile(np.resize(np.sin(40 * move), self.spec.action.dim), (4, 1)))
            if self._fault == "nan" and self._seeds.get(rows[len(chunks) - 1]) == self._seed:
                chunks[-1][2, 3] = np.nan
        return np.stack(chunks)
'''


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's configuration folder with policies of his own."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "contract_policies.py").write_text(MODULE)
    (folder / "policies").mkdir()
    seed = EpisodeSeed(domain="evaluate", study=0, scene=SCENE, episode=BAD).integer("policy", 0)
    for fault in ("", "hang", "raise", "nan"):
        text = f"_target_: contract_policies.Watcher\nfault: '{fault}'\nseed: {seed}\n"
        (folder / "policies" / f"watcher{'_' if fault else ''}{fault}.yaml").write_text(text)
    return folder


@pytest.fixture(autouse=True)
def on_the_path(faulty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(faulty))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(faulty), str(TOYS)]))


HALF = ("horizon_s=3.0",) if SCENE in OWN else ("horizon=30", "render=fast")
SHORT = tuple(f"scene.{SCENE}.{word}" for word in HALF)
SCRIPTED = ["oracle"] if has_expert(SCENE) else []
PLAYERS = [*SCRIPTED, "random", "watcher"]
ASKED_FOR = ("camera_pose", "friction", "image_noise", "control_latency", "distractors")
FOUND = [name for name in ASKED_FOR if name in applicable(SCENE)]
WORDS = (
    f"scene={SCENE}",
    f"policy=[{','.join(PLAYERS)}]",
    f"perturbation=[{','.join(FOUND)}]",
    "episodes=2",
    "frames=1",
    *SHORT,
)
TOTAL = 2 * len(PLAYERS) * (1 + len(FOUND))

pytestmark = pytest.mark.skipif(
    mujoco.mj_sizeModel(scene_named(SCENE).world.model) > 2**27,
    reason="a study over so large a model takes long, and other scenes show the same",
)


def study(run_dir: Path, user: Path, *words: str, observer: Silent | None = None) -> StudyResult:
    return run_study(resolve(compose_study(list(words)), (user, *EXTRA)), run_dir, observer)


def rows(run_dir: Path) -> list[object]:
    return [to_row(record) for record in read_records(run_dir, actions=True)]


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory, faulty: Path) -> Path:
    """The study run in this process, one episode at a time."""
    run_dir = tmp_path_factory.mktemp("inline") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(faulty))
        result = study(run_dir, faulty, *WORDS, "workers=0", "slots=1")
    assert (result.total, result.ran, result.errored) == (TOTAL, TOTAL, 0)
    return run_dir


def test_slots_do_not_show(inline: Path, faulty: Path, tmp_path: Path):
    study(tmp_path / "run", faulty, *WORDS, "workers=0", "slots=5")
    assert rows(tmp_path / "run") == rows(inline)


def test_a_finished_study_runs_nothing_again(inline: Path, faulty: Path):
    before = rows(inline)
    result = study(inline, faulty, *WORDS, "workers=0", "slots=1")
    assert (result.total, result.ran) == (TOTAL, 0)
    assert rows(inline) == before


def test_episodes_are_matched_across_policies_and_conditions(inline: Path):
    records = read_records(inline)
    nominal = {r.episode: r for r in records if r.policy == PLAYERS[0] and r.condition == "nominal"}
    assert len({r.state_hash for r in nominal.values()}) == len(nominal)
    for record in records:
        twin = nominal[record.episode]
        assert record.placement == twin.placement
        if record.condition != "friction":  # friction is felt while things settle
            assert record.state_hash == twin.state_hash
    by_draw: dict[tuple[int, str], set[str]] = {}
    for record in records:
        by_draw.setdefault((record.episode, record.condition), set()).add(str(record.draws))
    assert all(len(draws) == 1 for draws in by_draw.values())


def test_verdicts_say_who_could_notice(inline: Path):
    for record in read_records(inline):
        for name, reached in record.reached.items():
            blind = record.policy != "watcher" and name in (
                "camera_pose",
                "image_noise",
                "distractors",
            )
            still = name == "control_latency" and reached["verdict"] != "reached"
            assert not still, (record.policy, reached)
            assert reached["verdict"] == ("not observed" if blind else "reached")


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_do_not_show(inline: Path, faulty: Path, tmp_path: Path, workers: int):
    study(tmp_path / "run", faulty, *WORDS, f"workers={workers}", "slots=3")
    assert rows(tmp_path / "run") == rows(inline)
    assert frames(tmp_path / "run") == frames(inline)


def frames(run_dir: Path) -> dict[str, bytes]:
    folder = run_dir / "frames"
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*.png"))}


def test_a_killed_study_resumes_as_if_nothing_had_been(inline: Path, faulty: Path, tmp_path: Path):
    run_dir = tmp_path / "run"
    script = (
        "import sys; from pathlib import Path\n"
        "from robogen.study.config import compose_study\n"
        "from robogen.study.design import resolve\n"
        "from robogen.study.study import run_study\n"
        "folders = [Path(folder) for folder in sys.argv[2].split(',')]\n"
        "run_study(resolve(compose_study(sys.argv[3:]), folders), Path(sys.argv[1]))\n"
    )
    words = [*WORDS, "workers=1", "slots=2"]
    folders = ",".join(str(folder) for folder in (faulty, *EXTRA))
    process = subprocess.Popen([sys.executable, "-c", script, str(run_dir), folders, *words])
    try:
        wait_until(lambda: recorded(run_dir) >= 3, "no episode was recorded")
        children = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.wait()
    assert 3 <= recorded(run_dir) < TOTAL
    wait_until(lambda: not any(c.is_running() for c in children), "workers outlive their parent")
    done = recorded(run_dir)
    result = study(run_dir, faulty, *WORDS, "workers=0", "slots=4")
    assert result.ran == TOTAL - done
    assert rows(run_dir) == rows(inline)


def recorded(run_dir: Path) -> int:
    if not (run_dir / "records.sqlite").exists():
        return 0
    try:
        return len(read_records(run_dir))
    except Exception:  # the tables are being made
        return 0


def wait_until(true: object, complaint: str, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline, complaint
        time.sleep(0.05)


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # gone, or about to be
        return []


class Assassin(Silent):
    """Kills one worker when the first record comes in."""

    def __init__(self) -> None:
        self.killed = 0

    def record(self, record: EpisodeRecord) -> None:
        if self.killed:
            return
        children = psutil.Process().children()
        workers = [c.pid for c in children if "robogen.study.worker" in command_of(c)]
        if workers:
            self.killed = workers[0]
            os.kill(self.killed, signal.SIGKILL)


def test_a_killed_worker_is_replaced_and_loses_nothing(inline: Path, faulty: Path, tmp_path: Path):
    assassin = Assassin()
    run_dir = tmp_path / "run"
    result = study(run_dir, faulty, *WORDS, "workers=2", "slots=2", observer=assassin)
    assert assassin.killed
    assert result.errored == 0
    assert rows(run_dir) == rows(inline)


def lost(records: Records) -> list[tuple[int, str, str | None]]:
    return [(r.episode, r.status, r.error_kind) for r in records if r.status != "scored"]


@pytest.mark.parametrize(("fault", "kind"), [("raise", "policy"), ("nan", "policy")])
def test_a_policy_that_fails_on_one_episode_loses_that_one(
    faulty: Path, tmp_path: Path, fault: str, kind: str
):
    words = (f"scene={SCENE}", "suite=null", "episodes=3", *SHORT, "workers=0", "slots=3")
    run_dir = tmp_path / "run"
    study(run_dir, faulty, *words, f"policy=watcher_{fault}")
    broken = read_records(run_dir)
    assert lost(broken) == [(BAD, "errored", kind)]
    bad = next(r for r in broken if r.episode == BAD)
    assert bad.success is None
    assert bad.error
    good = tmp_path / "good"
    study(good, faulty, *words, "policy=watcher")
    kept = {r.episode: r.state_hash for r in broken if r.status == "scored"}
    sound = {r.episode: r for r in read_records(good)}
    assert {episode: sound[episode].state_hash for episode in kept} == kept
    for record in broken:
        if record.status == "scored":
            assert record.steps == sound[record.episode].steps
            assert record.behaviour == sound[record.episode].behaviour


def test_a_hanging_policy_loses_only_the_episode_it_hangs_on(faulty: Path, tmp_path: Path):
    words = (f"scene={SCENE}", "suite=null", "episodes=3", *SHORT)
    words = (*words, "policy=watcher_hang", "deadline_s=4")
    run_dir = tmp_path / "run"
    study(run_dir, faulty, *words, "workers=1", "slots=3")
    records = read_records(run_dir)
    assert lost(records) == [(BAD, "errored", "hang")]
    assert "4 s" in (next(r for r in records if r.episode == BAD).error or "")
    result = study(run_dir, faulty, *words, "workers=1", "slots=3")
    assert result.ran == 0, "errored episodes stay errored until asked for"
