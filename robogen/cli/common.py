"""What every command shares: options, consoles, and the check that MuJoCo can be imported."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robogen.errors import ConfigError, GraphicsError, nearest

if TYPE_CHECKING:
    from rich.console import Console

ConfigDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--config-dir",
        help="Folder of your own scenes/, policies/ and perturbations/; may be repeated.",
    ),
]

WORDS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Context settings of commands that take ``key=value`` words."""

METAVAR = "[KEY=VALUE]... [OPTIONS]"
"""How their usage is written."""

INTERRUPTED = 130
BACKENDS = ("egl", "osmesa", "glfw")


def output() -> Console:
    """Where results go: standard output; piped tables keep the width that they need."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)


def progress_console() -> Console:
    """Where progress goes: standard error, so that a pipe gets results alone."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def folders(given: Sequence[Path] | None) -> tuple[Path, ...]:
    """The configuration folders, which must exist.

    Raises:
        ConfigError: One does not.
    """
    for folder in given or ():
        if not folder.is_dir():
            raise ConfigError(
                f"Folder '{folder}' does not exist. Give --config-dir an existing folder."
            )
    return tuple(folder.resolve() for folder in given or ())


def words(context: typer.Context) -> list[str]:
    """The ``key=value`` words of a command; a misspelt option is refused.

    Raises:
        ConfigError: A word starts with a dash.
    """
    known = [
        name
        for parameter in context.command.params
        for name in parameter.opts
        if name.startswith("--")
    ]
    for word in context.args:
        if word.startswith("-"):
            name = word.partition("=")[0]
            guess = nearest(name, known)
            raise ConfigError(
                f"Unknown option '{name}'."
                + (f" Did you mean '{guess}'?" if guess else "")
                + f" Options: {', '.join(known)}; settings are written key=value, without dashes."
            )
    return list(context.args)


def write(file: Path, text: str) -> None:
    """Write a text file, with its folder.

    Raises:
        ConfigError: It cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"Cannot write {file} ({error.strerror or error}). Choose a path you may write to."
        ) from error


def need_mujoco() -> None:
    """Import MuJoCo, whose import fails when ``MUJOCO_GL`` asks for what is not there.

    Raises:
        GraphicsError: It does; the message says what to set or install.
    """
    from robogen.mj import APT

    asked = os.environ.get("MUJOCO_GL", "").lower()
    if asked and asked not in BACKENDS:
        guess = nearest(asked, BACKENDS)
        raise GraphicsError(
            f"MUJOCO_GL is '{os.environ['MUJOCO_GL']}', which is no offscreen OpenGL backend."
            + (f" Did you mean '{guess}'?" if guess else "")
            + f" Available: {', '.join(BACKENDS)}. Set one of these, or unset it to have EGL and "
            "OSMesa tried; 'robogen doctor' shows which work here."
        )
    try:
        import mujoco  # noqa: F401
    except Exception as error:  # the import loads an OpenGL library, and that can raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise GraphicsError(
            f"MuJoCo cannot be imported with MUJOCO_GL={asked or '(unset)'} ({reason}). On Debian: "
            f"{APT}. Or choose another backend; 'robogen doctor' shows which work here."
        ) from error
