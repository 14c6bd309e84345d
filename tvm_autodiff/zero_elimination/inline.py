"""Stages that only copy another: the stage between is taken out.

In: the expression that one gathered term leaves, reading the cotangent. Out: the cotangent itself
where it is read element by element, or the cotangent's own reduction moved to the elements that
are read. Both save a stage; the second also leaves out what nobody reads, such as the adjoint of a
padding's border. Forward stages that only copy are read through, for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ..calculus.reducers import classify
from ..ir.build import all_of, conjuncts, if_then_else, zero_like
from ..ir.nodes import (
    Expr,
    Tensor,
    is_const,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
)
from ..ir.rewrite import map_loads, substituter
from ..ir.simplify import Ranges, prove, simplify_indices
from ..ir.stage import (
    Axis,
    axis_range,
    bodies,
    is_compute,
    reduction_of,
    renew_axis,
    shape_of,
)
from .gather import Gathered, on_indices


def whole_tensor(source: Expr, axes: Sequence[Axis]) -> Tensor | None:
    """``dx[b] = dy[b] → dx = dy``: the tensor that an expression copies as it is, else None."""
    if not is_load(source):
        return None
    tensor, indices = load_tensor(source), operands(source)
    if len(indices) != len(axes) or not all(
        node_id(index) == node_id(axis.var) for index, axis in zip(indices, axes, strict=True)
    ):
        return None
    wanted = tuple(axis_range(axis)[1] for axis in axes)
    same = all(
        a == b if isinstance(a, int) and isinstance(b, int) else node_id(a) == node_id(b)
        for a, b in zip(shape_of(tensor), wanted, strict=True)
    )
    return tensor if same else None


def inline_tail_sum(source: Expr, axes: Sequence[Axis]) -> Gathered | None:
    """``dx[b] = if c(b) then dy[g(b)]  →  dx[b] = Σ_k if c(b) then f(g(b), k)``.

    Here dy[a] = Σ_k f(a, k). None where the source is something else, or where dx has more
    elements than dy.
    """
    guard: list[Expr] = []
    read = source
    if op_name(source) == "if_then_else":
        condition, read, otherwise = operands(source)
        if not is_const(otherwise, 0):
            return None
        guard = conjuncts(condition)
    if not is_load(read) or not is_compute(load_tensor(read).op):
        return None
    tensor = load_tensor(read)
    reduction = reduction_of(tensor.op)
    if reduction is None or reduction.init or len(reduction.sources) > 1:
        return None
    if classify(reduction.combiner, 0) != "sum" or not is_const(reduction.condition, 1):
        return None
    shape = shape_of(tensor)
    extents = [axis_range(axis)[1] for axis in axes]
    if not all(isinstance(n, int) for n in (*shape, *extents)) or prod(extents) > prod(shape):
        return None
    inner = [renew_axis(axis) for axis in reduction.axes]
    mapping = dict(zip((axis.var for axis in tensor.op.axis), operands(read), strict=True))
    mapping.update({old.var: new.var for old, new in zip(reduction.axes, inner, strict=True)})
    moved = substituter(mapping)(reduction.sources[0])
    ranges = {axis.var: axis_range(axis) for axis in (*axes, *inner)}
    return Gathered(tuple(inner), _guarded(simplify_indices(moved, ranges), guard, ranges))


def _guarded(source: Expr, guard: Sequence[Expr], ranges: Ranges) -> Expr:
    """The source under its own conditions and the guard's, without those that always hold."""
    conditions, value = list(guard), source
    if op_name(source) == "if_then_else":
        condition, then, otherwise = operands(source)
        if is_const(otherwise, 0) and on_indices(condition):
            conditions += conjuncts(condition)
            value = then
    kept = [c for c in conditions if not (on_indices(c) and prove(c, ranges))]
    return if_then_else(all_of(kept), value, zero_like(value)) if kept else value


def read_through_copies(expr: Expr, keep: Callable[[Tensor], bool] = lambda tensor: False) -> Expr:
    """``y[i, j] → x[j, i]`` where y's stage is ``y[a, b] = x[b, a]``: permuted or shifted copies.

    A padding by nothing, a transpose or a slice need not exist for its gradient's sake. Copies
    whose indices divide (reshapes) stay: divisions would come into every reader.
    Tensors that `keep` tells stay, too: those that somebody differentiates by.
    """

    def replace(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        result: Expr | None = None
        while not keep(tensor) and (body := _copied(tensor)) is not None:
            axes = (axis.var for axis in tensor.op.axis)
            result = substituter(dict(zip(axes, indices, strict=True)))(body)
            tensor, indices = load_tensor(result), operands(result)
        return result

    return map_loads(expr, replace)


def _copied(tensor: Tensor) -> Expr | None:
    """The read that a copying stage consists of, or None for any other stage."""
    if not is_compute(tensor.op) or tensor.op.num_outputs != 1:
        return None
    body = bodies(tensor.op)[0]
    if not is_load(body) or not all(_is_shift(index) for index in operands(body)):
        return None
    return body


def _is_shift(index: Expr) -> bool:
    """Whether an index is a variable or a literal, or the sum or difference of the two."""
    leaves = operands(index) if op_name(index) in ("add", "sub") else (index,)
    return all(op_name(leaf) in ("var", "const") for leaf in leaves)
