"""Applies the solver to a sum: a small box that contains the points where the conditions hold, with
guards.

The axes of the result start at zero and have constant extents. Guards remain only if the box
contains more than the solutions. Conditions that cannot be solved stay guards, so a system beyond
the solver becomes the dense sum, which is slow but correct.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...domain import Domain, DomainTransformation, simplify_domain
from ...errors import UnsolvableError
from ...expr.build import (
    add,
    all_of,
    compare,
    conjuncts,
    equal_integers,
    if_then_else,
    negate,
    variable,
    zero_like,
)
from ...expr.integers.tried_values import Box, as_bounds, literal_box, surely_holds
from ...expr.nodes import (
    Axis,
    Expr,
    Var,
    dtype_of,
    is_const,
    node_id,
    op_name,
    operands,
    same_node,
)
from ...expr.rewrite import (
    contains,
    contains_load,
    depends_on,
    rewrite,
    substituter,
    variables_of,
)
from ...expr.sharing.lets import bind_shared
from ...expr.simplify import collect_terms, prove, simplify
from ...graph.stage import Combiner, axis_range, bounds_of, reduce_axis_over, rename_bounds
from ...rules.terms import Condition, guarded
from .conditions import in_order, on_indices, settled
from .data.bounds import rare, windows_of
from .data.equations import (
    Points,
    inside_conditions,
    is_data_equation,
    reads_inside,
    solve_data_equations,
)
from .point_order import with_points_in_order
from .sum import Definition, Sum, Target, of_one_point
from .windows import Ranges, constant_box, is_jagged, nonempty, within


def solve(
    definition: Definition,
    target: Target,
    value: Expr,
    conditions: Sequence[Condition],
    axes: Sequence[Axis],
    equations: Sequence[Expr] = (),
    combiner: Combiner | None = None,
) -> Sum | None:
    """``Σ_axes if conditions then value``, over a box in which few points violate the conditions.

    Parameters
    ----------
    definition : Definition
        The definition of the sum.
    target : Target
        The elements that the sum is for, which are the other variables.
    value : Expr
        The summed expression.
    conditions : sequence of Condition
        Conditions. Those that involve only indices are solved, others stay in the source.
    axes : sequence of Axis
        The axes of the sum. Bounds may depend on other axes.
    equations : sequence of Expr
        Further conditions that read tensors, solved as far as possible.
    combiner : Combiner, optional
        The reducer in place of the sum. Its identity is the value of points that do not count, and
        the others stay in their order.

    Returns
    -------
    Sum or None
        None if the conditions never hold.

    Raises
    ------
    UnsolvableError
        If sizes do not bound an axis, or if points do not stay in their order.
    """
    parameters, written = target.ranges, [axis.var for axis in axes]
    loops, axes, bounds = _data_loops(axes, equations)
    looping = [axis.var for axis in loops]
    index_conditions, others = [], list(bounds)
    for condition in conditions:
        if on_indices(condition.expr) and not depends_on(condition.expr, looping):
            index_conditions.append(condition.expr)
        else:
            others.append(condition)
    box, limits = constant_box({a.var: axis_range(a) for a in axes if not is_jagged(a)})
    box |= {axis.var: (0, None) for axis in axes if is_jagged(axis)}
    domain = Domain(tuple(box), {**box, **parameters}, (*equations, *index_conditions, *limits))
    solution = simplify_domain(domain)
    if solution.new_domain.is_empty:
        return None
    new = solution.new_domain
    move = substituter(solution.old_to_new)
    remaining = [part for c in new.conditions for part in conjuncts(c)]
    guards = [c for c in remaining if on_indices(c)]
    data = [c for c in remaining if not on_indices(c)]
    dense = [c for c in remaining if op_name(c) == "eq" and depends_on(c, new.variables)]
    found = solve_data_equations(
        Points(
            new.variables,
            {**parameters, **new.ranges},
            (
                *(Condition(c, True) for c in guards),
                *(Condition(move(c.expr), c.guards) for c in others),
            ),
            {},
        ),
        [rename_bounds(loop, move) for loop in loops],
    )
    if found is None:
        return None
    move_on = found.move
    known = [c.expr for c in found.conditions if on_indices(c.expr)]
    others = [c for c in found.conditions if not on_indices(c.expr)]
    ranges = {**parameters, **found.ranges}
    # conditions on data, and the conditions before them
    early = [*map(move_on, data), *(c.expr for c in others)] if data else []
    if not all(reads_inside(c, ranges) for c in early):
        every = {axis.var: axis_range(axis) for axis in axes if not is_jagged(axis)}
        solved = {v: bounds for v, bounds in every.items() if contains_load(move(v))}
        filled = [move_on(move(condition)) for condition in nonempty(solved)]
        if any(not same_node(move_on(c), c) for c in data):
            # and the bounds of an axis that a read now determines
            filled += [move_on(move(condition)) for condition in within(solved)]
        # the solver drops conditions that follow from equations with reads, but the reads need them
        # first
        plain = {v: bounds for v, bounds in every.items() if v not in solved}
        filled += [c for c in map(move_on, map(move, within(plain))) if on_indices(c)]
        # bounds that all read do not imply their joint consequences either: `m = 3 - k - i` and `k
        # = b - I[3 - i]` with m, k < 2 imply that i is not 0
        here = [c for c in (*filled, *known) if on_indices(c)]
        filled += [c for c in inside_conditions(early, ranges) if not _follows(c, here, ranges)]
        known = [*(c for c in filled if on_indices(c) and not prove(c, ranges)), *known]
        data = [*(c for c in filled if not on_indices(c)), *data]
    box_of_all = literal_box(ranges)
    known = [c for c in known if not (_divides(c) and surely_holds(c, box_of_all))]
    known = _linear(known, box_of_all)
    masks = [*(c.expr for c in others if is_data_equation(c.expr)), *rare(others)]
    between = [bound for one in windows_of(others) for bound in one.bounds]
    windows = [*between, *map(move_on, data)]
    equal = [c for c in (*(c.expr for c in others), *map(move_on, data)) if is_data_equation(c)]
    every_axis = [*found.variables, *looping]
    loose = [var for axis in axes for var in _loose(axis, equations, solution)]
    source = guarded(
        _at_one_place(
            settled(collect_terms(move_on(move(value))), found.variables, parameters), known
        ),
        [
            *([Condition(all_of(known), True)] if known else []),
            *in_order(others, [Condition(move_on(c), False) for c in data]),
        ],
        None if combiner is None else combiner.identity[0],
    )
    summed = [reduce_axis_over(var, found.ranges[var][1]) for var in found.variables]
    for loop in loops:
        extent = move_on(move(bounds_of(loop)[1]))
        if not reads_inside(extent, ranges):
            allowed = all_of(c for c in known if not depends_on(c, looping))
            extent = if_then_else(allowed, extent, zero_like(extent))
        summed.append(reduce_axis_over(loop.var, extent))
    result = Sum(
        tuple(summed),
        bind_shared(source if summed else of_one_point(combiner, source)),
        tuple(known),
        tuple(map(move_on, dense)),
        tuple(
            c
            for c in {node_id(c): c for c in masks}.values()
            if _is_join(c, found.variables, parameters) and depends_on(c, loose)
        ),
        definition,
        target,
        windows=tuple(c for c in windows if _is_join(c, found.variables, parameters)),
        # elsewhere, what protects their reads may depend on an axis
        placed=tuple(c for c in equal if not depends_on(c, every_axis) and reads_inside(c, ranges)),
        combiner=combiner,
    )
    if combiner is None:
        return result
    return with_points_in_order(result, [move_on(move(var)) for var in written])


def _divides(condition: Expr) -> bool:
    """Whether a condition is beyond linear inequalities, which the solver decides itself."""
    return contains(condition, lambda node: op_name(node) in ("floordiv", "floormod"))


def _linear(conditions: Sequence[Expr], box: Box) -> list[Expr]:
    """Conditions of which those with quotients are linear, where they are equal to linear ones."""
    found = [[condition] for condition in conditions]
    for number, condition in enumerate(conditions):
        if _divides(condition):
            others = [one for part in (*found[:number], *found[number + 1 :]) for one in part]
            found[number] = as_bounds(condition, box, others)
    return [condition for part in found for condition in part]


def _at_one_place(value: Expr, conditions: Sequence[Expr]) -> Expr:
    """``if i == 1 then x[i, (i + 1) % 2] → x[i, 0]``: quotients of an index that has one value."""
    places = {
        node_id(operands(c)[0]): operands(c)
        for c in conditions
        if op_name(c) == "eq" and op_name(operands(c)[0]) == "var" and is_const(operands(c)[1])
    }

    def visit(node: Expr) -> Expr | None:
        variables = variables_of(node) if op_name(node) in ("floordiv", "floormod") else []
        if len(variables) != 1 or node_id(variables[0]) not in places:
            return None
        var, place = places[node_id(variables[0])]
        return simplify(substituter({var: place})(node))

    return rewrite(value, visit) if places else value


def unsolved(definition: Definition, target: Target) -> Sum:
    """The sum over all points for every element: no axis is bounded, and each equation is a guard.

    ``out[g(k)] += v(k), for k < n → Σ_{k<n} if g(k) == b then v(k)``
    """
    found = definition.updates(target)
    prefix = zip(found.prefix, target.prefix, strict=False)
    table: dict[Var, Expr] = {own.var: axis.var for own, axis in prefix}
    axes: list[Axis] = []
    for axis in found.axes:
        moved = rename_bounds(axis, substituter(table))
        low, extent = bounds_of(moved)
        fresh = variable(axis.var.name, dtype_of(axis.var))
        table[axis.var] = fresh if is_const(low, 0) else add(low, fresh)
        axes.append(reduce_axis_over(fresh, extent))
    move = substituter(table)
    here = [*([] if found.prefix else (a.var for a in target.prefix)), *target.indices]
    pairs = zip(found.place, here, strict=True)
    equations = [equal_integers(move(index), place) for index, place in pairs]
    conditions = [Condition(move(c.expr), c.guards) for c in found.conditions]
    source = guarded(move(found.value), [*conditions, *(Condition(e, True) for e in equations)])
    return Sum(
        tuple(axes), bind_shared(source), tuple(equations), tuple(equations), (), definition, target
    )


def _data_loops(
    axes: Sequence[Axis], equations: Sequence[Expr]
) -> tuple[list[Axis], list[Axis], list[Condition]]:
    """Splits axes: those with data as bounds that stay loops, and the others.

    Also returns the bounds of the other axes that an equation determines.
    """
    loops: list[Axis] = []
    others: list[Axis] = []
    bounds: list[Condition] = []
    for axis in axes:
        tied = any(depends_on(equation, [axis.var]) for equation in equations)
        (loops if is_jagged(axis) and not tied else others).append(axis)
        if is_jagged(axis) and tied:
            bounds.append(Condition(compare("lt", axis.var, bounds_of(axis)[1]), True))
    return loops, others, bounds


def _loose(axis: Axis, equations: Sequence[Expr], solution: DomainTransformation) -> list[Var]:
    """The new variable that an axis equals up to a shift, if nothing ties it to other axes."""
    found = variables_of(solution.old_to_new[axis.var])
    tied = len(found) != 1 or any(depends_on(equation, [axis.var]) for equation in equations)
    return [] if tied else found


def _follows(condition: Expr, given: Sequence[Expr], ranges: Ranges) -> bool:
    """Whether the solver shows that a condition on indices follows from others."""
    variables = [var for var in variables_of([condition, *given]) if var in ranges]
    opposite = Domain(tuple(variables), dict(ranges), (*given, negate(condition)))
    try:
        return simplify_domain(opposite).new_domain.is_empty
    except UnsolvableError:
        return False


def _is_join(equation: Expr, summed: Sequence[Var], parameters: Ranges) -> bool:
    """Whether an equation tests pairs of points: ``I[n] == J[e]``, unlike ``I[n] == 3``."""
    axes = {node_id(var) for var in (*summed, *parameters)}
    count = sum(node_id(var) in axes for var in variables_of(equation))
    return count > 1 and depends_on(equation, summed)
