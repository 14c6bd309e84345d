"""Windows of nearly equal lengths, as windows of one length.

An adaptive pool of 30 places into 7 reduces five or six at a time. Loops of one length are taken in
vectors, and so are those of the derivatives. Elements behind the end of a shorter window add
nothing to a sum; a maximum takes the last element again instead. Sums that move another place by
each of their axes are taken along one axis after the other, and so goes the adjoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ..expr.build import add, all_of, compare, const, if_then_else, sub
from ..expr.integers.tried_values import literal_box, tried_bounds
from ..expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    always,
    binary,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    operands,
)
from ..expr.rewrite import contains_load, depends_on, expand_lets, substituter
from ..graph.stage import (
    Operation,
    Reduction,
    axis_range,
    axis_vars,
    bounds_of,
    data_axis,
    is_compute,
    reduce_axis,
    reduction_of,
    reduction_stage,
    renewed,
    renewed_reduction,
    shape_of,
)
from .reductions.reducers import classify

#: reducers to which an identity adds nothing, and those that may take an element twice
_SUMS, _EXTREMES = frozenset(("sum", "product")), frozenset(("max", "min", "selection"))

_MOST_STEPS = 2  #: of a loop of one length, for one step of the shortest window


def equal_windows(op: Operation, reorder: bool = True) -> list[Tensor] | None:
    """``y[i] = Σ_{a < n(i)} x[p(i) + a]  →  Σ_{a < max n} if a < n(i) then x[p(i) + a] else 0``

    Parameters
    ----------
    op : Operation
    reorder : bool, optional
        Whether sums may be taken in another order: along one axis after the other.

    Returns
    -------
    list of Tensor or None
        Equal outputs; None if no bound varies along the output, if one is data, or if windows
        differ by more than a factor of two.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import show
    >>> x = te.placeholder((12,), name="x")
    >>> def window(i):
    ...     a = te.reduce_axis((0, 2 + i % 2), "a")
    ...     return te.sum(x[i * 2 + a], axis=a)
    >>> print(show(equal_windows(te.compute((5,), window, name="y").op)[0]))
    inputs  x: float32[12]
    y[i] = Σ_{a<3} if a < 2 + i%2 then x[i*2 + a] else 0.0  float32[5]
    """
    reduction = reduction_of(op) if is_compute(op) else None
    if reduction is None or reduction.init or not always(reduction.condition):
        return None
    kinds = {classify(reduction.combiner, n) for n in range(len(reduction.sources))}
    lengths = _lengths(op, reduction) if kinds <= _SUMS or kinds <= _EXTREMES else None
    if lengths is None:
        return None
    one_sum = len(reduction.sources) == 1 and kinds == {"sum"}
    parts = _along_one_axis(op, reduction, lengths) if reorder and one_sum else None
    return _of_one_length(op, reduction, lengths, kinds <= _SUMS) if parts is None else parts


def _lengths(op: Operation, reduction: Reduction) -> list[int] | None:
    """The greatest extent of each reduce axis; None if none varies, or if one varies too much."""
    box = literal_box({axis.var: axis_range(axis) for axis in op.axis})
    bounds = [bound for axis in reduction.axes for bound in bounds_of(axis)]
    if not depends_on(bounds, axis_vars(op)) or contains_load(bounds):
        return None
    found = []
    for axis in reduction.axes:
        tried = tried_bounds(bounds_of(axis)[1], box)
        if tried is None or tried[0] < 1 or tried[1] > _MOST_STEPS * tried[0]:
            return None
        found.append(tried[1])
    return found


def _of_one_length(
    op: Operation, reduction: Reduction, lengths: Sequence[int], of_sums: bool
) -> list[Tensor]:
    spatial, table = renewed(op.axis)
    rename = substituter(table)
    axes: list[Axis] = []
    conditions: list[Expr] = []
    for old, length in zip(reduction.axes, lengths, strict=True):
        low, extent = map(rename, bounds_of(old))
        axis = reduce_axis(old.var.name, length, dtype=dtype_of(old.var))
        axes.append(axis)
        step: Expr = axis.var
        if not isinstance(axis_range(old)[1], int):
            if of_sums:
                conditions.append(compare("lt", step, extent))
            else:
                step = binary("min", step, sub(extent, const(1, dtype_of(extent))))
        table[old.var] = add(low, step)
    sources = list(map(substituter(table), reduction.sources))
    if conditions:
        pairs = zip(sources, reduction.combiner.identity, strict=True)
        sources = [if_then_else(all_of(conditions), value, neutral) for value, neutral in pairs]
    made = replace(reduction, sources=tuple(sources), axes=tuple(axes))
    return reduction_stage(op.name, spatial, made)


def _along_one_axis(
    op: Operation, reduction: Reduction, lengths: Sequence[int]
) -> list[Tensor] | None:
    """``y[i, j] = Σ_{a, b} x[p(i) + a, q(j) + b]  →  t[i, m] = Σ_a x[p(i) + a, m], y[i, j] =
    Σ_b t[i, q(j) + b]`` where that takes fewer steps.
    """
    read = expand_lets(reduction.sources[0])
    if len(reduction.axes) < 2 or not is_load(read):
        return None
    for axis, length in zip(reduction.axes, lengths, strict=True):
        rest = tuple(other for other in reduction.axes if other is not axis)
        places = _places(op, axis, [other.var for other in rest], read)
        if places is None:
            continue
        axes, inner, outer = places
        results = _count(op.axis)
        if _count(axes) * length + results * prod(lengths) // length >= results * prod(lengths):
            continue
        fresh, table = renewed(axes)
        own = replace(reduction, axes=(axis,), sources=(load(load_tensor(read), inner),))
        name = f"{op.name}_{axis.var.name}"
        part = reduction_stage(name, fresh, renewed_reduction(own, table))[0]
        [part] = equal_windows(part.op) or [part]
        left = replace(reduction, axes=rest, sources=(load(part, outer),))
        whole = reduction_stage(op.name, list(op.axis), renewed_reduction(left, {}))
        return equal_windows(whole[0].op) or whole
    return None


def _places(
    op: Operation, axis: Axis, others: Sequence[Var], read: Expr
) -> tuple[list[Axis], list[Expr], list[Expr]] | None:
    """The axes of the sums along one axis, the indices of what these read, and those of what the
    others sum; None if one place is moved by both.
    """
    found: dict[int, tuple[Axis, Expr]] = {}
    inner = []

    def add_axes(nodes: Sequence[Expr]) -> None:
        for one in op.axis:
            if depends_on(nodes, [one.var]):
                found.setdefault(node_id(one.var), (one, one.var))

    for index, extent in zip(operands(read), shape_of(load_tensor(read)), strict=True):
        if not depends_on(index, others):
            add_axes([index])
            inner.append(index)
        elif depends_on(index, [axis.var]) or contains_load(index):
            return None
        else:
            place = data_axis(f"q{len(inner)}", extent, dtype_of(index))
            found[node_id(place.var)] = place, index
            inner.append(place.var)
    add_axes(bounds_of(axis))
    if not depends_on(inner, [axis.var]) or not found:
        return None
    axes, outer = zip(*found.values(), strict=True)
    return list(axes), inner, list(outer)


def _count(axes: Sequence[Axis]) -> int:
    """The points of axes; sizes that are not known count once, in a part and in the whole."""
    extents = [axis_range(axis)[1] for axis in axes]
    return prod(extent for extent in extents if isinstance(extent, int))
