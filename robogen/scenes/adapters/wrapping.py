"""``robogen.wrap``: an environment that somebody made, as a scene."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from robogen.errors import ConfigError, SceneError, unknown
from robogen.scenes.adapters.family import ROLES, FamilyConfig, Rewording
from robogen.scenes.adapters.gymnasium_env import GymnasiumAdapter
from robogen.scenes.adapters.scene import AdaptedScene
from robogen.scenes.library import validated
from robogen.specs import Orientation


def wrap(
    env: Any,
    *,
    roles: Mapping[str, str | Sequence[str]],
    cameras: Mapping[str, Literal["third_person", "wrist"]],
    name: str | None = None,
    instruction: str = "",
    paraphrases: Mapping[Literal["train", "eval"], Sequence[str]] | None = None,
    success: str | Callable[[Any], bool] | None = None,
    horizon: int | None = None,
    control_hz: float | None = None,
    tool: str | None = None,
    rest: Sequence[float] | None = None,
    arm: str | Sequence[str] = (),
    wide_m: float = 0.0,
    orientation: Orientation = "upright",
    render: Literal["native", "fast"] = "native",
    people: Sequence[str] = (),
    model_path: str | None = None,
    data_path: str | None = None,
) -> AdaptedScene:
    """Put a Gymnasium environment on MuJoCo under robogen's factors.

    The result goes wherever a scene goes: ``robogen.evaluate(scene=robogen.wrap(env, ...),
    policy=...)``. Frames come from robogen's own drawing of the environment's model, so pictures in
    the environment's observations are neither used nor perturbed.

    Args:
        env: The environment; ``env.unwrapped`` must hold an ``MjModel`` and an ``MjData``.
        roles: Shell-style name patterns by role: ``manipulated``, ``receiver``, ``fixture`` and
            ``robot`` name bodies; ``table``, ``floor`` and ``background`` name geoms, or bodies as
            ``body:NAME``; ``lights`` (default: all of them).
        cameras: Kind by name of each camera that policies may see.
        name: What records call it; default: from the environment's id or class.
        instruction: The task in words.
        paraphrases: Other wordings by split.
        success: Key of ``info``, or a function of the environment; default: ``is_success`` or
            ``success``.
        horizon: Longest episode in control steps; default: the environment's own.
        control_hz: Control rate [Hz]; default: from the environment's ``dt``.
        tool: Body whose origin is the tool.
        rest: The action that means "stay"; default: zeros.
        arm: Patterns of joints that ``robot_pose`` may move.
        wide_m: How far ``object_position`` moves manipulated objects at severity 1 [m].
        orientation: How its policies expect frames.
        render: ``native``, as the environment draws, or ``fast``.
        people: Cameras for people.
        model_path: Attribute path from ``env.unwrapped`` to its model, where robogen does not find
            it.
        data_path: The same for the data.

    Raises:
        SceneError: It is not on MuJoCo, a pattern matches nothing, or horizon or rate are unknown.
        ConfigError: An argument cannot have its value.
    """
    if not hasattr(env, "unwrapped"):
        raise ConfigError(
            f"robogen.wrap takes a made Gymnasium environment, got {env!r}. Make it first: "
            "gymnasium.make(...)."
        )
    adapter = GymnasiumAdapter(
        env=env,
        success=success,
        instruction=instruction,
        tool=tool,
        rest=rest,
        model_path=model_path,
        data_path=data_path,
    )
    registered = getattr(env, "spec", None)
    title = name or (registered.id if registered is not None else type(env.unwrapped).__name__)
    longest = horizon or (registered.max_episode_steps if registered is not None else None)
    if longest is None:
        raise SceneError(
            f"'{title}' does not say how long an episode may last. Give horizon= in control steps."
        )
    period = getattr(env.unwrapped, "dt", None)
    rate = control_hz or (1.0 / float(period) if period else None)
    if rate is None:
        raise SceneError(f"'{title}' does not say its control rate. Give control_hz=.")
    rules = []
    if paraphrases:
        said = {split: tuple(texts) for split, texts in paraphrases.items()}
        rules = [Rewording(match=re.escape(instruction), **said)]
    for role in roles:
        if role not in ROLES:
            raise ConfigError(unknown("role", role, ROLES))
    config = validated(
        FamilyConfig,
        {
            "adapter": f"{GymnasiumAdapter.__module__}.{GymnasiumAdapter.__name__}",
            "packages": ("gymnasium",),
            "control_hz": rate,
            "horizon": longest,
            "cameras": dict(cameras),
            "people": tuple(people),
            "orientation": orientation,
            "render": render,
            "roles": {role: _several(patterns) for role, patterns in roles.items()},
            "arm": _several(arm),
            "wide_m": wide_m,
            "rewordings": rules,
        },
        "robogen.wrap",
    )
    return AdaptedScene(f"wrapped/{title.replace('/', '_')}", adapter, config)


def _several(patterns: str | Sequence[str]) -> tuple[str, ...]:
    return (patterns,) if isinstance(patterns, str) else tuple(patterns)
