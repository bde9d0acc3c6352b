"""Which key of a request holds what: wire keys for cameras, state parts and the instruction.

Read from YAML by the client, told by a ``robogen serve`` in its metadata, and used in both
directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robogen.errors import ConfigError, SpecError, nearest, unknown
from robogen.policies.declared import state_parts
from robogen.policies.wire import WireError
from robogen.specs import CameraSpec, Observation, ObservationSpec

SIZE = 224
"""Edge of a frame [px] where a layout does not say."""
_PICTURE_KEYS = ("camera", "size", "drawn")


class Picture(NamedTuple):
    """A frame in a request."""

    camera: str
    size: tuple[int, int] | None
    """Width and height; None: as the policy wants it."""
    drawn: tuple[int, int] | None
    """Width and height it is rendered at before it is resized; None: as wanted."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Wire keys and what is behind them."""

    images: Mapping[str, Picture] = field(default_factory=dict)
    state: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """State parts of a key, one after the other."""
    prompt: str | None = "prompt"
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Constants that every request carries."""
    nested: bool = False
    """Whether a slash in a key means a map in a map."""

    @classmethod
    def read(
        cls,
        *,
        images: object = None,
        state: object = None,
        prompt: object = "prompt",
        extras: object = None,
        nested: object = False,
    ) -> Layout:
        """A layout from the keys of a file.

        Raises:
            ConfigError: Something is not of the form that docs/openpi.md describes.
        """
        if prompt is not None and not isinstance(prompt, str):
            raise ConfigError(f"prompt must be a key or null, got {prompt!r}. Correct it.")
        if not isinstance(nested, bool):
            raise ConfigError(f"nested must be true or false, got {nested!r}. Correct it.")
        layout = cls(
            images={key: _picture(key, item) for key, item in _mapping("images", images).items()},
            state={key: _parts(key, item) for key, item in _mapping("state", state).items()},
            prompt=prompt,
            extras={k: _constant(v) for k, v in _mapping("extras", extras).items()},
            nested=nested,
        )
        keys = [*layout.images, *layout.state, *layout.extras]
        keys += [] if prompt is None else [prompt]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ConfigError(f"The layout uses the key '{twice[0]}' twice. Rename one of them.")
        sizes: dict[str, object] = {}
        for picture in layout.images.values():
            if sizes.setdefault(picture.camera, picture[1:]) != picture[1:]:
                raise ConfigError(
                    f"The layout sends camera '{picture.camera}' in two sizes, and a policy has one"
                    " frame of each. Give both the same size."
                )
        return layout

    @classmethod
    def flat(cls, spec: ObservationSpec) -> Layout:
        """Robogen's own keys for what a policy reads."""
        return cls(
            images={
                f"observation/images/{c.name}": Picture(c.name, (c.width, c.height), c.drawn)
                for c in spec.cameras
            },
            state={"observation/state": spec.state} if spec.state else {},
            prompt="prompt" if spec.instruction else None,
        )

    def described(self) -> dict[str, Any]:
        """The arguments of :meth:`read` that give this layout, constants excepted."""
        return {
            "images": {
                key: {name: value for name, value in picture._asdict().items() if value is not None}
                for key, picture in self.images.items()
            },
            "state": {key: list(parts) for key, parts in self.state.items()},
            "prompt": self.prompt,
            "nested": self.nested,
        }

    # -- conventions -----------------------------------------------------------------------------

    def renamed(self, cameras: Mapping[str, str]) -> Layout:
        """With other scene cameras behind some keys.

        Raises:
            ConfigError: A key is not one of the images'.
        """
        for key in cameras:
            if key not in self.images:
                raise ConfigError(
                    unknown("image key in cameras", str(key), self.images, "Correct or remove it.")
                )
        images = {
            key: picture._replace(camera=str(cameras.get(key, picture.camera)))
            for key, picture in self.images.items()
        }
        return replace(self, images=images)

    def wanted(self, spec: ObservationSpec) -> ObservationSpec:
        """A policy's spec with the cameras, state parts and instruction of this layout."""
        cameras = {}
        for picture in self.images.values():
            width, height = picture.size or (SIZE, SIZE)
            cameras[picture.camera] = CameraSpec(
                name=picture.camera, width=width, height=height, drawn=picture.drawn
            )
        return replace(
            spec,
            cameras=tuple(cameras.values()),
            state=tuple(part for parts in self.state.values() for part in parts),
            instruction=self.prompt is not None,
        )

    def serving(self, spec: ObservationSpec) -> Layout:
        """This layout with a policy's sizes, whose requests hold all that the policy reads.

        Raises:
            SpecError: They do not, or in another size.
        """
        cameras = {camera.name: camera for camera in spec.cameras}
        problems = []
        for key, picture in self.images.items():
            camera = cameras.get(picture.camera)
            if camera is None:
                problems.append(f"'{key}' is for camera '{picture.camera}'")
            elif picture.size not in (None, (camera.width, camera.height)):
                problems.append(
                    f"'{key}' is {picture.size}, camera '{camera.name}' is "
                    f"{(camera.width, camera.height)}"
                )
        missing = set(cameras) - {picture.camera for picture in self.images.values()}
        problems += [f"no key is for camera '{name}'" for name in sorted(missing)]
        parts = [part for parts in self.state.values() for part in parts]
        if sorted(parts) != sorted(spec.state):
            problems.append(f"its state is {parts}")
        if spec.instruction and self.prompt is None:
            problems.append("no key is for the instruction")
        if problems:
            raise SpecError(
                f"The layout does not fit the served policy: {'; '.join(problems)}. The policy "
                f"reads cameras {', '.join(cameras) or 'none'} and state "
                f"{', '.join(spec.state) or 'none'}. Correct the layout."
            )
        images = {
            key: Picture(name, (cameras[name].width, cameras[name].height), cameras[name].drawn)
            for key, name in ((key, picture.camera) for key, picture in self.images.items())
        }
        return replace(self, images=images)

    # -- requests --------------------------------------------------------------------------------

    def message(self, observation: Observation, sizes: Mapping[str, int]) -> dict[str, Any]:
        """The request for one observation.

        Args:
            observation: As the harness made it for the spec of :meth:`wanted`.
            sizes: Numbers in each state part; looked at when several keys share the state.
        """
        flat: dict[str, Any] = {
            key: observation.images[picture.camera] for key, picture in self.images.items()
        }
        begin = 0
        for key, parts in self.state.items():
            end = None if len(self.state) == 1 else begin + sum(sizes[part] for part in parts)
            flat[key] = observation.state[..., begin:end]
            begin = end or 0
        if self.prompt is not None:
            flat[self.prompt] = observation.instruction
        flat |= self.extras
        return _nested(flat) if self.nested else flat

    def observation(
        self,
        message: Mapping[str, Any],
        spec: ObservationSpec,
        sizes: Mapping[str, int] | None,
        step: int,
    ) -> Observation:
        """What a request holds, as the served policy reads it.

        Args:
            message: A request.
            spec: What the policy reads.
            sizes: Numbers in each state part; None where nobody said, and then the state is one
                key, not checked.
            step: Control step, for policies that ask.

        Raises:
            WireError: A key is missing, or what is behind it has another form.
        """
        cameras = {camera.name: camera for camera in spec.cameras}
        images = {
            picture.camera: _frame(key, self._at(message, key), cameras[picture.camera], spec)
            for key, picture in self.images.items()
        }
        words = self._at(message, self.prompt) if self.prompt and spec.instruction else ""
        if isinstance(words, bytes):
            words = words.decode("utf-8", "replace")
        if not isinstance(words, str):
            raise WireError(f"'{self.prompt}' must be text, got a {type(words).__name__}")
        return Observation(
            images=images,
            state=self._state(message, spec, sizes),
            instruction=str(words),
            step=step,
        )

    def _at(self, message: Mapping[str, Any], key: str) -> Any:
        value: Any = message
        for name in key.split("/") if self.nested else [key]:
            if not isinstance(value, Mapping) or name not in value:
                there = [str(k) for k in message]
                guess = nearest(key, there)
                raise WireError(
                    f"The request has no '{key}'"
                    + (f" (it has '{guess}', which is near)" if guess else "")
                    + f"; it has {', '.join(there[:20]) or 'no keys'}"
                )
            value = value[name]
        return value

    def _state(
        self,
        message: Mapping[str, Any],
        spec: ObservationSpec,
        sizes: Mapping[str, int] | None,
    ) -> NDArray[np.float32]:
        lead = () if spec.history == (0,) else (len(spec.history),)
        found: dict[str, NDArray[np.float32]] = {}
        for key, parts in self.state.items():
            size = None if sizes is None else sum(sizes[part] for part in parts)
            values = _numbers(key, self._at(message, key), lead, size)
            if sizes is None:
                return values
            begin = 0
            for part in parts:
                found[part] = values[..., begin : begin + sizes[part]]
                begin += sizes[part]
        ordered = [found[part] for part in spec.state]
        return np.concatenate([np.zeros((*lead, 0), np.float32), *ordered], axis=-1)


