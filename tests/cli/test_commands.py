import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from robogen.cli.listing import first_comment
from robogen.doctor import Check
from robogen.paths import config_root
from robogen.perturbations.library import available

# -- help ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--help"], ["eval", "--help"], ["train", "--help"]])
def test_help_imports_neither_torch_nor_mujoco(words):
    code = (
        "import sys\n"
        "from robogen.cli.app import run\n"
        f"code = run({words!r})\n"
        "heavy = {'torch', 'mujoco', 'hydra', 'numpy', 'scipy'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "heavy: []" in done.stdout


def test_help_of_eval_lists_every_key_with_its_docstring(cli):
    from robogen.study.config import StudyConfig

    out = cli("eval --help").out
    for name in StudyConfig.__dataclass_fields__:
        assert name == "items" or f"{name}=" in out
    assert "Matched episodes per condition" in out
    assert "perturbation=[camera_pose,friction]" in out


def test_version(cli):
    assert cli("--version").out.startswith("robogen ")


def test_every_command_has_help(cli):
    names = "eval report export list doctor preview collect train replay init"
    for name in names.split():
        result = cli(f"{name} --help")
        assert result.code == 0
        assert "Usage: robogen" in result.out


# -- list ------------------------------------------------------------------------------------------


def test_list_names_everything(cli):
    out = cli("list").out
    for name in available():
        assert name in out
    for name in ("pick", "push", "drawer", "bc", "oracle", "colosseum", "quick"):
        assert name in out


def test_list_shows_what_is_broken_and_the_rest(cli, tmp_path):
    folder = tmp_path / "my" / "scenes"
    folder.mkdir(parents=True)
    (folder / "odd.yaml").write_text("name: odd\n")
    result = cli("list scenes --config-dir my")
    assert result.code == 0
    assert "is not valid" in result.out
    assert "drawer" in result.out


def test_first_comment_is_one_sentence(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text("# Of Pumacay et al. (2024), in short.\n# More of it.\nkey: 1\n")
    assert first_comment(file) == "Of Pumacay et al. (2024), in short."
    file.write_text("key: 1\n")
    assert first_comment(file) == ""


# -- doctor ----------------------------------------------------------------------------------------


def test_doctor_says_what_is_broken(cli, monkeypatch):
    checks = [Check("graphics", "broken", "no offscreen OpenGL works"), Check("disk", "ok", "fine")]
    monkeypatch.setattr("robogen.doctor.examine", lambda: iter(checks))
    result = cli("doctor")
    assert result.code == 1
    assert "Broken: graphics." in result.out
    monkeypatch.setattr("robogen.doctor.examine", lambda: iter(checks[1:]))
    assert cli("doctor").code == 0


def test_doctor_survives_a_nonsense_backend(monkeypatch):
    from robogen import doctor

    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    [check] = doctor._chosen("egl")
    assert check.status == "broken"
    assert "set MUJOCO_GL=egl" in check.text
    [check] = doctor._chosen(None)
    assert check.status == "broken"
    assert "apt-get install" in check.text


def test_doctor_survives_a_crash():
    from robogen import doctor

    assert doctor._try("import os; os.abort()")[1] == "the process died of signal 6"
    assert doctor._try("raise ValueError('no')") == (None, "ValueError: no")
    assert doctor._try("print('noise'); print('[1, 2]')") == ([1, 2], "")


def test_doctor_imports_mujoco_in_other_processes_only():
    code = (
        "import os, sys\n"
        "os.environ['MUJOCO_GL'] = 'nonsense'\n"
        "from robogen import doctor\n"
        "checks = [*doctor._versions(), doctor._processor(), *doctor._chosen('egl')]\n"
        "checks += doctor._scenes('egl', ['push'])\n"
        "assert 'mujoco' not in sys.modules\n"
        "print([check.name for check in checks if check.status == 'broken'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # a scene cannot be drawn with the backend that was asked for
    assert done.stdout.strip() == "['graphics', 'scene push']"


def test_doctor_fingerprints_a_scene():
    from robogen import doctor

    [one] = doctor._scenes("egl", ["push"])
    [two] = doctor._scenes("egl", ["push"])
    assert one.status == "ok"
    assert one == two


def test_doctor_checks_versions_and_disk(tmp_path):
    from robogen import doctor

    assert all(check.status != "broken" for check in doctor._versions())
    assert doctor._writable(tmp_path).status == "ok"
    assert doctor._writable(tmp_path / "nowhere").status == "broken"
    assert doctor._processor().status == "ok"


# -- preview ---------------------------------------------------------------------------------------


def test_preview(cli, tmp_path):
    result = cli(
        "preview scene=push perturbation=[mass,camera_pose,instruction_paraphrase] "
        "severities=0.5,1 size=64 --out sheet.png"
    )
    assert result.code == 0, result.err
    assert "sheet.png" in result.out
    with Image.open(tmp_path / "sheet.png") as image:
        assert image.size[0] > 3 * 64
        assert len(image.convert("RGB").getcolors(1 << 20)) > 100


def test_preview_tells_what_shows_in_no_picture():
    from robogen.perturbations.library import load_factor
    from robogen.preview import PreviewSettings, contact_sheet
    from robogen.scenes.scene import load_tabletop

    scene = load_tabletop("drawer")
    before = scene.images([], "fast"), scene.world.state_hash()
    factors = [load_factor(name) for name in ("object_size", "mass", "table_color")]
    settings = PreviewSettings(severities=(1.0,), size=48)
    sheet = contact_sheet(scene, factors, settings)
    assert sheet.invisible == ("mass",)
    [note] = sheet.notes
    assert note.startswith("object_size does not apply")
    again = contact_sheet(scene, factors, settings)
    assert sheet.image.tobytes() == again.image.tobytes()
    assert before[1]
    scene.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("scene=pick perturbation=[camera_pos]", "Did you mean 'camera_pose'?"),
        ("scene=pick severities=[0.5,2]", "must lie in 0..1"),
        ("scene=pick siz=3", "Did you mean 'size'?"),
        ("scene=pick size=3", "size must lie in 32..480"),
        ("scene=drawer perturbation=object_size", "does not apply to scene 'drawer'"),
        ("scene=pick perturbation=[mass] policy.bc.execute=1", "needs policy=NAME"),
        ("pick", "expected key=value"),
    ],
)
def test_preview_mistakes(cli, words, said):
    assert said in cli(f"preview {words}").paragraph


# -- collect and train -----------------------------------------------------------------------------


def test_collect_then_train(cli, tmp_path):
    words = "scene=push out=demos image_size=48 noise_share=0 factors=[mass]"
    result = cli(f"collect {words} episodes=2")
    assert result.code == 0, result.err
    assert "2 demonstrations written to demos" in result.out
    assert (
        "0 demonstrations written to demos, 2 were there" in cli(f"collect {words} episodes=2").out
    )
    assert "LeRobotDataset v3.0" in result.out
    assert (tmp_path / "demos" / "meta" / "info.json").is_file()
    older = cli(f"collect {words} episodes=2 format=lerobot-v2.1 codec=png")
    assert "0 demonstrations written to demos, 2 were there" in older.out
    assert (tmp_path / "demos" / "meta" / "episodes.jsonl").is_file()
    alone = cli(f"collect {words.replace('demos', 'alone')} episodes=1 format=episodes")
    assert alone.code == 0, alone.err
    assert "LeRobotDataset" not in alone.out
    assert sorted(path.name for path in (tmp_path / "alone").iterdir()) == [
        "episode_000000.npz",
        "meta.json",
    ]
    train = "train data=demos out=push.safetensors batch=4 hidden=16 report_every=2"
    result = cli(f"{train} steps=4")
    assert result.code == 0, result.err
    assert (tmp_path / "push.safetensors").is_file()
    assert "resume=false" in cli(f"{train} steps=6").paragraph
    assert cli(f"{train} steps=2 resume=false").code == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("collect scene=pick", "needs out=..."),
        ("collect scene=pick out=x episodes=0", "episodes must be at least 1"),
        ("collect scene=pick out=x episodes=2.5", "episodes must be a whole number"),
        ("collect scene=pick out=x render=pretty", "render must be one of fast, nice"),
        ("collect scene=pick out=x factors=[mas]", "Did you mean 'mass'?"),
        ("collect scene=pick out=x perturbation.mass.max_factor=2", "factors=[] does not name"),
        ("collect scene=pick out=x format=lerobot-v1", "format must be one of lerobot,"),
        ("collect scene=pick out=x codec=gif", "codec must be one of h264"),
        ("collect scene=pick out=x codec=h264 format=episodes", "has no effect"),
        ("collect scene=pick out=x image_size=95", "codec=png"),
        ("train out=x", "needs data=..."),
        ("train data=nowhere out=x", "nowhere"),
        ("train data=a out=x stepz=3", "Did you mean 'steps'?"),
        ("train data=a out=x steps=many", "steps must be a whole number, got 'many'"),
        ("train data=a out=x channels=[1.5]", "channels must be a list [...] of whole numbers"),
    ],
)
def test_collect_and_train_mistakes(cli, line, said):
    assert said in cli(line).paragraph


