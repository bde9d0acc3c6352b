"""Factors and suites by name: one YAML each, found by being there."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

from hydra.utils import get_class
from omegaconf import OmegaConf

from robogen.errors import ConfigError, unknown
from robogen.paths import config_root
from robogen.perturbations.base import Factor, check_severity
from robogen.specs import Split

_GROUP = "perturbations"
_WORDS = ("nominal", "each", "pairs", "all")


# -- factors ---------------------------------------------------------------------------------------


def available(extra_dirs: Iterable[Path | str] = ()) -> dict[str, Path]:
    """YAML file of every factor by name, sorted.

    Args:
        extra_dirs: Folders of the user, with a ``perturbations`` folder or factor files themselves.

    Raises:
        ConfigError: A folder does not exist, or two files have one name.
    """
    return _files(_folders(extra_dirs), "factor")


def load_factor(
    name: str,
    overrides: Mapping[str, Any] | None = None,
    extra_dirs: Iterable[Path | str] = (),
) -> Factor:
    """The factor with this name.

    Args:
        name: Stem of its YAML file.
        overrides: Parameters that replace those of the YAML.
        extra_dirs: See :func:`available`.

    Raises:
        ConfigError: No such factor, or its YAML, class or parameters are wrong.
    """
    merged, path = factor_parameters(name, overrides, extra_dirs)
    target = merged.pop("_target_", None)
    if not isinstance(target, str):
        raise ConfigError(
            f"{path} names no class. Add a line such as "
            "'_target_: robogen.perturbations.light.LightIntensity'."
        )
    factory = _class(target, path)
    _check_parameters(name, path, factory, merged)
    factor: Factor = factory(name=name, **merged)
    return factor


def factor_parameters(
    name: str,
    overrides: Mapping[str, Any] | None = None,
    extra_dirs: Iterable[Path | str] = (),
) -> tuple[dict[str, Any], Path]:
    """What a factor is made of, class and parameters, and the file that says so.

    Raises:
        ConfigError: No such factor, or its file cannot be read.
    """
    files = available(extra_dirs)
    if name not in files:
        todo = "Choose one of these, or add its YAML to a folder given with --config-dir."
        raise ConfigError(unknown("factor", name, files, todo))
    return _read(files[name]) | dict(overrides or {}), files[name]


def _folders(extra_dirs: Iterable[Path | str]) -> list[Path]:
    folders = [config_root() / _GROUP]
    for extra in map(Path, extra_dirs):
        if not extra.is_dir():
            raise ConfigError(
                f"Folder '{extra}' does not exist. Give --config-dir an existing folder."
            )
        folders.append(extra / _GROUP if (extra / _GROUP).is_dir() else extra)
    return folders


def _files(folders: Iterable[Path], what: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            if path.stem in found:
                raise ConfigError(
                    f"Two files define {what} '{path.stem}': {found[path.stem]} and {path}. "
                    "Rename one."
                )
            found[path.stem] = path
    return dict(sorted(found.items()))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except Exception as error:  # the reader raises its own, the parser's and the system's
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path} cannot be read as YAML: {reason}. Mend the file.") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold 'key: value' lines, got {content!r}. Mend the file.")
    return {str(key): value for key, value in content.items()}


def _class(target: str, path: Path) -> type[Factor]:
    try:
        found = get_class(target)
    except Exception as error:  # hydra raises several kinds, and an import can raise any
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{path} names class '{target}', which cannot be imported: {reason}. Correct _target_."
        ) from error
    if not issubclass(found, Factor) or inspect.isabstract(found):
        raise ConfigError(
            f"{path} names class '{target}', which is not a factor. Derive it from one of the "
            "classes in robogen.perturbations.base and write its abstract methods."
        )
    return found


def _check_parameters(
    name: str, path: Path, factory: type[Factor], given: Mapping[str, Any]
) -> None:
    signature = inspect.signature(factory).parameters
    known = [key for key, p in signature.items() if key != "name" and p.kind is p.KEYWORD_ONLY]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in signature.values())
    for key in given:
        if key not in known and not open_ended:
            what = f"parameter of factor '{name}' ({path})"
            raise ConfigError(unknown(what, key, known, "Correct the name or drop it."))
    missing = [
        k for k in known if signature[k].default is inspect.Parameter.empty and k not in given
    ]
    if missing:
        raise ConfigError(
            f"Factor '{name}' ({path}) lacks parameter {', '.join(missing)}; it has "
            f"{', '.join(given) or 'none'}. Add the missing ones to the YAML."
        )


# -- suites ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What one cell of a study varies."""

    factors: tuple[str, ...] = ()
    """Names; none is nominal."""
    severity: float = 1.0
    split: Split = "eval"
    everything: bool = False
    """Whether it stands for all of a suite's factors that apply to the scene at hand."""

    @property
    def id(self) -> str:
        """Short unique name: ``nominal``, ``<a>+<b>``, ``all``, with ``@0.5`` and ``:train``."""
        if not self.factors and not self.everything:
            return "nominal"
        text = "all" if self.everything else "+".join(self.factors)
        text += f"@{self.severity:g}" if self.severity != 1.0 else ""
        return text + (f":{self.split}" if self.split != "eval" else "")


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A named list of conditions."""

    name: str
    factors: tuple[str, ...]
    """The factors that ``each``, ``pairs`` and ``all`` range over."""
    conditions: tuple[Condition, ...]
    episodes: int | None
    """Episodes per condition, None to leave it to the study."""
    parameters: Mapping[str, Mapping[str, Any]]
    """Overrides by factor, for :func:`load_factor`; e.g. a paper's own ranges."""


