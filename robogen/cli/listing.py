"""``robogen list``: what there is, each with a line of its own."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from robogen.cli import common

if TYPE_CHECKING:
    from rich.table import Table


class What(StrEnum):
    """What can be listed."""

    scenes = "scenes"
    environments = "environments"
    policies = "policies"
    factors = "factors"
    suites = "suites"


class Listing(NamedTuple):
    """A table, and what could not be put into it."""

    table: Table
    broken: list[str]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("list")(show)


def show(
    what: Annotated[What | None, typer.Argument(help="Which; all when left out.")] = None,
    config_dir: common.ConfigDirs = None,
) -> None:
    """List scenes, adapted environments, policies, factors and suites."""
    extra = common.folders(config_dir)
    makers: dict[What, Callable[[tuple[Path, ...]], Listing]] = {
        What.scenes: _scenes,
        What.environments: _environments,
        What.policies: _policies,
        What.factors: _factors,
        What.suites: _suites,
    }
    if what in (None, What.factors, What.environments):
        common.need_mujoco()
    console = common.output()
    for name in [what] if what else list(What):
        listing = makers[name](extra)
        console.print(listing.table)
        for line in listing.broken:
            console.print(f"Cannot be used: {line}", soft_wrap=True, markup=False)


def first_comment(file: Path) -> str:
    """The comment that heads a YAML file, which says what it is; its first sentence."""
    lines: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").strip())
    text = " ".join(lines)
    end = text.find(". ")
    while end > 0 and text[:end].rsplit(" ", 1)[-1].rstrip(",)") in ("al", "e.g", "i.e", "cf"):
        end = text.find(". ", end + 1)
    return text if end < 0 else text[: end + 1]


def _table(title: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0, style="bold" if number == 0 else "")
    return table


def _scenes(extra: tuple[Path, ...]) -> Listing:
    from robogen.errors import RobogenError
    from robogen.scenes.library import available, load_scene_config

    table = _table("Scenes", "scene", "task", "instruction", "objects", "horizon")
    broken: list[str] = []
    for name in available(extra):
        try:
            config, _ = load_scene_config(name, extra=extra)
        except RobogenError as error:
            broken.append(f"{name}: {error}")
            continue
        table.add_row(
            name,
            config.description,
            config.task.instruction,
            ", ".join(config.objects),
            f"{config.horizon_s:g} s at {config.control_hz:g} Hz",
        )
    return Listing(table, broken)


def _environments(extra: tuple[Path, ...]) -> Listing:
    from robogen.errors import RobogenError
    from robogen.scenes.adapters.family import families, load_family, refuse_unfit
    from robogen.scenes.adapters.loading import adapter_class

    table = _table("Adapted environments", "scene", "what it is", "here", "tasks")
    broken: list[str] = []
    for name in families(extra):
        try:
            config = load_family(name, "", extra=extra)
        except RobogenError as error:
            broken.append(f"{name}: {error}")
            continue
        try:
            refuse_unfit(name, config)
            tasks = adapter_class(config).tasks()
            here, shown = "yes", f"{len(tasks)}: {', '.join(tasks)}" if tasks else "any"
        except RobogenError:
            here = f"no; {config.install}" if config.install else "no"
            shown = f"e.g. {config.example}" if config.example else ""
        except Exception as error:  # somebody else's import can raise anything
            here, shown = f"broken: {error!r}", ""
        table.add_row(f"{name}/<task>", config.description, here, shown)
    return Listing(table, broken)


def _policies(extra: tuple[Path, ...]) -> Listing:
    from robogen.errors import RobogenError
    from robogen.policies.library import CHECKPOINT, available, checkpoints
    from robogen.scenes.library import read_yaml

    table = _table("Policies", "policy", "what it is", "scenes")
    broken: list[str] = []
    for name, file in available(extra).items():
        try:
            pattern = read_yaml(file).get(CHECKPOINT)
        except RobogenError as error:
            broken.append(f"{name}: {error}")
            continue
        if isinstance(pattern, str) and "{scene}" in pattern:
            scenes = ", ".join(checkpoints(file, pattern)) or "no checkpoint yet; robogen train"
        else:
            scenes = "any that fits its spec" if pattern else "any"
        table.add_row(name, first_comment(file), scenes)
    return Listing(table, broken)


def _factors(extra: tuple[Path, ...]) -> Listing:
    from robogen.errors import RobogenError
    from robogen.perturbations.library import available, load_factor

    table = _table(
        "Factors", "factor", "what it does", "kind", "phase", "noticed by", "range at severity 1"
    )
    broken: list[str] = []
    for name, file in available(extra).items():
        try:
            factor = load_factor(name, extra_dirs=extra)
        except RobogenError as error:
            broken.append(f"{name}: {error}")
            continue
        table.add_row(
            name,
            first_comment(file),
            factor.kind,
            factor.phase,
            factor.channel,
            factor.range_text(1.0),
        )
    return Listing(table, broken)


def _suites(extra: tuple[Path, ...]) -> Listing:
    from robogen.errors import RobogenError
    from robogen.perturbations.library import available_suites, load_suite

    table = _table("Suites", "suite", "what it is", "conditions", "episodes", "factors")
    broken: list[str] = []
    for name, file in available_suites(extra).items():
        try:
            suite = load_suite(name, extra)
        except RobogenError as error:
            broken.append(f"{name}: {error}")
            continue
        table.add_row(
            name,
            first_comment(file),
            str(len(suite.conditions)),
            str(suite.episodes or "as asked"),
            ", ".join(suite.factors) if len(suite.factors) < 13 else f"all {len(suite.factors)}",
        )
    return Listing(table, broken)
