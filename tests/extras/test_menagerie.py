"""The real robot's looks change what is seen and nothing else (``make test-menagerie``)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from robogen.perturbations.engine import Perturbation
from robogen.rollout.start import begin
from robogen.scenes.library import available
from robogen.scenes.menagerie import cache_dir
from robogen.scenes.scene import TabletopScene, load_tabletop
from robogen.seeding import EpisodeSeed
from robogen.specs import ActionSpec

pytestmark = [
    pytest.mark.extras,
    pytest.mark.skipif("MENAGERIE_ROOT" not in os.environ, reason="no MENAGERIE_ROOT"),
]


def play(scene: TabletopScene, episode: int) -> tuple[list[str], bool, np.ndarray]:
    """State hashes of the oracle's episode, its success, and the first frame."""
    name, camera = scene.spec.name, list(scene.config.cameras)[-1]
    seed = EpisodeSeed(domain="evaluate", study=0, scene=name, episode=episode)
    begin(scene, Perturbation(), seed)
    frame = scene.render(camera, width=320, height=240, profile="nice")
    action, hashes = ActionSpec(control_hz=scene.spec.control_hz), [scene.world.state_hash()]
    for _ in range(scene.spec.horizon):
        result = scene.step(scene.expert_action(action), action)
        hashes.append(scene.world.state_hash())
        if result.success:
            return hashes, True, frame
    return hashes, False, frame


@pytest.mark.parametrize("name", list(available()))
def test_physics_is_the_same_and_the_picture_is_not(name: str, tmp_path: Path):
    own = load_tabletop(name)
    real = load_tabletop(name, overrides={"robot.source": "menagerie"})
    assert own.identity() != real.identity()
    for episode in range(3):
        hashes, success, frame = play(own, episode)
        others, same, other = play(real, episode)
        assert success == same
        assert hashes == others
        difference = np.abs(frame.astype(int) - other.astype(int)).mean()
        assert 0.5 < difference < 40, "the robots should look alike, not equal"
    if "ROBOGEN_LOOK" in os.environ:
        import cv2

        sheet = np.concatenate([frame, other], axis=1)
        cv2.imwrite(f"{os.environ['ROBOGEN_LOOK']}/{name}.png", sheet[..., ::-1])
    own.close()
    real.close()


def test_decimated_meshes_hold_together():
    """A mesh whose vertices are not merged first falls to shreds when it is simplified."""
    trimesh = pytest.importorskip("trimesh")
    load_tabletop("pick", overrides={"robot.source": "menagerie"}).close()
    meshes = [trimesh.load(file, force="mesh") for file in cache_dir().glob("*.stl")]
    assert meshes
    pieces = sum(len(mesh.split(only_watertight=False)) for mesh in meshes)
    assert pieces < 0.1 * sum(len(mesh.faces) for mesh in meshes)
