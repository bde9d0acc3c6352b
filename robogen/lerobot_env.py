"""Scenes as LeRobot evaluates them; LeRobot itself is not needed to make them.

``env.py`` on LeRobot's EnvHub, or in a folder, hands out :func:`make_env`. It returns vector
environments by suite and task, and ``lerobot-eval`` runs n episodes of each:

- A suite is a condition, named as in a study's records (``nominal``, ``camera_pose@0.5``), and a
  task is a scene, numbered in the order asked for: results by group are results by factor.
- LeRobot gives each of its episodes a seed of its own, counting up from ``--seed`` whatever the
  batch size. Here the seed *is* the episode: ``reset(seed=k)`` starts episode k of the study with
  the seed that :func:`make_env` was given, the very episode that ``robogen eval`` runs under k.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import get_all_start_methods
from typing import Any, Literal, NamedTuple, SupportsFloat, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from robogen.errors import ConfigError, SpecError, unknown
from robogen.gym_env import SceneEnv
from robogen.perturbations.library import Condition
from robogen.specs import Split

ObsType = dict[str, Any]
"""``pixels``: one (H, W, 3) uint8 frame by camera; ``agent_pos``: (D,) float32."""
_INFO = ("is_success", "progress", "episode", "diverged")
_SETTINGS = tuple(
    name for name in inspect.signature(SceneEnv).parameters if name not in ("scene", "render_mode")
)
_NOMINAL = "nominal"
_ALL = "all"


class LeRobotEnv(gymnasium.Env[ObsType, NDArray[np.float32]]):
    """One scene under one condition, with the observations that LeRobot expects.

    ``reset(seed=k)`` starts episode k of the study; ``reset()`` goes on to the next episode.
    Options of ``reset`` are ignored: LeRobot passes some of its own.

    Observations hold ``pixels``, one upright RGB frame (H, W, 3) uint8 per camera, and
    ``agent_pos`` (D,) float32, the scene's state. Actions (A,) are the scene's preferred mode,
    ``delta_eef`` (7,) in [-1, 1] for our own, see :class:`robogen.specs.ActionSpec`. The reward is
    1 on success, which terminates; the horizon truncates. ``info`` has ``is_success``,
    ``progress``, ``episode`` and ``diverged``.

    Args:
        scene: Scene name.
        perturbation: What varies: ``nominal`` or None, a factor name, several joined by ``+``, or
            ``all``.
        seed: Study seed.
        render_mode: See :class:`robogen.gym_env.SceneEnv`, also for further ``settings``.

    Raises:
        ConfigError: A name does not exist, or a value is out of range.
        FactorError: Two factors do not compose.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - the base class declares it so
        "render_modes": ["rgb_array"],
        "render_fps": 10,
    }

    def __init__(
        self,
        *,
        scene: str,
        perturbation: str | None = None,
        seed: int = 0,
        render_mode: str | None = "rgb_array",
        **settings: Any,
    ) -> None:
        for name in settings:
            if name not in _SETTINGS:
                raise ConfigError(unknown("setting", name, _SETTINGS))
        factors = _factors(perturbation)
        self.scene_env = SceneEnv(
            scene=scene, perturbation=factors, render_mode=render_mode, **settings
        )
        self.render_mode = render_mode
        self.task = scene
        """Name of the scene."""
        self.task_description = ""
        """The instruction of the current episode."""
        self.draws: Mapping[str, Any] = {}
        """What each factor drew for the current episode."""
        self._max_episode_steps = self.scene_env.scene.spec.horizon
        self.metadata = self.scene_env.metadata
        self._study = seed
        self._episode = -1
        seen = dict(cast(spaces.Dict, self.scene_env.observation_space).spaces)
        state = seen.pop("state")
        observed: dict[str, spaces.Space[Any]] = {}
        if seen:
            observed["pixels"] = spaces.Dict(seen)
        if state.shape != (0,):
            observed["agent_pos"] = state
        self.observation_space = cast(spaces.Space[ObsType], spaces.Dict(observed))
        self.action_space = self.scene_env.action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsType, dict[str, Any]]:
        """Start episode ``seed`` of the study, or the next one."""
        super().reset(seed=seed)
        self._episode = self._episode + 1 if seed is None else seed
        observation, info = self.scene_env.reset(
            seed=self._study, options={"episode": self._episode}
        )
        self.task_description, self.draws = info["instruction"], info["draws"]
        return self._shape(observation), {key: info[key] for key in _INFO}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[ObsType, SupportsFloat, bool, bool, dict[str, Any]]:
        """Execute one action (A,) for one control step."""
        observation, reward, ended, truncated, info = self.scene_env.step(action)
        kept = {key: info[key] for key in _INFO}
        return self._shape(observation), reward, ended, truncated, kept

    def _shape(self, observation: dict[str, NDArray[Any]]) -> ObsType:
        flat = dict(observation)
        parts = {"agent_pos": flat.pop("state"), "pixels": flat}
        return {key: parts[key] for key in cast(spaces.Dict, self.observation_space).spaces}

    def render(self) -> NDArray[np.uint8] | None:
        """A frame (H, W, 3) uint8 for people."""
        return self.scene_env.render()

    def expert_action(self) -> NDArray[np.float32]:
        """What the scene's oracle would do now (A,): tells an impossible task from a bad policy."""
        return self.scene_env.expert_action()

    def close(self) -> None:
        """Free what the scene holds on the device."""
        self.scene_env.close()


