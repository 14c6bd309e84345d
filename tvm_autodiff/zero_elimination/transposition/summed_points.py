"""Sums a term over the loops that its read does not depend on, before it is transposed.

In the places of windows that are gathered, the gradient of a product is a product again, and one
gather brings it to the places of the tensor. Solved as a whole, the quotients of these places stand
in the inner loop of a sum whose rows lie apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ...expr.build import variable
from ...expr.nodes import Expr, Var, dtype_of, is_load, op_name, operands
from ...expr.rewrite import contains, contains_load, depends_on, postorder, substituter
from ...expr.sharing.lets import bind_shared
from ...expr.simplify import simplify
from ...graph.bounded_stage import bounded_stage
from ...graph.sizes.loop_sizes import is_size
from ...graph.sizes.nonnegative import nonnegative
from ...graph.stage import (
    Extent,
    axis_range,
    axis_vars,
    data_axis,
    reduce_axis,
    shape_of,
    sum_over,
)
from ...rules.terms import Term, guarded
from ..sums.iterations import element_count, sample_size
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


def with_summed_points(
    whole: TermSum, target: Target
) -> tuple[TermSum, Callable[[int], int]] | None:
    """``d out[a, k] += p(a, k)·dx[g(a)]  →  s[a] = Σ_k head[a, k]·p(a, k), d s[a] += dx[g(a)]``.

    Returns
    -------
    (TermSum, callable) or None
        The term that reads the new stage, and from a value for unknown sizes to the points of that
        stage with its sum. None unless the read divides, for an identity as cotangent, for extents
        that are data or change from loop to loop, and if the new stage is not much smaller than the
        sum, or larger than the tensors around it.
    """
    op, term = whole.op, whole.term
    if not contains(term.indices, _is_division) or contains_load(term.indices) or target.prefix:
        return None
    seed = dense_seed(whole.cotangent, axis_vars(op))
    axes = (*op.axis, *term.reduce_axes)
    extents: dict[Var, Extent] = {}
    for axis in axes:
        low, extent = axis_range(axis)
        if low != 0 or not is_size(extent, axes):
            return None
        extents[axis.var] = extent
    if seed is None:
        return None
    own = sorted(
        (axis for axis in axes if depends_on(term.indices, [axis.var])),
        key=lambda axis: _dimension(term.indices, axis.var),
    )
    summed = [axis for axis in axes if not depends_on(term.indices, [axis.var])]
    size = sample_size(extents.values())
    points, each = (element_count([extents[a.var] for a in part], size) for part in (own, summed))
    tensors = op.output(term.component), term.tensor
    largest = max(element_count(shape_of(tensor), size) for tensor in tensors)
    if not own or each < _FEWER or points > largest:
        return None
    fresh = [
        data_axis(axis.var.name, nonnegative(extents[axis.var]), dtype_of(axis.var)) for axis in own
    ]
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
    return TermSum(stage.op, alone, Cotangent(stage)), partial(element_count, extents.values())


def _dimension(indices: Sequence[Expr], var: Var) -> int:
    """The last dimension of a tensor whose index depends on a variable."""
    return max(place for place, index in enumerate(indices) if depends_on(index, [var]))
