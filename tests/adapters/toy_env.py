"""A small Gymnasium environment on MuJoCo, made the way many are: what tests adapt.

It does what other people's environments do and adapters have to live with: its reset writes into
the model, one of its lights has no name, its renderer is Gymnasium's, and ``info`` tells success.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv
from numpy.typing import NDArray

XML = Path(__file__).parent / "toy.xml"
HOME = np.array([0.1, 0.9, 1.2])
"""Targets of the arm at rest [rad]."""


class ToyTable(MujocoEnv):
    """Push a box onto a pad with an arm of three joints.

    Args:
        kwargs: As of Gymnasium's base class.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"],
        "render_fps": 20,
    }
    key = "is_success"

    def __init__(self, **kwargs: Any) -> None:
        space = gymnasium.spaces.Box(-np.inf, np.inf, (10,), np.float64)
        super().__init__(str(XML), 10, observation_space=space, **kwargs)
        self.init_qpos[:3] = HOME

    def _get_obs(self) -> NDArray[np.float64]:
        """Arm joints (3,) [rad], box position and orientation (7,)."""
        return self.data.qpos.copy()

    def _random(self) -> np.random.Generator:
        return self.np_random

    def reset_model(self) -> NDArray[np.float64]:
        """Place the box, and the pad, which has no joint: its place is written into the model."""
        random = self._random()
        qpos = self.init_qpos.copy()
        qpos[3:5] += random.uniform(-0.05, 0.05, 2)
        pad = self.model.body("pad").id
        self.model.body_pos[pad, :2] = random.uniform([0.22, 0.07], [0.28, 0.13])
        self.data.ctrl[:] = HOME
        self.set_state(qpos, self.init_qvel)
        return self._get_obs()

    def _info(self) -> dict[str, Any]:
        apart = self.data.body("box").xpos[:2] - self.data.body("pad").xpos[:2]
        return {self.key: bool(np.linalg.norm(apart) < 0.04)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Ten timesteps."""
        self.do_simulation(action, self.frame_skip)
        info = self._info()
        return self._get_obs(), float(info.get("is_success", 0)), False, False, info


class Unseeded(ToyTable):
    """Its reset does not follow the seed."""

    def _random(self) -> np.random.Generator:
        return np.random.default_rng()


class Mute(ToyTable):
    """It never says whether the task is done."""

    key = "reward_run"


class Discrete(ToyTable):
    """Its actions are numbered."""

    def _set_action_space(self) -> Any:
        self.action_space = gymnasium.spaces.Discrete(5)
        return self.action_space


class Broken(ToyTable):
    """Its constructor fails, as with assets that were not downloaded, or graphics of its own."""

    def __init__(self, *, reason: str = "", **kwargs: Any) -> None:
        del kwargs
        raise RuntimeError(reason or "cannot find the assets;\nplease download them")


for _name, _kind in {
    "ToyTable": ToyTable,
    "ToyUnseeded": Unseeded,
    "ToyMute": Mute,
    "ToyDiscrete": Discrete,
    "ToyBroken": Broken,
}.items():
    if f"{_name}-v0" not in gymnasium.registry:
        gymnasium.register(f"{_name}-v0", entry_point=_kind, max_episode_steps=60)
