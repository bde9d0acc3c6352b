"""The report as Markdown, for pages that are kept with code."""

from __future__ import annotations

from robogen.report.load import Run
from robogen.report.words import (
    DASH,
    change_text,
    factor_name,
    headline,
    latency_text,
    noise_text,
    p_text,
    ranking_sentences,
    rate_text,
    score_text,
)
from robogen.stats import ConditionSummary, GroupSummary

_COLUMNS = (
    "condition",
    "physical range",
    "n",
    "success, 95 %",
    "change in points, 95 %",
    "p (Holm)",
    "progress",
    "verdict",
)
_RIGHT = ("n", "success, 95 %", "change in points, 95 %", "p (Holm)", "progress")


def markdown_table(run: Run) -> str:
    """Headline, table and ranking of each policy and scene of a run, with its command."""
    parts = []
    for group in run.summary.groups:
        parts += [f"## {group.policy} on {group.scene}", f"{headline(group)}", _table(run, group)]
        parts += [" ".join(ranking_sentences(group))]
        if group.noise_floor is not None:
            parts.append(noise_text(group.noise_floor))
        latency = run.latency(group.scene, group.policy)
        if latency is not None:
            parts.append(latency_text(latency))
    versions = run.manifest.get("versions", {})
    parts.append(
        f"Command: `{run.command}`. MuJoCo {versions.get('mujoco', 'unknown')}, "
        f"torch {versions.get('torch', 'unknown')}, Python {versions.get('python', 'unknown')}, "
        f"{run.manifest.get('cores', 'unknown')} cores."
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(run: Run, group: GroupSummary) -> str:
    items = [*([group.nominal] if group.nominal else []), *group.conditions]
    rule = ["---:" if name in _RIGHT else "---" for name in _COLUMNS]
    rows = [_COLUMNS, rule, *(_row(run, item) for item in items)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(run: Run, item: ConditionSummary) -> list[str]:
    left_out = item.errored + item.unreached
    return [
        factor_name(item.condition),
        run.ranges.get(item.condition, DASH).replace("|", "\\|"),
        f"{item.scored}" + (f" ({left_out} unscored)" if left_out else ""),
        rate_text(item.rate),
        change_text(item.degradation),
        p_text(item.p_holm),
        score_text(item.progress),
        item.verdict.value if item.verdict else DASH,
    ]
