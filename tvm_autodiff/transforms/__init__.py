"""Derivatives of te tensors: reverse and forward mode."""

from __future__ import annotations

from .checkpoint import checkpoint
from .differentiate import differentiate, gradient, pullback
from .jacobian import hessian, hvp, jacobian
from .jvp import jvp
from .linear_operator import LinearOperator, linear_transpose, linearize
from .result import DifferentiationResult, TensorMap
from .stop_gradient import stop_gradient
from .vjp import vjp
from .vmap import vmap

__all__ = [
    "DifferentiationResult",
    "TensorMap",
    "checkpoint",
    "differentiate",
    "gradient",
    "LinearOperator",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "linear_transpose",
    "linearize",
    "pullback",
    "stop_gradient",
    "vjp",
    "vmap",
]
