"""A TorchScript module as a policy.

A TorchScript archive is a zip of weights and of code in TorchScript's own small language, which the
runtime of torch interprets: unlike a pickle it names no Python object to import or call. It is a
program all the same, so take it from people you trust. What ``torch.save`` writes is a pickle in a
zip, and what ``torch.export`` writes may hold one: both are refused by what is in them.
"""

from __future__ import annotations

import hashlib
import json
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from robogen.errors import ConfigError, PolicyError, unknown
from robogen.policies import text
from robogen.policies.base import Normalization, Policy
from robogen.policies.checkpoint import refused, unsafe
from robogen.policies.declared import Declaration
from robogen.specs import ActionSpec, Observation, ObservationSpec, PolicySpec, SceneSpec

Floats = NDArray[np.float64]
NONE = "none"
_KEYS = ("state_mean", "state_std", "action_low", "action_high")
_BASE = PolicySpec(
    observation=ObservationSpec(layout="chw", pixels="unit", instruction=True),
    action=ActionSpec(),
)


class Statistics(NamedTuple):
    """What a module's input and output are normalised with; None: not at all."""

    state_mean: Floats | None = None
    state_std: Floats | None = None
    action_low: Floats | None = None
    """What -1 stands for, per number of an action."""
    action_high: Floats | None = None
    """What 1 stands for."""


