from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from small_world import FACTS, make_world, model_bytes

from robogen.mj.world import World
from robogen.specs import SceneFacts


@pytest.fixture(scope="session")
def facts() -> SceneFacts:
    return FACTS


@pytest.fixture(scope="module")
def shared_world() -> Iterator[World]:
    world = make_world()
    yield world
    world.close()


@pytest.fixture
def world(shared_world: World) -> Iterator[World]:
    """The shared world, nominal before and after."""
    before = model_bytes(shared_world)
    yield shared_world
    shared_world.edit.restore()
    assert model_bytes(shared_world) == before


@pytest.fixture(scope="session")
def write_factor(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], str]:
    def write(name: str, text: str) -> str:
        folder = tmp_path_factory.mktemp("config") / "perturbations"
        folder.mkdir()
        (folder / f"{name}.yaml").write_text(text)
        return str(folder.parent)

    return write
