"""Rewrites of loops over time."""
