import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robogen.cli.sweep import jobs
from robogen.errors import ConfigError
from robogen.records import read_manifest, read_records

HERE = Path(__file__).parent


def test_study_from_words_to_report(study, tmp_path):
    result = study("policy=oracle perturbation=[mass] scene.pick.horizon_s=8 videos=1")
    assert result.code == 0, result.err
    assert "oracle on pick" in result.out
    assert "mass" in result.out
    run = tmp_path / "run"
    assert "run/report.html" in result.out
    assert (run / "report.html").is_file()
    assert {record.condition for record in read_records(run)} == {"nominal", "mass"}
    assert read_manifest(run)["command"].startswith("robogen eval scene=pick")
    [film] = (run / "videos" / "pick" / "oracle").glob("*.mp4")
    assert film.name == "nominal_0_success.mp4"
    again = study("policy=oracle perturbation=[mass] scene.pick.horizon_s=8 videos=1")
    assert again.code == 0
    assert "2 of 2 episodes are already there" in again.err


def test_dry_run_runs_nothing(study, tmp_path):
    line = "policy=zero perturbation=[camera_pose,mass] severity=0.5 episodes=3 --dry-run"
    result = study(line)
    assert result.code == 0, result.err
    assert not (tmp_path / "run").exists()
    assert "camera moved up to 5.0 cm" in result.out
    assert "9 episodes, 0 of them already in run" in result.out
    assert "About" in result.out
    assert "MB of disk" in result.out


def test_dry_run_counts_what_is_there_and_names_what_is_skipped(cli, study):
    assert study("policy=zero perturbation=[mass]").code == 0
    result = study("policy=zero perturbation=[mass] --dry-run")
    assert "2 episodes, 2 of them already in run" in result.out
    other = study("policy=zero perturbation=[mass] seed=3 --dry-run")
    assert "holds another study" in other.out
    result = cli("eval scene=drawer policy=zero suite=all out=other --dry-run")
    assert "Skipped on drawer: object_size:" in result.out


def test_behaviour_table(study):
    result = study("policy=zero perturbation=[mass] episodes=2 --behaviour")
    assert "change of behaviour" in result.out


def test_interrupted_study_resumes(tmp_path):
    words = (
        "eval scene=pick scene.pick.horizon_s=0.5 policy=bad policy.bad.what=slow suite=null "
        "workers=1 slots=1 batch=1 videos=0 frames=0 episodes=6 out=run --config-dir my"
    )
    folder = tmp_path / "my" / "policies"
    folder.mkdir(parents=True)
    (folder / "bad.yaml").write_text("_target_: policies_for_tests.Misbehaving\n")
    environment = {**os.environ, "PYTHONPATH": os.fspath(HERE)}
    command = [sys.executable, "-c", "from robogen.cli import main; main()", *words.split()]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # a test run in the background has Ctrl-C ignored, and children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.1)
        if (tmp_path / "run" / "records.sqlite").exists() and len(read_records_or_none(tmp_path)):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err)
    assert b"The same command resumes." in err
    saved = len(read_records(tmp_path / "run"))
    assert 0 < saved < 6
    assert f"{saved} of 6 episodes are saved in run".encode() in err
    # resumed in one process: the number of workers is no part of the study
    command = [word.replace("workers=1", "workers=0") for word in command]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(read_records(tmp_path / "run")) == 6


def read_records_or_none(folder):
    try:
        return read_records(folder / "run")
    except Exception:  # the file is being made right now
        return ()


# -- datasets --------------------------------------------------------------------------------------


def test_episodes_become_a_dataset(study, cli, tmp_path):
    result = study("policy=zero suite=null record_dataset=set")
    assert result.code == 0, result.err
    assert "1 episodes recorded, 0 were there" in result.out
    assert (tmp_path / "set" / "meta" / "episodes").is_dir()
    again = cli("export run --dataset set --format v2.1 --codec png --workers 0")
    assert "0 episodes recorded, 1 were there" in again.out
    assert (tmp_path / "set" / "meta" / "episodes.jsonl").is_file()
    assert not (tmp_path / "run" / "episodes.parquet").exists()
    assert "Did you mean 'v3.0'" in cli("export run --dataset set --format v3").paragraph


def test_a_folder_of_somebody_else_is_refused_before_the_study(study, tmp_path):
    (tmp_path / "theirs" / "videos").mkdir(parents=True)
    assert "already holds videos" in study("policy=zero record_dataset=theirs").paragraph
    assert not (tmp_path / "run").exists()


def test_each_job_of_a_sweep_has_its_own_dataset(study, tmp_path):
    result = study("policy=zero suite=null seed=0,1 out=sweep record_dataset=sets --multirun")
    assert result.code == 0, result.err
    assert sorted(path.name for path in (tmp_path / "sets").iterdir()) == ["seed=0", "seed=1"]


# -- sweeps ----------------------------------------------------------------------------------------


def test_sweep_is_every_combination():
    found = jobs(["scene=pick,push", "policy=oracle", "severity=0.5,1", "perturbation=[a,b]"])
    assert [job.words for job in found] == [
        (f"scene={scene}", "policy=oracle", f"severity={severity}", "perturbation=[a,b]")
        for scene in ("pick", "push")
        for severity in ("0.5", "1")
    ]
    assert found[0].swept == ("scene=pick", "severity=0.5")


def test_sweep_over_one_items_parameter():
    found = jobs(["scene=pick", "perturbation.camera_pose.severity=0.25,0.5"])
    assert [job.swept for job in found] == [
        ("perturbation.camera_pose.severity=0.25",),
        ("perturbation.camera_pose.severity=0.5",),
    ]


def test_sweep_of_nothing():
    with pytest.raises(ConfigError, match="no setting has several values"):
        jobs(["scene=pick", "perturbation=[a,b]"])


def test_multirun_gives_each_job_its_own_study(study, tmp_path):
    result = study("policy=zero suite=null seed=0,1 out=sweep --multirun")
    assert result.code == 0, result.err
    hashes = {read_records(tmp_path / "sweep" / f"seed={seed}").study_hash for seed in (0, 1)}
    assert len(hashes) == 2
    assert not (tmp_path / "outputs").exists()
    assert not (tmp_path / "multirun").exists()


# -- reports ---------------------------------------------------------------------------------------


def test_report_and_export_of_two_runs(cli, study, tmp_path):
    import pyarrow.parquet as pq

    assert study("policy=zero perturbation=[mass] out=one").code == 0
    assert study("policy=random perturbation=[mass] out=two").code == 0
    (tmp_path / "one" / "report.html").unlink()
    assert cli("report one").code == 0
    assert (tmp_path / "one" / "report.html").is_file()
    both = cli("report one two --out both")
    assert both.code == 0
    assert "zero on pick" in both.out
    assert "random on pick" in both.out
    data = json.loads((tmp_path / "both" / "report.json").read_text())
    assert len(data["studies"]) == 2
    result = cli("export one table.parquet")
    assert "2 episodes: table.parquet" in result.out
    assert "draw.mass.mass_ratio" in pq.read_table(tmp_path / "table.parquet").column_names
    assert cli("export one").code == 0
    assert (tmp_path / "one" / "episodes.parquet").is_file()
