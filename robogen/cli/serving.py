"""``robogen serve``: a policy for clients that speak openpi's protocol."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from robogen.cli import common, settings
from robogen.errors import ConfigError

if TYPE_CHECKING:
    from robogen.policies.base import Policy
    from robogen.policies.layout import Layout

_SERVE = [
    settings.Setting("policy", "", "Policy name; needed."),
    settings.Setting(
        "scene",
        "null",
        "Scene whose checkpoint and conventions are taken; needed by policies with one per scene.",
    ),
    settings.Setting(
        "layout",
        "null",
        "YAML file with images, state and prompt: the keys of requests. null: robogen's own.",
    ),
]
_LAYOUT_KEYS = ("images", "state", "prompt", "nested")

_HELP = """Serve a policy over openpi's websocket protocol.

[bold]Examples[/bold]

  robogen serve policy=bc scene=pick

  robogen eval scene=pick policy=openpi"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "serve",
        help=_HELP,
        context_settings=common.WORDS,
        options_metavar=common.METAVAR,
        cls=settings.help_with(_SERVE, [("robogen.serve.config", "ServeConfig")]),
    )(serve)


def serve(context: typer.Context, config_dir: common.ConfigDirs = None) -> None:
    """Serve a policy."""
    import asyncio

    words = common.words(context)
    extra = common.folders(config_dir)
    from robogen.serve.config import ServeConfig
    from robogen.study.config import item_overrides, split_words

    rest, items = split_words(words)
    kinds = {
        "policy": str,
        "scene": str | None,
        "layout": str | None,
        **settings.kinds_of(ServeConfig),
    }
    values = settings.parse(rest, kinds, "robogen serve")
    name, scene = values.pop("policy", None), values.pop("scene", None)
    if name is None:
        raise ConfigError("'robogen serve' needs policy=..., got none. Write e.g. policy=bc.")
    _refuse_unused(items, policy=name, scene=scene)
    layout = values.pop("layout", None)
    keys = None if layout is None else read_layout(Path(layout))
    config = ServeConfig(**values)
    config.validate()
    config.key()
    policy, sizes = _policy(
        name,
        scene,
        item_overrides(items, "policy", name),
        {} if scene is None else item_overrides(items, "scene", scene),
        extra,
    )
    from robogen.serve import PolicyServer

    console = common.output()

    def say(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    server = PolicyServer(policy, name=name, config=config, layout=keys, sizes=sizes, say=say)
    if not config.local and config.api_key_env is None:
        common.progress_console().print(
            f"[yellow]Warning:[/yellow] whoever can reach {config.host} can use this policy. Set "
            "api_key_env=NAME to ask for a key.",
            soft_wrap=True,
        )

    def ready(url: str) -> None:
        where = url.removeprefix("ws://")
        say(f"Serving {name} at {url} (health: http://{where}/healthz). Ctrl-C stops.")

    try:
        asyncio.run(server.run(ready))
    except KeyboardInterrupt:
        say("Stopped.")
        raise typer.Exit(common.INTERRUPTED) from None
    finally:
        policy.close()


def _policy(
    name: str,
    scene: str | None,
    changed: Mapping[str, Any],
    scene_changed: Mapping[str, Any],
    extra: tuple[Path, ...],
) -> tuple[Policy, Mapping[str, int] | None]:
    """The policy, fitted to its scene, and the sizes of the scene's state parts."""
    from robogen.policies.library import load_policy

    policy = load_policy(name, scene=scene, overrides=changed, extra_dirs=extra)
    if scene is None:
        return policy, None
    common.need_mujoco()
    from robogen.scenes.load import load_scene
    from robogen.study.design import fit_policy

    there = load_scene(scene, overrides=scene_changed, extra=extra)
    try:
        fit_policy(policy, there)
        return policy, there.spec.state
    finally:
        there.close()


def _refuse_unused(
    items: Mapping[str, Mapping[str, Any]], *, policy: str, scene: str | None
) -> None:
    """Overrides of what is not served would be lost in silence."""
    used = {"policy": [policy], "scene": [] if scene is None else [scene, scene.partition("/")[0]]}
    for group, named in items.items():
        for name in named:
            if name not in used.get(group, []):
                raise ConfigError(
                    f"Override of {group} '{name}', which this command does not use. Correct the "
                    "name, or leave the override out."
                )


def read_layout(file: Path) -> Layout:
    """The keys of requests in a layout file, or in a policy file that has them.

    Raises:
        ConfigError: It cannot be read, or holds none.
    """
    import yaml

    from robogen.policies.layout import Layout

    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"Cannot read layout={file}: {reason}. Correct it.") from error
    if not isinstance(content, dict) or not (content.get("images") or content.get("state")):
        raise ConfigError(
            f"layout={file} names no images and no state. Write which keys of a request hold what, "
            "as docs/openpi.md shows."
        )
    return Layout.read(**{key: content[key] for key in _LAYOUT_KEYS if key in content})
