"""The start of an episode: placed, drawn, looked at, and its factors applied in their phases."""

from __future__ import annotations

from collections.abc import Callable

from robogen.perturbations.engine import Perturbation
from robogen.scenes.base import Scene
from robogen.seeding import EpisodeSeed
from robogen.specs import Draw, Observation


def begin(
    scene: Scene,
    perturbation: Perturbation,
    seed: EpisodeSeed,
    *,
    look: Callable[[], Observation] | None = None,
    nominal_instruction: Callable[[str], None] | None = None,
    placement: EpisodeSeed | None = None,
) -> tuple[dict[str, Draw], str, Observation | None]:
    """Bring a scene to the start of an episode with its factors applied.

    Phases in order: placement and task are drawn, factors draw; the nominal start is built and
    looked at; then specification, model and initial state are edited and the episode's start is
    built.

    Args:
        scene: The scene; left ready to step.
        perturbation: Factors with their severities.
        seed: The episode's seed.
        look: Takes the nominal observation; called only when factors are present.
        nominal_instruction: Told the nominal instruction before ``look``.
        placement: Whose placement and task it has, if not the seed's own.

    Returns:
        Draws by factor, the instruction the policy gets, and what ``look`` saw.
    """
    scene.rebuild(None)
    scene.world.edit.restore()
    initial, facts = scene.prepare(placement or seed)
    draws = perturbation.sample(seed, facts)
    nominal = None
    if perturbation.names and look is not None:
        if nominal_instruction is not None:
            nominal_instruction(facts.instruction)
        scene.reset(initial)
        nominal = look()
    if perturbation.needs_recompile:
        scene.rebuild(lambda edit: perturbation.edit_spec(edit, draws))
    perturbation.edit_model(scene.world.edit, draws)
    perturbation.edit_initial(initial, draws)
    scene.reset(initial)
    return draws, perturbation.instruction(facts.instruction, draws), nominal
