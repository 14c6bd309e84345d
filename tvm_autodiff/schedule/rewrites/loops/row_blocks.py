"""Cuts a step whose rows are independent into blocks of rows.

Blocks then run through all steps separately: a batch of trajectories on several threads without
synchronisation in each step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....expr.nodes import Expr, Tensor, Var, is_load, load_tensor, node_id, operands, tensor_key
from ....expr.rewrite import postorder
from ....graph.graph import retarget, tensors_read_by, topological
from ....graph.kinds.loop import Step
from ....graph.stage import (
    Operation,
    axis_range,
    bodies,
    bounds_of,
    is_compute,
    is_placeholder,
    outputs_of,
    placeholder,
    reduction_of,
    shape_of,
    widened_axis,
    with_bodies,
)
from ...declined import Declined, no_gain

Key = tuple[int, int]


@dataclass(frozen=True)
class RowBlocks:
    """A step for a block of rows.

    Attributes
    ----------
    count : int
        The number of blocks.
    step : Step
        The step of one block, whose inputs and outputs have only its rows.
    apart : frozenset of (int, int)
        The keys of the inputs and outputs of `step` that have rows; all blocks read the others.
    shared : tuple of Tensor
        The constants that all blocks read.
    """

    count: int
    step: Step
    apart: frozenset[Key]
    shared: tuple[Tensor, ...]


def row_blocks(step: Step, threads: int) -> RowBlocks | Declined:
    """``h'[i, j] = f(h[i, :], x[i, :], w)`` over ``i < n → `` the same over ``i < n/blocks``."""
    extents = {shape_of(carry)[:1] for carry in step.carries}
    extent = next(iter(extents))[0] if len(extents) == 1 and () not in extents else None
    if not isinstance(extent, int):
        return no_gain("its carried tensors have no common first axis of literal size")
    count = _count(extent, threads)
    if count is None:
        return no_gain(f"{extent} rows do not divide into equal blocks for {threads} threads")
    ops = [op for op in topological(list(step.outputs)) if not is_placeholder(op)]
    rows = _with_rows(ops, step.carries, extent)
    met = _meeting(ops, rows, extent)
    if met is not None:
        return no_gain(f"rows meet in stage {met.name}")
    lacking = [tensor for tensor in step.outputs if tensor_key(tensor) not in rows]
    if lacking:
        return no_gain(f"result {lacking[0].op.name} is the same for all rows")
    shared = tuple(tensor for tensor in step.consts if tensor_key(tensor) not in rows)
    small, apart = _of_block(step, ops, rows, extent // count)
    return RowBlocks(count, small, apart, shared)


def _count(extent: int, threads: int) -> int | None:
    """The smallest number of equal blocks that gives every thread the same number."""
    fitting = (count for count in range(threads, extent + 1, threads) if extent % count == 0)
    return next(fitting, None) if threads > 1 else None


def _with_rows(ops: Sequence[Operation], carries: Sequence[Tensor], extent: int) -> set[Key]:
    """The keys of what is computed row by row, and of what is read row by row."""
    rows = set(map(tensor_key, carries))
    size = -1
    while len(rows) > size:
        size = len(rows)
        for op in ops:
            if not _has_rows(op, rows):
                continue
            rows |= set(map(tensor_key, outputs_of(op)))
            for tensor, indices in _reads(op) if is_compute(op) else ():
                first = shape_of(tensor)[:1]
                if first == (extent,) and _is_row(op, indices[0]):
                    rows.add(tensor_key(tensor))
    return rows


def _meeting(ops: Sequence[Operation], rows: set[Key], extent: int) -> Operation | None:
    """A stage whose rows depend on others, or on their number, or None."""
    for op in ops:
        if not _has_rows(op, rows):
            continue
        if not is_compute(op) or not len(op.axis) or axis_range(op.axis[0]) != (0, extent):
            return op
        if any(node_id(var) == node_id(op.axis[0].var) for var in _free(op, rows)):
            return op
        if any(tensor_key(t) in rows and not _is_row(op, place[0]) for t, place in _reads(op)):
            return op  # Σ_k w[i, k]·h[k] reads the rows of all blocks
    return None


def _has_rows(op: Operation, rows: set[Key]) -> bool:
    tensors = (*outputs_of(op), *tensors_read_by(op))
    return any(tensor_key(tensor) in rows for tensor in tensors)


def _is_row(op: Operation, index: Expr) -> bool:
    return bool(len(op.axis)) and node_id(index) == node_id(op.axis[0].var)


def _roots(op: Operation) -> list[Expr]:
    reduction = reduction_of(op)
    if reduction is None:
        return list(bodies(op))
    bounds = [bound for axis in reduction.axes for bound in bounds_of(axis)]
    return [*reduction.sources, reduction.condition, *reduction.init, *bounds]


def _reads(op: Operation) -> Iterator[tuple[Tensor, Sequence[Expr]]]:
    for node in postorder(_roots(op)):
        if is_load(node):
            yield load_tensor(node), operands(node)


def _free(op: Operation, rows: set[Key]) -> Iterator[Var]:
    """The nodes of a stage, without the row indices that equal the row of the stage."""
    seen: set[int] = set()
    pending = _roots(op)
    while pending:
        node = pending.pop()
        if node_id(node) in seen:
            continue
        seen.add(node_id(node))
        yield node
        inside = list(operands(node))
        if is_load(node) and tensor_key(load_tensor(node)) in rows and _is_row(op, inside[0]):
            inside = inside[1:]
        pending += inside


def _of_block(
    step: Step, ops: Sequence[Operation], rows: set[Key], extent: int
) -> tuple[Step, frozenset[Key]]:
    done: dict[Key, Tensor] = {}
    for tensor in step.inputs:
        if tensor_key(tensor) in rows:
            shape = (extent, *shape_of(tensor)[1:])
            done[tensor_key(tensor)] = placeholder(shape, str(tensor.dtype), tensor.op.name)

    def lookup(tensor: Tensor) -> Tensor | None:
        return done.get(tensor_key(tensor))

    for op in ops:
        news = retarget(op, lookup)
        if _has_rows(op, rows):
            current = news[0].op
            axes = [widened_axis(current.axis[0], extent), *list(current.axis)[1:]]
            news = with_bodies(current, bodies(current), axes)
        done |= {tensor_key(old): new for old, new in zip(outputs_of(op), news, strict=True)}
    parts = (step.carries, step.xs, step.consts, step.news, step.ys)
    small = Step(*(tuple(done.get(tensor_key(t), t) for t in part) for part in parts))
    pairs = zip((*step.inputs, *step.outputs), (*small.inputs, *small.outputs), strict=True)
    return small, frozenset(tensor_key(new) for old, new in pairs if tensor_key(old) in rows)
