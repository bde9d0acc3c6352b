"""A training in progress: everything the next step depends on, on disk and back, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robogen.errors import ConfigError
from robogen.policies.checkpoint import read_safetensors, write_safetensors
from robogen.policies.network import VisuomotorNetwork
from robogen.train.recipe import BCRecipe

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class TrainingState:
    """Network, optimiser and weight average after some number of steps.

    Batches are keyed by the step's number, so no random state has to be kept.

    Args:
        network: Freshly built.
        recipe: How it is trained.
    """

    def __init__(self, network: VisuomotorNetwork, recipe: BCRecipe) -> None:
        self.network = network
        self.step = 0
        self.optimizer = torch.optim.AdamW(
            network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
        self._ema = recipe.ema
        self.average = {
            name: tensor.detach().clone() for name, tensor in network.state_dict().items()
        }

    def advance(self) -> None:
        """Apply the gradients, and count the step."""
        self.optimizer.step()
        self.step += 1
        if self._ema > 0.0:
            # A short memory at first, or the random initial weights would linger.
            keep = min(self._ema, self.step / (self.step + 10.0))
            with torch.no_grad():
                for name, tensor in self.network.state_dict().items():
                    self.average[name].lerp_(tensor, 1.0 - keep)

    def weights(self) -> dict[str, Tensor]:
        """What a checkpoint should hold: the average where one is kept, else the last weights."""
        return dict(self.average) if self._ema > 0.0 else dict(self.network.state_dict())

    def save(self, path: Path, key: Mapping[str, Any]) -> None:
        """Write the state, with the key of the training it belongs to."""
        tensors = {f"network.{n}": t for n, t in self.network.state_dict().items()}
        if self._ema > 0.0:
            tensors |= {f"average.{n}": t for n, t in self.average.items()}
        for name, parameter in self.network.named_parameters():
            moments = self.optimizer.state[parameter]
            tensors |= {f"{moment}.{name}": moments[moment] for moment in _MOMENTS}
        write_safetensors(path, tensors, {"step": self.step, "key": dict(key)})

    def load(self, path: Path, key: Mapping[str, Any]) -> None:
        """Continue from a state that :meth:`save` wrote.

        Raises:
            ConfigError: It belongs to another training.
            PolicyError: The file is damaged.
        """
        tensors, document = read_safetensors(path)
        refuse_other_training(path, document.get("key", {}), key)
        self.step = int(document["step"])
        network = {n.removeprefix("network."): t for n, t in tensors.items() if n[:8] == "network."}
        self.network.load_state_dict(network)
        if self._ema > 0.0:
            for name, tensor in self.average.items():
                tensor.copy_(tensors[f"average.{name}"])
        for name, parameter in self.network.named_parameters():
            moments: dict[str, Tensor] = {}
            for moment in _MOMENTS:
                saved = tensors[f"{moment}.{name}"]
                like = torch.zeros_like(parameter) if moment != "step" else torch.zeros_like(saved)
                moments[moment] = like.copy_(saved).detach()
            self.optimizer.state[parameter] = moments


def refuse_other_training(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise ConfigError when a file belongs to a training with another recipe or other data."""
    old, new = _flat(found), _flat(wanted)
    differing = [
        f"{name} was {old.get(name)!r} and is now {new.get(name)!r}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    if differing:
        raise ConfigError(
            f"{path} belongs to another training: {'; '.join(differing)}. Give another output, or "
            "start again with resume=false, which replaces it."
        )


def _flat(key: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in key.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": item for inner, item in value.items()}
        else:
            flat[name] = value
    return flat
