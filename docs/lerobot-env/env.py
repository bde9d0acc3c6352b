"""robogen's scenes for LeRobot's EnvHub: upload this file as it is, or change what it offers."""

from typing import Any

from robogen import lerobot_env


def make_env(n_envs: int = 1, use_async_envs: bool = False, cfg: Any = None) -> Any:
    """Vector environments by suite and task; what ``cfg`` says wins over the choice made here."""
    return lerobot_env.make_env(
        n_envs, use_async_envs, cfg, scene="pick", perturbation="nominal,camera_pose", severity=1.0
    )
