"""Numbers as text: always with n, always with an interval, and the sentences made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from robogen.report.load import Latency
from robogen.stats import (
    ConditionSummary,
    Estimate,
    GroupSummary,
    Interval,
    NoiseFloor,
    StudySummary,
    Verdict,
)

MINUS = "\N{MINUS SIGN}"
NBSP = "\N{NO-BREAK SPACE}"
DASH = "\N{EN DASH}"

MARKS: dict[Verdict, str] = {
    Verdict.BREAKS: "\N{BLACK DIAMOND}",
    Verdict.IMPROVES: "\N{BLACK UP-POINTING TRIANGLE}",
    Verdict.NO_EVIDENCE: "\N{WHITE CIRCLE}",
    Verdict.TOO_FEW: "\N{WHITE SQUARE}",
    Verdict.FLOOR: "\N{WHITE DOWN-POINTING TRIANGLE}",
    Verdict.CEILING: "\N{WHITE UP-POINTING TRIANGLE}",
    Verdict.NOT_OBSERVED: DASH,
    Verdict.DID_NOT_REACH: "\N{MULTIPLICATION SIGN}",
}
"""A shape for each verdict, so that colour is never the only sign."""


def count(n: int, noun: str) -> str:
    """``1 episode``, ``2 episodes``."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def listed(names: Iterable[str]) -> str:
    """``a, b and c``."""
    items = list(names)
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def percent(value: float) -> str:
    """A rate as whole per cent, with more digits only where rounding would lie about 0 or 100."""
    scaled = 100 * value
    text = f"{scaled:.0f}"
    if (text == "0" and scaled > 0) or (text == "100" and scaled < 100):
        text = f"{scaled:.1f}"
    return f"{text}{NBSP}%"


def points(value: float) -> str:
    """A change of a rate in whole percentage points, with its sign."""
    number = round(100 * value)
    sign = MINUS if number < 0 else "+" if number > 0 else ""
    return f"{sign}{abs(number)}"


def percent_interval(interval: Interval) -> str:
    """An interval of a rate."""
    return f"[{round(100 * interval.low)},{NBSP}{round(100 * interval.high)}]"


def points_interval(interval: Interval) -> str:
    """An interval of a change."""
    return f"[{points(interval.low)},{NBSP}{points(interval.high)}]"


def rate_text(estimate: Estimate | None) -> str:
    """``95 % [89, 98]``, or a dash for what was not measured."""
    if estimate is None:
        return DASH
    return f"{percent(estimate.value)} {percent_interval(estimate.interval)}"


def change_text(estimate: Estimate | None) -> str:
    """``−62 [−75, −45]``, or a dash for what was not measured."""
    if estimate is None:
        return DASH
    return f"{points(estimate.value)} {points_interval(estimate.interval)}"


def score_text(estimate: Estimate | None) -> str:
    """``0.81 [0.72, 0.88]``."""
    if estimate is None:
        return DASH
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def significant(value: float) -> str:
    """A measurement with three significant digits and a true minus sign."""
    if value != 0 and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.2e}".replace("-", MINUS)
    text = f"{value:.3g}"
    if "e" in text:
        text = f"{value:.0f}"
    return text.replace("-", MINUS)


def measured_text(estimate: Estimate | None) -> str:
    """A change of a measurement: ``+0.12 [−0.01, +0.25]``."""
    if estimate is None:
        return DASH

    half = (estimate.high - estimate.low) / 2
    # Two digits of the uncertainty: more would pretend, fewer would hide the sign of an end.
    digits = max(0, 1 - math.floor(math.log10(half))) if half > 0 else 3

    def signed(value: float) -> str:
        text = f"{value:+.{digits}f}"
        return text.lstrip("+") if float(text) == 0 else text.replace("-", MINUS)

    return f"{signed(estimate.value)} [{signed(estimate.low)}, {signed(estimate.high)}]"


def p_text(p: float | None) -> str:
    """A p-value."""
    if p is None:
        return DASH
    return "<\N{NARROW NO-BREAK SPACE}0.001" if p < 0.001 else f"{p:.3f}"


def factor_name(condition: str) -> str:
    """A condition as people read it."""
    return condition.replace("+", " + ")


_UNITS = {"m": "m", "n": "N", "s": "s", "rad": "rad"}


def measurement_name(name: str) -> str:
    """A behaviour column as people read it: ``peak_force_n`` is ``peak force [N]``."""
    stem, _, last = name.rpartition("_")
    if stem and last in _UNITS:
        return f"{stem.replace('_', ' ')} [{_UNITS[last]}]"
    return name.replace("_", " ")


def headline(group: GroupSummary) -> str:
    """What one policy does in one scene, in a sentence or two, without its name."""
    nominal = group.nominal
    if nominal is None or nominal.rate is None:
        errored = nominal.errored if nominal else 0
        if errored and all(not item.scored for item in group.conditions):
            return "Nothing was scored: every episode errored."
        return "The nominal condition has no scored episode, so no change can be measured."
    start = f"{percent(nominal.rate.value)} nominal {percent_interval(nominal.rate.interval)}"
    if not group.conditions:
        return f"{start} over {count(nominal.scored, 'episode')}; no other condition was run."
    broken = by_verdict(group, Verdict.BREAKS)
    if group.at_floor and not broken:
        return (
            f"{start} over {count(nominal.scored, 'episode')}: at the floor. A policy that does "
            "not succeed has no success to lose, so no factor can be measured."
        )
    unchanged = by_verdict(group, Verdict.NO_EVIDENCE)
    parts = [start]
    if broken:
        parts.append(_worst(group, broken))
        others = len(broken) - 1
        if others:
            parts.append(
                f"{count(others, 'other condition')} also break{'s' if others == 1 else ''} it"
            )
    if group.too_few_to_rank:
        parts.append("too few episodes to rank the factors")
    elif unchanged:
        few = "condition" if any(len(item.factors) > 1 for item in unchanged) else "factor"
        parts.append(f"{count(len(unchanged), few)} cannot be told from the nominal")
    unreached = by_verdict(group, Verdict.DID_NOT_REACH)
    if unreached:
        parts.append(f"{count(len(unreached), 'condition')} did not reach the policy")
    return "; ".join(parts) + "."


