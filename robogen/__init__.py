"""robogen: evaluate robot manipulation policies in simulation, factor by factor.

The names below are the whole Python surface. Each is loaded when first used, so that importing this
package opens no graphics, reads no file and takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robogen.api import Study as Study
    from robogen.api import evaluate as evaluate
    from robogen.api import open_study as open_study
    from robogen.errors import ConfigError as ConfigError
    from robogen.errors import FactorError as FactorError
    from robogen.errors import GraphicsError as GraphicsError
    from robogen.errors import PolicyError as PolicyError
    from robogen.errors import RecordsError as RecordsError
    from robogen.errors import RobogenError as RobogenError
    from robogen.errors import SceneError as SceneError
    from robogen.errors import SpecError as SpecError
    from robogen.gym_env import SceneEnv as SceneEnv
    from robogen.gym_env import make as make
    from robogen.gym_env import register_envs as register_envs
    from robogen.perturbations.base import Factor as Factor
    from robogen.perturbations.engine import Perturbation as Perturbation
    from robogen.policies.base import Policy as Policy
    from robogen.records.schema import EpisodeRecord as EpisodeRecord
    from robogen.scenes.adapters.scene import AdaptedScene as AdaptedScene
    from robogen.scenes.adapters.wrapping import wrap as wrap
    from robogen.scenes.base import Scene as Scene
    from robogen.scenes.scene import TabletopScene as TabletopScene
    from robogen.specs import ActionSpec as ActionSpec
    from robogen.specs import CameraSpec as CameraSpec
    from robogen.specs import Observation as Observation
    from robogen.specs import ObservationSpec as ObservationSpec
    from robogen.specs import PolicySpec as PolicySpec
    from robogen.specs import SceneSpec as SceneSpec

_HOMES = {
    "robogen.api": ("Study", "evaluate", "open_study"),
    "robogen.errors": (
        "ConfigError",
        "FactorError",
        "GraphicsError",
        "PolicyError",
        "RecordsError",
        "RobogenError",
        "SceneError",
        "SpecError",
    ),
    "robogen.gym_env": ("SceneEnv", "make", "register_envs"),
    "robogen.perturbations.base": ("Factor",),
    "robogen.perturbations.engine": ("Perturbation",),
    "robogen.policies.base": ("Policy",),
    "robogen.records.schema": ("EpisodeRecord",),
    "robogen.scenes.adapters.scene": ("AdaptedScene",),
    "robogen.scenes.adapters.wrapping": ("wrap",),
    "robogen.scenes.base": ("Scene",),
    "robogen.scenes.scene": ("TabletopScene",),
    "robogen.specs": (
        "ActionSpec",
        "CameraSpec",
        "Observation",
        "ObservationSpec",
        "PolicySpec",
        "SceneSpec",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [*sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'robogen' has no attribute '{name}'")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
