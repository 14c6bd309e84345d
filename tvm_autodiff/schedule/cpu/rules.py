"""The rules for CPUs, in the order in which they are asked."""

from __future__ import annotations

from ..rule import Rule
from .contraction import contraction
from .elementwise import elementwise
from .fallback import fallback
from .reduction import reduction

CPU_RULES: tuple[Rule, ...] = (elementwise, contraction, reduction, fallback)
