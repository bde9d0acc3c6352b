"""``robogen eval``: run or resume a study, or say what it would do."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robogen.cli import common, settings
from robogen.cli.sweep import Job, jobs

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from robogen.study.design import Design

ERRORED = 3
"""Exit code when episodes errored: the study is complete, but not all of it was measured."""

_HELP = """Run a study, or resume it: the same command continues where it stopped.

Settings are written key=value; lists are \\[a,b]. One item's own parameters are set with
perturbation.NAME.KEY=VALUE, policy.NAME.KEY=VALUE and scene.NAME.KEY=VALUE.

[bold]Examples[/bold]

  robogen eval scene=pick policy=oracle suite=quick

  robogen eval scene=pick policy=bc perturbation=\\[camera_pose,friction] episodes=40 out=runs/a

  robogen eval scene=\\[pick,push] policy=\\[bc,oracle] suite=all --dry-run

  robogen eval scene=pick policy=bc perturbation.camera_pose.severity=0.5

  robogen eval scene=pick policy=bc severity=0.25,0.5,1 --multirun

  robogen eval scene=pick policy=bc suite=quick record_dataset=datasets/bc

[bold]Exit codes[/bold]: 0 all episodes scored, 2 a mistake in the command, 3 episodes errored,
130 interrupted."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "eval",
        help=_HELP,
        options_metavar=common.METAVAR,
        context_settings=common.WORDS,
        cls=settings.help_with((), [("robogen.study.config", "StudyConfig")], hidden=("items",)),
    )(evaluate)


def evaluate(
    context: typer.Context,
    config_dir: common.ConfigDirs = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say what would run, how long and how large; run nothing."),
    ] = False,
    multirun: Annotated[
        bool,
        typer.Option(
            "--multirun", "-m", help="Sweep over comma-separated values, each job its own study."
        ),
    ] = False,
    behaviour: Annotated[
        bool,
        typer.Option("--behaviour", help="Add a table of behaviour changes per condition."),
    ] = False,
) -> None:
    """Run a study, or resume it."""
    words = common.words(context)
    extra = common.folders(config_dir)
    common.need_mujoco()

    plan: list[Job] = jobs(words) if multirun else [Job(words=tuple(words))]
    code = 0
    for number, job in enumerate(plan, start=1):
        if multirun:
            common.progress_console().print(f"[bold]Job {number} of {len(plan)}: {job.name}")
        command = _command(job.words, config_dir)
        code = max(code, _study(job, extra, command, dry_run=dry_run, behaviour=behaviour))
        if code == common.INTERRUPTED:
            break
    raise typer.Exit(code)


def _command(words: Sequence[str], config_dir: Sequence[Path] | None) -> str:
    options = [part for folder in config_dir or () for part in ("--config-dir", str(folder))]
    return shlex.join(["robogen", "eval", *words, *options])


def _study(
    job: Job, extra: tuple[Path, ...], command: str, *, dry_run: bool, behaviour: bool
) -> int:
    """One study from words to report; its exit code."""
    from robogen.cli.progress import StudyView
    from robogen.study.config import compose_study
    from robogen.study.design import resolve
    from robogen.study.study import run_study

    out, progress = common.output(), common.progress_console()
    try:
        with _busy(progress, "Loading scenes and policies"):
            design = resolve(compose_study(job.words), extra)
        run_dir = job.run_dir(design)
        if dry_run:
            from robogen.cli.dry_run import show

            show(design, run_dir, out, progress)
            return 0
        target = job.dataset(design)
        if target is not None:
            _check_recording(design, target)
        for scene, notes in design.notes.items():
            for note in notes:
                progress.print(f"Note on {scene}: {note}.", soft_wrap=True)
        for who, what in design.adaptations.items():
            for line in what:
                progress.print(f"{who}: {line}.")
        view = StudyView(progress, run_dir)
        try:
            with view.shown():
                result = run_study(design, run_dir, view, command=command)
        except KeyboardInterrupt:
            progress.print(
                f"Stopped: {view.done} of {view.total} episodes are saved in {run_dir}. The same "
                "command resumes.",
                soft_wrap=True,
            )
            return common.INTERRUPTED
    except KeyboardInterrupt:
        progress.print("Stopped before anything ran.")
        return common.INTERRUPTED
    try:
        _finish(design, run_dir, out, progress, behaviour=behaviour)
    except KeyboardInterrupt:
        progress.print(
            f"Stopped while reporting; all {result.total} episodes are saved in {run_dir}. "
            f"'robogen report {run_dir}' makes the report.",
            soft_wrap=True,
        )
        return common.INTERRUPTED
    if target is not None:
        from robogen.cli.recording import write_dataset

        write_dataset(run_dir, target, workers=design.config.workers, extra_dirs=extra)
    return ERRORED if result.errored else 0


def _check_recording(design: Design, out: Path) -> None:
    """Refuse a dataset's folder before hours are spent, not after."""
    from robogen.recording import check_place

    pairs = [(scene, policy) for scene in design.scenes for policy in design.policies]
    check_place(out, pairs, design.hash)


def _busy(progress: Console, what: str) -> AbstractContextManager[Status | None]:
    return progress.status(what) if progress.is_terminal else nullcontext()


def _finish(
    design: Design, run_dir: Path, out: Console, progress: Console, *, behaviour: bool
) -> None:
    """Videos, report and table of a complete study."""
    from robogen.cli.reporting import print_errors, print_run
    from robogen.errors import RobogenError
    from robogen.replay import study_videos
    from robogen.report import build_report

    videos: list[Path] = []
    try:
        with _busy(progress, "Filming episodes") as bar:

            def say(done: int, total: int) -> None:
                if bar is not None:
                    bar.update(f"Filming episodes, {done} of {total}")

            videos = study_videos(run_dir, design, design.config.videos, say)
    except RobogenError as error:  # the numbers are there all the same
        progress.print(f"No videos: {error}", soft_wrap=True)
    report = build_report([run_dir])
    page, _ = report.write(run_dir)
    for run in report.runs:
        print_run(run, out, behaviour=behaviour)
        print_errors(run, out)
    if videos:
        out.print(f"{len(videos)} videos: {run_dir / 'videos'}", soft_wrap=True)
    out.print(f"Report: {page}", soft_wrap=True)
