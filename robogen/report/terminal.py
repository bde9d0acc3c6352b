"""The report for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from robogen.report.words import (
    DASH,
    MARKS,
    change_text,
    count,
    factor_name,
    measured_text,
    measurement_name,
    noise_text,
    p_text,
    ranking_sentences,
    rate_text,
    score_text,
    significant,
)
from robogen.stats import ConditionSummary, GroupSummary, StudySummary, Verdict

_STYLES: dict[Verdict, str] = {
    Verdict.BREAKS: "bold red",
    Verdict.IMPROVES: "bold blue",
    Verdict.NO_EVIDENCE: "",
    Verdict.TOO_FEW: "dim",
    Verdict.FLOOR: "yellow",
    Verdict.CEILING: "yellow",
    Verdict.NOT_OBSERVED: "dim",
    Verdict.DID_NOT_REACH: "bold white on red",
}


def terminal_table(
    summary: StudySummary, *, ranges: Mapping[str, str] | None = None, behaviour: bool = False
) -> list[Table]:
    """Tables to print with rich: one per scene and policy.

    Args:
        summary: The study.
        ranges: Physical range of each condition, in words.
        behaviour: Whether to add a table of behaviour changes per scene and policy.
    """
    tables = []
    for group in summary.groups:
        tables.append(_results(group, ranges or {}))
        if behaviour and any(item.behaviour for item in group.conditions):
            tables.append(_behaviour(group))
    return tables


def _results(group: GroupSummary, ranges: Mapping[str, str]) -> Table:
    table = Table(
        title=f"{group.policy} on {group.scene}",
        title_style="bold",
        title_justify="left",
        caption="\n".join(_captions(group)),
        caption_justify="left",
        caption_style="",
    )
    table.add_column("condition", no_wrap=True)
    if ranges:
        table.add_column("physical range")
    table.add_column("n", justify="right")
    table.add_column("success, 95 %", justify="right")
    table.add_column("change in points, 95 %", justify="right")
    table.add_column("p (Holm)", justify="right")
    table.add_column("progress", justify="right")
    table.add_column("verdict")
    items = [*([group.nominal] if group.nominal else []), *group.conditions]
    for item in items:
        cells: list[str | Text] = [factor_name(item.condition)]
        if ranges:
            cells.append(ranges.get(item.condition, DASH))
        cells += [
            _scored(item),
            rate_text(item.rate),
            change_text(item.degradation),
            p_text(item.p_holm),
            score_text(item.progress),
            _verdict(item.verdict),
        ]
        table.add_row(*cells, end_section=item is group.nominal)
    return table


def _scored(item: ConditionSummary) -> str:
    left_out = item.errored + item.unreached
    return f"{item.scored}" if not left_out else f"{item.scored} ({left_out} unscored)"


def _verdict(verdict: Verdict | None) -> Text:
    if verdict is None:
        return Text(DASH)
    return Text(f"{MARKS[verdict]} {verdict.value}", style=_STYLES[verdict])


def _captions(group: GroupSummary) -> list[str]:
    lines = ranking_sentences(group)
    ranking = group.ranking
    if ranking is not None:
        ranks = [
            f"{factor_name(item.factor)} {item.best}"
            + ("" if item.best == item.worst else f"{DASH}{item.worst}")
            for item in ranking.sets
        ]
        lines.append(f"Ranks that cannot be excluded (1 hurts most): {', '.join(ranks)}.")
    errored = sum(item.errored for item in group.conditions)
    errored += group.nominal.errored if group.nominal else 0
    if errored:
        lines.append(
            f"{count(errored, 'episode')} errored and count neither as success nor failure."
        )
    if group.noise_floor is not None:
        lines.append(noise_text(group.noise_floor))
    return lines


def _behaviour(group: GroupSummary) -> Table:
    names = sorted({change.name for item in group.conditions for change in item.behaviour})
    table = Table(
        title=f"{group.policy} on {group.scene}: change of behaviour on matched episodes, 95 %",
        title_justify="left",
    )
    table.add_column("condition", no_wrap=True)
    for name in names:
        table.add_column(measurement_name(name), justify="right")
    if group.nominal is not None:
        means = {change.name: significant(change.mean) for change in group.nominal.behaviour}
        table.add_row(
            "nominal (mean)", *[means.get(name, DASH) for name in names], end_section=True
        )
    for item in group.conditions:
        changes = {change.name: measured_text(change.change) for change in item.behaviour}
        table.add_row(factor_name(item.condition), *[changes.get(name, DASH) for name in names])
    return table
