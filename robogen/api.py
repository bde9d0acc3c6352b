"""Studies from Python: run one, or open the records of one that ran."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robogen.errors import ConfigError, unknown
from robogen.records.manifest import read_manifest
from robogen.records.reader import Records, read_records
from robogen.stats.summary import StudySummary, summarise
from robogen.stats.table import EpisodeTable

if TYPE_CHECKING:
    from robogen.policies.base import Policy
    from robogen.scenes.base import Scene
    from robogen.study.design import Design


@dataclass(frozen=True, kw_only=True)
class Study:
    """What a study left behind; reading it needs no simulator."""

    run_dir: Path
    manifest: Mapping[str, Any]
    """Design, versions and machine."""
    records: Records
    """One record per episode."""
    summary: StudySummary
    """Rates, degradations and verdicts by scene and policy, each with n and an interval."""


def open_study(path: Path | str) -> Study:
    """Read a run folder, also one that is still being written; nothing in it is changed.

    Args:
        path: The folder that :func:`evaluate` or ``robogen eval`` wrote.

    Raises:
        RecordsError: There are no readable records.
    """
    folder = Path(path)
    records = read_records(folder)
    return Study(
        run_dir=folder,
        manifest=read_manifest(folder),
        records=records,
        summary=summarise(EpisodeTable.from_columns(records.table())),
    )


def evaluate(
    *,
    scene: str | Sequence[str] | Scene = "pick",
    policy: str | Sequence[str] | Policy | Mapping[str, Policy] = "bc",
    config_dirs: Sequence[Path | str] = (),
    **settings: Any,
) -> Study:
    """Run a study, or resume it, and read what it came to.

    Args:
        scene: Scene name or names, or a scene object, e.g. of :func:`robogen.wrap`; an object runs
            in this process, one episode at a time, and stays open.
        policy: Policy name or names, or a policy object (or several by name). An object runs in
            this process.
        config_dirs: Folders with scenes, factors and policies of your own.
        settings: The settings of ``robogen eval``, with Python values: ``perturbation=["mass"]``,
            ``episodes=20``, ``out="runs/mine"``; overrides of one item are
            ``items={"perturbation": {"mass": {"severity": 0.5}}}``.

    Raises:
        ConfigError: A setting does not exist or cannot have its value.
    """
    from robogen.study.config import ITEM_GROUPS, StudyConfig
    from robogen.study.design import resolve
    from robogen.study.study import default_run_dir, run_study

    known = [item.name for item in fields(StudyConfig)]
    for key in settings:
        if key not in known:
            raise ConfigError(unknown("setting", key, known))
    for group in settings.get("items", {}):
        if group not in ITEM_GROUPS:
            raise ConfigError(unknown("group in items", group, ITEM_GROUPS))
    names, given = _policies(policy)
    scenes, given_scenes = _scenes(scene)
    if given or given_scenes:
        settings = {"workers": 0, **settings}
    config = StudyConfig(scene=scenes, policy=names, **settings)
    folders = tuple(Path(folder) for folder in config_dirs)
    design = resolve(config, folders, given, given_scenes)
    out = Path(config.out) if config.out is not None else default_run_dir(design)
    if config.record_dataset is None:
        run_study(design, out)
    else:
        _run_and_record(design, out, Path(config.record_dataset))
    return open_study(out)


def _run_and_record(design: Design, out: Path, dataset: Path) -> None:
    from robogen.datasets.lerobot_writer import LeRobotForm
    from robogen.recording import check_place, record_dataset
    from robogen.study.study import run_study, worker_count

    if design.given_scenes:
        raise ConfigError(
            f"record_dataset runs episodes again in a scene built from its file, and scene "
            f"'{next(iter(design.given_scenes))}' is an object. Write a scene file, or leave "
            "record_dataset out."
        )
    pairs = [(scene, policy) for scene in design.scenes for policy in design.policies]
    check_place(dataset, pairs, design.hash)
    run_study(design, out)
    record_dataset(
        out,
        dataset,
        LeRobotForm(),
        extra_dirs=design.extra_dirs,
        workers=worker_count(design),
    )


def _scenes(scene: str | Sequence[str] | Scene) -> tuple[str | list[str], dict[str, Scene]]:
    """Names, and the object behind one that has no file."""
    if isinstance(scene, str):
        return scene, {}
    if isinstance(scene, Sequence):
        return list(scene), {}
    return scene.spec.name, {scene.spec.name: scene}


def _policies(
    policy: str | Sequence[str] | Policy | Mapping[str, Policy],
) -> tuple[str | list[str], dict[str, Policy]]:
    """Names, and the objects behind those that have no file."""
    if isinstance(policy, str):
        return policy, {}
    if isinstance(policy, Mapping):
        return list(policy), dict(policy)
    if isinstance(policy, Sequence):
        return list(policy), {}
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(policy).__name__).lower()
    return name, {name: policy}
