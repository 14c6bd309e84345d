"""Orders the dimensions of intermediate tensors as their readers run: vectors lie along the last.

    ``t[i, j, k] = f(x[i, j + k]), y[i, j] = Σ_{k<9} t[i, j, k]  →  t[i, k, j] = f(x[i, j + k]),
    y[i, j] = Σ_{k<9} t[i, k, j]``

A tensor is changed if most reads of it run along another dimension, and all that is read to
compute it lies in memory in this order, too. Results and arguments stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ....expr.costly import is_expensive
from ....expr.linear_terms import linear_terms
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    is_load,
    load_tensor,
    operands,
    same_node,
    tensor_key,
)
from ....expr.rewrite import contains_load, depends_on, postorder
from ....graph.graph import Graph
from ....graph.stage import (
    Operation,
    axis_range,
    bodies,
    is_compute,
    reduced_axes,
    reduction_bounds,
    reduction_of,
    sources_of,
    with_bodies,
)
from ...cost import MIN_LANES, SHORT_LOOP
from ...kernel import iterations, size_of
from ...nest.inside import stage_reads_within
from .layouts import Key, Layout, with_layouts

T = TypeVar("T")
#: tensors → the dimensions that become their last ones
_Moved = Mapping[Key, int]


def with_ordered_dimensions(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Equal tensors, of which intermediate ones have the dimension last that most reads run along.
    """
    graph = Graph(outputs)
    kept = set(map(tensor_key, outputs))
    while True:
        moved = _planned(graph, kept)
        misfits = set(moved)
        for op in graph.ops:  # what reads a tensor that stays may have to stay
            key = tensor_key(op.output(0))
            if key in moved and not _runs_in_order(op, moved):
                del moved[key]
        misfits -= set(moved)
        if not misfits:
            break
        kept |= misfits
    if not moved:
        return list(outputs)

    def lay(op: Operation, current: Operation) -> Layout | None:
        dimension = moved.get(tensor_key(op.output(0)))
        return None if dimension is None else _moved(current, dimension)

    return with_layouts(outputs, graph, lay)


def _planned(graph: Graph, kept: set[Key]) -> dict[Key, int]:
    """The dimension that becomes the last one, for each tensor of which most reads run along it."""
    moved: dict[Key, int] = {}
    for op in reversed(graph.ops):
        if not _is_movable(op) or tensor_key(op.output(0)) in kept:
            continue
        tensor = op.output(0)
        readers = graph.consumers(tensor)
        if any(not is_compute(one) or contains_load(reduction_bounds(one)) for one in readers):
            continue
        reads = [0] * len(op.axis)
        for reader in readers:
            for dimensions in _runs(reader, tensor, moved):
                for dimension in dimensions:
                    reads[dimension] += iterations(reader)
        most = max(reads)
        if most > reads[-1]:
            moved[tensor_key(tensor)] = max(n for n, count in enumerate(reads) if count == most)
    return moved


def _is_movable(op: Operation) -> bool:
    """Whether a stage has a value for each place, of which any order can be computed."""
    return (
        is_compute(op) and op.num_outputs == 1 and len(op.axis) > 1 and reduction_of(op) is None
    )


def _runs(reader: Operation, tensor: Tensor, moved: _Moved) -> list[set[int]]:
    """For each read of a tensor the dimensions along which vectors may lie: along the last axis of
    the reader, or along a sum that is long.
    """
    last = _last(reader, moved)
    long = [a.var for a in reduced_axes(reader) if size_of([axis_range(a)[1]]) >= SHORT_LOOP]
    if last is not None and size_of([axis_range(last)[1]]) >= 2 * MIN_LANES:
        long.append(last.var)
    return [
        set[int]().union(*(one for one in (_dimensions(read, v) for v in long) if len(one) == 1))
        for read in _reads(reader, last)
        if tensor_key(load_tensor(read)) == tensor_key(tensor)
    ]


def _last(op: Operation, moved: _Moved) -> Axis | None:
    """The last output axis of a stage in its new order."""
    if not len(op.axis):
        return None
    return op.axis[moved.get(tensor_key(op.output(0)), len(op.axis) - 1)]


def _reads(op: Operation, last: Axis | None) -> list[Expr]:
    """What a stage reads, away from the borders of an axis."""
    roots = sources_of(op) if last is None else stage_reads_within(op, last.var)[0]
    return [node for node in postorder(list(roots)) if is_load(node)]


def _dimensions(read: Expr, var: Var) -> set[int]:
    """The dimensions whose indices depend on a variable; all of them if not as the place does."""
    indices = operands(read)
    found = {n for n, index in enumerate(indices) if depends_on(index, [var])}
    steps = [linear_terms(indices[number])[0] for number in found]
    along = [[(n, k) for n, k in terms if depends_on(n, [var])] for terms in steps]
    if all(len(one) == 1 and same_node(one[0][0], var) and one[0][1] == 1 for one in along):
        return found
    return set(range(len(indices)))


def _runs_in_order(op: Operation, moved: _Moved) -> bool:
    """Whether all that a stage reads lies in memory along its new last axis, or does not change,
    and no expensive function that did not change along the old one does along the new one.
    """
    last, old = _last(op, moved), op.axis[-1].var
    assert last is not None
    for node in filter(is_expensive, postorder(sources_of(op))):
        if depends_on(node, [last.var]) and not depends_on(node, [old]):
            return False
    for read in _reads(op, last):
        tensor = load_tensor(read)
        own = moved.get(tensor_key(tensor), len(tensor.shape) - 1)
        if not _dimensions(read, last.var) <= {own}:
            return False
    return True


def _moved(op: Operation, dimension: int) -> Layout:
    """A stage with one of its dimensions last."""
    order = _in_order(list(op.axis), dimension)
    [tensor] = with_bodies(op, bodies(op), order)
    return Layout(tensor, lambda indices: _in_order(indices, dimension))


def _in_order(parts: Sequence[T], last: int) -> list[T]:
    """``[a, b, c, d], 1 → [a, c, d, b]``"""
    return [*parts[:last], *parts[last + 1 :], parts[last]]
