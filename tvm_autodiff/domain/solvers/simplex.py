"""Exact lower bounds of linear forms under linear constraints, by the simplex method in integers.

The result is the minimum over the rationals as numerator and denominator, or None if there is none.
The tableau contains no fractions, so every number is exact. `bounds` makes cheaper attempts first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..forms import CONST, Form, Interval

_LARGEST = 1 << 31  #: entries of the tableau stay below, or the search ends without a result
_MAX_PIVOTS = 60
_STEEPEST_PIVOTS = 30  #: pivots by the least reduced cost, before Bland's rule, which cannot cycle
INFEASIBLE = (1, 0)  #: plus infinity as numerator and denominator


def minimum(
    objective: Form,
    constraints: Sequence[Form],
    intervals: Sequence[Interval],
    enough: int | None = None,
) -> tuple[int, int] | None:
    """The minimum of a form where all constraints are non-negative and the atoms lie in their
    intervals.

    The method works on the dual: multipliers of the constraints and bounds that cancel the
    objective's atoms, with the largest remaining constant. The bounds alone are a first solution.
    Every step gives a lower bound of the minimum, and one above `enough` ends the search.

    Returns
    -------
    (numerator, denominator) or None
        None if the form is unbounded below or the search was cut short; `INFEASIBLE` if the
        constraints contradict each other, so that every bound holds.

    Examples
    --------
    >>> minimum({1: 1, 2: 1}, [{1: 2, 2: 1, 0: -5}], [(1, 1), (0, 9), (0, 9)])
    (5, 2)
    """
    atoms = sorted({s for f in (objective, *constraints) for s in f if s != CONST})
    m, n = len(atoms), len(constraints) + 2 * len(atoms)
    table, basis = _tableau(objective, constraints, intervals, atoms)
    if not _small(table):
        return None
    constant, scale = objective.get(CONST, 0), 1
    for step in range(_MAX_PIVOTS):
        missing, finite = table[m + 1, :n], table[m, :n]
        improving = np.flatnonzero((missing < 0) | ((missing == 0) & (finite < 0)))
        if not len(improving):
            break
        reached = constant * scale + int(table[m, n])
        if enough is not None and not table[m + 1, n] and reached > enough * scale:
            return reached, scale
        entering = int(improving[0])
        if step < _STEEPEST_PIVOTS:
            order = np.lexsort((finite[improving], missing[improving]))
            entering = int(improving[order[0]])
        leaving = _leaving(table[:m, entering].tolist(), table[:m, n].tolist(), basis)
        if leaving is None:
            return INFEASIBLE
        line = table[leaving].copy()
        pivot = int(line[entering])
        table = (table * pivot - np.multiply.outer(table[:, entering], line)) // scale
        table[leaving] = line
        if not _small(table):
            return None
        basis[leaving] = entering
        scale = pivot
    else:
        return None
    if table[m + 1, n]:
        return None
    return constant * scale + int(table[m, n]), scale


def _tableau(
    objective: Form,
    constraints: Sequence[Form],
    intervals: Sequence[Interval],
    atoms: Sequence[int],
) -> tuple[np.ndarray, list[int]]:
    """The dual at the bounds: ``Σ_j table[row, j] * x_j = table[row, -1]`` for each atom.

    Columns are the constraints, then each atom's two bounds. The last two rows are reduced costs:
    their finite part, and the multiple of a bound that is missing, which outweighs every number.
    """
    m, first = len(atoms), len(constraints)
    place = {s: row for row, s in enumerate(atoms)}
    table = np.zeros((m + 2, first + 2 * m + 1), np.int64)
    for column, f in enumerate(constraints):
        for s, k in f.items():
            table[m if s == CONST else place[s], column] = _clipped(k)
    basis = []
    for row, s in enumerate(atoms):
        for sign, bound in zip((1, -1), intervals[s], strict=True):
            column = first + 2 * row + (sign < 0)
            table[row, column] = sign
            table[m if bound is not None else m + 1, column] = (
                1 if bound is None else _clipped(-sign * bound)
            )
        target = _clipped(objective.get(s, 0))
        table[row, -1] = target
        if target < 0:
            table[row] *= -1
        basis.append(first + 2 * row + (target < 0))
    for row, column in enumerate(basis):
        table[m:] -= np.multiply.outer(table[m:, column], table[row])
    return table, basis


def _leaving(column: Sequence[int], values: Sequence[int], basis: Sequence[int]) -> int | None:
    """The row of the smallest ratio ``value / entry`` among positive entries, ties by basis."""
    leaving: int | None = None
    for row, entry in enumerate(column):
        if entry <= 0:
            continue
        if leaving is None:
            leaving = row
            continue
        left, right = values[row] * column[leaving], values[leaving] * entry
        if left < right or (left == right and basis[row] < basis[leaving]):
            leaving = row
    return leaving


def _clipped(value: int) -> int:
    """The value, or a value that is too large to continue with."""
    return max(-_LARGEST, min(value, _LARGEST))


def _small(table: np.ndarray) -> bool:
    """Whether products of entries, and their differences, are exact in 64 bits."""
    return bool(np.abs(table).max(initial=0) < _LARGEST)
