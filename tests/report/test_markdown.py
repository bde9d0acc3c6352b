"""The Markdown of a run says what its report says."""

from __future__ import annotations

from synthetic_run import RATES, write_run

from robogen.report import build_report, load_run, markdown_table
from robogen.report.words import factor_name


def test_one_row_per_condition_with_the_numbers_of_the_json(tmp_path):
    run_dir = write_run(tmp_path / "run", frames=False, videos=False, episodes=20)
    run = load_run(run_dir)
    lines = markdown_table(run).splitlines()
    rows = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}
    columns = rows.pop("condition").count("|")
    rows.pop("---")
    assert set(rows) == {factor_name(name) for name in RATES}
    assert {line.count("|") for line in rows.values()} == {columns}
    group = build_report([run_dir]).runs[0].summary.groups[0]
    for item in group.conditions:
        assert f"| {item.scored} |" in rows[factor_name(item.condition)]
        assert rows[factor_name(item.condition)].rstrip("| ").endswith(item.verdict.value)
    assert any(line.startswith("Command: `robogen eval") for line in lines)


def test_many_factors_at_once_are_counted_and_a_pair_is_spelled_out(tmp_path):
    run_dir = write_run(tmp_path / "run", frames=False, videos=False, episodes=2)
    run = load_run(run_dir)
    conditions = run.manifest["conditions"]
    pair = next(item for item in conditions if len(item["factors"]) == 2)
    pair["ranges"] = {"camera_pose": "10 cm", "table_texture": "100 %"}
    conditions.append({"id": "all", "factors": [], "ranges": {f"f{i}": "x" for i in range(9)}})
    assert run.ranges[pair["id"]] == "camera_pose: 10 cm; table_texture: 100 %"
    assert run.ranges["all"] == "9 factors at once, each over its own range"
