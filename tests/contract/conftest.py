from __future__ import annotations

from collections.abc import Iterator

import pytest
from contract_world import SCENES, model_digest, scene_named


@pytest.fixture(autouse=True)
def scenes_stay_nominal(request: pytest.FixtureRequest) -> Iterator[None]:
    """No law leaves a mark on the scenes that the next one uses."""
    yield
    named = getattr(getattr(request.node, "callspec", None), "params", {}).values()
    for name in [scene for scene in SCENES if scene in named] or SCENES:
        scene = scene_named(name)
        scene.world.edit.restore()
        scene.rebuild(None)
        assert model_digest(scene.world.model) == model_digest(scene.world.edit.nominal)


@pytest.fixture(scope="session", autouse=True)
def scenes_are_closed() -> Iterator[None]:
    yield
    for name in SCENES:
        scene_named(name).close()
    scene_named.cache_clear()
