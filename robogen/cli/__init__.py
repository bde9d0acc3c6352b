"""The command line: one module per group of commands, each importing what it needs when called."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code.

    Args:
        argv: Arguments after the program's name; None takes the process's.
    """
    from robogen.cli.app import run

    raise SystemExit(run(argv))