def _frame(key: str, value: Any, camera: CameraSpec, spec: ObservationSpec) -> NDArray[Any]:
    """A frame in memory of its own, of exactly the form that the policy reads."""
    plane = (camera.height, camera.width)
    shape: tuple[int, ...] = (3, *plane) if spec.layout == "chw" else (*plane, 3)
    if spec.history != (0,):
        shape = (len(spec.history), *shape)
    kinds = "u" if spec.pixels == "uint8" else "f"
    if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype.kind not in kinds:
        got = (
            f"{value.shape} {value.dtype}"
            if isinstance(value, np.ndarray)
            else f"a {type(value).__name__}"
        )
        older = "" if spec.history == (0,) else f", of control steps {spec.history}, oldest first"
        raise WireError(
            f"'{key}' must be an array {shape} {spec.layout} {spec.channels} of "
            f"{'uint8' if spec.pixels == 'uint8' else 'floats in 0..1'}{older}, got {got}"
        )
    if spec.pixels == "unit" and not np.isfinite(value).all():
        raise WireError(f"'{key}' holds NaN or infinities")
    return np.array(value, np.uint8 if spec.pixels == "uint8" else np.float32, order="C")


def _numbers(key: str, value: Any, lead: tuple[int, ...], size: int | None) -> NDArray[np.float32]:
    try:
        values = np.array(value, np.float32)
    except (TypeError, ValueError):
        values = np.zeros((0, 0, 0), np.float32)
    values = values.reshape(1) if values.shape == () else values
    fits = values.ndim == len(lead) + 1 and values.shape[:-1] == lead
    if not fits or size not in (None, values.shape[-1]):
        wanted = (*lead, "n" if size is None else size)
        raise WireError(f"'{key}' must be numbers of shape {wanted}, got {np.shape(value)}")
    if not np.isfinite(values).all():
        raise WireError(f"'{key}' holds NaN or infinities")
    return values


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split("/")
        inner = whole
        for name in path:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return whole


