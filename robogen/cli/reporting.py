"""``robogen report`` and ``robogen export``: from records alone, without MuJoCo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robogen.cli import common

if TYPE_CHECKING:
    from rich.console import Console

    from robogen.report import Run

_MOST_ERRORS = 5
_WIDE = 130
"""Columns of a terminal that has room for physical ranges beside the numbers."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("report")(report)
    app.command("export")(export)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder to write to; the run folder when there is one."),
    ] = None,
    behaviour: Annotated[
        bool, typer.Option("--behaviour", help="Add a table of behaviour changes.")
    ] = False,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", help="Also write the tables as Markdown to this file."),
    ] = None,
) -> None:
    """Write report.html and report.json of one or several runs, and print their tables."""
    from robogen.report import build_report, markdown_table

    built = build_report(runs)
    console = common.output()
    for run in built.runs:
        print_run(run, console, behaviour=behaviour)
        print_errors(run, console)
    page, _ = built.write(out or (runs[0] if len(runs) == 1 else Path()))
    console.print(f"Report: {page}", soft_wrap=True)
    if markdown is not None:
        markdown.parent.mkdir(parents=True, exist_ok=True)
        markdown.write_text("\n".join(markdown_table(run) for run in built.runs), encoding="utf-8")
        console.print(f"Markdown: {markdown}", soft_wrap=True)


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    out: Annotated[
        Path | None,
        typer.Argument(metavar="OUT.parquet", help="File; RUN/episodes.parquet by default."),
    ] = None,
    actions: Annotated[
        bool, typer.Option("--actions", help="Add every episode's applied actions.")
    ] = False,
    dataset: Annotated[
        Path | None,
        typer.Option(
            "--dataset",
            help="Write a LeRobotDataset to this folder instead, by running every episode again "
            "from its record; with several scenes or policies, a folder of them.",
        ),
    ] = None,
    layout: Annotated[
        str, typer.Option("--format", help="Version of the dataset: v3.0 or v2.1.")
    ] = "v3.0",
    codec: Annotated[
        str,
        typer.Option(
            "--codec", help="Of its videos: h264, hevc or av1; png: exact pictures in its tables."
        ),
    ] = "h264",
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Processes that run episodes again; one per core.", min=0),
    ] = None,
    config_dir: common.ConfigDirs = None,
) -> None:
    """Write the records as Parquet, or the episodes as a LeRobotDataset.

    The Parquet file has one row per episode and one column per draw.
    """
    if dataset is not None:
        from robogen.cli.recording import write_dataset

        extra = common.folders(config_dir)
        write_dataset(run, dataset, layout=layout, codec=codec, workers=workers, extra_dirs=extra)
        if out is None and not actions:
            return
    from robogen.records import export_parquet

    target = out or run / "episodes.parquet"
    rows = export_parquet(run, target, actions=actions)
    common.output().print(f"{rows} episodes: {target}", soft_wrap=True)


def print_run(run: Run, console: Console, *, behaviour: bool) -> None:
    """The tables of a run, one per policy and scene."""
    from robogen.report import terminal_table
    from robogen.report.words import headline, latency_text

    # where there is no room they would squeeze the numbers; the page has them
    ranges = run.ranges if console.width >= _WIDE else {}
    tables = terminal_table(run.summary, ranges=ranges, behaviour=behaviour)
    for table in tables:
        console.print(table)
    for group in run.summary.groups:
        console.print(f"[bold]{group.policy} on {group.scene}[/bold]: {headline(group)}")
        latency = run.latency(group.scene, group.policy)
        if latency is not None:
            console.print(latency_text(latency), style="dim", soft_wrap=True)


def print_errors(run: Run, console: Console) -> None:
    """Why episodes errored, the most frequent reasons first."""
    for group in run.summary.groups:
        reasons = run.errors(group.scene, group.policy)
        for reason in reasons[:_MOST_ERRORS]:
            console.print(
                f"[red]{reason.episodes} errored[/red] ({group.policy} on {group.scene}, "
                f"{reason.kind}, {', '.join(reason.conditions[:3])}"
                f"{' …' if len(reason.conditions) > 3 else ''}): ",
                end="",
            )
            console.print(reason.text, markup=False, soft_wrap=True)
        if len(reasons) > _MOST_ERRORS:
            console.print(f"… and {len(reasons) - _MOST_ERRORS} more reasons, see the report.")
