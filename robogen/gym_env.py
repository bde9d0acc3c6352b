"""Scenes as Gymnasium environments, with factors applied."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robogen.errors import ConfigError, unknown
from robogen.perturbations.base import ActionFilter
from robogen.perturbations.engine import Perturbation
from robogen.perturbations.library import available as factors_available
from robogen.perturbations.library import load_factor
from robogen.rollout.start import begin
from robogen.scenes.library import available as scenes_available
from robogen.scenes.load import load_scene
from robogen.seeding import EpisodeSeed
from robogen.specs import CameraSpec, Draw, RenderProfile, Split

STATE = ("eef_pos", "eef_rot6d", "gripper_opening")
"""Parts of the state that an environment observes unless told otherwise."""
_BOUND = 10.0
"""No number of a state gets as large: metres of an arm's reach, radians, rotation entries."""
_OPTIONS = ("episode", "perturbation", "severity", "split")

ObsType = dict[str, NDArray[Any]]


class SceneEnv(gymnasium.Env[ObsType, NDArray[np.float32]]):
    """One scene under one perturbation.

    ``reset(seed=s)`` starts episode 0 of study seed ``s``, the very episode that a study with this
    seed runs; ``reset()`` goes on to the next episode. Options of ``reset``: ``episode`` picks one,
    ``perturbation``, ``severity`` and ``split`` replace what the environment was made with.

    Observations hold one upright RGB frame (H, W, 3) uint8 per camera, and ``state`` (D,) float32.
    Actions are the scene's preferred mode, ``delta_eef`` (7,) in [-1, 1] for our own scenes, see
    :class:`robogen.specs.ActionSpec`. The reward is 1 on success, which terminates; the horizon
    truncates. ``info`` has ``instruction``, ``is_success``, ``progress``, ``draws``, ``episode``
    and ``diverged``.

    Args:
        scene: Scene name.
        perturbation: Factor name or names, ``all`` for every one that applies; None is nominal.
        severity: Dose of every factor, 0..1.
        split: Value pools of the factors.
        image_size: Edge of the frames [px].
        cameras: Cameras to observe; None: all that the scene offers policies.
        state: State parts to observe; None: of :data:`STATE`, what the scene offers.
        render: Render profile of the observations.
        render_mode: ``rgb_array`` to have :meth:`render` return frames.
        render_camera: What :meth:`render` shows; None: the scene's first camera for people.
        render_size: Width and height of :meth:`render` [px].
        overrides: Dotted keys of the scene file and their values.
        config_dirs: Folders with scenes and factors of your own.

    Raises:
        ConfigError: A name does not exist, or a value is out of range.
        FactorError: A factor asked for by name does not apply to the scene.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - the base class declares it so
        "render_modes": ["rgb_array"],
        "render_fps": 10,
    }

    def __init__(
        self,
        *,
        scene: str,
        perturbation: str | Sequence[str] | None = None,
        severity: float = 1.0,
        split: Split = "eval",
        image_size: int = 96,
        cameras: Sequence[str] | None = None,
        state: Sequence[str] | None = None,
        render: RenderProfile = "fast",
        render_mode: str | None = None,
        render_camera: str | None = None,
        render_size: tuple[int, int] = (320, 240),
        overrides: Mapping[str, Any] | None = None,
        config_dirs: Sequence[Path | str] = (),
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ConfigError(unknown("render_mode", str(render_mode), ("rgb_array",)))
        self._dirs = tuple(Path(folder) for folder in config_dirs)
        self.scene = load_scene(scene, overrides=overrides, extra=self._dirs)
        offered = self.scene.spec
        names = offered.cameras if cameras is None else tuple(cameras)
        self._cameras = tuple(
            CameraSpec(name=n, width=image_size, height=image_size) for n in names
        )
        for name in names:
            if name not in offered.cameras:
                raise ConfigError(unknown("camera", name, offered.cameras))
        parts = [part for part in STATE if part in offered.state] if state is None else state
        for part in parts:
            if part not in offered.state:
                raise ConfigError(unknown("state part", part, offered.state))
        self._state = tuple(parts)
        self._profile = render
        self._render_size = render_size
        people = self.scene.human_cameras
        self._render_camera = render_camera or (*people, *offered.cameras)[0]
        self.render_mode = render_mode
        self.metadata = {**type(self).metadata, "render_fps": round(offered.control_hz)}
        self.action_type = offered.action
        """Convention of the actions."""
        limit = 1.0 if self.action_type.mode.startswith("delta") else np.inf
        self.action_space = spaces.Box(-limit, limit, (self.action_type.dim,), np.float32)
        size = sum(offered.state[part] for part in self._state)
        observed = spaces.Dict(
            {
                **{n: spaces.Box(0, 255, (image_size, image_size, 3), np.uint8) for n in names},
                "state": spaces.Box(-_BOUND, _BOUND, (size,), np.float32),
            }
        )
        self.observation_space = cast(spaces.Space[ObsType], observed)
        self._study: int | None = None
        self._episode = -1
        self._step = 0
        self._filter: ActionFilter | None = None
        self._draws: dict[str, Draw] = {}
        self._instruction = ""
        self._condition: dict[str, Any] = {
            "perturbation": perturbation,
            "severity": severity,
            "split": split,
        }
        self.perturbation = self._perturb(self._condition)
        """Factors of the current condition."""

    def _perturb(self, condition: Mapping[str, Any]) -> Perturbation:
        asked, severity, split = (condition[k] for k in ("perturbation", "severity", "split"))
        everything = asked == "all"
        if everything:
            names = list(factors_available(self._dirs))
        else:
            names = [asked] if isinstance(asked, str) else list(asked or ())
        loaded = [(load_factor(name, extra_dirs=self._dirs), severity) for name in names]
        whole = Perturbation(loaded, split=split)
        _, facts = self.scene.prepare(self._seed(study=0, episode=0))
        reasons = whole.not_applicable(self.scene.world, facts)
        if reasons and not everything:
            name, reason = next(iter(reasons.items()))
            raise ConfigError(
                f"Factor '{name}' does not apply to scene '{self.scene.spec.name}': {reason}. "
                "Leave it out, or choose another scene."
            )
        return Perturbation([f for f in loaded if f[0].name not in reasons], split=split)

    def _seed(self, *, study: int, episode: int) -> EpisodeSeed:
        return EpisodeSeed(
            domain="evaluate", study=study, scene=self.scene.spec.name, episode=episode
        )

    # -- Gymnasium -------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsType, dict[str, Any]]:
        """Start an episode; see the class for seeds and options."""
        super().reset(seed=seed)
        options = dict(options or {})
        for key in options:
            if key not in _OPTIONS:
                raise ConfigError(unknown("option of reset", key, _OPTIONS))
        if seed is not None:
            self._study, self._episode = seed, 0
        elif self._study is None:
            self._study, self._episode = int(self.np_random.integers(2**31)), 0
        else:
            self._episode += 1
        self._episode = int(options.pop("episode", self._episode))
        condition = {**self._condition, **options}
        if condition != self._condition:
            self.perturbation = self._perturb(condition)
            self._condition = condition
        self._episode_seed = self._seed(study=self._study, episode=self._episode)
        self._step = 0
        self._draws, self._instruction, _ = begin(self.scene, self.perturbation, self._episode_seed)
        self._filter = self.perturbation.action_filter(
            self._draws, self.scene.rest_action(self.action_type)
        )
        return self._observe(), self._info(False, 0.0, True)

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[ObsType, float, bool, bool, dict[str, Any]]:
        """Execute one action for one control step."""
        command = np.asarray(action, dtype=np.float64)
        if self._filter is None:
            raise ConfigError("The environment has no episode yet. Call reset() before step().")
        if command.shape != self.action_space.shape or not np.isfinite(command).all():
            raise ConfigError(
                f"An action must be {self.action_space.shape} finite numbers, got {action!r}. "
                "Look for a missing axis or a NaN."
            )
        result = self.scene.step(self._filter(command), self.action_type)
        self._step += 1
        late = self._step >= self.scene.spec.horizon
        ended = result.success
        truncated = not ended and (late or not result.finite)
        info = self._info(ended, result.progress, result.finite)
        return self._observe(), float(ended), ended, truncated, info

    def _observe(self) -> ObsType:
        observation: ObsType = dict(self.scene.images(self._cameras, self._profile))
        if self.perturbation.has_image_filter:
            for name, image in observation.items():
                rng = self._episode_seed.stream("image", self._step, name)
                observation[name] = self.perturbation.filter_image(image, self._draws, rng)
        state = np.nan_to_num(self.scene.proprioception(self._state))
        observation["state"] = np.clip(state, -_BOUND, _BOUND)
        return observation

    def _info(self, success: bool, progress: float, finite: bool) -> dict[str, Any]:
        return {
            "instruction": self._instruction,
            "is_success": success,
            "progress": progress,
            "draws": copy.deepcopy(self._draws),
            "episode": self._episode,
            "diverged": not finite,
        }

    def render(self) -> NDArray[np.uint8] | None:
        """A frame (H, W, 3) uint8 for people, when made with ``render_mode="rgb_array"``."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() was called without a render_mode; give render_mode='rgb_array' to make()."
            )
            return None
        width, height = self._render_size
        return self.scene.render(
            self._render_camera, width=width, height=height, profile=self._profile
        )

    def expert_action(self) -> NDArray[np.float32]:
        """What the scene's oracle would do now (7,)."""
        pending = self._filter.pending() if self._filter is not None else []
        return self.scene.expert_action(self.action_type, pending).astype(np.float32)

    def close(self) -> None:
        """Free what the scene holds on the device."""
        self.scene.close()


