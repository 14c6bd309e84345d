"""Rewrites sizes that are only defined by expressions in an input's shape, in terms of the
dimension, and gives equal extents the same expression.

``x: (2*p + 1,) → x: (d,)`` with ``(d - 1)//2`` instead of p everywhere. TVM and Relax read a size
from a dimension that is a variable, and solve nothing. A call must check that d is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm import ir, te, tirx

from ...errors import LoweringError
from ...expr.build import cast, const
from ...expr.linear_terms import linear_sum, linear_terms
from ...expr.nodes import Axis, Expr, Tensor, Var, binary, dtype_of, node_id, op_name, tensor_key
from ...expr.rewrite import substituter, variables_of
from ...graph.free_variables import free_variables
from ...graph.graph import retarget, tensors_read_by, topological
from ...graph.kinds.custom import without_rules
from ...graph.kinds.kind import Compute, kind_of
from ...graph.kinds.loop import Loop, loop_stage, step_of
from ...graph.kinds.prefix_scan import Scan, scan_stage
from ...graph.kinds.rewind import KeptLoop, Rewind, kept_stage, rewind_stage
from ...graph.kinds.scatter_add import ScatterAdd, scatter_add_stage
from ...graph.kinds.update_loops import UpdateLoops, update_stage
from ...graph.sizes.equal_sizes import EqualSizes, is_same
from ...graph.stage import (
    Extent,
    Operation,
    axis_range,
    bodies,
    is_compute,
    is_extern,
    is_placeholder,
    loop_axes,
    outputs_of,
    reduction_of,
    reduction_stage,
    rename_bounds,
    shape_of,
    with_bodies,
)


def with_plain_sizes(
    inputs: Sequence[Tensor], others: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs, and tensors computed from them, over sizes that are dimensions of an input.

    Raises
    ------
    LoweringError
        If an opaque stage uses a size that has to be solved for.
    """
    table, dims = _solved(inputs)
    sizes = _Sizes(table)

    def placed(tensor: Tensor) -> Tensor:
        old = shape_of(tensor)
        shape = [
            dim if isinstance(dim, int) else dims.get(node_id(dim), sizes.extent(dim))
            for dim in old
        ]
        if all(is_same(a, b) for a, b in zip(old, shape, strict=True)):
            return tensor
        return te.placeholder(shape, dtype_of(tensor), name=tensor.op.name)

    moved = [placed(tensor) for tensor in inputs]
    return moved, _moved(others, dict(zip(map(tensor_key, inputs), moved, strict=True)), sizes)


def moved_over(
    tensors: Sequence[Tensor], news: Mapping[tuple[int, int], Tensor], table: Mapping[Var, Expr]
) -> list[Tensor]:
    """Tensors over other tensors and sizes.

    Parameters
    ----------
    tensors : sequence of Tensor
        The tensors to rewrite.
    news : mapping
        The replacements of tensors that are read, by key.
    table : mapping
        The expressions that replace sizes.

    Raises
    ------
    LoweringError
        If an opaque stage uses one of the sizes.
    """
    return _moved(tensors, news, _Sizes(table))


def _moved(
    tensors: Sequence[Tensor], news: Mapping[tuple[int, int], Tensor], sizes: _Sizes
) -> list[Tensor]:
    done = dict(news)
    for op in topological(tensors):
        if is_placeholder(op):
            continue
        moved = retarget(op, lambda tensor: done.get(tensor_key(tensor)))
        used = free_variables(moved[0].op)
        if is_extern(op) and type(kind_of(op)) in _RENAMED:  # loops over sizes of what is read
            used += [var for tensor in tensors_read_by(op) for var in free_variables(tensor.op)]
        if sizes.changes(moved[0].op, used):
            moved = _renamed(moved[0].op, sizes)
        for old, new in zip(outputs_of(op), moved, strict=True):
            done[tensor_key(old)] = new
    return [done.get(tensor_key(tensor), tensor) for tensor in tensors]


