"""Meta-World v3: Sawyer tasks with mocap control, and the scripted policy of each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robogen.mj.world import Pose
from robogen.scenes.adapters.base import Adapter, Start
from robogen.specs import ActionMode, ActionSpec


class MetaWorldAdapter(Adapter):
    """One task of Meta-World, by its name there, e.g. ``drawer-open-v3``.

    Its ``reset`` takes a seed and ignores it; here the environment's generator is seeded before
    every reset, so that an episode's seed decides where it starts.
    """

    def __init__(self, task: str) -> None:
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS
        from metaworld.policies import ENV_POLICY_MAP

        self._env: Any = ALL_V3_ENVIRONMENTS[task]()
        self._env._partially_observable = False  # the scripted policies are told the goal
        self._env._set_task_called = True  # starts come from the seed, not from a list of tasks
        self._env._freeze_rand_vec = False
        self._env.seeded_rand_vec = True
        self._policy = ENV_POLICY_MAP[task]()
        self._success = False
        self._progress = 0.0

    @classmethod
    def tasks(cls) -> tuple[str, ...]:
        """All tasks that Meta-World registers."""
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS

        return tuple(sorted(ALL_V3_ENVIRONMENTS))

    # -- the simulator ---------------------------------------------------------------------------

    @property
    def model(self) -> mujoco.MjModel:
        """The model the environment holds."""
        return self._env.model

    @property
    def data(self) -> mujoco.MjData:
        """The state the environment holds."""
        return self._env.data

    def specification(self) -> mujoco.MjSpec:
        """Read from the file the environment was made of."""
        return mujoco.MjSpec.from_file(self._env.fullpath)

    def install(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """The environment looks both up by attribute, at every use."""
        self._env.model, self._env.data = model, data

    # -- an episode ------------------------------------------------------------------------------

    def reset(self, start: Start) -> None:
        """Seed the generator behind the random start, then reset."""
        self._env.seed(start.seed)
        self._env.reset()
        self._success, self._progress = False, 0.0

    def step(self, action: NDArray[np.float64], spec: ActionSpec) -> None:
        """Execute one action (4,)."""
        del spec
        info = self._env.step(np.clip(action, -1.0, 1.0).astype(np.float32))[-1]
        self._success = bool(info["success"])
        reached = 0.25 * float(info["near_object"]) + 0.25 * float(info["grasp_success"])
        self._progress = 1.0 if self._success else min(reached, 0.5)

    def success(self) -> bool:
        """``info["success"]`` of the last step."""
        return self._success

    def progress(self) -> float:
        """A quarter each for being near the object and for holding it; all for success."""
        return self._progress

    @property
    def instruction(self) -> str:
        """None of its own: the family file has the words."""
        return ""

    # -- conventions -----------------------------------------------------------------------------

    @property
    def action_modes(self) -> Mapping[ActionMode, int]:
        """``[dx, dy, dz, gripper]`` in [-1, 1]: hundredths of a metre, +1 closes."""
        return {"native": 4}

    def rest(self, spec: ActionSpec) -> NDArray[np.float64]:
        """No motion, gripper open."""
        del spec
        return np.array([0.0, 0.0, 0.0, -1.0])

    def state(self) -> Mapping[str, NDArray[np.float64]]:
        """Hand position [m], gripper opening [m], and both as Meta-World observes them (4,)."""
        now = self._env._get_curr_obs_combined_no_goal()
        return {
            "eef_pos": np.array(now[:3]),
            "gripper_opening": 0.1 * np.array(now[3:4]),
            "native": np.array(now[:4]),
        }

    @property
    def tool(self) -> Pose:
        """Middle between the finger tips."""
        hand = self.data.body("hand")
        return Pose(np.array(self._env.tcp_center), np.array(hand.xmat).reshape(3, 3))

    def expert(
        self, spec: ActionSpec, pending: Sequence[NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """What Meta-World's scripted policy does now, from the state as it is."""
        del spec, pending
        now = self._env._get_curr_obs_combined_no_goal()
        observation = np.hstack((now, now, self._env._get_pos_goal()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they warn of what the environment clips anyway
            action = self._policy.get_action(observation)
        return np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0)

    def close(self) -> None:
        """Its renderer, if anybody used it."""
        self._env.close()
