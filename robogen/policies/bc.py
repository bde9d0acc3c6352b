"""The built-in imitation baseline, from its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robogen.errors import PolicyError
from robogen.policies import text
from robogen.policies.base import Normalization, Policy
from robogen.policies.checkpoint import POINTS, load_checkpoint
from robogen.policies.network import Output
from robogen.specs import CameraSpec, Observation, ObservationSpec, PolicySpec


class BCPolicy(Policy):
    """Behaviour cloning: camera frames, proprioception and instruction to chunks of actions.

    Args:
        checkpoint: File that training wrote.
        execute: Actions of a chunk that are executed before the next query; None takes what the
            checkpoint was trained for.
        threads: Threads of torch in this process; a worker owns one core.

    Attributes:
        spec: Conventions, all from the checkpoint.
        scene: Scene the checkpoint was trained on.

    Raises:
        PolicyError: The checkpoint cannot be loaded, or its chunks are shorter than ``execute``.
    """

    pad: ClassVar[bool] = True

    def __init__(
        self, *, checkpoint: Path | str, execute: int | None = None, threads: int = 1
    ) -> None:
        torch.set_num_threads(threads)
        loaded = load_checkpoint(checkpoint)
        config = loaded.config
        self._network = loaded.network
        self._binary_gripper = config.binary_gripper
        self._hash = loaded.hash
        self._texts: dict[str, NDArray[np.float32]] = {}
        self.scene = config.scene
        self._points = POINTS in config.state
        action = config.action if execute is None else replace(config.action, execute=execute)
        if not isinstance(action.execute, int) or not 1 <= action.execute <= action.chunk:
            raise PolicyError(
                f"execute must be a whole number from 1 to {action.chunk}, the chunk length of "
                f"{checkpoint}; got {action.execute!r}. Choose one in that range."
            )
        self.spec = PolicySpec(
            observation=ObservationSpec(
                cameras=tuple(
                    CameraSpec(name=name, height=height, width=width)
                    for name, height, width in config.network.cameras
                ),
                state=tuple(name for name in config.state if name != POINTS),
                instruction=True,
                render=config.render,
            ),
            action=action,
            privileged=self._points,
        )

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> NDArray[np.float64]:
        """Chunks of actions; a row's are the same whatever else is in a batch of this size."""
        del rows
        output = self._forward(observations)
        gripper = output.gripper
        if self._binary_gripper:
            gripper = torch.where(gripper > 0.0, 1.0, -1.0)
        else:
            gripper = torch.tanh(gripper)
        actions = torch.cat([output.motion.clamp(-1.0, 1.0), gripper[..., None]], dim=-1)
        return actions.numpy().astype(np.float64)

    def normalization(self) -> dict[str, Normalization]:
        """Mean and standard deviation of the training data's state."""
        if not self._network.config.state_size:
            return {}
        mean, std = (
            values.numpy().astype(np.float64)
            for values in (self._network.state_mean, self._network.state_std)
        )
        return {"state": Normalization(kind="mean_std", mean=mean, std=std)}

    def round_trip(self, actions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Commands are predicted as they are, and only bounded on their way out."""
        bounded = np.clip(actions, -1.0, 1.0)
        if self._binary_gripper:
            bounded[:, -1] = np.where(actions[:, -1] > 0.0, 1.0, -1.0)
        return bounded

    def identity(self) -> dict[str, str]:
        """Hash of the checkpoint file."""
        return {"checkpoint": self._hash}

    def _forward(self, observations: Sequence[Observation]) -> Output:
        frames = [self._frames(camera, observations) for camera in self.spec.observation.cameras]
        size = self._network.config.state_size
        states = [self._state(observation) for observation in observations]
        if any(state.shape != (size,) for state in states):
            raise PolicyError(
                f"The policy reads a state of {size} numbers "
                f"({', '.join(self.spec.observation.state)}), got {states[0].shape}. Use it with "
                "the robot it was trained on."
            )
        words = np.stack([self._text(observation.instruction) for observation in observations])
        with torch.inference_mode():
            state = torch.from_numpy(np.stack(states).astype(np.float32))
            output: Output = self._network(frames, state, torch.from_numpy(words))
        return output

    def _state(self, observation: Observation) -> NDArray[np.float32]:
        state = np.asarray(observation.state, np.float32).reshape(-1)
        if not self._points:
            return state
        assert observation.privileged is not None
        return np.concatenate([state, np.ravel(observation.privileged[POINTS])])

    def _frames(self, camera: CameraSpec, observations: Sequence[Observation]) -> Tensor:
        wanted = (camera.height, camera.width, 3)
        images = []
        for observation in observations:
            image = observation.images[camera.name]
            if image.shape == (1, *wanted):  # a history of one frame may keep its axis
                image = image[0]
            if image.shape != wanted:
                raise PolicyError(
                    f"The policy reads one {wanted} frame of camera '{camera.name}' per query, got "
                    f"{image.shape}. Render the camera at the size the checkpoint was trained with."
                )
            images.append(image)
        return torch.from_numpy(np.stack(images))

    def _text(self, instruction: str) -> NDArray[np.float32]:
        if instruction not in self._texts:
            size = self._network.config.text_size
            self._texts[instruction] = text.features(instruction, size=size)
        return self._texts[instruction]
