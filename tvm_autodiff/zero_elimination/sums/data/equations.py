"""Solves equations whose solution is data: ``idx[e] == n`` determines n for every e.

The solver treats a read that does not depend on an unknown as a constant, so an equation with reads
is linear in the variables that occur in none of its reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ....domain import Domain, simplify_domain
from ....errors import UnsolvableError
from ....expr.build import cast, compare, conjuncts, variable, zero_like
from ....expr.nodes import (
    INTEGER_DIVISIONS,
    Axis,
    Expr,
    Var,
    const_value,
    dtype_of,
    is_integer,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import (
    contains_load,
    depends_on,
    postorder,
    replace_outermost,
    substituter,
    variables_of,
)
from ....expr.simplify import constant_bounds, prove
from ....expr.structural import StructuralKeys
from ....graph.kinds.scatter_add import as_index, inside
from ....graph.stage import Extent, bounds_of, shape_of
from ....rules.terms import Condition
from ..iterations import BY_DATA, element_count, sample_size
from ..windows import nonempty
from .bounds import windows_of, with_equations

Ranges = Mapping[Var, tuple[Extent, Extent]]

@dataclass(frozen=True)
class Points:
    """The points of a box that satisfy conditions, and expressions for the original variables.

    Attributes
    ----------
    variables : tuple of Var
        The variables, in order. Each has a range.
    ranges : dict of Var to (minimum, extent)
        The ranges of the variables and the parameters.
    conditions : tuple of Condition
        Conditions in order of evaluation. Each may protect the reads of later ones.
    values : dict of Var to expression
        The eliminated variables, in terms of the remaining ones.
    """

    variables: tuple[Var, ...]
    ranges: Ranges
    conditions: tuple[Condition, ...]
    values: Mapping[Var, Expr]

    @property
    def move(self) -> Callable[[Expr], Expr]:
        """A function that rewrites expressions over the original variables."""
        return substituter(self.values)


def is_data_equation(condition: Expr) -> bool:
    """Whether a condition is an equation between integers that reads a tensor."""
    return (
        op_name(condition) == "eq"
        and is_integer(operands(condition)[0])
        and contains_load(condition)
    )


def solve_data_equations(points: Points, loops: Sequence[Axis] = ()) -> Points | None:
    """The points without the variables that equations with reads determine.

    ``{(e, n) : idx[e] == n}  →  {e : 0 <= idx[e] < N}, n = idx[e]``

    Two bounds are an equation as well, where few integers lie between them:
    ``idx[e] <= n < idx[e] + 3`` is ``n == idx[e] + w`` for w in 0 .. 2.

    An equation stays a condition if none of its variables occurs outside its reads, if it may only
    be evaluated after a condition on the variable that it determines, or if that bounds one of the
    `loops` over data, the variables of which the solution has.

    Returns
    -------
    Points or None
        None if the conditions never hold.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.expr.printing.text import text
    >>> idx, e, n = te.placeholder((9,), "int32", "idx"), te.var("e"), te.var("n")
    >>> equation = Condition(idx(e).equal(n + 1), False)
    >>> solved = solve_data_equations(Points((e, n), {e: (0, 9), n: (0, 4)}, (equation,), {}))
    >>> solved.variables, text(solved.values[n]), [text(c.expr) for c in solved.conditions]
    ((e,), 'idx[e] - 1', ['idx[e] >= 1', 'idx[e] <= 4'])
    """
    points = replace(points, conditions=with_equations(points.conditions))
    place = 0
    while place < len(points.conditions):
        if is_data_equation(points.conditions[place].expr):
            solved = _without_equation(points, place, loops)
            if solved is None:
                return None
            if solved is not points:
                points, place = solved, 0
                continue
        place += 1
    for window in windows_of(points.conditions):
        beside = replace(
            points,
            variables=(*points.variables, window.offset),
            ranges={**points.ranges, window.offset: (0, window.width)},
            conditions=window.conditions,
        )
        solved = _without_equation(beside, window.place, loops)
        if solved is None:
            return None
        if solved is not beside and _is_worth_it(solved, points):
            return solve_data_equations(solved, loops)
    return points


def _is_worth_it(solved: Points, points: Points) -> bool:
    """Whether reads of data instead of tests leave so few points that they cost less."""
    extents, replaced = ([one.ranges[v][1] for v in one.variables] for one in (solved, points))
    size = sample_size([*extents, *replaced])
    before = element_count(replaced, size)
    return before > 0 and BY_DATA * element_count(extents, size) <= before


def _without_equation(points: Points, place: int, loops: Sequence[Axis]) -> Points | None:
    """The points with one equation solved, the same points if it cannot be, or None if it never
    holds.
    """
    equation = _exact(points.conditions[place].expr, points.ranges)
    unknowns = unknowns_of(equation, points)
    if not unknowns:
        return points
    solution = simplify_domain(Domain(unknowns, points.ranges, (equation,)))
    new = solution.new_domain
    if new.is_empty:
        return None
    counted = [loop.var for loop in loops]
    for var in unknowns:
        bounds_loop = any(depends_on(bounds_of(loop), [var]) for loop in loops)
        if bounds_loop and depends_on(solution.old_to_new[var], counted):
            return points
    extents = [new.ranges[var][1] for var in new.variables]
    if any(_reads(extent) for extent in extents):
        return points
    replaced = [points.ranges[var][1] for var in unknowns]
    size = sample_size([*extents, *replaced])
    if element_count(extents, size) >= element_count(replaced, size):
        return points
    before, after = points.conditions[:place], points.conditions[place + 1 :]
    free = [c for c in before if not depends_on(c.expr, unknowns)]
    bound = [c for c in before if depends_on(c.expr, unknowns)]
    if bound and not reads_inside(equation, points.ranges):
        return points  # what is before may protect the reads, and would be evaluated after them
    inside = [Condition(part, True) for c in new.conditions for part in conjuncts(c)]
    if not reads_inside(equation, points.ranges):
        filled = nonempty({var: points.ranges[var] for var in unknowns})
        inside = [*(Condition(c, True) for c in filled), *inside]
    move = substituter(solution.old_to_new)
    return Points(
        _replaced(points.variables, unknowns, new.variables),
        {**points.ranges, **{var: new.ranges[var] for var in new.variables}},
        (*free, *inside, *(Condition(move(c.expr), c.guards) for c in (*bound, *after))),
        {
            **{var: solution.old_to_new[var] for var in unknowns},
            **{var: move(value) for var, value in points.values.items()},
        },
    )


def _exact(equation: Expr, ranges: Ranges) -> Expr:
    """``data[e] == uint8(n) → int32(data[e]) == n``, for 0 <= n < 256: no cast wraps."""
    left, right = (_uncast(side, ranges) for side in operands(equation))
    wide = "int64" if "int64" in (dtype_of(left), dtype_of(right)) else "int32"
    return compare("eq", cast(wide, left), cast(wide, right))


def _uncast(side: Expr, ranges: Ranges) -> Expr:
    """A side of an equation in a signed dtype, without value-preserving conversions."""
    if op_name(side) != "cast" or contains_load(side) or not is_integer(operands(side)[0]):
        return as_index(side)
    [inner] = operands(side)
    try:
        low, high = constant_bounds(as_index(inner), ranges)
    except UnsolvableError:
        return as_index(side)
    least, most = _limits(dtype_of(side))
    return as_index(inner if least <= low and high <= most else side)


def _limits(dtype: str) -> tuple[int, int]:
    """The least and the largest value of an integer dtype."""
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def unknowns_of(equation: Expr, points: Points) -> tuple[Var, ...]:
    """The variables that an equation may determine: they occur in it, and in none of its reads."""
    reads = [node for node in postorder(equation) if is_load(node)]
    outside = variables_of(replace_outermost(equation, {node_id(r): zero_like(r) for r in reads}))
    inside = variables_of(reads)
    return tuple(
        var
        for var in points.variables
        if any(node_id(var) == node_id(other) for other in outside)
        and not any(node_id(var) == node_id(other) for other in inside)
    )


def _reads(extent: Extent) -> bool:
    return not isinstance(extent, int) and contains_load(extent)


def reads_inside(expr: Expr, ranges: Ranges) -> bool:
    """Whether every read of an expression is proved to be in bounds."""
    return all(
        _is_inside(index, extent, ranges)
        for node in postorder(expr)
        if is_load(node)
        for index, extent in zip(operands(node), shape_of(load_tensor(node)), strict=True)
    )


def is_defined(expr: Expr, ranges: Ranges) -> bool:
    """Whether an expression may be evaluated at all points: it reads in bounds, and no divisor of
    an integer may be zero.
    """
    divisors = [operands(n)[1] for n in postorder(expr) if op_name(n) in INTEGER_DIVISIONS]
    return reads_inside(expr, ranges) and all(_is_positive(d, ranges) for d in divisors)


def inside_conditions(exprs: Sequence[Expr], ranges: Ranges) -> list[Expr]:
    """The conditions that reads are in bounds, unless this is proved or the condition would read
    itself.

    Reads in branches are ignored.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.expr.printing.text import text
    >>> idx, i = te.placeholder((3,), "int32", "idx"), te.var("i")
    >>> [text(c) for c in inside_conditions([idx(3 - i)], {i: (0, 4)})]
    ['3 - i < 3']
    """
    keys, found = StructuralKeys(), dict[int, Expr]()
    for node in _surely_read(exprs):
        for index, extent in zip(operands(node), shape_of(load_tensor(node)), strict=True):
            if contains_load(index):
                continue
            known = {var: ranges[var] for var in variables_of(index) if var in ranges}
            for condition in inside(as_index(index), extent):
                if not prove(condition, known):
                    found.setdefault(keys.expr(condition), condition)
    return list(found.values())


def _surely_read(exprs: Sequence[Expr]) -> list[Expr]:
    """The reads that are performed for all values of the conditions."""
    found: dict[int, Expr] = {}
    pending = list(reversed(exprs))
    while pending:
        node = pending.pop()
        if is_load(node):
            found.setdefault(node_id(node), node)
        parts = operands(node)
        pending += reversed(parts[:1] if op_name(node) in _LAZY else parts)
    return list(found.values())


#: operators that may not evaluate the operands after the first
_LAZY = ("if_then_else", "select", "and", "or")


def _is_positive(divisor: Expr, ranges: Ranges) -> bool:
    """Whether a divisor is proved to be positive, or is a literal."""
    if const_value(divisor) is not None:
        return True
    known = {var: ranges[var] for var in variables_of(divisor) if var in ranges}
    return prove(compare("gt", divisor, zero_like(divisor)), known)


def _is_inside(index: Expr, extent: Extent, ranges: Ranges) -> bool:
    """Whether an index is proved to be in bounds for all data."""
    reads = {node_id(n): variable("read", dtype_of(n)) for n in postorder(index) if is_load(n)}
    index = as_index(replace_outermost(index, reads))
    known = {var: ranges[var] for var in variables_of(index) if var in ranges}
    return all(prove(condition, known) for condition in inside(index, extent))


def _replaced(variables: Sequence[Var], old: Sequence[Var], new: Sequence[Var]) -> tuple[Var, ...]:
    """The variables with new ones at the position of the first old one."""
    ids = {node_id(var) for var in old}
    first = next(n for n, var in enumerate(variables) if node_id(var) in ids)
    kept = [
        [var for var in part if node_id(var) not in ids]
        for part in (variables[:first], variables[first:])
    ]
    return (*kept[0], *new, *kept[1])
