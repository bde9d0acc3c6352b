"""Writes run folders with plausible numbers, through the same store that a study uses."""

import functools
import tempfile
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
from PIL import Image, ImageDraw

from robogen.records import EpisodeRecord, RecordStore, Telemetry, write_manifest

RANGES = {
    "camera_pose": "moved up to 0.10 m, turned up to 12°",
    "table_texture": "24 unseen textures",
    "light_intensity": "0.4 to 2.5 times nominal",
    "object_size": "0.8 to 1.25 times nominal",
    "object_mass": "0.5 to 3 times nominal",
    "distractors": "2 to 6 unseen objects",
    "object_pose": "0.30 m by 0.40 m region",
    "instruction": "12 paraphrases",
}
RATES = {
    "nominal": 0.95,
    "camera_pose": 0.32,
    "table_texture": 0.55,
    "light_intensity": 0.9,
    "object_size": 0.86,
    "object_mass": 0.95,
    "distractors": 0.6,
    "object_pose": 0.7,
    "instruction": 0.95,
    "camera_pose+table_texture": 0.2,
}
CHANNELS = {"object_mass": "dynamics", "instruction": "instruction"}


def write_run(
    folder,
    *,
    scenes=("pick",),
    policies=("bc",),
    rates=None,
    episodes=50,
    recorded=None,
    error_rate=0.0,
    repeats=0,
    frames=True,
    videos=True,
    unreached=(),
    not_observed=("instruction",),
    name=None,
    seed=0,
):
    """Write one run folder and return it.

    ``rates`` is a success rate per condition, or a mapping of (scene, policy) to such; ``recorded``
    stops the study after so many episodes.
    """
    folder = Path(folder)
    rates = dict(RATES) if rates is None else rates
    first = next(iter(rates.values()))
    everything = first if isinstance(first, dict) else rates
    rng = np.random.default_rng(seed)
    left = [10**9 if recorded is None else recorded]
    write_manifest(folder, manifest(name or folder.name, scenes, policies, everything, episodes))
    with RecordStore.create_or_open(folder, study_hash=f"{seed:02d}c0ffee5eed") as store:
        for scene in scenes:
            for policy in policies:
                own = rates[scene, policy] if isinstance(first, dict) else rates
                difficulty = rng.random(episodes)
                for condition, rate in own.items():
                    runs = 1 + (repeats if condition == "nominal" else 0)
                    for repeat in range(runs):
                        for episode in range(episodes):
                            if left[0] == 0:
                                break
                            left[0] -= 1
                            record = make_record(
                                rng,
                                scene,
                                policy,
                                condition,
                                episode,
                                repeat,
                                rate,
                                difficulty[episode],
                                error_rate,
                                unreached,
                                not_observed,
                            )
                            store.add(record, Telemetry(wall_s=1.0 + rng.random(), worker=0))
                    if frames and condition != "nominal":
                        draw_frames(folder / "frames" / scene / policy / condition, condition)
                    if videos and condition in ("nominal", "camera_pose"):
                        write_video(folder / "videos" / scene / policy, condition)
    return folder


def factors_of(condition):
    return () if condition == "nominal" else tuple(condition.split("+"))


