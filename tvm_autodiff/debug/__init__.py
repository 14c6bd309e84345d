"""Compiled functions that check the result of every stage."""

from __future__ import annotations

from .checked_function import CheckedFunction

__all__ = ["CheckedFunction"]
