"""Solves systems of linear inequalities by Fourier-Motzkin elimination with integer tightening.

For an order of variables, each variable is bounded by earlier variables and parameters. Elimination
only adds consequences, so some can be left out where there would be too many: bounds get wider, but
never wrong. `box` makes boxes from these bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...expr.nodes import Expr, Var
from ..bounds import tighten
from ..domain import Domain
from ..forms import CONST, Form, combine, scaled
from ..system import System

_MAX_INEQUALITIES = 48


def project(inequalities: Sequence[Form], order: Sequence[int]) -> list[list[Form]] | None:
    """Inequalities that bound each variable by earlier ones, or None for a contradiction.

    The last variable is eliminated first. A consequence of more than k + 1 inequalities after k
    eliminations is redundant (Imbert 1990) and is dropped; of parallel ones the tightest is kept.

    Examples
    --------
    >>> project([{1: 1}, {2: 1, 1: -1}, {2: -1, CONST: 4}], [1, 2])
    [[{1: 1}, {1: -1, 0: 4}], [{2: 1, 1: -1}, {2: -1, 0: 4}]]
    """
    levels: list[list[Form]] = [[] for _ in order]
    current = [(f, 1 << n) for n, f in enumerate(inequalities)]
    for depth in range(len(order) - 1, -1, -1):
        y = order[depth]
        bounding = [(f, h) for f, h in current if y in f]
        levels[depth] = [f for f, _ in bounding]
        if depth == 0:
            break
        current = [(f, h) for f, h in current if y not in f]
        table: dict[tuple[tuple[int, int], ...], tuple[Form, int]] = {}
        for f, h in current:
            _keep_tightest(table, f, h)
        steps = len(order) - depth
        lowers = [(f, h) for f, h in bounding if f[y] > 0]
        uppers = [(f, h) for f, h in bounding if f[y] < 0]
        for f, h in lowers:
            for g, k in uppers:
                history = h | k
                if history.bit_count() > steps + 1 or len(table) >= _MAX_INEQUALITIES:
                    continue
                derived = tighten(combine(f, g, -g[y], f[y]))
                if all(s == CONST for s in derived):
                    if derived.get(CONST, 0) < 0:
                        return None
                    continue
                _keep_tightest(table, derived, history)
        current = list(table.values())
    return levels


def _keep_tightest(
    table: dict[tuple[tuple[int, int], ...], tuple[Form, int]], f: Form, history: int
) -> None:
    key = tuple(sorted((s, k) for s, k in f.items() if s != CONST))
    other = table.get(key)
    if other is None or f.get(CONST, 0) < other[0].get(CONST, 0):
        table[key] = (f, history)


@dataclass(frozen=True)
class VariableBounds:
    """Bounds of the variables of a domain in terms of earlier variables and parameters.

    Attributes
    ----------
    lower, upper : dict of Var to tuple of expressions
        The variable is at least each of `lower` and at most each of `upper` (inclusive).
    conditions : tuple of expressions
        Conditions that do not bound variables, or are not linear.
    is_empty : bool
        Whether the inequalities contradict each other.
    """

    lower: Mapping[Var, tuple[Expr, ...]]
    upper: Mapping[Var, tuple[Expr, ...]]
    conditions: tuple[Expr, ...]
    is_empty: bool = False


def solve_linear_inequalities(domain: Domain) -> VariableBounds:
    """Bound each variable of a domain by earlier variables and parameters.

    Parameters
    ----------
    domain : Domain
        A domain, whose linear conditions and ranges are used; an equation counts as two
        inequalities. Divisions that depend on variables are not linear: remove them with
        `eliminate_div_mod` first.

    Returns
    -------
    VariableBounds
        Bounds of a loop nest. Its points that satisfy the remaining conditions are the points of
        the domain. A bound never depends on a later variable.

    Examples
    --------
    >>> from tvm import te
    >>> i, j = te.var("i"), te.var("j")
    >>> b = solve_linear_inequalities(Domain((i, j), {i: (0, 9), j: (0, 9)}, (i + 2 * j <= 5,)))
    >>> b.upper[i], b.upper[j]
    ((5,), (8, 2 - i // 2))
    """
    system = System(domain, divisions=False)
    atoms = system.atoms
    forms = list(system.inequalities)
    for f in system.equations:
        forms += [f, scaled(f, -1)]
    forms = [tighten(f) for f in forms]
    plain = [f for f in forms if atoms.mask_of(f) & system.mask]
    only_parameters = [f for f in forms if not atoms.mask_of(f) & system.mask]
    levels = project(plain, system.variables)
    if levels is None or system.facts.infeasible(forms):
        return VariableBounds({}, {}, (), is_empty=True)
    lower: dict[Var, tuple[Expr, ...]] = {}
    upper: dict[Var, tuple[Expr, ...]] = {}
    for s, level in zip(system.variables, levels, strict=True):
        var = atoms.variable(s)
        lows, highs = [], []
        kept = _irredundant(system, level)
        for f in kept:
            rest = {t: k for t, k in f.items() if t != s}
            if f[s] > 0:
                lows.append(system.typed(s, scaled(atoms.floordiv(rest, f[s]), -1)))
            else:
                highs.append(system.typed(s, atoms.floordiv(rest, -f[s])))
        lower[var], upper[var] = tuple(lows), tuple(highs)
    conditions = [
        atoms.condition("ge", f) for f in only_parameters if not system.facts.nonnegative(f)
    ]
    conditions += system.emitted_rest({s: {s: 1} for s in system.variables})
    return VariableBounds(lower, upper, tuple(conditions))


def _irredundant(system: System, level: list[Form]) -> list[Form]:
    """Drop inequalities that the others imply for all intervals of the variables."""
    known = list(level)
    for f in list(level):
        others = [g for g in known if g is not f]
        if _implied_by_one(system, f, others):
            known = others
    return known


def _implied_by_one(system: System, f: Form, others: Sequence[Form]) -> bool:
    """Whether ``f - g >= 0`` for some other g, from the bounds of the parameters only."""
    for g in others:
        difference = combine(f, g, 1, -1)
        if system.atoms.mask_of(difference) & system.mask:
            continue
        if system.facts.nonnegative(difference):
            return True
    return False
