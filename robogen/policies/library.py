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
_PLAIN = (
    "A plain function that returns actions is a policy with `_target_: "
    "robogen.policies.callable.CallablePolicy` and `function: {}`."
)


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
            first = key.partition(".")[0]
            if parameters is not None and first not in parameters:
                raise ConfigError(unknown(source, first, parameters, "Correct or remove it."))
    values = _merged(content, changed)
    if isinstance(values.get(CHECKPOINT), str):
        root = Path.cwd() if CHECKPOINT in changed else file.parent
        explains = getattr(make, "explains_checkpoint", False)
        values[CHECKPOINT] = _checkpoint(
            name, values[CHECKPOINT], scene, root / file.name, explains=explains
        )
    _refuse_missing(make, str(target), values, file)
    policy = make(**values)
    if not isinstance(policy, Policy):
        raise ConfigError(
            f"{file}: {TARGET} '{target}' makes a {type(policy).__name__}, which is not a "
            "robogen.policies.base.Policy. Derive the class from it. "
            f"{_PLAIN.format(target)}"
        )
    return policy


def _merged(content: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """A file's keys with some replaced; ``action.chunk`` replaces one key of a mapping."""
    values = dict(content)
    for dotted, value in changed.items():
        *path, last = dotted.split(".")
        inner = values
        for name in path:
            inner[name] = dict(inner[name]) if isinstance(inner.get(name), Mapping) else {}
            inner = inner[name]
        inner[last] = value
    return values


def _content(file: Path) -> dict[str, Any]:
    try:
        content = OmegaConf.to_container(OmegaConf.load(file), resolve=True)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"Cannot read {file}: {error}. Mend or remove the file.") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{file} must hold a mapping of keys, got {type(content).__name__}.")
    return {str(key): value for key, value in content.items()}


def imported(name: str, what: str) -> Any:
    """A class or function by its dotted name.

    Args:
        name: ``package.module.attribute``.
        what: The key that holds it, for messages.

    Raises:
        ConfigError: It cannot be imported.
    """
    module, _, attribute = name.rpartition(".")
    try:
        whole = importlib.import_module(module)
    except ValueError as error:  # "..x" and the like
        raise ConfigError(
            f"{what} '{name}' is no dotted name. Write package.module.name."
        ) from error
    except ImportError as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (module == missing or module.startswith(f"{missing}.")):
            raise ConfigError(
                f"{what} '{name}' cannot be imported: there is no module '{missing}' here. Install "
                "its package into this Python environment (`pip install -e .` in its folder), or "
                f"name the folder that {missing} lies in: `PYTHONPATH=FOLDER robogen ...`."
            ) from error
        raise ConfigError(
            f"{what} '{name}' cannot be imported: {module} itself fails ({error}). Try `python -c "
            f"'import {module}'`, and install what it needs."
        ) from error
    if not hasattr(whole, attribute):
        names = [key for key in vars(whole) if not key.startswith("_")]
        raise ConfigError(
            f"{what} '{name}' cannot be imported: "
            + unknown(f"name in {module}", attribute, names, "Correct it.")
        )
    return getattr(whole, attribute)


def _target(target: object, file: Path) -> Callable[..., Any]:
    if not isinstance(target, str) or "." not in target:
        raise ConfigError(
            f"{file} must name the policy's class, `{TARGET}: package.module.Class`; got "
            f"{target!r}."
        )
    found = imported(target, f"{file}: {TARGET}")
    if not callable(found):
        raise ConfigError(f"{file}: {TARGET} '{target}' is not a class or function.")
    return found  # type: ignore[no-any-return]


def _refuse_missing(
    make: Callable[..., Any], target: str, values: Mapping[str, Any], file: Path
) -> None:
    """Say which keys a file lacks, before Python does in its own words.

    Raises:
        ConfigError: One is missing.
    """
    try:
        parameters = inspect.signature(make).parameters
    except ValueError:
        return
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and name not in values
    ]
    if not missing:
        return
    if not inspect.isclass(make):
        raise ConfigError(
            f"{file}: {TARGET} '{target}' is a function of {', '.join(parameters)}, and what "
            f"stands there makes a policy from the file's keys. {_PLAIN.format(target)}"
        )
    raise ConfigError(
        f"{file} lacks {', '.join(missing)}, which '{target}' needs. Write it into the file, or "
        f"give `policy.NAME.{missing[0]}=...`."
    )


def _parameters(make: Callable[..., Any]) -> set[str] | None:
    """Names ``make`` can be called with, None when it takes any."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except ValueError:  # some builtins have none
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters}


def _checkpoint(
    name: str, pattern: str, scene: str | None, file: Path, *, explains: bool
) -> Path | str:
    """Where a checkpoint lies; its name as written where the policy ``explains`` what is wrong."""
    if PLACEHOLDER in pattern and scene is None:
        raise ConfigError(
            f"Policy '{name}' has one checkpoint per scene ({pattern}), and no scene was given. "
            "Name a scene, or a checkpoint without {scene}."
        )
    path = file.parent / pattern.replace(PLACEHOLDER, scene or "")
    if path.is_file() or (explains and path.exists()):
        return path
    if explains and PLACEHOLDER not in pattern:
        return pattern
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
