"""From what a user asked to what will run: scenes, policies, conditions, and their identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from robogen.errors import ConfigError, FactorError, PolicyError, unknown
from robogen.perturbations.base import Factor
from robogen.perturbations.engine import Perturbation, Values
from robogen.perturbations.library import (
    Condition,
    Suite,
    available,
    factor_parameters,
    load_factor,
    load_suite,
)
from robogen.policies.base import Policy
from robogen.policies.library import load_policy
from robogen.records.schema import SCHEMA_VERSION, EpisodeKey
from robogen.scenes.base import Scene
from robogen.scenes.load import load_scene
from robogen.seeding import EpisodeSeed
from robogen.specs import Match, Split, match
from robogen.study.config import StudyConfig, measured_items

EPISODES = 40
"""Matched episodes per condition when nobody says."""


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A factor that cannot act on a scene, and why."""

    scene: str
    factor: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Design:
    """A resolved study."""

    config: StudyConfig
    extra_dirs: tuple[Path, ...]
    scenes: tuple[str, ...]
    policies: tuple[str, ...]
    conditions: Mapping[str, tuple[Condition, ...]]
    """By scene: conditions that apply to it, nominal first."""
    skipped: tuple[Skipped, ...]
    ranges: Mapping[str, Mapping[str, str]]
    """Physical range text by condition id and factor."""
    episodes: int
    repeats: Mapping[str, int]
    """Noise-floor reruns of nominal episodes, by policy."""
    identities: Mapping[str, Mapping[str, Any]]
    """What tells scenes, factors and policies from others of the same name."""
    factors: Mapping[str, Factor]
    """Every factor of the conditions, made once: editing its file cannot change a running study."""
    adaptations: Mapping[str, tuple[str, ...]]
    """Differences between a policy's and a scene's conventions that are bridged, in words."""
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By scene: what a reader of its results should know."""
    given: Mapping[str, Policy] = field(default_factory=dict)
    """Policies that live in this process and have no file, by name; they cannot reach workers."""
    practical: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By policy: parameters that do not change what it answers."""
    given_scenes: Mapping[str, Scene] = field(default_factory=dict)
    """The same for scenes; each is one object, so one episode of it runs at a time."""

    def load_scene(self, name: str) -> Scene:
        """A scene of the study, built from its file unless it was given."""
        if name in self.given_scenes:
            return self.given_scenes[name]
        return load_scene(
            name, overrides=self.config.overrides("scene", name), extra=self.extra_dirs
        )

    def load_policy(self, name: str, scene: str) -> Policy:
        """A policy of the study, from its file unless it was given."""
        if name in self.given:
            return self.given[name]
        return load_study_policy(self.config, name, scene, self.extra_dirs)

    @property
    def hash(self) -> str:
        """Identity of the study: what it measures, not how fast."""
        content = {
            "schema": SCHEMA_VERSION,
            "scenes": list(self.scenes),
            "policies": list(self.policies),
            "conditions": {s: [asdict(c) for c in cs] for s, cs in self.conditions.items()},
            "items": measured_items(self.config.items, self.practical),
            "episodes": self.episodes,
            "repeats": dict(self.repeats),
            "seed": self.config.seed,
            "batch": self.config.batch,
            "timing": [self.config.timing, self.config.latency_ms],
            "identities": self.identities,
        }
        if self.config.values is not None:
            content["values"] = [self.config.values, self.config.values_of]
        text = json.dumps(content, sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    def keys(self) -> Iterator[EpisodeKey]:
        """Every episode, interleaved over conditions so that partial results compare."""
        for scene in self.scenes:
            for policy in self.policies:
                for episode in range(self.episodes):
                    for condition in self.conditions[scene]:
                        yield EpisodeKey(scene, policy, condition.id, episode, 0)
                    for repeat in range(1, self.repeats[policy] + 1):
                        yield EpisodeKey(scene, policy, "nominal", episode, repeat)

    def condition(self, scene: str, name: str) -> Condition:
        """A scene's condition by id."""
        return next(c for c in self.conditions[scene] if c.id == name)

    def perturbation(self, condition: Condition) -> Perturbation:
        """The factors of a condition at their severities."""
        return build_perturbation(self.config, condition, self.factors)

    def seed(self, key: EpisodeKey) -> EpisodeSeed:
        """The seed of an episode: the same for every condition and policy."""
        return EpisodeSeed(
            domain="evaluate", study=self.config.seed, scene=key.scene, episode=key.episode
        )


def build_factor(config: StudyConfig, name: str, extra_dirs: Sequence[Path]) -> Factor:
    """A factor with the study's overrides for it."""
    overrides = config.overrides("perturbation", name)
    overrides.pop("severity", None)
    return load_factor(name, overrides, extra_dirs)


def factor_identity(config: StudyConfig, name: str, extra_dirs: Sequence[Path]) -> dict[str, Any]:
    """What tells a factor from another of the same name: its class and parameters."""
    overrides = config.overrides("perturbation", name)
    overrides.pop("severity", None)
    parameters, _ = factor_parameters(name, overrides, extra_dirs)
    text = json.dumps(parameters, sort_keys=True, default=str)
    return {"hash": hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}


def build_perturbation(
    config: StudyConfig, condition: Condition, factors: Mapping[str, Factor]
) -> Perturbation:
    """A condition's factors; ``perturbation.<name>.severity`` scales that factor's dose."""
    dosed = []
    for name in condition.factors:
        own = config.overrides("perturbation", name).get("severity")
        dosed.append((factors[name], condition.severity if own is None else own))
    return Perturbation(dosed, split=condition.split, values=_values(config))


def _values(config: StudyConfig) -> Values | None:
    if config.values is None:
        return None
    if config.values_of is None:
        return Values(number=config.values, domain="evaluate", study=config.seed)
    return Values(number=config.values, domain="collect", study=config.values_of)


def resolve(
    config: StudyConfig,
    extra_dirs: Sequence[Path] = (),
    given: Mapping[str, Policy] | None = None,
    given_scenes: Mapping[str, Scene] | None = None,
) -> Design:
    """Load everything a study names, once, and settle what applies where.

    Args:
        config: What was asked.
        extra_dirs: The user's configuration folders.
        given: Policies without a file, by the name that ``config.policy`` has for them.
        given_scenes: The same for scenes.

    Raises:
        ConfigError: A name or value is wrong; FactorError: a factor asked for by name does not
            apply; SpecError: a policy does not fit a scene; PolicyError: one cannot be loaded.
    """
    config.validate()
    if config.measures_latency:  # a robot waits for its own decision, not for a batch of others
        config = replace(config, slots=1, batch=1)
    given, given_scenes = dict(given or {}), dict(given_scenes or {})
    for what, objects in (("Policy", given), ("Scene", given_scenes)):
        if objects and config.workers != 0:
            raise ConfigError(
                f"{what} '{next(iter(objects))}' is an object of this process and cannot reach "
                f"worker processes, got workers={config.workers}. Set workers=0, or write a "
                f"{what.lower()} file."
            )
    scenes, policies = config.names("scene"), config.names("policy")
    for group, names in (("scene", scenes), ("policy", policies)):
        if not names:
            raise ConfigError(f"{group} is empty. Name at least one, see 'robogen list'.")
    suite, asked = _wanted(config, extra_dirs)
    _refuse_unused(config, suite, extra_dirs)
    config = _with_parameters(config, suite)
    named = sorted({name for condition in suite.conditions for name in condition.factors})
    factors = {name: build_factor(config, name, extra_dirs) for name in named}
    identities: dict[str, dict[str, Any]] = {}
    conditions: dict[str, tuple[Condition, ...]] = {}
    skipped: list[Skipped] = []
    ranges: dict[str, dict[str, str]] = {}
    adaptations: dict[str, tuple[str, ...]] = {}
    repeats: dict[str, int] = {}
    practical: dict[str, frozenset[str]] = {}
    notes: dict[str, tuple[str, ...]] = {}
    for name in scenes:
        scene = given_scenes.get(name) or load_scene(
            name, overrides=config.overrides("scene", name), extra=extra_dirs
        )
        notes[name] = scene.notes()
        scene.prepare(_probe_seed(config, name))
        identities[f"scene {name}"] = scene.identity()
        conditions[name], missing = _applicable(config, scene, suite, asked, factors)
        skipped += missing
        for condition in conditions[name]:
            perturbation = build_perturbation(config, condition, factors)
            ranges[condition.id] = {**ranges.get(condition.id, {}), **perturbation.ranges}
            for factor in condition.factors:
                identities[f"factor {factor}"] = factor_identity(config, factor, extra_dirs)
        for policy_name in policies:
            policy = given.get(policy_name) or load_study_policy(
                config, policy_name, name, extra_dirs
            )
            fit = fit_policy(policy, scene)
            adaptations[f"{policy_name} on {name}"] = tuple(a.what for a in fit.adaptations)
            identities[f"policy {policy_name} on {name}"] = {
                **policy.identity(),
                "spec": asdict(policy.spec),
                "deterministic": policy.spec.deterministic,
            }
            practical[policy_name] = policy.practical
            varies = not policy.spec.deterministic or config.measures_latency
            repeats[policy_name] = int(varies) if config.repeats is None else config.repeats
            if policy_name not in given:
                policy.close()
        if name not in given_scenes:
            scene.close()
    return Design(
        config=config,
        extra_dirs=tuple(extra_dirs),
        scenes=tuple(scenes),
        policies=tuple(policies),
        conditions=conditions,
        skipped=tuple(skipped),
        ranges=ranges,
        episodes=config.episodes or suite.episodes or EPISODES,
        repeats=repeats,
        identities=identities,
        factors=factors,
        adaptations=adaptations,
        notes=notes,
        given=given,
        practical=practical,
        given_scenes=given_scenes,
    )


def load_study_policy(
    config: StudyConfig, name: str, scene: str, extra_dirs: Sequence[Path]
) -> Policy:
    """A policy with the study's overrides for it."""
    return load_policy(
        name, scene=scene, overrides=config.overrides("policy", name), extra_dirs=extra_dirs
    )


def fit_policy(policy: Policy, scene: Scene) -> Match:
    """Compare conventions; raises before step 0 when they do not fit."""
    policy.fit(scene.spec)
    if policy.scene not in (None, scene.spec.name):
        raise PolicyError(
            f"The policy was trained for scene '{policy.scene}' and is asked to act in "
            f"'{scene.spec.name}'. Choose a checkpoint made for this scene."
        )
    return match(policy.spec, scene.spec)


def _probe_seed(config: StudyConfig, scene: str) -> EpisodeSeed:
    return EpisodeSeed(domain="evaluate", study=config.seed, scene=scene, episode=0)


def _wanted(config: StudyConfig, extra_dirs: Sequence[Path]) -> tuple[Suite, bool]:
    """The suite to run, and whether its factors were asked for by name."""
    factors = config.names("perturbation")
    split = _split(config)
    if not factors:
        if config.suite is None:
            return _plain_suite((), config), False
        suite = load_suite(config.suite, extra_dirs)
        settled = tuple(_settled(c, config) for c in suite.conditions)
        return replace(suite, conditions=settled), False
    if "all" in factors and len(factors) > 1:
        raise ConfigError(
            f"perturbation=all already means every factor, got {factors}. Write perturbation=all, "
            "or list factors without it."
        )
    if factors == ["all"]:
        names = tuple(available(extra_dirs))
        suite = _plain_suite(names, config)
        whole = Condition(factors=names, severity=config.severity, split=split, everything=True)
        return replace(suite, conditions=(*suite.conditions, whole)), False
    for name in factors:
        build_factor(config, name, extra_dirs)
    return _plain_suite(tuple(factors), config), True


def _refuse_unused(config: StudyConfig, suite: Suite, extra_dirs: Sequence[Path]) -> None:
    """An override that nothing would read is a mistake, most often a misspelt name."""
    used = sorted({name for condition in suite.conditions for name in condition.factors})
    for name in config.items.get("perturbation", {}):
        if name not in used:
            known = available(extra_dirs)
            if name not in known:
                raise ConfigError(unknown("factor", name, known, "Correct perturbation.<name>."))
            raise ConfigError(
                f"perturbation.{name} is set, but this study does not use that factor (it uses "
                f"{', '.join(used) or 'none'}). Add it to perturbation=, or drop the override."
            )


def _split(config: StudyConfig) -> Split:
    return "train" if config.split == "train" else "eval"


def _with_parameters(config: StudyConfig, suite: Suite) -> StudyConfig:
    """The study with a suite's factor parameters under the user's own."""
    own: Mapping[str, Any] = config.items.get("perturbation", {})
    both = {
        name: {**suite.parameters.get(name, {}), **own.get(name, {})}
        for name in {*suite.parameters, *own}
    }
    return replace(config, items={**config.items, "perturbation": both})


def _settled(condition: Condition, config: StudyConfig) -> Condition:
    """A suite's condition with the study's severity and split where it has the defaults."""
    if not condition.factors and not condition.everything:
        return condition
    severity = config.severity if condition.severity == 1.0 else condition.severity
    split: Split = "train" if config.split == "train" else condition.split
    return replace(condition, severity=severity, split=split)


def _plain_suite(factors: tuple[str, ...], config: StudyConfig) -> Suite:
    split = _split(config)
    alone = [Condition(factors=(name,), severity=config.severity, split=split) for name in factors]
    return Suite(
        name="given",
        factors=factors,
        conditions=(Condition(), *alone),
        episodes=None,
        parameters={},
    )


def _applicable(
    config: StudyConfig,
    scene: Scene,
    suite: Suite,
    asked: bool,
    factors: Mapping[str, Factor],
) -> tuple[tuple[Condition, ...], list[Skipped]]:
    """Conditions that act on a scene, nominal first, and the factors left out."""
    _, facts = scene.prepare(_probe_seed(config, scene.spec.name))
    reasons: dict[str, str] = {}
    for factor in factors.values():
        probe = Perturbation([(factor, 1.0)], split=_split(config))
        reasons |= probe.not_applicable(scene.world, facts)
    if asked and reasons:
        name, reason = next(iter(reasons.items()))
        raise FactorError(
            f"Factor '{name}' does not apply to scene '{scene.spec.name}': {reason.rstrip('.')}. "
            "Leave it out, or choose another scene; --dry-run with suite=all lists what applies."
        )
    kept: list[Condition] = [Condition()]
    for condition in suite.conditions:
        if condition.everything:
            usable = [name for name in condition.factors if name not in reasons]
            condition = replace(condition, factors=tuple(usable))
        elif any(name in reasons for name in condition.factors):
            continue
        if condition.id not in [item.id for item in kept]:
            build_perturbation(config, condition, factors)
            kept.append(condition)
    skipped = [
        Skipped(scene=scene.spec.name, factor=name, reason=reason)
        for name, reason in sorted(reasons.items())
    ]
    return tuple(kept), skipped