def make(
    scene: str,
    perturbation: str | Sequence[str] | None = None,
    *,
    severity: float = 1.0,
    split: Split = "eval",
    image_size: int = 96,
    **settings: Any,
) -> SceneEnv:
    """A scene as a Gymnasium environment.

    Args:
        scene: Scene name.
        perturbation: Factor name or names, or ``all``; None is nominal.
        severity: Dose of every factor, 0..1.
        split: Value pools of the factors.
        image_size: Edge of the frames [px].
        settings: Further settings of :class:`SceneEnv`.
    """
    return SceneEnv(
        scene=scene,
        perturbation=perturbation,
        severity=severity,
        split=split,
        image_size=image_size,
        **settings,
    )


def register_envs(config_dirs: Sequence[Path | str] = ()) -> tuple[str, ...]:
    """Register every scene with Gymnasium as ``robogen/<scene>-v0``; again does no harm.

    Args:
        config_dirs: Folders with scenes of your own.

    Returns:
        All ids.
    """
    ids = []
    for name in scenes_available(Path(folder) for folder in config_dirs):
        ids.append(f"robogen/{name}-v0")
        if ids[-1] not in gymnasium.registry:
            gymnasium.register(
                ids[-1],
                entry_point="robogen.gym_env:SceneEnv",
                kwargs={"scene": name, "config_dirs": tuple(config_dirs)},
            )
    return tuple(ids)
