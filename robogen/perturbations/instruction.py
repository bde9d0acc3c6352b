# ruff: noqa: D102 - overrides are documented on the base class
"""The words: paraphrases of the instruction."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from robogen.errors import FactorError
from robogen.mj.world import World
from robogen.perturbations.base import InstructionFactor
from robogen.specs import Draw, SceneFacts, Split


class InstructionParaphrase(InstructionFactor):
    """Says it in other words, further from the nominal ones at higher severity.

    A split's paraphrases are ranked by their distance from the nominal instruction; severity says
    how far down that ranking the pick may lie.

    Args:
        name: Factor name.
        ngram: Length of the character n-grams that measure distance.
    """

    kind = "semantic"
    channel = "instruction"
    dose = "ordered"
    sets = ("instruction",)

    def __init__(self, *, name: str, ngram: int) -> None:
        super().__init__(name=name)
        self.ngram = self.integer("ngram", ngram, 1, 8)

    def ranking(self, facts: SceneFacts, split: Split) -> list[tuple[float, str]]:
        """Distance and text of a split's paraphrases, nearest first; the nominal text left out."""
        texts = set(facts.paraphrases.get(split, ())) - {facts.instruction}
        return sorted((ngram_distance(facts.instruction, text, self.ngram), text) for text in texts)

    def draw(
        self, rng: np.random.Generator, split: Split, severity: float, facts: SceneFacts
    ) -> Draw:
        place = 0.5 + 0.5 * rng.uniform()
        ranked = self.ranking(facts, split)
        if not ranked:
            raise FactorError(
                f"Factor '{self.name}' found no '{split}' paraphrase of \"{facts.instruction}\" in "
                f"scene '{facts.scene}'. Add some to the scene's YAML, or leave the factor out."
            )
        rank = max(math.ceil(severity * place * len(ranked)) - 1, 0)
        distance, text = ranked[rank]
        return {"text": text, "distance": round(distance, 6), "rank": rank}

    def applies_to(self, world: World, facts: SceneFacts) -> str | None:
        del world
        if not any(set(texts) - {facts.instruction} for texts in facts.paraphrases.values()):
            return "the scene has no paraphrases of its instruction"
        return None

    def apply(self, instruction: str, draw: Draw) -> str:
        del instruction
        return str(draw["text"])

    def range_text(self, severity: float) -> str:
        return f"paraphrases up to {100 * severity:.0f} % down the ranking by {self.ngram}-grams"


def ngram_distance(one: str, other: str, size: int) -> float:
    """1 minus the cosine of two texts' character n-gram counts, case and outer blanks ignored."""
    counts = [_ngrams(text, size) for text in (one, other)]
    dot = sum(count * counts[1][gram] for gram, count in counts[0].items())
    norm = math.prod(math.sqrt(sum(c * c for c in count.values())) for count in counts)
    return 1.0 - dot / norm if norm > 0 else float(one != other)


def _ngrams(text: str, size: int) -> Counter[str]:
    padded = f" {' '.join(text.lower().split())} "
    return Counter(padded[i : i + size] for i in range(max(len(padded) - size + 1, 1)))
