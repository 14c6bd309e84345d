"""Rewrites some non-linear equations as linear ones: symbolic quotients, mixed-radix numbers,
single variables.

A `System` keeps the equations that cannot be rewritten as conditions. Variables that were
substituted are returned with their values.

``a // n → 0`` with a in [0, n); ``a // n == b → 0 <= a - n*b <= n - 1``; ``i*n + j == b`` with j in
[0, n) → ``i == b // n, j == b % n``; ``(i + j) % n == b`` with j in [0, n) → ``j := (b - i) % n``;
``k ^ i == b → k == i ^ b``; ``k + table[a] == b → k := b - table[a]``.
"""

from __future__ import annotations

from ..expr.build import cast, const
from ..expr.dtypes import common_index
from ..expr.nodes import Expr, binary, const_value, dtype_of, op_name, operands
from .forms import (
    CONST,
    Form,
    combine,
    constant,
    is_constant,
    scaled,
    shifted,
)
from .system import System
from .writing import holds

_MAX_STEPS = 32


def linearize(system: System) -> dict[int, Form]:
    """Rewrite non-linear equations as far as possible.

    Returns
    -------
    dict of variable to Form
        Variables that are no longer unknowns. Their values contain variables, including later ones
        of this dict.
    """
    eliminated: dict[int, Form] = {}
    for _ in range(_MAX_STEPS):
        if not any(kind == "eq" for kind, _ in system.rest):
            break
        if not (
            _vanishing_quotient(system)
            or _name_quotient(system)
            or _mixed_radix(system)
            or _circular(system, eliminated)
            or _exclusive_or(system)
            or _single(system, eliminated)
        ):
            break
    return eliminated


def _equations(system: System) -> list[Form]:
    return [f for kind, f in system.rest if kind == "eq"]


def _vanishing_quotient(system: System) -> bool:
    """``x // n → 0`` where x lies in [0, n), as topi's reshape adds to every index."""
    atoms = system.atoms
    for f in _equations(system):
        for q in [q for s in f for q in atoms.factors(s) if atoms.kinds[q][0] == "sdiv"]:
            _, x, n = atoms.kinds[q]
            least, most = _extreme(system, x, -1), _extreme(system, x, 1)
            if least is None or most is None:
                continue
            below = combine(shifted(n, -1), most, 1, -1)
            if system.facts.nonnegative(least) and system.facts.nonnegative(below):
                _replace(system, {q: {}}, {})
                return True
    return False


def _extreme(system: System, x: Form, sign: int) -> Form | None:
    """A bound of x over the ranges of its variables: upper for sign 1, lower for sign -1.

    ``i*m + j  →  (n - 1)*m + (m - 1)`` with i in [0, n), j in [0, m).
    """
    strides, bound = _strides(system, x)
    if not strides:
        return None
    for v, stride in strides.items():
        if system.atoms.kinds[v][0] != "var":  # a quotient that equals itself has no range
            return None
        lo, extent = system.domain.ranges.get(system.atoms.variable(v), (None, None))
        if lo != 0 or extent is None:
            return None
        if system.facts.nonnegative(stride):
            rises = True
        elif system.facts.nonnegative(scaled(stride, -1)):
            rises = False
        else:
            return None
        if rises == (sign > 0):
            last = shifted(system.atoms.form(extent), -1)
            bound = combine(bound, system.atoms.product(stride, last))
    return bound


def _name_quotient(system: System) -> bool:
    """``x // n == b → 0 <= x - n*b <= n - 1``; b replaces the quotient in all other conditions."""
    atoms = system.atoms
    for f in _equations(system):
        inside = [s for s in f if atoms.masks[s] & system.mask]
        if len(inside) != 1 or atoms.kinds[inside[0]][0] != "sdiv" or abs(f[inside[0]]) != 1:
            continue
        q = inside[0]
        _, x, n = atoms.kinds[q]
        least, _ = atoms.interval(n)
        if least is None or least < 1 or atoms.mask_of(n) & system.mask:
            continue
        value = scaled({s: k for s, k in f.items() if s != q}, -f[q])
        remainder = combine(x, atoms.product(n, value), 1, -1)
        _replace(system, {q: value}, f)
        system.require("ge", remainder)
        system.require("ge", combine(shifted(n, -1), remainder, 1, -1))
        return True
    return False