def make_record(
    rng,
    scene,
    policy,
    condition,
    episode,
    repeat,
    rate,
    difficulty,
    error_rate,
    unreached,
    not_observed,
):
    factors = factors_of(condition)
    errored = bool(rng.random() < error_rate)
    # Hard episodes are hard under every condition, which is what matching uses.
    success = bool(0.35 * rng.random() + 0.65 * difficulty < rate * 0.98 + 0.01)
    reached = {}
    for factor in factors:
        verdict = "reached"
        if factor in unreached:
            verdict = "did not reach"
        elif factor in not_observed:
            verdict = "not observed"
        channel = CHANNELS.get(factor, "camera")
        reached[factor] = {"channel": channel, "verdict": verdict, "evidence": {"pixels": 512}}
    return EpisodeRecord(
        scene=scene,
        policy=policy,
        condition=condition,
        episode=episode,
        repeat=repeat,
        factors=factors,
        status="errored" if errored else "scored",
        error_kind=["policy_exception", "deadline"][episode % 2] if errored else None,
        error=[
            "ValueError: expected image of shape (96, 128, 3), got (128, 96, 3)",
            "No answer from the policy within 30 s",
        ][episode % 2]
        if errored
        else None,
        success=None if errored else success,
        progress=None if errored else float(1.0 if success else rng.choice([0, 0.25, 0.5, 0.75])),
        steps=None if errored else int(rng.integers(40, 120)),
        draws={factor: {"gain": float(rng.uniform(0.4, 2.5))} for factor in factors},
        reached=reached,
        behaviour={}
        if errored
        else {
            "path_length_m": float(1.1 + 0.3 * rng.random() + (0 if success else 0.4)),
            "mean_jerk": float(3.0 + rng.random()),
            "peak_force_n": float(8 + 6 * rng.random() + (0 if success else 9)),
            "unintended_contacts": int(rng.poisson(0.2 if success else 1.4)),
            "drops": int(rng.poisson(0.02 if success else 0.5)),
        },
    )


def manifest(name, scenes, policies, conditions, episodes):
    return {
        "schema_version": 1,
        "study": {"name": name, "episodes": episodes, "seed": 7},
        "study_hash": "c0ffee5eed",
        "created": "2025-11-30 19:22 UTC",
        "conditions": [
            {
                "id": condition,
                "factors": list(factors_of(condition)),
                "severity": 1.0,
                "split": "eval",
                "ranges": {
                    factor: RANGES.get(factor, "as declared") for factor in factors_of(condition)
                },
            }
            for condition in conditions
        ],
        "not_applicable": [
            {"scene": scenes[0], "factor": "drawer_friction", "reason": "the scene has no joint"}
        ],
        "versions": {"robogen": "0.1.0", "mujoco": "3.17.0", "torch": "2.13.0+cpu"},
        "fingerprint": {"gl": {"vendor": "Mesa", "renderer": "llvmpipe (LLVM 15)"}, "isa": "avx2"},
        "policies": {policy: {"deterministic": True, "checkpoint": "9f3a"} for policy in policies},
        "scenes": {scene: {"hash": "77aa"} for scene in scenes},
    }


def draw_frames(folder, condition):
    folder.mkdir(parents=True, exist_ok=True)
    changed = {
        "camera_pose": (14, -8),
        "table_texture": (0, 0),
        "object_pose": (22, 6),
    }.get(condition, (0, 0))
    for camera in ("front", "wrist"):
        for kind in ("nominal", "seen"):
            seen = kind == "seen"
            table = (150, 128, 104)
            if seen and "table_texture" in condition:
                table = (92, 122, 140)
            image = Image.new("RGB", (128, 96), (196, 202, 208))
            pen = ImageDraw.Draw(image)
            dx, dy = changed if seen else (0, 0)
            pen.polygon([(8 + dx, 94), (30 + dx, 40 + dy), (100 + dx, 40 + dy), (122, 94)], table)
            pen.rectangle([50 + dx, 58 + dy, 66 + dx, 72 + dy], (196, 60, 44))
            pen.ellipse([82 + dx, 62 + dy, 104 + dx, 74 + dy], (70, 120, 90))
            pen.line([(64, 0), (60 + dx, 30), (58 + dx, 52 + dy)], (60, 66, 72), 5)
            if seen and condition == "light_intensity":
                image = image.point(lambda value: int(value * 0.5))
            image.save(folder / f"0_{camera}_{kind}.png")


@functools.cache
def video_bytes():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.mp4"
        frames = [np.full((96, 128, 3), 90 + 12 * index, np.uint8) for index in range(8)]
        for index, frame in enumerate(frames):
            frame[40:56, 8 * index : 8 * index + 16] = (196, 60, 44)
        imageio.mimwrite(path, frames, fps=10, macro_block_size=16)
        return path.read_bytes()


def write_video(folder, condition):
    folder.mkdir(parents=True, exist_ok=True)
    for episode, outcome in ((0, "failure"), (1, "success")):
        (folder / f"{condition}_{episode}_{outcome}.mp4").write_bytes(video_bytes())
