"""Progress of one long task: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from robogen.cli import common

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


def bar(*columns: str) -> Bar:
    """A progress bar, to be used in a ``with``; invisible where there is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    console = common.progress_console()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        Remaining(),
        *(TextColumn(column) for column in columns),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class Lines:
    """A line now and then, where there is no terminal for a bar."""

    def __init__(self, every_s: float = 5.0) -> None:
        self._every = every_s
        self._last = time.monotonic()
        self._console = common.progress_console()

    def say(self, text: str) -> None:
        """Print, unless it is a terminal or too early."""
        now = time.monotonic()
        if not self._console.is_terminal and now - self._last >= self._every:
            self._last = now
            self._console.print(text, soft_wrap=True)


def counter(shown: Bar, title: str, things: str) -> Callable[[int, int], None]:
    """A callback for (done, total) that shows a task of a bar from its first call on.

    Args:
        shown: The bar.
        title: Of the task.
        things: What is counted, for the lines.
    """
    lines = Lines()
    tasks: list[TaskID] = []

    def say(done: int, total: int) -> None:
        if not tasks:
            tasks.append(shown.add_task(title, total=total))
        shown.update(tasks[0], completed=done, total=total)
        lines.say(f"{done}/{total} {things}")

    return say
