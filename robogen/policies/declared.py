"""Conventions written in a policy's YAML file, as specs.

A policy that cannot say itself what it sees and commands (a server, a function, a bare network) is
described by plain mappings whose keys are the specs' own fields; what is not written keeps the
value of a base spec.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from robogen.errors import ConfigError, SpecError, nearest, unknown
from robogen.specs import (
    STATE_LAYOUT,
    ActionSpec,
    CameraSpec,
    Observation,
    ObservationSpec,
    PolicySpec,
    SceneSpec,
)

Spec = TypeVar("Spec", ObservationSpec, ActionSpec, CameraSpec)

_POSITIVE = ("width", "height", "dim", "chunk", "execute", "control_hz")
"""Numbers that must lie above 0, wherever they stand."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A declaration in one scene."""

    spec: PolicySpec
    cameras: Mapping[str, str]
    """The policy's name of a camera to the scene's."""


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """Conventions of a policy as its file declares them, before a scene is known."""

    views: Mapping[str, CameraSpec | None]
    """The policy's name of a camera to the scene's camera; None: the next one of the scene."""
    size: tuple[int, int]
    """Width and height of views that are None."""
    spec: PolicySpec
    """Its cameras are the views; names that are left to the scene are the policy's own."""
    rate: bool
    """Whether the file says a control rate; without one it is the scene's."""

    @classmethod
    def read(
        cls,
        *,
        cameras: Any,
        size: Any = 224,
        state: Any = (),
        observation: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
        base: PolicySpec | None = None,
        deterministic: bool = False,
    ) -> Declaration:
        """From the keys of a policy's file.

        Args:
            cameras: The policy's names to the scene's: a list of names that are both, or a mapping
                to a name, to null (the next camera of the scene), or to ``{camera: , width: ,
                height: , drawn: [width, height]}``.
            size: Edge length or [width, height] [pixels] of cameras that do not say.
            state: State parts, in order.
            observation: Further fields of :class:`~robogen.specs.ObservationSpec`.
            action: Fields of :class:`~robogen.specs.ActionSpec`; without ``control_hz``, or with
                null, the scene's rate is taken.
            base: What is not written.
            deterministic: Whether equal observations give bit-equal actions.

        Raises:
            ConfigError: A key or value is wrong.
        """
        base = base or PolicySpec(observation=ObservationSpec(), action=ActionSpec())
        edge = _size(size, "size")
        views = {key: _view(key, item, edge) for key, item in _views(cameras).items()}
        seen = observation_spec(observation, base=base.observation)
        if not isinstance(deterministic, bool):
            raise ConfigError(f"deterministic must be true or false, got {deterministic!r}.")
        width, height = edge
        seen = replace(
            seen,
            cameras=tuple(
                view or CameraSpec(name=key, width=width, height=height)
                for key, view in views.items()
            ),
            state=state_parts(state if state is not None else ()),
        )
        commands = action_spec(action, base=base.action)
        return cls(
            views=views,
            size=edge,
            spec=replace(base, observation=seen, action=commands, deterministic=deterministic),
            rate=(action or {}).get("control_hz") is not None,
        )

    def fitted(self, scene: SceneSpec) -> Fitted:
        """In a scene: views without a camera take the scene's, in its order.

        Raises:
            SpecError: The scene has no such camera, or too few.
        """
        named = [view.name for view in self.views.values() if view is not None]
        free = [name for name in scene.cameras if name not in named]
        found: dict[str, CameraSpec] = {}
        for key, view in self.views.items():
            if view is None:
                if not free:
                    raise SpecError(
                        f"The policy wants a camera for '{key}', and scene '{scene.name}' has no "
                        f"further one ({', '.join(scene.cameras) or 'none'}). Remove '{key}' from "
                        "the policy's cameras, or choose another scene."
                    )
                view = CameraSpec(name=free.pop(0), width=self.size[0], height=self.size[1])
            elif view.name not in scene.cameras:
                guess = nearest(view.name, scene.cameras) or next(iter(free), "CAMERA")
                raise SpecError(
                    f"Camera '{view.name}' is not in scene '{scene.name}' (it has "
                    f"{', '.join(scene.cameras) or 'none'}). Say which of them the policy's "
                    f"'{key}' is: `policy.NAME.cameras.{key}={guess}` with the policy's name, or "
                    f"`cameras: {{{key}: {guess}}}` in its file."
                )
            found[key] = view
            sizes = {other for other in found.values() if other.name == view.name}
            if len(sizes) > 1:
                raise SpecError(
                    f"Camera '{view.name}' is wanted in two sizes, and a policy has one frame of "
                    f"each camera. Give '{key}' the size of the other."
                )
        action = self.spec.action
        if not self.rate:
            action = replace(action, control_hz=scene.control_hz)
        unique = {view.name: view for view in found.values()}
        seen = replace(self.spec.observation, cameras=tuple(unique.values()))
        return Fitted(
            spec=replace(self.spec, observation=seen, action=action),
            cameras={key: view.name for key, view in found.items()},
        )


