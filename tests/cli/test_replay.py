import sqlite3

import imageio_ffmpeg
import numpy as np
import pytest

from robogen.cli.app import run as robogen
from robogen.errors import ConfigError
from robogen.replay import parse_key


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A study of the oracle with a factor of every phase, and a factor of the user's own."""
    folder = tmp_path_factory.mktemp("replay")
    own = folder / "my" / "perturbations"
    own.mkdir(parents=True)
    (own / "my_mass.yaml").write_text(
        "_target_: robogen.perturbations.body.Mass\nrole: manipulated\n"
        "lightest_ratio: 0.5\nheaviest_ratio: 2.0\n"
    )
    names = "camera_pose,object_size,object_position,image_noise,control_latency,my_mass"
    words = (
        f"eval scene=pick policy=oracle perturbation=[{names}] episodes=1 workers=0 slots=1 "
        f"batch=1 videos=4 out={folder / 'run'} --config-dir {folder / 'my'}"
    )
    assert robogen(words.split()) == 0
    return folder / "run"


CONDITIONS = (
    "nominal",
    "camera_pose",
    "object_size",
    "object_position",
    "image_noise",
    "control_latency",
    "my_mass",
)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_replay_is_identical(cli, run, condition):
    result = cli(f"replay {run} pick/oracle/{condition}/0")
    assert result.code == 0, result.out
    assert "identical" in result.out


def test_replay_by_options_with_video(cli, run, tmp_path):
    line = f"replay {run} --scene pick --policy oracle --condition image_noise --episode 0"
    result = cli(f"{line} --video out/e.mp4")
    assert result.code == 0, result.err
    reader = imageio_ffmpeg.read_frames(str(tmp_path / "out" / "e.mp4"))
    facts = next(reader)
    reader.close()
    assert facts["size"] == (512, 288)
    assert facts["codec"] == "h264"
    assert facts["pix_fmt"].startswith("yuv420p")
    assert facts["fps"] == 10
    assert list((tmp_path / "out").iterdir()) == [tmp_path / "out" / "e.mp4"]


def test_study_videos_start_with_the_nominal_episode(run):
    names = sorted(file.name for file in (run / "videos" / "pick" / "oracle").iterdir())
    assert len(names) == 4
    assert "nominal_0_success.mp4" in names


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("steps = steps + 1", "steps: was"),
        ("state_hash = 'other'", "initial state: was other"),
        ("success = 0, success_step = NULL", "success: was False, is True"),
    ],
)
def test_replay_tells_what_differs(cli, run, tmp_path, change, said):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    connection = sqlite3.connect(copy / "records.sqlite")
    connection.execute(f"UPDATE episodes SET {change} WHERE condition = 'nominal'")
    connection.commit()
    connection.close()
    result = cli(f"replay {copy} pick/oracle/nominal/0")
    assert result.code == 1
    assert "differs" in result.out
    assert said in result.out


def test_replay_refuses_a_changed_factor(cli, run):
    file = run.parent / "my" / "perturbations" / "my_mass.yaml"
    before = file.read_text()
    file.write_text(before.replace("2.0", "2.5"))
    try:
        text = cli(f"replay {run} pick/oracle/my_mass/0").paragraph
    finally:
        file.write_text(before)
    assert text.startswith("factor 'my_mass' changed since the episode was recorded")


def test_replay_refuses_a_changed_scene(cli, run, tmp_path):
    import shutil

    from robogen.paths import config_root

    folder = tmp_path / "other" / "scenes"
    folder.mkdir(parents=True)
    shutil.copy(config_root() / "scenes" / "pick.yaml", folder / "pick.yaml")
    text = (folder / "pick.yaml").read_text()
    (folder / "pick.yaml").write_text(text.replace("horizon_s: 8.0", "horizon_s: 7.0"))
    result = cli(f"replay {run} pick/oracle/nominal/0 --config-dir other")
    assert result.paragraph.startswith("scene 'pick' changed since the episode was recorded")


def test_replay_of_what_is_not_there(cli, run):
    assert "has no episode 9" in cli(f"replay {run} pick/oracle/nominal/9").paragraph
    assert "expected scene/policy" in cli(f"replay {run} pick/oracle").paragraph
    assert "--policy, --episode missing" in cli(f"replay {run} --scene pick").paragraph


def test_keys():
    assert tuple(parse_key("pick/bc/a+b@0.5/7")) == ("pick", "bc", "a+b@0.5", 7, 0)
    assert tuple(parse_key("pick/bc/nominal/7/1")) == ("pick", "bc", "nominal", 7, 1)
    assert tuple(parse_key("libero/10_3/bc/mass/7")) == ("libero/10_3", "bc", "mass", 7, 0)
    assert tuple(parse_key("libero/10_3/bc/mass/7/2")) == ("libero/10_3", "bc", "mass", 7, 2)
    for wrong in ("pick/bc/nominal", "pick/bc/nominal/x", "a/b/c/1/2/3"):
        with pytest.raises(ConfigError, match="expected scene/policy/condition/episode"):
            parse_key(wrong)


def test_films_show_what_the_policy_sees():
    """The rerun's frames are the policy's own, sensing factors included."""
    from robogen.perturbations.engine import Perturbation
    from robogen.perturbations.library import load_factor
    from robogen.rollout.rerun import rerun
    from robogen.scenes.scene import load_tabletop
    from robogen.seeding import EpisodeSeed
    from robogen.specs import ActionSpec, CameraSpec

    scene = load_tabletop("push")
    seed = EpisodeSeed(domain="evaluate", study=0, scene="push", episode=0)
    camera = CameraSpec(name="front", width=48, height=48)
    frames = {}
    for name in (None, "image_blur"):
        factors = [] if name is None else [(load_factor(name), 1.0)]
        seen = []
        rerun(
            scene,
            Perturbation(factors),
            seed,
            np.zeros((2, 7)),
            action=ActionSpec(),
            cameras=[camera],
            watch=lambda moment, seen=seen: seen.append(moment.images["front"]),
        )
        frames[name] = seen
    assert len(frames[None]) == 3
    sharp, soft = (np.abs(np.diff(frames[name][0].astype(float), axis=1)).mean() for name in frames)
    assert soft < 0.8 * sharp
    scene.close()
