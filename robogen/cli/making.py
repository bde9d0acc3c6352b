"""``robogen collect`` and ``robogen train``: demonstrations, and a policy made of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import typer

from robogen.cli import bars, common, settings
from robogen.errors import ConfigError

_COLLECT = [
    settings.Setting("scene", "pick", "Scene name."),
    settings.Setting("out", "", "Dataset folder; needed. The same command continues it."),
    settings.Setting(
        "format",
        "lerobot",
        "lerobot: a LeRobotDataset v3.0, with the exact episodes in out/robogen; lerobot-v2.1: the "
        "older version; episodes: the exact episodes alone.",
    ),
    settings.Setting(
        "codec",
        "h264",
        "Of the dataset's videos: h264, hevc or av1; png: exact pictures in its tables instead.",
    ),
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

_COLLECT_HELP = """Record demonstrations of a scene's oracle, as a LeRobotDataset.

LeRobot loads the folder as it is; 'robogen train' reads the exact episodes beside it.

[bold]Examples[/bold]

  robogen collect scene=pick out=demos/pick episodes=200

  robogen collect scene=pick out=demos/varied episodes=200 factors=\\[camera_pose,table_texture]

  robogen collect scene=pick out=demos/older episodes=200 format=lerobot-v2.1"""

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


# -- collect ---------------------------------------------------------------------------------------


def collect(context: typer.Context, config_dir: common.ConfigDirs = None) -> None:
    """Record demonstrations."""
    words = common.words(context)
    extra = common.folders(config_dir)
    common.need_mujoco()
    from robogen.collect import CollectionRecipe, collect_dataset
    from robogen.datasets.lerobot_format import Layout
    from robogen.datasets.lerobot_writer import LeRobotForm
    from robogen.perturbations.library import load_factor
    from robogen.scenes.load import load_scene
    from robogen.study.config import scene_overrides, split_words

    rest, items = split_words(words)
    kinds = {
        "scene": str,
        "out": str,
        "format": Literal["lerobot", "lerobot-v2.1", "episodes"],
        "codec": Literal["h264", "hevc", "av1", "png"],
        "factors": list[str],
        **settings.kinds_of(CollectionRecipe),
    }
    values = settings.parse(rest, kinds, "robogen collect")
    name = values.pop("scene", "pick")
    out = Path(_needed(values, "out", "robogen collect", f"demos/{name}"))
    asked: Sequence[str] = values.pop("factors", [])
    shape, codec = values.pop("format", "lerobot"), values.pop("codec", None)
    if shape == "episodes" and codec is not None:
        raise ConfigError(
            f"codec={codec} has no effect with format=episodes, whose frames are exact. Leave one "
            "of them out."
        )
    recipe = CollectionRecipe(**values)
    own: Mapping[str, Mapping[str, Any]] = items.get("perturbation", {})
    _refuse_unused(own, asked, items)
    scene = load_scene(name, overrides=scene_overrides(items, name), extra=extra)
    factors = [load_factor(factor, own.get(factor, {}), extra) for factor in asked]
    form = None
    if shape != "episodes":
        layouts: dict[str, Layout] = {"lerobot": "v3.0", "lerobot-v2.1": "v2.1"}
        form = LeRobotForm(layout=layouts[shape], codec=codec or "h264")
    with bars.bar() as bar:
        try:
            result = collect_dataset(
                scene,
                out,
                recipe,
                form=form,
                factors=factors,
                command=shlex.join(["robogen", "collect", *words]),
                progress=bars.counter(bar, f"Demonstrations of {name}", "demonstrations"),
                assembling=bars.counter(bar, "LeRobotDataset", "episodes put together"),
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
    if form is not None and result.written + result.present:
        console.print(f"LeRobotDataset {form.layout}: {out}", soft_wrap=True)
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

    lines = bars.Lines()
    with bars.bar("{task.fields[losses]}") as bar:
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