# -- from YAML -------------------------------------------------------------------------------------


def _mapping(what: str, values: object) -> dict[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise ConfigError(f"{what} must map keys of the request, got {values!r}. Correct it.")
    return {str(key): value for key, value in values.items()}


def _picture(key: str, value: object) -> Picture:
    values = {"camera": value} if isinstance(value, str) else value
    if not isinstance(values, Mapping) or not isinstance(values.get("camera"), str):
        raise ConfigError(
            f"Image '{key}' must name a camera, e.g. {{camera: front, size: {SIZE}}}; got {value!r}"
            ". Correct it."
        )
    for name in values:
        if name not in _PICTURE_KEYS:
            raise ConfigError(unknown(f"key of image '{key}'", str(name), _PICTURE_KEYS))
    return Picture(
        values["camera"], _size(key, values.get("size")), _size(key, values.get("drawn"))
    )


def _size(key: str, value: object) -> tuple[int, int] | None:
    if value is None:
        return None
    pair = [value, value] if isinstance(value, int) else value
    if not isinstance(pair, Sequence) or len(pair) != 2:
        pair = [0]
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in pair):
        raise ConfigError(
            f"A size of image '{key}' must be pixels or [width, height], got {value!r}. Correct it."
        )
    return (pair[0], pair[1])


def _parts(key: str, value: Any) -> tuple[str, ...]:
    return state_parts(value, where=f"state '{key}'")


def _constant(value: Any) -> Any:
    """Lists of numbers are sent as arrays, as everything numeric is."""
    return np.array(value, np.float32) if isinstance(value, list) else value