def by_verdict(group: GroupSummary, verdict: Verdict) -> list[ConditionSummary]:
    """Conditions of one verdict, the most harmful first."""
    return [item for item in group.conditions if item.verdict is verdict]


def _worst(group: GroupSummary, broken: Sequence[ConditionSummary]) -> str:
    """The most harmful condition; single factors come first, since sets contain them."""
    singles = [item for item in broken if len(item.factors) == 1]
    worst = (singles or list(broken))[0]
    assert worst.degradation is not None
    change = (
        f"{points(worst.degradation.value)} points {points_interval(worst.degradation.interval)}"
    )
    name = factor_name(worst.condition)
    if len(group.conditions) == 1:
        return f"{name} breaks it: {change}"
    return f"{name} breaks it most: {change}"


def ranking_sentences(group: GroupSummary) -> list[str]:
    """What the ranking says, and what it cannot say."""
    nominal = group.nominal
    sentences: list[str] = []
    if nominal is None or nominal.rate is None or not group.tests:
        return sentences
    if group.smallest_drop is None:
        if group.at_floor:
            sentences.append("Nothing to rank: the nominal is at the floor.")
        else:
            sentences.append(
                f"Too few to rank: with {count(group.typical_pairs, 'matched episode')} per "
                "condition, even a factor that breaks the policy completely could have gone unseen."
            )
    else:
        ranking = group.ranking
        if ranking is not None:
            worst = [factor_name(name) for name in ranking.worst_candidates]
            if len(worst) == 1:
                sentences.append(f"{worst[0]} hurts more than every other factor.")
            elif len(worst) == len(ranking.sets):
                sentences.append("No factor can be told to hurt more than any other.")
            else:
                sentences.append(
                    f"Which of {listed(worst)} hurts most cannot be told: their ranks overlap."
                )
            total = len(ranking.sets) * (len(ranking.sets) - 1) // 2
            sentences.append(
                f"Of {count(total, 'pair')} of factors, {len(ranking.inseparable)} cannot be "
                "separated."
            )
        sentences.append(
            f"{count(group.typical_pairs, 'matched episode')} per condition can show a drop of "
            f"{round(100 * group.smallest_drop)} points or more ({percent(group.power)} power, "
            f"corrected for {count(group.tests, 'comparison')}); smaller ones may have gone unseen."
        )
    if group.needed_for_half is not None and group.typical_pairs < group.needed_for_half:
        sentences.append(
            f"To see a loss of half its success: {count(group.needed_for_half, 'matched episode')} "
            "per condition."
        )
    return sentences


def noise_text(noise: NoiseFloor) -> str:
    """How far a policy disagrees with itself."""
    return (
        f"Rerun on the same episodes, the policy changed its outcome in "
        f"{rate_text(noise.disagreement)} of {count(noise.pairs, 'pair')}."
    )


def latency_text(latency: Latency) -> str:
    """How long the policy thought, and whether the world waited."""
    shared = f"; a call serves up to {latency.rows} episodes" if latency.rows > 1 else ""
    if latency.timing != "realtime":
        world = "The world waited for it."
    elif latency.declared_ms is None:
        world = "The world went on meanwhile."
    else:
        world = f"Each counted as {latency.declared_ms:g} ms of simulated time."
    return (
        f"A decision took {significant(latency.median_ms)} ms (median over episodes, longest "
        f"{significant(latency.longest_ms)} ms{shared}), {significant(latency.decisions)} of them "
        f"an episode. {world}"
    )


def method_paragraphs(summary: StudySummary) -> list[str]:
    """Which statistics were used, exactly."""
    level = percent(1 - summary.alpha)
    alpha = f"{summary.alpha:g}"
    return [
        f"Success rates carry Wilson's {level} interval. Degradation is the change of success on "
        "matched episodes: episode i starts from the same state under every condition that does "
        "not itself move objects, and only episodes scored under both conditions count. Its "
        "interval is Newcombe's square-and-add interval for paired proportions (1998, method 10), "
        "which is per comparison and not corrected.",
        "The verdict comes from the exact two-sided McNemar test with Holm's correction over the "
        f"conditions of one policy in one scene, at a family-wise level of {alpha}; it is not "
        "corrected across policies or scenes. An interval may exclude zero where the verdict does "
        "not follow: the test is exact and corrected, the interval is neither, and the verdict "
        "counts.",
        "Ranks are compared by the same exact test between every two factors, corrected by Holm "
        f"over all pairs, so that every excluded rank holds at once with {level} confidence. The "
        f"smallest detectable drop is computed from the exact test at {percent(summary.power)} "
        "power, at the hardest step of the correction and with the measured correlation of "
        "matched outcomes.",
        "Mean progress has a betting interval (Waudby-Smith and Ramdas), valid at every n. Changes "
        "of behaviour are matched mean differences with Student's interval, uncorrected: read "
        "them as description; contacts are looked at once a control step, so a peak force is a "
        "lower bound. An errored episode is not a failure: it leaves every rate and pair, and the "
        "bounds say what it could have changed.",
    ]
