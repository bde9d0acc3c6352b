"""How well a network predicts the expert on episodes it was not trained on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from robogen.policies.network import Output, Statistics, VisuomotorNetwork
from robogen.train.data import Demos

_BATCH = 64


class Validation(NamedTuple):
    """Errors on held-out episodes, averaged over their frames."""

    frames: int
    action_l1: float
    """Mean absolute error of the motion commands, in units of their range [-1, 1]."""
    gripper_accuracy: float
    """Fraction of gripper commands on the right side of 0."""
    points_mm: float | None
    """Mean distance of predicted from true object positions [mm]; None without auxiliary loss."""


def points_distance(output: Output, points: Tensor, statistics: Statistics) -> Tensor:
    """Distance of predicted from true points (B, K) [m]."""
    predicted = output.points * statistics.points_std + statistics.points_mean
    return (predicted - points).square().sum(dim=-1).sqrt()


@torch.no_grad()
def validate(network: VisuomotorNetwork, demos: Demos, statistics: Statistics) -> Validation | None:
    """Errors on the held-out rows; None when there are none."""
    rows = demos.held_out
    if len(rows) == 0:
        return None
    motion, gripper, points = 0.0, 0.0, 0.0
    for part in np.array_split(rows, -(-len(rows) // _BATCH)):
        batch = demos.batch(part)
        output = network(batch.frames, batch.state, batch.text)
        error = (output.motion.clamp(-1.0, 1.0) - batch.actions[..., :-1]).abs()
        right = (output.gripper > 0.0) == (batch.actions[..., -1] > 0.0)
        motion += float(error.mean()) * len(part)
        gripper += float(right.float().mean()) * len(part)
        if batch.points.shape[1]:
            points += float(points_distance(output, batch.points, statistics).mean()) * len(part)
    has_points = network.config.points > 0
    return Validation(
        frames=len(rows),
        action_l1=motion / len(rows),
        gripper_accuracy=gripper / len(rows),
        points_mm=1000.0 * points / len(rows) if has_points else None,
    )
