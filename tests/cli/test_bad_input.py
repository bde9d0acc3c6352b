"""Each mistake of the list: one exact paragraph, no traceback, and the right exit code."""

import pickle
import sqlite3

import pytest

import robogen.records.store as store_module
from robogen.cli.app import run
from robogen.cli.evaluate import ERRORED
from robogen.paths import config_root
from robogen.records import RecordStore, read_records

# -- names -----------------------------------------------------------------------------------------


def test_unknown_scene_offers_the_nearest(study):
    text = study("scene=pikc policy=zero suite=null").paragraph
    # the override of scene.pick.horizon_s is refused first: it names what the study does not use
    assert "pick" in text


def test_unknown_scene(cli):
    text = cli("eval scene=pikc policy=zero").paragraph
    assert text.startswith("Unknown scene 'pikc'. Did you mean 'pick'?")
    assert "--config-dir" in text


def test_unknown_policy(study):
    text = study("policy=orakle suite=null").paragraph
    assert text.startswith("Unknown policy 'orakle'. Did you mean 'oracle'?")


def test_unknown_factor(study):
    text = study("policy=zero perturbation=[camera_poes]").paragraph
    assert text.startswith("Unknown factor 'camera_poes'. Did you mean 'camera_pose'?")


def test_unknown_suite(study):
    text = study("policy=zero suite=colloseum").paragraph
    assert text.startswith("Unknown suite 'colloseum'. Did you mean 'colosseum'?")


def test_unknown_key(study):
    text = study("policy=zero suite=null episode=3").paragraph
    assert text.startswith("Unknown key 'episode'. Did you mean 'episodes'?")


def test_unknown_option(cli):
    text = cli("eval scene=pick --dryrun").paragraph
    assert text.startswith("Unknown option '--dryrun'. Did you mean '--dry-run'?")


def test_unknown_command(cli):
    result = cli("evall scene=pick")
    assert result.code == 2
    assert "eval" in result.err


def test_misspelt_parameter_in_a_factor_yaml(study, tmp_path):
    folder = tmp_path / "my" / "perturbations"
    folder.mkdir(parents=True)
    (folder / "far_camera.yaml").write_text(
        "_target_: robogen.perturbations.camera.CameraPose\n"
        "max_ofset_m: 0.3\nmax_rotation_deg: 1.0\n"
    )
    text = study("policy=zero perturbation=[far_camera]", "--config-dir=my").paragraph
    assert "'max_ofset_m'. Did you mean 'max_offset_m'?" in text
    assert "far_camera.yaml" in text


def test_misspelt_parameter_in_a_scene_yaml(cli, tmp_path):
    folder = tmp_path / "my" / "scenes"
    folder.mkdir(parents=True)
    text = (config_root() / "scenes" / "push.yaml").read_text()
    (folder / "shove.yaml").write_text(text.replace("horizon_s:", "horizn_s:"))
    message = cli("eval scene=shove policy=zero --config-dir my").paragraph
    assert "unknown key 'horizn_s' (did you mean 'horizon_s'?)" in message
    assert "shove.yaml" in message


def test_misspelt_parameter_in_a_policy_yaml(study, tmp_path):
    folder = tmp_path / "my" / "policies"
    folder.mkdir(parents=True)
    (folder / "still.yaml").write_text("_target_: robogen.policies.zero.ZeroPolicy\ngriper: 1\n")
    text = study("policy=still suite=null", "--config-dir=my").paragraph
    assert "'griper'. Did you mean 'gripper'?" in text
    assert "still.yaml" in text


def test_policy_yaml_that_names_no_policy(study, tmp_path):
    folder = tmp_path / "my" / "policies"
    folder.mkdir(parents=True)
    (folder / "wrong.yaml").write_text("_target_: policies_for_tests.NotAPolicy\n")
    text = study("policy=wrong suite=null", "--config-dir=my").paragraph
    assert "NotAPolicy" in text


def test_missing_config_dir(study):
    text = study("policy=zero suite=null", "--config-dir=nowhere").paragraph
    assert text.startswith("Folder 'nowhere' does not exist.")


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("severity", ["1.5", "-0.1", "nan"])
def test_severity_outside_its_range(study, severity):
    text = study(f"policy=zero perturbation=[light_intensity] severity={severity}").paragraph
    assert "must lie in 0..1" in text


def test_severity_of_one_factor_outside_its_range(study):
    line = "policy=zero perturbation=[mass] perturbation.mass.severity=2"
    text = study(line).paragraph
    assert "Severity of 'mass' must lie in 0..1" in text


def test_severity_that_is_no_number(study):
    text = study("policy=zero perturbation=[mass] severity=strong").paragraph
    assert "severity" in text
    assert "strong" in text


@pytest.mark.parametrize("episodes", ["0", "-3", "many"])
def test_no_episodes(study, episodes):
    text = study(f"policy=zero suite=null episodes={episodes}").paragraph
    assert "episodes" in text
    assert episodes in text


def test_duplicate_factor(study):
    text = study("policy=zero perturbation=[mass,mass]").paragraph
    assert text.startswith("perturbation names 'mass' twice")


def test_factor_that_does_not_apply(cli):
    text = cli("eval scene=drawer policy=zero perturbation=[object_size] episodes=1").paragraph
    assert text.startswith("Factor 'object_size' does not apply to scene 'drawer':")


def test_two_files_of_one_factor(study, tmp_path):
    folder = tmp_path / "my" / "perturbations"
    folder.mkdir(parents=True)
    (folder / "mass.yaml").write_text("_target_: robogen.perturbations.body.Mass\n")
    text = study("policy=zero perturbation=[mass]", "--config-dir=my").paragraph
    assert text.startswith("Two files define factor 'mass':")


