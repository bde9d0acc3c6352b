"""A study as it runs: a live view on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from robogen.errors import RecordsError
from robogen.records.reader import read_records
from robogen.records.schema import EpisodeRecord

if TYPE_CHECKING:
    from robogen.study.design import Design

LINE_EVERY_S = 5.0
"""Seconds between lines where the output is no terminal."""
_CELL = 34
"""Columns that one condition takes."""


def duration(seconds: float) -> str:
    """``42 s``, ``3:07 min`` or ``2:05 h``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    return f"{minutes // 60}:{minutes % 60:02d} h"


class StudyView:
    """Follows a study; the study's observer.

    Args:
        console: Where to draw.
        run_dir: The study's folder; what it already holds is counted too.
    """

    def __init__(self, console: Console, run_dir: Path) -> None:
        self._console = console
        self._run_dir = run_dir
        self._begun = time.monotonic()
        self._line = self._begun
        self._design: Design | None = None
        self.done = 0
        self.total = 0
        self._ran = 0
        self._group: tuple[str, str] | None = None
        self._scored: Counter[tuple[str, str, str]] = Counter()
        self._success: Counter[tuple[str, str, str]] = Counter()
        self._errored: Counter[tuple[str, str, str]] = Counter()

    # -- observer --------------------------------------------------------------------------------

    def begin(self, design: Design, done: int, total: int) -> None:
        """The study starts with this many episodes already recorded."""
        self._design, self.done, self.total = design, done, total
        self._begun = self._line = time.monotonic()
        self._group = (design.scenes[0], design.policies[0])
        if done:
            try:
                for record in read_records(self._run_dir):
                    self._count(record)
            except RecordsError:  # another reader's lock, say: the bar is right all the same
                pass
            self._console.print(f"{done} of {total} episodes are already there; resuming.")

    def record(self, record: EpisodeRecord) -> None:
        """An episode is on disk."""
        self.done += 1
        self._ran += 1
        self._group = (record.scene, record.policy)
        self._count(record)
        self.tick()

    def tick(self) -> None:
        """Some time has passed."""
        now = time.monotonic()
        if not self._console.is_terminal and now - self._line >= LINE_EVERY_S:
            self._line = now
            self._console.print(self.line(), soft_wrap=True)

    def _count(self, record: EpisodeRecord) -> None:
        if record.repeat:
            return
        key = (record.scene, record.policy, record.condition)
        if record.success is None:
            self._errored[key] += 1
        else:
            self._scored[key] += 1
            self._success[key] += record.success

    # -- drawing ---------------------------------------------------------------------------------

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw live while the study runs, where the console can."""
        if not self._console.is_terminal:
            yield
            return
        with Live(
            console=self._console,
            get_renderable=self.render,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            yield

    def line(self) -> str:
        """Everything in one line."""
        parts = [f"{self.done}/{self.total} episodes", self._pace()]
        if self._group is not None:
            where = [key for key in self._scored if key[:2] == self._group]
            scored = sum(self._scored[key] for key in where)
            success = sum(self._success[key] for key in where)
            scene, policy = self._group
            parts.append(f"{policy} on {scene}: {success}/{scored} successes")
        errored = sum(self._errored.values())
        return "  ".join([*parts, *([f"{errored} errored"] if errored else [])])

    def _pace(self) -> str:
        seconds = time.monotonic() - self._begun
        if not self._ran:
            return f"starting, {duration(seconds)}"
        rate = self._ran / max(seconds, 1e-9)
        left = duration((self.total - self.done) / rate)
        speed = f"{rate:.1f} episodes/s" if rate >= 1 else f"{60 * rate:.0f} episodes/min"
        return f"{speed}  {left} left"

    def render(self) -> RenderableType:
        """The bar over one cell per condition of the group that runs."""
        head = Table.grid(padding=(0, 2, 0, 0))
        head.add_row(
            ProgressBar(
                total=max(self.total, 1),
                completed=self.done,
                width=max(8, min(28, self._console.width // 3 - 8)),
            ),
            Text(f"{self.done}/{self.total}", no_wrap=True),
            Text(self._pace(), no_wrap=True, overflow="ellipsis"),
        )
        if self._design is None or self._group is None:
            return head
        scene, policy = self._group
        conditions = [item.id for item in self._design.conditions[scene]]
        title = Text(f"{policy} on {scene}: successes of scored episodes", style="dim")
        return Group(head, title, self._cells(scene, policy, conditions))

    def _cells(self, scene: str, policy: str, conditions: Sequence[str]) -> Table:
        """Conditions in as many columns as the terminal has room for."""
        room = max(self._console.height - 5, 4)
        columns = max(1, self._console.width // _CELL)
        fits = room * columns
        shown = list(conditions)
        if len(shown) > fits:
            shown = shown[: fits - 1]
        cells = [self._cell(scene, policy, name) for name in shown]
        if len(shown) < len(conditions):
            cells.append(Text(f"and {len(conditions) - len(shown)} more", style="dim"))
        rows = -(-len(cells) // columns)
        table = Table.grid(padding=(0, 2, 0, 0))
        for row in range(rows):
            table.add_row(*cells[row::rows])
        return table

    def _cell(self, scene: str, policy: str, condition: str) -> Text:
        key = (scene, policy, condition)
        scored, success, errored = self._scored[key], self._success[key], self._errored[key]
        name = condition if len(condition) <= 21 else f"{condition[:20]}…"
        text = Text(f"{name:<21} ", no_wrap=True)
        text.append(
            f"{success:>3}/{scored:<3}" if scored else "   ·   ", "bold" if scored else "dim"
        )
        if errored:
            text.append(f" ×{errored}", "bold red")
        return text
