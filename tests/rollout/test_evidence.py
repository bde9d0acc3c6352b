"""Beside other factors, each must show its own doing."""

from __future__ import annotations

import pytest

from robogen.perturbations.engine import Perturbation
from robogen.perturbations.library import load_factor
from robogen.rollout.episode import Episode, EpisodeTask
from robogen.rollout.evidence import judge
from robogen.scenes.scene import load_tabletop
from robogen.seeding import EpisodeSeed
from robogen.specs import ActionSpec, CameraSpec, ObservationSpec, PolicySpec

SEEING = PolicySpec(
    observation=ObservationSpec(cameras=(CameraSpec(name="front", width=48, height=48),)),
    action=ActionSpec(),
)
CHANGED = {"camera": {"front": 3.0}, "state": 0.0, "instruction": False}


def verdict(name, **words):
    told = {"fields": {}, "altered_step": None, "privileged": False, "difference": CHANGED}
    return judge(load_factor(name), spec=SEEING.observation, **(told | words))["verdict"]


def test_changed_pixels_alone_do_not_speak_for_a_model_factor():
    assert verdict("table_texture") == "did not reach"
    assert verdict("table_texture", fields={"tex_data": "ab"}) == "reached"


def test_an_idle_filter_did_not_reach_whatever_else_changed_the_frame():
    assert verdict("image_blur") == "reached"
    assert verdict("image_blur", idle=True) == "did not reach"


@pytest.mark.parametrize(("sigma", "expected"), [(0.001, "did not reach"), (3.0, "reached")])
def test_a_blur_too_small_to_see_is_found_out_beside_another_factor(sigma, expected):
    scene = load_tabletop("push")
    blur = load_factor("image_blur", {"max_sigma_percent": sigma})
    seed = EpisodeSeed(domain="validate", study=0, scene="push", episode=0)
    episode = Episode(
        scene=scene,
        perturbation=Perturbation([(blur, 1.0), (load_factor("table_color"), 1.0)]),
        task=EpisodeTask("push", "none", "both", 0, 0, seed),
        policy=SEEING,
        action=SEEING.action,
    )
    episode.start()
    episode.observe()
    reached = episode.finish().record.reached
    scene.close()
    assert reached["image_blur"]["verdict"] == expected
    assert reached["table_color"]["verdict"] == "reached"


def test_a_factor_at_severity_0_is_not_asked_whether_it_reached():
    scene = load_tabletop("push")
    seed = EpisodeSeed(domain="validate", study=0, scene="push", episode=0)
    episode = Episode(
        scene=scene,
        perturbation=Perturbation([(load_factor("mass"), 0.0)]),
        task=EpisodeTask("push", "none", "mass@0", 0, 0, seed),
        policy=SEEING,
        action=SEEING.action,
    )
    episode.start()
    episode.observe()
    assert episode.finish().record.reached == {}
    scene.close()
