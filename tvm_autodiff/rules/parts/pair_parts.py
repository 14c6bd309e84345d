"""What slow functions of pairs of points are of, as stages of their own, which are differentiated
instead.

Each component of both points gets a term of the adjoint. Without such a stage, each of the terms
computes the functions again, and the derivative of each term has as many terms again: a second
derivative of an energy of points with three components has six times six.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.costly import is_slow
from ...expr.nodes import (
    BRANCHES,
    Axis,
    Expr,
    Tensor,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ...expr.rewrite import contains_load, depends_on, postorder, preorder
from ...graph.out_of_bounds import is_inside
from ...graph.stage import Operation, reduction_of
from ..reductions.reducers import classify
from .common_part import Place, common_part, places_below
from .stencil_parts import place_of
from .stored import Parts, needed_operands, parts_of


def pair_parts(op: Operation) -> list[Tensor] | None:
    """The results of an equal stage that reads what slow functions of pairs are of; None if there
    is no such part.

    ``y = Σ_ij exp(-((x[i, 0] - x[j, 0])**2 + (x[i, 1] - x[j, 1])**2))  →  p[i, j] = (x[i, 0] -
    x[j, 0])**2 + (x[i, 1] - x[j, 1])**2, y = Σ_ij exp(-p[i, j])``

    A part reads more elements than loops change it, and more than two, each by some of the loops
    or at data: for a loop alone over elements of a tensor, see `stencil_parts`. In a side of a
    choice by loops, a part calls no slow function, which may be undefined there.
    """
    reduction = reduction_of(op)
    if reduction is not None and classify(reduction.combiner, 0) != "sum":
        return None
    found = parts_of(op, sums=True)
    if found is None:
        return None
    order = postorder(found.sources)
    numbers = {node_id(node): number for number, node in enumerate(order)}
    places = places_below(order, lambda read: _pair_place(read, found.axes))
    certain = {node_id(node) for node in preorder(found.sources, needed_operands)}
    results = set() if reduction is not None else set(map(node_id, found.sources))
    parts: dict[int, Expr] = {}
    for node in preorder(found.sources, _chosen_by_loops):
        if not is_slow(node) or node_id(node) in results:
            continue
        part = common_part(node, places, numbers)
        if part is None:
            continue
        loops = found.facts[node_id(part)].axes
        several = len(places[node_id(part)]) > max(2, len(loops))
        bounded = len(loops & found.symbolic) < 2  # the square of a size may be more than there is
        if several and bounded and (node_id(node) in certain or _is_defined(part, found)):
            parts[node_id(part)] = part
    return found.stored(list(parts.values()), "pair") if parts else None


def _pair_place(read: Expr, axes: Sequence[Axis]) -> Place | None:
    """The tensor and the indices of a read that loops change, if its elements are not as many as
    the points of all loops.
    """
    if place_of(read, axes) is not None:
        return None
    if not any(depends_on(read, [axis.var]) for axis in axes):
        return None
    return (*tensor_key(load_tensor(read)), *map(node_id, operands(read)))


def _chosen_by_loops(node: Expr) -> tuple[Expr, ...]:
    """The operands that are computed for every point, or for those that loops choose."""
    if is_load(node):
        return ()
    by_data = op_name(node) in BRANCHES and contains_load(operands(node)[0])
    return operands(node)[:1] if by_data else operands(node)


def _is_defined(part: Expr, found: Parts) -> bool:
    """Whether a part has a value, and a derivative, at all points of the loops."""
    reads = filter(is_load, preorder(part))
    return not found.facts[node_id(part)].slow and all(
        is_inside(read, found.axes) for read in reads
    )
