"""Registers every scene with Gymnasium when it is imported.

``gymnasium.make("robogen.envs:robogen/pick-v0")`` imports it by itself.
"""

from robogen.gym_env import register_envs

register_envs()
