"""Scenes by name, whoever made them: our scene files, and adapted environments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from robogen.errors import ConfigError
from robogen.scenes.base import Scene


def load_scene(
    name: str, *, overrides: Mapping[str, Any] | None = None, extra: Iterable[Path] = ()
) -> Scene:
    """Build a scene by name.

    Args:
        name: File stem in ``scenes/``, or ``family/task`` for somebody else's environment.
        overrides: Dotted keys of the scene file, or of the family file, and their values.
        extra: User's configuration folders.

    Raises:
        ConfigError: Unknown scene or task, or a file that is not valid.
        SceneError: The environment is not installed, or cannot be adapted.
    """
    # Imported here: our scenes need inverse kinematics, adapted ones must do without it.
    if "/" in name:
        from robogen.scenes.adapters.loading import load_adapter
        from robogen.scenes.adapters.scene import AdaptedScene

        adapter, config = load_adapter(name, overrides=overrides, extra=extra)
        return AdaptedScene(name, adapter, config)
    from robogen.scenes.adapters.family import families, load_family
    from robogen.scenes.scene import load_tabletop

    folders = tuple(extra)
    if name in families(folders):
        example = load_family(name, "", extra=folders).example or "<task>"
        raise ConfigError(
            f"'{name}' is a family of environments, not a scene. Name a task of it, for example "
            f"scene={name}/{example}; 'robogen list environments' has them."
        )
    return load_tabletop(name, overrides=overrides, extra=folders)
