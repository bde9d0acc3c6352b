"""Scene files as the registry: a file in ``scenes/`` is a scene."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from omegaconf import OmegaConf
from pydantic import BaseModel, ValidationError

from robogen.errors import ConfigError, nearest, unknown
from robogen.paths import config_root
from robogen.scenes.schema import RobotConfig, SceneConfig

M = TypeVar("M", bound=BaseModel)


def scene_dirs(extra: Iterable[Path] = ()) -> list[Path]:
    """Folders searched for scene files: each ``<dir>/scenes`` (or ``<dir>``), then shipped."""
    found = []
    for folder in extra:
        found.append(folder / "scenes" if (folder / "scenes").is_dir() else folder)
    return [*found, config_root() / "scenes"]


def available(extra: Iterable[Path] = ()) -> dict[str, Path]:
    """Scene name to YAML file; a user's file wins over a shipped one of the same name."""
    scenes: dict[str, Path] = {}
    for folder in reversed(scene_dirs(extra)):
        for file in sorted(folder.glob("*.yaml")):
            scenes[file.stem] = file
    return dict(sorted(scenes.items()))


def read_yaml(file: Path) -> dict[str, Any]:
    """A YAML file's top-level mapping.

    Raises:
        ConfigError: It cannot be read, is not YAML or not a mapping.
    """
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"Cannot read {file}: {error}. Mend or remove the file.") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{file} must hold a mapping of keys, got {type(content).__name__}.")
    return content


def validated(model: type[M], content: Mapping[str, Any], source: str) -> M:
    """Check content against a schema; every complaint in one paragraph."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = []
        for item in error.errors():
            where = ".".join(str(part) for part in item["loc"]) or "the file"
            if item["type"] == "extra_forbidden":
                known = _fields_at(model, item["loc"][:-1])
                guess = nearest(str(item["loc"][-1]), known)
                hint = f" (did you mean '{guess}'?)" if guess else ""
                problems.append(f"unknown key '{where}'{hint}")
            else:
                problems.append(f"{where}: {item['msg']}")
        raise ConfigError(f"{source} is not valid: {'; '.join(problems)}.") from error


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Field names a schema allows at a location; empty where the schema is not a model."""
    current: Any = model
    for part in location:
        fields = getattr(current, "model_fields", {})
        annotation = fields[part].annotation if part in fields else current
        current = _inner_model(annotation)
    return list(getattr(current, "model_fields", {}))


def _inner_model(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _inner_model(argument)
        if found is not None:
            return found
    return None


def load_scene_config(
    name: str, *, overrides: Mapping[str, Any] | None = None, extra: Iterable[Path] = ()
) -> tuple[SceneConfig, Path]:
    """Configuration of a scene by name, and the file it came from.

    Args:
        name: File stem in ``scenes/``.
        overrides: Dotted keys and their values, e.g. ``{"horizon_s": 6}``.
        extra: User's configuration folders.

    Raises:
        ConfigError: Unknown scene, or a file that is not valid.
    """
    scenes = available(extra)
    if name not in scenes:
        raise ConfigError(
            unknown("scene", name, scenes, "Use --config-dir for a folder of your own scenes.")
        )
    content = merged(read_yaml(scenes[name]), overrides or {})
    return validated(SceneConfig, content, str(scenes[name])), scenes[name]


def merged(content: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Content with dotted overrides applied."""
    config = OmegaConf.create(content)
    for key, value in overrides.items():
        OmegaConf.update(config, key, value, force_add=True)
    result = OmegaConf.to_container(config, resolve=True)
    assert isinstance(result, dict)
    return {str(key): value for key, value in result.items()}


def load_robot_config(name: str, *, scene_file: Path) -> tuple[RobotConfig, Path]:
    """Configuration of a robot by name (``robots/<name>.yaml``)."""
    robots = {
        file.stem: file
        for root in (config_root() / "scenes", scene_file.parent)
        for file in sorted((root / "robots").glob("*.yaml"))
    }
    if name not in robots:
        raise ConfigError(unknown("robot", name, robots))
    return validated(RobotConfig, read_yaml(robots[name]), str(robots[name])), robots[name]


def resolve_model(path: str, *, scene_file: Path) -> Path:
    """MJCF file of a scene's part: relative to the scene file, else to the shipped scenes."""
    for root in (scene_file.parent, config_root() / "scenes"):
        if (root / path).is_file():
            return root / path
    raise ConfigError(
        f"{scene_file} names the model '{path}', found neither in {scene_file.parent} nor in the "
        "shipped scenes. Correct the path."
    )
