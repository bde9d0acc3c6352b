"""Processor pipelines of a pretrained folder and their statistics, read without LeRobot.

LeRobot passes numbers as they are where a statistic is missing; here that is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robogen.errors import PolicyError
from robogen.policies.base import Normalization

PREPROCESSOR = "policy_preprocessor.json"
POSTPROCESSOR = "policy_postprocessor.json"
STATE = "observation.state"
ACTION = "action"

_NORMALIZERS = {PREPROCESSOR: "normalizer_processor", POSTPROCESSOR: "unnormalizer_processor"}
_CLASSES = {
    "NormalizerProcessorStep": "normalizer_processor",
    "UnnormalizerProcessorStep": "unnormalizer_processor",
}
"""Names under which LeRobot registers the steps of these classes; a file may say either."""
_NEEDED = {
    "MEAN_STD": ("mean", "std"),
    "MIN_MAX": ("min", "max"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
}
_KINDS: Mapping[str, Any] = {
    "MEAN_STD": "mean_std", "MIN_MAX": "min_max", "QUANTILES": "quantiles", "IDENTITY": "identity",
}  # fmt: skip
_ACCEPT = "normalization=none loads it with numbers as they are"
MIGRATE = (
    "python -m lerobot.processor.migrate_policy_normalization --pretrained-path {0} "
    "--output-dir {0}-migrated"
)

Stats = Mapping[str, Mapping[str, NDArray[np.float64]]]
"""Statistics by feature, e.g. ``observation.state`` to ``mean`` and ``std``."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a processor pipeline."""

    name: str
    config: Mapping[str, Any]
    stats: Stats = field(default_factory=dict)


def read_pipeline(path: Path, file: str) -> tuple[Step, ...]:
    """Steps of one pipeline with their statistics.

    Raises:
        PolicyError: The file or one that it names is missing, unsafe or damaged.
    """
    if not (path / file).is_file():
        raise PolicyError(
            f"{path} has no {file}, so its numbers would reach the policy or the robot without "
            f"normalisation. Copy it from where the folder came. A checkpoint from before LeRobot "
            f"0.4 is migrated: {MIGRATE.format(path)}. Or accept it: {_ACCEPT}."
        )
    steps = read_json(path / file, "a processor pipeline").get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise PolicyError(
            f"{path / file} lists no steps. Copy the folder again from where it came."
        )
    return tuple(_step(path, file, step) for step in steps)


def _step(path: Path, file: str, step: Mapping[str, Any]) -> Step:
    name = str(step.get("registry_name") or step.get("class") or "")
    if "registry_name" not in step and not name.startswith("lerobot."):
        # LeRobot imports and calls whatever this names, with whatever arguments the file has.
        raise PolicyError(
            f"{path / file} asks for a step of class '{name}' outside LeRobot, which loading would "
            "run. Register the step with LeRobot's ProcessorStepRegistry and save the folder again."
        )
    config = step.get("config") or {}
    if not isinstance(config, dict):
        raise PolicyError(
            f"{path / file}: the configuration of its step '{name}' is {config!r}. Copy the folder "
            "again from where it came."
        )
    stats: dict[str, dict[str, NDArray[np.float64]]] = {}
    state = step.get("state_file")
    if state is not None:
        place = path / str(state)
        if place.parent.resolve() != path.resolve():
            raise PolicyError(f"{path / file} names a state file outside its folder: {state}.")
        for key, array in _arrays(place, file).items():
            feature, _, stat = key.rpartition(".")
            stats.setdefault(feature, {})[stat] = array
    return Step(name=_CLASSES.get(name.rpartition(".")[2], name), config=config, stats=stats)