class TorchScriptPolicy(Policy):
    """Runs a TorchScript module on all episodes at once.

    The arguments of its ``forward`` are given by their names: those of ``cameras`` (frames of all
    episodes, (n, 3, H, W) floats in 0..1 unless ``observation`` says otherwise), ``state`` (n, D)
    float32, ``text`` (n, ``text_size``) float32 features of the instruction, and ``instruction``, a
    list of n texts. The answer is (n, chunk, dim), or (n, dim) where the chunk is 1. n is always
    the study's batch size, so a module may be traced for it.

    Args:
        checkpoint: The archive, from ``torch.jit.save``.
        cameras: Names of ``forward``'s arguments to the scene's cameras: a list where they are the
            same, else a mapping; null takes the scene's next one.
        size: Edge length or [width, height] [pixels] of cameras that do not say.
        state: State parts, in order.
        observation: Further conventions of observations: layout, pixels, orientation and so on.
        action: Conventions of actions.
        normalization: JSON file with ``state_mean``, ``state_std``, ``action_low`` and
            ``action_high``, lists of numbers; null: the archive's name with ``.json``. ``none``:
            the module takes and returns numbers as they are.
        text_size: Size of the instruction's features.
        deterministic: Whether equal observations give bit-equal actions.
        threads: Threads of torch in this process; a worker owns one core.

    Raises:
        PolicyError: The archive cannot be loaded, wants other arguments, or has no statistics.
        ConfigError: A convention is wrong.
    """

    pad: ClassVar[bool] = True

    def __init__(
        self,
        *,
        checkpoint: Path | str,
        cameras: Any = (),
        size: Any = 224,
        state: Sequence[str] = (),
        observation: Mapping[str, Any] | None = None,
        action: Mapping[str, Any] | None = None,
        normalization: Path | str | None = None,
        text_size: int = text.SIZE,
        deterministic: bool = True,
        threads: int = 1,
    ) -> None:
        torch.set_num_threads(threads)
        self._path = Path(checkpoint)
        self._module = load_module(self._path)
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
        self._text_size = text_size
        self._statistics, told = _statistics(self._path, normalization, self.spec)
        self._texts: dict[str, NDArray[np.float32]] = {}
        self._arguments = self._wanted()
        digest = hashlib.blake2b(self._path.read_bytes(), digest_size=16)
        self._identity = {"checkpoint": digest.hexdigest(), "normalization": told}

    def _wanted(self) -> tuple[str, ...]:
        """Names of ``forward``'s arguments that we give."""
        offered = [*self._declared.views, "text", "instruction"]
        offered += ["state"] if self.spec.observation.state else []
        names = []
        for argument in self._module.forward.schema.arguments[1:]:
            if argument.name in offered:
                names.append(argument.name)
            elif not argument.has_default_value():
                raise PolicyError(
                    f"{self._path}: forward wants "
                    + unknown("argument", argument.name, offered).removeprefix("Unknown ")
                    + " Name the policy's cameras as forward does, and list its state."
                )
        unused = [key for key in [*self._declared.views, "state"] if key not in names]
        if "state" in unused and not self.spec.observation.state:
            unused.remove("state")
        if unused:
            raise PolicyError(
                f"{self._path}: forward takes {', '.join(names) or 'nothing of ours'}, and the "
                f"policy's file gives it {', '.join(unused)} too. Remove that from the file, or "
                "name it as forward does."
            )
        return tuple(names)

    def fit(self, scene: SceneSpec) -> None:
        """Take cameras and rate that are left to the scene."""
        fitted = self._declared.fitted(scene)
        self.spec, self._cameras = fitted.spec, fitted.cameras

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> Floats:
        """Chunks of actions, un-normalised.

        Raises:
            PolicyError: The module failed, or returned something else than actions.
        """
        del rows
        inputs = {name: self._input(name, observations) for name in self._arguments}
        try:
            with torch.inference_mode():
                output = self._module(**inputs)
        except (RuntimeError, torch.jit.Error) as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            shapes = ", ".join(
                f"{name} {tuple(value.shape)}" if isinstance(value, torch.Tensor) else name
                for name, value in inputs.items()
            )
            raise PolicyError(
                f"{self._path} failed on {shapes}: {lines[-1] if lines else error!r}. A traced "
                "module takes the batch size it was traced with, which must be the study's "
                f"(`batch={len(observations)}`)."
            ) from error
        return self._unnormalized(self._checked(output, len(observations)))

    def _input(self, name: str, observations: Sequence[Observation]) -> Any:
        if name in self._cameras:
            frames = [seen.images[self._cameras[name]] for seen in observations]
            return torch.from_numpy(np.stack(frames))
        words = [seen.instruction for seen in observations]
        if name == "instruction":
            return words
        if name == "text":
            return torch.from_numpy(np.stack([self._features(one) for one in words]))
        state = np.stack([np.asarray(seen.state, np.float32) for seen in observations])
        known = self._statistics
        if known.state_mean is not None and known.state_std is not None:
            if state.shape[-1] != known.state_mean.size:
                raise PolicyError(
                    f"The statistics of {self._path} are for a state of {known.state_mean.size} "
                    f"numbers, and {', '.join(self.spec.observation.state)} has "
                    f"{state.shape[-1]}. Correct `state` or the statistics."
                )
            return torch.from_numpy(
                ((state - known.state_mean) / known.state_std).astype(np.float32)
            )
        return torch.from_numpy(state)

    def _features(self, instruction: str) -> NDArray[np.float32]:
        if instruction not in self._texts:
            self._texts[instruction] = text.features(instruction, size=self._text_size)
        return self._texts[instruction]

    def _checked(self, output: Any, rows: int) -> Floats:
        action = self.spec.action
        wanted = (rows, action.chunk, action.dim)
        if not isinstance(output, torch.Tensor):
            raise PolicyError(
                f"{self._path} returned a {type(output).__name__}; forward must return one tensor "
                f"of actions {wanted} (rows, chunk, dim)."
            )
        chunk = output.detach().to(torch.float64).cpu().numpy()
        if action.chunk == 1 and chunk.shape == (rows, action.dim):
            chunk = chunk[:, None]
        if chunk.shape != wanted:
            raise PolicyError(
                f"{self._path} returned actions of shape {chunk.shape} where its file promises "
                f"{wanted} (rows, chunk, dim). Correct `action: {{chunk: , dim: }}`, or trace the "
                f"module for the study's batch (`batch={rows}`)."
            )
        return chunk

    def _unnormalized(self, chunk: Floats) -> Floats:
        low, high = self._statistics.action_low, self._statistics.action_high
        if low is None or high is None:
            return chunk
        return np.asarray(low + 0.5 * (chunk + 1.0) * (high - low), dtype=np.float64)

    def identity(self) -> dict[str, str]:
        """Hash of the archive, and of the statistics."""
        return dict(self._identity)

    def normalization(self) -> Mapping[str, Normalization]:
        """The statistics of the JSON file; nothing where the module has its own."""
        known = self._statistics
        found = {}
        if known.state_mean is not None:
            found["state"] = Normalization(
                kind="mean_std", mean=known.state_mean, std=known.state_std
            )
        if known.action_low is not None:
            found["action"] = Normalization(
                kind="min_max", low=known.action_low, high=known.action_high
            )
        return found

    def round_trip(self, actions: Floats) -> Floats | None:
        """Through the statistics and back; None where there are none here."""
        low, high = self._statistics.action_low, self._statistics.action_high
        if low is None or high is None:
            return None
        return self._unnormalized(2.0 * (actions - low) / (high - low) - 1.0)


