"""Transforms of Python functions: from functions of te tensors to functions of arrays.

The names are those of JAX. `tvm_autodiff.jvp` and others of the package transform te tensors; given
a function as the first argument they are the ones here.
"""

from .array_function import ArrayFunction
from .batching import vmap
from .forward import hvp, jvp, linearize
from .jacobians import hessian, jacfwd, jacrev
from .jit import jit
from .reverse import grad, value_and_grad, vjp

__all__ = [
    "ArrayFunction",
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "linearize",
    "value_and_grad",
    "vjp",
    "vmap",
]
