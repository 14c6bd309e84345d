"""Reverse mode: adjoints of everything that an output depends on."""

from __future__ import annotations

from .differentiate import differentiate, gradient, pullback
from .result import DifferentiationResult, TensorMap

__all__ = ["DifferentiationResult", "TensorMap", "differentiate", "gradient", "pullback"]