class _Resting(LeRobotEnv):
    """Repeats the end of an episode, without simulating, until a reset names another.

    LeRobot steps a batch until its slowest episode ends and leaves out what the others did since.
    Gymnasium's vectors reset a finished environment by themselves, without a seed: going on then
    would cost time, and which episode is next would depend on how fast the policy was.
    """

    _end: tuple[ObsType, SupportsFloat, bool, bool, dict[str, Any]] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsType, dict[str, Any]]:
        if seed is None and self._end is not None:
            return self._end[0], self._end[4]
        self._end = None
        return super().reset(seed=seed, options=options)

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[ObsType, SupportsFloat, bool, bool, dict[str, Any]]:
        if self._end is not None:
            return self._end
        observation, reward, ended, truncated, info = super().step(action)
        if ended or truncated:
            self._end = (observation, 0.0, ended, truncated, info)
        return observation, reward, ended, truncated, info


class _Late(VectorEnv[Any, Any, Any]):
    """Environments that exist from the first use to ``close()``, and again when used again.

    An evaluation has a vector for every suite and task, all made before the first one runs.
    """

    def __init__(self, makers: Sequence[Callable[[], gymnasium.Env[Any, Any]]]) -> None:
        probe = makers[0]()
        self._makers = makers
        self._starting = threading.Lock()
        self._next = 0
        self.num_envs = len(makers)
        self.metadata = {**probe.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = probe.render_mode
        self.single_action_space = probe.action_space
        self.action_space = batch_space(probe.action_space, self.num_envs)
        self.single_observation_space = probe.observation_space
        self.observation_space = batch_space(probe.observation_space, self.num_envs)
        self.closed = True
        probe.close()

    def _start(self) -> None:
        """Make the environments."""
        raise NotImplementedError

    def _wake(self) -> None:
        """Be there."""
        with self._starting:
            if self.closed:
                self.closed = False
                try:
                    self._start()
                except BaseException:
                    self.closed = True
                    raise

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start the episodes that are named, or the ones after those of the last call."""
        self._wake()
        if seed is None or isinstance(seed, int):
            first = self._next if seed is None else seed
            episodes = list(range(first, first + self.num_envs))
        else:
            episodes = [self._next + row if k is None else int(k) for row, k in enumerate(seed)]
        self._next = max(episodes) + 1
        return super().reset(seed=episodes, options=options)  # type: ignore[arg-type]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Execute one action in each, (n, A) in all."""
        self._wake()
        return super().step(actions)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """What a method of each returns, or an attribute of each."""
        self._wake()
        return cast(tuple[Any, ...], super().call(name, *args, **kwargs))  # type: ignore[misc]


class _Sync(_Late, SyncVectorEnv):
    """One after the other, in this process."""

    def _start(self) -> None:
        SyncVectorEnv.__init__(self, self._makers, autoreset_mode=AutoresetMode.SAME_STEP)


class _Async(_Late, AsyncVectorEnv):
    """A process each; never forked from one that draws."""

    def _start(self) -> None:
        context = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
        AsyncVectorEnv.__init__(
            self, self._makers, context=context, autoreset_mode=AutoresetMode.SAME_STEP
        )

    def _ensure(self) -> None:
        """LeRobot calls this ahead of time, from a thread, when the task before has ended."""
        self._wake()


def make_env(
    n_envs: int = 1,
    use_async_envs: bool = False,
    cfg: Any = None,
    *,
    scene: str | Sequence[str] = "pick",
    perturbation: str | Sequence[str] | None = None,
    severity: float = 1.0,
    split: Split = "eval",
    seed: int = 0,
    **settings: Any,
) -> dict[str, dict[int, VectorEnv[Any, Any, Any]]]:
    """Vector environments by suite (a condition) and task (a scene's place in ``scene``).

    Environments are made when first used, and a finished one repeats its last step, with reward 0,
    until the vector is reset: this is for evaluation, not for training loops.

    Args:
        n_envs: Episodes at a time.
        use_async_envs: A process for each; else one after the other in this process.
        cfg: LeRobot's configuration of the environment, if any. Attributes with the names of the
            arguments below replace them, unless None; ``task`` means ``scene``.
        scene: Scene names, as a list or with commas.
        perturbation: Conditions, as a list or with commas: ``nominal``, a factor, several factors
            at once joined by ``+``, ``all`` at once. None: nominal.
        severity: Dose of every factor, 0..1.
        split: Value pools of the factors.
        seed: Study seed, from which placements and draws follow.
        settings: Further settings of :class:`robogen.gym_env.SceneEnv`: ``image_size`` [px],
            ``cameras``, ``state``, ``render_size`` [px], ``config_dirs``, ...

    Raises:
        ConfigError: A name does not exist, or a value is out of range.
    """
    if n_envs < 1:
        raise ConfigError(f"n_envs must be at least 1, got {n_envs}. Give the episodes at a time.")
    asked = {"severity": severity, "split": split, "seed": seed, **settings, **_said(cfg)}
    scenes = _names("scene", asked.pop("scene", scene))
    conditions = _names("perturbation", asked.pop("perturbation", perturbation) or _NOMINAL)
    threads = getattr(cfg, "max_parallel_tasks", 1)
    if threads > 1 and not use_async_envs:
        raise ConfigError(
            f"Scenes of one process draw in one thread, got max_parallel_tasks={threads} without "
            "processes. Set it to 1, or set use_async_envs."
        )
    vector = _Async if use_async_envs and max(n_envs, threads) > 1 else _Sync
    suites: dict[str, dict[int, VectorEnv[Any, Any, Any]]] = {}
    for condition in conditions:
        suite = _suite(condition, asked["severity"], asked["split"])
        suites[suite] = {
            task: vector([partial(_Resting, scene=name, perturbation=condition, **asked)] * n_envs)
            for task, name in enumerate(scenes)
        }
    return suites


class Feature(NamedTuple):
    """One entry of what LeRobot calls the features of an environment."""

    kind: Literal["VISUAL", "STATE", "ACTION"]
    """Name of a member of LeRobot's ``FeatureType``."""
    shape: tuple[int, ...]
    """(H, W, 3) of a frame, (D,) of the state, (A,) of an action."""
    key: str
    """What the entry is called in a LeRobot policy."""


def features(scene: str | Sequence[str] = "pick", **settings: Any) -> dict[str, Feature]:
    """What a LeRobot policy reads and writes on these scenes, by name in the environment.

    Args:
        scene: Scene names, as a list or with commas.
        settings: Settings of :class:`robogen.gym_env.SceneEnv`, as for :func:`make_env`.

    Raises:
        SpecError: The scenes do not agree, so that no one policy fits them.
    """
    found: dict[str, dict[str, Feature]] = {}
    for name in _names("scene", scene):
        env = LeRobotEnv(scene=name, **settings)
        observed = cast(spaces.Dict, env.observation_space).spaces
        entries = {"action": Feature("ACTION", cast(Any, env.action_space.shape), "action")}
        if "agent_pos" in observed:
            shape = cast(tuple[int, ...], observed["agent_pos"].shape)
            entries["agent_pos"] = Feature("STATE", shape, "observation.state")
        for camera, frame in cast(Any, observed.get("pixels", {})).items():
            key = f"observation.images.{camera}"
            entries[key] = Feature("VISUAL", frame.shape, key)
        found[name] = entries
        env.close()
        first, expected = next(iter(found.items()))
        if entries != expected:
            raise SpecError(
                f"Scenes '{first}' and '{name}' differ in what a policy gets: {_text(expected)} "
                f"against {_text(entries)}. Evaluate them apart, or name cameras and state parts "
                "that both have."
            )
    return next(iter(found.values()))


def _names(what: str, value: str | Sequence[str]) -> list[str]:
    """A list of names, or a text with commas."""
    parts = value.split(",") if isinstance(value, str) else list(value)
    names = [part.strip() for part in parts if part.strip()]
    if not names or len(set(names)) < len(names):
        raise ConfigError(
            f"{what} must name at least one, each once, got {value!r}. Write 'a,b' or a list."
        )
    return names


def _factors(condition: str | None) -> str | list[str] | None:
    """What :class:`SceneEnv` calls a condition."""
    if condition in (None, _NOMINAL):
        return None
    return condition if condition == _ALL else str(condition).split("+")


def _suite(condition: str, severity: float, split: Split) -> str:
    """The condition's name in a study's records."""
    factors = _factors(condition)
    named = tuple(factors) if isinstance(factors, list) else ()
    everything = factors == _ALL
    return Condition(factors=named, severity=severity, split=split, everything=everything).id


def _said(cfg: Any) -> dict[str, Any]:
    """What LeRobot's configuration says of our arguments."""
    said = {name: getattr(cfg, name, None) for name in ("scene", "seed", *_SETTINGS)}
    said["scene"] = getattr(cfg, "task", None) or said["scene"]
    return {name: value for name, value in said.items() if value is not None}


def _text(entries: Mapping[str, Feature]) -> str:
    return ", ".join(f"{name} {feature.shape}" for name, feature in entries.items())
