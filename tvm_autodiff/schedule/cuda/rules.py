"""The rules for CUDA, in the order in which they are asked."""

from __future__ import annotations

from ..rule import Rule
from .fallback import fallback
from .verify import verified

_RULES: tuple[Rule, ...] = ()

CUDA_RULES: tuple[Rule, ...] = (*map(verified, _RULES), fallback)
