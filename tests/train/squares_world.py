"""A world of one frame: two coloured squares, an instruction that names one, where to go."""

import numpy as np

from robogen.datasets import DemoEpisode, DemoMeta, DemoWriter, EpisodeInfo
from robogen.specs import ActionSpec, CameraSpec

SIZE = 32
SIDE = 6
COLOURS = {"red": (220, 40, 40), "green": (40, 200, 60)}
WORDINGS = {"train": ("push the {} block", "move to the {} one"), "eval": ("go to {}",)}


def draw_squares(rng):
    """A frame with one square per colour, and their positions in [-1, 1]."""
    corners = rng.integers(0, SIZE - SIDE, size=(2, 2))
    while np.abs(corners[0] - corners[1]).max() < SIDE:
        corners = rng.integers(0, SIZE - SIDE, size=(2, 2))
    frame = np.full((SIZE, SIZE, 3), 120, np.uint8)
    for (row, column), colour in zip(corners, COLOURS.values(), strict=True):
        frame[row : row + SIDE, column : column + SIDE] = colour
    return frame, 2.0 * corners / (SIZE - SIDE) - 1.0


def squares_meta(**changes):
    values = {
        "scene": "squares",
        "cameras": (CameraSpec(name="front", width=SIZE, height=SIZE),),
        "state": {"eef_pos": 3, "gripper_opening": 1},
        "action": ActionSpec(),
        "points": tuple(COLOURS),
    }
    return DemoMeta(**{**values, **changes})


def squares_episode(index, *, length=1, success=True):
    """The expert moves towards the named square, and closes when that is in the upper half."""
    rng = np.random.default_rng(index)
    frame, positions = draw_squares(rng)
    target = index % 2
    words = WORDINGS["train"][int(rng.integers(2))]
    action = np.zeros((length, 7), np.float32)
    action[:, :2] = positions[target]
    action[:, 6] = 1.0 if positions[target][0] < 0.0 else -1.0
    points = np.zeros((2, 3), np.float32)
    points[:, :2] = 0.1 * positions
    return DemoEpisode(
        images={"front": np.repeat(frame[None], length, axis=0)},
        state=rng.normal(size=(length, 4)).astype(np.float32),
        action=action,
        points=np.repeat(points[None], length, axis=0),
        info=EpisodeInfo(
            index=index,
            instruction=words.format(tuple(COLOURS)[target]),
            length=length,
            success=success,
        ),
    )


def write_squares(folder, indices, *, length=1, **changes):
    writer = DemoWriter(folder, squares_meta(**changes))
    for index in indices:
        writer.write(squares_episode(index, length=length))
    return folder
