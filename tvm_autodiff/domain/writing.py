"""Writes linear forms as TVM expressions and conditions.

Remainders and nested quotients are recognised, and coefficients inside ``//`` and ``%`` by
constants are in [0, divisor). TVM 0.27 miscompiles other forms when they index a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..expr import build
from ..expr.dtypes import integer_range
from ..expr.nodes import INDEX_DTYPES, Expr
from .atoms import AtomTable
from .forms import CONST, Form, combine, scaled, shifted


class WritingTable(AtomTable):
    """A table of atoms that can write its forms."""

    def expr(self, f: Form, dtype: str | None = None) -> Expr:
        """The TVM expression of a form, with coefficients inside ``//`` and ``%`` in [0, divisor).
        """
        terms, value = self.terms(f)
        own = self._dtype(f, terms, value)
        # a narrow type may hold the sum but not its terms
        if own == "int64" or dtype not in INDEX_DTYPES:
            return build.cast(dtype or own, _sum(terms, value, own))
        return _sum(terms, value, dtype)

    def _dtype(self, f: Form, terms: Sequence[tuple[int, Expr]], value: int) -> str:
        """The dtype of the atoms of a form, or int64 where one of its literals does not fit it."""
        fits = all(abs(k) <= integer_range("int32")[1] for k in (value, *(k for k, _ in terms)))
        return "int32" if fits and not any(self.wide[s] for s in f) else "int64"

    def terms(self, f: Form, sided: bool = False) -> tuple[list[tuple[int, Expr]], int]:
        """A form as ``[(coefficient, expression)]`` and a constant, remainders recognised.

        Terms of a comparison go to either side of it (`sided`), so signs do not matter.
        """
        self._emit_inner(f)
        return self._terms(f, sided)

    def _emit_inner(self, f: Form) -> None:
        """Build the expressions of all nested atoms, in order of their numbers."""
        pending, needed = list(f), set()
        while pending:
            s = pending.pop()
            if s == CONST or s in needed:
                continue
            needed.add(s)
            kind, a, _ = self.kinds[s]
            if kind in ("div", "mul", "sdiv"):
                pending.extend(a)
            if kind == "sdiv":
                pending.extend(self.kinds[s][2])
        for s in sorted(needed):
            if s in self._exprs:
                continue
            kind, a, b = self.kinds[s]
            dtype = "int64" if self.wide[s] else "int32"
            if kind in ("div", "sdiv"):
                inner = _sum(*self._terms(a), dtype)
                divisor = build.const(b, dtype) if kind == "div" else _sum(*self._terms(b), dtype)
                self._exprs[s] = build.binary("floordiv", inner, divisor)
            else:
                result = build.cast(dtype, self._exprs[a[0]])
                for factor in a[1:]:
                    result = build.mul(result, build.cast(dtype, self._exprs[factor]))
                self._exprs[s] = result

    def _terms(self, f: Form, sided: bool = False) -> tuple[list[tuple[int, Expr]], int]:
        extra: list[tuple[int, Expr]] = []
        products = [s for s in f if self.kinds[s][0] == "mul"]
        for s in products:
            f, more = self._symbolic_remainder(f, s)
            extra += more
        divisions = [s for s in f if s != CONST and self.kinds[s][0] == "div"]
        for q in sorted(divisions, key=lambda s: (-self.kinds[s][2], -s)):
            if q in f:
                f, more = self._best_division(f, q, sided)
                extra += more
        terms = [(k, self._exprs[s]) for s, k in sorted(f.items()) if s != CONST]
        return terms + extra, f.get(CONST, 0)

    def _best_division(
        self, f: Form, q: int, sided: bool
    ) -> tuple[Form, list[tuple[int, Expr]]]:
        """Write the division q in f as ``//`` or ``%``, of its numerator or of the mirrored one.

        ``x - c*(x // c) → x % c`` and ``-(x // c) → 1 + (-x - 1) // c``, whichever leaves fewer
        terms.
        """
        k = f[q]
        rest = {s: v for s, v in f.items() if s != q}
        options: list[tuple[Form, int, str, Form, int]] = []
        for low, c in self._numerators(q, rest):
            high, mirrored = self.split(shifted(scaled(low, -1), -1), c)
            # q = -1 - high - mirrored // c
            turned = combine(rest, shifted(high, 1), 1, -k)
            options.append((rest, k, "floordiv", low, c))
            options.append((turned, -k, "floordiv", mirrored, c))
            if k % c == 0:
                m = k // c  # c*m*(x // c) = m*x - m*(x % c)
                options.append((combine(rest, low, 1, m), -m, "floormod", low, c))
                options.append((combine(turned, mirrored, 1, -m), m, "floormod", mirrored, c))
        cost = _sided_cost if sided else _cost
        best = min(range(len(options)), key=lambda n: (*cost(*options[n][:2]), n))
        rest, k, name, numerator, c = options[best]
        if best == 0:
            return rest, [(k, self._exprs[q])]
        dtype = "int64" if self.wide[q] else "int32"
        inner = _sum(*self._terms(numerator), dtype)
        return rest, [(k, build.binary(name, inner, build.const(c, dtype)))]

    def _symbolic_remainder(self, f: Form, atom: int) -> tuple[Form, list[tuple[int, Expr]]]:
        """``x - n*(x // n) → x % n`` for a product in f, if that leaves fewer terms."""
        factors = self.kinds[atom][1] if atom in f else ()
        for place, q in enumerate(factors):
            if self.kinds[q][0] != "sdiv":
                continue
            n = {self._product_atom(factors[:place] + factors[place + 1 :]): abs(f[atom])}
            sign = -1 if f[atom] > 0 else 1
            whole = {atom: abs(f[atom])}
            x: Form = self.kinds[q][1]
            inner = [{s: 1} for s in f if self.kinds[s][0] in ("div", "sdiv")]
            if n != self.kinds[q][2]:
                x = next((y for y in inner if self.symbolic_floordiv(y, n) == {q: 1}), {})
            rest = combine(f, combine(x, whole, 1, -1), 1, -sign)
            known = all(s in self._exprs for s in (*rest, *n) if s != CONST)
            if x and known and len(rest) < len(f) - 1:
                dtype = "int64" if self.wide[q] else "int32"
                sides = (_sum(*self._terms(x), dtype), _sum(*self._terms(n), dtype))
                return rest, [(sign, build.binary("floormod", *sides))]
        return f, []

    def _numerators(self, q: int, rest: Form) -> list[tuple[Form, int]]:
        """Ways to write the division q: its own, and ``x // (a*b) → (x // a) // b`` if ``x // a``
        occurs.
        """
        _, low, c = self.kinds[q]
        out = [(low, c)]
        for s in rest:
            kind, _, inner = self.kinds[s]
            if kind != "div" or c % inner or c == inner:
                continue
            if self.floordiv({s: 1}, c // inner) == {q: 1}:
                out.append(({s: 1}, c // inner))
        return out

    def condition(self, name: str, f: Form) -> Expr:
        """``f >= 0``, ``f == 0`` or ``f != 0`` (name ``"ge"``, ``"eq"``, ``"ne"``) with the terms
        distributed over both sides.
        """
        terms, value = self.terms(f, sided=True)
        if not terms:
            return build.const(holds(name, value), "bool")
        dtype = self._dtype(f, terms, value)
        plus = [(k, e) for k, e in terms if k > 0]
        minus = [(-k, e) for k, e in terms if k < 0]
        if name in ("eq", "ne"):
            if not plus:
                plus, minus, value = minus, plus, -value
            if value < 0 or not minus:
                return build.compare(name, _sum(plus, 0, dtype), _sum(minus, -value, dtype))
            return build.compare(name, _sum(plus, value, dtype), _sum(minus, 0, dtype))
        if not minus:
            return build.compare("ge", _sum(plus, 0, dtype), build.const(-value, dtype))
        if not plus or value >= 0:
            return build.compare("le", _sum(minus, 0, dtype), _sum(plus, value, dtype))
        if value == -1:
            return build.compare("lt", _sum(minus, 0, dtype), _sum(plus, 0, dtype))
        return build.compare("le", _sum(minus, -value, dtype), _sum(plus, 0, dtype))


def holds(name: str, value: int) -> bool:
    """Whether a constant satisfies a condition of a kind."""
    return value >= 0 if name == "ge" else (value == 0) == (name == "eq")


def _cost(rest: Form, k: int) -> tuple[int, ...]:
    terms = sum(1 for s in rest if s != CONST)
    return terms, (CONST in rest) + (k < 0), abs(k)


def _sided_cost(rest: Form, k: int) -> tuple[int, ...]:
    """Without a cost of signs and constants, which go to either side of a comparison."""
    return sum(1 for s in rest if s != CONST), abs(k)


def _sum(terms: Sequence[tuple[int, Expr]], value: int, dtype: str) -> Expr:
    """``sum(k * e) + value`` with the positive terms first and without a literal ``+ -c``."""
    result: Expr | None = None
    for k, e in sorted(terms, key=lambda term: term[0] < 0):
        e = build.cast(dtype, e)
        if result is None:
            if k < 0 and value > 0:
                result, value = build.const(value, dtype), 0
            else:
                result = build.mul(e, build.const(k, dtype))
                continue
        scaled_e = build.mul(e, build.const(abs(k), dtype))
        result = build.binary("add" if k > 0 else "sub", result, scaled_e)
    if result is None:
        return build.const(value, dtype)
    if value:
        result = build.binary("add" if value > 0 else "sub", result, build.const(abs(value), dtype))
    return result
