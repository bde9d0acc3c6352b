from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
from rich.console import Console

from robogen.cli.progress import StudyView, duration
from robogen.cli.settings import documented, parse
from robogen.errors import ConfigError
from robogen.records import EpisodeRecord

NAMES = ["nominal", *(f"a_factor_number_{i}" for i in range(23)), "all"]
DESIGN = SimpleNamespace(
    scenes=("pick",),
    policies=("bc",),
    conditions={"pick": [SimpleNamespace(id=name) for name in NAMES]},
)


def view(width, height, terminal=True):
    stream = StringIO()
    console = Console(
        file=stream, width=width, height=height, force_terminal=terminal, color_system=None
    )
    made = StudyView(console, Path("nowhere"))
    made.begin(DESIGN, 0, 250)
    return made, console, stream


def record(condition, episode, success, **more):
    return EpisodeRecord(
        scene="pick",
        policy="bc",
        condition=condition,
        episode=episode,
        status="errored" if success is None else "scored",
        success=success,
        **more,
    )


def test_25_conditions_fit_a_small_terminal():
    made, console, stream = view(80, 24)
    for episode in range(3):
        for name in NAMES:
            made.record(record(name, episode, episode > 0 if name != "all" else None))
    console.print(made.render())
    lines = stream.getvalue().splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for name in NAMES:
        assert name[:20] in text
    assert "75/250" in text
    assert text.count("2/3") == 24
    assert "×3" in text  # errored ones are counted apart


def test_a_tiny_terminal_says_how_many_are_left_out():
    made, console, stream = view(50, 14)
    console.print(made.render())
    lines = stream.getvalue().splitlines()
    assert len(lines) <= 13
    assert "and 17 more" in lines[-1]


def test_reruns_for_the_noise_floor_do_not_count_as_nominal():
    made, console, stream = view(80, 24)
    made.record(record("nominal", 0, True))
    made.record(record("nominal", 0, False, repeat=1))
    console.print(made.render())
    assert "1/1" in stream.getvalue()


def test_one_line_where_there_is_no_terminal(monkeypatch):
    made, _, stream = view(80, 24, terminal=False)
    clock = [1000.0]
    monkeypatch.setattr("robogen.cli.progress.time.monotonic", lambda: clock[0])
    made.begin(DESIGN, 0, 250)
    for episode in range(20):
        clock[0] += 1.0
        made.record(record("nominal", episode, True))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("5/250 episodes")
    assert "60 episodes/min" in lines[0] or "1.0 episodes/s" in lines[0]
    assert "bc on pick: 5/5 successes" in lines[0]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (187, "3:07 min"), (7500, "2:05 h")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


KINDS = {
    "steps": int,
    "rate": float,
    "name": str,
    "on": bool,
    "names": list[str],
    "sizes": tuple[int, ...],
    "maybe": tuple[str, ...] | None,
    "mode": Literal["a", "b"],
}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("steps=3", 3),
        ("rate=1", 1.0),
        ("rate=1e-3", 1e-3),
        ("name=demos/pick", "demos/pick"),
        ("on=true", True),
        ("names=[a,b]", ["a", "b"]),
        ("names=a", ["a"]),
        ("names=a,b", ["a", "b"]),
        ("sizes=[8,16]", (8, 16)),
        ("sizes=8,16", (8, 16)),
        ("maybe=null", None),
        ("maybe=[eef_pos]", ("eef_pos",)),
        ("mode=b", "b"),
    ],
)
def test_values(word, value):
    [(_, found)] = parse([word], KINDS, "robogen test").items()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["steps=2.5"], "steps must be a whole number, got 2.5"),
        (["steps=true"], "steps must be a whole number, got True"),
        (["rate=fast"], "rate must be a number, got 'fast'"),
        (["on=1"], "on must be true or false, got 1"),
        (["sizes=[8,x]"], "sizes must be a list"),
        (["mode=c"], "mode must be one of a, b, got 'c'"),
        (["steps=1", "steps=2"], "'steps' is given twice"),
        (["stpes=1"], "Did you mean 'steps'?"),
        (["steps"], "expected key=value"),
        (["names=[a"], "Cannot read the value of 'names=\\[a'"),
    ],
)
def test_wrong_values(words, said):
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        parse(words, KINDS, "robogen test")


def test_documentation_is_read_from_the_source():
    found = {item.name: item for item in documented("robogen.study.config", "StudyConfig")}
    assert found["seed"].default == "0"
    assert found["episodes"].default == "null"
    assert "placements" in found["seed"].text