# -- policies --------------------------------------------------------------------------------------


def test_policy_that_does_not_fit(study, bad_policy):
    text = study("policy=bad policy.bad.what=camera suite=null", bad_policy).paragraph
    assert "camera 'left' is not in the scene (it has front, wrist)" in text
    text = study("policy=bad policy.bad.what=rate suite=null", bad_policy).paragraph
    assert "control rate 25 Hz differs from the scene's 10 Hz" in text


def test_parameter_that_is_not_finite(study, bad_policy):
    text = study("policy=bad policy.bad.what=nan suite=null", bad_policy).paragraph
    assert text.startswith("The value of 'policy.bad.what=nan' must be finite")


def test_missing_checkpoint(study):
    text = study("policy=bc policy.bc.checkpoint=nope.safetensors suite=null").paragraph
    assert "has no checkpoint at" in text
    assert "robogen train" in text


def test_truncated_checkpoint(study, tmp_path):
    whole = (config_root() / "policies" / "bc" / "pick.safetensors").read_bytes()
    (tmp_path / "half.safetensors").write_bytes(whole[: len(whole) // 2])
    text = study("policy=bc policy.bc.checkpoint=half.safetensors suite=null").paragraph
    assert "half.safetensors" in text


def test_pickle_is_not_loaded(study, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    (tmp_path / "model.pt").write_bytes(pickle.dumps(Bomb()))
    text = study("policy=bc policy.bc.checkpoint=model.pt suite=null").paragraph
    assert "model.pt" in text
    assert "safetensors" in text
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("not_a_number", "NaN or infinite at step 0"),
        ("infinite", "NaN or infinite at step 0"),
        ("shape", "actions of shape (1, 6) where its spec promises (1, 7)"),
        ("raise", "the network is on fire"),
    ],
)
def test_policy_that_breaks_its_contract(study, bad_policy, tmp_path, what, said):
    result = study(f"policy=bad policy.bad.what={what} suite=null", bad_policy)
    assert result.code == ERRORED
    [record] = read_records(tmp_path / "run")
    assert record.status == "errored"
    assert record.success is None
    assert said in record.error
    assert said in result.out  # the reason is printed, not only stored
    assert "Traceback" not in result.err


def test_policy_that_hangs(study, bad_policy, tmp_path):
    line = "policy=bad policy.bad.what=hang suite=null workers=1 deadline_s=1"
    result = study(line, bad_policy)
    assert result.code == ERRORED
    [record] = read_records(tmp_path / "run")
    assert record.error_kind == "hang"
    assert "deadline_s" in result.out


def test_loading_a_policy_is_no_hang(study, bad_policy, tmp_path):
    """It may take minutes; the deadline is for episodes."""
    line = "policy=bad policy.bad.what=slow_to_load suite=null workers=1 deadline_s=1"
    assert study(line, bad_policy).code == 0
    [record] = read_records(tmp_path / "run")
    assert record.status == "scored"


# -- run folders -----------------------------------------------------------------------------------


def test_unwritable_run_folder(study, tmp_path):
    (tmp_path / "file").write_text("")
    text = study("policy=zero suite=null out=file/run").paragraph
    assert text.startswith("Cannot write to the run folder file/run")


def test_full_disk(study, monkeypatch):
    prepare = store_module._prepare

    def prepare_small(connection, file, study_hash):
        prepare(connection, file, study_hash)
        [pages] = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count={pages}")

    monkeypatch.setattr(store_module, "_prepare", prepare_small)
    # several episodes, since the first ones fit into the pages that there are
    text = study("policy=zero perturbation=[mass,friction] episodes=8").paragraph
    assert "is full" in text
    assert "same command" in text


def test_folder_of_another_study(study):
    assert study("policy=zero suite=null").code == 0
    text = study("policy=zero suite=null seed=1").paragraph
    assert text.startswith("run holds another study")


def test_second_writer(study, tmp_path):
    with RecordStore.create_or_open(tmp_path / "run", study_hash="x"):
        text = study("policy=zero suite=null").paragraph
    assert text.startswith("Another process is writing to run")


def test_damaged_records(study, cli, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "records.sqlite").write_bytes(b"this is not a database" * 100)
    assert "is damaged" in study("policy=zero suite=null").paragraph
    assert "is damaged" in cli("report run").paragraph


def test_foreign_database(study, tmp_path):
    (tmp_path / "run").mkdir()
    connection = sqlite3.connect(tmp_path / "run" / "records.sqlite")
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    assert "not robogen's records" in study("policy=zero suite=null").paragraph


@pytest.mark.parametrize("command", ["report", "export", "replay"])
def test_no_run_folder(cli, command):
    more = " pick/zero/nominal/0" if command == "replay" else ""
    assert cli(f"{command} nowhere{more}").paragraph.startswith("There is no run folder nowhere.")


# -- the machine -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["eval", "preview", "collect out=demos", "list factors"])
def test_nonsense_graphics_backend(cli, monkeypatch, command):
    monkeypatch.setenv("MUJOCO_GL", "eglx")
    text = cli(command).paragraph
    assert text.startswith("MUJOCO_GL is 'eglx', which is no offscreen OpenGL backend.")
    assert "Did you mean 'egl'?" in text


def test_bugs_keep_their_traceback(cli, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("robogen.study.design.resolve", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run(["eval", "scene=pick", "policy=zero"])