def _views(values: Any) -> Mapping[str, Any]:
    if values is None:
        return {}
    if isinstance(values, str):
        return {values: values}
    if isinstance(values, Sequence) and all(isinstance(name, str) for name in values):
        return {name: name for name in values}
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise ConfigError(
            "cameras must be names of the scene's cameras, `[front, wrist]`, or the policy's names "
            f"and the scene's, `{{image: front}}`; got {values!r}."
        )
    return values


def _view(key: str, value: Any, size: tuple[int, int]) -> CameraSpec | None:
    where = f"cameras.{key}"
    if value is None:
        return None
    if isinstance(value, str):
        return CameraSpec(name=value, width=size[0], height=size[1])
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{where} must be the name of a scene's camera, or a mapping with `camera`, `width`, "
            f"`height` and `drawn`; got {value!r}."
        )
    name = value.get("camera")
    if not isinstance(name, str):
        raise ConfigError(f"{where} must say `camera: NAME`, got {name!r}.")
    rest = {word: item for word, item in value.items() if word not in ("camera", "drawn")}
    drawn = value.get("drawn")
    return _filled(
        CameraSpec(
            name=name,
            width=size[0],
            height=size[1],
            drawn=None if drawn is None else _size(drawn, f"{where}.drawn"),
        ),
        rest,
        where,
        without=("name", "drawn"),
    )


def blank(spec: ObservationSpec, scene: SceneSpec) -> Observation:
    """Black frames and zeros of the shapes that a policy gets in a scene."""
    lead = () if spec.history == (0,) else (len(spec.history),)
    images = {}
    for camera in spec.cameras:
        plane = (camera.height, camera.width)
        shape = (3, *plane) if spec.layout == "chw" else (*plane, 3)
        kind = np.uint8 if spec.pixels == "uint8" else np.float32
        images[camera.name] = np.zeros((*lead, *shape), kind)
    state = np.zeros((*lead, sum(scene.state.get(part, 0) for part in spec.state)), np.float32)
    return Observation(images=images, state=state, instruction="do nothing", step=0)


def observation_spec(
    values: Mapping[str, Any] | None,
    *,
    base: ObservationSpec | None = None,
    where: str = "observation",
) -> ObservationSpec:
    """What a policy sees besides which cameras and state, from plain data.

    Args:
        values: Fields of :class:`~robogen.specs.ObservationSpec` without ``cameras`` and ``state``.
        base: What is not in ``values``.
        where: Name of the mapping in messages.

    Raises:
        ConfigError: A key or value is not one of the spec's.
    """
    base = base or ObservationSpec()
    rest = dict(_mapping(values, where))
    given: dict[str, Any] = {}
    if rest.get("history") is not None:
        given["history"] = _history(rest.pop("history"), f"{where}.history")
    spec = _filled(replace(base, **given), rest, where)
    if not 0.0 < spec.crop <= 1.0:
        raise ConfigError(f"{where}.crop must lie above 0 and up to 1, got {spec.crop:g}.")
    return spec