class _Sizes:
    """Replaces sizes by expressions, and extents by equal ones."""

    def __init__(self, table: Mapping[Var, Expr]) -> None:
        self.replaced = tuple(table)
        self._ids = {node_id(var) for var in table}
        self._rename, self._equal = substituter(dict(table)), EqualSizes()

    def __call__(self, expr: Expr) -> Expr:
        """An expression over the new sizes."""
        return self._rename(expr)

    def extent(self, extent: Extent) -> Extent:
        """An extent over the new sizes."""
        return extent if isinstance(extent, int) else self._equal(self._rename(extent))

    def changes(self, op: Operation, used: Sequence[Var]) -> bool:
        """Whether a stage that uses some variables differs over the new sizes."""
        if any(node_id(var) in self._ids for var in used):
            return True
        extents = [axis_range(axis)[1] for axis in loop_axes(op)] if is_compute(op) else []
        return any(not is_same(extent, self.extent(extent)) for extent in extents)


def known_sizes(inputs: Sequence[Tensor]) -> list[Var]:
    """The variables whose values the shapes of some tensors define."""
    shapes = [dim for tensor in inputs for dim in shape_of(tensor) if not isinstance(dim, int)]
    return [*(dim for dim in shapes if op_name(dim) == "var"), *_solved(inputs)[0]]


def _solved(inputs: Sequence[Tensor]) -> tuple[dict[Var, Expr], dict[int, Var]]:
    """Expressions for the sizes that are not dimensions, and variables for the dimensions, by id.
    """
    shapes = [dim for tensor in inputs for dim in shape_of(tensor) if not isinstance(dim, int)]
    known = {node_id(dim) for dim in shapes if op_name(dim) == "var"}
    table: dict[Var, Expr] = {}
    dims: dict[int, Var] = {}
    again = True
    while again:
        again = False
        for dim in shapes:
            unknown = {node_id(var): var for var in variables_of(dim) if node_id(var) not in known}
            if len(unknown) != 1:
                continue
            [var] = unknown.values()
            fresh = Var(f"{var.name}_dim", dtype_of(dim))
            value = _solution(dim, var, fresh)
            if value is not None:
                table[var] = substituter(table)(value)
                dims[node_id(dim)] = fresh
                known.add(node_id(var))
                again = True
    return table, dims


def _solution(dim: Expr, var: Var, value: Var) -> Expr | None:
    """``factor*var + rest = value → var = (value - rest)//factor``, or None for other forms."""
    terms, constant = linear_terms(dim)
    mine = [factor for node, factor in terms if node_id(node) == node_id(var)]
    rest = [(node, -factor) for node, factor in terms if node_id(node) != node_id(var)]
    inside = {node_id(other) for node, _ in rest for other in variables_of(node)}
    if len(mine) != 1 or node_id(var) in inside:
        return None
    [factor] = mine
    sign = 1 if factor > 0 else -1
    dtype = dtype_of(value)
    terms = [(node, sign * k) for node, k in [(value, 1), *rest]]
    whole = linear_sum(terms, -sign * constant, dtype)
    divided = whole if abs(factor) == 1 else binary("floordiv", whole, const(abs(factor), dtype))
    return cast(dtype_of(var), divided)


def _renamed(op: Operation, rename: _Sizes) -> list[Tensor]:
    """A stage with sizes replaced by expressions."""
    kind = kind_of(op)
    rule = _RENAMED.get(type(kind))
    if rule is None:
        names = ", ".join(var.name for var in rename.replaced)
        raise LoweringError(
            f"stage {op.name} is opaque and uses a size ({names}) that is not a dimension of an "
            "input: add an input with that dimension"
        )
    return rule(op, kind, rename)


def _extents(extents: Sequence[Extent], rename: _Sizes) -> tuple[Extent, ...]:
    return tuple(map(rename.extent, extents))


