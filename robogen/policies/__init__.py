"""Policies: the interface the harness talks to, and one module per kind."""
