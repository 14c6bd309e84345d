"""Derivatives of te tensors: reverse and forward mode."""

from __future__ import annotations

from .differentiate import differentiate, gradient, pullback
from .jvp import jvp
from .result import DifferentiationResult, TensorMap
from .stop_gradient import stop_gradient
from .vjp import vjp
from .vmap import vmap

__all__ = [
    "DifferentiationResult",
    "TensorMap",
    "differentiate",
    "gradient",
    "jvp",
    "pullback",
    "stop_gradient",
    "vjp",
    "vmap",
]