def _compute(op: Operation, kind: Compute, rename: _Sizes) -> list[Tensor]:
    def axis_of(axis: Axis) -> Axis:
        extent = rename.extent(axis_range(axis)[1])
        if isinstance(extent, int):
            extent = const(extent, dtype_of(axis.var))
        bounds = ir.Range.from_min_extent(rename(axis.dom.min), extent)
        return tirx.IterVar(bounds, axis.var, axis.iter_type)

    axes = [axis_of(axis) for axis in op.axis]
    reduction = reduction_of(op)
    if reduction is None:
        return with_bodies(op, [rename(body) for body in bodies(op)], axes)
    moved = type(reduction)(
        reduction.combiner,
        tuple(map(rename, reduction.sources)),
        tuple(map(axis_of, reduction.axes)),
        rename(reduction.condition),
        tuple(map(rename, reduction.init)),
    )
    return reduction_stage(op.name, axes, moved)


def _prefix_scan(op: Operation, scan: Scan, rename: _Sizes) -> list[Tensor]:
    rows, scanned = _extents(scan.rows, rename), _extents(scan.scanned, rename)
    return scan_stage(op.name, replace(scan, rows=rows, scanned=scanned))


def _scatter_add(op: Operation, found: ScatterAdd, rename: _Sizes) -> list[Tensor]:
    shape = _extents(shape_of(found.result), rename)
    return [scatter_add_stage(op.name, found.positions, found.updates, shape, found.layout)]


def _update_loops(op: Operation, loops: UpdateLoops, rename: _Sizes) -> list[Tensor]:
    moved = UpdateLoops(
        tuple(rename_bounds(axis, rename) for axis in loops.axes),
        tuple(map(rename, loops.conditions)),
        tuple(map(rename, loops.place)),
        rename(loops.value),
    )
    return [update_stage(op.name, moved, _extents(shape_of(op.output(0)), rename))]


def _loop(op: Operation, loop: Loop, rename: _Sizes) -> list[Tensor]:
    return loop_stage(op.name, _renamed_loop(loop, rename))


def _kept_loop(op: Operation, kept: KeptLoop, rename: _Sizes) -> list[Tensor]:
    return kept_stage(op.name, replace(kept, loop=_renamed_loop(kept.loop, rename)))


def _rewind(op: Operation, rewind: Rewind, rename: _Sizes) -> list[Tensor]:
    ahead, back = (_renamed_loop(loop, rename) for loop in (rewind.ahead, rewind.back))
    return rewind_stage(op.name, replace(rewind, ahead=ahead, back=back))


def _renamed_loop(loop: Loop, rename: _Sizes) -> Loop:
    step = loop.step
    fresh = [
        te.placeholder(_extents(shape_of(x), rename), dtype_of(x), name=x.op.name)
        for x in step.inputs
    ]
    done = {tensor_key(x): new for x, new in zip(step.inputs, fresh, strict=True)}
    outputs = without_rules(step.outputs)
    for inner in topological(outputs):
        if is_placeholder(inner):
            continue
        moved = retarget(inner, lambda tensor: done.get(tensor_key(tensor)))[0].op
        kind = kind_of(moved)
        rule = _RENAMED.get(type(kind))
        news = outputs_of(moved) if rule is None else rule(moved, kind, rename)
        done.update(zip(map(tensor_key, outputs_of(inner)), news, strict=True))
    count, first = len(step.carries), len(step.carries) + len(step.xs)
    results = [done[tensor_key(tensor)] for tensor in outputs]
    renamed = step_of(
        fresh[:count], fresh[count:first], fresh[first:], results[:count], results[count:]
    )
    [length] = _extents([loop.length], rename)
    return replace(loop, step=renamed, length=length)


_RENAMED: dict[type, Callable[[Operation, Any, _Sizes], list[Tensor]]] = {
    Compute: _compute,
    Scan: _prefix_scan,
    ScatterAdd: _scatter_add,
    UpdateLoops: _update_loops,
    Loop: _loop,
    KeptLoop: _kept_loop,
    Rewind: _rewind,
}
