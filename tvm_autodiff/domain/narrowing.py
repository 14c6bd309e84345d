"""Conditions that remove values of variables, as bounds.

An inequation excludes an end of what other conditions allow: ``k >= 0, k != 0 → k >= 1``, ``i <= j,
i != j → i < j``. Any other condition on one variable of a short range is tried at each value: if an
arithmetic progression remains, as of two values, bounds and an equation replace the condition;
otherwise bounds join it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

from ..errors import UnsolvableError
from ..expr.build import all_of
from ..expr.integers.integer_functions import compile_integers
from ..expr.nodes import Expr, Var, dtype_of, is_integer, node_id
from ..expr.rewrite import postorder, variables_of
from .forms import Form, combine, constant, scaled, shifted
from .system import System

_MOST_VALUES = 4096  #: of a variable that are tried; about a millisecond


def narrow(system: System) -> None:
    """Use inequations and conditions on single variables as bounds, as far as possible.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.domain import Domain
    >>> k, l = te.var("k"), te.var("l")
    >>> system = System(Domain((k, l), {k: (0, 2), l: (0, 4)}, (k != 0, te.any(l < 1, l > 2))))
    >>> narrow(system)
    >>> system.rest, len(system.equations)
    ([], 1)
    """
    _exclude_ends(system)
    _try_values(system)


def above_zero(system: System, f: Form, known: Sequence[Form]) -> Form | None:
    """The form that is not negative if f is not zero, if the sign of f is known.

    ``f >= 0 → f - 1``, ``f <= 0 → -f - 1``
    """
    for sign in (1, -1):
        g = scaled(f, sign)
        if system.facts.nonnegative(g, known):
            return shifted(g, -1)
    return None


def _exclude_ends(system: System) -> None:
    """``f >= 0, f != 0 → f >= 1``, until nothing changes: ``k != 0, k != 1 → k >= 2``."""
    pending = [f for kind, f in system.rest if kind == "ne"]
    while pending:
        known = [g for f in system.equations for g in (f, scaled(f, -1))] + system.inequalities
        found = [(f, above_zero(system, f, known)) for f in pending]
        for f, positive in found:
            if positive is not None:
                system.rest.remove(("ne", f))
                system.require("ge", positive)
        left = [f for f, positive in found if positive is None]
        if len(left) == len(pending):
            break
        pending = left


def _try_values(system: System) -> None:
    """The bounds of the values of each variable at which the conditions on it alone hold."""
    for s in system.variables:
        var = system.atoms.variable(s)
        low, extent = system.domain.ranges[var]
        if not isinstance(low, int) or not isinstance(extent, int) or extent > _MOST_VALUES:
            continue
        alone = [n for n, (kind, f) in enumerate(system.rest) if _is_on(system, var, kind, f)]
        if not alone:
            continue
        holds = _function(all_of(_written(system, *system.rest[n]) for n in alone), var)
        if holds is None:
            continue
        try:
            values = [value for value in range(low, low + extent) if holds(value)[0]]
        except ZeroDivisionError:
            continue
        if len(values) == extent or _use(system, s, values):
            system.rest = [c for n, c in enumerate(system.rest) if n not in alone]


def _use(system: System, s: int, values: Sequence[int]) -> bool:
    """Require that a variable has one of the values; whether bounds and an equation say all."""
    if not values:
        system.require("ge", constant(-1))
        return True
    first, last = values[0], values[-1]
    step = gcd(*(value - first for value in values))
    for f in (shifted({s: 1}, -first), shifted({s: -1}, last)):
        system.require("ge", f)
    if len(values) > 1 and list(values) != list(range(first, last + 1, step)):
        return False
    if step > 1:
        offset = shifted({s: 1}, -first)
        quotient = system.atoms.floordiv(offset, step)
        system.require("eq", combine(offset, quotient, 1, -step))
    return True


def _is_on(system: System, var: Var, kind: str, f: Form | Expr) -> bool:
    """Whether a condition is one on a variable alone, in integers."""
    atoms = system.atoms
    if isinstance(f, dict) and atoms.mask_of(f) != atoms.masks[atoms.symbol(var)]:
        return False
    written = _written(system, kind, f)
    found = variables_of(written)
    return (
        len(found) == 1
        and node_id(found[0]) == node_id(var)
        and all(is_integer(node) or dtype_of(node) == "bool" for node in postorder(written))
    )


def _written(system: System, kind: str, f: Form | Expr) -> Expr:
    return system.atoms.condition(kind, f) if isinstance(f, dict) else f


def _function(condition: Expr, var: Var) -> Callable[..., tuple[int, ...]] | None:
    try:
        return compile_integers([condition], [var])
    except UnsolvableError:  # an operator whose value is not known
        return None
