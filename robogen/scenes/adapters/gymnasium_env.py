"""Any Gymnasium environment on MuJoCo, as far as such an environment speaks for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robogen.errors import ConfigError, SceneError, unknown
from robogen.mj.world import Pose
from robogen.scenes.adapters.base import Adapter, Start
from robogen.specs import ActionMode, ActionSpec

SUCCESS_KEYS = ("is_success", "success")
"""Where environments say in ``info`` that the task is done."""
_PATHS = (
    ("model", "data"),
    ("sim.model._model", "sim.data._data"),
    ("physics.model.ptr", "physics.data.ptr"),
    ("_env.physics.model.ptr", "_env.physics.data.ptr"),
    ("env.sim.model._model", "env.sim.data._data"),
)
"""Where Gymnasium, robosuite and dm_control keep model and data."""


def _at(thing: Any, path: str) -> Any:
    for name in path.split("."):
        thing = getattr(thing, name, None)
    return thing


def find_simulator(env: Any) -> tuple[str, str]:
    """Attribute paths from ``env.unwrapped`` to its ``MjModel`` and ``MjData``.

    Raises:
        SceneError: There is none where the known codebases keep theirs.
    """
    for model, data in _PATHS:
        if isinstance(_at(env.unwrapped, model), mujoco.MjModel) and isinstance(
            _at(env.unwrapped, data), mujoco.MjData
        ):
            return model, data
    looked = ", ".join(model for model, _ in _PATHS)
    raise SceneError(
        f"{type(env.unwrapped).__name__} has no MuJoCo model and data where robogen looks (as "
        f"{looked} of env.unwrapped). Only environments on MuJoCo can be adapted; give "
        "model_path=... and data_path=... if it keeps them elsewhere."
    )


class GymnasiumAdapter(Adapter):
    """A made Gymnasium environment, or one made from its id.

    Args:
        task: Id for ``gymnasium.make``; ignored when ``env`` is given.
        env: The environment.
        make: Keywords for ``gymnasium.make``.
        modules: Modules to import first, which register the id.
        success: Key of ``info``, or a function of the environment, that tells whether the task is
            done; None looks for :data:`SUCCESS_KEYS`.
        instruction: The task in words.
        tool: Body whose origin is the tool; None: the last body of the model's first arm is unknown
            to Gymnasium, so the world's origin stands in.
        rest: The action that means "stay"; None: zeros, within the action space.
        model_path: Attribute path from ``env.unwrapped`` to the model; None: looked for.
        data_path: The same for the data.
    """

    def __init__(
        self,
        task: str = "",
        *,
        env: Any = None,
        make: Mapping[str, Any] | None = None,
        modules: Sequence[str] = (),
        success: str | Callable[[Any], bool] | None = None,
        instruction: str = "",
        tool: str | None = None,
        rest: Sequence[float] | None = None,
        model_path: str | None = None,
        data_path: str | None = None,
    ) -> None:
        import importlib

        import gymnasium

        for module in modules:
            importlib.import_module(module)
        self._env = env if env is not None else gymnasium.make(task, **(make or {}))
        found = (model_path, data_path) if model_path and data_path else find_simulator(self._env)
        self._paths = found
        space = self._env.action_space
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise SceneError(
                f"{type(self._env.unwrapped).__name__} takes actions from {space}; only a flat Box "
                "of numbers can be adapted. Wrap the environment so that it takes one."
            )
        self._low, self._high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._dtype = space.dtype
        if rest is not None and np.shape(rest) != space.shape:
            raise ConfigError(
                f"rest must be an action of {space.shape[0]} numbers, got {rest!r}. Correct it, or "
                "leave it out for zeros."
            )
        self._rest = np.clip(np.zeros(space.shape) if rest is None else rest, self._low, self._high)
        bodies = [self.model.body(number).name for number in range(self.model.nbody)]
        if tool is not None and tool not in bodies:
            raise ConfigError(unknown("body for tool", tool, filter(None, bodies)))
        self._success = success
        self._words = instruction
        self._tool = tool
        self._done = False
        self._observation: Any = None

    @classmethod
    def tasks(cls) -> tuple[str, ...]:
        """Not known before their modules are imported: every id is tried."""
        return ()

    # -- the simulator ---------------------------------------------------------------------------

    @property
    def model(self) -> mujoco.MjModel:
        """The model, wherever the environment keeps it."""
        return _at(self._env.unwrapped, self._paths[0])

    @property
    def data(self) -> mujoco.MjData:
        """The state, wherever the environment keeps it."""
        return _at(self._env.unwrapped, self._paths[1])

    def specification(self) -> mujoco.MjSpec | None:
        """Read from the file that Gymnasium's own MuJoCo base class was made of."""
        file = getattr(self._env.unwrapped, "fullpath", None)
        if file is None or self._paths != ("model", "data"):
            return None
        return mujoco.MjSpec.from_file(str(file))

    def install(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Gymnasium's base class looks both up by attribute at every use."""
        inner: Any = self._env.unwrapped
        inner.model, inner.data = model, data

    # -- an episode ------------------------------------------------------------------------------

    def reset(self, start: Start) -> None:
        """``env.reset(seed=...)``."""
        self._observation, info = self._env.reset(seed=start.seed)
        self._done = self._judge(info, needed=False)

    def step(self, action: NDArray[np.float64], spec: ActionSpec) -> None:
        """``env.step``; what it says of termination and truncation is robogen's to decide."""
        del spec
        command = np.clip(action, self._low, self._high).astype(self._dtype)
        self._observation, _, _, _, info = self._env.step(command)
        self._done = self._judge(info, needed=True)

    def _judge(self, info: Mapping[str, Any], *, needed: bool) -> bool:
        if callable(self._success):
            return bool(self._success(self._env))
        keys = (self._success,) if isinstance(self._success, str) else SUCCESS_KEYS
        for key in keys:
            if key in info:
                return bool(info[key])
        if needed:
            raise SceneError(
                f"{type(self._env.unwrapped).__name__} does not say whether the task is done: info "
                f"has {', '.join(info) or 'nothing'}, looked for {', '.join(keys)}. Give success="
                "the key, or a function of the environment."
            )
        return False

    def success(self) -> bool:
        """As of the last step."""
        return self._done

    @property
    def instruction(self) -> str:
        """As given."""
        return self._words

    # -- conventions -----------------------------------------------------------------------------

    @property
    def action_modes(self) -> Mapping[ActionMode, int]:
        """The action space as it is."""
        return {"native": self._low.size}

    def rest(self, spec: ActionSpec) -> NDArray[np.float64]:
        """As given, else zeros."""
        del spec
        return self._rest.copy()

    def state(self) -> Mapping[str, NDArray[np.float64]]:
        """``native``: the environment's flat observation; of a dict, its flat numbers by key."""
        fresh = getattr(self._env.unwrapped, "_get_obs", None)
        now = fresh() if callable(fresh) else self._observation
        parts = [now[key] for key in sorted(now)] if isinstance(now, Mapping) else [now]
        flat = [np.asarray(part, np.float64) for part in parts if np.ndim(part) == 1]
        return {"native": np.concatenate(flat) if flat else np.zeros(0)}

    @property
    def tool(self) -> Pose:
        """Origin of the tool's body."""
        if self._tool is None:
            return Pose(np.zeros(3), np.eye(3))
        body = self.data.body(self._tool)
        return Pose(np.array(body.xpos), np.array(body.xmat).reshape(3, 3))

    def close(self) -> None:
        """Close the environment."""
        self._env.close()
