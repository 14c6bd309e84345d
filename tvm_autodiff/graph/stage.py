"""Stages of a tensor program: reading the contents of a stage, and making new ones.

A te operation or tensor is read as axes, bodies and reduction in plain Python data, and compute
stages are made from axes and bodies. `graph` holds the graph of stages, `rewrite` the expressions
inside bodies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, te, tirx

from ..expr.build import true
from ..expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    const_value,
    elements,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
)
from ..expr.remembered import remembered
from ..expr.rewrite import Rewriter, expand_lets, postorder, substituter, variables_of
from ..expr.simplify import simplify
from .own_dtypes import combiner_parts, literals_typed

Operation = Any  #: a te operation
Extent = Any  #: an int or a TVM integer expression

_DATA_PARALLEL, _REDUCE = 0, 2


@dataclass(frozen=True)
class Combiner:
    """A commutative reducer over tuples: ``result(lhs, rhs)`` for each component, and its identity.
    """

    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity: tuple[Expr, ...]

    def apply(self, lhs: Sequence[Expr], rhs: Sequence[Expr]) -> tuple[Expr, ...]:
        """The combination of two tuples of expressions, one expression for each component."""
        table = {
            node_id(var): value
            for var, value in zip((*self.lhs, *self.rhs), (*lhs, *rhs), strict=True)
        }
        visit = Rewriter(lambda node: table.get(node_id(node)) if op_name(node) == "var" else None)
        return tuple(visit(result) for result in self.expanded())

    def expanded(self) -> list[Expr]:
        """The results without lets."""
        return [expand_lets(result) for result in self.result]

    def repeats(self) -> bool:
        """Whether a combination contains an element more than once."""
        results = self.expanded()
        parts = [part for node in postorder(results) for part in operands(node)]
        uses = Counter(map(node_id, (*results, *parts)))
        return any(uses[node_id(var)] > 1 for var in self.rhs)


@dataclass(frozen=True)
class Reduction:
    """A reduction as data: Σ or another combiner of `sources` over `axes`, where `condition` holds.
    """

    combiner: Combiner
    sources: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    condition: Expr
    init: tuple[Expr, ...]


def is_compute(op: Operation) -> bool:
    """Whether a stage is a compute expression."""
    return type(op) is te.ComputeOp


def is_placeholder(op: Operation) -> bool:
    """Whether a stage is an input."""
    return type(op) is te.PlaceholderOp


def is_extern(op: Operation) -> bool:
    """Whether a stage is an opaque `te.extern` stage."""
    return type(op) is te.ExternOp


def is_scan(op: Operation) -> bool:
    """Whether a stage is a `te.scan`."""
    return type(op) is te.ScanOp


def outputs_of(op: Operation) -> list[Tensor]:
    """All output tensors of a stage."""
    return [op.output(index) for index in range(op.num_outputs)]


def bodies(op: Operation) -> list[Expr]:
    """The body expression of each output of a compute stage."""
    return list(elements(op.body))


def loop_axes(op: Operation) -> list[Axis]:
    """All axes of a compute stage, output axes first."""
    return [*elements(op.axis), *reduced_axes(op)]


def reduced_axes(op: Operation) -> tuple[Axis, ...]:
    """The axes that a compute stage reduces over, if any."""
    reduction = reduction_of(op)
    return () if reduction is None else reduction.axes


def sources_of(op: Operation) -> list[Expr]:
    """What a compute stage evaluates at each point: what it reduces, or its bodies."""
    reduction = reduction_of(op)
    return bodies(op) if reduction is None else list(reduction.sources)


def axis_vars(op: Operation) -> list[Var]:
    """The variables of the output axes of a compute stage."""
    return [axis.var for axis in elements(op.axis)]


def axis_range(axis: Axis) -> tuple[Extent, Extent]:
    """``(minimum, extent)`` of an axis, as ints if they are literals."""
    least, size = bounds_of(axis)
    low, extent = const_value(least), const_value(size)
    return least if low is None else low, size if extent is None else extent


def bounds_of(axis: Axis) -> tuple[Expr, Expr]:
    """``(minimum, extent)`` of an axis, as expressions."""
    dom = axis.dom
    return dom.min, dom.extent


def shape_of(tensor: Tensor) -> tuple[Extent, ...]:
    """The shape of a tensor, with ints for literal extents."""
    dims = elements(tensor.shape)
    return tuple([dim if (value := const_value(dim)) is None else int(value) for dim in dims])


def reduction_of(op: Operation) -> Reduction | None:
    """The reduction that a stage performs, or None for an elementwise or opaque stage."""
    return _reduction_of(op) if is_compute(op) else None


@remembered(1 << 10)
def _reduction_of(op: Operation) -> Reduction | None:
    return reduction_of_body(op.body[0], f"stage {op.name}")


def reduction_of_body(body: Expr, where: str = "a reduction") -> Reduction | None:
    """The reduction that is the body of a stage, or None for any other body.

    All its literals have the dtypes of what is reduced. `where` is for error messages.
    """
    if op_name(body) != "reduce":
        return None
    sources = elements(body.source)
    return Reduction(
        Combiner(*combiner_parts(body, where)),
        sources,
        elements(body.axis),
        body.condition,
        literals_typed(elements(body.init), sources, where),
    )


def data_axis(name: str, extent: Extent, dtype: str | None = None) -> Axis:
    """A fresh output axis ``0 <= name < extent``."""
    return _axis(name, 0, extent, _DATA_PARALLEL, dtype)


def reduce_axis(name: str, extent: Extent, minimum: Extent = 0, dtype: str | None = None) -> Axis:
    """A fresh reduce axis ``minimum <= name < minimum + extent``."""
    return _axis(name, minimum, extent, _REDUCE, dtype)


def reduce_axis_over(var: Var, extent: Extent) -> Axis:
    """The reduce axis ``0 <= var < extent`` for a variable that already occurs in expressions."""
    if isinstance(extent, int):
        extent = tirx.const(extent, str(var.ty))
    return tirx.IterVar(ir.Range.from_min_extent(tirx.const(0, str(var.ty)), extent), var, _REDUCE)


def reduce_axis_within(var: Var, low: Expr, extent: Expr) -> Axis:
    """The reduce axis ``low <= var < low + extent`` for a variable that already occurs in
    expressions.
    """
    return tirx.IterVar(ir.Range.from_min_extent(low, extent), var, _REDUCE)


def _axis(name: str, low: Extent, extent: Extent, kind: int, dtype: str | None) -> Axis:
    if dtype is None:
        dtype = index_dtype(extent)
    if isinstance(low, int):
        low = tirx.const(low, dtype)
    if isinstance(extent, int):
        extent = tirx.const(extent, dtype)
    return tirx.IterVar(ir.Range.from_min_extent(low, extent), tirx.Var(name, dtype), kind)


def index_dtype(extent: Extent) -> str:
    """The dtype of an index below `extent`: that of the extent, or int32 for small literals."""
    if isinstance(extent, int):
        return "int32" if extent < 2**31 else "int64"
    return str(extent.ty)


def renew_axis(axis: Axis, name: str | None = None) -> Axis:
    """A copy of an axis with a new variable."""
    return tirx.IterVar(axis.dom, tirx.Var(name or axis.var.name, str(axis.var.ty)), axis.iter_type)


def renewed(axes: Sequence[Axis]) -> tuple[list[Axis], dict[Var, Expr]]:
    """Copies of axes with new variables, and for each old variable the new one."""
    fresh = [renew_axis(axis) for axis in axes]
    return fresh, {old.var: new.var for old, new in zip(axes, fresh, strict=True)}


def as_data_axis(axis: Axis) -> Axis:
    """The axis as an output axis with the same variable."""
    return tirx.IterVar(axis.dom, axis.var, _DATA_PARALLEL)


def widened_axis(axis: Axis, extent: Extent) -> Axis:
    """The axis with the same variable, from zero to another extent."""
    dtype = str(axis.var.ty)
    end = tirx.const(extent, dtype) if isinstance(extent, int) else extent.astype(dtype)
    dom = ir.Range.from_min_extent(tirx.const(0, dtype), end)
    return tirx.IterVar(dom, axis.var, axis.iter_type)


def rename_bounds(axis: Axis, rename: Callable[[Expr], Expr]) -> Axis:
    """The axis with its own variable and renamed bounds; bounds of adaptive windows contain output
    axes. What no variable is left in becomes a literal: ``k < i + 1 → k < 1`` for an i of 0.
    """
    low, extent = axis.dom.min, axis.dom.extent
    new_low, new_extent = map(_with_literals, (rename(low), rename(extent)))
    if node_id(low) == node_id(new_low) and node_id(extent) == node_id(new_extent):
        return axis
    return type(axis)(type(axis.dom).from_min_extent(new_low, new_extent), axis.var, axis.iter_type)


def _with_literals(bound: Expr) -> Expr:
    return bound if variables_of(bound) else simplify(bound)


def reduction_bounds(op: Operation) -> list[Expr]:
    """The minimum and extent of every reduce axis of a compute stage, without literals."""
    return [
        bound
        for axis in reduced_axes(op)
        for bound in bounds_of(axis)
        if const_value(bound) is None
    ]


def mapped_reduction(reduction: Reduction, move: Callable[[Expr], Expr]) -> Reduction:
    """The reduction over new axes, with its expressions and bounds rewritten."""
    fresh = renewed_reduction(reduction, {})
    return Reduction(
        fresh.combiner,
        tuple(move(source) for source in fresh.sources),
        tuple(rename_bounds(axis, move) for axis in fresh.axes),
        move(fresh.condition),
        tuple(move(value) for value in fresh.init),
    )


def renewed_reduction(reduction: Reduction, table: Mapping[Var, Expr]) -> Reduction:
    """The reduction over new axes, with other variables replaced, also in bounds."""
    inner = [renew_axis(axis) for axis in reduction.axes]
    own: dict[Var, Expr] = {
        old.var: new.var for old, new in zip(reduction.axes, inner, strict=True)
    }
    move = substituter({**table, **own})
    return Reduction(
        reduction.combiner,
        tuple(move(source) for source in reduction.sources),
        tuple(rename_bounds(axis, move) for axis in inner),
        move(reduction.condition),
        tuple(move(value) for value in reduction.init),
    )


def reduce_expr(reduction: Reduction, value_index: int = 0) -> Expr:
    """The TVM node of a reduction, as the body of output `value_index`."""
    combiner = reduction.combiner
    node = tirx.CommReducer(
        list(combiner.lhs), list(combiner.rhs), list(combiner.result), list(combiner.identity)
    )
    return tirx.Reduce(
        node,
        list(reduction.sources),
        list(reduction.axes),
        reduction.condition,
        value_index,
        list(reduction.init),
    )


def sum_combiner(dtype: str) -> Combiner:
    """The combiner of a plain sum."""
    lhs, rhs = tirx.Var("x", dtype), tirx.Var("y", dtype)
    return Combiner((lhs,), (rhs,), (lhs + rhs,), (tirx.const(0, dtype),))


def sum_over(source: Expr, axes: Sequence[Axis]) -> Expr:
    """``Σ_axes source`` as the body of a stage; the source itself when there are no axes."""
    if not axes:
        return source
    reduction = Reduction(sum_combiner(str(source.ty)), (source,), tuple(axes), true(), ())
    return reduce_expr(reduction)


def make_stage(
    name: str,
    axes: Sequence[Axis],
    body: Sequence[Expr],
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> list[Tensor]:
    """A compute stage ``name[axes] = body``; one tensor for each body.

    Either all bodies are reductions that share a combiner and axes, or none is a reduction.
    """
    if len(body) > 1 and op_name(body[0]) == "reduce":
        first = body[0]  # TVM requires the components to share the same arrays, not equal ones
        shared = (first.combiner, first.source, first.axis, first.condition)
        body = [tirx.Reduce(*shared, index, first.init) for index in range(len(body))]
    op = te._ffi_api.ComputeOp(name, tag, dict(attrs or {}), list(axes), list(body))
    return outputs_of(op)


def with_bodies(
    op: Operation,
    body: Sequence[Expr],
    axes: Sequence[Axis] | None = None,
    name: str | None = None,
) -> list[Tensor]:
    """The compute stage with other bodies and, optionally, other axes or another name.

    The result is a stage of the same kind.
    """
    own = list(op.axis if axes is None else axes)
    return make_stage(name or op.name, own, body, op.tag, dict(op.attrs))


def reduction_stage(name: str, axes: Sequence[Axis], reduction: Reduction) -> list[Tensor]:
    """A stage that performs a (tuple) reduction; one tensor for each component."""
    body = [reduce_expr(reduction, index) for index in range(len(reduction.sources))]
    return make_stage(name, axes, body)


def placeholder(shape: Sequence[Extent], dtype: str, name: str) -> Tensor:
    """A new input."""
    return te.placeholder(tuple(shape), dtype, name)


def placeholder_like(tensor: Tensor, name: str | None = None) -> Tensor:
    """A new input with the shape and dtype of a tensor."""
    return te.placeholder(tuple(tensor.shape), str(tensor.dtype), name or tensor.op.name)


def whole_tensor(source: Expr, axes: Sequence[Axis]) -> Tensor | None:
    """``dx[b] = dy[b] → dx = dy``: the tensor that an expression copies entirely, or None."""
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
