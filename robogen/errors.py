"""Every error a user can cause, each saying what, got, available and what to do.

::

    RobogenError
    ├── ConfigError        a name, key or value in a configuration is wrong
    ├── SpecError          two conventions do not fit each other
    ├── FactorError        a factor cannot do what was asked of it
    ├── PolicyError        a policy cannot be loaded, or broke its contract
    │   └── PolicyUnavailable  nobody answers at its address any more: the study stops, resumable
    ├── SceneError         a scene cannot be built or placed
    ├── RecordsError       a run folder is locked, foreign, unwritable or damaged
    └── GraphicsError      no working offscreen OpenGL

The command line prints these without a traceback; anything else is a bug and keeps its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RobogenError(Exception):
    """A mistake that its message lets the user mend."""


class ConfigError(RobogenError):
    """A name, key or value in a configuration is wrong."""


class SpecError(RobogenError):
    """A policy and a scene declare conventions that do not fit."""


class FactorError(RobogenError):
    """A factor does not apply, found nothing to change, or collides with another."""


class PolicyError(RobogenError):
    """A policy cannot be loaded, or returned something outside its contract."""


class PolicyUnavailable(PolicyError):
    """Nobody answers for the policy any more; going on would only spoil the remaining episodes."""


class SceneError(RobogenError):
    """A scene cannot be built, or its objects cannot be placed."""


class RecordsError(RobogenError):
    """A run folder is locked, unwritable, damaged, or belongs to another study."""


class GraphicsError(RobogenError):
    """No offscreen OpenGL backend works on this machine."""


def nearest(name: str, available: Iterable[str]) -> str | None:
    """Closest spelling of ``name`` among ``available``, or None when nothing is close."""
    matches = difflib.get_close_matches(name, list(available), n=1, cutoff=0.5)
    return matches[0] if matches else None


def unknown(what: str, name: str, available: Iterable[str], todo: str = "") -> str:
    """One-paragraph text for a name that does not exist.

    Args:
        what: The kind of thing, e.g. ``"scene"``.
        name: What the user wrote.
        available: Every valid name.
        todo: What to do about it; a sentence.
    """
    names = sorted(available)
    guess = nearest(name, names)
    parts = [f"Unknown {what} '{name}'."]
    if guess is not None:
        parts.append(f"Did you mean '{guess}'?")
    parts.append(f"Available: {', '.join(names) if names else 'none'}.")
    if todo:
        parts.append(todo)
    return " ".join(parts)
