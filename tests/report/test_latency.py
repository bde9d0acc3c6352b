"""How long the policy thought is part of every report."""

from __future__ import annotations

import pytest
from synthetic_run import manifest

from robogen.records import EpisodeRecord, RecordStore, Telemetry, write_manifest
from robogen.report import build_report
from robogen.report.markdown import markdown_table
from robogen.report.words import latency_text


@pytest.fixture
def run(tmp_path):
    with RecordStore.create_or_open(tmp_path, study_hash="h") as store:
        for episode, (mean, longest) in enumerate([(10.0, 12.0), (20.0, 90.0), (14.0, 15.0)]):
            store.add(
                EpisodeRecord(
                    scene="pick",
                    policy="bc",
                    condition="nominal",
                    episode=episode,
                    status="scored",
                    success=True,
                    progress=1.0,
                    steps=20,
                ),
                Telemetry(decisions=4 + episode, latency_ms=mean, latency_max_ms=longest),
            )
    about = manifest("slow", ["pick"], ["bc"], ["nominal"], 3)
    about["study"] |= {"slots": 8, "timing": "realtime", "latency_ms": 200.0}
    write_manifest(tmp_path, about)
    return tmp_path


def test_median_longest_and_number_of_decisions(run):
    report = build_report([run])
    latency = report.runs[0].latency("pick", "bc")
    assert (latency.decisions, latency.median_ms, latency.longest_ms) == (5, 14.0, 90.0)
    sentence = latency_text(latency)
    assert "14 ms (median over episodes, longest 90 ms" in sentence
    assert "counted as 200 ms" in sentence
    assert sentence in markdown_table(report.runs[0])
    assert "counted as 200 ms" in report.html()
    assert report.data()["studies"][0]["groups"][0]["latency"]["median_ms"] == 14.0


def test_a_run_that_measured_none_says_nothing(run):
    with RecordStore.create_or_open(run, study_hash="h") as store:
        store._connection.execute("UPDATE telemetry SET decisions = NULL")
    report = build_report([run])
    assert report.runs[0].latency("pick", "bc") is None
    assert "A decision took" not in report.html()