# -- init ------------------------------------------------------------------------------------------

BODY = '<mujoco><worldbody><body name="thing">{}</body></worldbody></mujoco>'
CYLINDER = BODY.format('<geom type="cylinder" size="0.02 0.04"/>')
BOX = BODY.format('<geom type="box" size="0.02 0.05 0.015"/>')
MUG = BODY.format(
    '<geom type="cylinder" size="0.03 0.035" pos="0 0 .035" mass="0.15"/>'
    '<geom type="capsule" fromto="0.03 0 0.02 0.048 0 0.02" size="0.004"/>'
    '<geom type="capsule" fromto="0.048 0 0.02 0.048 0 0.05" size="0.004"/>'
)
TALL = BODY.format('<geom type="cylinder" size="0.025 0.07" mass="0.2"/>')


@pytest.mark.parametrize(
    "model", [CYLINDER, BOX, MUG, TALL], ids=["cylinder", "box", "mug", "tall"]
)
def test_init_scene_makes_a_scene_its_oracle_solves(cli, tmp_path, model):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "thing.xml").write_text(model)
    result = cli("init scene my_thing models/thing.xml --config-dir my")
    assert result.code == 0, result.err
    proof = next(line for line in result.out.splitlines() if "robogen eval" in line)
    words = proof.split()[1:]
    assert "scene=my_thing" in words
    words = [word for word in words if not word.startswith("episodes=")]
    more = "episodes=2 workers=0 slots=1 batch=1 videos=0 frames=0 out=run"
    result = cli(" ".join([*words, *more.split()]))
    assert result.code == 0, result.err
    from robogen.records import read_records

    assert all(record.success for record in read_records(tmp_path / "run"))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("<mujoco><worldbody/></mujoco>", "exactly one named body directly in worldbody, got none"),
        (
            '<mujoco><worldbody><body name="a"><geom size=".02"/></body><body name="b">'
            '<geom size=".02"/></body></worldbody></mujoco>',
            "got a, b",
        ),
        (BODY.format('<geom type="box" size="0.06 0.05 0.02"/>'), "too wide for the gripper"),
        (BODY.format('<geom type="box" size="0.02 0.1 0.02"/>'), "too long for the tray"),
        (BODY.format('<geom type="box" size="0.02 0.02 0.002"/>'), "its height must lie in"),
        (BODY.format('<geom size="0.02" contype="0" conaffinity="0"/>'), "collides"),
        (BODY.format('<site name="s"/>'), "has no geoms"),
        (BODY.format('<freejoint/><geom size="0.02"/>'), "has a free joint already"),
        (BODY.format('<geom size="0.02" pos="0 0.03 0"/>'), 'pos="-0.0000 -0.0300 0"'),
        (BODY.format('<geom size="0.03" density="90000"/>'), "weighs"),
        ("<mujoco><worldbody>", "MuJoCo cannot read"),
    ],
)
def test_init_scene_refuses_what_cannot_work(cli, tmp_path, model, said):
    (tmp_path / "thing.xml").write_text(model)
    assert said in cli("init scene thing thing.xml --config-dir my").paragraph
    assert not (tmp_path / "my" / "scenes" / "thing.yaml").exists()


def test_init_scene_names(cli, tmp_path):
    (tmp_path / "thing.xml").write_text(CYLINDER)
    assert "shipped scene" in cli("init scene pick thing.xml").paragraph
    assert "small letters" in cli("init scene My-Thing thing.xml").paragraph
    assert "no file" in cli("init scene thing other.xml").paragraph
    assert cli("init scene thing thing.xml --config-dir my").code == 0
    assert "exists" in cli("init scene thing thing.xml --config-dir my").paragraph
    assert cli("init scene thing thing.xml --config-dir my --force").code == 0


def test_templates_and_data_are_where_the_wheel_takes_them_from():
    setup = (config_root() / "setup.py").read_text()
    import robogen

    for file in (Path(robogen.__file__).parent).rglob("templates/*"):
        assert f'"**/*{file.suffix}"' in setup, file
