"""One episode: nominal look, factors applied in their phases, steps, and the record it leaves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robogen.conventions import drawn, matrix_from_columns, presented, to_scene
from robogen.errors import PolicyError
from robogen.perturbations.base import ActionFilter, ObservationFactor
from robogen.perturbations.engine import Perturbation
from robogen.records.schema import EpisodeRecord, Telemetry
from robogen.rollout.evidence import compare_observations, judge, observation_hash
from robogen.rollout.start import begin
from robogen.scenes.base import Scene
from robogen.seeding import EpisodeSeed
from robogen.specs import ActionSpec, Draw, Observation, PolicySpec


class EpisodeTask(NamedTuple):
    """Which episode to run: everything that identifies it."""

    scene: str
    policy: str
    condition: str
    episode: int
    repeat: int
    seed: EpisodeSeed


class FirstFrames(NamedTuple):
    """First policy frames by camera: of the nominal scene (None in it) and as seen."""

    nominal: Mapping[str, NDArray[np.uint8]] | None
    seen: Mapping[str, NDArray[np.uint8]]


class Outcome(NamedTuple):
    """What a finished episode hands on."""

    record: EpisodeRecord
    telemetry: Telemetry
    frames: FirstFrames | None


class Episode:
    """One running episode in one slot.

    Args:
        scene: The slot's scene, borrowed until :meth:`finish`.
        perturbation: Factors of the condition.
        task: Which episode this is.
        policy: The policy's spec.
        action: Action spec the scene reads, ``canonical`` of the policy's.
        keep_frames: Whether the outcome carries first frames.
        worker: Number of this worker, for telemetry.
    """

    def __init__(
        self,
        *,
        scene: Scene,
        perturbation: Perturbation,
        task: EpisodeTask,
        policy: PolicySpec,
        action: ActionSpec,
        keep_frames: bool = False,
        worker: int = 0,
    ) -> None:
        self.task = task
        self._scene = scene
        self._perturbation = perturbation
        self._policy = policy
        self._spec = policy.observation
        self._action = action
        self._drawn = tuple(drawn(camera) for camera in policy.observation.cameras)
        self._keep_frames = keep_frames
        self._worker = worker
        self._started = time.time()
        self._clock = time.perf_counter()
        self._seconds = {"policy": 0.0, "render": 0.0, "physics": 0.0}
        self._latencies: list[float] = []
        self._step = 0
        self._applied: list[NDArray[np.float64]] = []
        self._altered: int | None = None
        self._history: dict[int, tuple[dict[str, NDArray[np.uint8]], NDArray[np.float32]]] = {}
        self._first: Observation | None = None
        self._nominal: Observation | None = None
        self._draws: dict[str, Draw] = {}
        self._filter: ActionFilter | None = None
        self._instruction = ""
        self._hashes = ("", "")
        self._idle: frozenset[str] = frozenset()
        self._next_query = 0
        self.success = False
        self._progress = 0.0
        self._fault: tuple[str, str] | None = None
        self._success_step: int | None = None

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Set the scene; everything a factor or a scene file can get wrong surfaces here."""

        def named(instruction: str) -> None:
            self._instruction = instruction

        self._draws, self._instruction, self._nominal = begin(
            self._scene,
            self._perturbation,
            self.task.seed,
            look=lambda: self._look(filtered=False),
            nominal_instruction=named,
        )
        self._filter = self._perturbation.action_filter(
            self._draws, self._scene.rest_action(self._action)
        )
        self._history.clear()

    def _look(self, *, filtered: bool) -> Observation:
        """Render and read the current step, without history."""
        clock = time.perf_counter()
        images = self._scene.images(self._drawn, self._spec.render, self._spec.orientation)
        if filtered and self._perturbation.has_image_filter:
            if self._first is None:
                self._idle = self._idle_filters(images)
            for name in images:
                rng = self.task.seed.stream("image", self._step, name)
                images[name] = self._perturbation.filter_image(images[name], self._draws, rng)
        state = self._scene.proprioception(self._spec.state)
        self._seconds["render"] += time.perf_counter() - clock
        return Observation(
            images=images, state=state, instruction=self._instruction, step=self._step
        )

    def _idle_filters(self, images: Mapping[str, NDArray[np.uint8]]) -> frozenset[str]:
        """Sensing factors that, alone, leave every camera's frame as it is."""
        idle = set()
        for factor in self._perturbation.factors:
            draw = self._draws.get(factor.name)
            if not isinstance(factor, ObservationFactor) or not draw:
                continue
            rng = self.task.seed.stream("idle", factor.name)
            if all(
                np.array_equal(factor.apply(image, draw, rng), image) for image in images.values()
            ):
                idle.add(factor.name)
        return frozenset(idle)

    def observe(self) -> Observation:
        """The observation of this query, with history, and privileged facts where declared."""
        now = self._look(filtered=True) if self._step not in self._history else None
        if now is not None:
            self._history[self._step] = (now.images, now.state)
        if self._first is None:
            assert now is not None
            self._first = now
            self._hashes = (observation_hash(now), self._scene.world.state_hash())
        self._next_query = self._step + self._action.execute
        images, state = self._stacked()
        privileged: dict[str, Any] | None = None
        if self._policy.privileged:
            pending = self._filter.pending() if self._filter is not None else []
            privileged = {"points": self._scene.points()}
            if self._scene.has_expert:
                privileged["expert_action"] = self._scene.expert_action(self._action, pending)
        return Observation(
            images={c.name: presented(images[c.name], c, self._spec) for c in self._spec.cameras},
            state=state,
            instruction=self._instruction,
            step=self._step,
            privileged=privileged,
        )

    def _stacked(self) -> tuple[dict[str, NDArray[np.uint8]], NDArray[np.float32]]:
        offsets = self._spec.history
        if offsets == (0,):
            images, state = self._history.pop(self._step)
            return images, state
        rows = [self._history[max(0, self._step + offset)] for offset in offsets]
        oldest = self._next_query + min(offsets)
        for step in [s for s in self._history if s < oldest and s != 0]:
            del self._history[step]
        images = {
            camera.name: np.stack([row[0][camera.name] for row in rows])
            for camera in self._spec.cameras
        }
        return images, np.stack([row[1] for row in rows])

    def check(self, chunk: NDArray[np.float64]) -> NDArray[np.float64]:
        """A chunk (chunk, dim) as the contract wants it.

        Raises:
            PolicyError: It has another shape or holds NaN or infinities.
        """
        wanted = (self._policy.action.chunk, self._policy.action.dim)
        if chunk.shape != wanted:
            raise PolicyError(
                f"The policy returned actions of shape {chunk.shape} where its spec promises "
                f"{wanted} (chunk, dim). Correct the spec or the policy."
            )
        if not np.isfinite(chunk).all():
            raise PolicyError(
                f"The policy returned {np.count_nonzero(~np.isfinite(chunk))} values that are NaN "
                f"or infinite at step {self._step}. Look for a missing normalisation."
            )
        return chunk

    def execute(self, action: NDArray[np.float64]) -> bool:
        """Execute one action; True when the episode is over."""
        return self._command(to_scene(action, self._policy.action, self._tool))

    def _command(self, asked: NDArray[np.float64]) -> bool:
        assert self._filter is not None
        command = self._filter(asked)
        if self._altered is None and not np.array_equal(command, asked):
            self._altered = self._step
        clock = time.perf_counter()
        result = self._scene.step(command, self._action)
        self._seconds["physics"] += time.perf_counter() - clock
        self._applied.append(np.array(command, dtype=np.float64))
        self._step += 1
        self._progress = result.progress
        if not result.finite:
            self.fail("simulation", "the simulation diverged to NaN or infinity")
            return True
        if result.success:
            self.success = True
            self._success_step = self._step
            return True
        if self._step >= self._scene.spec.horizon:
            return True
        if self._spec.history != (0,) and self._wanted_later(self._step):
            seen = self._look(filtered=True)
            self._history[self._step] = (seen.images, seen.state)
        return False

    def _tool(self) -> NDArray[np.float64]:
        """Rotation matrix of the tool in the base frame."""
        return matrix_from_columns(self._scene.proprioception(["eef_rot6d"]).astype(np.float64))

    def _wanted_later(self, step: int) -> bool:
        return step != self._next_query and any(
            step == self._next_query + offset for offset in self._spec.history
        )

    def fail(self, kind: str, reason: str) -> None:
        """End the episode unscored, with a reason."""
        self._fault = (kind, reason)

    def answered(self, latency_s: float, rows: int) -> None:
        """A policy call took so long and served so many episodes."""
        self._seconds["policy"] += latency_s / rows
        self._latencies.append(latency_s)

    def wait(self, latency_s: float | None) -> bool:
        """Let the world go on while the policy thinks; True when the episode ends meanwhile.

        The robot holds its last command for as many whole control steps as the decision took.

        Args:
            latency_s: How long; None: as the last call took.
        """
        seconds = self._latencies[-1] if latency_s is None else latency_s
        steps = int(seconds * self._action.control_hz + 1e-9)
        self._next_query += steps
        return any(self._command(self._held()) for _ in range(steps))

    def _held(self) -> NDArray[np.float64]:
        """The command that changes nothing: rest, with the gripper as it was last told."""
        rest = self._scene.rest_action(self._action)
        if not self._applied:
            return rest
        if rest[:-1].any():  # absolute commands: the last one still holds
            return self._applied[-1]
        return np.append(rest[:-1], self._applied[-1][-1])

    @property
    def failed(self) -> bool:
        """Whether the episode ended unscored."""
        return self._fault is not None

    # -- result ----------------------------------------------------------------------------------

    def finish(self, traceback: str | None = None) -> Outcome:
        """The record of this episode; the scene goes back to nominal."""
        scored = self._fault is None
        record = EpisodeRecord(
            scene=self.task.scene,
            policy=self.task.policy,
            condition=self.task.condition,
            episode=self.task.episode,
            repeat=self.task.repeat,
            factors=tuple(self._perturbation.names),
            severity=max(self._perturbation.severities.values(), default=0.0),
            split=self._perturbation.split,
            status="scored" if scored else "errored",
            error_kind=None if self._fault is None else self._fault[0],
            error=None if self._fault is None else self._fault[1],
            success=self.success if scored else None,
            progress=self._progress if scored else None,
            steps=self._step if scored else None,
            success_step=self._success_step,
            duration_s=self._step / self._scene.spec.control_hz if scored else None,
            instruction=self._instruction,
            draws=self._draws,
            placement=self._scene.placement if self._first is not None else {},
            reached=self._reached(),
            behaviour=self._scene.behaviour() if scored else {},
            observation_hash=self._hashes[0],
            state_hash=self._hashes[1],
            actions=np.array(self._applied) if self._applied else None,
        )
        frames = None
        if self._keep_frames and self._first is not None:
            frames = FirstFrames(
                nominal=None if self._nominal is None else self._nominal.images,
                seen=self._first.images,
            )
        self._scene.world.edit.restore()
        self._scene.rebuild(None)
        return Outcome(record, self._telemetry(traceback), frames)

    def _reached(self) -> dict[str, Any]:
        if self._first is None or self._nominal is None:
            return {}
        difference = compare_observations(self._nominal, self._first)
        fields = self._perturbation.edit_evidence(self._scene.world.edit, self._scene.spec_edit)
        return {
            factor.name: judge(
                factor,
                spec=self._spec,
                privileged=self._policy.privileged,
                difference=difference,
                fields=fields.get(factor.name, {}),
                altered_step=self._altered,
                idle=factor.name in self._idle,
            )
            for factor in self._perturbation.factors
            if self._perturbation.severities[factor.name] > 0
        }

    def _telemetry(self, traceback: str | None) -> Telemetry:
        return Telemetry(
            wall_s=time.perf_counter() - self._clock,
            worker=self._worker,
            policy_ms=1e3 * self._seconds["policy"],
            render_ms=1e3 * self._seconds["render"],
            physics_ms=1e3 * self._seconds["physics"],
            started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._started)),
            traceback=traceback,
            decisions=len(self._latencies),
            latency_ms=1e3 * float(np.mean(self._latencies)) if self._latencies else None,
            latency_max_ms=1e3 * max(self._latencies) if self._latencies else None,
        )
