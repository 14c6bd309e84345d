"""Builds that check what every stage computes."""

from __future__ import annotations

from .checked_function import CheckedFunction

__all__ = ["CheckedFunction"]
