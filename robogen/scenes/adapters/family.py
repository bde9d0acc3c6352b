"""Family files: one YAML for all tasks of a codebase, with roles by name pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel, ConfigDict, Field, field_validator

from robogen.errors import ConfigError, SceneError, unknown
from robogen.mj.roles import BODY_ROLES, SURFACE_ROLES
from robogen.scenes.library import merged, read_yaml, scene_dirs, validated
from robogen.specs import Orientation, Split

FOLDER = "families"
ROLES = (*BODY_ROLES, *SURFACE_ROLES, "lights")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rewording(_Model):
    """How instructions of one shape can be said otherwise."""

    match: str = "(.+)"
    """Regular expression for the whole instruction."""
    train: tuple[str, ...] = ()
    r"""Templates; ``\1`` is what the first group matched."""
    eval: tuple[str, ...] = ()

    @field_validator("match")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}") from error
        return value


class FamilyConfig(_Model):
    """A family file, merged with what it says of one task."""

    description: str = ""
    adapter: str
    """Class behind it, ``package.module.Class``."""
    packages: tuple[str, ...]
    """Distributions whose versions decide results; the first is the one to install."""
    mujoco: str = ""
    """Versions of MuJoCo the codebase works with, e.g. ``>=3.3,<3.10``."""
    install: str = ""
    """What makes an environment for it."""
    example: str = ""
    """A task to show."""
    control_hz: Annotated[float, Field(gt=0)]
    horizon: Annotated[int, Field(gt=0)]
    """Longest episode in control steps."""
    cameras: dict[str, Literal["third_person", "wrist"]]
    people: tuple[str, ...] = ()
    """Cameras for people and videos."""
    orientation: Orientation = "upright"
    """How the codebase's published policies expect frames."""
    render: Literal["native", "fast"] = "native"
    """``native``: as the environment itself draws; ``fast``: without shadows and multisampling."""
    groups: tuple[int, ...] | None = None
    """Geom groups that its own renderer draws; None: MuJoCo's default."""
    slots: Annotated[int, Field(gt=0)] = 1
    """Copies a worker holds."""
    roles: dict[str, tuple[str, ...]] = {}
    optional: tuple[str, ...] = ()
    """Roles that some of its tasks lack."""
    arm: tuple[str, ...] = ()
    """Patterns of the arm's joints that ``robot_pose`` may move; none: it does not apply."""
    wide_m: Annotated[float, Field(ge=0)] = 0.0
    """How far ``object_position`` moves manipulated objects at severity 1, either way in x and y;
    0: it does not apply."""
    workspace: tuple[float, float, float, float] | None = None
    """Part of the table for decorations: x low, x high, y low, y high [m]; None: all of it."""
    instructions: dict[str, str] = {}
    """Words by task, for codebases that have none."""
    rewordings: tuple[Rewording, ...] = ()
    settings: dict[str, Any] = {}
    """Passed to the adapter."""

    @field_validator("roles")
    @classmethod
    def _exist(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for role in value:
            if role not in ROLES:
                raise ValueError(unknown("role", role, ROLES).rstrip("."))
        return value


def families(extra: Iterable[Path] = ()) -> dict[str, Path]:
    """Family name to YAML file; a user's file wins over a shipped one of the same name."""
    found: dict[str, Path] = {}
    for folder in reversed(scene_dirs(extra)):
        for file in sorted((folder / FOLDER).glob("*.yaml")):
            found[file.stem] = file
    return dict(sorted(found.items()))


def load_family(
    name: str, task: str, *, overrides: Mapping[str, Any] | None = None, extra: Iterable[Path] = ()
) -> FamilyConfig:
    """What a family file says of one task.

    The file's ``tasks`` maps patterns to changes; all that match are applied in order.

    Raises:
        ConfigError: Unknown family, or a file that is not valid.
    """
    known = families(extra)
    if name not in known:
        raise ConfigError(
            unknown("family of environments", name, known, "Write scene=<family>/<task>.")
        )
    content = read_yaml(known[name])
    for pattern, change in (content.pop("tasks", None) or {}).items():
        if not isinstance(change, dict):
            raise ConfigError(
                f"{known[name]}: tasks.{pattern} must hold a mapping of keys, got {change!r}."
            )
        if fnmatchcase(task, pattern):
            content = merged(content, change)
    config = validated(FamilyConfig, content, str(known[name]))
    if not overrides:
        return config
    return validated(FamilyConfig, merged(content, overrides), f"scene.{name}.<key>=<value>")


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Version by distribution; those that are not there are left out."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def refuse_unfit(name: str, config: FamilyConfig) -> None:
    """Say at once that a codebase cannot run in this Python environment.

    Raises:
        SceneError: It is not installed, or MuJoCo has the wrong version.
    """
    have = installed([*config.packages, "mujoco"])
    how = f" Make an environment for it: {config.install}." if config.install else ""
    missing = [package for package in config.packages if package not in have]
    if missing:
        raise SceneError(
            f"Scenes of '{name}' need {', '.join(missing)}, not installed in this Python "
            f"environment.{how}"
        )
    try:
        fits = SpecifierSet(config.mujoco).contains(have.get("mujoco", "0"), prereleases=True)
    except InvalidSpecifier as error:
        raise ConfigError(
            f"Family '{name}' wants MuJoCo '{config.mujoco}', which is no version range. Write "
            "one like '>=3.3,<3.10'."
        ) from error
    if not fits:
        raise SceneError(
            f"Scenes of '{name}' work with MuJoCo {config.mujoco}, this Python environment has "
            f"{have['mujoco']}.{how or ' Install one of those versions.'}"
        )


def reworded(instruction: str, rewordings: Iterable[Rewording]) -> dict[Split, tuple[str, ...]]:
    """Paraphrases of an instruction by split: those of the first rewording that matches."""
    for rule in rewordings:
        match = re.fullmatch(rule.match, instruction)
        if match is not None and instruction:
            return {
                "train": tuple(match.expand(template) for template in rule.train),
                "eval": tuple(match.expand(template) for template in rule.eval),
            }
    return {}
