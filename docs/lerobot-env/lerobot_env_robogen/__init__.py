"""``lerobot-eval --env.type=robogen``: robogen's scenes on LeRobot's command line."""

from dataclasses import dataclass
from typing import Any

import gymnasium
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.envs.configs import EnvConfig

from robogen.lerobot_env import features, make_env

GYM_ID = "robogen-lerobot/Scene-v0"
gymnasium.register(GYM_ID, entry_point="robogen.lerobot_env:LeRobotEnv", order_enforce=False)


@EnvConfig.register_subclass("robogen")
@dataclass
class RobogenEnv(EnvConfig):
    """Settings of :func:`robogen.lerobot_env.make_env` as options of LeRobot's commands."""

    task: str | None = "pick"  # scenes, with commas
    perturbation: str = "nominal"  # conditions, with commas
    severity: float = 1.0
    split: str = "eval"
    seed: int = 0  # of the study
    image_size: int = 96
    cameras: list[str] | None = None  # all that the scenes offer
    state: list[str] | None = None  # end effector and gripper
    fps: int = 10

    def __post_init__(self) -> None:
        """Tell LeRobot what a policy reads and writes here."""
        seen = {"image_size": self.image_size, "cameras": self.cameras, "state": self.state}
        for name, feature in features(str(self.task), **seen).items():
            kind = FeatureType[feature.kind]
            self.features[name] = PolicyFeature(type=kind, shape=feature.shape)
            self.features_map[name] = feature.key

    def create_envs(self, n_envs: int, use_async_envs: bool = False) -> dict[str, dict[int, Any]]:
        """What LeRobot 0.6 and newer runs."""
        return make_env(n_envs, use_async_envs, self)

    @property
    def gym_id(self) -> str:
        """What older LeRobots make instead: one scene under one condition."""
        return GYM_ID

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        """Arguments that go with ``gym_id``."""
        names = ("perturbation", "severity", "split", "seed", "image_size", "cameras", "state")
        return {"scene": self.task, **{name: getattr(self, name) for name in names}}
