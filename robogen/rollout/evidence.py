"""Did a perturbation reach the policy? Evidence per factor, from the episode itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from robogen.perturbations.base import Factor
from robogen.specs import Observation, ObservationSpec

Verdict = Literal["reached", "not observed", "did not reach"]


def compare_observations(nominal: Observation, seen: Observation) -> dict[str, Any]:
    """How far the first observation is from the nominal one of the same episode.

    Returns:
        ``camera``: mean absolute pixel difference (0..255) by camera; ``state``: largest absolute
        difference; ``instruction``: whether the words differ.
    """
    return {
        "camera": {
            name: float(
                np.abs(image.astype(np.int16) - nominal.images[name].astype(np.int16)).mean()
            )
            for name, image in seen.images.items()
        },
        "state": float(np.abs(seen.state - nominal.state).max()) if seen.state.size else 0.0,
        "instruction": seen.instruction != nominal.instruction,
    }


def judge(
    factor: Factor,
    *,
    spec: ObservationSpec,
    privileged: bool,
    difference: Mapping[str, Any],
    fields: Mapping[str, str],
    altered_step: int | None,
    idle: bool = False,
) -> dict[str, Any]:
    """Verdict and evidence of one factor.

    Args:
        factor: The factor.
        spec: What the policy observes.
        privileged: Whether the policy reads simulator state.
        difference: Result of :func:`compare_observations`.
        fields: Hash by changed mjModel field the factor wrote.
        altered_step: First control step whose executed command differs from the policy's.
        idle: Whether the factor filters frames and left the first ones as they were.
    """
    channel = factor.channel
    evidence: dict[str, Any] = {}
    if fields:
        evidence["fields"] = dict(fields)
    verdict: Verdict
    if channel == "camera":
        evidence["pixels"] = difference["camera"]
        if not spec.cameras:
            # who reads the simulator knows where things are without seeing them
            moved = privileged and factor.phase == "data"
            verdict = "reached" if moved else "not observed"
        else:
            # beside other factors, changed pixels alone would not be this one's doing
            own = bool(fields) or factor.phase not in ("model", "spec")
            seen = own and not idle and any(difference["camera"].values())
            verdict = "reached" if seen else "did not reach"
    elif channel == "state":
        evidence["state"] = difference["state"]
        moved = difference["state"] > 0 or any(difference["camera"].values())
        if not spec.state and not spec.cameras:
            verdict = "reached" if privileged else "not observed"
        else:
            verdict = "reached" if moved else "did not reach"
    elif channel == "instruction":
        if not spec.instruction:
            verdict = "not observed"
        else:
            verdict = "reached" if difference["instruction"] else "did not reach"
    elif channel == "dynamics":
        verdict = "reached" if fields else "did not reach"
    else:
        evidence["first_altered_step"] = altered_step
        verdict = "reached" if altered_step is not None else "did not reach"
    return {"channel": channel, "verdict": verdict, "evidence": evidence}


def observation_hash(observation: Observation) -> str:
    """Hash of everything that reached the policy."""
    digest = hashlib.blake2b(digest_size=12)
    for name in sorted(observation.images):
        digest.update(name.encode())
        digest.update(observation.images[name].tobytes())
    digest.update(observation.state.tobytes())
    digest.update(observation.instruction.encode())
    return digest.hexdigest()
