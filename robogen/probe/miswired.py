"""Deliberately wrong wirings of a policy: would the probe notice, for this policy and these data?

Each takes a policy whose conventions are right and breaks one, either by declaring another
convention than the policy has, or by changing what it sees or says on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robogen.policies.base import Normalization, Policy
from robogen.probe.agreement import Verdict
from robogen.probe.candidates import PIXELS
from robogen.probe.run import ProbeResult
from robogen.specs import (
    TOOL_MODES,
    ActionSpec,
    Observation,
    ObservationSpec,
    Orientation,
    PolicySpec,
    SceneSpec,
)

See = Callable[[Observation], Observation]
Say = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Miswired(Policy):
    """A policy behind one wrong convention.

    Args:
        policy: Fitted already; not closed with this one.
        observation: Declared instead of its own.
        action: The same.
        see: Changes an observation on its way in.
        say: Changes chunks (rows, chunk, dim) on their way out.
        normalization: Shown instead of its own.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        observation: ObservationSpec | None = None,
        action: ActionSpec | None = None,
        see: See | None = None,
        say: Say | None = None,
        normalization: Mapping[str, Normalization] | None = None,
    ) -> None:
        own = policy.spec
        self._policy = policy
        self._see, self._say, self._normalization = see, say, normalization
        self.spec: PolicySpec = replace(
            own, observation=observation or own.observation, action=action or own.action
        )
        self.scene = policy.scene

    def fit(self, scene: SceneSpec) -> None:
        """Nothing: what is wrong here must stay wrong."""

    def reset(self, rows: Sequence[int], seeds: Sequence[int]) -> None:
        """As the policy's own."""
        self._policy.reset(rows, seeds)

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> NDArray[np.float64]:
        """The policy's answer, miswired."""
        seen = list(observations) if self._see is None else [self._see(o) for o in observations]
        answer = self._policy.act(rows, seen)
        return answer if self._say is None else self._say(np.array(answer))

    def normalization(self) -> Mapping[str, Normalization]:
        """As the policy's own, unless that is what is wrong."""
        return self._policy.normalization() if self._normalization is None else self._normalization


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One wrong wiring and what a probe should say of it."""

    name: str
    convention: str
    """What must be suspicious."""
    expected: tuple[str, ...]
    """Candidates that name the cure; empty where naming the convention is all there is."""
    policy: Miswired

    def caught(self, result: ProbeResult) -> bool:
        """Whether the probe called something suspicious."""
        return bool(result.suspicious)

    def named(self, result: ProbeResult) -> bool:
        """Whether it named this very fault, and the right cure."""
        if not self.expected:
            return self.convention in result.suspicious
        return any(
            finding.convention == self.convention
            and finding.verdict is Verdict.SUSPICIOUS
            and finding.best in self.expected
            for finding in result.agreement.findings
        )


def faults(policy: Policy, scene: SceneSpec) -> Iterator[Fault]:
    """Every wiring that can be wrong for this policy.

    Args:
        policy: Fitted to the scene.
        scene: The scene, or the data's description.
    """
    yield from _of_frames(policy, scene.orientation)
    yield from _of_state(policy, scene)
    yield from _of_actions(policy)


def _of_frames(policy: Policy, default: Orientation) -> Iterator[Fault]:
    own = policy.spec.observation
    if not own.cameras:
        return
    right = own.orientation or default
    for wrong in ("upright", "flipped", "mirrored", "rotated_180"):
        if wrong != right:
            yield Fault(
                name=f"frames {wrong}",
                convention="image orientation",
                expected=(right,),
                policy=Miswired(policy, observation=replace(own, orientation=wrong)),
            )
    channels = "bgr" if own.channels == "rgb" else "rgb"
    yield Fault(
        name=f"frames in {channels}",
        convention="channel order",
        expected=(own.channels,),
        policy=Miswired(policy, observation=replace(own, channels=channels)),  # type: ignore[arg-type]
    )
    pixels = "unit" if own.pixels == "uint8" else "uint8"
    yield Fault(
        name=f"pixels from {PIXELS[pixels]}",  # type: ignore[index]
        convention="pixel range",
        expected=(PIXELS[own.pixels],),
        policy=Miswired(policy, observation=replace(own, pixels=pixels)),  # type: ignore[arg-type]
    )
    if own.crop == 1.0:
        yield Fault(
            name="only the middle 0.8 of frames",
            convention="crop",
            expected=("whole frame",),
            policy=Miswired(policy, observation=replace(own, crop=0.8)),
        )
    names = [c.name for c in own.cameras]
    if len(names) > 1 and len({(c.width, c.height) for c in own.cameras[:2]}) == 1:
        one, two = names[:2]

        def swap(o: Observation) -> Observation:
            return o._replace(images={**o.images, one: o.images[two], two: o.images[one]})

        yield Fault(
            name=f"cameras {one} and {two} mixed up",
            convention="cameras",
            expected=(f"{one} and {two} swapped",),
            policy=Miswired(policy, see=swap),
        )


def _of_state(policy: Policy, scene: SceneSpec) -> Iterator[Fault]:
    own = policy.spec.observation
    if len(own.state) > 1:
        wrong = (*own.state[1::-1], *own.state[2:])
        yield Fault(
            name=f"state parts {own.state[0]} and {own.state[1]} mixed up",
            convention="state order",
            expected=(", ".join(own.state),),
            policy=Miswired(policy, observation=replace(own, state=wrong)),
        )
    for place, part in enumerate(own.state):
        if "quat" in part:
            other = {"eef_quat_xyzw": "eef_quat_wxyz", "eef_quat_wxyz": "eef_quat_xyzw"}[part]
            wrong = (*own.state[:place], other, *own.state[place + 1 :])
            yield Fault(
                name=f"quaternion as {other}",
                convention="quaternion order",
                expected=(part,),
                policy=Miswired(policy, observation=replace(own, state=wrong)),
            )
    if own.state:
        yield Fault(
            name="state not sent",
            convention="low agreement",
            expected=(),
            policy=Miswired(policy, see=lambda o: o._replace(state=np.zeros_like(o.state))),
        )
    statistics = policy.normalization().get("state")
    if statistics is None or statistics.mean is None or statistics.std is None:
        return
    mean, std = statistics.mean, statistics.std

    def raw(o: Observation) -> Observation:
        # What a normaliser turned into the identity does: (x - 0) / 1 reaches the network.
        return o._replace(state=(mean + std * np.asarray(o.state)).astype(np.float32))

    size = len(mean)
    yield Fault(
        name="state not normalised",
        convention="state statistics",
        expected=(),
        policy=Miswired(
            policy,
            see=raw,
            normalization={
                "state": Normalization(kind="mean_std", mean=np.zeros(size), std=np.ones(size))
            },
        ),
    )
    shifted = Normalization(kind="mean_std", mean=mean + 5.0 * std, std=4.0 * std)
    yield Fault(
        name="another robot's state statistics",
        convention="state statistics",
        expected=(),
        policy=Miswired(
            policy,
            see=lambda o: o._replace(
                state=(mean + std * (np.asarray(o.state) - mean - 5.0 * std) / (4.0 * std)).astype(
                    np.float32
                )
            ),
            normalization={"state": shifted},
        ),
    )


def _of_actions(policy: Policy) -> Iterator[Fault]:
    own = policy.spec.action

    def declared(name: str, convention: str, *expected: str, **fields: Any) -> Fault:
        return Fault(
            name=name,
            convention=convention,
            expected=expected,
            policy=Miswired(policy, action=replace(own, **fields)),
        )

    def said(name: str, convention: str, expected: str, say: Say) -> Fault:
        return Fault(
            name=name, convention=convention, expected=(expected,), policy=Miswired(policy, say=say)
        )

    other = "open_positive" if own.gripper == "close_positive" else "close_positive"
    spans = ("signed", "unit")
    yield declared(
        "gripper sign reversed",
        "gripper",
        *(f"{own.gripper}, {span}" for span in spans),
        gripper=other,
    )
    if own.gripper_range == "signed":

        def halved(chunks: NDArray[np.float64]) -> NDArray[np.float64]:
            chunks[..., -1] = 0.5 * (chunks[..., -1] + 1.0)
            return chunks

        yield said("gripper from 0 to 1", "gripper", f"{own.gripper}, unit", halved)

    def late(chunks: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([chunks[:, 1:], chunks[:, -1:]], axis=1)

    if own.chunk > own.execute:
        yield said("chunks one step late", "timing", "1 steps later", late)
    if own.mode not in TOOL_MODES:
        return
    mode = "absolute_eef" if own.mode == "delta_eef" else "delta_eef"
    yield declared(f"actions taken for {mode}", "action mode", own.mode, mode=mode)
    if own.mode == "delta_eef":
        frame = "tool" if own.frame == "base" else "base"
        yield declared(f"actions along the {frame}'s axes", "action frame", own.frame, frame=frame)
        yield declared(
            "positions twice as large", "position scale", "×0.5",
            scale_position=2.0 * own.scale_position,
        )  # fmt: skip
        yield declared(
            "positions half as large", "position scale", "×2",
            scale_position=0.5 * own.scale_position,
        )  # fmt: skip
        yield declared(
            "rotations ten times as large", "rotation scale", "×0.1", "×0.05", "×0.2",
            scale_rotation=10.0 * own.scale_rotation,
        )  # fmt: skip

    def swapped(chunks: NDArray[np.float64]) -> NDArray[np.float64]:
        chunks[..., [0, 1]] = chunks[..., [1, 0]]
        return chunks

    def mirrored(chunks: NDArray[np.float64]) -> NDArray[np.float64]:
        chunks[..., 1] *= -1.0
        return chunks

    yield said("x and y mixed up", "position axes", "x and y swapped", swapped)
    yield said("y reversed", "position axes", "y reversed", mirrored)
    if own.rotation == "axis_angle":
        yield declared(
            "rotations read as Euler angles", "rotation representation", own.rotation,
            rotation="euler_xyz",
        )  # fmt: skip
