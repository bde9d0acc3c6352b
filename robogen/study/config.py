"""What a user asks of a study, composed from ``key=value`` words by Hydra."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from robogen.errors import ConfigError, unknown

ITEM_GROUPS = ("scene", "policy", "perturbation")
"""Keys whose items take overrides of their own: ``perturbation.camera_pose.severity=0.5``."""


@dataclass
class StudyConfig:
    """A study as a user describes it."""

    scene: Any = "pick"
    """Scene name or list of names."""
    policy: Any = "bc"
    """Policy name or list of names."""
    perturbation: Any = None
    """Factor names: nominal and each alone. ``all``: every factor. None: what the suite lists."""
    suite: str | None = "all"
    """Named list of conditions; ignored when ``perturbation`` is given."""
    episodes: int | None = None
    """Matched episodes per condition; None takes the suite's, else 40."""
    seed: int = 0
    """Study seed: placements, draws and noise follow from it."""
    severity: float = 1.0
    """Dose of every factor, 0..1, where the suite does not say."""
    split: str = "eval"
    """Value pools of the factors: ``eval`` (held out) or ``train``."""
    values: int | None = None
    """Fixed values of every factor, in which episodes take turns; None: a new one in each."""
    values_of: int | None = None
    """Seed of the collection whose values they are, with split=train; None: this study's own."""
    repeats: int | None = None
    """Reruns of nominal episodes for the noise floor; None: 1 for policies that are not
    deterministic, else 0."""
    workers: int | None = None
    """Worker processes; None: one per core. 0 runs in this process, without a deadline."""
    slots: int = 8
    """Episodes in flight per worker."""
    batch: int = 8
    """Rows every policy call is padded to; part of the study's identity."""
    timing: str = "instant"
    """``instant``: the world waits for the policy; ``realtime``: it goes on while the policy
    thinks, and the robot holds its last command."""
    latency_ms: float | None = None
    """Thinking time of every decision under timing=realtime; None: as long as each call takes, one
    episode at a time."""
    out: str | None = None
    """Run folder; None: ``runs/<scene>-<policy>-<suite>``."""
    deadline_s: float = 120.0
    """A worker that says nothing for this long is taken to hang."""
    retry_errors: bool = False
    """Run errored episodes of an earlier run again."""
    force: bool = False
    """Resume even though versions or graphics changed; the run is marked."""
    frames: int = 3
    """Episodes per condition whose first policy frames are kept."""
    videos: int = 8
    """Episode videos made when the study is complete."""
    record_dataset: str | None = None
    """Folder for a LeRobotDataset of the complete study's episodes, run again from their records;
    with several scenes or policies, a folder of them."""
    items: dict[str, Any] = field(default_factory=dict)
    """Per-item overrides, filled from ``<group>.<name>.<key>=<value>`` words."""

    @property
    def measures_latency(self) -> bool:
        """Whether each call's own duration becomes simulated time: then runs differ."""
        return self.timing == "realtime" and self.latency_ms is None

    def overrides(self, group: str, name: str) -> dict[str, Any]:
        """Overrides of one item, dotted keys to values.

        What is said of a family of environments (``scene.libero.render=fast``) holds for all of its
        tasks.
        """
        return item_overrides(self.items, group, name)

    def names(self, group: str) -> list[str]:
        """A group's names as a list; duplicates are refused."""
        value = getattr(self, group)
        names = [value] if isinstance(value, str) else list(value or [])
        for name in names:
            if not isinstance(name, str):
                raise ConfigError(
                    f"{group} must be a name or a list of names, got {name!r} in {value!r}."
                )
            if names.count(name) > 1:
                raise ConfigError(f"{group} names '{name}' twice in {names}. Name it once.")
        return names

    def validate(self) -> None:
        """Refuse values that no study can have.

        Raises:
            ConfigError: One is out of range.
        """
        limits = {"slots": 1, "batch": 1, "frames": 0, "videos": 0}
        if self.episodes is not None:
            limits["episodes"] = 1
        if self.workers is not None:
            limits["workers"] = 0
        if self.repeats is not None:
            limits["repeats"] = 0
        if self.values is not None:
            limits["values"] = 1
        for name, least in limits.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(
                    f"{name} must be a whole number of at least {least}, got {value!r}."
                )
        if not self.deadline_s > 0:
            raise ConfigError(f"deadline_s must be above 0, got {self.deadline_s!r}.")
        if self.timing not in ("instant", "realtime"):
            raise ConfigError(unknown("timing", str(self.timing), ("instant", "realtime")))
        if self.latency_ms is not None:
            if self.timing != "realtime":
                raise ConfigError(
                    f"latency_ms={self.latency_ms:g} has no effect under timing={self.timing}. Add "
                    "timing=realtime, or leave it out."
                )
            if not 0.0 <= self.latency_ms < math.inf:
                raise ConfigError(f"latency_ms must be 0 or more, got {self.latency_ms!r}.")
        if self.values_of is not None and (self.values is None or self.split != "train"):
            raise ConfigError(
                f"values_of={self.values_of} names a collection whose values are used again; that "
                "takes values=... and split=train. Add them, or leave it out."
            )
        if self.split not in ("train", "eval"):
            raise ConfigError(unknown("split", str(self.split), ("train", "eval")))
        if self.batch < self.slots:
            raise ConfigError(
                f"batch ({self.batch}) must be at least slots ({self.slots}): every episode in "
                "flight needs a row of the policy's call."
            )


