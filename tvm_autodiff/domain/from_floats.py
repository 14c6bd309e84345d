"""Rewrites indices computed in floating point as integer divisions.

Resizing computes indices such as ``int32(floor(0.5*float32(i) + 1e-5))``; the solver needs ``i //
2``. The division is found from the values at every point of the axis and equals the index at each
of them, so it is exact. An index without such a division is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd

import ml_dtypes
import numpy as np

from ..expr.build import add, cast, const, mul
from ..expr.dtypes import integer_range
from ..expr.nodes import (
    Expr,
    Var,
    binary,
    const_value,
    dtype_of,
    is_float,
    is_integer,
    node_id,
    op_name,
    operands,
)
from ..expr.rewrite import postorder, rewrite, variables_of

#: the maximum number of points of an axis that are tried
_MOST_POINTS = 1 << 16
#: the largest divisor that is tried
_MOST_DIVISOR = 64

Values = np.ndarray

#: dtype → the numpy type that its values are rounded to
_FLOATS: dict[str, type] = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
}

#: operator → its values in numpy
_VALUES: dict[str, Callable[..., Values]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.minimum,
    "max": np.maximum,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "nearbyint": np.rint,
    "round": np.rint,  # ties to even, as on llvm
}


def without_floats(expr: Expr, ranges: Mapping[Var, tuple[object, object]]) -> Expr:
    """``int32(floor(0.5*float32(i) + 1e-5)) → i // 2`` for each such part of an index.

    Parameters
    ----------
    expr : Expr
        An integer expression.
    ranges : mapping from Var to (minimum, extent)
        Ranges of variables. Parts that depend on one variable with a constant range are tried.

    Examples
    --------
    >>> from tvm import te, tirx
    >>> i = te.var("i")
    >>> without_floats(tirx.Cast("int32", te.floor(i.astype("float32") * 0.75)), {i: (0, 9)})
    i * 3 // 4
    """

    def visit(node: Expr) -> Expr | None:
        if op_name(node) != "cast" or not is_integer(node) or not is_float(operands(node)[0]):
            return None
        variables = variables_of(node)
        if len(variables) != 1 or not is_integer(variables[0]):
            return None
        [var] = variables
        low, extent = ranges.get(var, (None, None))
        if not isinstance(low, int) or not isinstance(extent, int):
            return None
        return _as_division(node, var, low, extent)

    return rewrite(expr, visit)


def _as_division(node: Expr, var: Var, low: int, extent: int) -> Expr | None:
    if not 1 <= extent <= _MOST_POINTS:
        return None
    points = np.arange(low, low + extent, dtype=np.int64)
    exact = _evaluate(node, var, points, rounds=False)
    rounded = _evaluate(node, var, points, rounds=True)
    # a compiler may or may not round intermediate results: both must give the same index
    if exact is None or rounded is None or not np.array_equal(exact, rounded):
        return None
    found = _division(points, exact)
    if found is None:
        return None
    factor, offset, divisor = found
    dtype = dtype_of(node)
    position = var if dtype_of(var) == dtype else cast(dtype, var)
    numerator = add(mul(position, const(factor, dtype)), const(offset, dtype))
    return numerator if divisor == 1 else binary("floordiv", numerator, const(divisor, dtype))


def _evaluate(node: Expr, var: Var, points: Values, rounds: bool) -> Values | None:
    """The values of an index at the points, with every float in float64 or rounded to its dtype.

    None if an operator is unknown, a value is not finite, or an integer does not fit its dtype.
    """
    values: dict[int, Values] = {}
    for part in postorder(node):
        name, parts = op_name(part), [values[node_id(p)] for p in operands(part)]
        if node_id(part) == node_id(var):
            value = points
        elif name == "const":
            value = np.asarray(const_value(part))
        elif name == "cast":
            [value] = parts
            value = _truncated(value) if is_integer(part) else value
        elif name in _VALUES:
            with np.errstate(all="ignore"):
                value = _VALUES[name](*parts)
        else:
            return None
        if is_float(part):
            value = np.asarray(value).astype(
                _FLOATS.get(dtype_of(part), np.float64) if rounds else np.float64
            )
            if not np.isfinite(value).all():
                return None
        elif is_integer(part):
            least, most = integer_range(dtype_of(part))
            if (value < least).any() or (value > most).any():
                return None
        values[node_id(part)] = value
    return values[node_id(node)]


def _truncated(values: Values) -> Values:
    whole = np.trunc(np.asarray(values).astype(np.float64))
    return np.clip(whole, -(2.0**62), 2.0**62).astype(np.int64)


def _division(points: Values, values: Values) -> tuple[int, int, int] | None:
    """``(a, c, m)`` with the smallest m such that ``values == (a*points + c) // m``, or None."""
    span = int(points[-1] - points[0])
    rise = int(values[-1] - values[0])
    for divisor in range(1, _MOST_DIVISOR + 1):
        # the slope a/m misses rise/span by less than 1/span
        least = -(-(rise - 1) * divisor // max(span, 1))
        most = (rise + 1) * divisor // max(span, 1)
        for factor in range(least, most + 1):
            if gcd(factor, divisor) != 1:
                continue
            offsets = divisor * values - factor * points
            low, high = int(offsets.max()), int(offsets.min()) + divisor - 1
            if low <= high:
                return factor, min(max(0, low), high), divisor
    return None
