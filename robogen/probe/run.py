"""Everything that is tried on one policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from robogen.errors import ConfigError
from robogen.policies.base import Policy
from robogen.probe.agreement import Agreement, Verdict, measure
from robogen.probe.candidates import Reading
from robogen.probe.drive import Driven, drive
from robogen.probe.moments import Sample, sample
from robogen.probe.numbers import NumberCheck, check_numbers
from robogen.probe.samples import Data
from robogen.scenes.base import Scene
from robogen.specs import SceneSpec, match


@dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """How much is tried."""

    episodes: int = 12
    """Demonstrations; what can be told grows with their number, not with that of frames."""
    frames: int = 120
    """Moments of these that the policy is asked about."""
    seed: int = 0
    """Chooses demonstrations and moments."""
    draws: int = 3
    """Answers averaged per moment for policies that are not deterministic."""
    batch: int = 8
    """Rows every policy call is padded to."""

    def __post_init__(self) -> None:
        for name, least in (("episodes", 3), ("frames", 6), ("draws", 1), ("batch", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, got {getattr(self, name)}.")


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """What was found."""

    policy: str
    scene: str | None
    data: str
    adaptations: tuple[str, ...]
    """What the harness turns because policy and scene declare different conventions."""
    agreement: Agreement
    numbers: tuple[NumberCheck, ...]
    driven: tuple[Driven, ...]
    remarks: tuple[str, ...]

    @property
    def suspicious(self) -> tuple[str, ...]:
        """Names of everything that looks wrong."""
        found = [] if self.agreement.agrees else ["low agreement"]
        found += [f.convention for f in self.agreement.findings if f.verdict is Verdict.SUSPICIOUS]
        found += [n.what for n in self.numbers if n.verdict is Verdict.SUSPICIOUS]
        found += [
            f"action dimension {d.dimension}"
            for d in self.driven
            if d.verdict is Verdict.SUSPICIOUS
        ]
        return tuple(found)

    @property
    def remedies(self) -> tuple[str, ...]:
        """What to change, where that is known."""
        return tuple(f.remedy for f in self.agreement.findings if f.remedy)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        plain: dict[str, Any] = _plain(self)
        return {**plain, "suspicious": list(self.suspicious), "remedies": list(self.remedies)}


def probe(
    policy: Policy,
    data: Data,
    scene: Scene | None = None,
    *,
    name: str = "policy",
    config: ProbeConfig | None = None,
    samples: tuple[list[Sample], list[str]] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ProbeResult:
    """Try a policy's conventions on demonstrations and, where there is one, in a scene.

    The policy is fitted to the scene, or to the data, as a study would.

    Args:
        policy: The policy.
        data: Demonstrations with its cameras and state parts.
        scene: Where its actions are driven one by one; None leaves that out.
        name: What to call the policy.
        config: How much is tried.
        samples: What :func:`moments` took before; None takes it now.
        progress: Called with (candidates tried, candidates in all).

    Raises:
        ConfigError: The policy reads the simulator, or data lack what it reads.
        SpecError: Its conventions do not fit the scene.
    """
    config = ProbeConfig() if config is None else config
    chosen, lacks = samples or moments(policy, data, scene, config, name=name)
    offered = data.spec if scene is None else scene.spec
    spec = policy.spec
    adaptations = tuple(a.what for a in match(spec, offered).adaptations)
    agreement = measure(
        policy,
        chosen,
        reading_of(policy, offered),
        data.action,
        batch=config.batch,
        draws=config.draws,
        progress=progress,
    )
    remarks = [f"{lack[:1].upper()}{lack[1:]}, so what needs that was not tried." for lack in lacks]
    if abs(data.action.control_hz - spec.action.control_hz) > 1e-9:
        remarks.append(
            f"The policy acts at {spec.action.control_hz:g} Hz and the demonstrations are at "
            f"{data.action.control_hz:g} Hz."
        )
    return ProbeResult(
        policy=name,
        scene=None if scene is None else scene.spec.name,
        data=data.name,
        adaptations=adaptations,
        agreement=agreement,
        numbers=tuple(check_numbers(policy, data)),
        driven=() if scene is None else tuple(drive(scene, spec.action)),
        remarks=tuple(remarks),
    )


def moments(
    policy: Policy, data: Data, scene: Scene | None, config: ProbeConfig, *, name: str = "policy"
) -> tuple[list[Sample], list[str]]:
    """Moments of the demonstrations as this policy needs them, and what the data lack.

    Raises:
        ConfigError: The policy reads the simulator, or data lack what it reads.
    """
    policy.fit(data.spec if scene is None else scene.spec)
    if policy.spec.privileged:
        raise ConfigError(
            f"Policy '{name}' reads the simulator, so no frame, state or sign of it can be wrong. "
            "Probe a policy that has to look."
        )
    action = policy.spec.action
    actions = min(action.chunk, max(action.execute, 1), 8)
    return sample(data, policy.spec.observation, frames=config.frames, actions=actions)


def reading_of(policy: Policy, offered: SceneSpec) -> Reading:
    """The conventions that a study would use for this policy here."""
    observation = policy.spec.observation
    return Reading(
        observation=observation,
        orientation=observation.orientation or offered.orientation,
        action=policy.spec.action,
        cameras=tuple((camera.name, camera.name) for camera in observation.cameras),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
