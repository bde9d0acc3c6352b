"""Factors of variation: what they draw, and how a draw is applied."""
