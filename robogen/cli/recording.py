"""LeRobotDatasets of a study's episodes, for ``robogen eval`` and ``robogen export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from robogen.cli import bars, common

if TYPE_CHECKING:
    from robogen.recording import Recorded

_MOST_NAMED = 5


def write_dataset(
    run_dir: Path,
    out: Path,
    *,
    layout: str = "v3.0",
    codec: str = "h264",
    workers: int | None = None,
    extra_dirs: tuple[Path, ...] = (),
) -> None:
    """Record a complete study and say what came of it; an interrupted recording is continued.

    Args:
        run_dir: The study.
        out: The dataset's folder.
        layout: Version.
        codec: Of its videos.
        workers: Processes; None: one per core.
        extra_dirs: Configuration folders.

    Raises:
        typer.Exit: Interrupted.
    """
    common.need_mujoco()
    from robogen.datasets.lerobot_writer import LeRobotForm
    from robogen.recording import record_dataset
    from robogen.study.study import cores

    form = LeRobotForm(layout=layout, codec=codec)  # type: ignore[arg-type]  # it checks them
    with bars.bar() as bar:
        try:
            result = record_dataset(
                run_dir,
                out,
                form,
                extra_dirs=extra_dirs,
                workers=cores() if workers is None else workers,
                progress=bars.counter(bar, "Recording episodes", "episodes recorded"),
                assembling=bars.counter(bar, "LeRobotDataset", "episodes put together"),
            )
        except KeyboardInterrupt:
            bar.stop()
            common.progress_console().print(
                f"Stopped: recorded episodes are in {out}. The same command continues.",
                soft_wrap=True,
            )
            raise typer.Exit(common.INTERRUPTED) from None
    _say(result, layout)


def _say(result: Recorded, layout: str) -> None:
    console = common.output()
    console.print(
        f"{result.written} episodes recorded, {result.present} were there.", soft_wrap=True
    )
    if result.errored:
        console.print(f"{result.errored} errored episodes are left out.", soft_wrap=True)
    if result.differing:
        console.print(
            f"[red]{len(result.differing)} episodes came out otherwise than they were "
            "recorded[/red] and are left out:",
            soft_wrap=True,
        )
        for line in result.differing[:_MOST_NAMED]:
            console.print(f"  {line}", soft_wrap=True, markup=False)
        if len(result.differing) > _MOST_NAMED:
            console.print(f"  … and {len(result.differing) - _MOST_NAMED} more.")
    for folder in result.folders:
        console.print(f"LeRobotDataset {layout}: {folder}", soft_wrap=True)