def action_spec(
    values: Mapping[str, Any] | None, *, base: ActionSpec | None = None, where: str = "action"
) -> ActionSpec:
    """How a policy's actions are read, from plain data.

    ``execute`` follows ``chunk`` where only that is written: the whole chunk is executed.

    Args:
        values: Fields of :class:`~robogen.specs.ActionSpec`.
        base: What is not in ``values``.
        where: Name of the mapping in messages.

    Raises:
        ConfigError: A key or value is not one of the spec's.
    """
    given = dict(_mapping(values, where))
    if given.get("chunk") is not None and given.get("execute") is None:
        given["execute"] = given["chunk"]
    spec = _filled(base or ActionSpec(), given, where)
    if spec.execute > spec.chunk:
        raise ConfigError(
            f"{where}.execute is {spec.execute}, more than the {spec.chunk} actions of a chunk. "
            f"Choose 1 to {spec.chunk}."
        )
    for name in ("scale_position", "scale_rotation"):
        if not getattr(spec, name) > 0:
            raise ConfigError(f"{where}.{name} must be above 0, got {getattr(spec, name):g}.")
    return spec


def state_parts(values: Any, *, where: str = "state") -> tuple[str, ...]:
    """Parts of the proprioceptive state, in order.

    Raises:
        ConfigError: One is unknown.
    """
    names = [values] if isinstance(values, str) else values
    if not isinstance(names, Sequence):
        raise ConfigError(f"{where} must be a list of state parts, got {values!r}.")
    for name in names:
        if name not in STATE_LAYOUT:
            raise ConfigError(
                unknown(f"state part in {where}", str(name), STATE_LAYOUT, "Correct or remove it.")
            )
    return tuple(names)


def _mapping(values: Any, where: str) -> Mapping[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} must be a mapping of keys, got {values!r}.")
    return values


def _filled(
    base: Spec, values: Mapping[str, Any], where: str, without: Sequence[str] = ("cameras", "state")
) -> Spec:
    hints = get_type_hints(type(base))
    names = [item.name for item in fields(base)]
    given = {}
    for name, value in values.items():
        if name not in names or name in without:
            if name in names:
                raise ConfigError(f"'{name}' stands beside {where}, not inside it. Move it there.")
            available = [known for known in names if known not in without]
            raise ConfigError(
                unknown(f"key in {where}", str(name), available, "Correct or remove it.")
            )
        if value is not None:
            given[name] = _checked(value, hints[name], f"{where}.{name}")
            if name in _POSITIVE and not given[name] > 0:
                raise ConfigError(f"{where}.{name} must be above 0, got {value!r}.")
    return replace(base, **given)


def _checked(value: Any, kind: Any, where: str) -> Any:
    """``value`` if it is of a field's type."""
    if get_origin(kind) in (Union, UnionType):
        kind = next(option for option in get_args(kind) if option is not NoneType)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ConfigError(
                unknown(f"value of {where}", str(value), get_args(kind), "Choose one of these.")
            )
        return value
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value, fits = float(value), True
    if not fits or (kind is float and not math.isfinite(value)):
        raise ConfigError(f"{where} must be {words[kind]}, got {value!r}.")
    return value


def _size(value: Any, where: str) -> tuple[int, int]:
    """Width and height."""
    pair = [value, value] if isinstance(value, int) else value
    whole = isinstance(pair, Sequence) and len(pair) == 2 and all(type(n) is int for n in pair)
    if not whole or isinstance(value, bool) or min(pair) < 1:
        raise ConfigError(
            f"{where} must be a size in pixels, an edge length or [width, height]; got {value!r}."
        )
    return pair[0], pair[1]


def _history(value: Any, where: str) -> tuple[int, ...]:
    offsets = [value] if isinstance(value, int) else value
    whole = isinstance(offsets, Sequence) and all(type(n) is int for n in offsets)
    if not whole or not offsets or sorted(set(offsets)) != list(offsets) or offsets[-1] != 0:
        raise ConfigError(
            f"{where} must be control-step offsets that rise and end in 0, e.g. [-1, 0]; got "
            f"{value!r}."
        )
    return tuple(offsets)
