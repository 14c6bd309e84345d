"""Replaces divisions and remainders in the conditions of a domain by new variables.

Each ``//`` or ``%`` of the domain's variables by a constant becomes one more variable with linear
conditions that define it. Quotients of parameters are parameters already. `simplify` does the same
internally.
"""

from __future__ import annotations

from ..errors import UnsolvableError
from .domain import Domain, DomainTransformation
from .forms import (
    Form,
    combine,
    key_of,
    scaled,
    shifted,
    substitute_linear,
)
from .system import System


def eliminate_div_mod(domain: Domain) -> DomainTransformation:
    """Replace ``x // c`` and ``x % c`` in the conditions by new variables.

    ``x // c → q`` and ``x % c → x - c*q`` with ``0 <= x - c*q <= c - 1``. Nested divisions are
    replaced one by one. Truncating division and remainder are replaced if the sign of the numerator
    is known. Divisions by non-constants stay.

    Parameters
    ----------
    domain : Domain

    Returns
    -------
    DomainTransformation
        A transformation to a domain with the old variables, followed by the quotients.

    Raises
    ------
    UnsolvableError
        If a quotient has no constant bounds.

    Examples
    --------
    >>> from tvm import te
    >>> a, b, c = te.var("a"), te.var("b"), te.var("c")
    >>> d = Domain((a,), {a: (0, 12), b: (0, 4), c: (0, 3)}, ((a // 3).equal(b), (a % 3).equal(c)))
    >>> t = eliminate_div_mod(d)
    >>> t.new_domain.variables, t.new_domain.conditions[:2]
    ((a, q0), (q0 == b, a == c + q0 * 3))
    """
    system = System(domain)
    atoms = system.atoms
    quotients = system.unknowns[len(system.variables) :]
    if not quotients:
        return DomainTransformation.identity(domain)
    values: dict[int, Form] = {}
    definitions: list[Form] = []
    ranges = dict(domain.ranges)
    for n, s in enumerate(quotients):
        lo, hi = atoms.intervals[s]
        if lo is None or hi is None:
            raise UnsolvableError(
                f"{atoms.expr({s: 1})} has no constant bounds: give its variables constant ranges"
            )
        q = atoms.fresh(atoms.wide[s], (lo, hi))
        values[s] = {q: 1}
        ranges[atoms.name_variable(q, f"q{n}")] = (lo, hi - lo + 1)
    for s in quotients:
        _, low, c = atoms.kinds[s]
        remainder = combine(low, {s: -c})
        definitions += [remainder, shifted(scaled(remainder, -1), c - 1)]
    implied = {key_of(f) for f in (*system.range_forms, *definitions)}
    inequalities = [f for f in system.inequalities if key_of(f) not in implied]
    conditions = [("eq", f) for f in system.equations]
    conditions += [("ge", f) for f in (*inequalities, *definitions)]
    emitted = [atoms.condition(kind, substitute_linear(f, values)) for kind, f in conditions]
    emitted += system.emitted_rest({s: {s: 1} for s in system.variables})
    new_variables = tuple(atoms.variable(s) for s in system.variables)
    fresh = tuple(atoms.variable(next(iter(values[s]))) for s in quotients)
    same = dict(zip(new_variables, new_variables, strict=True))
    return DomainTransformation(
        Domain((*new_variables, *fresh), ranges, tuple(emitted)),
        domain,
        {**same, **{q: atoms.expr({s: 1}) for q, s in zip(fresh, quotients, strict=True)}},
        same,
    )
