"""A compact visuomotor network: small enough to train in minutes on one core.

Per camera a few strided convolutions with group normalisation, modulated by the instruction (FiLM)
so that words can choose between things in view, then flattened: *where* something is must survive,
which pooling would lose. An auxiliary head says where the task's objects are relative to the
gripper; its answer also feeds the action head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Every size of the network; with the weights, all that is needed to build it again."""

    cameras: tuple[tuple[str, int, int], ...]
    """Name, height and width [pixels] of every camera, in order."""
    state_size: int
    text_size: int
    points: int
    """K, points the auxiliary head predicts; 0 for none."""
    chunk: int
    action_size: int
    channels: tuple[int, ...] = (16, 32, 64)
    """Output channels of the convolutions, each a multiple of 8."""
    kernels: tuple[int, ...] = (8, 4, 3)
    strides: tuple[int, ...] = (4, 2, 2)
    film_from: int = 1
    """First convolution (0-based) that the instruction modulates."""
    camera_features: int = 128
    text_features: int = 64
    hidden: int = 256

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> NetworkConfig:
        """Inverse of :meth:`to_json`; raises KeyError, TypeError or ValueError on other data."""
        values = {item.name: data[item.name] for item in fields(cls)}
        values["cameras"] = tuple((str(n), int(h), int(w)) for n, h, w in values["cameras"])
        for name in ("channels", "kernels", "strides"):
            values[name] = tuple(int(size) for size in values[name])
        return cls(**values)


class Statistics(NamedTuple):
    """Mean and standard deviation that inputs and targets are normalised with."""

    state_mean: Tensor
    """(D,)"""
    state_std: Tensor
    """(D,)"""
    points_mean: Tensor
    """(K, 3) [m]"""
    points_std: Tensor
    """(K, 3) [m]"""

    def to_json(self) -> dict[str, Any]:
        """Plain data; float32 values survive exactly."""
        return {name: tensor.tolist() for name, tensor in self._asdict().items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], config: NetworkConfig) -> Statistics:
        """Inverse of :meth:`to_json`; raises KeyError, TypeError or ValueError on other data."""
        state, points = (config.state_size,), (config.points, 3)
        shapes = (state, state, points, points)
        return cls(
            *(
                torch.tensor(data[name], dtype=torch.float32).reshape(shape)
                for name, shape in zip(cls._fields, shapes, strict=True)
            )
        )


class Output(NamedTuple):
    """What one forward pass gives."""

    motion: Tensor
    """(B, chunk, A - 1), unbounded; a command is this clamped to [-1, 1]."""
    gripper: Tensor
    """(B, chunk), unbounded; the command is its hyperbolic tangent or sign."""
    points: Tensor
    """(B, K, 3), normalised with the points' statistics."""


class Dense(nn.Linear):
    """A linear layer that, in evaluation mode, computes every row alone.

    A matrix product may sum a row in an order that depends on where the row lies in the batch and
    in memory (seen with batches of two and three); a product with one vector at a fresh address
    cannot. It costs about 0.1 ms a row, and an episode no longer feels its batch-mates.
    """

    def forward(self, input: Tensor) -> Tensor:
        """(B, in) to (B, out)."""
        if self.training:
            return super().forward(input)
        rows = [super(Dense, self).forward(row.clone()) for row in torch.unbind(input)]
        return torch.stack(rows)


