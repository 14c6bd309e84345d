"""A gradient compiler for Apache TVM's tensor expressions.

It takes a computation written in `tvm.te`, returns its derivatives as tensor expressions, and
compiles both to fast kernels. Importing the package loads TVM and numpy, and no other framework.
"""

from __future__ import annotations

from . import domain
from .check import check_grads
from .compile import Tuning, build, clear_cache, load, lower
from .cost import Cost, estimate_cost
from .drawing import Drawing, draw_domain, draw_graph
from .errors import (
    AutodiffError,
    AutodiffWarning,
    CallError,
    DenseSumWarning,
    GradientCheckError,
    InvalidArgumentError,
    LargeIdentityWarning,
    LoweringError,
    MissingFrameworkError,
    NonFiniteError,
    NotDifferentiableError,
    OutOfBoundsError,
    PlainScheduleWarning,
    UnknownKeywordError,
    UnknownTensorError,
    UnrelatedInputWarning,
    UnsolvableError,
)
from .functions import ArrayFunction, grad, jacfwd, jacrev, jit, value_and_grad
from .functions.overloads import hessian, hvp, jvp, linearize, vjp, vmap
from .operators import scatter_add, segment_sum
from .partition import build_vjp
from .register import register_rule
from .show import show
from .sparse import Pattern, SparseMatrix
from .transforms import (
    Budget,
    CustomFunction,
    DifferentiationResult,
    LinearOperator,
    Recursive,
    Rule,
    checkpoint,
    custom_jvp,
    custom_vjp,
    differentiate,
    gradient,
    jacobian,
    linear_transpose,
    pullback,
    scan,
    sparsity,
    stop_gradient,
    with_rule,
)
from .zero_elimination import (
    inline_tensors,
    lift_nonzeroness_condition,
    merge_equal_stages,
    remove_unused_dims,
    simplify_reductions,
)

__version__ = "0.1.0"

__all__ = [
    "differentiate",
    "gradient",
    "pullback",
    "vjp",
    "jvp",
    "linearize",
    "LinearOperator",
    "linear_transpose",
    "jacobian",
    "hessian",
    "hvp",
    "sparsity",
    "Pattern",
    "SparseMatrix",
    "vmap",
    "jit",
    "grad",
    "value_and_grad",
    "jacfwd",
    "jacrev",
    "ArrayFunction",
    "scan",
    "Recursive",
    "Budget",
    "stop_gradient",
    "checkpoint",
    "custom_vjp",
    "custom_jvp",
    "with_rule",
    "Rule",
    "CustomFunction",
    "register_rule",
    "DifferentiationResult",
    "build",
    "build_vjp",
    "lower",
    "load",
    "clear_cache",
    "Tuning",
    "show",
    "draw_graph",
    "draw_domain",
    "Drawing",
    "estimate_cost",
    "Cost",
    "check_grads",
    "scatter_add",
    "segment_sum",
    "lift_nonzeroness_condition",
    "simplify_reductions",
    "inline_tensors",
    "remove_unused_dims",
    "merge_equal_stages",
    "domain",
    "AutodiffError",
    "NotDifferentiableError",
    "InvalidArgumentError",
    "UnsolvableError",
    "UnknownKeywordError",
    "UnknownTensorError",
    "LoweringError",
    "MissingFrameworkError",
    "OutOfBoundsError",
    "CallError",
    "GradientCheckError",
    "NonFiniteError",
    "AutodiffWarning",
    "DenseSumWarning",
    "LargeIdentityWarning",
    "PlainScheduleWarning",
    "UnrelatedInputWarning",
    "__version__",
]
