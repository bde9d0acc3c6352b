"""Checkpoints of the built-in network: safetensors with one JSON document in the metadata.

Loading one runs no code from the file. Anything that could (a pickle, a ``torch.save`` archive) is
refused by what it is, not by its name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from robogen.errors import PolicyError
from robogen.policies.network import NetworkConfig, Statistics, VisuomotorNetwork, build
from robogen.specs import ActionSpec, RenderProfile

FORMAT = 1
KEY = "robogen"
"""The one metadata key. More than one would be written in an order that changes from run to run."""

POINTS = "points"
"""Name of the task's points (3 K) [m] in a privileged policy's state, after what robots measure."""

_MAKE = "Train one with `robogen train`, or give another checkpoint."


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """The JSON document of a checkpoint."""

    scene: str
    network: NetworkConfig
    statistics: Statistics
    state: Mapping[str, int]
    """State parts the policy reads and their sizes, in order."""
    action: ActionSpec
    render: RenderProfile
    binary_gripper: bool
    """Whether the expert only ever opened or closed fully; the policy then does the same."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """For people and reports: command, recipe with its seed, dataset hash, validation, version."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "format": FORMAT,
            "scene": self.scene,
            "network": self.network.to_json(),
            "statistics": self.statistics.to_json(),
            "state": [[name, size] for name, size in self.state.items()],
            "action": asdict(self.action),
            "render": self.render,
            "binary_gripper": self.binary_gripper,
            "training": dict(self.training),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CheckpointConfig:
        """Inverse of :meth:`to_json`; raises KeyError, TypeError or ValueError on other data."""
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']}, this robogen reads {FORMAT}")
        values = {item.name: data[item.name] for item in fields(cls)}
        values["network"] = NetworkConfig.from_json(data["network"])
        values["statistics"] = Statistics.from_json(data["statistics"], values["network"])
        values["state"] = {str(name): int(size) for name, size in data["state"]}
        values["action"] = ActionSpec(**data["action"])
        return cls(**values)


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint."""

    config: CheckpointConfig
    network: VisuomotorNetwork
    hash: str
    """BLAKE2 hash of the file, hexadecimal."""


def version() -> str:
    """The installed package's version."""
    try:
        return metadata.version("robogen")
    except metadata.PackageNotFoundError:
        return "unknown"


def round_weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights as a checkpoint stores them, half precision, contiguous."""
    return {
        name: tensor.detach().to(torch.float16).contiguous() for name, tensor in tensors.items()
    }


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], document: Any) -> None:
    """Write tensors and a JSON document to a file that is either whole or not there."""
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    content = save(plain, metadata={KEY: json.dumps(document, sort_keys=True)})
    partial = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        raise PolicyError(
            f"Cannot write {path} ({error.strerror or error}). Choose a folder you may write to, "
            "or free some space."
        ) from error


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Inverse of :func:`write_safetensors`.

    Raises:
        PolicyError: The file is missing, something else, damaged, or not ours.
    """
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except FileNotFoundError as error:
        raise PolicyError(f"There is no checkpoint at {path}. {_MAKE}") from error
    except OSError as error:
        raise PolicyError(f"Cannot read {path} ({error.strerror or error}). {_MAKE}") from error
    try:
        with safe_open(path, framework="pt") as archive:
            entries = archive.metadata() or {}
            tensors = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise PolicyError(_not_safetensors(path, head, error)) from error
    if KEY not in entries:
        raise PolicyError(
            f"{path} is a safetensors file without robogen's metadata (it has "
            f"{', '.join(sorted(entries)) or 'none'}), so how to read its weights is unknown. Use "
            f"other models through a policy class of their own. {_MAKE}"
        )
    try:
        return tensors, json.loads(entries[KEY])
    except ValueError as error:
        raise PolicyError(f"{path}: robogen's metadata is not JSON ({error}). {_MAKE}") from error


def _not_safetensors(path: Path, head: bytes, error: Exception) -> str:
    # The header of a real one: its length in 8 bytes, then JSON. Looked at first, because the
    # length can begin like a pickle.
    if len(head) > 8 and head[8:9] == b"{":
        return (
            f"{path} is truncated or damaged ({error}). Copy it again from where it came, or train "
            "it again."
        )
    if what := unsafe(head):
        return refused(path, what)
    return f"{path} is not a safetensors file ({error}). {_MAKE}"


def unsafe(head: bytes) -> str | None:
    """What a file is that begins like this, if loading such a file could run any code."""
    if head.startswith(b"PK"):
        return "a zip archive, as torch.save writes"
    if head[:1] == b"\x80" and head[1:2] <= b"\x05":
        return "a Python pickle"
    return None


def refused(path: Path, what: str) -> str:
    """The message for a file that is refused by what it is."""
    return (
        f"{path} is {what}; loading it could run any code, so robogen never does. Convert the "
        "weights to safetensors on a machine you trust them on, or train with `robogen train`."
    )


def save_checkpoint(
    path: Path, network: VisuomotorNetwork | Mapping[str, Tensor], config: CheckpointConfig
) -> None:
    """Write a checkpoint; equal networks and configurations give equal bytes.

    Args:
        path: Where to.
        network: The network, or its state dict.
        config: Everything else.
    """
    tensors = network.state_dict() if isinstance(network, VisuomotorNetwork) else network
    write_safetensors(path, round_weights(tensors), config.to_json())


def load_checkpoint(path: Path | str) -> Checkpoint:
    """Read a checkpoint and build its network.

    Raises:
        PolicyError: The file is missing, unsafe, damaged, of another format, or not ours.
    """
    path = Path(path)
    tensors, document = read_safetensors(path)
    try:
        config = CheckpointConfig.from_json(document)
        network = build(config.network, config.statistics, seed=0)
        network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PolicyError(
            f"{path} is not a checkpoint this robogen can read ({reason}). {_MAKE}"
        ) from error
    if not all(bool(torch.isfinite(tensor).all()) for tensor in network.state_dict().values()):
        raise PolicyError(f"{path} holds weights that are NaN or infinite. {_MAKE}")
    digest = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    return Checkpoint(config, network.eval(), digest)
