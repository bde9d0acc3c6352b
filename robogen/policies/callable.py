"""A plain Python function as a policy."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from robogen.errors import ConfigError, PolicyError
from robogen.policies.base import Policy, RowsFailed
from robogen.policies.declared import Declaration
from robogen.policies.library import imported
from robogen.specs import ActionSpec, Observation, ObservationSpec, PolicySpec, SceneSpec

Chunk = NDArray[np.float64]
_BASE = PolicySpec(observation=ObservationSpec(instruction=True), action=ActionSpec())


class CallablePolicy(Policy):
    """Calls ``function(images, state, instruction)``, which returns actions.

    For one episode, ``images`` maps camera names to frames, ``state`` is (D,), ``instruction`` a
    text, and the answer (chunk, dim), or (dim,) where the chunk is 1. With ``batched`` everything
    has a leading axis of episodes and instructions are a list; the number of rows is always the
    study's batch size, the last one repeated where there are fewer.

    Args:
        function: Dotted name of the function, or the function itself.
        batched: Whether it takes all episodes at once.
        cameras: Names under which the function finds images to the scene's cameras: a list where
            they are the same, else a mapping; null takes the scene's next one.
        size: Edge length or [width, height] [pixels] of cameras that do not say.
        state: State parts, in order.
        observation: Further conventions of observations: layout, pixels, orientation and so on.
        action: Conventions of actions.
        deterministic: Whether equal observations give bit-equal actions.

    Raises:
        ConfigError: There is no such function, or a convention is wrong.
    """

    pad: ClassVar[bool] = True

    def __init__(
        self,
        *,
        function: str | Callable[..., Any],
        batched: bool = False,
        cameras: Any = (),
        size: Any = 224,
        state: Sequence[str] = (),
        observation: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
        deterministic: bool = True,
    ) -> None:
        self._function = imported(function, "function") if isinstance(function, str) else function
        if not callable(self._function) or inspect.isclass(self._function):
            raise ConfigError(
                f"function must name a function f(images, state, instruction), got {function!r}. A "
                "policy class goes into `_target_` itself."
            )
        self._name = function if isinstance(function, str) else _name(function)
        if not isinstance(batched, bool):
            raise ConfigError(f"batched must be true or false, got {batched!r}.")
        self._batched = batched
        self._declared = Declaration.read(
            cameras=cameras,
            size=size,
            state=state,
            observation=observation,
            action=action,
            base=_BASE,
            deterministic=deterministic,
        )
        self._cameras: Mapping[str, str] = {key: key for key in self._declared.views}
        self.spec = self._declared.spec

    def fit(self, scene: SceneSpec) -> None:
        """Take cameras and rate that are left to the scene."""
        fitted = self._declared.fitted(scene)
        self.spec, self._cameras = fitted.spec, fitted.cameras

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> Chunk:
        """What the function returns.

        Raises:
            RowsFailed: It failed for some episodes and not for others.
            PolicyError: It returned something else than actions.
        """
        if self._batched:
            return self._together(observations)
        answers: dict[int, Chunk] = {}
        failures: dict[int, Exception] = {}
        for place, (row, seen) in enumerate(zip(rows, observations, strict=True)):
            if row < 0:  # padding, a repetition of the last one
                continue
            try:
                images = {key: seen.images[camera] for key, camera in self._cameras.items()}
                answer = self._function(images, seen.state, seen.instruction)
                answers[place] = self._checked(answer, ())
            except Exception as error:
                failures[place] = error
        if failures:
            raise RowsFailed(answers, failures)
        missing = [answers[len(answers) - 1]] * (len(rows) - len(answers))
        return np.stack([*answers.values(), *missing])

    def _together(self, observations: Sequence[Observation]) -> Chunk:
        images = {
            key: np.stack([seen.images[camera] for seen in observations])
            for key, camera in self._cameras.items()
        }
        state = np.stack([seen.state for seen in observations])
        words = [seen.instruction for seen in observations]
        return self._checked(self._function(images, state, words), (len(observations),))

    def _checked(self, answer: Any, lead: tuple[int, ...]) -> Chunk:
        """Actions (*lead, chunk, dim)."""
        action = self.spec.action
        wanted = (*lead, action.chunk, action.dim)
        try:
            chunk = np.asarray(answer, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise PolicyError(
                f"{self._name} returned a {type(answer).__name__}, which is no array of numbers "
                f"({error}). Return actions of shape {wanted}."
            ) from error
        if action.chunk == 1 and chunk.shape == (*lead, action.dim):
            chunk = chunk.reshape(wanted)
        if chunk.shape != wanted:
            told = "(chunk, dim)" if not lead else "(rows, chunk, dim)"
            raise PolicyError(
                f"{self._name} returned actions of shape {chunk.shape}, and its file promises "
                f"{wanted} {told}. Correct the function, or `action: {{chunk: , dim: }}`."
            )
        return chunk

    def identity(self) -> dict[str, str]:
        """The function's name, and a hash of the file it stands in."""
        try:
            file = inspect.getsourcefile(inspect.unwrap(self._function))
            content = Path(file).read_bytes() if file else b""
        except (TypeError, OSError):
            content = b""
        told = {"function": self._name}
        if content:
            told["source"] = hashlib.blake2b(content, digest_size=16).hexdigest()
        return told


def _name(function: Any) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '?')}.{name}"
