"""``robogen compare``: is B better than A, from records alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robogen.cli import common
from robogen.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from robogen.compare import Comparison, Row

WORSE = 1
"""Exit code when B is worse by more than was allowed."""

_HELP = """Compare two policies, or two ways of training, on the same episodes.

One run folder holds both sides, or the first holds A and the second B. What is compared must be
said: [bold]checkpoints[/bold] are these very weights, [bold]recipes[/bold] the ways they were
trained, for which each side needs several training seeds.

[bold]Examples[/bold]

  robogen compare runs/baselines --a bc --b bc_augment --of checkpoints

  robogen compare runs/before runs/after --of checkpoints --fail-if-worse 5 --junit compare.xml

  robogen compare runs/seeds --a 'nominal-*' --b 'augment-*' --of recipes

[bold]Exit codes[/bold]: 0 compared, 1 B is worse by at least --fail-if-worse points, 2 a mistake in
the command."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare", help=_HELP)(compare)


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN [RUN]", help="Run folders.")],
    a: Annotated[
        str, typer.Option("--a", help="Policy, or seeds of a recipe: names or wildcards, a,b,c.")
    ] = "",
    b: Annotated[str, typer.Option("--b", help="The same of the other side.")] = "",
    of: Annotated[
        str, typer.Option("--of", metavar="checkpoints|recipes", help="What is compared.")
    ] = "",
    alpha: Annotated[float, typer.Option("--alpha", help="Family-wise level.")] = 0.05,
    fail_if_worse: Annotated[
        float | None,
        typer.Option(
            "--fail-if-worse",
            metavar="POINTS",
            help="Exit with 1 where B is worse, and by at least so many points.",
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write every number to this file.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Write the table as Markdown to this file.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Write the rows as JUnit test cases.")
    ] = None,
) -> None:
    """Compare."""
    from robogen import compare as comparing
    from robogen.errors import unknown

    if len(runs) > 2:
        raise ConfigError(f"Got {len(runs)} run folders, expected one or two.")
    if of not in ("", "checkpoints", "recipes"):
        raise ConfigError(unknown("kind of comparison", of, ("checkpoints", "recipes")))
    if not 0.0 < alpha < 1.0:
        raise ConfigError(f"--alpha must lie between 0 and 1, got {alpha:g}.")
    result = comparing.compare(
        runs,
        a=[name for name in a.split(",") if name],
        b=[name for name in b.split(",") if name],
        what=of or None,  # type: ignore[arg-type]
        alpha=alpha,
    )
    console = common.output()
    console.print(_table(result))
    for line in [*result.remarks, *_sentences(result)]:
        console.print(line, soft_wrap=True)
    limit = 0.0 if fail_if_worse is None else fail_if_worse
    broken = result.worse_by(limit)
    if json_file is not None:
        common.write(json_file, json.dumps(comparing.as_json(result), indent=2) + "\n")
    if markdown is not None:
        common.write(markdown, _markdown(result))
    if junit is not None:
        common.write(junit, _junit(result, broken))
    if fail_if_worse is not None and broken:
        names = ", ".join(f"{row.condition} on {row.scene}" for row in broken)
        console.print(f"[bold red]Worse by {limit:g} points or more: {names}.", soft_wrap=True)
        raise typer.Exit(WORSE)


def _table(result: Comparison) -> Table:
    from rich.table import Table
    from rich.text import Text

    from robogen.compare import Answer

    styles = {
        Answer.BETTER: "bold green",
        Answer.WORSE: "bold red",
        Answer.CANNOT_TELL: "",
        Answer.NOT_COMPARABLE: "yellow",
    }
    table = Table(title_justify="left", title_style="bold", title=_title(result))
    for name, right in _columns(result):
        table.add_column(name, justify="right" if right else "left")
    for row in result.rows:
        *cells, answer = _cells(row, result)
        table.add_row(*cells, Text(answer, style=styles[row.answer]))
    return table


