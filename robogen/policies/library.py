"""Policy files as the registry: a file in ``policies/`` is a policy."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from robogen.errors import ConfigError, PolicyError, unknown
from robogen.paths import config_root
from robogen.policies.base import Policy

TARGET = "_target_"
CHECKPOINT = "checkpoint"
PLACEHOLDER = "{scene}"


def available(extra_dirs: Iterable[Path] = ()) -> dict[str, Path]:
    """Policy name to YAML file; a user's file wins over a shipped one of the same name.

    Args:
        extra_dirs: The user's configuration folders: each ``<dir>/policies``, or the folder itself.
    """
    folders = [
        folder / "policies" if (folder / "policies").is_dir() else folder for folder in extra_dirs
    ]
    policies: dict[str, Path] = {}
    for folder in reversed([*folders, config_root() / "policies"]):
        for file in sorted(folder.glob("*.yaml")):
            policies[file.stem] = file
    return dict(sorted(policies.items()))


def checkpoints(file: Path, pattern: str) -> dict[str, Path]:
    """Scenes that have a checkpoint under a pattern with ``{scene}``, and where it lies."""
    found: dict[str, Path] = {}
    if PLACEHOLDER not in pattern:
        return found
    whole = (file.parent / pattern).as_posix()
    text = re.escape(whole).replace(re.escape(PLACEHOLDER), "([^/]+(?:/[^/]+)?)", 1)
    # A second placeholder stands for the same scene as the first.
    shape = re.compile(text.replace(re.escape(PLACEHOLDER), r"\1"))
    names = ("*", "*/*")  # our scenes, and family/task
    paths = [p for name in names for p in file.parent.glob(pattern.replace(PLACEHOLDER, name))]
    for path in sorted(paths):
        match = shape.fullmatch(path.as_posix())
        if match:
            found[match[1]] = path
    return found


def load_policy(
    name: str,
    *,
    scene: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    extra_dirs: Iterable[Path] = (),
) -> Policy:
    """Make a policy by name.

    Args:
        name: File stem in ``policies/``.
        scene: Scene it is wanted for; stands in for ``{scene}`` in the checkpoint's path.
        overrides: Constructor parameters that replace the file's. A relative checkpoint given here
            is looked for in the working folder, one in the file beside the file.
        extra_dirs: The user's configuration folders.

    Raises:
        ConfigError: Unknown name, unknown parameter, or a file that is not valid.
        PolicyError: There is no checkpoint for the scene, or it cannot be loaded.
    """
    policies = available(extra_dirs)
    if name not in policies:
        raise ConfigError(
            unknown("policy", name, policies, "Use --config-dir for a folder of your own policies.")
        )
    file = policies[name]
    content = _content(file)
    target = content.pop(TARGET, None)
    make = _target(target, file)
    parameters = _parameters(make)
    changed = {str(key): value for key, value in (overrides or {}).items()}
    for source, keys in ((f"parameter of policy '{name}'", changed), (f"key in {file}", content)):
        for key in keys:
            if parameters is not None and key not in parameters:
                raise ConfigError(unknown(source, key, parameters, "Correct or remove it."))
    values = {**content, **changed}
    if isinstance(values.get(CHECKPOINT), str):
        root = Path.cwd() if CHECKPOINT in changed else file.parent
        values[CHECKPOINT] = _checkpoint(name, values[CHECKPOINT], scene, root / file.name)
    policy = make(**values)
    if not isinstance(policy, Policy):
        raise ConfigError(
            f"{file}: {TARGET} '{target}' makes a {type(policy).__name__}, which is not a "
            "robogen.policies.base.Policy. Derive the class from it."
        )
    return policy


def _content(file: Path) -> dict[str, Any]:
    try:
        content = OmegaConf.to_container(OmegaConf.load(file), resolve=True)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"Cannot read {file}: {error}. Mend or remove the file.") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{file} must hold a mapping of keys, got {type(content).__name__}.")
    return {str(key): value for key, value in content.items()}


def _target(target: object, file: Path) -> Callable[..., Any]:
    if not isinstance(target, str) or "." not in target:
        raise ConfigError(
            f"{file} must name the policy's class, `{TARGET}: package.module.Class`; got "
            f"{target!r}."
        )
    module, _, attribute = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{file}: {TARGET} '{target}' cannot be imported ({error}). Correct the name, or "
            "install the package that holds it."
        ) from error
    if not callable(found):
        raise ConfigError(f"{file}: {TARGET} '{target}' is not a class or function.")
    return found  # type: ignore[no-any-return]


def _parameters(make: Callable[..., Any]) -> set[str] | None:
    """Names ``make`` can be called with, None when it takes any."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except ValueError:  # some builtins have none
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters}


def _checkpoint(name: str, pattern: str, scene: str | None, file: Path) -> Path:
    if PLACEHOLDER in pattern and scene is None:
        raise ConfigError(
            f"Policy '{name}' has one checkpoint per scene ({pattern}), and no scene was given. "
            "Name a scene, or a checkpoint without {scene}."
        )
    path = file.parent / pattern.replace(PLACEHOLDER, scene or "")
    if path.is_file():
        return path
    have = checkpoints(file, pattern)
    if PLACEHOLDER in pattern:
        raise PolicyError(
            f"Policy '{name}' has no checkpoint for scene '{scene}' (looked for {path}). Scenes "
            f"that have one: {', '.join(have) or 'none'}. Choose one of those, or train it: "
            f"`robogen train` with {path} as output."
        )
    raise PolicyError(
        f"Policy '{name}' has no checkpoint at {path}. Correct the path, or train one with "
        "`robogen train`."
    )