def load_module(path: Path) -> Any:
    """A TorchScript module in evaluation mode, on the CPU.

    Raises:
        PolicyError: The file is missing, damaged, or something else, a pickle above all.
    """
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise PolicyError(
            f"Cannot read {path} ({error.strerror or error}). Give a TorchScript archive, as "
            "torch.jit.save writes it."
        ) from error
    what = unsafe(head)
    if what is not None and _is_torchscript(path):
        what = None
    elif what is None:
        raise PolicyError(
            f"{path} is no TorchScript archive. Write one with `torch.jit.save(torch.jit.trace("
            "module, examples), path)`."
        )
    if what is not None:
        raise PolicyError(
            f"{refused(path, what)} To keep the architecture as well, save the module as "
            "TorchScript: `torch.jit.save(torch.jit.trace(module, examples), path)`."
        )
    try:
        with warnings.catch_warnings():
            # torch would rather have everybody export; an exported program may hold a pickle.
            warnings.simplefilter("ignore", DeprecationWarning)
            module = torch.jit.load(path, map_location="cpu")  # type: ignore[no-untyped-call]
        module.eval()
        module.forward.schema  # noqa: B018
    except (RuntimeError, AttributeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise PolicyError(
            f"{path} is a TorchScript archive that cannot be loaded ({reason}). Copy it again, or "
            "save it again with a torch no newer than this one's."
        ) from error
    return module


def _is_torchscript(path: Path) -> bool:
    """Whether a zip has TorchScript code in it, which ``torch.save`` never writes."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False
    return any("/code/" in name for name in names) and any(
        name.endswith("/constants.pkl") for name in names
    )


def _statistics(path: Path, given: Path | str | None, spec: PolicySpec) -> tuple[Statistics, str]:
    """Statistics, and what to say of them in the manifest."""
    if given is not None and str(given) == NONE:
        return Statistics(), NONE
    file = path.with_suffix(".json") if given is None else path.parent / given
    try:
        content = file.read_bytes()
        values = json.loads(content)
    except FileNotFoundError as error:
        raise PolicyError(
            f"{path} has no statistics beside it (looked for {file}), and a network that was "
            "trained on normalised numbers moves the arm wrongly without them and without any "
            f"error. Write {', '.join(_KEYS)} there as lists of numbers, or say `normalization: "
            "none` if the module takes and returns numbers as they are."
        ) from error
    except (OSError, ValueError) as error:
        raise PolicyError(f"Cannot read {file} as JSON ({error}). Correct it.") from error
    if not isinstance(values, Mapping):
        raise PolicyError(f"{file} must hold {', '.join(_KEYS)}, got a {type(values).__name__}.")
    for key in values:
        if key not in _KEYS:
            raise ConfigError(unknown(f"key in {file}", str(key), _KEYS, "Correct or remove it."))
    keys = _KEYS if spec.observation.state else _KEYS[2:]
    missing = [key for key in keys if key not in values]
    if missing:
        raise PolicyError(
            f"{file} lacks {', '.join(missing)}, and numbers are never silently left as they are. "
            "Write them; a mean of 0 and a deviation of 1, or -1 and 1, change nothing."
        )
    found = {key: _vector(values[key], file, key) for key in keys}
    known = Statistics(**found)
    dim = spec.action.dim
    assert known.action_low is not None
    assert known.action_high is not None
    if known.action_low.shape != (dim,) or known.action_high.shape != (dim,):
        raise PolicyError(
            f"{file}: action_low and action_high have {known.action_low.size} and "
            f"{known.action_high.size} numbers, an action has {dim}. Correct one of them."
        )
    if not (known.action_high > known.action_low).all():
        raise PolicyError(f"{file}: action_high must be above action_low everywhere. Correct it.")
    mean, std = known.state_mean, known.state_std
    if mean is not None and std is not None and (mean.shape != std.shape or not (std > 0).all()):
        raise PolicyError(f"{file}: state_std must hold {mean.size} numbers above 0. Correct it.")
    return known, hashlib.blake2b(content, digest_size=16).hexdigest()


def _vector(values: Any, file: Path, key: str) -> Floats:
    try:
        vector = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        vector = np.zeros(0)
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise PolicyError(f"{file}: {key} must be a list of finite numbers. Correct it.")
    return vector
