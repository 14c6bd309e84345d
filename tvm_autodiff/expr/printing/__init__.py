"""Expressions as text."""
