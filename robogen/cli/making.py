"""``robogen collect`` and ``robogen train``: demonstrations, and a policy made of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from robogen.cli import common, settings
from robogen.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_COLLECT = [
    settings.Setting("scene", "pick", "Scene name."),
    settings.Setting("out", "", "Dataset folder; needed. The same command continues it."),
    settings.Setting(
        "factors", "[]", "Factors to vary, one per demonstration; nominal alone when empty."
    ),
]
_TRAIN = [
    settings.Setting("data", "", "Dataset folder or list of them; needed."),
    settings.Setting(
        "out", "", "Checkpoint to write (.safetensors); needed. The same command continues it."
    ),
    settings.Setting("threads", "1", "Threads of torch."),
    settings.Setting("resume", "true", "false starts again and replaces what out holds."),
]

_COLLECT_HELP = """Record demonstrations of a scene's oracle.

[bold]Examples[/bold]

  robogen collect scene=pick out=demos/pick episodes=200

  robogen collect scene=pick out=demos/varied episodes=200 factors=\\[camera_pose,table_texture]"""

_TRAIN_HELP = """Train the built-in imitation policy on demonstrations.

[bold]Example[/bold]

  robogen train data=demos/pick out=pick.safetensors steps=2000

  robogen eval scene=pick policy=bc policy.bc.checkpoint=pick.safetensors suite=quick"""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "collect",
        help=_COLLECT_HELP,
        context_settings=common.WORDS,
        options_metavar=common.METAVAR,
        cls=settings.help_with(_COLLECT, [("robogen.collect", "CollectionRecipe")]),
    )(collect)
    app.command(
        "train",
        help=_TRAIN_HELP,
        context_settings=common.WORDS,
        options_metavar=common.METAVAR,
        cls=settings.help_with(_TRAIN, [("robogen.train.recipe", "BCRecipe")]),
    )(train)


def _needed(values: dict[str, Any], key: str, command: str, example: str) -> Any:
    if key not in values:
        raise ConfigError(f"'{command}' needs {key}=..., got none. Write e.g. {key}={example}.")
    return values.pop(key)


def _bar(*columns: str) -> Bar:
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


class _Lines:
    """A line now and then, where there is no terminal for a bar."""

    def __init__(self, every_s: float = 5.0) -> None:
        import time

        self._clock = time.monotonic
        self._every = every_s
        self._last = self._clock()
        self._console = common.progress_console()

    def say(self, text: str) -> None:
        """Print, unless it is a terminal or too early."""
        now = self._clock()
        if not self._console.is_terminal and now - self._last >= self._every:
            self._last = now
            self._console.print(text, soft_wrap=True)


# -- collect ---------------------------------------------------------------------------------------


def collect(context: typer.Context, config_dir: common.ConfigDirs = None) -> None:
    """Record demonstrations."""
    words = common.words(context)
    extra = common.folders(config_dir)
    common.need_mujoco()
    from robogen.collect import CollectionRecipe
    from robogen.collect import collect as record
    from robogen.perturbations.library import load_factor
    from robogen.scenes.load import load_scene
    from robogen.study.config import scene_overrides, split_words

    rest, items = split_words(words)
    kinds = {
        "scene": str,
        "out": str,
        "factors": list[str],
        **settings.kinds_of(CollectionRecipe),
    }
    values = settings.parse(rest, kinds, "robogen collect")
    name = values.pop("scene", "pick")
    out = Path(_needed(values, "out", "robogen collect", f"demos/{name}"))
    asked: Sequence[str] = values.pop("factors", [])
    recipe = CollectionRecipe(**values)
    own: Mapping[str, Mapping[str, Any]] = items.get("perturbation", {})
    _refuse_unused(own, asked, items)
    scene = load_scene(name, overrides=scene_overrides(items, name), extra=extra)
    factors = [load_factor(factor, own.get(factor, {}), extra) for factor in asked]
    lines = _Lines()
    with _bar() as bar:
        task = bar.add_task(f"Demonstrations of {name}", total=recipe.episodes)

        def say(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)
            lines.say(f"{done}/{total} demonstrations")

        try:
            result = record(
                scene,
                out,
                recipe,
                factors=factors,
                command=shlex.join(["robogen", "collect", *words]),
                progress=say,
            )
        except KeyboardInterrupt:
            bar.stop()
            common.progress_console().print(
                f"Stopped: finished demonstrations are in {out}. The same command continues."
            )
            raise typer.Exit(common.INTERRUPTED) from None
    scene.close()
    console = common.output()
    console.print(
        f"{result.written} demonstrations written to {out}, {result.present} were there.",
        soft_wrap=True,
    )
    if result.failed:
        console.print(
            f"The oracle failed on {len(result.failed)} episodes, which are left out: "
            f"{', '.join(map(str, result.failed[:20]))}{' …' if len(result.failed) > 20 else ''}",
            soft_wrap=True,
        )


def _refuse_unused(
    own: Mapping[str, Any], asked: Sequence[str], items: Mapping[str, Mapping[str, Any]]
) -> None:
    """Per-item overrides of what is not there would be lost in silence."""
    for factor in own:
        if factor not in asked:
            raise ConfigError(
                f"Override of factor '{factor}', which factors=[{','.join(asked)}] does not name. "
                "Add it there, or leave the override out."
            )
    if "policy" in items:
        raise ConfigError("A collection has no policy: the scene's oracle acts. Leave it out.")


# -- train -----------------------------------------------------------------------------------------


def train(context: typer.Context) -> None:
    """Train the built-in imitation policy."""
    words = common.words(context)
    common.need_mujoco()
    from robogen.train.recipe import BCRecipe

    kinds = {
        "data": list[str],
        "out": str,
        "threads": int,
        "resume": bool,
        **settings.kinds_of(BCRecipe),
    }
    values = settings.parse(words, kinds, "robogen train")
    data = _needed(values, "data", "robogen train", "demos/pick")
    out = Path(_needed(values, "out", "robogen train", "pick.safetensors"))
    threads, resume = values.pop("threads", 1), values.pop("resume", True)
    if threads < 1:
        raise ConfigError(f"threads must be at least 1, got {threads}. Change it.")
    recipe = BCRecipe.from_mapping(values)
    _train([Path(folder) for folder in data], out, recipe, words, threads=threads, resume=resume)


def _train(
    data: Sequence[Path],
    out: Path,
    recipe: Any,
    words: Sequence[str],
    *,
    threads: int,
    resume: bool,
) -> None:
    from robogen.cli.progress import duration
    from robogen.train.bc import Progress
    from robogen.train.bc import train_bc as run

    lines = _Lines()
    with _bar("{task.fields[losses]}") as bar:
        task = bar.add_task("Training", total=recipe.steps, losses="")

        def say(at: Progress) -> None:
            points = "" if at.points_mm is None else f"  points {at.points_mm:.1f} mm"
            losses = (
                f"loss {at.loss:.4f}  motion {at.motion:.4f}  gripper {at.gripper:.4f}{points}  "
                f"{at.ms_per_step:.0f} ms/step"
            )
            bar.update(task, completed=at.step, losses=losses)
            left = duration((at.steps - at.step) * at.ms_per_step / 1e3)
            lines.say(f"step {at.step}/{at.steps}  {losses}  {left} left")

        try:
            result = run(
                data,
                out,
                recipe,
                progress=say,
                resume=resume,
                command=shlex.join(["robogen", "train", *words]),
                threads=threads,
            )
        except KeyboardInterrupt:
            bar.stop()
            common.progress_console().print(
                f"Stopped. The same command continues from the last saved state (every "
                f"{recipe.save_every} steps).",
                soft_wrap=True,
            )
            raise typer.Exit(common.INTERRUPTED) from None
    console = common.output()
    if result.validation is not None:
        measured = ", ".join(
            f"{name.replace('_', ' ')} {value:.4g}"
            for name, value in result.validation._asdict().items()
            if value is not None
        )
        console.print(f"Held out ({result.held_out} episodes): {measured}", soft_wrap=True)
    console.print(
        f"Trained on {result.episodes} episodes of {result.scene}, {result.parameters} parameters, "
        f"{duration(result.seconds)}: {result.checkpoint}",
        soft_wrap=True,
    )
