"""Expressions and graphs of tensors evaluated in numpy: what the library's results must equal.

In: expressions in the vocabulary of `ir.nodes`, values of variables (numbers or arrays that
broadcast), arrays of tensors. Out: arrays. TVM computes nothing here. A read outside of its
tensor gives NaN (in integers a number far outside), so that it is harmless behind a guard and
poison in a result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tvm_autodiff.ir.graph import topological
from tvm_autodiff.ir.nodes import (
    Expr,
    Tensor,
    Var,
    const_value,
    dtype_of,
    load_tensor,
    node_id,
    op_name,
    operands,
)
from tvm_autodiff.ir.rewrite import expand_lets, postorder
from tvm_autodiff.ir.scan_kernel import Scan, scan_of
from tvm_autodiff.ir.stage import (
    Axis,
    Operation,
    Reduction,
    axis_vars,
    bodies,
    is_compute,
    is_placeholder,
    outputs_of,
    reduction_of,
    tensor_key,
)

Array = Any
_FAR = -(2**30)  # an index that is outside of every tensor


def _truncdiv(a: Array, b: Array) -> Array:
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


#: name of an operator → its function of arrays
FUNCTIONS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "fma": lambda a, b, c: a * b + c,
    "truncdiv": _truncdiv,
    "truncmod": np.fmod,
    "fmod": np.fmod,
    "floordiv": np.floor_divide,
    "floormod": np.mod,
    "min": lambda a, b: np.where(a < b, a, b),
    "max": lambda a, b: np.where(a > b, a, b),
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "select": np.where,
    "if_then_else": np.where,
    "likely": lambda x: x,
    "abs": np.abs,
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "ldexp": lambda x, n: x * np.exp2(n),
    "hypot": np.hypot,
    "power": np.power,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,  # ties to even, as on llvm
    "nearbyint": np.rint,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}


def numpy_dtype(dtype: str) -> np.dtype:
    """The dtype of numpy, bfloat16 included."""
    if dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)


def evaluate(
    expr: Expr,
    variables: Mapping[Var, Any] | None = None,
    tensors: Mapping[Tensor, Array] | Iterable[tuple[Tensor, Array]] = (),
) -> Array:
    """The value of an expression without reductions.

    Parameters
    ----------
    variables : mapping
        Numbers, or arrays that broadcast with each other; the result has their common shape.
    tensors : mapping or pairs
        The arrays that reads are taken from.

    Examples
    --------
    >>> from tvm import te
    >>> i, A = te.var("i"), te.placeholder((3,), name="A")
    >>> body = te.if_then_else(i < 3, A[i] * 2.0, 0.0)
    >>> evaluate(body, {i: np.arange(4)}, {A: np.ones(3, "float32")})
    array([2., 2., 2., 0.], dtype=float32)
    """
    pairs = tensors.items() if isinstance(tensors, Mapping) else tensors
    known = {tensor_key(tensor): np.asarray(array) for tensor, array in pairs}
    return _evaluate(expr, {node_id(var): value for var, value in (variables or {}).items()}, known)


def _evaluate(
    expr: Expr, variables: Mapping[int, Any], tensors: Mapping[tuple[int, int], Array]
) -> Array:
    values: dict[int, Array] = {}
    expr = expand_lets(expr)
    with np.errstate(all="ignore"):
        for node in postorder(expr):
            name, parts = op_name(node), [values[node_id(part)] for part in operands(node)]
            dtype = numpy_dtype(dtype_of(node))
            if name == "const":
                value = np.asarray(const_value(node), dtype)
            elif name == "var":
                value = np.asarray(variables[node_id(node)], dtype)
            elif name == "load":
                value = _read(tensors[tensor_key(load_tensor(node))], parts)
            elif name == "cast":
                value = parts[0]
            elif name == "reinterpret":
                value = parts[0].view(dtype)
            else:
                value = FUNCTIONS[name](*parts)
            values[node_id(node)] = np.asarray(value).astype(dtype, copy=False)
    return values[node_id(expr)]


def _read(array: Array, indices: list[Array]) -> Array:
    """Elements of an array; poison for those outside of it."""
    if not indices:
        return array[()]
    indices = list(np.broadcast_arrays(*indices))
    inside = np.ones(indices[0].shape, bool)
    clipped = []
    for index, extent in zip(indices, array.shape, strict=True):
        inside &= (index >= 0) & (index < extent)
        clipped.append(np.clip(index, 0, max(extent - 1, 0)))
    if array.size == 0:
        return np.full(inside.shape, np.nan if array.dtype.kind == "f" else _FAR)
    poison = {"b": False, "i": _FAR, "u": 0}.get(array.dtype.kind, np.nan)
    return np.where(inside, array[tuple(clipped)], np.asarray(poison).astype(array.dtype))


def evaluate_graph(
    outputs: Iterable[Tensor],
    inputs: Mapping[Tensor, Array] | Iterable[tuple[Tensor, Array]],
    scalars: Mapping[Var, Any] | None = None,
) -> list[Array]:
    """The values of tensors, every stage they need computed in numpy, reductions point by point.

    Parameters
    ----------
    outputs : iterable of Tensor
        Tensors that `te.compute` stages and scans of this library lead to.
    inputs : mapping or pairs
        Arrays of placeholders; a stage that is given is not computed.
    scalars : mapping, optional
        Values of free variables, symbolic extents included.

    Examples
    --------
    >>> from tvm import te
    >>> A, k = te.placeholder((2, 3), name="A"), te.reduce_axis((0, 3), "k")
    >>> B = te.compute((2,), lambda i: te.sum(A[i, k], axis=k), name="B")
    >>> evaluate_graph([B], {A: np.arange(6.0).reshape(2, 3)})
    [array([ 3., 12.], dtype=float32)]
    """
    outputs = list(outputs)
    pairs = list(inputs.items() if isinstance(inputs, Mapping) else inputs)
    known = {
        tensor_key(tensor): np.asarray(array).astype(numpy_dtype(dtype_of(tensor)), copy=False)
        for tensor, array in pairs
    }
    free = {node_id(var): value for var, value in (scalars or {}).items()}
    for op in topological(outputs):
        targets = [tensor_key(tensor) for tensor in outputs_of(op)]
        if all(key in known for key in targets):
            continue
        scan = scan_of(op)
        if scan is not None:
            known.update(zip(targets, _scan(scan, free, known), strict=True))
            continue
        if is_placeholder(op) or not is_compute(op):
            raise ValueError(f"no value was given for {op.name}")
        known.update(zip(targets, _stage(op, free, known), strict=True))
    return [known[tensor_key(tensor)] for tensor in outputs]


def _stage(
    op: Operation, free: Mapping[int, Any], tensors: Mapping[tuple[int, int], Array]
) -> list[Array]:
    shape = tuple(int(_evaluate(dim, free, {})) for dim in op.output(0).shape)
    grid = np.indices(shape, sparse=True) if shape else ()
    variables = {**free, **dict(zip(map(node_id, axis_vars(op)), grid, strict=True))}
    reduction = reduction_of(op)
    if reduction is None:
        values = [_evaluate(body, variables, tensors) for body in bodies(op)]
    else:
        values = _reduce(reduction, shape, variables, tensors)
    return [np.broadcast_to(value, shape).copy() for value in values]


def _scan(
    scan: Scan, free: Mapping[int, Any], tensors: Mapping[tuple[int, int], Array]
) -> list[Array]:
    """The states before each element, all rows at a time."""
    recurrence = scan.recurrence
    extents = [*scan.rows, *scan.scanned]
    shape = tuple(n if isinstance(n, int) else int(_evaluate(n, free, {})) for n in extents)
    rows = shape[: len(scan.rows)]
    elements = [np.broadcast_to(tensors[tensor_key(tensor)], shape) for tensor in scan.elements]
    results = [np.empty(shape, numpy_dtype(dtype_of(var))) for var in recurrence.state]
    states = [np.broadcast_to(_evaluate(start, free, {}), rows) for start in recurrence.start]
    formal = [node_id(var) for var in (*recurrence.state, *recurrence.element)]
    places = list(np.ndindex(*shape[len(rows) :]))
    for place in reversed(places) if scan.backward else places:
        for result, state in zip(results, states, strict=True):
            result[(..., *place)] = state
        here = [element[(..., *place)] for element in elements]
        known = {**free, **dict(zip(formal, (*states, *here), strict=True))}
        states = [_evaluate(step, known, {}) for step in recurrence.step]
    return results


def _reduce(
    reduction: Reduction,
    shape: tuple[int, ...],
    variables: Mapping[int, Any],
    tensors: Mapping[tuple[int, int], Array],
) -> list[Array]:
    """``combined = combine(combined, source)`` for every point of the reduce axes, in order."""
    combiner = reduction.combiner
    starts = [_evaluate(value, variables, tensors) for value in reduction.init or combiner.identity]
    combined = [np.broadcast_to(start, shape) for start in starts]
    formal = [node_id(var) for var in (*combiner.lhs, *combiner.rhs)]
    for here, inside in _points(reduction.axes, variables, tensors):
        holds = inside & _evaluate(reduction.condition, here, tensors)
        sources = [_evaluate(source, here, tensors) for source in reduction.sources]
        both = dict(zip(formal, (*combined, *sources), strict=True))
        results = [_evaluate(result, both, {}) for result in combiner.result]
        combined = [np.where(holds, new, old) for new, old in zip(results, combined, strict=True)]
    return combined


def _points(
    axes: Iterable[Axis],
    variables: Mapping[int, Any],
    tensors: Mapping[tuple[int, int], Array],
) -> Iterator[tuple[Mapping[int, Any], Array]]:
    """Values of reduce axes in order, and the elements of the output for which they count.

    A range that depends on other axes is a box around its values, of which some count.
    """
    axes = list(axes)
    if not axes:
        yield variables, np.asarray(True)
        return
    first, *others = axes
    low = _evaluate(first.dom.min, variables, tensors)
    high = low + _evaluate(first.dom.extent, variables, tensors)
    for place in range(int(np.min(low)), int(np.max(high))):
        here = {**variables, node_id(first.var): place}
        for point, inside in _points(others, here, tensors):
            yield point, inside & (low <= place) & (place < high)