def _arrays(place: Path, file: str) -> dict[str, NDArray[np.float64]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not place.is_file():
        raise PolicyError(
            f"{place.parent} has no {place.name}, the statistics that {file} names, and without "
            "them LeRobot would look for the file on the hub. Copy it from where the folder came. "
            f"Or accept it: {_ACCEPT}."
        )
    try:
        return {key: np.asarray(value, np.float64) for key, value in load_file(place).items()}
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise PolicyError(
            f"{place} is truncated or damaged ({error}). Copy it again from where it came."
        ) from error


def check_statistics(path: Path, file: str, steps: tuple[Step, ...]) -> None:
    """Refuse a pipeline that leaves a feature unscaled which its configuration scales.

    Raises:
        PolicyError: There is no normalising step, or it lacks a statistic.
    """
    if not any(_normalises(file, step) for step in steps):
        raise PolicyError(
            f"{path / file} has no normalising step (it has "
            f"{', '.join(step.name for step in steps) or 'no steps'}), so numbers would pass as "
            "they are. Save the folder again with the dataset's statistics. Or accept it: "
            f"{_ACCEPT}."
        )
    for step in steps:
        if step.name != _NORMALIZERS[file]:
            continue
        for feature, mode in _scaled(path, file, step).items():
            have = step.stats.get(feature, {})
            missing = [stat for stat in _NEEDED.get(mode, ()) if stat not in have]
            if missing:
                raise PolicyError(
                    f"{path / file} normalises '{feature}' by {mode} and has no "
                    f"{' and '.join(missing)} for it, so LeRobot would pass the numbers as they "
                    "are. Save the folder again with the dataset's statistics "
                    "(make_pre_post_processors(config, dataset_stats=...)). Or accept it: "
                    f"{_ACCEPT}."
                )


def _normalises(file: str, step: Step) -> bool:
    """Whether a step scales numbers: LeRobot's own, or a model's that brings numbers for it."""
    if step.name == _NORMALIZERS[file]:
        return True
    return "normaliz" in step.name.lower() and bool(step.stats or step.config)


def _scaled(path: Path, file: str, step: Step) -> dict[str, str]:
    """Features that a normalising step acts on when a policy is run, and how."""
    try:
        modes = {str(group): str(mode) for group, mode in dict(step.config["norm_map"]).items()}
        groups = {str(n): str(f["type"]) for n, f in dict(step.config["features"]).items()}
        keys = step.config.get("normalize_observation_keys")
        wanted = set(groups) if keys is None else set(keys)
    except (KeyError, TypeError, ValueError) as error:
        raise PolicyError(
            f"{path / file}: its step '{step.name}' has no usable features and norm_map "
            f"({error!r}). Copy the folder again from where it came."
        ) from error
    if file == POSTPROCESSOR:  # LeRobot un-normalises the action whatever the features are
        return {ACTION: modes.get("ACTION", "IDENTITY")}
    return {
        feature: modes.get(group, "IDENTITY")
        for feature, group in groups.items()
        if group != "ACTION" and feature in wanted
    }


def normalization(pipelines: Mapping[str, tuple[Step, ...]]) -> dict[str, Normalization]:
    """What state is normalised and actions are un-normalised with, where a step says so."""
    if not pipelines:
        return {name: Normalization(kind="identity") for name in ("state", "action")}
    found = {}
    for name, file, feature, group in (
        ("state", PREPROCESSOR, STATE, "STATE"),
        ("action", POSTPROCESSOR, ACTION, "ACTION"),
    ):
        for step in pipelines[file]:
            kind = _KINDS.get(str(dict(step.config.get("norm_map") or {}).get(group, "IDENTITY")))
            if step.name != _NORMALIZERS[file] or kind is None:
                continue
            stats = {} if kind == "identity" else step.stats.get(feature, {})
            low, high = ("q01", "q99") if kind == "quantiles" else ("min", "max")
            found[name] = Normalization(
                kind=kind,
                mean=stats.get("mean"),
                std=stats.get("std"),
                low=stats.get(low),
                high=stats.get(high),
            )
    return found


def read_json(file: Path, what: str) -> dict[str, Any]:
    """A JSON object of the folder.

    Raises:
        PolicyError: It is missing or something else.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        have = sorted(entry.name for entry in file.parent.iterdir())[:8]
        raise PolicyError(
            f"{file.parent} has no {file.name}, {what} (it holds {', '.join(have) or 'nothing'}). "
            "Give the folder that LeRobot saved, which ends in pretrained_model."
        ) from error
    except (OSError, ValueError) as error:
        raise PolicyError(
            f"Cannot read {file} as JSON ({error}). Copy the folder again from where it came."
        ) from error
    if not isinstance(content, dict):
        raise PolicyError(f"{file} holds a {type(content).__name__} where LeRobot has an object.")
    return content
