"""Solves systems of linear equations over the integers, with parameters on the right-hand side.

The solution expresses the unknowns in parameters and free variables (``x = P r + N y``, N a small
basis of the null space), states the conditions on the parameters for a solution to exist, and
expresses the free variables in the unknowns. `inequalities` gives the ranges of the free variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import UnsolvableError
from ..affine import Atoms
from ..bounds import tighten
from ..domain import Domain, DomainTransformation
from ..forms import (
    CONST,
    Form,
    combine,
    constant,
    is_constant,
    shifted,
    substitute_linear,
)
from ..system import System
from .integers import diagonalize


@dataclass
class Solution:
    """All integer solutions of a system.

    Attributes
    ----------
    values : dict of unknown to Form
        The unknowns in parameters and free variables.
    free : list of int
        New atoms for the free variables.
    back : dict of free variable to Form
        The free variables in unknowns and parameters.
    conditions : list of Form
        Forms over parameters that must be zero.
    """

    values: dict[int, Form]
    free: list[int]
    back: dict[int, Form]
    conditions: list[Form]


def solve_forms(
    atoms: Atoms, unknowns: Sequence[int], equations: Sequence[Form], wide: bool = False
) -> Solution | None:
    """Solve ``equation == 0`` for the unknowns; None if no parameters admit a solution.

    With ``U A V = D`` and ``x = V z``, ``d_i z_i = r_i`` holds for the pivots d, where r are the
    right-hand sides after U. Hence ``z_i = r_i // d_i`` if ``r_i % d_i == 0``, and the other z are
    free.
    """
    place = {s: n for n, s in enumerate(unknowns)}
    rows, sides = [], []
    for f in equations:
        row = [0] * len(unknowns)
        side: Form = {}
        for s, k in f.items():
            if s in place:
                row[place[s]] = k
            else:
                side[s] = -k
        rows.append(row)
        sides.append(side)
    form = diagonalize(rows, len(unknowns))
    conditions: list[Form] = []
    z: list[Form] = []
    for i, line in enumerate(form.left):
        r: Form = {}
        for factor, side in zip(line, sides, strict=True):
            if factor:
                r = combine(r, side, 1, factor)
        if i < form.rank:
            pivot = form.pivots[i]
            quotient = r if pivot == 1 else atoms.floordiv(r, pivot)
            z.append(quotient)
            r = combine(r, quotient, 1, -pivot)
        if is_constant(r):
            if r:
                return None
        else:
            conditions.append(r)
    free = [atoms.fresh(wide) for _ in range(len(unknowns) - form.rank)]
    z += [{s: 1} for s in free]
    values: dict[int, Form] = {}
    for n, s in enumerate(unknowns):
        value: Form = {}
        for factor, part in zip(form.right[n], z, strict=True):
            if factor:
                value = combine(value, part, 1, factor)
        values[s] = value
    back: dict[int, Form] = {}
    for n, s in enumerate(free):
        line = form.right_inverse[form.rank + n]
        back[s] = {u: k for u, k in zip(unknowns, line, strict=True) if k}
    return Solution(values, free, back, conditions)


def merge_parallel(inequalities: Sequence[Form]) -> tuple[list[Form], list[Form]] | None:
    """Keep the tightest of parallel inequalities; opposite ones that meet become equations.

    Returns
    -------
    (inequalities, equations) or None
    """
    tightest: dict[tuple[tuple[int, int], ...], Form] = {}
    for f in inequalities:
        key = tuple(sorted((s, k) for s, k in f.items() if s != CONST))
        if not key:
            if f.get(CONST, 0) < 0:
                return None
            continue
        other = tightest.get(key)
        if other is None or f.get(CONST, 0) < other.get(CONST, 0):
            tightest[key] = f
    out: list[Form] = []
    equations: list[Form] = []
    for key, f in tightest.items():
        opposite = tightest.get(tuple((s, -k) for s, k in key))
        if opposite is not None:
            total = f.get(CONST, 0) + opposite.get(CONST, 0)
            if total < 0:
                return None
            if total == 0:
                if key > tuple((s, -k) for s, k in key):
                    equations.append(f)
                continue
        out.append(f)
    return out, equations


def solve_linear_equations(domain: Domain) -> DomainTransformation:
    """Solve the linear equations of a domain over the integers.

    Parameters
    ----------
    domain : Domain
        A domain. Its equations with constant coefficients are solved, and its other conditions
        stay. Remove ``//`` and ``%`` that depend on variables first, with `eliminate_div_mod`.

    Returns
    -------
    DomainTransformation
        A transformation to a domain over the remaining free variables. Its ranges come from
        interval arithmetic; the old ranges become conditions, as do the requirements on parameters
        for a solution to exist. A system without solutions gives the empty domain.

    Notes
    -----
    The matrix is diagonalised by unimodular transformations as in Urban and van der Smagt,
    "Automatic Differentiation for Tensor Algebras" (arXiv 1711.01348).

    Examples
    --------
    >>> from tvm import te
    >>> i, j, b = te.var("i"), te.var("j"), te.var("b")
    >>> d = Domain((i, j), {i: (0, 10), j: (0, 10), b: (0, 30)}, ((2 * i + 3 * j).equal(b),))
    >>> t = solve_linear_equations(d)
    >>> len(t.new_domain.variables), t.check({b: 12})
    (1, 3)
    """
    system = System(domain, divisions=False)
    atoms = system.atoms
    solution = solve_forms(atoms, system.variables, system.equations, system.wide)
    if solution is None:
        return DomainTransformation.empty(domain)
    for n, s in enumerate(solution.free):
        atoms.name_variable(s, f"y{n}")
    inequalities = [tighten(substitute_linear(f, solution.values)) for f in system.inequalities]
    merged = merge_parallel(inequalities)
    if merged is None:
        return DomainTransformation.empty(domain)
    ranges = {v: domain.ranges[v] for v in domain.parameters if v in domain.ranges}
    for s in solution.free:
        lower = range_end(system, solution.back[s], -1)
        upper = range_end(system, solution.back[s], 1)
        if lower is None or upper is None:
            raise UnsolvableError(
                "a variable of the domain has no upper bound: give its range an extent"
            )
        extent = shifted(combine(upper, lower, 1, -1), 1)
        ranges[atoms.variable(s)] = (atoms.expr(lower), atoms.expr(extent))
    values = {s: solution.values[s] for s in system.variables}
    conditions = [atoms.condition("eq", f) for f in (*solution.conditions, *merged[1])]
    conditions += [atoms.condition("ge", f) for f in merged[0]]
    conditions += system.emitted_rest(values)
    return DomainTransformation(
        Domain(tuple(atoms.variable(s) for s in solution.free), ranges, tuple(conditions)),
        domain,
        {atoms.variable(s): system.typed(s, solution.back[s]) for s in solution.free},
        {atoms.variable(s): system.typed(s, f) for s, f in values.items()},
    )


def range_end(system: System, f: Form, sign: int) -> Form | None:
    """The end of a linear form's range: ends of the variables' ranges are substituted, parameters
    stay.
    """
    atoms = system.atoms
    out: Form = {s: k for s, k in f.items() if not atoms.masks[s] & system.mask}
    for var, s in zip(system.domain.variables, system.variables, strict=True):
        k = f.get(s, 0)
        if not k:
            continue
        lo, extent = system.domain.ranges[var]
        end = atoms.form(lo)
        if k * sign > 0:
            if extent is None:
                return None
            end = shifted(combine(end, atoms.form(extent)), -1)
        if atoms.mask_of(end) & system.mask:
            value = atoms.intervals[s][k * sign > 0]
            if value is None:
                return None
            end = constant(value)
        out = combine(out, end, 1, k)
    return out
