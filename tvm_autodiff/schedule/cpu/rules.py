"""The rules for CPUs, in the order in which they are asked."""

from __future__ import annotations

from ..rule import Rule
from .fallback import fallback

CPU_RULES: tuple[Rule, ...] = (fallback,)