def item_overrides(
    items: Mapping[str, Mapping[str, Mapping[str, Any]]], group: str, name: str
) -> dict[str, Any]:
    """Overrides of one item among those of :func:`split_words`, its family's included."""
    own = items.get(group, {})
    family = own.get(name.partition("/")[0], {}) if "/" in name else {}
    return {**family, **own.get(name, {})}


def measured_items(
    items: Mapping[str, Mapping[str, Mapping[str, Any]]], practical: Mapping[str, frozenset[str]]
) -> dict[str, Any]:
    """Overrides without those that only say how a policy is reached.

    Args:
        items: All of them, by group, name and dotted key.
        practical: Such parameters, by policy.
    """
    policies = {
        name: {
            key: value
            for key, value in own.items()
            if key.partition(".")[0] not in practical.get(name, ())
        }
        for name, own in items.get("policy", {}).items()
    }
    others = {group: named for group, named in items.items() if group != "policy"}
    told = {name: own for name, own in policies.items() if own}
    return {**others, "policy": told} if told else others


def scene_overrides(
    items: Mapping[str, Mapping[str, Mapping[str, Any]]], name: str
) -> dict[str, Any]:
    """Overrides of the only scene of a command.

    Raises:
        ConfigError: Some are of another scene.
    """
    for other in items.get("scene", {}):
        if other not in (name, name.partition("/")[0]):
            raise ConfigError(
                f"Override of scene '{other}', but scene={name}. Correct one of them."
            )
    return item_overrides(items, "scene", name)


def split_words(words: Iterable[str]) -> tuple[list[str], dict[str, dict[str, dict[str, Any]]]]:
    """Separate per-item overrides from the words that Hydra composes.

    Returns:
        Remaining words, and ``{group: {name: {key: value}}}``.
    """
    rest: list[str] = []
    items: dict[str, dict[str, dict[str, Any]]] = {}
    parser = OverridesParser.create()
    pattern = re.compile(rf"({'|'.join(ITEM_GROUPS)})\.([^.=]+)\.([^=]+)=(.*)", re.DOTALL)
    for word in words:
        found = pattern.fullmatch(word)
        if found is None:
            rest.append(word)
            continue
        group, name, key, text = found.groups()
        try:
            value = parser.parse_override(f"value={text}").value()
        except HydraException as error:
            raise ConfigError(f"Cannot read the value of '{word}': {_first_line(error)}") from error
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"The value of '{word}' must be finite, got {value}. Correct it.")
        items.setdefault(group, {}).setdefault(name, {})[key] = value
    return rest, items


def compose_study(words: Sequence[str]) -> StudyConfig:
    """A study from ``key=value`` words.

    Raises:
        ConfigError: A word is not an override, names an unknown key, or has a wrong value.
    """
    rest, items = split_words(words)
    known = [item.name for item in fields(StudyConfig) if item.name != "items"]
    for word in rest:
        key, equals, _ = word.partition("=")
        if not equals:
            raise ConfigError(
                f"Got '{word}', expected key=value. Keys: {', '.join(known)}. For one item, e.g. "
                "perturbation.camera_pose.severity=0.5."
            )
        if key.lstrip("+~") not in known:
            raise ConfigError(unknown("key", key.lstrip("+~"), known))
    ConfigStore.instance().store(name="robogen_study", node=StudyConfig)
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(Path(__file__).parent), version_base="1.3"):
            composed = compose(config_name="robogen_study", overrides=list(rest))
        config = OmegaConf.to_object(composed)
    except (HydraException, OmegaConfBaseException) as error:
        reason = _first_line(error.__cause__ or error)
        raise ConfigError(
            f"The configuration is not valid: {reason} 'robogen eval --help' lists every key."
        ) from error
    assert isinstance(config, StudyConfig)
    config.items = items
    config.validate()
    for group in ITEM_GROUPS:
        named = config.names(group)
        for name in items.get(group, {}):
            families = {item.partition("/")[0] for item in named if "/" in item}
            if group != "perturbation" and name not in {*named, *families}:
                raise ConfigError(
                    f"Override of {group} '{name}', which this study does not use "
                    f"({', '.join(named)})."
                )
    return config


def _first_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if text.endswith(".") else f"{text}."
