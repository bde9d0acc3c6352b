"""A policy that LeRobot could have trained in a scene: the smallest ACT, with random weights."""

from __future__ import annotations

import importlib
from pathlib import Path

import torch

from robogen.policies.lerobot_model import import_lerobot
from robogen.specs import SceneSpec


def untrained(folder: Path, scene: SceneSpec, parts: tuple[str, ...], size: int = 32) -> Path:
    """Write a pretrained folder: all cameras, these state parts, the scene's own commands."""
    import_lerobot(offline=True)
    types = importlib.import_module("lerobot.configs.types")
    factory = importlib.import_module("lerobot.policies.factory")

    def feature(kind: str, *shape: int) -> object:
        return types.PolicyFeature(types.FeatureType[kind], shape)

    numbers = sum(scene.state[part] for part in parts)
    inputs = {
        f"observation.images.{name}": feature("VISUAL", 3, size, size) for name in scene.cameras
    }
    inputs["observation.state"] = feature("STATE", numbers)
    outputs = {"action": feature("ACTION", scene.action.dim)}
    config = factory.make_policy_config(
        "act",
        input_features=inputs,
        output_features=outputs,
        chunk_size=6,
        n_action_steps=3,
        dim_model=16,
        n_heads=2,
        dim_feedforward=16,
        n_encoder_layers=1,
        use_vae=False,
        pretrained_backbone_weights=None,
        device="cpu",
        push_to_hub=False,
    )
    stats = {}
    for name, one in {**inputs, **outputs}.items():
        shape = (3, 1, 1) if len(one.shape) == 3 else one.shape
        stats[name] = {"mean": torch.zeros(shape), "std": torch.full(shape, 0.5)}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = factory.get_policy_class("act")(config)
    for part in (policy, *factory.make_pre_post_processors(config, dataset_stats=stats)):
        part.save_pretrained(folder)
    return folder
