"""What a worker does: build the scenes and the policy of a group, and run its episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from robogen.errors import PolicyUnavailable
from robogen.policies.base import Policy
from robogen.records.schema import EpisodeKey
from robogen.rollout.episode import Episode, EpisodeTask, Outcome
from robogen.rollout.loop import Timing, run
from robogen.scenes.base import Scene
from robogen.specs import SceneSpec
from robogen.study.config import StudyConfig
from robogen.study.design import Design, fit_policy


@dataclass
class _Group:
    """A policy and one scene per slot."""

    key: tuple[str, str]
    policy: Policy
    scenes: list[Scene]


class GroupRunner:
    """Runs episodes of a design, one (scene, policy) group at a time.

    Args:
        design: The study.
        worker: Number of this worker, for telemetry.
    """

    def __init__(self, design: Design, worker: int = 0) -> None:
        self._design = design
        self._worker = worker
        self._group: _Group | None = None

    @property
    def policy(self) -> Policy:
        """Policy of the group that ran last."""
        assert self._group is not None
        return self._group.policy

    @property
    def scene(self) -> SceneSpec:
        """What the scene of that group offers."""
        assert self._group is not None
        return self._group.scenes[0].spec

    def run(
        self,
        scene: str,
        policy: str,
        *,
        source: Callable[[], EpisodeKey | None],
        sink: Callable[[Outcome], None],
        started: Callable[[EpisodeKey], None] = lambda key: None,
        pulse: Callable[[], None] = lambda: None,
    ) -> None:
        """Run what the source hands out until it returns None.

        Args:
            scene: Scene of every episode the source will hand out.
            policy: Policy of every episode.
            source: The next episode, or None.
            sink: Gets each outcome.
            started: Told which episode begins.
            pulse: Called once per round.
        """
        group = self._enter(scene, policy)
        design = self._design
        fit = fit_policy(group.policy, group.scenes[0])
        self._refuse_another(scene, policy, group.policy)

        def next_episode(slot: int) -> Episode | None:
            key = source()
            if key is None:
                return None
            started(key)
            condition = design.condition(scene, key.condition)
            return Episode(
                scene=group.scenes[slot],
                perturbation=design.perturbation(condition),
                task=EpisodeTask(*key, seed=design.seed(key)),
                policy=group.policy.spec,
                action=fit.action,
                keep_frames=key.episode < design.config.frames and key.repeat == 0,
                worker=self._worker,
            )

        run(
            group.policy,
            slots=len(group.scenes),
            batch=design.config.batch,
            source=next_episode,
            sink=sink,
            pulse=pulse,
            timing=_timing(design.config),
        )

    def _refuse_another(self, scene: str, name: str, policy: Policy) -> None:
        """A checkpoint or server may have been exchanged since the study was settled.

        Raises:
            PolicyUnavailable: It was; the study stops before episodes of both mix.
        """
        settled = self._design.identities[f"policy {name} on {scene}"]
        changed = [
            f"{key} was {settled.get(key)} and is {value}"
            for key, value in policy.identity().items()
            if settled.get(key) != value
        ]
        if changed:
            raise PolicyUnavailable(
                f"Policy '{name}' is another one than the study began with: {'; '.join(changed)}. "
                "Put the first back and give the same command to go on, or evaluate the other one "
                "in another run folder."
            )

    def _enter(self, scene: str, policy: str) -> _Group:
        if self._group is not None and self._group.key == (scene, policy):
            return self._group
        self.close()
        config = self._design.config
        first = self._design.load_scene(scene)
        most = 1 if scene in self._design.given_scenes else first.spec.slots
        slots = min(config.slots, most or config.slots)
        others = [self._design.load_scene(scene) for _ in range(slots - 1)]
        self._group = _Group(
            key=(scene, policy),
            policy=self._design.load_policy(policy, scene),
            scenes=[first, *others],
        )
        return self._group

    def close(self) -> None:
        """Free the current group's scenes and policy."""
        if self._group is not None:
            if self._group.key[1] not in self._design.given:
                self._group.policy.close()
            if self._group.key[0] not in self._design.given_scenes:
                for scene in self._group.scenes:
                    scene.close()
            self._group = None


def _timing(config: StudyConfig) -> Timing | None:
    if config.timing == "instant":
        return None
    return Timing(latency_s=None if config.latency_ms is None else 1e-3 * config.latency_ms)
