import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console
from synthetic_run import RATES, write_run

from robogen.errors import RecordsError
from robogen.records import read_records
from robogen.report import build, build_report, terminal_table

ROOT = Path(__file__).resolve().parents[2]
VOID = {"meta", "link", "img", "br", "hr", "input", "wbr", "path", "line", "rect"}


class Page(HTMLParser):
    """Text, tags and addresses of a page; refuses tags that do not nest."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.text = [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "pre"):
            self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def words(self):
        # What is joined by a no-break space on the page is one space here.
        return re.sub(r"\s+", " ", "".join(self.text))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    base = tmp_path_factory.mktemp("runs")
    few = {"nominal": 1.0, "camera_pose": 0.2, "light_intensity": 0.9}
    floor = dict.fromkeys(RATES, 0.0)
    return {
        "full": write_run(base / "full", repeats=2, error_rate=0.02),
        "quick": write_run(base / "quick", episodes=5, rates=few),
        "unfinished": write_run(base / "unfinished", recorded=180),
        "errored": write_run(base / "errored", error_rate=1.0, frames=False, videos=False),
        "empty": write_run(base / "empty", recorded=0, frames=False, videos=False),
        "many": write_run(
            base / "many",
            scenes=("pick", "drawer"),
            policies=("bc", "openvla_7b"),
            rates={
                ("pick", "bc"): RATES,
                ("drawer", "bc"): {**RATES, "camera_pose": 0.9},
                ("pick", "openvla_7b"): floor,
                ("drawer", "openvla_7b"): RATES,
            },
            unreached=("light_intensity",),
            videos=False,
        ),
    }


def page_of(folder):
    return Page(build_report([folder]).html())


NAMES = ["full", "quick", "unfinished", "errored", "empty", "many"]


@pytest.mark.parametrize("name", NAMES)
def test_page_is_well_formed_and_needs_nothing_else(runs, name):
    page = page_of(runs[name])
    assert page.all("html")[0]["lang"] == "en"
    for tag, attributes in page.tags:
        assert tag not in ("script", "iframe", "object", "form")
        for key in ("src", "href", "poster", "srcset", "action"):
            if key in attributes:
                assert attributes[key].startswith(("data:", "#")), (tag, attributes[key][:60])
        assert not any(key.startswith("on") for key in attributes)
    css = build._template("report.css")
    assert "url(" not in css
    assert "@import" not in css
    policy = [item["content"] for item in page.all("meta") if "http-equiv" in item]
    assert policy
    assert "default-src 'none'" in policy[0]


@pytest.mark.parametrize("name", NAMES)
def test_page_is_accessible(runs, name):
    page = page_of(runs[name])
    assert all(item.get("alt") for item in page.all("img"))
    assert all(item.get("scope") in ("row", "col") for item in page.all("th"))
    assert all(item.get("aria-label") for item in page.all("video"))
    regions = [item for item in page.all("div") if item.get("role") == "region"]
    assert all(item.get("aria-label") and item.get("tabindex") == "0" for item in regions)
    assert len(regions) == len(page.all("table"))
    anchors = [item["id"] for _, item in page.tags if "id" in item]
    assert len(anchors) == len(set(anchors))
    assert {item["href"][1:] for item in page.all("a")} <= set(anchors)


def test_full_report_says_what_was_found(runs):
    page = page_of(runs["full"])
    text = page.words()
    (group,) = build_report([runs["full"]]).runs[0].summary.groups
    worst = group.find("camera_pose").degradation
    assert f"camera_pose breaks it most: −{abs(round(100 * worst.value))} points" in text
    assert "camera_pose hurts more than every other factor." in text
    assert "cannot be told from the nominal" in text
    assert re.search(r"can show a drop of \d+ points or more \(80 % power", text)
    assert "moved up to 0.10 m, turned up to 12°" in text
    assert "Rerun on the same episodes" in text
    assert "ValueError: expected image of shape" in text
    assert "drawer_friction: the scene has no joint" in text
    assert "This policy does not observe instruction." in text
    assert "McNemar" in text
    assert "Unfinished" not in text
    videos = page.all("video")
    assert len(videos) == 4
    assert all({"controls", "muted", "playsinline"} <= set(item) for item in videos)
    assert len(page.all("img")) == 2 * 2 * (len(RATES) - 1)


def test_quick_study_is_too_few_to_rank(runs):
    text = page_of(runs["quick"]).words()
    assert "too few episodes to rank the factors" in text
    assert "Too few to rank: with 5 matched episodes per condition" in text
    assert "To see a loss of half its success:" in text
    assert "hurts more than" not in text


def test_unfinished_study_says_how_far_it_is(runs):
    text = page_of(runs["unfinished"]).words()
    assert "180 of 500 episodes are recorded" in text
    assert "180 episodes of 500" in text


def test_study_without_scores(runs):
    assert "Nothing was scored: every episode errored." in page_of(runs["errored"]).words()
    assert "No episode is recorded yet." in page_of(runs["empty"]).words()


def test_several_scenes_and_policies_have_an_overview(runs):
    page = page_of(runs["many"])
    text = page.words()
    assert len(page.all("article")) == 5
    assert "openvla_7b on pick" in text
    assert "at the floor" in text
    assert "gripper sign" in text
    assert "Did not reach the policy." in text
    assert "1 condition did not reach the policy" in text


def test_several_runs_are_shown_side_by_side_and_not_pooled(runs, tmp_path):
    report = build_report([runs["full"], runs["quick"]])
    html, data = report.write(tmp_path / "out")
    page = Page(html.read_text(encoding="utf-8"))
    assert "full" in page.words()
    assert "quick" in page.words()
    studies = json.loads(data.read_text(encoding="utf-8"))["studies"]
    assert [study["name"] for study in studies] == ["full", "quick"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "report.html",
        "report.json",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_json_holds_the_numbers_of_the_page(runs, name):
    report = build_report([runs[name]])
    data = json.loads(report.json())
    assert data["report_version"] == 1
    study = data["studies"][0]
    assert study["episodes_recorded"] == len(read_records(runs[name]))
    for group, summary in zip(study["groups"], report.runs[0].summary.groups, strict=True):
        for item, condition in zip(group["conditions"], summary.conditions, strict=True):
            assert item["condition"] == condition.condition
            assert item["verdict"] == condition.verdict.value
            assert item["pairs"] == condition.pairs
            if condition.rate is not None:
                assert item["rate"]["value"] == condition.rate.value
            else:
                assert item["rate"] is None


def test_reports_of_equal_records_are_equal(runs):
    assert build_report([runs["full"]]).html() == build_report([runs["full"]]).html()


def test_terminal_table(runs):
    console = Console(width=200, record=True, file=io.StringIO())
    for name in ("full", "quick", "errored", "many"):
        run = build_report([runs[name]]).runs[0]
        for table in terminal_table(run.summary, ranges=run.ranges, behaviour=True):
            console.print(table)
    text = console.export_text()
    assert "◆ breaks" in text
    assert "○ no evidence" in text
    assert "□ too few episodes" in text
    assert "× did not reach" in text
    assert "unmeasurable" in text
    assert "Ranks that cannot be excluded (1 hurts most): camera_pose 1" in text
    assert "peak force [N]" in text
    assert "24 unseen textures" in text


def test_what_people_wrote_is_escaped(tmp_path):
    run = write_run(
        tmp_path / "run",
        episodes=3,
        name="<script>alert(1)</script>",
        frames=False,
        videos=False,
        rates={"nominal": 1.0, "<b>&": 0.5},
    )
    html = build_report([run]).html()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    Page(html)


def test_large_videos_are_named_instead_of_embedded(runs, monkeypatch):
    monkeypatch.setattr(build, "VIDEO_BUDGET", 10)
    page = page_of(runs["full"])
    assert page.all("video") == []
    assert "videos/pick/bc/camera_pose_0_failure.mp4" in page.words()


def test_errors_say_what_to_do(runs, tmp_path):
    with pytest.raises(RecordsError, match="No run folder was given"):
        build_report([])
    with pytest.raises(RecordsError, match="There is no run folder"):
        build_report([tmp_path / "nothing"])
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordsError, match="Cannot write the report"):
        build_report([runs["quick"]]).write(tmp_path / "file")


def test_report_needs_no_simulator():
    code = (
        "import sys, robogen.report; "
        "print([name for name in ('mujoco', 'torch', 'cv2', 'gymnasium') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
