"""What lies in a folder that LeRobot's ``save_pretrained`` wrote, read without LeRobot.

A folder is refused here, before any weight is loaded, when it is not whole: LeRobot itself goes on
without statistics, and the policy then reads and commands unscaled numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from robogen.errors import PolicyError
from robogen.policies.lerobot_processors import (
    ACTION,
    MIGRATE,
    POSTPROCESSOR,
    PREPROCESSOR,
    STATE,
    Step,
    check_statistics,
    read_json,
    read_pipeline,
)

CONFIG = "config.json"
WEIGHTS = "model.safetensors"

_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")


class Horizon(NamedTuple):
    """What one query of a policy sees and returns, in control steps."""

    observations: int
    """Frames and states that reach the policy, the newest last."""
    chunk: int
    """Actions from the current step on."""
    execute: int
    """Actions that LeRobot executes of them: ``n_action_steps``."""


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A pretrained folder, checked."""

    path: Path
    kind: str
    """LeRobot's name of the policy type, e.g. ``act``."""
    config: Mapping[str, Any]
    cameras: Mapping[str, tuple[int, int]]
    """Image features in the policy's order: height and width."""
    state: int | None
    """Numbers in ``observation.state``; None when the policy reads none."""
    action: int
    horizon: Horizon
    pipelines: Mapping[str, tuple[Step, ...]]
    """Steps by file, empty where ``normalization=none`` accepted that there are none."""

    @property
    def renamed(self) -> dict[str, str]:
        """Image features of the training dataset by what the policy calls them."""
        return {
            str(new): str(old)
            for step in self.pipelines.get(PREPROCESSOR, ())
            for old, new in dict(step.config.get("rename_map") or {}).items()
        }

    def hash(self) -> str:
        """BLAKE2 hash of every file of the folder, by name and content."""
        digest = hashlib.blake2b(digest_size=16)
        for file in sorted(self.path.rglob("*")):
            name = file.relative_to(self.path)
            if file.is_file() and not any(part.startswith(".") for part in name.parts):
                with file.open("rb") as stream:
                    content = hashlib.file_digest(stream, "blake2b").digest()
                digest.update(name.as_posix().encode() + b"\0" + content)
        return digest.hexdigest()


def read_folder(path: Path, *, normalized: bool = True) -> Folder:
    """Read and check a pretrained folder.

    Args:
        path: The folder.
        normalized: Whether processors and their statistics must be there.

    Raises:
        PolicyError: Something is missing, unsafe, damaged, or of a kind that is not supported.
    """
    if not path.is_dir():
        _refuse_file(path)
    config = read_json(path / CONFIG, "the policy's configuration")
    kind = config.get("type")
    if not isinstance(kind, str):
        raise PolicyError(
            f'{path / CONFIG} names no policy type (`"type": "act"`), as LeRobot\'s do. Give the '
            "folder that LeRobot saved: .../checkpoints/last/pretrained_model."
        )
    _check_weights(path)
    inputs, outputs = (_features(path, config, f"{side}_features") for side in ("input", "output"))
    cameras = {}
    for name, (group, shape) in inputs.items():
        if group == "VISUAL" and len(shape) == 3 and shape[0] == 3:
            cameras[name] = (shape[1], shape[2])
        elif group == "VISUAL" or (group == "STATE" and name != STATE) or group == "ENV":
            raise PolicyError(
                f"{path} reads '{name}' {list(shape)} ({group}), which is neither an RGB camera "
                f"(3, H, W) nor {STATE}, and scenes offer nothing like it. Train without it."
            )
    if ACTION not in outputs or len(outputs[ACTION][1]) != 1:
        raise PolicyError(
            f"{path / CONFIG} names no output feature '{ACTION}' with one axis (it has "
            f"{', '.join(outputs) or 'none'}). Give a policy that commands actions."
        )
    state = inputs.get(STATE)
    files = (PREPROCESSOR, POSTPROCESSOR) if normalized else ()
    pipelines = {file: read_pipeline(path, file) for file in files}
    for file, steps in pipelines.items():
        check_statistics(path, file, steps)
    return Folder(
        path=path,
        kind=kind,
        config=config,
        cameras=cameras,
        state=None if state is None else int(np.prod(state[1])),
        action=outputs[ACTION][1][0],
        horizon=_horizon(path, kind, config),
        pipelines=pipelines,
    )


# -- config.json -----------------------------------------------------------------------------------


