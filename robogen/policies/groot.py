"""NVIDIA Isaac GR00T behind its own inference server.

Two generations of the protocol are in use. ``nested`` (N1.6 and later) takes batches under
``video``, ``state`` and ``language`` and is answered with a pair of actions and remarks;
``batched_flat`` is the same with dotted keys, as its simulation wrapper takes them. ``flat`` (N1.5)
has dotted keys and no batch axis. How messages are written is :mod:`robogen.policies.groot_wire`'s.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robogen.errors import ConfigError, PolicyUnavailable, SpecError, unknown
from robogen.policies.base import Policy
from robogen.policies.declared import Declaration, blank, state_parts
from robogen.policies.groot_wire import Server, address
from robogen.policies.remote import (
    CallFailed,
    NoAnswer,
    RemotePool,
    chunk_of,
    gripper_decided,
)
from robogen.specs import ActionSpec, Observation, ObservationSpec, PolicySpec, SceneSpec

Protocol = Literal["nested", "batched_flat", "flat"]
PROTOCOLS: tuple[Protocol, ...] = ("nested", "batched_flat", "flat")
_SLICE = re.compile(r"(\w+)(?:\[(\d+)(?::(\d+))?\])?")
_BASE = PolicySpec(
    observation=ObservationSpec(instruction=True), action=ActionSpec(chunk=16, execute=8)
)


class _Piece(NamedTuple):
    """Numbers of a state part: all of it, or from ``begin`` on up to ``end``."""

    part: str
    begin: int | None
    end: int | None


class GR00TPolicy(Policy):
    """Asks one or several GR00T servers, each one question at a time.

    Args:
        servers: Address of the server, ``host:port``, or several that serve the same checkpoint.
        cameras: Video keys to the scene's cameras; null takes the scene's next one.
        state: State keys to parts of the scene's state: ``eef_pos``, a slice of one such as
            ``eef_pos[0]`` or ``joint_pos[0:5]``, or a list of those.
        actions: Action keys in the order in which they make an action, the gripper last.
        language: Key of the instruction.
        protocol: See the module.
        size: Edge length or [width, height] [pixels] of the images that are sent.
        observation: Further conventions of observations: orientation, crop, history and so on.
        action: Conventions of actions; ``chunk`` is the model's action horizon.
        binary_gripper: Whether the gripper is told to open or close fully, at the middle of its
            range.
        api_token_env: Environment variable that holds the server's API token.
        model: What is served, for the manifest: a server does not say.
        deadline_s: Longest wait for one answer [s].
        retries: Further tries of a question that got none.
        backoff_s: Wait before the second try [s]; doubles with each further one.
        deterministic: Whether equal observations give bit-equal actions; its flow starts from
            noise, so they do not.

    Raises:
        ConfigError: A parameter is wrong, or a package is not installed.
    """

    practical: ClassVar[frozenset[str]] = frozenset(
        {"servers", "api_token_env", "deadline_s", "retries", "backoff_s"}
    )

    def __init__(
        self,
        *,
        servers: str | Sequence[str],
        cameras: Any,
        state: Mapping[str, Any] | None,
        actions: Sequence[str],
        language: str = "annotation.human.task_description",
        protocol: Protocol = "nested",
        size: Any = 224,
        observation: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
        binary_gripper: bool = False,
        api_token_env: str | None = None,
        model: str | None = None,
        deadline_s: float = 20.0,
        retries: int = 4,
        backoff_s: float = 0.2,
        deterministic: bool = False,
    ) -> None:
        if protocol not in PROTOCOLS:
            raise ConfigError(unknown("protocol", str(protocol), PROTOCOLS, "Choose one of these."))
        if isinstance(deadline_s, bool) or not 0 < deadline_s < math.inf:
            raise ConfigError(f"deadline_s must be above 0 seconds, got {deadline_s!r}.")
        names = [actions] if isinstance(actions, str) else list(actions or ())
        if not names or not all(isinstance(name, str) for name in names):
            raise ConfigError(
                f"actions must list the model's action keys in order, the gripper last, got "
                f"{actions!r}. `get_modality_config` of the server names them."
            )
        self._protocol = protocol
        self._language = language
        self._actions = tuple(name.removeprefix("action.") for name in names)
        self._pieces = {
            key.removeprefix("state."): _pieces(key, item) for key, item in (state or {}).items()
        }
        self._slices: Mapping[str, list[slice]] = {}
        self._binary_gripper = binary_gripper
        self._model = model
        pieces = [piece for item in self._pieces.values() for piece in item]
        self._declared = Declaration.read(
            cameras={
                key.removeprefix("video."): item
                for key, item in (cameras.items() if isinstance(cameras, Mapping) else ())
            }
            or cameras,
            size=size,
            state=tuple(dict.fromkeys(piece.part for piece in pieces)),
            observation=observation,
            action=action,
            base=_BASE,
            deterministic=deterministic,
        )
        seen = self._declared.spec.observation
        if (seen.layout, seen.pixels) != ("hwc", "uint8"):
            raise ConfigError(
                "GR00T's server takes frames as rows of uint8 pixels: layout must be hwc and "
                f"pixels uint8, got {seen.layout} and {seen.pixels}. Remove them from "
                "`observation`."
            )
        self._cameras: Mapping[str, str] = {key: key for key in self._declared.views}
        self.spec = self._declared.spec
        token = None if api_token_env is None else os.environ.get(api_token_env)
        if api_token_env is not None and not token:
            raise ConfigError(
                f"The environment variable {api_token_env}, which api_token_env names, is not set. "
                "Set it to the server's API token, or remove api_token_env."
            )
        alone = isinstance(servers, str) or not isinstance(servers, Sequence)
        addresses = [servers] if alone else servers
        ends = [Server(address(one), deadline_s=deadline_s, token=token) for one in addresses]
        self._pool: RemotePool[Server, Mapping[str, Any]] = RemotePool(
            endpoints=ends,
            exchange=self._exchange,
            retries=retries,
            backoff_s=backoff_s,
            what="GR00T server",
        )

    def fit(self, scene: SceneSpec) -> None:
        """Take cameras and rate that are left to the scene; compare keys with the server's.

        Raises:
            PolicyUnavailable: Nothing listens at any address.
            SpecError: The server's model has other keys or another horizon, or a slice lies outside
                the scene's state.
            PolicyError: A first question found no usable answer.
        """
        fitted = self._declared.fitted(scene)
        self.spec, self._cameras = fitted.spec, fitted.cameras
        if set(self.spec.observation.state) - set(scene.state):
            return  # the comparison of specs says so, for all parts at once
        self._slices = _slices(self._pieces, self.spec.observation.state, scene)
        self._greet()
        self._pool.try_out(self._request(blank(self.spec.observation, scene)))

    def _greet(self) -> None:
        absent = []
        for server in self._pool.endpoints:
            try:
                server.call("ping")
                modalities = server.call("get_modality_config")
            except NoAnswer as error:
                absent.append(str(error))
            except CallFailed:
                pass  # has no such endpoint; the first question tells more
            else:
                self._compare(modalities, str(server))
        if len(absent) == len(self._pool.endpoints):
            raise PolicyUnavailable(
                f"No GR00T server answers: {' '.join(absent)} Start it (`python "
                "gr00t/eval/run_gr00t_server.py` or `scripts/inference_service.py --server` in "
                "GR00T's environment), or correct the policy's `servers`."
            )

    def _compare(self, modalities: Any, source: str) -> None:
        """The model's own keys and horizons with those declared here."""
        told = modalities if isinstance(modalities, Mapping) else {}
        spec = self.spec
        declared: dict[str, tuple[set[str], int]] = {
            "video": (set(self._cameras), len(spec.observation.history)),
            "state": (set(self._pieces), len(spec.observation.history)),
            "action": (set(self._actions), spec.action.chunk),
            "language": ({self._language}, 1),
        }
        problems = []
        for kind, (keys, length) in declared.items():
            about = told.get(kind)
            if not isinstance(about, Mapping):
                continue
            theirs = {str(key).removeprefix(f"{kind}.") for key in about.get("modality_keys") or ()}
            if theirs and theirs != keys:
                problems.append(
                    f"{kind} keys are {', '.join(sorted(keys)) or 'none'} here and "
                    f"{', '.join(sorted(theirs))} there"
                )
            steps = about.get("delta_indices")
            if isinstance(steps, Sequence) and len(steps) != length and (theirs or keys):
                name = "chunk" if kind == "action" else "history"
                problems.append(f"{name} of {kind} is {length} here and {len(steps)} there")
        if problems:
            raise SpecError(
                f"The policy's file does not fit the model at {source}: {'; '.join(problems)}. "
                "Correct cameras, state, actions, language, action.chunk or observation.history."
            )

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> NDArray[np.float64]:
        """Chunks of actions as the servers answered."""
        del rows
        chunks = np.stack(self._pool.ask([self._request(seen) for seen in observations]))
        return gripper_decided(chunks, self.spec.action) if self._binary_gripper else chunks

    def identity(self) -> dict[str, str]:
        """The keys, and what the user says is served."""
        state = {
            key: [piece.part + _range(piece) for piece in item]
            for key, item in self._pieces.items()
        }
        told = {} if self._model is None else {"model": self._model}
        return {
            "protocol": self._protocol,
            "actions": ", ".join(self._actions),
            "state": "; ".join(f"{key}: {', '.join(parts)}" for key, parts in state.items()),
            "language": self._language,
            "binary_gripper": str(self._binary_gripper),
        } | told

    def close(self) -> None:
        """Close the sockets."""
        for server in self._pool.endpoints:
            server.close()

    def _request(self, seen: Observation) -> Mapping[str, Any]:
        """The data of a ``get_action`` request."""
        still = self.spec.observation.history == (0,)
        batched = self._protocol != "flat"

        def shaped(array: NDArray[Any]) -> NDArray[Any]:
            timed = array[None] if still else array
            return np.ascontiguousarray(timed[None] if batched else timed)

        state = np.asarray(seen.state, np.float32)
        video = {key: shaped(seen.images[camera]) for key, camera in self._cameras.items()}
        numbers = {
            key: shaped(np.concatenate([state[..., where] for where in slices], axis=-1))
            for key, slices in self._slices.items()
        }
        words = [seen.instruction]
        if self._protocol == "nested":
            nested = {"video": video, "state": numbers, "language": {self._language: [words]}}
            return {"observation": nested, "options": None}
        flat: dict[str, Any] = {f"video.{key}": array for key, array in video.items()}
        flat |= {f"state.{key}": array for key, array in numbers.items()}
        flat[self._language] = words
        return {"observation": flat, "options": None} if batched else flat

    def _exchange(self, server: Server, data: Mapping[str, Any]) -> NDArray[np.float64]:
        reply = server.call("get_action", data)
        if self._protocol != "flat" and isinstance(reply, Sequence) and len(reply) == 2:
            reply = reply[0]
        if not isinstance(reply, Mapping):
            raise CallFailed(
                f"{server} replied with a {type(reply).__name__} where a mapping of action keys "
                f"belongs. Is the protocol '{self._protocol}' the server's?"
            )
        parts = []
        for key in self._actions:
            found = reply.get(key, reply.get(f"action.{key}"))
            if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiu":
                raise CallFailed(
                    f"{server} replied without numbers for the action '{key}'; it has "
                    f"{', '.join(map(str, list(reply)[:20])) or 'nothing'}. Correct `actions`."
                )
            part = found
            if self._protocol != "flat":
                part = part[0] if part.ndim and len(part) == 1 else part[:0]
            parts.append(part[:, None] if part.ndim == 1 else part)
        lengths = {part.shape[:1] for part in parts}
        if len(lengths) > 1 or any(part.ndim != 2 for part in parts):
            shapes = ", ".join(
                f"{k} {reply.get(k, reply.get(f'action.{k}')).shape}" for k in self._actions
            )
            raise CallFailed(
                f"{server} replied with actions of shapes that make no chunk: {shapes}. Is the "
                f"protocol '{self._protocol}' the server's?"
            )
        return chunk_of(np.concatenate(parts, axis=1), self.spec.action, str(server))


