"""``robogen replay``: one recorded episode again, compared with its record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robogen.cli import common
from robogen.errors import ConfigError

_HELP = """Run one recorded episode again, exactly, and say whether it came out identical.

The policy is not needed: its applied actions were recorded. Exit code 1 when anything differs.

[bold]Examples[/bold]

  robogen replay runs/first pick/bc/camera_pose/7 --video episode.mp4

  robogen replay runs/first --scene pick --policy bc --condition nominal --episode 3"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay", help=_HELP)(replay)


def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="EPISODE", help="scene/policy/condition/episode, and /repeat of a rerun."
        ),
    ] = None,
    scene: Annotated[str | None, typer.Option(help="Scene.")] = None,
    policy: Annotated[str | None, typer.Option(help="Policy.")] = None,
    condition: Annotated[str, typer.Option(help="Condition.")] = "nominal",
    episode: Annotated[int | None, typer.Option(help="Episode.", min=0)] = None,
    repeat: Annotated[int, typer.Option(help="Rerun of the noise floor.", min=0)] = 0,
    video: Annotated[Path | None, typer.Option("--video", help="MP4 to write.")] = None,
    config_dir: common.ConfigDirs = None,
) -> None:
    """Run one recorded episode again."""
    extra = common.folders(config_dir)
    common.need_mujoco()
    from robogen.records.schema import EpisodeKey
    from robogen.replay import film, open_scene, parse_key, stored_episode
    from robogen.replay import replay as again

    if key is not None:
        wanted = parse_key(key)
    elif scene is not None and policy is not None and episode is not None:
        wanted = EpisodeKey(scene, policy, condition, episode, repeat)
    else:
        given = {"--scene": scene, "--policy": policy, "--episode": episode}
        missing = [name for name, value in given.items() if value is None]
        raise ConfigError(
            f"Which episode? {', '.join(missing)} missing. Name all of them, or write the episode "
            "as scene/policy/condition/episode, such as pick/bc/camera_pose/7."
        )
    stored = stored_episode(run, wanted, extra)
    opened = open_scene(stored)
    try:
        result = film(stored, opened, video) if video is not None else again(stored, opened)
    finally:
        opened.close()
    console = common.output()
    record = result.record
    name = "/".join(map(str, wanted[:4])) + (f"/{wanted.repeat}" if wanted.repeat else "")
    if record.status == "errored":
        outcome = f"errored ({record.error_kind}: {record.error})"
    else:
        outcome = f"{'success' if record.success else 'failure'} after {record.steps} steps"
    if result.differences:
        console.print(f"{name}: [red]differs[/red] from its record, {outcome}")
        for line in result.differences:
            console.print(f"  {line}", soft_wrap=True, markup=False)
    else:
        console.print(f"{name}: [green]identical[/green], {outcome}", soft_wrap=True)
    if video is not None:
        console.print(f"Video: {video}", soft_wrap=True)
    if result.differences:
        raise typer.Exit(1)
