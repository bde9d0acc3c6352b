"""``robogen init``: working skeletons from the user's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robogen.cli import common

_HELP = """Write a working scene for an object of your own: table, Panda, the object, a tray.

MODEL.xml is MJCF with exactly one body in worldbody, without a free joint, in metres, z up.

[bold]Example[/bold]

  robogen init scene mug models/mug.xml --config-dir my"""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="Write a working skeleton from your own files.",
        no_args_is_help=True,
        rich_markup_mode="rich",
    )
    group.command("scene", help=_HELP)(scene)
    # a group of one command would otherwise be taken for that command
    group.callback()(lambda: None)
    app.add_typer(group, name="init")


def scene(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the scene.")],
    model: Annotated[Path, typer.Argument(metavar="MODEL.xml", help="MJCF of the object.")],
    config_dir: Annotated[
        Path,
        typer.Option("--config-dir", help="Your folder; the scene goes into its scenes/."),
    ] = Path("configs"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing scene file.")] = False,
) -> None:
    """Write a working scene."""
    common.need_mujoco()
    from robogen.init_scene import write_scene

    made = write_scene(name, model, config_dir, force=force)
    size = 100 * (made.facts.high - made.facts.low)
    console = common.output()
    console.print(
        f"{made.file}: {model.name} is {' × '.join(f'{side:.1f}' for side in size)} cm and weighs "
        f"{1000 * made.facts.mass:.0f} g.",
        soft_wrap=True,
    )
    console.print("The scene builds. See whether its oracle can do the task:")
    console.print(
        f"  robogen eval scene={name} policy=oracle perturbation=[light_intensity] episodes=5 "
        f"--config-dir {config_dir}",
        soft_wrap=True,
        markup=False,
    )
