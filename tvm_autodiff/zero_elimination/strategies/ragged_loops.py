"""Replaces a mostly empty box by loops whose extents follow the guards.

Linear guards, such as ``b <= k and k <= l`` of nested triangles, become extents that depend on the
axes of the result and on earlier axes, so that few points fail. Loops of constant extents vectorise
and tile better, so this strategy applies only to boxes that are mostly empty, counted at sampled
points, and never to products of tensors. Windows that extend beyond a border stay boxes, because
they fail only there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import prod

from ...domain import Domain, solve_linear_inequalities
from ...errors import UnsolvableError
from ...expr.build import (
    add,
    all_of,
    compare,
    conjuncts,
    const,
    if_then_else,
    sub,
    variable,
)
from ...expr.integers.integer_functions import compile_integers
from ...expr.integers.tried_values import literal_box, surely_holds
from ...expr.nodes import (
    Axis,
    Expr,
    Var,
    always,
    binary,
    const_value,
    dtype_of,
    is_const,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
    same_node,
    tensor_key,
)
from ...expr.rewrite import contains_load, depends_on, postorder, substituter, variables_of
from ...expr.simplify import prove, simplify
from ...graph.stage import Extent, axis_range, reduce_axis_over
from ..sums.iterations import box_iterations
from ..sums.sum import Sum, of_one_point

#: the minimum fraction of points that satisfy the guards for a box to stay a box
_LEAST_FILLED = 0.5
#: the number of points of a box that are tried
_SAMPLES = 2048


def ragged_loops(whole: Sum) -> Sum | None:
    """``Σ_{k<6, l<6} if b <= k and k <= l then f  →  Σ_{k < 6-b} Σ_{l < 6-b-k} f[k+b, l+k+b]``.

    None if the box is not mostly empty, the guards bound no axis, or an extent is not a literal.
    """
    if whole.unsolved or not whole.axes or not whole.guards:
        return None
    outer: dict[Var, tuple[int, int]] = {}
    for axis in (*whole.target.every_axis, *whole.axes):
        low, extent = axis_range(axis)
        if not isinstance(low, int) or not isinstance(extent, int):
            return None
        outer[axis.var] = (low, extent)
    body = _unguarded(whole)
    summed = [axis.var for axis in whole.axes]
    if body is None or _multiplies_tensors(body, summed):
        return None
    loose: list[Expr] = []
    firm: list[Expr] = []
    for group in _independent(whole.guards):
        (loose if _filled(group, outer) <= _LEAST_FILLED else firm).extend(group)
    bounds = solve_linear_inequalities(Domain(tuple(summed), dict(outer), tuple(loose)))
    if bounds.is_empty:  # no point has both: the guards leave zeros
        return None
    axes: list[Axis] = []
    guards = [*bounds.conditions, *firm]
    moved: dict[Var, Expr] = {}
    ranges: dict[Var, tuple[Extent, Extent]] = dict(outer)
    for var in summed:
        move = substituter(moved)
        lower = [move(_as_expr(bound, var)) for bound in bounds.lower[var]]
        upper = [move(_as_expr(bound, var)) for bound in bounds.upper[var]]
        low = simplify(_one("max", _decisive("max", lower, ranges)), ranges)
        high = simplify(_one("min", _decisive("min", upper, ranges)), ranges)
        one = const(1, dtype_of(var))
        extent = simplify(add(sub(high, low), one), ranges)
        fresh = variable(var.name, dtype_of(var))
        if not prove(compare("ge", extent, one), ranges, strong=True):
            # a sum must not be empty, because TVM would not write its element
            guards.append(compare("le", var, high))
            extent = simplify(binary("max", extent, one), ranges)
        size = const_value(extent)
        axes.append(reduce_axis_over(fresh, extent if size is None else int(size)))
        ranges[fresh] = (0, axis_range(axes[-1])[1])
        moved[var] = add(low, fresh)
    if all(isinstance(axis_range(axis)[1], int) for axis in axes):
        if box_iterations(axes) == box_iterations(whole.axes):
            return None
        single: dict[Var, Expr] = {  # of one point: no loop
            axis.var: const(0, dtype_of(axis.var)) for axis in axes if axis_range(axis)[1] == 1
        }
        moved = {var: simplify(substituter(single)(place), ranges) for var, place in moved.items()}
        axes = [axis for axis in axes if axis_range(axis)[1] != 1]
    move = substituter(moved)
    kept = tuple(
        guard for guard in (simplify(move(guard), ranges) for guard in guards) if not always(guard)
    )
    source = move(body)
    if kept:
        source = if_then_else(all_of(kept), source, whole.otherwise)
    if not axes:
        source = of_one_point(whole.combiner, source)
    return replace(whole, axes=tuple(axes), source=source, guards=kept)


def _unguarded(whole: Sum) -> Expr | None:
    """The source inside its guards, which are outermost, or None for another form."""
    if op_name(whole.source) != "if_then_else":
        return None
    condition, body, otherwise = operands(whole.source)
    if not is_const(otherwise, const_value(whole.otherwise)):
        return None
    if len(conjuncts(condition)) != len(whole.guards):
        return None
    return body


def _as_expr(bound: Expr | int, var: Var) -> Expr:
    return const(bound, dtype_of(var)) if isinstance(bound, int) else bound


def _one(name: str, bounds: Sequence[Expr]) -> Expr:
    """The minimum or maximum of bounds of a variable."""
    return reduce(lambda left, right: binary(name, left, right), bounds)


def _decisive(
    name: str, bounds: Sequence[Expr], ranges: Mapping[Var, tuple[Extent, Extent]]
) -> list[Expr]:
    """The bounds without those that another one is never looser than."""
    box = literal_box(ranges)
    kept = list(bounds)
    for bound in bounds:
        others = [other for other in kept if not same_node(other, bound)]
        tighter = "ge" if name == "max" else "le"
        if any(surely_holds(compare(tighter, other, bound), box) for other in others):
            kept = others
    return kept


def _multiplies_tensors(body: Expr, summed: Sequence[Var]) -> bool:
    """Whether two tensors are multiplied under the sum: a contraction, which tiles make fast."""
    reads = [node for node in postorder(body) if is_load(node) and depends_on(node, summed)]
    return len({tensor_key(load_tensor(node)) for node in reads}) > 1


def _independent(guards: Sequence[Expr]) -> list[list[Expr]]:
    """Guards in groups that share no variable: those of one window axis, or of one triangle."""
    groups: list[tuple[set[int], list[Expr]]] = []
    for guard in guards:
        ids = {node_id(var) for var in variables_of(guard)}
        members = [guard]
        apart = []
        for known, others in groups:
            if known & ids:
                ids |= known
                members = [*others, *members]
            else:
                apart.append((known, others))
        groups = [*apart, (ids, members)]
    return [members for _, members in groups]


def _filled(guards: Sequence[Expr], ranges: Mapping[Var, tuple[int, int]]) -> float:
    """The fraction of points that satisfy the guards, on a regular sample of the axes in them.

    It is one if it cannot be counted because guards read sizes or data or hold functions whose
    values are not known, or if there are no points.
    """
    named = variables_of(guards)
    if contains_load(guards) or any(var not in ranges for var in named):
        return 1.0
    box = {var: ranges[var] for var in named}
    try:
        holds = compile_integers(guards, list(box))
    except UnsolvableError:
        return 1.0
    volume = prod(extent for _, extent in box.values())
    tried = min(volume, _SAMPLES)
    if not tried:
        return 1.0
    hits = 0
    for n in range(tried):
        place, point = n * volume // tried, []
        for low, extent in box.values():
            place, digit = divmod(place, extent)
            point.append(low + digit)
        hits += all(holds(*point))
    return hits / tried
