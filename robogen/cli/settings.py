"""Settings written as ``key=value``: their documentation, and their values checked by type."""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from typer.core import TyperCommand

import robogen
from robogen.errors import ConfigError, unknown

if TYPE_CHECKING:
    from typer import Context


class Setting(NamedTuple):
    """One key, as its class documents it."""

    name: str
    default: str
    text: str


@cache
def documented(module: str, name: str) -> tuple[Setting, ...]:
    """Fields of a configuration class with defaults and docstrings, in order.

    They are read from the source: a field's docstring exists nowhere else, and help should not have
    to import MuJoCo or torch.
    """
    source = Path(robogen.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
    tree = ast.parse(source.read_text(encoding="utf-8"))
    found: list[Setting] = []
    body = next(
        node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name
    )
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = " ".join(str(after.value.value).replace("``", "").split())
        default = "" if node.value is None else ast.unparse(node.value).replace("'", "")
        found.append(Setting(node.target.id, _hydra(default), _hydra(text)))
    return tuple(found)


def _hydra(text: str) -> str:
    """Python's words as they are written on the command line."""
    for word, written in (("None", "null"), ("False", "false"), ("True", "true")):
        text = text.replace(word, written)
    return text


def help_with(
    own: Sequence[Setting], classes: Sequence[tuple[str, str]], hidden: Sequence[str] = ()
) -> type[TyperCommand]:
    """A command class whose help lists settings after the options.

    Args:
        own: Settings of the command itself.
        classes: Module and name of the classes whose fields are settings too.
        hidden: Fields left out.
    """

    class WithSettings(TyperCommand):
        def format_help(self, ctx: Context, formatter: Any) -> None:  # type: ignore[override]
            super().format_help(ctx, formatter)
            _print_settings(
                [*own, *(s for c in classes for s in documented(*c) if s.name not in hidden)]
            )

    return WithSettings


def _print_settings(settings: Sequence[Setting]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.panel import Panel
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold cyan")
    table.add_column()
    for item in settings:
        key = f"{item.name}={item.default}"
        table.add_row(escape(key if len(key) <= 28 else f"{item.name}=…"), escape(item.text))
    Console(highlight=False).print(
        Panel(table, title="Settings, with their defaults", title_align="left", border_style="dim")
    )


def parse(words: Sequence[str], kinds: Mapping[str, Any], command: str) -> dict[str, Any]:
    """Values of ``key=value`` words; lists as in ``[a,b]``.

    Args:
        words: What the user wrote.
        kinds: Type by key.
        command: For messages.

    Raises:
        ConfigError: A word is no setting, is given twice, or has a value of the wrong type.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    values: dict[str, Any] = {}
    for word in words:
        key, equals, _ = word.partition("=")
        if not equals:
            raise ConfigError(
                f"Got '{word}', expected key=value. Settings of '{command}': {', '.join(kinds)}."
            )
        if key not in kinds:
            raise ConfigError(
                unknown(f"setting of '{command}'", key, kinds, f"See '{command} --help'.")
            )
        if key in values:
            raise ConfigError(f"'{key}' is given twice. Give it once; a list is [a,b].")
        try:
            override = parser.parse_override(word)
            value = override.value()
            if override.is_sweep_override():
                # a,b can only mean a list here, where nothing is swept
                value = [
                    parser.parse_override(f"{key}={item}").value()
                    for item in override.sweep_string_iterator()
                ]
        except HydraException as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"Cannot read the value of '{word}': {reason}. Quote it, or mend it."
            ) from error
        values[key] = checked(key, value, kinds[key])
    return values


def kinds_of(made: type[Any]) -> dict[str, Any]:
    """Type by field of a dataclass."""
    return {name: kind for name, kind in get_type_hints(made).items()}


def checked(key: str, value: Any, kind: Any) -> Any:
    """A value as its type wants it; whole numbers pass for floats, lists for tuples.

    Raises:
        ConfigError: It is of another type.
    """
    if not _fits(value, kind):
        raise ConfigError(f"{key} must be {_words(kind)}, got {value!r}. Correct the value.")
    if kind is float:
        return float(value)
    for option in get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,):
        if value is not None and get_origin(option) in (tuple, list):
            items = value if isinstance(value, list) else [value]
            return tuple(items) if get_origin(option) is tuple else items
    return value


def _fits(value: Any, kind: Any) -> bool:
    origin = get_origin(kind)
    if origin is Literal:
        return value in get_args(kind)
    if origin in (Union, types.UnionType):
        return any(_fits(value, option) for option in get_args(kind))
    if origin is tuple or origin is list:
        inner = get_args(kind)[0]
        # data=demos stands for data=[demos]
        items = value if isinstance(value, list) else [value]
        return all(_fits(item, inner) for item in items)
    if kind is types.NoneType:
        return value is None
    if kind is bool:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _words(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if origin in (Union, types.UnionType):
        return " or ".join(_words(option) for option in get_args(kind))
    if origin is tuple or origin is list:
        names = {int: "whole numbers", float: "numbers"}
        return f"a list [...] of {names.get(get_args(kind)[0], 'names')}"
    return {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        types.NoneType: "null",
    }.get(kind, str(kind))
