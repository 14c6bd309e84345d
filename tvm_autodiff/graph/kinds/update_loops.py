"""Sums computed by one loop over updates, as an opaque stage: ``for each point: out[place] +=
value``.

A scatter-add takes its updates as a tensor. This stage computes each update where it is added,
because loops whose bounds are data have no box over which a tensor of updates could be defined.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tvm import te
from tvm.script.ir_builder import IRBuilder, tirx as T

from ...expr.build import add, cast, const, variable
from ...expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    operands,
    tensor_key,
)
from ...expr.rewrite import Rewriter, postorder, substituter
from ..stage import Extent, Operation, is_extern, reduce_axis_within
from .scatter_add import inside, nest_index

#: attributes of such a stage: variables of reads with tensor numbers and indices, variables of
#: loops with bounds, conditions, place and value
_READS, _LOOPS, _CONDITIONS, _PLACE, _VALUE = (
    f"tvm_autodiff.update_loops.{name}"
    for name in ("reads", "loops", "conditions", "place", "value")
)


@dataclass(frozen=True)
class UpdateLoops:
    """``for axes: if conditions then out[place] += value``, if the place is in bounds.

    Attributes
    ----------
    axes : tuple of Axis
        The loops, outermost first. Bounds may read tensors and depend on outer loops.
    conditions : tuple of Expr
        Conditions, each evaluated only if those before it hold.
    place : tuple of Expr
        The indices of the element of the result.
    value : Expr
        The value that is added.
    """

    axes: tuple[Axis, ...]
    conditions: tuple[Expr, ...]
    place: tuple[Expr, ...]
    value: Expr

    @property
    def exprs(self) -> list[Expr]:
        """All expressions, those of the bounds first."""
        bounds = [bound for axis in self.axes for bound in (axis.dom.min, axis.dom.extent)]
        return [*bounds, *self.conditions, *self.place, self.value]


def update_stage(name: str, loops: UpdateLoops, shape: Sequence[Extent]) -> Tensor:
    """The stage of update loops, with a result of a given shape."""
    tensors: dict[tuple[int, int], Tensor] = {}
    for node in postorder(loops.exprs):
        if is_load(node):
            tensors.setdefault(tensor_key(load_tensor(node)), load_tensor(node))
    dtype = dtype_of(loops.value)
    with IRBuilder() as builder, T.prim_func():
        T.func_name(name)
        buffers = {
            key: T.arg(f"p{n}", T.buffer(tensor.shape, dtype_of(tensor)))
            for n, (key, tensor) in enumerate(tensors.items())
        }
        out = T.arg("out", T.buffer(list(shape), dtype))
        counters: dict[int, Expr] = {}

        def visit(node: Expr) -> Expr | None:
            if is_load(node):
                return buffers[tensor_key(load_tensor(node))][operands(node)]
            return counters.get(node_id(node))

        with ExitStack() as nest:
            place = [nest.enter_context(T.serial(0, extent)) for extent in shape]
            T.buffer_store(out, const(0, dtype), place)
        with ExitStack() as nest:
            for axis in loops.axes:
                move = Rewriter(visit)
                low, extent = move(axis.dom.min), move(axis.dom.extent)
                counter = nest.enter_context(T.serial(low, add(low, extent)))
                counters[node_id(axis.var)] = cast(dtype_of(axis.var), counter)
            move = Rewriter(visit)
            at = [nest_index(move(index)) for index in loops.place]
            tests = [test for i, n in zip(at, shape, strict=True) for test in inside(i, n)]
            for condition in (*map(move, loops.conditions), *tests):
                nest.enter_context(T.If(condition))
                nest.enter_context(T.Then())
            T.buffer_store(out, out[tuple(at)] + move(loops.value), at)
    attrs = _encoded(loops, list(tensors))
    # `te.extern_primfunc` overlooks accesses to buffers without dimensions
    return te.extern(
        [out.shape],
        list(tensors.values()),
        lambda ins, outs: builder.get().body,
        name=name,
        in_buffers=list(buffers.values()),
        out_buffers=[out],
        attrs=attrs,
    )


def _encoded(loops: UpdateLoops, keys: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """The loops as attributes, which cannot hold tensors: each read is replaced by a variable."""
    reads: list[list[Any]] = []

    def visit(node: Expr) -> Expr | None:
        if not is_load(node):
            return None
        var = variable(f"r{len(reads)}", dtype_of(node))
        reads.append([var, keys.index(tensor_key(load_tensor(node))), *operands(node)])
        return var

    encode = Rewriter(visit)
    bounds = [[a.var, encode(a.dom.min), encode(a.dom.extent)] for a in loops.axes]
    return {
        _LOOPS: bounds,
        _CONDITIONS: [encode(condition) for condition in loops.conditions],
        _PLACE: [encode(index) for index in loops.place],
        _VALUE: encode(loops.value),
        _READS: reads,
    }


def update_loops_of(op: Operation) -> UpdateLoops | None:
    """The loops of a stage made by `update_stage`, over its present inputs; None for others."""
    if not is_extern(op) or _READS not in op.attrs:
        return None
    table: dict[Var, Expr] = {}
    for var, number, *indices in op.attrs[_READS]:
        move = substituter(table)
        table[var] = load(op.inputs[int(number)], [move(index) for index in indices])
    move = substituter(table)
    return UpdateLoops(
        tuple(
            reduce_axis_within(var, move(low), move(extent))
            for var, low, extent in op.attrs[_LOOPS]
        ),
        tuple(move(condition) for condition in op.attrs[_CONDITIONS]),
        tuple(move(index) for index in op.attrs[_PLACE]),
        move(op.attrs[_VALUE]),
    )
