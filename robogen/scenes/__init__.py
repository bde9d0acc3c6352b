"""Scenes: declarative worlds with a robot, objects, cameras, a task and an oracle."""
