"""Sums into the places of a flat tensor are sums over the digits of the places, of which the tensor
is a view.

The gradient of what reads a flat array by the indices of several dimensions is such a sum: over
these dimensions it is that of a tensor that has them.

    ``dx[q] = Σ_k f(q//20, q//4%5, q%4, k), q < 100  →  t[a, b, c] = Σ_k f(a, b, c, k),
    dx[q] = t[q//20, q//4%5, q%4]``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....expr.linear_terms import linear_terms
from ....expr.nodes import Axis, Expr, Tensor, load, op_name, operands, same_node, tensor_key
from ....expr.rewrite import contains, depends_on, expand_lets, postorder, preorder
from ....expr.sharing.lets import bind_shared
from ....graph.graph import Graph, Replacement, each_original_stage, retarget
from ....graph.stage import (
    Operation,
    axis_range,
    axis_vars,
    is_compute,
    make_stage,
    reduction_bounds,
    reduction_of,
    reduction_stage,
    renew_axis,
    shape_of,
)
from ...cost import MIN_LANES, STORE
from ...kernel import size_of
from ...nest.literals import FLOOR_DIVISIONS
from .digit_dimensions import DigitLoops, over_digits


def with_digit_results(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Equal tensors, whose sums divide none of their axes by literals.

    A sum of which each axis has two digits keeps the stage that ends it: `quotient_axes` splits
    both. Where a dimension takes a few sums in turns, as in a transposed convolution, these are
    apart if they are long: an element of each takes longer than to store it and to read it again.
    Short ones that the last dimension takes in turns stay, too: `windows` writes each in vectors.
    """
    graph = Graph(outputs)
    wanted = set(map(tensor_key, outputs))

    def change(op: Operation, replacement: Replacement) -> Sequence[Tensor]:
        current = retarget(op, replacement)
        return _changed(current[0].op, _is_ended(op, graph, wanted)) or current

    return each_original_stage(outputs, change)


def _takes_turns(digits: Sequence[Axis]) -> bool:
    """Whether a dimension takes a few sums in turns."""
    extent = axis_range(digits[-1])[1]
    return len(digits) > 1 and isinstance(extent, int) and extent < 2 * MIN_LANES


def _reads_by_digits(sources: Sequence[Expr], axis: Axis) -> bool:
    """Whether quotients and remainders of an axis alone say what is read: no read runs along it."""

    def below(node: Expr) -> Sequence[Expr]:
        if op_name(node) in FLOOR_DIVISIONS:
            terms, _ = linear_terms(operands(node)[0])
            if len(terms) == 1 and same_node(terms[0][0], axis.var):
                return ()
        return operands(node)

    return not any(same_node(node, axis.var) for node in preorder(list(sources), below))


def _divides_digits(found: DigitLoops) -> bool:
    """Whether digits are divided again, or wrap around: then loops over them gain nothing."""
    digits = [axis.var for group in found.groups for axis in group if len(group) > 1]
    return any(
        op_name(node) in FLOOR_DIVISIONS and depends_on(node, digits)
        for node in postorder(found.values)
    )


def _is_ended(op: Operation, graph: Graph, wanted: set[tuple[int, int]]) -> bool:
    """Whether the only reader of a stage computes an element from each of its own."""
    tensor = op.output(0)
    readers = [] if tensor_key(tensor) in wanted else graph.consumers(tensor)
    return len(readers) == 1 and all(
        is_compute(one) and reduction_of(one) is None and len(one.axis) == len(shape_of(tensor))
        for one in readers
    )


def _changed(op: Operation, is_ended: bool) -> list[Tensor] | None:
    reduction = reduction_of(op) if is_compute(op) and op.num_outputs == 1 else None
    if reduction is None or reduction.init:
        return None
    if any(depends_on(bound, axis_vars(op)) for bound in reduction_bounds(op)):
        return None  # the loops of ragged sums are left as they are
    sources = list(map(expand_lets, reduction.sources))
    if not contains(sources, lambda node: op_name(node) in FLOOR_DIVISIONS):
        return None
    literal = [n for n, axis in enumerate(op.axis) if isinstance(axis_range(axis)[1], int)]
    found = over_digits(sources, op.axis, literal, reduction.axes)
    if found is None:
        return None
    if max(map(len, found.groups)) == 2:
        long = size_of([axis_range(axis)[1] for axis in reduction.axes]) >= STORE
        turns = [
            axis
            for axis, digits in zip(op.axis, found.groups, strict=True)
            if _takes_turns(digits) and not (long and _reads_by_digits(sources, axis))
        ]
        apart = any(map(_takes_turns, found.groups)) and not turns
        in_classes = _takes_turns(found.groups[-1]) and not apart
        in_tiles = is_ended and not apart
        if in_classes or in_tiles or _divides_digits(found):
            return None
    [digits] = reduction_stage(
        f"{op.name}_digits",
        found.axes,
        replace(reduction, sources=tuple(map(bind_shared, found.values))),
    )
    axes = [renew_axis(axis) for axis in op.axis]
    places = found.places([axis.var for axis in axes])
    return make_stage(op.name, axes, [load(digits, places)])
