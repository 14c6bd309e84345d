"""Exact lower bounds of linear forms under linear constraints, by the simplex method in integers.

In: a form to be minimised, forms known to be nonnegative, intervals of the atoms. Out: the minimum
over the rationals as numerator and denominator, or None where there is none. The tableau is kept
free of fractions, so every number is exact. Cheaper first attempts live
in `bounds`.
"""

from __future__ import annotations

from collections.abc import Sequence

from .forms import CONST, Form, Interval

_FAR = 10**18  #: stands for a missing bound; a result that rests on it is discarded
_MAX_PIVOTS = 60
_STEEPEST_PIVOTS = 30  #: pivots by the least reduced cost, before Bland's rule, which cannot cycle
INFEASIBLE = (1, 0)  #: plus infinity as numerator and denominator


def minimum(
    objective: Form, constraints: Sequence[Form], intervals: Sequence[Interval]
) -> tuple[int, int] | None:
    """Minimum of a form where all constraints are nonnegative and the atoms lie in their intervals.

    Works on the dual: multipliers of the constraints and bounds that cancel the objective's atoms,
    with the largest constant left over. The bounds alone are a first solution.

    Returns
    -------
    (numerator, denominator) or None
        None where the form is unbounded below (or the search was cut short); `INFEASIBLE` where the
        constraints contradict each other, so that every bound holds.

    Examples
    --------
    >>> minimum({1: 1, 2: 1}, [{1: 2, 2: 1, 0: -5}], [(1, 1), (0, 9), (0, 9)])
    (5, 2)
    """
    atoms = sorted({s for f in (objective, *constraints) for s in f if s != CONST})
    columns = [([f.get(s, 0) for s in atoms], f.get(CONST, 0)) for f in constraints]
    n_constraints = len(columns)
    m = len(atoms)
    for row, s in enumerate(atoms):
        lo, hi = intervals[s]
        unit = [0] * m
        unit[row] = 1
        columns.append((unit, -lo if lo is not None else _FAR))
        columns.append(([-x for x in unit], hi if hi is not None else _FAR))
    n = len(columns)
    # rows: sum_j columns[j][row] * x_j = objective[row], x_j >= 0; maximise -sum_j value_j * x_j
    table: list[list[int]] = []
    basis: list[int] = []
    for row, s in enumerate(atoms):
        target = objective.get(s, 0)
        line = [column[row] for column, _ in columns] + [target]
        if target < 0:
            line = [-x for x in line]
        table.append(line)
        basis.append(n_constraints + 2 * row + (target < 0))
    cost = [value for _, value in columns] + [0]
    for row, column in enumerate(basis):
        factor = cost[column]
        if factor:
            cost = [x - factor * y for x, y in zip(cost, table[row], strict=True)]
    # reduced costs of minimising sum value_j * x_j; their last entry is minus its present value
    scale = 1
    for step in range(_MAX_PIVOTS):
        entering = next((j for j in range(n) if cost[j] < 0), None)
        if entering is None:
            break
        if step < _STEEPEST_PIVOTS:
            entering = min(range(n), key=cost.__getitem__)
        leaving = -1
        for row in range(m):
            a = table[row][entering]
            if a > 0:
                if leaving < 0:
                    leaving = row
                    continue
                left = table[row][-1] * table[leaving][entering]
                right = table[leaving][-1] * a
                if left < right or (left == right and basis[row] < basis[leaving]):
                    leaving = row
        if leaving < 0:
            return INFEASIBLE
        pivot_line = table[leaving]
        pivot = pivot_line[entering]
        for row in range(m):
            if row != leaving:
                factor = table[row][entering]
                if not factor and pivot == scale:
                    continue
                table[row] = [
                    (x * pivot - factor * y) // scale
                    for x, y in zip(table[row], pivot_line, strict=True)
                ]
        factor = cost[entering]
        cost = [(x * pivot - factor * y) // scale for x, y in zip(cost, pivot_line, strict=True)]
        basis[leaving] = entering
        scale = pivot
    else:
        return None
    for row, column in enumerate(basis):
        if columns[column][1] == _FAR and table[row][-1]:
            return None
    return objective.get(CONST, 0) * scale + cost[-1], scale