def available_suites(extra_dirs: Iterable[Path | str] = ()) -> dict[str, Path]:
    """YAML file of every suite by name, sorted; they lie in ``perturbations/suites``."""
    return _files([folder / "suites" for folder in _folders(extra_dirs)], "suite")


def load_suite(name: str, extra_dirs: Iterable[Path | str] = ()) -> Suite:
    """The suite with this name.

    Raises:
        ConfigError: No such suite, or its YAML or the factors in it are wrong.
    """
    extra_dirs = list(extra_dirs)
    files = available_suites(extra_dirs)
    if name not in files:
        todo = "Choose one of these, or add its YAML to perturbations/suites."
        raise ConfigError(unknown("suite", name, files, todo))
    path, known = files[name], list(available(extra_dirs))
    content = _read(path)
    allowed = ("factors", "conditions", "episodes", "parameters")
    for key in content:
        if key not in allowed:
            raise ConfigError(unknown(f"key in suite {path}", key, allowed, "Correct it."))
    asked = content.get("factors", "all")
    names = tuple(known) if asked == "all" else _names(asked, known, path)
    entries = content.get("conditions")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(
            f"{path} must list 'conditions', got {entries!r}. Write e.g. [nominal, each]."
        )
    conditions = [
        condition for entry in entries for condition in _expand(entry, names, known, path)
    ]
    episodes = content.get("episodes")
    if episodes is not None and (
        isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1
    ):
        raise ConfigError(f"{path}: 'episodes' must be a whole number above 0, got {episodes!r}.")
    return Suite(
        name=name,
        factors=names,
        conditions=tuple(dict.fromkeys(conditions)),
        episodes=episodes,
        parameters=_parameters(content.get("parameters") or {}, known, path, extra_dirs),
    )


def _names(asked: object, known: Sequence[str], path: Path) -> tuple[str, ...]:
    if not isinstance(asked, list) or not all(isinstance(one, str) for one in asked) or not asked:
        raise ConfigError(f"{path}: 'factors' must be a list of names, got {asked!r}. Mend it.")
    for one in asked:
        if one not in known:
            raise ConfigError(unknown(f"factor in suite {path}", one, known, "Correct the name."))
    if len(set(asked)) < len(asked):
        raise ConfigError(f"{path} names a factor twice in {asked}. Name each once.")
    return tuple(asked)


def _expand(
    entry: object, names: tuple[str, ...], known: Sequence[str], path: Path
) -> list[Condition]:
    """Conditions that one entry of a suite stands for."""
    fields: dict[Any, Any] = dict(entry) if isinstance(entry, dict) else {"factors": entry}
    for key in fields:
        if key not in ("factors", "severity", "split"):
            options = ("factors", "severity", "split")
            raise ConfigError(unknown(f"key of a condition in {path}", str(key), options))
    severity = check_severity(f"{path}", fields.get("severity", 1.0))
    split: Split = fields.get("split", "eval")
    if split not in get_args(Split):
        raise ConfigError(unknown(f"split in {path}", str(split), get_args(Split), "Correct it."))
    which = fields.get("factors")
    sets: list[tuple[str, ...]]
    if which == "nominal":
        return [Condition()]
    if which == "all":
        return [Condition(factors=names, severity=severity, split=split, everything=True)]
    if which == "each":
        sets = [(name,) for name in names]
    elif which == "pairs":
        sets = list(combinations(names, 2))
    elif isinstance(which, str):
        if which not in known:
            todo = "Or name a factor."
            raise ConfigError(unknown(f"condition in {path}", which, [*_WORDS, *known], todo))
        sets = [(which,)]
    else:
        sets = [_names(which, known, path)]
    return [Condition(factors=tuple(sorted(one)), severity=severity, split=split) for one in sets]


def _parameters(
    given: object, known: Sequence[str], path: Path, extra_dirs: Sequence[Path | str]
) -> dict[str, dict[str, Any]]:
    if not isinstance(given, dict) or not all(isinstance(v, dict) for v in given.values()):
        raise ConfigError(
            f"{path}: 'parameters' must map factors to their parameters, got {given!r}. Mend it."
        )
    for name, overrides in given.items():
        if name not in known:
            raise ConfigError(unknown(f"factor in suite {path}", str(name), known, "Correct it."))
        load_factor(name, overrides, extra_dirs)  # refuses wrong ones now rather than mid-study
    return {str(name): dict(overrides) for name, overrides in given.items()}
