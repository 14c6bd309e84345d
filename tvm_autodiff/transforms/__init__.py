"""Derivatives of te tensors: reverse mode, forward mode, and the transforms built on them."""

from __future__ import annotations

from ..graph.kinds.checkpoints import Budget, Recursive
from ..graph.kinds.custom import Rule
from .checkpoint import checkpoint
from .custom_rules.custom import CustomFunction, custom_jvp, custom_vjp, with_rule
from .differentiate import differentiate, gradient, pullback
from .jvp import jvp
from .linear.jacobian import hessian, hvp, jacobian
from .linear.linear_operator import LinearOperator, linear_transpose, linearize
from .linear.sparse_jacobian import sparsity
from .loops.scan import scan
from .result import DifferentiationResult, TensorMap
from .stop_gradient import stop_gradient
from .vjp import vjp
from .vmap import vmap

__all__ = [
    "CustomFunction",
    "DifferentiationResult",
    "Rule",
    "TensorMap",
    "checkpoint",
    "custom_jvp",
    "custom_vjp",
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
    "scan",
    "Recursive",
    "Budget",
    "sparsity",
    "stop_gradient",
    "vjp",
    "vmap",
    "with_rule",
]
