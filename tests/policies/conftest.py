import numpy as np
import pytest
import torch

from robogen.policies.checkpoint import CheckpointConfig, save_checkpoint
from robogen.policies.network import NetworkConfig, Statistics, build
from robogen.specs import ActionSpec, Observation


@pytest.fixture
def make_checkpoint(tmp_path):
    """Writes an untrained checkpoint and returns its path."""

    def make(path=None, *, size=96, binary_gripper=True, seed=0, scene="pick", **changes):
        config = NetworkConfig(
            cameras=(("front", size, size), ("wrist", size, size)),
            state_size=4,
            text_size=256,
            points=2,
            chunk=8,
            action_size=7,
            **changes,
        )
        statistics = Statistics(
            torch.zeros(4), torch.ones(4), torch.zeros(2, 3), torch.full((2, 3), 0.1)
        )
        path = path or tmp_path / f"{scene}.safetensors"
        save_checkpoint(
            path,
            build(config, statistics, seed=seed),
            CheckpointConfig(
                scene=scene,
                network=config,
                statistics=statistics,
                state={"eef_pos": 3, "gripper_opening": 1},
                action=ActionSpec(chunk=8, execute=4),
                render="fast",
                binary_gripper=binary_gripper,
            ),
        )
        return path

    return make


@pytest.fixture
def make_observation():
    def make(seed=0, *, size=96, step=0, **changes):
        rng = np.random.default_rng(seed)
        values = {
            "images": {
                name: rng.integers(0, 256, size=(size, size, 3), dtype=np.uint8)
                for name in ("front", "wrist")
            },
            "state": rng.normal(size=4).astype(np.float32),
            "instruction": f"lift the {('red', 'green', 'blue')[seed % 3]} cube",
            "step": step,
        }
        return Observation(**{**values, **changes})

    return make
