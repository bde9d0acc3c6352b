"""Somebody else's environments as scenes: one thin adapter per codebase, one scene around it."""