def _features(
    path: Path, config: Mapping[str, Any], key: str
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Features as group (VISUAL, STATE, ENV, ACTION, ...) and shape."""
    try:
        return {
            str(name): (str(value["type"]), tuple(int(size) for size in value["shape"]))
            for name, value in dict(config.get(key) or {}).items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise PolicyError(
            f"{path / CONFIG}: '{key}' must map names to type and shape, got "
            f"{config.get(key)!r}. Copy the folder again from where it came."
        ) from error


def _horizon(path: Path, kind: str, config: Mapping[str, Any]) -> Horizon:
    def number(key: str, default: int | None = None) -> int:
        value = config.get(key, default)
        if not isinstance(value, int) or value < 1:
            raise PolicyError(
                f"{path / CONFIG} of type '{kind}' has no usable '{key}' (got {value!r}). robogen "
                "runs LeRobot policies that predict chunks: act, diffusion, vqbet, and others with "
                "chunk_size and one observation step. Serve any other one with the openpi protocol."
            )
        return value

    observations = number("n_obs_steps", 1)
    if kind == "diffusion":
        chunk = number("horizon") - observations + 1
        found = Horizon(observations, chunk, number("n_action_steps"))
    elif kind == "vqbet":
        found = Horizon(observations, number("action_chunk_size"), number("action_chunk_size"))
    else:
        found = Horizon(observations, number("chunk_size"), number("n_action_steps"))
        if observations != 1:
            raise PolicyError(
                f"{path} reads {observations} observations per query, and how a LeRobot policy of "
                f"type '{kind}' takes its history is not known to robogen, only for diffusion and "
                "vqbet. Serve it with the openpi protocol instead."
            )
    if found.execute > found.chunk:
        raise PolicyError(
            f"{path / CONFIG}: n_action_steps is {found.execute}, and a query gives only "
            f"{found.chunk} actions from the current step on. Correct n_action_steps."
        )
    return found


# -- files -----------------------------------------------------------------------------------------


def _refuse_file(path: Path) -> NoReturn:
    if path.suffix in _PICKLES:
        raise PolicyError(f"{path} is {_unsafe(path)}")
    if path.is_file():
        raise PolicyError(
            f"{path} is a file; a LeRobot policy is the folder around it, with {CONFIG}, {WEIGHTS} "
            f"and the processors. Give {path.parent}."
        )
    raise PolicyError(
        f"There is no folder {path}. Give one that LeRobot saved, such as "
        "outputs/train/NAME/checkpoints/last/pretrained_model. A policy on the Hugging Face hub is "
        "downloaded first, `hf download OWNER/NAME --local-dir FOLDER`, or by adding download=true."
    )


def _unsafe(path: Path) -> str:
    return (
        f"a pickle or torch.save archive ({path.suffix}); loading it could run any code, so "
        f"robogen never does. LeRobot saves {WEIGHTS}: give that folder, or convert the weights to "
        "safetensors on a machine you trust them on."
    )


def _check_weights(path: Path) -> None:
    """Refuse weights that are missing, unsafe, damaged, or from before there were processors."""
    from safetensors import SafetensorError, safe_open

    file = path / WEIGHTS
    if not file.is_file():
        if (path / "adapter_config.json").is_file():
            raise PolicyError(
                f"{path} holds a PEFT adapter, not whole weights. Merge it into its base policy "
                f"(PeftModel.merge_and_unload) and save that with LeRobot, then give its folder."
            )
        unsafe = [entry for entry in sorted(path.iterdir()) if entry.suffix in _PICKLES]
        if unsafe:
            raise PolicyError(f"{path} has no {WEIGHTS}; {unsafe[0].name} is {_unsafe(unsafe[0])}")
        raise PolicyError(
            f"{path} has no {WEIGHTS}, the policy's weights. Copy the whole folder: "
            f"{CONFIG}, {WEIGHTS}, {PREPROCESSOR}, {POSTPROCESSOR} and their .safetensors."
        )
    try:
        with safe_open(file, framework="np") as archive:
            names = list(archive.keys())
    except (SafetensorError, OSError, ValueError) as error:
        raise PolicyError(
            f"{file} is truncated, damaged or no safetensors file ({error}). Copy it again from "
            "where it came; a Git LFS pointer is replaced by `git lfs pull`."
        ) from error
    old = [n for n in names if n.startswith(("normalize_inputs.", "unnormalize_outputs."))]
    if old:
        raise PolicyError(
            f"{path} was saved before LeRobot 0.4: its statistics lie among the weights "
            f"({old[0]}), where LeRobot no longer looks. Migrate it: {MIGRATE.format(path)}, and "
            "give the new folder."
        )
