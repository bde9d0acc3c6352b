import pytest
from squares_world import write_squares

from robogen.train import BCRecipe


@pytest.fixture(scope="session")
def squares(tmp_path_factory):
    """A few frames: enough to exercise the machinery, not to learn from."""
    return write_squares(tmp_path_factory.mktemp("data") / "few", range(10), length=3)


@pytest.fixture
def small():
    """A recipe that takes milliseconds."""

    def make(**changes):
        values = {
            "steps": 6, "batch": 4, "warmup": 2, "save_every": 2, "report_every": 2,
            "channels": (8, 8), "kernels": (8, 4), "strides": (4, 2), "camera_features": 8,
            "text_features": 8, "hidden": 16, "validation": 0.2,
        }  # fmt: skip
        return BCRecipe.from_mapping({**values, **changes})

    return make
