"""Batching rules, one for each kind of stage: the same stage with one more axis.

The new axis is the first one of every batched tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..errors import NotDifferentiableError
from ..expr.build import cast
from ..expr.nodes import Expr, Tensor, is_load, load, load_tensor, node_id, operands
from ..expr.rewrite import Rewriter
from ..graph.bounded_stage import bounded_reduction, bounded_stage, elementwise_stage
from ..graph.graph import tensors_read_by
from ..graph.kinds.kind import Compute, Opaque, kind_of
from ..graph.kinds.prefix_scan import Scan, scan_stage
from ..graph.kinds.rewind import KeptLoop, Rewind
from ..graph.kinds.scatter_add import ScatterAdd, ScatterLayout, scatter_add_stage
from ..graph.kinds.update_loops import UpdateLoops, update_stage
from ..graph.stage import (
    Extent,
    Operation,
    bodies,
    data_axis,
    index_dtype,
    make_stage,
    mapped_reduction,
    reduce_axis,
    reduce_expr,
    reduction_of,
    rename_bounds,
    renew_axis,
    shape_of,
)

BatchedOf = Callable[[Tensor], Tensor | None]  #: None for a tensor that is the same in all


def batched_stage(op: Operation, batched_of: BatchedOf, size: Extent) -> list[Tensor]:
    """The outputs of a stage for each member of a batch, ``(size,) + shape``.

    Parameters
    ----------
    op : Operation
        A stage of any kind.
    batched_of : callable
        Returns the batch of a tensor that the stage reads, or None if all members read the same
        tensor.
    size : int or Expr
        The size of the batch.

    Raises
    ------
    NotDifferentiableError
        If the stage is opaque.
    """
    kind = kind_of(op)
    return _RULES[type(kind)](op, kind, batched_of, size)


def _at(batched_of: BatchedOf, member: Expr) -> Callable[[Expr], Expr | None]:
    """``x[g] → xs[b, g]`` for reads of tensors that are batched."""

    def visit(node: Expr) -> Expr | None:
        if not is_load(node):
            return None
        batched = batched_of(load_tensor(node))
        return None if batched is None else load(batched, [member, *operands(node)])

    return visit


def _compute(op: Operation, kind: Compute, batched_of: BatchedOf, size: Extent) -> list[Tensor]:
    """``y[a] = f(x[g])  →  ys[b, a] = f(xs[b, g])``."""
    member = data_axis("b", size)
    axes = [renew_axis(axis) for axis in op.axis]
    own = {node_id(old.var): new.var for old, new in zip(op.axis, axes, strict=True)}
    at = _at(batched_of, member.var)

    def visit(node: Expr) -> Expr | None:
        return at(node) if is_load(node) else own.get(node_id(node))

    move = Rewriter(visit)
    reduction = reduction_of(op)
    if reduction is None:
        new = [move(body) for body in bodies(op)]
        return bounded_stage(op.name, [member, *axes], new, op.tag)
    moved = mapped_reduction(reduction, move)
    moved = bounded_reduction([member, *axes], moved)
    new = [reduce_expr(moved, int(body.value_index)) for body in bodies(op)]
    return make_stage(op.name, [member, *axes], new, op.tag)


def _opaque(op: Operation, kind: Opaque, batched_of: BatchedOf, size: Extent) -> list[Tensor]:
    names = ", ".join(tensor.op.name for tensor in tensors_read_by(op))
    raise NotDifferentiableError(
        f"stage {op.name} is opaque and reads {names}: it has no expression to which an axis could "
        "be added; write it with te.compute, or attach a rule that has batch= with with_rule"
    )


def _prefix_scan(op: Operation, scan: Scan, batched_of: BatchedOf, size: Extent) -> list[Tensor]:
    """A scan over ``rows``  →  the same over ``(size, *rows)``."""
    whole = (*scan.rows, *scan.scanned)
    elements = []
    for tensor in scan.elements:
        batched = batched_of(tensor)
        # elements lack leading axes if rows share them: a batch of those gets all axes
        if batched is not None and len(tensor.shape) < len(whole):
            batched = _spread(batched, (size, *whole))
        elements.append(tensor if batched is None else batched)
    rows = (size, *scan.rows)
    return scan_stage(op.name, replace(scan, elements=tuple(elements), rows=rows))


def _spread(batched: Tensor, shape: tuple[Extent, ...]) -> Tensor:
    """``xs[b, i] → xs[b, ..., i]``, with the axes in between added."""
    last = len(batched.shape) - 1
    return elementwise_stage(
        f"{batched.op.name}_spread",
        shape,
        lambda place: load(batched, [place[0], *place[len(place) - last :]]),
    )


def _scatter_add(
    op: Operation, found: ScatterAdd, batched_of: BatchedOf, size: Extent
) -> list[Tensor]:
    """``out[p] += u → outs[b, p] += us[b]``.

    If each member has its own positions, the member number becomes one more position.
    """
    layout, shape = found.layout, (size, *shape_of(found.result))
    updates = batched_of(found.updates)
    positions = [batched_of(position) for position in found.positions]
    moved = tuple(axis if axis >= 0 else axis - 1 for axis in layout.updates)
    if all(position is None for position in positions):
        assert updates is not None
        trailing = ScatterLayout((-1, *layout.dims), layout.places, (-1, *moved))
        return [scatter_add_stage(op.name, found.positions, updates, shape, trailing)]
    member = layout.points
    if updates is None:
        updates = repeated(found.updates, size)
    numbers = elementwise_stage(
        f"{op.name}_member", [size], lambda place: cast(index_dtype(size), place[0])
    )
    places = tuple(
        own if batched is None else (member, *own)
        for own, batched in zip(layout.places, positions, strict=True)
    )
    pointed = ScatterLayout((len(places), *layout.dims), (*places, (member,)), (member, *moved))
    read = [
        old if new is None else new for old, new in zip(found.positions, positions, strict=True)
    ]
    return [scatter_add_stage(op.name, [*read, numbers], updates, shape, pointed)]


def repeated(tensor: Tensor, size: Extent) -> Tensor:
    """A batch in which every member is the same tensor: ``xs[b, i] = x[i]``."""
    shape = (size, *shape_of(tensor))
    return elementwise_stage(
        f"{tensor.op.name}_repeated", shape, lambda place: load(tensor, place[1:])
    )


def _update_loops(
    op: Operation, loops: UpdateLoops, batched_of: BatchedOf, size: Extent
) -> list[Tensor]:
    """``for points: out[place] += value  →  for members: for points: outs[b, place] += values``."""
    member = reduce_axis("b", size)
    move = Rewriter(_at(batched_of, member.var))
    nest = UpdateLoops(
        (member, *(rename_bounds(axis, move) for axis in loops.axes)),
        tuple(map(move, loops.conditions)),
        (member.var, *map(move, loops.place)),
        move(loops.value),
    )
    return [update_stage(op.name, nest, (size, *shape_of(op.output(0))))]


_RULES: dict[type, Callable[[Operation, Any, BatchedOf, Extent], list[Tensor]]] = {
    Compute: _compute,
    Scan: _prefix_scan,
    ScatterAdd: _scatter_add,
    UpdateLoops: _update_loops,
    KeptLoop: _opaque,
    Rewind: _opaque,
    Opaque: _opaque,
}
