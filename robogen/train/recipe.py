"""How a behaviour-cloning policy is trained: every choice in one place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from robogen.errors import ConfigError, unknown

GripperLoss = Literal["bce", "l1"]
Inputs = Literal["images", "points"]


@dataclass(frozen=True, kw_only=True)
class BCRecipe:
    """Choices of one training; equal recipes on equal data give equal checkpoints on one machine.

    Raises:
        ConfigError: A value is out of range.
    """

    seed: int = 0
    """Chooses initial weights, batches and the held-out episodes."""
    steps: int = 2000
    """Gradient steps."""
    batch: int = 64
    """Frames per step."""
    learning_rate: float = 1e-3
    """Peak of AdamW's rate: linear warm-up, then cosine decay."""
    warmup: int = 100
    """Steps of linear warm-up."""
    final_rate: float = 0.0
    """Rate at the last step, as a fraction of the peak."""
    weight_decay: float = 1e-4
    clip: float = 1.0
    """Largest gradient norm; 0 clips nothing."""
    ema: float = 0.0
    """Decay of an exponential average of the weights, which is then what is saved; 0 saves the last
    weights."""

    chunk: int = 8
    """Actions predicted per query; after an episode's end its last action repeats."""
    execute: int = 4
    """Actions executed per query, unless the policy's configuration says otherwise."""
    gripper_loss: GripperLoss = "bce"
    """``bce``: binary cross-entropy of closing; ``l1``: distance of the tanh output."""
    gripper_weight: float = 0.1
    """Weight of the gripper loss beside the mean absolute error of the motion."""
    points_weight: float = 0.2
    """Weight of the auxiliary loss, the mean absolute error of the normalised object positions; 0
    trains without it."""

    inputs: Inputs = "images"
    """``images``: every camera; ``points``: no camera but the objects' true positions, for a
    privileged baseline."""
    state: tuple[str, ...] | None = None
    """State parts the policy reads; None reads all of the dataset's."""
    state_noise: float = 0.0
    """Noise on the state, in standard deviations."""
    shift: int = 0
    """Random shift of every frame, at most this many pixels each way; 0 trains on frames as they
    are, which is what makes a policy's sensitivity to its camera measurable."""
    jitter: float = 0.0
    """Random brightness, contrast, saturation and colour balance of every frame: 0 none, 1 strong
    (one stop of light either way)."""
    successes_only: bool = True
    """Leave failed demonstrations out."""
    episodes: int | None = None
    """Demonstrations to train on, chosen by the seed; None takes all."""

    validation: float = 0.05
    """Fraction of the episodes held out, at least one of two or more; 0 holds out none."""
    validate_every: int = 500
    """Steps between validations."""
    save_every: int = 500
    """Steps between resumable states on disk."""
    report_every: int = 50
    """Steps between progress reports."""

    channels: tuple[int, ...] = (16, 32, 64)
    """Output channels of the convolutions, multiples of 8."""
    kernels: tuple[int, ...] = (8, 4, 3)
    strides: tuple[int, ...] = (4, 2, 2)
    film_from: int = 1
    """First convolution (0-based) the instruction modulates."""
    camera_features: int = 128
    """Features per camera."""
    text_size: int = 256
    """Hashed instruction features."""
    text_features: int = 64
    """Width of the instruction embedding."""
    hidden: int = 256
    """Width of the fused layers."""

    def __post_init__(self) -> None:
        for name in ("channels", "kernels", "strides", "state"):
            value = getattr(self, name)
            if value is not None:  # lists come from YAML
                object.__setattr__(self, name, tuple(value))
        at_least_one = (
            "steps", "batch", "chunk", "execute", "validate_every", "save_every", "report_every",
            "camera_features", "text_size", "text_features", "hidden",
        )  # fmt: skip
        wrong = [f"{name} must be at least 1" for name in at_least_one if getattr(self, name) < 1]
        not_negative = (
            "warmup", "final_rate", "weight_decay", "clip", "gripper_weight", "points_weight",
            "state_noise", "shift", "jitter", "film_from",
        )  # fmt: skip
        wrong += [f"{name} cannot be negative" for name in not_negative if getattr(self, name) < 0]
        if self.episodes is not None and self.episodes < 1:
            wrong.append("episodes must be at least 1")
        if self.inputs not in get_args(Inputs):
            wrong.append(f"inputs must be one of {', '.join(get_args(Inputs))}")
        if self.learning_rate <= 0.0:
            wrong.append("learning_rate must be positive")
        if not 0.0 <= self.ema < 1.0:
            wrong.append("ema must lie in 0..1, below 1")
        if not 0.0 <= self.validation < 1.0:
            wrong.append("validation must lie in 0..1, below 1")
        if self.execute > self.chunk:
            wrong.append(f"execute ({self.execute}) must not exceed chunk ({self.chunk})")
        if self.gripper_loss not in get_args(GripperLoss):
            wrong.append(f"gripper_loss must be one of {', '.join(get_args(GripperLoss))}")
        if not len(self.channels) == len(self.kernels) == len(self.strides) > 0:
            wrong.append("channels, kernels and strides must be equally many, one per convolution")
        if any(size < 8 or size % 8 for size in self.channels):
            wrong.append("channels must be multiples of 8")
        if any(size < 1 for size in (*self.kernels, *self.strides)):
            wrong.append("kernels and strides must be at least 1")
        if wrong:
            raise ConfigError(f"The training recipe is not valid: {'; '.join(wrong)}.")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> BCRecipe:
        """A recipe with some fields changed.

        Raises:
            ConfigError: Unknown field, or a value of the wrong type or out of range.
        """
        names = {item.name for item in fields(cls)}
        for name in values:
            if name not in names:
                raise ConfigError(unknown("training setting", name, names, "Correct or remove it."))
        try:
            return cls(**values)
        except TypeError as error:
            raise ConfigError(
                f"The training recipe has a value of the wrong type ({error}), got "
                f"{dict(values)}. Numbers must be numbers, and lists lists of numbers."
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        data: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return data
