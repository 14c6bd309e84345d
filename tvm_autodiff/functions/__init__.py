"""Transforms of Python functions: they turn functions of te tensors into functions of arrays.

The names are those of JAX. `tvm_autodiff.jvp` and others at top level transform te tensors; with a
function as the first argument, they are the transforms of this package.
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
