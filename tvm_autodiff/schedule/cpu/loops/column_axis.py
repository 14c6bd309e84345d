"""Reductions along columns: the output axis that has vectors, and the piece of it on which every
condition is decided for all that is reduced.

``y[j] = Σ_{k<20} if k <= j then x[j - k] else 0, j < 99``: on 19 <= j < 99 it is ``Σ_k x[j - k]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from ....codegen.passes.short_circuit import holds_mark
from ....expr.build import all_of, conjuncts, if_then_else
from ....expr.nodes import Expr, const_value, node_id, op_name, operands
from ....expr.rewrite import depends_on, expand_lets
from ....graph.stage import Operation, Reduction, axis_range, loop_axes, reduction_of
from ....graph.structural import StructuralKeys
from ...cost import MIN_LANES
from ...declined import Declined, no_gain
from ...kernel import Kernel
from ...nest.access import Interval, has_branches, is_flat, strides_along
from ...nest.axis_bounds import longest_piece
from ...nest.decided import decided
from ...rewrites.conditions.guards import selected


class Reduced(NamedTuple):
    """What is reduced, and the conditions under which it is not the identity."""

    guards: tuple[Expr, ...]
    values: tuple[Expr, ...]


@dataclass(frozen=True)
class Columns:
    """A reduction, and the output axis along which it has vectors.

    Attributes
    ----------
    kernel : Kernel
    reduction : Reduction
    body : Reduced
        What is reduced at any place.
    along : int or None
        The number of the axis; None if there are no vectors.
    piece : (int, int) or None
        The first and last element of the piece in vectors; None for an axis of symbolic extent.
    inside : Reduced
        What is reduced on this piece.
    merged : bool
        Whether the axes before it are parts of the piece.
    """

    kernel: Kernel
    reduction: Reduction
    body: Reduced
    along: int | None
    piece: Interval | None
    inside: Reduced
    merged: bool = False


def _reduction_of(kernel: Kernel) -> Reduction:
    reduction = reduction_of(kernel.root)
    assert reduction is not None
    return reduction


def single_columns(kernel: Kernel) -> Columns:
    """Results one after the other."""
    reduction = _reduction_of(kernel)
    body = _body_of(reduction)
    return Columns(kernel, reduction, body, None, None, body)


def part_columns(kernel: Kernel) -> Columns:
    """Vectors along the first output axis, of literal extent, whatever the reads are."""
    reduction = _reduction_of(kernel)
    body = Reduced((), selected(reduction.sources, loop_axes(kernel.root)))
    piece = (0, int(axis_range(kernel.root.axis[0])[1]) - 1)
    return Columns(kernel, reduction, body, 0, piece, body)


def vector_columns(kernel: Kernel, lanes: int, gathered: bool = False) -> Columns | Declined:
    """Vectors along the last output axis, if reads are contiguous along it or may be `gathered`."""
    root, reduction = kernel.root, _reduction_of(kernel)
    if not len(root.axis):
        return Declined("it reduces no columns")
    along = len(root.axis) - 1
    body = _body_of(reduction)
    if kernel.epilogue is None and is_flat(root, lanes):
        last = prod(axis_range(axis)[1] for axis in root.axis) - 1
        return Columns(kernel, reduction, body, along, (0, last), body, merged=True)
    axes = loop_axes(root)
    ranges: dict[int, Interval] = {}
    for axis in axes:
        low, extent = axis_range(axis)
        if isinstance(low, int) and isinstance(extent, int) and extent > 0:
            ranges[node_id(axis.var)] = (low, low + extent - 1)
    var, variables = root.axis[along].var, [axis.var for axis in axes]
    piece = ranges.get(node_id(var))
    inside = Reduced((), selected(reduction.sources, axes))
    reason = _reason_against(inside, root, gathered)
    if piece is not None and reason is not None:
        piece = longest_piece([*body.guards, *body.values], var, variables, ranges)
        known = {**ranges, node_id(var): piece}
        guards = decided(body.guards, variables, known)
        values = decided(body.values, variables, known)
        parts = [part for guard in guards for part in conjuncts(guard)]
        inside = Reduced(tuple(parts), selected(values, axes))
        reason = _reason_against(inside, root, gathered)
    if reason is not None:
        return reason
    if piece is not None and piece[1] - piece[0] + 1 < MIN_LANES:
        return no_gain("its last axis is shorter than a vector, or has many conditions")
    return Columns(kernel, reduction, body, along, piece, inside)


def _reason_against(inside: Reduced, root: Operation, gathered: bool) -> Declined | None:
    """Why there are no vectors along the last axis."""
    var = root.axis[-1].var
    strides = strides_along(inside.values, var, [axis.var for axis in loop_axes(root)])
    if not gathered and (not strides or max(strides) != 1):
        return no_gain("its reads are not contiguous along its last axis")
    if has_branches(inside.values, var) or any(depends_on(one, [var]) for one in inside.guards):
        return no_gain("it has branches along its last axis")
    return None


def _body_of(reduction: Reduction) -> Reduced:
    """``if c then f else identity → f under the condition c``, if it holds for all components."""
    identities = reduction.combiner.identity
    found = [
        _conditioned(expand_lets(source), identity)
        for source, identity in zip(reduction.sources, identities, strict=True)
    ]
    guarded = [one for one in found if one is not None]
    keys = StructuralKeys()
    each = [{keys.expr(guard) for guard in one.guards} for one in guarded]
    common = set.intersection(*each) if each else set()
    values = []
    for one, identity in zip(found, identities, strict=True):
        own = [guard for guard in one.guards if keys.expr(guard) not in common] if one else []
        value = identity if one is None else one.values[0]
        values.append(if_then_else(all_of(own), value, identity) if own else value)
    shared = [guard for guard in guarded[0].guards if keys.expr(guard) in common] if each else []
    return Reduced((*conjuncts(reduction.condition), *shared), tuple(values))


def _conditioned(value: Expr, identity: Expr) -> Reduced | None:
    """``if c then f else identity`` as f and the parts of c; None for the identity itself. A
    condition on data, which may fail by itself, stays where it is.
    """
    nothing = const_value(identity)
    if nothing is not None and const_value(value) == nothing:
        return None
    guards: list[Expr] = []
    while op_name(value) == "if_then_else":
        condition, then, other = operands(value)
        if const_value(other) is None or const_value(other) != nothing or holds_mark(condition):
            break
        guards += conjuncts(condition)
        value = then
    return Reduced(tuple(guards), (value,))