class CameraEncoder(nn.Module):
    """Frames (B, H, W, 3) uint8 and an instruction embedding to features.

    Args:
        config: Sizes.
        height: Frame height [pixels].
        width: Frame width [pixels].
    """

    def __init__(self, config: NetworkConfig, height: int, width: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList()
        self.norms = nn.ModuleList()
        self.films = nn.ModuleList()
        self._film_from = config.film_from
        channels = 3
        layers = zip(config.channels, config.kernels, config.strides, strict=True)
        for index, (wide, kernel, stride) in enumerate(layers):
            padding = max(kernel - stride + 1, 0) // 2
            self.convolutions.append(nn.Conv2d(channels, wide, kernel, stride, padding))
            self.norms.append(nn.GroupNorm(wide // 8, wide))
            if index >= config.film_from:
                self.films.append(Dense(config.text_features, 2 * wide))
            height = (height + 2 * padding - kernel) // stride + 1
            width = (width + 2 * padding - kernel) // stride + 1
            channels = wide
        self.project = Dense(channels * height * width, config.camera_features)

    def forward(self, frames: Tensor, text: Tensor) -> Tensor:
        """Features (B, camera_features)."""
        # NHWC frames are, permuted, already in the channels-last layout the convolutions like best.
        hidden = frames.permute(0, 3, 1, 2).to(torch.float32).mul_(1.0 / 127.5).sub_(1.0)
        for index, (convolution, norm) in enumerate(
            zip(self.convolutions, self.norms, strict=True)
        ):
            hidden = norm(convolution(hidden))
            if index >= self._film_from:
                film = self.films[index - self._film_from](text)[:, :, None, None]
                scale, shift = film.chunk(2, dim=1)
                hidden = torch.addcmul(shift, hidden, 1.0 + scale)
            hidden = torch.relu_(hidden)
        return torch.relu(self.project(hidden.flatten(1)))


class VisuomotorNetwork(nn.Module):
    """Frames, proprioception and instruction to a chunk of actions and the objects' positions.

    Args:
        config: Sizes.
        statistics: What the state is normalised with.
    """

    state_mean: Tensor
    state_std: Tensor

    def __init__(self, config: NetworkConfig, statistics: Statistics) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("state_mean", statistics.state_mean.clone(), persistent=False)
        self.register_buffer("state_std", statistics.state_std.clone(), persistent=False)
        self.text = Dense(config.text_size, config.text_features)
        self.cameras = nn.ModuleList(
            CameraEncoder(config, height, width) for _, height, width in config.cameras
        )
        vision = config.camera_features * len(config.cameras)
        fused = vision + config.state_size + config.text_features
        self.trunk = Dense(fused, config.hidden)
        self.points = Dense(config.hidden, 3 * config.points) if config.points else None
        self.head = nn.Sequential(
            Dense(config.hidden + 3 * config.points, config.hidden),
            nn.ReLU(),
            Dense(config.hidden, config.chunk * config.action_size),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                weight = module.weight.detach().contiguous(memory_format=torch.channels_last)
                module.weight = nn.Parameter(weight)

    def forward(self, frames: Sequence[Tensor], state: Tensor, text: Tensor) -> Output:
        """One pass over a batch.

        Args:
            frames: Per camera (B, H, W, 3) uint8, in the order of the configuration.
            state: Proprioception in its own units (B, D).
            text: Instruction features (B, text_size).
        """
        words = torch.relu(self.text(text))
        # Clamped: under a perturbation the arm may be where no demonstration was.
        pose = ((state - self.state_mean) / self.state_std).clamp(-5.0, 5.0)
        seen = [encoder(image, words) for encoder, image in zip(self.cameras, frames, strict=True)]
        trunk = torch.relu(self.trunk(torch.cat([*seen, pose, words], dim=1)))
        config = self.config
        points = trunk[:, :0] if self.points is None else self.points(trunk)
        actions = self.head(torch.cat([trunk, points], dim=1))
        actions = actions.reshape(len(actions), config.chunk, config.action_size)
        return Output(
            motion=actions[..., :-1],
            gripper=actions[..., -1],
            points=points.reshape(len(points), config.points, 3),
        )


def build(config: NetworkConfig, statistics: Statistics, *, seed: int) -> VisuomotorNetwork:
    """A network with fresh weights that depend on ``seed`` alone; global random state stays put."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = VisuomotorNetwork(config, statistics)
    return network


def count(network: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(math.prod(parameter.shape) for parameter in network.parameters())
