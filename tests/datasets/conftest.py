import numpy as np
import pytest

from robogen.datasets import DemoEpisode, DemoMeta, EpisodeInfo
from robogen.specs import ActionSpec, CameraSpec


@pytest.fixture
def make_meta():
    def make(**changes):
        values = {
            "scene": "pick",
            "cameras": (
                CameraSpec(name="front", width=12, height=8),
                CameraSpec(name="wrist", width=6, height=6),
            ),
            "state": {"eef_pos": 3, "gripper_opening": 1},
            "action": ActionSpec(),
            "points": ("cube",),
            "collection": {"seed": 3, "factors": []},
            "command": "robogen collect pick",
        }
        return DemoMeta(**{**values, **changes})

    return make


@pytest.fixture
def make_episode(make_meta):
    def make(index=0, length=5, meta=None, **changes):
        meta = meta or make_meta()
        rng = np.random.default_rng(index)
        info = {"index": index, "instruction": "lift the cube", "length": length, "success": True}
        return DemoEpisode(
            images={
                camera.name: rng.integers(
                    0, 256, size=(length, camera.height, camera.width, 3), dtype=np.uint8
                )
                for camera in meta.cameras
            },
            state=rng.normal(size=(length, meta.state_size)).astype(np.float32),
            action=rng.uniform(-1, 1, size=(length, meta.action.dim)).astype(np.float32),
            points=rng.normal(size=(length, len(meta.points), 3)).astype(np.float32),
            info=EpisodeInfo(**{**info, **changes}),
        )

    return make