def _mixed_radix(system: System) -> bool:
    """``v0 + v1*e0 + v2*e0*e1 + ... == b`` with v_k in [0, e_k)  →  the digits of b."""
    atoms = system.atoms
    for f in _equations(system):
        for sign in (1, -1):
            strides, outside = _strides(system, scaled(f, sign))
            digits = _digits(system, strides)
            if digits is None:
                continue
            number = scaled(outside, -1)
            stride = constant(1)
            system.rest.remove(("eq", f))
            for n, (v, extent) in enumerate(digits):
                value = atoms.symbolic_floordiv(number, stride)
                following = atoms.product(stride, extent)
                if n + 1 < len(digits):
                    quotient = atoms.symbolic_floordiv(value, extent)
                    value = combine(value, atoms.product(extent, quotient), 1, -1)
                # holds for digits, given the two conditions on the number below
                system.facts.add(value)
                system.facts.add(combine(shifted(extent, -1), value, 1, -1))
                system.require("eq", combine({v: 1}, value, 1, -1))
                stride = following
            system.require("ge", number)
            system.require("ge", combine(shifted(stride, -1), number, 1, -1))
            return True
    return False


def _strides(system: System, f: Form) -> tuple[dict[int, Form], Form]:
    """The factor of each variable, and the part without variables; no strides for other forms."""
    atoms = system.atoms
    own = set(system.unknowns)
    strides: dict[int, Form] = {}
    outside: Form = {}
    for s, k in f.items():
        if not atoms.masks[s] & system.mask:
            outside[s] = k
            continue
        factors = atoms.factors(s)
        inside = [t for t in factors if atoms.masks[t] & system.mask]
        if len(inside) != 1 or inside[0] not in own:
            return {}, {}
        stride = constant(k)
        for t in factors:
            if t != inside[0]:
                stride = atoms.product(stride, {t: 1})
        strides[inside[0]] = combine(strides.get(inside[0], {}), stride)
    return strides, outside


def _digits(system: System, strides: dict[int, Form]) -> list[tuple[int, Form]] | None:
    """Variables from the lowest digit to the highest, with their extents, if the strides fit."""
    atoms = system.atoms
    left = dict(strides)
    expected = constant(1)
    digits: list[tuple[int, Form]] = []
    while left:
        v = next((v for v, stride in left.items() if stride == expected), None)
        if v is None or atoms.kinds[v][0] != "var":
            return None
        var = atoms.variable(v)
        lo, size = system.domain.ranges[var]
        if lo != 0 or size is None:
            return None
        extent = atoms.form(size)
        if atoms.mask_of(extent) & system.mask:
            return None
        digits.append((v, extent))
        expected = atoms.product(expected, extent)
        del left[v]
    return digits or None


def _circular(system: System, eliminated: dict[int, Form]) -> bool:
    """``(v + x) % n == b`` with v in [0, n)  →  ``v := (b - x) % n`` and ``0 <= b <= n - 1``."""
    atoms = system.atoms
    for f in _equations(system):
        for q in [q for s in f for q in atoms.factors(s) if atoms.kinds[q][0] == "sdiv"]:
            _, x, n = atoms.kinds[q]
            remainder = combine(x, atoms.product(n, {q: 1}), 1, -1)
            least, _ = atoms.interval(n)
            if least is None or least < 1 or atoms.mask_of(n) & system.mask:
                continue
            for sign in (1, -1):
                b = combine(remainder, f, 1, sign)  # f == 0 means remainder == b
                v = _full_digit(system, x, n)
                if v is None or atoms.mask_of(b) & system.mask:
                    continue
                outside = combine(b, {s: k for s, k in x.items() if s != v}, 1, -1)
                outside = scaled(outside, x[v])
                quotient = atoms.symbolic_floordiv(outside, n)
                value = combine(outside, atoms.product(n, quotient), 1, -1)
                system.unknowns.remove(v)
                eliminated[v] = value
                _replace(system, {v: value}, f)
                system.require("ge", b)
                system.require("ge", combine(shifted(n, -1), b, 1, -1))
                return True
    return False


