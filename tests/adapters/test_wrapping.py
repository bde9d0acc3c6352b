"""An environment that somebody made, under robogen's factors: frames, starts, words, records."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import toy_env

import robogen
from robogen.errors import RecordsError
from robogen.mj import borrowed
from robogen.mj.render import gl_info
from robogen.perturbations.engine import Perturbation
from robogen.perturbations.library import load_factor
from robogen.rollout.start import begin
from robogen.scenes.adapters.scene import AdaptedScene
from robogen.scenes.load import load_scene
from robogen.seeding import EpisodeSeed
from robogen.specs import CameraSpec, turned

CONFIG = Path(__file__).parent / "config"
NAME = "toy/ToyTable-v0"
WORDS = {
    "instruction": "push the box onto the pad",
    "paraphrases": {"train": ["move the box to the pad"], "eval": ["box on pad, would you?"]},
}


def seed_of(episode: int) -> EpisodeSeed:
    return EpisodeSeed(domain="evaluate", study=0, scene=NAME, episode=episode)


def wrapped(task: str = "ToyTable-v0", **changes: Any) -> AdaptedScene:
    made = {
        key: changes.pop(key)
        for key in ("render_mode", "width", "height", "camera_name") & changes.keys()
    }
    settings: dict[str, Any] = {
        "roles": {
            "table": "top",
            "floor": "floor",
            "background": ["wall"],
            "robot": "base",
            "manipulated": "box",
            "receiver": ["p?d"],
        },
        "cameras": {"front": "third_person", "wrist": "wrist"},
        "tool": "tip",
        "rest": toy_env.HOME.tolist(),
        "arm": ["pan", "lift", "bend"],
        "wide_m": 0.1,
        "horizon": 8,
        **WORDS,
    }
    return robogen.wrap(gymnasium.make(task, **made), **{**settings, **changes})


def seed(episode: int = 0) -> EpisodeSeed:
    return EpisodeSeed(domain="evaluate", study=0, scene="toy", episode=episode)


@pytest.fixture(scope="module")
def scene() -> Iterator[AdaptedScene]:
    one = wrapped()
    yield one
    one.close()


class Looker(robogen.Policy):
    """Sees the table and acts at random, hearing the instruction or not."""

    def __init__(self, *, hears: bool = True, sees: bool = True) -> None:
        camera = robogen.CameraSpec(name="front", width=48, height=36)
        self.spec = robogen.PolicySpec(
            observation=robogen.ObservationSpec(
                cameras=(camera,) if sees else (), instruction=hears
            ),
            action=robogen.ActionSpec(mode="native", dim=3, control_hz=20),
        )
        self.heard: set[str] = set()

    def act(self, rows: Sequence[int], observations: Sequence[robogen.Observation]) -> np.ndarray:
        self.heard |= {observation.instruction for observation in observations}
        return np.tile(toy_env.HOME, (len(rows), 1, 1))


# -- the whole way ---------------------------------------------------------------------------------


def test_a_wrapped_environment_is_evaluated(scene: AdaptedScene, tmp_path: Path):
    factors = ["camera_pose", "table_texture", "distractors", "mass", "control_latency"]
    study = robogen.evaluate(
        scene=scene, policy="random", perturbation=factors, episodes=2, out=str(tmp_path / "run")
    )
    records = list(study.records)
    assert len(records) == 12
    assert {r.scene for r in records} == {"wrapped/ToyTable-v0"}
    assert {r.status for r in records} == {"scored"}
    for episode in range(2):
        assert len({r.state_hash for r in records if r.episode == episode}) == 1
    verdicts = {r.condition: r.reached[r.condition]["verdict"] for r in records if r.factors}
    assert verdicts == {
        "camera_pose": "not observed",
        "table_texture": "not observed",
        "distractors": "not observed",
        "mass": "reached",
        "control_latency": "reached",
    }
    assert study.manifest["scenes"]["wrapped/ToyTable-v0"]["render"] == "native"
    assert study.manifest["scenes"]["wrapped/ToyTable-v0"]["gymnasium"] == gymnasium.__version__
    assert not study.manifest["notes"]


def test_a_policy_that_looks_is_reached(scene: AdaptedScene, tmp_path: Path):
    factors = ["camera_pose", "light_intensity", "manipulated_color", "distractors", "image_noise"]
    study = robogen.evaluate(
        scene=scene,
        policy=Looker(),
        perturbation=factors,
        episodes=1,
        frames=1,
        out=str(tmp_path / "run"),
    )
    verdicts = {r.reached[r.condition]["verdict"] for r in study.records if r.factors}
    assert verdicts == {"reached"}
    assert len(list((tmp_path / "run" / "frames").rglob("*_seen.png"))) == 6


def test_a_family_file_describes_the_same_scene(scene: AdaptedScene):
    named = load_scene(NAME, extra=(CONFIG,))
    try:
        for one in (named, scene):
            begin(one, Perturbation(), seed(4))
        assert named.world.state_hash() == scene.world.state_hash()
        assert named.spec.cameras == scene.spec.cameras
        size = {"width": 64, "height": 48, "profile": "fast"}
        assert np.array_equal(named.render("front", **size), scene.render("front", **size))
    finally:
        named.close()


def test_workers_build_it_from_its_family_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    found = []
    for workers in (0, 1):
        study = robogen.evaluate(
            scene=NAME,
            policy="random",
            perturbation=["distractors", "mass"],
            episodes=2,
            workers=workers,
            config_dirs=[CONFIG],
            out=str(tmp_path / f"run{workers}"),
        )
        found.append({(r.condition, r.episode): (r.state_hash, r.progress) for r in study.records})
        assert {r.status for r in study.records} == {"scored"}
    assert found[0] == found[1]


# -- what is seen ----------------------------------------------------------------------------------


@pytest.mark.parametrize("camera", ["front", "wrist"])
def test_native_frames_are_the_environments_own(camera: str):
    size = {"width": 200, "height": 150}
    scene = wrapped(render_mode="rgb_array", camera_name=camera, **size)
    try:
        env = scene._adapter._env  # type: ignore[attr-defined]
        begin(scene, Perturbation(), seed())
        for _ in range(3):
            scene.step(toy_env.HOME + 0.2, scene.spec.action)
            ours = scene.render(camera, **size, profile="fast")
            theirs = env.render()
            assert ours.shape == theirs.shape == (150, 200, 3)
            assert np.array_equal(ours, theirs)
            # and again, after the other one has drawn in a context of its own
            assert np.array_equal(scene.render(camera, **size, profile="fast"), ours)
    finally:
        scene.close()


def test_a_renderer_of_its_own_that_is_thrown_away_takes_nothing_of_ours_along():
    """Collected as garbage, it deletes textures by number in whatever context is current."""
    size = {"width": 64, "height": 48}
    scene = wrapped()
    try:
        begin(scene, Perturbation(), seed())
        before = scene.render("front", **size, profile="fast")
        for _ in range(3):
            other = gymnasium.make("ToyTable-v0", render_mode="rgb_array", **size)
            other.reset(seed=0)
            theirs = other.render()
            assert np.array_equal(scene.render("front", **size, profile="fast"), before)
            assert np.array_equal(other.render(), theirs)
            other.close()
            assert np.array_equal(scene.render("front", **size, profile="fast"), before)
            del other
            gc.collect()
            assert np.array_equal(scene.render("front", **size, profile="fast"), before)
        gl_info()  # raises what OpenGL has to complain of
    finally:
        scene.close()


def test_a_double_rotation_is_visible(scene: AdaptedScene):
    begin(scene, Perturbation(), seed())
    spec = CameraSpec(name="front", width=48, height=36)
    frame = {
        how: scene.images([spec], "fast", how)["front"]
        for how in ("upright", "flipped", "mirrored", "rotated_180")
    }
    every = {image.tobytes() for image in frame.values()}
    assert len(every) == 4, "two orientations look the same"
    for how, image in frame.items():
        assert np.array_equal(turned(image, how), frame["upright"]), how  # type: ignore[arg-type]
        assert image.flags.c_contiguous
    assert np.array_equal(turned(frame["flipped"], "mirrored"), frame["rotated_180"])
    assert np.array_equal(turned(frame["mirrored"], "flipped"), frame["rotated_180"])
    assert np.array_equal(turned(frame["rotated_180"], "flipped"), frame["mirrored"])
    assert np.array_equal(frame["flipped"], frame["upright"][::-1])
    assert np.array_equal(frame["mirrored"], frame["upright"][:, ::-1])


def test_frames_come_as_the_codebases_policies_expect_them(scene: AdaptedScene):
    other = wrapped(orientation="rotated_180")
    try:
        spec = CameraSpec(name="front", width=48, height=36)
        for one in (scene, other):
            begin(one, Perturbation(), seed())
        upright = scene.images([spec], "fast")["front"]
        assert np.array_equal(other.images([spec], "fast")["front"], upright[::-1, ::-1])
        assert np.array_equal(other.images([spec], "fast", "upright")["front"], upright)
    finally:
        other.close()


# -- starts ----------------------------------------------------------------------------------------


def test_a_start_is_the_episodes_whatever_the_last_ones_length(tmp_path: Path):
    """Environments that carry their generator on from episode to episode differ here."""
    hashes = []
    for steps in (3, 20, 7):
        scene = wrapped(
            success=lambda env, steps=steps: env.unwrapped.data.time > steps / 20 - 1e-6,
            horizon=30,
            name="toy",
        )
        study = robogen.evaluate(
            scene=scene, policy="random", suite=None, episodes=4, out=str(tmp_path / f"{steps}")
        )
        scene.close()
        assert {r.steps for r in study.records} == {steps}
        hashes.append({r.episode: r.state_hash for r in study.records})
    assert hashes[0] == hashes[1] == hashes[2]
    assert len(set(hashes[0].values())) == 4


def test_a_reset_that_writes_the_model_is_the_new_nominal(scene: AdaptedScene):
    model = scene.world.model
    pad = model.body("pad").id
    places = []
    for episode in (0, 1, 0):
        begin(scene, Perturbation(), seed(episode))
        places.append(model.body_pos[pad].tobytes())
        assert not scene.world.edit.changed()
    assert places[0] == places[2] != places[1]
    compiled = scene._adapter.specification()  # type: ignore[attr-defined]
    assert places[0] != compiled.compile().body_pos[pad].tobytes()
    # factors start from there, and a recompilation keeps it
    begin(scene, Perturbation([(load_factor("mass"), 1.0)]), seed(1))
    assert model.body_pos[pad].tobytes() == places[1]
    begin(scene, Perturbation([(load_factor("distractors"), 1.0)]), seed(1))
    assert scene.world.model is not model
    assert scene.world.model.body_pos[pad].tobytes() == places[1]
    begin(scene, Perturbation(), seed(0))
    assert scene.world.model is model
    assert model.body_pos[pad].tobytes() == places[0]


def test_where_a_reset_wrote_things_is_part_of_the_states_hash(scene: AdaptedScene):
    begin(scene, Perturbation(), seed(0))
    before = scene.world.state_hash()
    scene.world.model.body_pos[scene.world.model.body("pad").id, 0] += 0.01
    scene.world.written = borrowed.fixed_places(scene.world.model)
    assert scene.world.state_hash() != before
    begin(scene, Perturbation(), seed(0))
    assert scene.world.state_hash() == before


def test_what_an_environment_set_after_compilation_is_kept_by_a_recompilation(scene: AdaptedScene):
    model = scene.world.model
    before = model.opt.noslip_iterations, model.vis.map.znear, model.opt.gravity.copy()
    try:
        model.opt.noslip_iterations, model.vis.map.znear = 7, 0.02
        model.opt.gravity[:] = [0.0, 0.0, -5.0]
        scene.rebuild(lambda edit: None)
        other = scene.world.model
        assert other is not model
        assert (other.opt.noslip_iterations, other.opt.gravity[2]) == (7, -5.0)
        assert other.vis.map.znear == model.vis.map.znear
        assert other.vis.global_.offwidth == model.vis.global_.offwidth > 320
    finally:
        scene.rebuild(None)
        model.opt.noslip_iterations, model.vis.map.znear = before[:2]
        model.opt.gravity[:] = before[2]


def test_a_reset_that_does_not_repeat_is_noted(tmp_path: Path):
    scene = wrapped("ToyUnseeded-v0")
    try:
        (note,) = scene.notes()
        assert "does not repeat" in note
        study = robogen.evaluate(
            scene=scene, policy="zero", suite=None, episodes=1, out=str(tmp_path / "run")
        )
        assert study.manifest["notes"] == {"wrapped/ToyUnseeded-v0": [note]}
    finally:
        scene.close()


# -- words -----------------------------------------------------------------------------------------


def paraphrased(scene: AdaptedScene, policy: Looker, out: Path) -> dict[str, Any]:
    study = robogen.evaluate(
        scene=scene,
        policy=policy,
        perturbation=["instruction_paraphrase"],
        episodes=1,
        out=str(out),
    )
    (record,) = [r for r in study.records if r.factors]
    return {**record.reached["instruction_paraphrase"], "said": record.instruction}


def test_other_words_reach_who_hears_them(scene: AdaptedScene, tmp_path: Path):
    policy = Looker()
    reached = paraphrased(scene, policy, tmp_path / "run")
    assert reached["verdict"] == "reached"
    assert reached["said"] == "box on pad, would you?"
    assert policy.heard == {"push the box onto the pad", "box on pad, would you?"}


def test_other_words_are_not_observed_by_who_is_deaf(scene: AdaptedScene, tmp_path: Path):
    assert paraphrased(scene, Looker(hears=False), tmp_path / "run")["verdict"] == "not observed"


def test_words_that_are_lost_on_the_way_are_caught(
    scene: AdaptedScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Perturbation, "instruction", lambda self, text, draws: text)
    policy = Looker()
    assert paraphrased(scene, policy, tmp_path / "run")["verdict"] == "did not reach"
    assert policy.heard == {"push the box onto the pad"}


# -- what a run is comparable with -----------------------------------------------------------------


def run(out: Path, episodes: int = 1, **settings: Any) -> Any:
    return robogen.evaluate(
        scene=NAME,
        policy="zero",
        suite=None,
        episodes=episodes,
        workers=0,
        config_dirs=[CONFIG],
        out=str(out),
        **settings,
    )


def test_another_simulator_or_renderer_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from robogen.study import fingerprint

    out = tmp_path / "run"
    run(out)
    versions, graphics = fingerprint.versions(), fingerprint.gl_info()
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "versions", lambda: {**versions, "mujoco": "2.3.7"})
        with pytest.raises(RecordsError, match=r"versions\.mujoco: was .* is '2\.3\.7'"):
            run(out)
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "gl_info", lambda: {**graphics, "renderer": "Some GPU"})
        with pytest.raises(RecordsError, match=r"gl\.renderer: was .* is 'Some GPU'"):
            run(out)
    assert len(list(run(out).records)) == 1


def test_another_version_of_the_codebase_is_another_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from robogen.scenes.adapters import scene as adapted

    out = tmp_path / "run"
    run(out)
    monkeypatch.setattr(adapted, "installed", lambda packages: {"gymnasium": "0.0.1"})
    with pytest.raises(RecordsError, match="study"):
        run(out)


def test_a_fast_look_is_another_study_than_the_native_one(tmp_path: Path):
    out = tmp_path / "run"
    native = run(out)
    with pytest.raises(RecordsError, match="study"):
        run(out, items={"scene": {NAME: {"render": "fast"}}})
    fast = run(tmp_path / "fast", items={"scene": {NAME: {"render": "fast"}}})
    looks = [study.manifest["scenes"][NAME]["render"] for study in (native, fast)]
    assert looks == ["native", "fast"]


def test_things_on_the_table_are_known_to_decorations(scene: AdaptedScene):
    initial, facts = scene.prepare(seed_of(0))
    scene.reset(initial)
    for name in ("box", "base"):
        x, y, _ = scene.world.body_position(name)
        near = [np.hypot(x - disc.x, y - disc.y) < 0.05 for disc in facts.occupied]
        assert any(near), name


def test_a_scaled_thing_stands_where_it_stood(scene: AdaptedScene):
    begin(scene, Perturbation(), seed_of(0))
    low = scene.world.body_position("box")[2] + scene.world.extent("box")[0][2]
    factor = load_factor("object_size")
    draws, _, _ = begin(scene, Perturbation([(factor, 1.0)]), seed_of(0))
    assert abs(draws["object_size"]["scale"] - 1.0) > 0.05
    assert scene.world.body_position("box")[2] + scene.world.extent("box")[0][2] == pytest.approx(
        low, abs=1e-9
    )


def test_a_moved_arm_is_told(scene: AdaptedScene, monkeypatch: pytest.MonkeyPatch):
    told: list[bool] = []
    monkeypatch.setattr(scene._adapter, "arm_moved", lambda: told.append(True))
    begin(scene, Perturbation(), seed_of(0))
    assert not told
    begin(scene, Perturbation([(load_factor("robot_pose"), 1.0)]), seed_of(0))
    assert told


def test_a_recompiled_world_draws_the_same_groups():
    scene = load_scene(NAME, overrides={"groups": [0, 3]}, extra=[CONFIG])
    initial, _ = scene.prepare(seed_of(0))
    scene.rebuild(lambda edit: None)
    scene.reset(initial)
    assert list(scene.world.groups or ()) == [0, 3]
    scene.close()
