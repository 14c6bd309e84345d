"""The table of atoms that linear forms consist of, and arithmetic that makes new atoms.

Quotients and products are kept in normal form, so that equal ones get equal atoms. An atom is a
variable, ``floordiv(form, c)``, a quotient by a form, a product of atoms, or any other expression
as a whole. Each atom has an interval and a set of variables that it depends on. `writing` writes
expressions, and `affine` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import Any

from ..expr import build
from ..expr.dtypes import integer_range, keeps_values
from ..expr.nodes import INDEX_DTYPES, Expr, Var, dtype_of, node_id
from .forms import (
    CONST,
    UNBOUNDED,
    Form,
    FormKey,
    Interval,
    combine,
    constant,
    content,
    is_constant,
    key_of,
    scaled,
    shifted,
)


class AtomTable:
    """Atoms, numbered in order of first use, constituents before the atoms built from them.

    Attributes
    ----------
    kinds : list of (kind, a, b)
        ``("var", variable, None)``, ``("div", form, int)``, ``("sdiv", form, form)``,
        ``("mul", atoms, None)``, ``("opaque", expression, None)``.
    intervals : list of (low, high)
        Inclusive bounds; None means unbounded.
    masks : list of int
        Bit sets of the variables that atoms depend on, including nested ones.
    wide : list of bool
        Whether the atom needs int64.
    """

    def __init__(self) -> None:
        self.kinds: list[tuple[str, Any, Any]] = [("const", None, None)]
        self.intervals: list[Interval] = [(1, 1)]
        self.masks: list[int] = [0]
        self.wide: list[bool] = [False]
        self._ids: dict[Any, int] = {}
        self._exprs: dict[int, Expr] = {}
        self._memo: dict[int, Any] = {}
        self._depends: dict[int, int] = {}
        self._lean: dict[int, Expr] = {}  #: expressions without variables that cancel in them
        self._alive: list[Any] = []

    def _intern(self, key: Any, kind: str, a: Any, b: Any, mask: int, wide: bool) -> int:
        found = self._ids.get(key)
        if found is None:
            found = len(self.kinds)
            self._ids[key] = found
            self.kinds.append((kind, a, b))
            self.intervals.append(UNBOUNDED)
            self.masks.append(mask)
            self.wide.append(wide)
        return found

    def symbol(self, var: Var, interval: Interval | None = None) -> int:
        """The atom of a variable; sets its interval if one is given."""
        key = ("var", node_id(var))
        found = self._ids.get(key)
        if found is None:
            index = len(self.kinds)
            dtype = dtype_of(var)
            wide = not keeps_values(dtype, "int32")
            found = self._intern(key, "var", var, None, 1 << index, wide)
            if dtype not in INDEX_DTYPES:
                self.intervals[found] = integer_range(dtype)
            self._exprs[found] = var
            self._alive.append(var)
        if interval is not None:
            self.intervals[found] = interval
        return found

    def fresh(self, wide: bool = False, interval: Interval = UNBOUNDED) -> int:
        """The atom of a new variable; `name_variable` makes its TVM variable later if needed."""
        index = len(self.kinds)
        self._intern(("fresh", index), "var", None, None, 1 << index, wide)
        self.intervals[index] = interval
        return index

    def name_variable(self, atom: int, name: str) -> Var:
        """Make the TVM variable of an atom that `fresh` returned."""
        var = build.variable(name, "int64" if self.wide[atom] else "int32")
        self.kinds[atom] = ("var", var, None)
        self._exprs[atom] = var
        self._ids[("var", node_id(var))] = atom
        self._alive.append(var)
        return var

    def variable(self, atom: int) -> Var:
        """The TVM variable of a variable atom."""
        return self.kinds[atom][1]

    def mask_of(self, f: Iterable[int]) -> int:
        """The bit set of the variables that the atoms depend on, including nested ones."""
        mask = 0
        for s in f:
            mask |= self.masks[s]
        return mask

    def interval(self, f: Form) -> Interval:
        """Interval of a form from the intervals of its atoms alone."""
        lo: int | None = 0
        hi: int | None = 0
        for s, k in f.items():
            a, b = self.intervals[s]
            if k < 0:
                a, b = b, a
            lo = None if lo is None or a is None else lo + k * a
            hi = None if hi is None or b is None else hi + k * b
        return lo, hi

    def split(self, f: Form, c: int) -> tuple[Form, Form]:
        """``(h, r)`` with ``f == c * h + r`` and all coefficients of r in ``[0, c)``."""
        high: Form = {}
        low: Form = {}
        for s, k in f.items():
            q, r = divmod(k, c)
            if q:
                high[s] = q
            if r:
                low[s] = r
        return high, low

    def floordiv(self, f: Form, c: int) -> Form:
        """``f // c`` for a positive constant, as a form in normal form.

        ``(c*x + y) // c → x + y // c``; common factors cancel; ``(x // a) // b → x // (a*b)``;
        terms too small to matter are dropped; and of ``y`` and ``-y - 1`` the one with smaller
        coefficients is kept.
        """
        out: Form = {}
        while True:
            high, low = self.split(f, c)
            out = combine(out, high)
            atoms = [(s, k) for s, k in low.items() if s != CONST]
            if not atoms:
                return out
            low = self._without_small_terms(low, c, atoms)
            g = gcd(c, content(low))
            if g > 1:
                low = {s: k // g for s, k in low.items() if s != CONST or k >= g}
                c //= g
                if c == 1:
                    return combine(out, low)
                f = low
                continue
            inner = self.kinds[atoms[0][0]]
            if low == {atoms[0][0]: 1} and inner[0] == "sdiv":
                return combine(out, self.symbolic_floordiv(inner[1], scaled(inner[2], c)))
            if len(atoms) == 1 and atoms[0][1] == 1 and inner[0] == "div":
                f, c = shifted(inner[1], inner[2] * low.get(CONST, 0)), c * inner[2]
                continue
            break
        lo, hi = self.interval(low)
        if lo is not None and hi is not None and lo // c == hi // c:
            return shifted(out, lo // c)
        mirrored = shifted(scaled(low, -1), -1)
        high, other = self.split(mirrored, c)
        if _weight(other) < _weight(low):
            # low // c → -1 - high - other // c
            out = shifted(combine(out, high, 1, -1), -1)
            return combine(out, {self._div_atom(other, c): -1})
        return combine(out, {self._div_atom(low, c): 1})

    def _without_small_terms(self, low: Form, c: int, atoms: list[tuple[int, int]]) -> Form:
        """``(g*x + y) // (g*d) → (g*x) // (g*d)`` where y lies in [0, g)."""
        if len(atoms) < 2 and not low.get(CONST):
            return low
        divisors = sorted({gcd(c, k) for _, k in atoms} - {1}, reverse=True)
        for g in divisors:
            rest = {s: k for s, k in low.items() if k % g or (s == CONST and k < g)}
            if CONST in low and low[CONST] >= g:
                rest[CONST] = low[CONST] % g
                if not rest[CONST]:
                    del rest[CONST]
            if not rest:
                continue
            a, b = self.interval(rest)
            if a is not None and b is not None and a >= 0 and b < g:
                return combine(low, rest, 1, -1)
        return low

    def _div_atom(self, low: Form, c: int) -> int:
        key = ("div", key_of(low), c)
        found = self._ids.get(key)
        if found is not None:
            return found
        wide = any(self.wide[s] for s in low)
        index = self._intern(key, "div", low, c, self.mask_of(low), wide)
        lo, hi = self.interval(low)
        self.intervals[index] = (
            None if lo is None else lo // c,
            None if hi is None else hi // c,
        )
        return index

    def symbolic_floordiv(self, f: Form, g: Form) -> Form:
        """``f // g`` with a divisor that is not constant: ``(n*x + y) // n → x + y // n``."""
        if is_constant(g) and g.get(CONST, 0) > 0:
            return self.floordiv(f, g[CONST])
        out: Form = {}
        if len(g) == 1:
            ((atom, factor),) = g.items()
            wanted = self.factors(atom)
            for s, k in f.items():
                rest = _without(self.factors(s), wanted)
                if rest is not None and k % factor == 0:
                    out = combine(out, {self._product_atom(rest): k // factor})
                    f = combine(f, {s: -k})
        if not f:
            return out
        nested = self._whole_quotient(f)
        if nested is not None:  # (x // a) // b → x // (a*b)
            x, divisor = nested
            return combine(out, self.symbolic_floordiv(x, self.product(divisor, g)))
        key = ("sdiv", key_of(f), key_of(g))
        wide = any(self.wide[s] for s in (*f, *g))
        index = self._intern(key, "sdiv", f, g, self.mask_of(f) | self.mask_of(g), wide)
        (low, high), (least, _) = self.interval(f), self.interval(g)
        if low is not None and low >= 0 and least is not None and least >= 1:
            self.intervals[index] = (0, high)
        return combine(out, {index: 1})

    def _whole_quotient(self, f: Form) -> tuple[Form, Form] | None:
        """The numerator and divisor of a form that is a single quotient."""
        if len(f) != 1:
            return None
        ((s, k),) = f.items()
        kind, x, divisor = self.kinds[s]
        if k != 1 or kind not in ("div", "sdiv"):
            return None
        return x, constant(divisor) if kind == "div" else divisor

    def product(self, f: Form, g: Form) -> Form:
        """``f * g``; products of atoms become atoms, independent of their order."""
        if is_constant(f):
            return scaled(g, f.get(CONST, 0))
        if is_constant(g):
            return scaled(f, g.get(CONST, 0))
        out: Form = {}
        for a, ka in f.items():
            for b, kb in g.items():
                factors = sorted((*self.factors(a), *self.factors(b)))
                out = combine(out, {self._product_atom(tuple(factors)): ka * kb})
        return out

    def product_of(self, factors: Sequence[int]) -> Form:
        """The product of atoms."""
        return {self._product_atom(tuple(sorted(factors))): 1}

    def factors(self, atom: int) -> tuple[int, ...]:
        """The factors of a product atom, or the atom itself."""
        if atom == CONST:
            return ()
        kind = self.kinds[atom]
        return kind[1] if kind[0] == "mul" else (atom,)

    def _product_atom(self, factors: tuple[int, ...]) -> int:
        if not factors:
            return CONST
        if len(factors) == 1:
            return factors[0]
        key = ("mul", factors)
        found = self._ids.get(key)
        if found is not None:
            return found
        wide = any(self.wide[s] for s in factors)
        index = self._intern(key, "mul", factors, None, self.mask_of(factors), wide)
        bounds: Interval = (1, 1)
        for s in factors:
            bounds = _interval_product(bounds, self.intervals[s])
        self.intervals[index] = bounds
        return index


def _without(factors: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...] | None:
    """The factors without the unwanted ones, or None if one of these is missing."""
    rest = list(factors)
    for s in wanted:
        if s not in rest:
            return None
        rest.remove(s)
    return tuple(rest)


def _weight(f: Form) -> tuple[int, int, FormKey]:
    """An order among equivalent numerators: small coefficients, then few constants, then any fixed
    order.
    """
    return sum(k for s, k in f.items() if s != CONST), f.get(CONST, 0), key_of(f)


def _interval_product(a: Interval, b: Interval) -> Interval:
    if None in a or None in b:
        nonnegative = all(x[0] is not None and x[0] >= 0 for x in (a, b))
        return (a[0] * b[0], None) if nonnegative else UNBOUNDED  # type: ignore[operator]
    corners = [x * y for x in a for y in b]  # type: ignore[operator]
    return min(corners), max(corners)