def _markdown(result: Comparison) -> str:
    columns = _columns(result)
    lines = [
        [name for name, _ in columns],
        ["---:" if right else "---" for _, right in columns],
        *(_cells(row, result) for row in result.rows),
    ]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([f"{_title(result)}.", table, *result.remarks, *_sentences(result)]) + "\n"


def _columns(result: Comparison) -> list[tuple[str, bool]]:
    """Names, and whether they stand on the right."""
    side = "{}: mean over seeds ± spread [range]" if result.what == "recipes" else "{}, 95 %"
    scene = [("scene", False)] if len({row.scene for row in result.rows}) > 1 else []
    return [
        *scene,
        ("condition", False),
        (side.format("A"), True),
        (side.format("B"), True),
        ("B - A in points, 95 %", True),
        ("p (Holm)", True),
        ("B is", False),
    ]


def _cells(row: Row, result: Comparison) -> list[str]:
    from robogen.report.words import change_text, factor_name, p_text

    several = len({row.scene for row in result.rows}) > 1
    return [
        *([row.scene] if several else []),
        factor_name(row.condition),
        _side(row, "a"),
        _side(row, "b"),
        change_text(row.change),
        p_text(row.p_holm),
        _answer(row, result.what == "recipes"),
    ]


def _title(result: Comparison) -> str:
    kind = "Recipes over training seeds" if result.what == "recipes" else "Checkpoints"
    return f"{kind}. A: {', '.join(result.a)}. B: {', '.join(result.b)}"


def _side(row: Row, which: str) -> str:
    from robogen.report.words import NBSP, rate_text

    side = row.a if which == "a" else row.b
    if side.spread is None:
        return rate_text(side.rate)
    s = side.spread
    return f"{100 * s.mean:.0f}{NBSP}% ± {100 * s.sd:.1f} [{100 * s.low:.0f}, {100 * s.high:.0f}]"


def _answer(row: Row, seeds: bool) -> str:
    from robogen.compare import Answer

    if row.answer is Answer.NOT_COMPARABLE:
        return f"not comparable: {row.why}"
    if row.answer is not Answer.CANNOT_TELL:
        return str(row.answer.value)
    if row.change is None or row.change.value == 0.0:
        return "cannot tell (no difference seen)"
    if row.needed is None:
        return "cannot tell (a difference of this size is out of reach)"
    unit = "seeds a side" if seeds else "episodes"
    return f"cannot tell ({row.needed} {unit} would show it)"


def _sentences(result: Comparison) -> list[str]:
    from robogen.compare import Answer
    from robogen.report.words import factor_name

    lines = []
    for answer in (Answer.BETTER, Answer.WORSE):
        named = [factor_name(row.condition) for row in result.rows if row.answer is answer]
        if named:
            lines.append(f"B is {answer.value} under {', '.join(named)}.")
    if not lines:
        lines.append("Nothing separates B from A here.")
    if result.what == "recipes":
        noise = max(s.noise for row in result.rows for s in (row.a.spread, row.b.spread) if s)
        lines.append(
            "Spread is the standard deviation between seeds, with the lowest and the highest in "
            f"brackets; the number of episodes alone explains up to {100 * noise:.1f} points of it."
        )
    else:
        lines.append(
            "These are two sets of weights: whether the way of training makes the difference is "
            "another question (--of recipes)."
        )
    return lines


def _junit(result: Comparison, broken: list[Row]) -> str:
    from xml.etree import ElementTree as Xml

    suite = Xml.Element(
        "testsuite", name="robogen compare", tests=str(len(result.rows)), failures=str(len(broken))
    )
    for row in result.rows:
        case = Xml.SubElement(suite, "testcase", classname=row.scene, name=row.condition)
        if row in broken:
            assert row.change is not None
            Xml.SubElement(
                case, "failure", message=f"B is worse by {-100 * row.change.value:.1f} points"
            )
        elif row.why:
            Xml.SubElement(case, "skipped", message=row.why)
    Xml.indent(suite)
    return str(Xml.tostring(suite, encoding="unicode", xml_declaration=True)) + "\n"
