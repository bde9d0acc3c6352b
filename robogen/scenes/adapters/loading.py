"""From a name to an adapter with its roles, and every reason why that cannot be."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from robogen.errors import ConfigError, RobogenError, SceneError, nearest, unknown
from robogen.mj import borrowed
from robogen.mj.roles import Roles
from robogen.scenes.adapters.base import Adapter
from robogen.scenes.adapters.family import FamilyConfig, installed, load_family, refuse_unfit


def roles_of(name: str, adapter: Adapter, config: FamilyConfig) -> Roles:
    """Roles of an environment's model, by the patterns of its family file and its own.

    Raises:
        SceneError: Nothing matches a pattern of a role that is not optional.
    """
    found = borrowed.find_roles(adapter.model, {**config.roles, **adapter.roles}, config.cameras)
    missing = dict(found.missing)
    if config.arm and not borrowed.joints_matching(adapter.model, config.arm):
        missing["joint"] = config.arm
    for role, patterns in missing.items():
        if role in config.optional:
            continue
        named = "body" if patterns[0].startswith(borrowed.BODY) else role
        have = borrowed.inventory(adapter.model, named)
        guess = nearest(patterns[0].removeprefix(borrowed.BODY), have)
        shown = ", ".join(have[:12]) + (f" and {len(have) - 12} more" if len(have) > 12 else "")
        raise SceneError(
            f"Scene '{name}': nothing in the model matches {role} {', '.join(patterns)}."
            + (f" Did you mean '{guess}'?" if guess else "")
            + f" There are {shown or 'none with a name'}. Correct the pattern, or leave the role "
            "out."
        )
    return found.roles


def load_adapter(
    name: str, *, overrides: Mapping[str, Any] | None = None, extra: Iterable[Path] = ()
) -> tuple[Adapter, FamilyConfig]:
    """Make an environment, by ``family/task``.

    Raises:
        ConfigError: Unknown family or task; SceneError: it cannot run here.
    """
    family, _, task = name.partition("/")
    config = load_family(family, task, overrides=overrides, extra=extra)
    refuse_unfit(family, config)
    kind = adapter_class(config)
    try:
        known = kind.tasks()
        if known and task not in known:
            raise ConfigError(unknown(f"task of '{family}'", task, known))
        adapter = kind(task, **config.settings)  # type: ignore[call-arg]
    except RobogenError:
        raise
    except Exception as error:  # somebody else's code can raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise SceneError(
            f"Scene '{name}' cannot be made: its codebase failed with {reason}. Check the versions "
            f"({_versions(config)})"
            + (f", or make a new one: {config.install}." if config.install else ".")
        ) from error
    return adapter, config


def _versions(config: FamilyConfig) -> str:
    return ", ".join(f"{k} {v}" for k, v in installed([*config.packages, "mujoco"]).items())


def adapter_class(config: FamilyConfig) -> type[Adapter]:
    """The class behind a family.

    Raises:
        ConfigError: It cannot be imported.
    """
    module, _, attribute = config.adapter.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"adapter '{config.adapter}' cannot be imported ({error}). Correct the name, or "
            "install the package that holds it."
        ) from error
    if not (isinstance(found, type) and issubclass(found, Adapter)):
        raise ConfigError(f"adapter '{config.adapter}' is not a class derived from Adapter.")
    return found
