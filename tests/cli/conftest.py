import os
from pathlib import Path
from typing import NamedTuple

import pytest

from robogen.cli.app import run


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def paragraph(self) -> str:
        """The message of a user's mistake: one line, no traceback, exit code 2."""
        assert self.code == 2, (self.code, self.out, self.err)
        assert "Traceback" not in self.err
        lines = [line for line in self.err.splitlines() if line.startswith("robogen: ")]
        assert len(lines) == 1, self.err
        return lines[0].removeprefix("robogen: ")


@pytest.fixture
def cli(tmp_path, monkeypatch, capfd):
    """Runs a command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.fspath(Path(__file__).parent))  # for workers
    monkeypatch.setenv("COLUMNS", "200")

    def call(line: str, *more: str) -> Result:
        capfd.readouterr()
        code = run([*line.split(), *more])
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return call


SMALL = "workers=0 slots=1 batch=1 videos=0 episodes=1 frames=0"


@pytest.fixture
def study(cli):
    """Runs a study of one short episode per condition."""

    def call(line: str, *more: str) -> Result:
        words = f"eval scene=pick scene.pick.horizon_s=0.4 {SMALL} out=run"
        given = {word.partition("=")[0] for word in line.split()}
        kept = [word for word in words.split() if word.partition("=")[0] not in given]
        return cli(" ".join(kept), *line.split(), *more)

    return call


@pytest.fixture
def bad_policy(tmp_path):
    """A configuration folder with the policy that misbehaves."""
    folder = tmp_path / "my" / "policies"
    folder.mkdir(parents=True)
    (folder / "bad.yaml").write_text("_target_: policies_for_tests.Misbehaving\nwhat: stay\n")
    return "--config-dir=my"