def _full_digit(system: System, x: Form, n: Form) -> int | None:
    """A variable of x with coefficient 1 or -1 that runs over [0, n)."""
    for v in system.variables:
        lo, extent = system.domain.ranges[system.atoms.variable(v)]
        if v not in system.unknowns or abs(x.get(v, 0)) != 1 or lo != 0 or extent is None:
            continue
        rest = {s: k for s, k in x.items() if s != v}
        if (
            system.atoms.form(extent) == n
            and not system.atoms.mask_of(rest) & system.atoms.masks[v]
        ):
            return v
    return None


def _exclusive_or(system: System) -> bool:
    """``v ^ x == b → v == x ^ b`` where v does not occur in x."""
    atoms = system.atoms
    for f in _equations(system):
        inside = [s for s in f if atoms.masks[s] & system.mask]
        if len(inside) != 1 or abs(f[inside[0]]) != 1:
            continue
        kind, node, _ = atoms.kinds[inside[0]]
        if kind != "opaque" or op_name(node) != "bitwise_xor":
            continue
        value = atoms.expr(scaled({s: k for s, k in f.items() if s != inside[0]}, -f[inside[0]]))
        for own, other in (operands(node), operands(node)[::-1]):
            form = atoms.form(own)
            [v] = form if len(form) == 1 else [CONST]
            if form != {v: 1} or v not in system.unknowns:
                continue
            if atoms.mask_of(atoms.form(other)) & atoms.masks[v]:
                continue
            system.rest.remove(("eq", f))
            bits = atoms.form(_bits_that_differ(other, value))
            system.require("eq", combine({v: 1}, bits, 1, -1))
            return True
    return False


def _bits_that_differ(left: Expr, right: Expr) -> Expr:
    first, second = const_value(left), const_value(right)
    dtype = common_index(dtype_of(left), dtype_of(right))
    if isinstance(first, int) and isinstance(second, int):
        return const(first ^ second, dtype)
    return binary("bitwise_xor", cast(dtype, left), cast(dtype, right))


def _single(system: System, eliminated: dict[int, Form]) -> bool:
    """``v + x == 0 → v := -x`` where v does not occur in x, for any x."""
    atoms = system.atoms
    for f in _equations(system):
        for v in system.variables:
            if v not in system.unknowns or abs(f.get(v, 0)) != 1:
                continue
            rest = {s: k for s, k in f.items() if s != v}
            if atoms.mask_of(rest) & atoms.masks[v]:
                continue
            value = scaled(rest, -f[v])
            system.unknowns.remove(v)
            eliminated[v] = value
            _replace(system, {v: value}, f)
            return True
    return False


def _replace(system: System, values: dict[int, Form], solved: Form) -> None:
    """Substitute in every condition except the solved one, and classify the conditions again."""
    conditions = [("eq", f) for f in system.equations]
    conditions += [("ge", f) for f in system.inequalities]
    others = [(kind, f) for kind, f in system.rest if (kind, f) != ("eq", solved)]
    system.forget_conditions()
    for kind, f in (*conditions, *others):
        if kind == "rest":
            system.rest.append((kind, f))
        else:
            g = system.atoms.substitute(f, values)
            if not is_constant(g) or not holds(kind, g.get(CONST, 0)):
                system.require(kind, g)
