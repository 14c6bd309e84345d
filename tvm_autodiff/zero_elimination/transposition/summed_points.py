"""Sums a term over the loops that its read does not depend on, before it is transposed.

In the places of windows that are gathered, the gradient of a product is a product again, and one
gather brings it to the places of the tensor. Solved as a whole, the quotients of these places stand
in the inner loop of a sum whose rows lie apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ...expr.build import variable
from ...expr.nodes import Axis, Expr, Tensor, Var, dtype_of, is_load, op_name, operands
from ...expr.rewrite import contains, contains_load, depends_on, postorder, substituter
from ...expr.sharing.lets import bind_shared
from ...expr.simplify import simplify
from ...graph.bounded_stage import bounded_stage
from ...graph.stage import axis_range, axis_vars, data_axis, reduce_axis, shape_of, sum_over
from ...rules.terms import Term, guarded
from ..sums.sum import Sum, Target
from .gather import Cotangent, TermSum, dense_seed

#: a further stage may have a tenth of the points of the sum, as in the table of strategies
_FEWER = 10


def divides(found: Sum) -> bool:
    """Whether guards, or indices by several loops, take quotients at the points of a sum.

    An index by the quotient of one loop is an index by a loop that is split.
    """
    if not found.axes:
        return False
    nodes = postorder(found.source)
    ranges = {axis.var: axis_range(axis) for axis in (*found.target.every_axis, *found.axes)}
    indices = [index for node in nodes if is_load(node) for index in operands(node)]
    mixed = [e for e in indices if sum(depends_on(e, [var]) for var in ranges) > 1]
    divided = [e for e in mixed if contains(e, _is_division) and not contains_load(e)]
    return contains([*found.guards, *(simplify(e, ranges) for e in divided)], _is_division)


def _is_division(node: Expr) -> bool:
    return op_name(node) in ("floordiv", "floormod")


def with_summed_points(whole: TermSum, target: Target) -> tuple[TermSum, int] | None:
    """``d out[a, k] += p(a, k)·dx[g(a)]  →  s[a] = Σ_k head[a, k]·p(a, k), d s[a] += dx[g(a)]``.

    Returns
    -------
    (TermSum, int) or None
        The term that reads the new stage, and the points of that stage with its sum. None unless
        the read divides, for an identity as cotangent and loops of unknown extent, and if the new
        stage is not much smaller than the sum, or larger than the tensors around it.
    """
    op, term = whole.op, whole.term
    if not contains(term.indices, _is_division) or contains_load(term.indices) or target.prefix:
        return None
    seed = dense_seed(whole.cotangent, axis_vars(op))
    axes = (*op.axis, *term.reduce_axes)
    extents = {axis.var: _extent(axis) for axis in axes}
    if seed is None or None in extents.values():
        return None
    own = sorted(
        (axis for axis in axes if depends_on(term.indices, [axis.var])),
        key=lambda axis: _dimension(term.indices, axis.var),
    )
    summed = [axis for axis in axes if not depends_on(term.indices, [axis.var])]
    points, each = (prod(extents[axis.var] or 0 for axis in part) for part in (own, summed))
    largest = max(_size(op.output(term.component)), _size(term.tensor))
    if not own or each < _FEWER or points > largest:
        return None
    fresh = [data_axis(axis.var.name, extents[axis.var], dtype_of(axis.var)) for axis in own]
    inner = [reduce_axis(a.var.name, extents[a.var], 0, dtype_of(a.var)) for a in summed]
    pairs = zip((*own, *summed), (*fresh, *inner), strict=True)
    table: dict[Var, Expr] = {old.var: new.var for old, new in pairs}
    rename = substituter({**table, term.seed: substituter(table)(seed)})
    source = guarded(
        rename(term.value), [replace(c, expr=rename(c.expr)) for c in term.conditions]
    )
    body = sum_over(bind_shared(source), inner)
    [stage] = bounded_stage(f"{whole.name}_points", fresh, [body])
    here = variable("seed", dtype_of(source))
    moved = tuple(map(substituter(table), term.indices))
    alone = Term(term.tensor, moved, 0, here, here, (), ())
    return TermSum(stage.op, alone, Cotangent(stage)), points * each


def _extent(axis: Axis) -> int | None:
    low, extent = axis_range(axis)
    return extent if low == 0 and isinstance(extent, int) else None


def _size(tensor: Tensor) -> int:
    """The number of elements; the others do not count where one of the extents is unknown."""
    return prod(extent for extent in shape_of(tensor) if isinstance(extent, int))


def _dimension(indices: Sequence[Expr], var: Var) -> int:
    """The last dimension of a tensor whose index depends on a variable."""
    return max(place for place, index in enumerate(indices) if depends_on(index, [var]))
