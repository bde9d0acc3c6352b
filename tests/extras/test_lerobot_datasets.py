"""Datasets that we collected and recorded, read by LeRobot itself (``make test-lerobot``)."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from robogen.api import evaluate
from robogen.collect import CollectionRecipe, collect_dataset
from robogen.datasets import DemoDataset, DemoWriter
from robogen.datasets.lerobot_reader import LeRobotDataset as Ours
from robogen.datasets.lerobot_writer import LeRobotForm, assemble
from robogen.perturbations.library import load_factor
from robogen.scenes.load import load_scene

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # LeRobot reads it when it is imported

pytestmark = [
    pytest.mark.extras,
    pytest.mark.skipif(importlib.util.find_spec("lerobot") is None, reason="no LeRobot"),
    pytest.mark.filterwarnings("ignore"),  # LeRobot's own
]
FRONT = "observation.images.front"
CODECS = ("h264", "png", "av1")


@pytest.fixture(scope="module")
def lerobot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """LeRobot's module of datasets."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:  # built for a GPU, beside a PyTorch without; its operators are not needed
        missing = "torchvision._meta_registrations"
        sys.modules[missing] = ModuleType(missing)
    patch = pytest.MonkeyPatch()
    patch.setenv("HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("cache")))
    module = importlib.import_module("lerobot.datasets.lerobot_dataset")
    torchvision = importlib.import_module("torchvision")
    if hasattr(module, "decode_video_frames") and not hasattr(torchvision.io, "VideoReader"):
        # LeRobot 0.4 decodes with a part of torchvision that newer ones lack.
        patch.setattr(module, "decode_video_frames", decoded)
    yield module
    patch.undo()


def decoded(file: Path, times: list[float], tolerance: float, backend: object) -> torch.Tensor:
    """What LeRobot 0.4 does with torchvision, done with PyAV: the frames nearest to some times."""
    import av  # LeRobot needs it

    del backend
    with av.open(str(file)) as container:
        found = [(frame.time, frame.to_ndarray(format="rgb24")) for frame in container.decode()]
    stamps = torch.tensor([time for time, _ in found])
    distance, nearest = (torch.tensor(times)[:, None] - stamps).abs().min(1)
    assert (distance < tolerance).all()
    frames = np.stack([found[int(index)][1] for index in nearest])
    return torch.from_numpy(frames).permute(0, 3, 1, 2).float() / 255.0


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Demonstrations, nominal and with factors that draw numbers, lists and nested things."""
    out = tmp_path_factory.mktemp("collected") / "set"
    scene = load_scene("push")
    names = ("camera_pose", "light_intensity", "distractors")
    collect_dataset(
        scene,
        out,
        CollectionRecipe(episodes=4, image_size=64),
        form=LeRobotForm(),
        factors=[load_factor(name) for name in names],
    )
    scene.close()
    return out


@pytest.fixture(scope="module", params=CODECS)
def dataset(request: pytest.FixtureRequest, collected: Path, tmp_path_factory: Any) -> Path:
    """The demonstrations under each codec."""
    if request.param == "h264":
        return collected
    out = tmp_path_factory.mktemp(request.param)
    form = LeRobotForm(codec=request.param)
    assemble(DemoDataset(collected), out, form, orientation="upright")
    return Path(out)


def load(lerobot: Any, folder: Path, **more: Any) -> Any:
    return lerobot.LeRobotDataset("robogen/set", root=folder, **more)


def test_values_and_frames_are_ours(lerobot: Any, dataset: Path, collected: Path):
    theirs, ours, exact = load(lerobot, dataset), Ours(dataset), DemoDataset(collected)
    assert len(theirs) == ours.frames_total
    assert theirs.fps == 10
    assert theirs.meta.total_episodes == len(exact) == len(ours)
    at = 0
    for number, index in enumerate(exact.indices):
        episode = exact.read(index)
        frames = ours.frames(FRONT, number)
        for step in (0, 1, episode.info.length // 2, episode.info.length - 1):
            item = theirs[at + step]
            assert (int(item["episode_index"]), int(item["frame_index"])) == (number, step)
            assert item["task"] == episode.info.instruction
            np.testing.assert_array_equal(item["action"].numpy(), episode.action[step])
            np.testing.assert_array_equal(item["observation.state"].numpy(), episode.state[step])
            last = step == episode.info.length - 1
            assert bool(item["next.done"]) == bool(item["next.success"]) == last
            assert float(item["next.reward"]) == float(last)
            picture = item[FRONT].permute(1, 2, 0).numpy() * 255.0
            # Their decoder rounds colours a little differently.
            assert np.abs(picture - frames[step]).mean() < 1.0
            assert np.abs(picture - episode.images["front"][step]).mean() < 6.0
        at += episode.info.length


@pytest.mark.parametrize("codec", CODECS)
def test_frames_are_of_their_own_step(lerobot: Any, collected: Path, codec: Any, tmp_path: Path):
    """Each frame is one grey of its own: what LeRobot shows of a step is that step's."""
    exact = DemoDataset(collected)
    writer = DemoWriter(tmp_path / "robogen", exact.meta)
    wanted: list[int] = []
    for index in exact.indices:
        episode = exact.read(index)
        greys = 20 + (37 * index + 10 * np.arange(episode.info.length)) % 220
        frames = np.broadcast_to(greys[:, None, None, None], (len(greys), 64, 64, 3))
        images = {name: frames.astype(np.uint8) for name in episode.images}
        writer.write(replace(episode, images=images))
        wanted += greys.tolist()
    form = LeRobotForm(codec=codec)
    assemble(DemoDataset(tmp_path), tmp_path, form, orientation="upright")
    theirs = load(lerobot, tmp_path, delta_timestamps={FRONT: [0.0, 0.1]})
    assert len(theirs) == len(wanted)
    for at in range(0, len(wanted), 7):
        item = theirs[at]
        later = at if bool(item[f"{FRONT}_is_pad"][1]) else at + 1
        seen = 255.0 * item[FRONT].mean(dim=(1, 2, 3)).numpy()
        assert np.abs(seen - [wanted[at], wanted[later]]).max() < 3.0


def test_our_columns_are_tolerated_and_there(lerobot: Any, dataset: Path):
    theirs = load(lerobot, dataset)
    rows = [theirs.meta.episodes[number] for number in range(theirs.meta.total_episodes)]
    conditions = [row["condition"] for row in rows]
    assert conditions[0] == "nominal"
    for row in rows:
        assert row["factors"] == ([] if row["condition"] == "nominal" else row["factors"][:1])
        assert row["success"] is True
        assert row["split"] == "train"
        assert row["draws"]
    lit = next(row for row in rows if "light_intensity" in row["factors"])
    assert any(
        isinstance(value, float)
        for name, value in lit.items()
        if name.startswith("draw.light_intensity.")
    )


def test_batches_with_history_and_chunks(lerobot: Any, dataset: Path):
    times = {"action": [n / 10 for n in range(4)], FRONT: [-0.1, 0.0], "observation.state": [0.0]}
    theirs = load(lerobot, dataset, delta_timestamps=times)
    seen = 0
    for batch in torch.utils.data.DataLoader(theirs, batch_size=16, num_workers=0):
        rows = len(batch["action"])
        assert batch["action"].shape == (rows, 4, 7)
        assert batch[FRONT].shape == (rows, 2, 3, 64, 64)
        seen += rows
    assert seen == len(theirs)
    assert bool(theirs[0][f"{FRONT}_is_pad"][0])


def test_some_episodes_alone(lerobot: Any, dataset: Path):
    part = load(lerobot, dataset, episodes=[1, 2])
    assert {int(part[n]["episode_index"]) for n in (0, len(part) - 1)} == {1, 2}


def test_statistics_are_what_their_policies_normalise_with(lerobot: Any, dataset: Path):
    stats = load(lerobot, dataset).meta.stats
    ours = Ours(dataset)
    for name in ("action", "observation.state", FRONT):
        wanted = ours.statistics(name)
        for key in ("mean", "std", "min", "max"):
            got = np.asarray(stats[name][key], dtype=np.float64)
            np.testing.assert_allclose(got.reshape(-1), getattr(wanted, key))
        assert np.shape(stats[name]["q01"]) == np.shape(stats[name]["mean"])
    assert np.shape(stats[FRONT]["mean"]) == (3, 1, 1)


def test_recorded_evaluations_load_too(lerobot: Any, tmp_path: Path):
    evaluate(
        scene="push",
        policy="zero",
        perturbation=["camera_pose", "image_noise"],
        episodes=1,
        workers=0,
        slots=1,
        videos=0,
        out=str(tmp_path / "run"),
        record_dataset=str(tmp_path / "set"),
        items={"scene": {"push": {"horizon_s": 0.5}}},
    )
    theirs, exact = load(lerobot, tmp_path / "set"), DemoDataset(tmp_path / "set")
    assert len(theirs) == 15
    conditions = [theirs.meta.episodes[n]["condition"] for n in range(3)]
    assert conditions == ["camera_pose", "image_noise", "nominal"]
    assert not any(bool(theirs[n]["next.success"]) for n in range(15))
    for number in range(3):
        np.testing.assert_array_equal(
            theirs[5 * number + 3]["action"].numpy(), exact.read(number).action[3]
        )


@pytest.mark.parametrize("videos", [True, False])
def test_what_lerobot_records_we_read(lerobot: Any, tmp_path: Path, videos: bool):
    """Its own recorder, with its own codec; each frame is one grey of its own."""
    kind = "video" if videos else "image"
    size, lengths = (64, 96, 3), (7, 5)
    features = {
        "observation.state": {"dtype": "float32", "shape": (2,), "names": ["a", "b"]},
        "action": {"dtype": "float32", "shape": (2,), "names": None},
        FRONT: {"dtype": kind, "shape": size, "names": ["height", "width", "channels"]},
    }
    made = lerobot.LeRobotDataset.create(
        "robogen/theirs", fps=30, features=features, root=tmp_path / "set", use_videos=videos
    )
    for episode, length in enumerate(lengths):
        for step in range(length):
            made.add_frame(
                {
                    "observation.state": np.array([episode, step], np.float32),
                    "action": np.array([0.5 * step, 1.0], np.float32),
                    FRONT: np.full(size, 30 + 90 * episode + 10 * step, np.uint8),
                    "task": f"task {episode}",
                }
            )
        made.save_episode()
    made.finalize()
    ours = Ours(tmp_path / "set")
    assert (ours.version, ours.fps, ours.tasks) == ("v3.0", 30.0, ("task 0", "task 1"))
    assert ours.features["observation.state"].labels == ("a", "b")
    assert ours.conventions is None
    for episode, length in enumerate(lengths):
        assert ours.episode(episode).tasks == (f"task {episode}",)
        steps = np.arange(length)
        np.testing.assert_array_equal(ours.numeric("observation.state", episode)[:, 1], steps)
        np.testing.assert_array_equal(ours.numeric("action", episode)[:, 0], 0.5 * steps)
        means = ours.frames(FRONT, episode).mean(axis=(1, 2, 3))
        assert np.abs(means - (30 + 90 * episode + 10 * steps)).max() < 3
    wanted = ours.statistics("action", exact=True)
    np.testing.assert_allclose(ours.statistics("action").mean, wanted.mean)
    np.testing.assert_allclose(ours.statistics("action").std, wanted.std)


def test_version_2_1_passes_their_own_conversion(lerobot: Any, collected: Path, tmp_path: Path):
    """LeRobot itself turns our v2.1 into v3.0, and loads that."""
    names = (
        "lerobot.datasets.v30.convert_dataset_v21_to_v30",
        "lerobot.scripts.convert_dataset_v21_to_v30",
    )
    name = next((n for n in names if _found(n)), None)
    if name is None:
        pytest.skip("this LeRobot no longer converts v2.1")
    pytest.importorskip("jsonlines")  # what their conversion needs besides
    root = tmp_path / "robogen" / "older"
    form = LeRobotForm(layout="v2.1")
    assemble(DemoDataset(collected), root, form, orientation="upright")
    convert = importlib.import_module(name)
    # 0.4 takes the folder of the repository's folder, later ones that folder itself.
    above = tmp_path if "v30." in name else root
    convert.convert_dataset("robogen/older", root=above, push_to_hub=False)
    theirs, exact = load(lerobot, root), DemoDataset(collected)
    assert len(theirs) == sum(exact.info(index).length for index in exact.indices)
    np.testing.assert_array_equal(theirs[5]["action"].numpy(), exact.read(0).action[5])
    assert theirs.meta.episodes[1]["condition"] == "camera_pose:train"


def _found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
