"""The commands under one name, and what becomes of an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from robogen.cli import (
    comparing,
    evaluate,
    init,
    inspection,
    listing,
    making,
    probing,
    replaying,
    reporting,
    serving,
)
from robogen.errors import RobogenError

USER_ERROR = 2
"""Exit code of a mistake that its message lets the user mend; the same as for a wrong option."""

app = typer.Typer(
    name="robogen",
    help=(
        "Evaluate robot manipulation policies in simulation, factor by factor.\n\n"
        "Start with [bold]robogen doctor[/bold], then [bold]robogen eval scene=pick policy=oracle "
        "suite=quick[/bold]."
    ),
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"robogen {version('robogen')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    del version


evaluate.register(app)
reporting.register(app)
comparing.register(app)
listing.register(app)
inspection.register(app)
making.register(app)
probing.register(app)
replaying.register(app)
serving.register(app)
init.register(app)


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a bug's exception passes through.

    Codes: 0 all well; 1 a check found a difference or a fault; 2 a mistake of the user; 3 episodes
    errored; 130 interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        app(args=arguments, prog_name="robogen", standalone_mode=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except RobogenError as error:
        sys.stdout.flush()
        print(f"robogen: {' '.join(str(error).split())}", file=sys.stderr)
        return USER_ERROR
    except BrokenPipeError:
        # The reader (head, say) has gone. Nothing can be said to it, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0