def _pieces(key: str, value: Any) -> tuple[_Piece, ...]:
    """What a state key is made of."""
    items = [value] if isinstance(value, str) else value
    found = []
    for item in items if isinstance(items, Sequence) else [items]:
        match = _SLICE.fullmatch(item.replace(" ", "")) if isinstance(item, str) else None
        if match is None:
            raise ConfigError(
                f"state.{key} must be a state part or a slice of one, such as eef_pos, eef_pos[0] "
                f"or joint_pos[0:5], or a list of those; got {item!r}."
            )
        (part,) = state_parts([match[1]], where=f"state.{key}")
        begin = None if match[2] is None else int(match[2])
        end = int(match[3]) if match[3] else None if begin is None else begin + 1
        found.append(_Piece(part, begin, end))
    if not found:
        raise ConfigError(f"state.{key} names no state part. Name one, or remove it.")
    return tuple(found)


def _range(piece: _Piece) -> str:
    return "" if piece.begin is None else f"[{piece.begin}:{piece.end}]"


def _slices(
    pieces: Mapping[str, Sequence[_Piece]], parts: Sequence[str], scene: SceneSpec
) -> dict[str, list[slice]]:
    """Where each piece lies in the state that the harness hands over."""
    begins, place = {}, 0
    for part in parts:
        begins[part] = place
        place += scene.state[part]
    found: dict[str, list[slice]] = {}
    for key, items in pieces.items():
        for part, begin, end in items:
            size = scene.state[part]
            first, last = begin or 0, size if end is None else end
            if not 0 <= first < last <= size:
                raise SpecError(
                    f"state.{key} is {part}[{first}:{last}], and {part} has {size} numbers in "
                    f"scene '{scene.name}'. Correct the slice."
                )
            found.setdefault(key, []).append(slice(begins[part] + first, begins[part] + last))
    return found
