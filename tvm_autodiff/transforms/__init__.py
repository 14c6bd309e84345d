"""Reverse mode: adjoints of everything that outputs depend on."""

from __future__ import annotations

from .differentiate import differentiate, gradient, pullback
from .result import DifferentiationResult, TensorMap
from .stop_gradient import stop_gradient
from .vjp import vjp

__all__ = [
    "DifferentiationResult",
    "TensorMap",
    "differentiate",
    "gradient",
    "pullback",
    "stop_gradient",
    "vjp",
]
