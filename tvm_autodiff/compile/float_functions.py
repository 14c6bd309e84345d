"""Refuses functions of real numbers of integers, for which TVM has no code on any target."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidArgumentError
from ..expr.nodes import Tensor, dtype_of, is_integer, op_name
from ..expr.rewrite import preorder
from ..graph.graph import topological
from ..graph.stage import bodies, is_compute

_NAMES = frozenset(
    ("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "power", "sigmoid")
    + ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "erf", "hypot")
    + ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
)


def refuse_functions_of_integers(outputs: Sequence[Tensor]) -> None:
    """Check that no stage calls a function like ``exp`` with an integer.

    Raises
    ------
    InvalidArgumentError
        If one does.

    Examples
    --------
    >>> from tvm import te
    >>> n = te.placeholder((3,), "int32", name="n")
    >>> y = te.compute((3,), lambda i: te.exp(n[i]), name="y")
    >>> refuse_functions_of_integers([y])
    Traceback (most recent call last):
    ...
    tvm_autodiff.errors.InvalidArgumentError: stage y calls exp with an int32: cast the argument \
first: .astype("float32")
    """
    for op in topological(outputs):
        for node in preorder(bodies(op)) if is_compute(op) else ():
            if op_name(node) in _NAMES and is_integer(node):
                raise InvalidArgumentError(
                    f"stage {op.name} calls {op_name(node)} with an {dtype_of(node)}: cast the "
                    'argument first: .astype("float32")'
                )
