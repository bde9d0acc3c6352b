"""Laws of every scene: its task, its oracle, and that nothing depends on what ran before."""

from __future__ import annotations

import gc
import re
import weakref
from typing import TYPE_CHECKING

import mujoco
import numpy as np
import psutil
import pytest
from contract_world import (
    OWN,
    SCENES,
    SIZE,
    SPLITS,
    action_spec,
    applicable,
    build,
    cameras,
    factor_named,
    facts_of,
    few,
    has_expert,
    nominal_tape,
    perturb,
    play,
    scene_named,
    seed_of,
    state_bytes,
)

from robogen.perturbations.engine import Perturbation
from robogen.rollout.start import begin
from robogen.scenes.base import Scene

if TYPE_CHECKING:
    from robogen.scenes.scene import TabletopScene

SEEDS, FEW = 10, 4
"""Episodes of our own scenes, and of other people's environments."""


@pytest.fixture(params=SCENES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def scene(name: str) -> Scene:
    return scene_named(name)


@pytest.fixture(params=OWN)
def own(request: pytest.FixtureRequest) -> TabletopScene:
    """A scene made of a scene file."""
    return scene_named(str(request.param))  # type: ignore[return-value]


def test_every_predicate_can_be_evaluated(own: TabletopScene):
    targets = set()
    for episode in range(12):
        begin(own, Perturbation(), seed_of(own.spec.name, episode))
        own.check_task()
        targets.add(own.target)
    assert targets == {choice.target for choice in own.config.task.choices}


def test_the_expert_succeeds_and_progress_never_falls(name: str):
    tapes = [nominal_tape(name, episode) for episode in range(few(name, SEEDS, FEW))]
    if has_expert(name):
        assert sum(tape.success for tape in tapes) >= len(tapes) - 1
    for tape in tapes:
        assert tape.progress == sorted(tape.progress)
        assert all(0.0 <= value <= 1.0 for value in tape.progress)
        assert tape.progress[0] < 1.0
        assert tape.success == (tape.progress[-1] == 1.0)


def test_an_idle_robot_does_not_succeed(name: str, scene: Scene):
    """Success is neither there at reset nor reached by waiting."""
    spec = action_spec(name)
    for episode in range(few(name, SEEDS, FEW)):
        begin(scene, Perturbation(), seed_of(name, episode))
        for _ in range(few(name, 8, 20)):
            result = scene.step(scene.rest_action(spec), spec)
            assert not result.success
            assert result.progress < 1.0
            assert result.finite


def test_same_seed_same_state_whatever_ran_before(name: str, scene: Scene):
    other = build(name)
    try:
        assert other.identity() == scene.identity()
        begin(scene, Perturbation(), seed_of(name, 3))
        wanted = scene.world.state_hash(), scene.placement, scene.target
        seen = scene.render(scene.spec.cameras[0], width=SIZE, height=SIZE, profile="fast")
        for episode in (0, 1):
            play(name, perturb(*applicable(name)), episode)
        begin(scene, Perturbation(), seed_of(name, 3))
        begin(other, Perturbation(), seed_of(name, 3))
        for one in (scene, other):
            assert (one.world.state_hash(), one.placement, one.target) == wanted
            frame = one.render(one.spec.cameras[0], width=SIZE, height=SIZE, profile="fast")
            assert np.array_equal(frame, seen)
        begin(scene, Perturbation(), seed_of(name, 4))
        assert scene.world.state_hash() != wanted[0]
    finally:
        other.close()


def test_recorded_commands_replay_exactly(name: str):
    for condition in (Perturbation(), perturb(*applicable(name))):
        tape = play(name, condition, 1)
        scene = scene_named(name)
        draws, _, _ = begin(scene, condition, seed_of(name, 1))
        del draws  # the tape holds what was executed, latency included
        assert state_bytes(scene) == tape.states[0]
        for command, wanted in zip(tape.actions, tape.states[1:], strict=True):
            scene.step(command, action_spec(name))
            assert state_bytes(scene) == wanted


def test_a_state_checkpoint_is_exact(name: str, scene: Scene):
    begin(scene, Perturbation(), seed_of(name, 2))
    commands = nominal_tape(name, 2).actions
    half = len(commands) // 2
    begin(scene, Perturbation(), seed_of(name, 2))
    for command in commands[:half]:
        scene.step(command, action_spec(name))
    state = scene.world.get_state()
    ends = []
    for _ in range(2):
        scene.world.set_state(state)
        scene.world.step(400)
        ends.append(state_bytes(scene))
        scene.world.step(37)  # somewhere else, with other warm starts
    assert ends[0] == ends[1]


def test_cameras_and_state_are_as_declared(name: str, scene: Scene):
    begin(scene, Perturbation(), seed_of(name))
    assert scene.spec.name == name
    assert scene.spec.cameras
    for camera in cameras(scene):
        frame = scene.render(camera, width=80, height=60, profile="fast")
        assert frame.shape == (60, 80, 3)
        assert frame.dtype == np.uint8
        assert frame.std() > 5, f"{camera} sees nothing"
    parts = {part: scene.proprioception([part]) for part in scene.spec.state}
    assert {part: value.size for part, value in parts.items()} == dict(scene.spec.state)
    whole = scene.proprioception(list(scene.spec.state))
    assert np.array_equal(whole, np.concatenate(list(parts.values())))
    assert np.isfinite(scene.points()).all()


def test_every_action_mode_stays_put_at_rest(name: str, scene: Scene):
    """Adapted environments may sag: their controllers hold a pose against gravity with an error."""
    base = action_spec(name)
    parts = [part for part in ("eef_pos", "gripper_opening") if part in scene.spec.state]
    for mode, size in scene.spec.action_modes.items():
        for sign in ("close_positive", "open_positive"):
            spec = type(base)(mode=mode, dim=size, gripper=sign, control_hz=base.control_hz)
            begin(scene, Perturbation(), seed_of(name))
            before = scene.proprioception(parts or list(scene.spec.state))
            for _ in range(3):
                scene.step(scene.rest_action(spec), spec)
            after = scene.proprioception(parts or list(scene.spec.state))
            assert np.allclose(before, after, atol=few(name, 2e-3, 1e-2)), (mode, sign)


def test_wordings_exist_and_splits_share_none(name: str, scene: Scene):
    for episode in range(few(name, 6, 2)):
        facts = facts_of(name, episode)
        assert facts.instruction.strip()
        words = {split: facts.paraphrases.get(split, ()) for split in SPLITS}
        assert all(words.values())
        every = [facts.instruction, *words["train"], *words["eval"]]
        plain = [re.sub(r"\W+", " ", text).lower().strip() for text in every]
        assert len(set(plain)) == len(plain), "two wordings are the same"
        assert not any("{" in text for text in every)
        for split in SPLITS:
            scene.prepare(seed_of(name, episode))
            assert scene.wordings(split) == (facts.instruction, *words[split])


def test_objects_rest_on_the_table_at_the_start(own: TabletopScene):
    scene = own
    for episode in range(SEEDS):
        begin(scene, Perturbation(), seed_of(scene.spec.name, episode))
        for thing, item in scene.config.objects.items():
            if item.mount == "free":
                root = next(b for b in scene.world.body_names if b.startswith(f"{thing}/"))
                speed = np.linalg.norm(scene.world.body_velocity(root))
                assert speed < 0.01, f"{thing} moves at {speed:.3f} m/s"
        assert not any(
            "robot/" in one + other and not ("robot/" in one and "robot/" in other)
            for one, other in scene.world.touches()
        )


def test_nothing_is_left_behind(own: TabletopScene):
    """Memory stays flat over episodes, also those with a compiled world and device of their own."""
    scene, name = own, own.spec.name
    names = [None, *(n for n in applicable(name) if factor_named(n).phase in ("spec", "model"))]
    process = psutil.Process()

    def episodes(count: int) -> None:
        for episode in range(count):
            factor = names[episode % len(names)]
            condition = Perturbation() if factor is None else perturb(factor)
            begin(scene, condition, seed_of(name, episode))
            scene.render(scene.spec.cameras[0], width=SIZE, height=SIZE, profile="fast")
            scene.step(scene.rest_action(action_spec(name)), action_spec(name))
        begin(scene, Perturbation(), seed_of(name))

    def recompiled(count: int) -> None:
        initial, _ = scene.prepare(seed_of(name))
        for _ in range(count):
            scene.rebuild(lambda edit: None)
            scene.reset(initial)
            scene.render(scene.spec.cameras[0], width=SIZE, height=SIZE, profile="fast")
        scene.rebuild(None)

    episodes(2 * len(names))
    recompiled(20)
    before = process.memory_info().rss
    episodes(120)
    recompiled(80)
    grown = (process.memory_info().rss - before) / 2**20
    assert grown < 60, f"{grown:.1f} MiB more after 200 episodes"  # a world is about 3 MiB


def test_a_recompiled_world_is_freed_at_once(scene: Scene, name: str):
    if not facts_of(name).can_recompile:
        pytest.skip("this environment cannot be recompiled")
    gc.collect()
    gc.disable()
    try:
        initial, _ = scene.prepare(seed_of(name))
        scene.rebuild(lambda edit: None)
        scene.reset(initial)
        world = weakref.ref(scene.world)
        scene.rebuild(None)
        scene.reset(initial)
        assert world() is None
    finally:
        gc.enable()


def test_the_model_is_small_enough_for_dense_solving(own: TabletopScene):
    """MuJoCo 4.0.0 solves sparse systems wrongly; it picks them from 60 degrees of freedom on."""
    assert own.world.model.nv < 60
    assert own.world.model.opt.jacobian != mujoco.mjtJacobian.mjJAC_SPARSE
