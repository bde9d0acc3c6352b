"""``robogen probe``: does this policy's every convention fit, by experiment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robogen.cli import common, settings
from robogen.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from robogen.policies.base import Policy
    from robogen.probe import ProbeConfig, ProbeResult
    from robogen.probe.samples import Data
    from robogen.scenes.base import Scene

WRONG = 1
"""Exit code of --strict when something is suspicious."""

_HELP = """Check a policy's conventions by experiment, before the first episode.

Demonstrations (of the scene's expert, or of dataset=) are put to the policy as it is configured,
and under every other image orientation, channel order, crop, state order, gripper sign, action
frame, scale and so on. Whatever agrees clearly better is named. Its statistics are compared with
the data's, and in a scene each action dimension is driven alone.

[bold]Examples[/bold]

  robogen probe policy=bc scene=pick

  robogen probe policy=mine scene=libero/spatial_0 dataset=demos/libero --config-dir my --strict

  robogen probe policy=bc policy.bc.checkpoint=my.safetensors dataset=demos/pick

  robogen probe policy=bc scene=pick --self-test

[bold]Exit codes[/bold]: 0 done (with --strict: nothing suspicious), 1 something suspicious with
--strict, 2 a mistake in the command."""

_OWN = (
    settings.Setting("policy", "bc", "Policy name."),
    settings.Setting("scene", "null", "Scene; without one dataset= is needed, and nothing driven."),
    settings.Setting("dataset", "null", "Demonstrations: robogen's, or any LeRobotDataset."),
    settings.Setting("cameras", "null", "Of other people's datasets: {camera: feature}."),
    settings.Setting("state", "null", "Of others' datasets: {part: size} of observation.state."),
    settings.Setting("action", "null", "Of others' datasets: what actions mean, {mode: ...}."),
    settings.Setting(
        "orientation", "null", "Of others' datasets: how frames are turned; upright if not said."
    ),
    settings.Setting("out", "null", "Folder for a picture of the frames under each candidate."),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "probe",
        help=_HELP,
        options_metavar=common.METAVAR,
        context_settings=common.WORDS,
        cls=settings.help_with(_OWN, [("robogen.probe.run", "ProbeConfig")]),
    )(probe)


def probe(
    context: typer.Context,
    config_dir: common.ConfigDirs = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 when anything is suspicious.")
    ] = False,
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test",
            help="Break each convention of the policy in turn: would the probe notice?",
        ),
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write every number to this file.")
    ] = None,
) -> None:
    """Probe a policy."""
    words = common.words(context)
    extra = common.folders(config_dir)
    common.need_mujoco()
    from robogen.policies.library import load_policy
    from robogen.probe import ProbeConfig
    from robogen.probe.samples import scene_of
    from robogen.scenes.load import load_scene
    from robogen.specs import Orientation
    from robogen.study.config import item_overrides, scene_overrides, split_words

    rest, items = split_words(words)
    kinds = {
        "policy": str,
        "scene": str | None,
        "dataset": str | None,
        "cameras": dict,
        "state": dict,
        "action": dict,
        "orientation": Orientation,
        "out": str | None,
        **settings.kinds_of(ProbeConfig),
    }
    values = settings.parse(rest, kinds, "robogen probe")
    name, scene_name = values.pop("policy", "bc"), values.pop("scene", None)
    dataset, out = values.pop("dataset", None), values.pop("out", None)
    foreign: dict[str, Any] = {
        key: values.pop(key)
        for key in ("cameras", "state", "action", "orientation")
        if key in values
    }
    if dataset is None and scene_name is None:
        raise ConfigError(
            "robogen probe needs demonstrations: give scene=NAME, whose expert demonstrates, or "
            "dataset=FOLDER, or both."
        )
    if foreign and dataset is None:
        raise ConfigError(f"{', '.join(foreign)} describe a dataset, and none is given: dataset=.")
    for other in items.get("policy", {}):
        if other != name:
            raise ConfigError(f"Override of policy '{other}', but policy={name}. Correct one.")
    if items.get("perturbation"):
        raise ConfigError("A probe perturbs nothing. Leave perturbation out.")
    if self_test and (strict or out is not None or json_file is not None):
        raise ConfigError("--self-test prints its own table. Leave out --strict, --json and out=.")
    config = ProbeConfig(**values)
    scene = None
    if scene_name is not None:
        scene = load_scene(scene_name, overrides=scene_overrides(items, scene_name), extra=extra)
    policy = load_policy(
        name,
        scene=scene_name or (None if dataset is None else scene_of(Path(dataset))),
        overrides=item_overrides(items, "policy", name),
        extra_dirs=extra,
    )
    try:
        if self_test:
            _self_test(name, policy, scene, dataset, foreign, config)
        else:
            _run(name, policy, scene, dataset, foreign, config, out, json_file, strict=strict)
    finally:
        policy.close()
        if scene is not None:
            scene.close()


def _run(
    name: str,
    policy: Policy,
    scene: Scene | None,
    dataset: str | None,
    foreign: Mapping[str, Any],
    config: ProbeConfig,
    out: str | None,
    json_file: Path | None,
    *,
    strict: bool,
) -> None:
    from robogen.probe import probe as run
    from robogen.probe.run import moments, reading_of

    console = common.output()
    with _Progress() as shown:
        data = _data(policy, scene, dataset, foreign, config, shown)
        samples, lacks = moments(policy, data, scene, config, name=name)
        result = run(
            policy,
            data,
            scene,
            name=name,
            config=config,
            samples=(samples, lacks),
            progress=lambda done, total: shown.at("Trying other conventions", done, total),
        )
    show(result, console)
    if out is not None:
        from robogen.probe.pictures import contact_sheet

        offered = data.spec if scene is None else scene.spec
        sheet = contact_sheet(samples, reading_of(policy, offered), result.agreement)
        if sheet is not None:
            file = Path(out) / "probe.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            sheet.save(file)
            console.print(f"Frames under each candidate: {file}", soft_wrap=True)
    if json_file is not None:
        common.write(json_file, json.dumps(result.to_json(), indent=2, allow_nan=False) + "\n")
    if strict and result.suspicious:
        raise typer.Exit(WRONG)


def _self_test(
    name: str,
    policy: Policy,
    scene: Scene | None,
    dataset: str | None,
    foreign: Mapping[str, Any],
    config: ProbeConfig,
) -> None:
    from rich.table import Table
    from rich.text import Text

    from robogen.probe.miswired import faults
    from robogen.probe.run import probe as run

    with _Progress() as shown:
        data = _data(policy, scene, dataset, foreign, config, shown)
        offered = data.spec if scene is None else scene.spec
        policy.fit(offered)
        wrong = list(faults(policy, offered))
        results = []
        for done, fault in enumerate(wrong):
            shown.at("Wrong wirings", done, len(wrong))
            results.append(run(fault.policy, data, name=name, config=config))
    table = Table(title="Would the probe notice?", title_justify="left")
    for column in ("wrong on purpose", "noticed", "named", "what it said"):
        table.add_column(column)
    for fault, result in zip(wrong, results, strict=True):
        caught, named = fault.caught(result), fault.named(result)
        table.add_row(
            fault.name,
            Text("yes", "green") if caught else Text("no", "bold red"),
            Text("yes", "green") if named else Text("no", "bold red"),
            ", ".join(result.suspicious) or "nothing suspicious",
        )
    console = common.output()
    console.print(table)
    noticed = sum(f.caught(r) for f, r in zip(wrong, results, strict=True))
    console.print(
        f"{noticed} of {len(wrong)} wrong wirings of {name} would be noticed with these "
        "demonstrations. More episodes, or demonstrations with more motion, show more.",
        soft_wrap=True,
    )


def _data(
    policy: Policy,
    scene: Scene | None,
    dataset: str | None,
    foreign: Mapping[str, Any],
    config: ProbeConfig,
    shown: _Progress,
) -> Data:
    from robogen.probe.samples import from_dataset, from_scene

    if dataset is None:
        assert scene is not None
        policy.fit(scene.spec)
        return from_scene(
            scene,
            policy.spec.observation,
            config.episodes,
            seed=config.seed,
            progress=lambda done, total: shown.at("Demonstrations", done, total),
        )
    return from_dataset(
        Path(dataset),
        config.episodes,
        seed=config.seed,
        cameras=foreign.get("cameras"),
        state=foreign.get("state"),
        action=foreign.get("action"),
        orientation=foreign.get("orientation"),
    )


class _Progress:
    """What is under way, as one bar, or as lines without a terminal."""

    def __init__(self) -> None:
        from robogen.cli import bars

        self._bar = bars.bar()
        self._lines = bars.Lines()
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def at(self, what: str, done: int, total: int) -> None:
        """Show how far a part is."""
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total)
        self._bar.update(self._tasks[what], completed=done, total=total)
        self._lines.say(f"{what}: {done}/{total}")


# -- what people read ------------------------------------------------------------------------------


def show(result: ProbeResult, console: Console) -> None:
    """Tables, remarks and what to do."""
    agreement = result.agreement
    where = f" on {result.scene}" if result.scene else ""
    console.print(f"[bold]{result.policy}{where}[/bold], demonstrations of {result.data}")
    for line in result.adaptations:
        console.print(f"Adapted: {line}.", soft_wrap=True)
    if agreement.findings:
        console.print(_conventions(result))
    _numbers(result, console)
    if result.driven:
        console.print(_driven(result))
    for line in (agreement.remark, *result.remarks):
        if line:
            console.print(line, soft_wrap=True)
    if not result.suspicious:
        console.print("[bold green]Nothing suspicious.")
        return
    console.print(f"[bold red]Suspicious: {', '.join(result.suspicious)}.", soft_wrap=True)
    if not agreement.agrees:
        console.print(
            "Before anything else: is this the right checkpoint for these demonstrations, and is "
            "its state normalised as in training?",
            soft_wrap=True,
        )
    if result.remedies:
        console.print(f"To change: {'; '.join(result.remedies)}.", soft_wrap=True, markup=False)
    if agreement.mended > agreement.agreement + 0.005:
        console.print(
            f"With that, agreement goes from {100 * agreement.agreement:.0f} % to "
            f"{100 * agreement.mended:.0f} %.",
            soft_wrap=True,
        )


def _styled(verdict: Any, note: str) -> Any:
    from rich.text import Text

    from robogen.probe import Verdict

    style = {Verdict.SUSPICIOUS: "bold red", Verdict.CANNOT_TELL: "dim"}.get(verdict, "green")
    text = Text(verdict.value, style=style)
    if note:
        text.append(f": {note}", style="bold red" if verdict is Verdict.SUSPICIOUS else "dim")
    return text


def _conventions(result: ProbeResult) -> Any:
    from rich.table import Table

    from robogen.probe import Verdict

    agreement = result.agreement
    table = Table(
        title="Predicted against demonstrated actions",
        title_justify="left",
        caption=f"Agreement on {agreement.moments} moments of {agreement.episodes} episodes: 100 % "
        "says exactly what was demonstrated, 0 % is no better than always the median action.",
        caption_justify="left",
    )
    table.add_column("convention", no_wrap=True)
    table.add_column("configured")
    table.add_column("agreement", justify="right")
    table.add_column("best alternative")
    table.add_column("verdict")
    for f in agreement.findings:
        wrong = f.verdict is Verdict.SUSPICIOUS
        other = f"{f.best}, {100 * f.best_agreement:.0f} %" if f.best else ""
        table.add_row(
            f.convention,
            f.configured,
            f"{100 * f.agreement:.0f} %",
            other,
            _styled(f.verdict, f.note),
            style="red" if wrong else "",
        )
    return table


def _numbers(result: ProbeResult, console: Console) -> None:
    from rich.text import Text

    for check in result.numbers:
        line = Text(f"{check.what[:1].upper()}{check.what[1:]}: ")
        line.append_text(_styled(check.verdict, check.note))
        console.print(line, soft_wrap=True)


def _driven(result: ProbeResult) -> Any:
    from rich.table import Table

    table = Table(title="Each action dimension driven alone", title_justify="left")
    table.add_column("dimension", justify="right")
    table.add_column("declared")
    table.add_column("what happened")
    for item in result.driven:
        table.add_row(str(item.dimension), item.declared or "-", _styled(item.verdict, item.note))
    return table
