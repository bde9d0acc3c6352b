"""``robogen doctor`` and ``robogen preview``: look before running."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from robogen.cli import common, settings

_MARKS = {"ok": "[green]ok[/green]", "note": "[yellow]note[/yellow]", "broken": "[red]broken[/red]"}
_OWN = [
    settings.Setting("scene", "pick", "Scene name."),
    settings.Setting("perturbation", "all", "Factor names; all: every factor that applies."),
]

_PREVIEW_HELP = """Draw a contact sheet: every factor at several severities, on one episode.

Rows are factors, columns the nominal scene and the severities, one picture per camera. Factors
that show in no picture are described in words.

[bold]Examples[/bold]

  robogen preview scene=pick

  robogen preview scene=push perturbation=\\[camera_pose,mass] severities=\\[0.5,1] --out sheet.png

  robogen preview scene=pick perturbation.camera_pose.max_offset_m=0.2"""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("doctor")(doctor)
    app.command(
        "preview",
        help=_PREVIEW_HELP,
        context_settings=common.WORDS,
        options_metavar=common.METAVAR,
        cls=settings.help_with(_OWN, [("robogen.preview", "PreviewSettings")]),
    )(preview)


def doctor() -> None:
    """Check graphics, versions and scenes on this machine; exit code 1 when something is broken."""
    from rich.markup import escape

    from robogen.doctor import examine

    console = common.output()
    broken = []
    for check in examine():
        mark = _MARKS[check.status] + " " * (7 - len(check.status))
        console.print(f"{mark}{check.name:<20} {escape(check.text)}", soft_wrap=True)
        if check.status == "broken":
            broken.append(check.name)
    if broken:
        console.print(f"[red]Broken[/red]: {', '.join(broken)}.")
        raise typer.Exit(1)
    console.print("[green]Everything that evaluating needs works here.[/green]")


def preview(
    context: typer.Context,
    config_dir: common.ConfigDirs = None,
    out: Annotated[Path | None, typer.Option("--out", help="PNG to write.")] = None,
) -> None:
    """Draw a contact sheet of factors."""
    words = common.words(context)
    extra = common.folders(config_dir)
    common.need_mujoco()
    from robogen.errors import ConfigError
    from robogen.perturbations.library import available, load_factor
    from robogen.policies.library import load_policy
    from robogen.preview import PreviewSettings, contact_sheet
    from robogen.scenes.load import load_scene
    from robogen.study.config import item_overrides, scene_overrides, split_words
    from robogen.study.design import fit_policy

    rest, items = split_words(words)
    kinds = {
        "scene": str,
        "policy": str,
        "perturbation": list[str],
        **settings.kinds_of(PreviewSettings),
    }
    values = settings.parse(rest, kinds, "robogen preview")
    name = values.pop("scene", "pick")
    watcher = values.pop("policy", None)
    if watcher is None and "policy" in items:
        raise ConfigError("A setting of a policy needs policy=NAME. Add it, or leave it out.")
    asked = values.pop("perturbation", ["all"])
    chosen = PreviewSettings(**values)
    own = items.get("perturbation", {})
    names = list(available(extra)) if asked == ["all"] else asked
    factors = [
        load_factor(
            factor, {k: v for k, v in own.get(factor, {}).items() if k != "severity"}, extra
        )
        for factor in names
    ]
    scene = load_scene(name, overrides=scene_overrides(items, name), extra=extra)
    if watcher is not None:
        policy = load_policy(
            watcher,
            scene=name,
            overrides=item_overrides(items, "policy", watcher),
            extra_dirs=extra,
        )
        fit_policy(policy, scene)
        chosen = chosen.as_seen_by(policy.spec.observation)
    progress = common.progress_console()
    with progress.status(f"Drawing {len(factors)} factors"):
        sheet = contact_sheet(scene, factors, chosen, required=asked != ["all"])
    target = out or Path(f"preview-{name.replace('/', '_')}.png")
    sheet.save(target)
    scene.close()
    console = common.output()
    for line in sheet.notes:
        console.print(line, soft_wrap=True, markup=False)
    console.print(f"Contact sheet: {target}", soft_wrap=True)
