"""Linear forms with exact integer coefficients over atoms, and their way from and to TVM
expressions.

In: integer TVM expressions. Out: forms ``{atom: coefficient}`` (key `CONST` holds the constant),
where an atom is a variable, ``floordiv(form, c)`` in normal form, a product of atoms, or any other
expression taken as a whole. Equal expressions get equal atoms, so differences cancel. ``x % c`` is
``x - c * (x // c)`` inside. Facts about atoms beyond constant intervals live in `bounds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import Any

from ..ir import build
from ..ir.nodes import (
    COMPARISONS,
    Expr,
    Var,
    const_value,
    dtype_of,
    is_integer,
    load_tensor,
    node_id,
    op_name,
    operands,
)
from ..ir.rewrite import postorder, substitute

Form = dict[int, int]
FormKey = tuple[tuple[int, int], ...]
Interval = tuple[int | None, int | None]

CONST = 0  #: the key of the constant term
_MAX_PRODUCT_TERMS = 32
UNBOUNDED: Interval = (None, None)


def constant(value: int) -> Form:
    """The form of a constant."""
    return {CONST: value} if value else {}


def combine(f: Form, g: Form, a: int = 1, b: int = 1) -> Form:
    """``a * f + b * g``.

    Examples
    --------
    >>> combine({1: 2, CONST: 1}, {1: 1}, 1, -2)
    {0: 1}
    """
    out = dict(f) if a == 1 else {s: a * k for s, k in f.items()}
    for s, k in g.items():
        value = out.get(s, 0) + b * k
        if value:
            out[s] = value
        elif s in out:
            del out[s]
    return out


def shifted(f: Form, value: int) -> Form:
    """``f + value``."""
    return combine(f, {CONST: value}) if value else f


def scaled(f: Form, factor: int) -> Form:
    """``factor * f``."""
    return {s: factor * k for s, k in f.items()} if factor else {}


def is_constant(f: Form) -> bool:
    """Whether no atom occurs."""
    return not f or (len(f) == 1 and CONST in f)


def key_of(f: Form) -> FormKey:
    """A hashable key: equal for equal forms."""
    return tuple(sorted(f.items()))


def substitute_linear(f: Form, values: Mapping[int, Form]) -> Form:
    """Replace atoms that occur linearly; occurrences inside other atoms stay."""
    hit = [s for s in f if s in values]
    if not hit:
        return f
    out = {s: k for s, k in f.items() if s not in values}
    for s in hit:
        out = combine(out, values[s], 1, f[s])
    return out


def content(f: Form) -> int:
    """Greatest common divisor of the coefficients of the atoms, 0 for a constant."""
    g = 0
    for s, k in f.items():
        if s != CONST:
            g = gcd(g, k)
    return g


class Atoms:
    """A table of atoms, each with an interval and the variables it depends on.

    Atoms are numbered in order of first use, constituents before the atoms built from them.

    Examples
    --------
    >>> from tvm import te
    >>> i, j = te.var("i"), te.var("j")
    >>> atoms = Atoms()
    >>> atoms.symbol(j, (0, 4))
    1
    >>> atoms.expr(atoms.form((i * 5 + j) // 5))
    i
    """

    def __init__(self) -> None:
        self.kinds: list[tuple[str, Any, Any]] = [("const", None, None)]
        self.intervals: list[Interval] = [(1, 1)]
        self.masks: list[int] = [0]
        self.wide: list[bool] = [False]
        self._ids: dict[Any, int] = {}
        self._exprs: dict[int, Expr] = {}
        self._memo: dict[int, Any] = {}
        self._alive: list[Any] = []

    # ------------------------------------------------------------------ atoms

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
        """The atom of a variable; `interval` is set where given."""
        key = ("var", node_id(var))
        found = self._ids.get(key)
        if found is None:
            index = len(self.kinds)
            wide = dtype_of(var) == "int64"
            found = self._intern(key, "var", var, None, 1 << index, wide)
            self._exprs[found] = var
            self._alive.append(var)
        if interval is not None:
            self.intervals[found] = interval
        return found

    def fresh(self, wide: bool = False, interval: Interval = UNBOUNDED) -> int:
        """The atom of a new variable, whose TVM variable `name_variable` makes later, if at all."""
        index = len(self.kinds)
        self._intern(("fresh", index), "var", None, None, 1 << index, wide)
        self.intervals[index] = interval
        return index

    def name_variable(self, atom: int, name: str) -> Var:
        """Make the TVM variable of an atom that `fresh` gave."""
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
        """Bit set of the variables that the atoms depend on, also inside of them."""
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

        ``(c*x + y) // c → x + y // c``, common factors cancel, ``(x // a) // b → x // (a*b)``,
        terms too small to matter go, and of ``y`` and ``-y - 1`` the one with smaller coefficients
        is kept.
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
        """``f // g`` where the divisor is no constant: ``(n*x + y) // n → x + y // n``."""
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
        """Numerator and divisor of a form that is one quotient and nothing else."""
        if len(f) != 1:
            return None
        ((s, k),) = f.items()
        kind, x, divisor = self.kinds[s]
        if k != 1 or kind not in ("div", "sdiv"):
            return None
        return x, constant(divisor) if kind == "div" else divisor

    def product(self, f: Form, g: Form) -> Form:
        """``f * g``; products of atoms become atoms, the same in either order."""
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
        """The atoms that a product atom is made of; itself for any other."""
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

    # ----------------------------------------------------- from TVM expressions

    def form(self, expr: Expr | int) -> Form:
        """The form of an integer expression."""
        if isinstance(expr, int):
            return constant(expr)
        value = self._convert(expr)
        return value if isinstance(value, dict) else {self._opaque(expr): 1}

    def _convert(self, root: Expr) -> Any:
        memo = self._memo
        found = memo.get(node_id(root))
        if found is not None:
            return found
        for node in postorder(root):
            key = node_id(node)
            if key not in memo:
                memo[key] = self._convert_node(node)
                self._alive.append(node)
        return memo[node_id(root)]

    def _convert_node(self, node: Expr) -> Any:
        """A form for an integer node, a structural key for any other."""
        if not is_integer(node):
            return self._structure(node)
        name = op_name(node)
        if name == "const":
            return constant(int(const_value(node) or 0))
        if name == "var":
            return {self.symbol(node): 1}
        handler = _LINEAR.get(name)
        if handler is not None:
            parts = [self._memo[node_id(part)] for part in operands(node)]
            if all(isinstance(part, dict) for part in parts):
                result = handler(self, *parts)
                if result is not None:
                    return result
        if name == "cast" and _widens(operands(node)[0], node):
            return self._memo[node_id(operands(node)[0])]
        return {self._opaque(node): 1}

    def _structure(self, node: Expr) -> Any:
        """A small number for a structure: ``("op", dtype, extra, operands)`` seen before gets the
        same one.
        """
        name = op_name(node)
        extra: Any = None
        if name == "load":
            tensor = load_tensor(node)
            extra = (hash(tensor.op), tensor.value_index)
        elif name == "const":
            extra = repr(const_value(node))
        elif name in ("var", "let", "reduce"):
            extra = node_id(node)
        elif name == "cast":
            extra = dtype_of(operands(node)[0])
        parts = []
        for part in operands(node):
            value = self._memo.get(node_id(part))
            parts.append(key_of(value) if isinstance(value, dict) else value)
        key = ("structure", name, dtype_of(node), extra, tuple(parts))
        return self._ids.setdefault(key, -len(self._ids) - 1)

    def _opaque(self, node: Expr) -> int:
        mask = 0
        for part in postorder(node):
            if op_name(part) == "var":
                mask |= self.masks[self.symbol(part)] if is_integer(part) else 0
        index = self._intern(
            ("opaque", self._structure(node)), "opaque", node, None, mask, dtype_of(node) == "int64"
        )
        self._exprs.setdefault(index, node)
        self.intervals[index] = self._opaque_interval(node)
        return index

    def _opaque_interval(self, node: Expr) -> Interval:
        """``min``, ``max`` and branches lie between their operands."""
        name = op_name(node)
        if name not in ("min", "max", "select", "if_then_else"):
            return UNBOUNDED
        parts = operands(node)[-2:]
        (a, b), (c, d) = (self.interval(self.form(part)) for part in parts)
        if name == "min":
            lo = None if a is None or c is None else min(a, c)
            return lo, min((x for x in (b, d) if x is not None), default=None)
        if name == "max":
            hi = None if b is None or d is None else max(b, d)
            return max((x for x in (a, c) if x is not None), default=None), hi
        return (
            None if a is None or c is None else min(a, c),
            None if b is None or d is None else max(b, d),
        )

    # -------------------------------------------------------- to TVM expressions

    def expr(self, f: Form, dtype: str | None = None) -> Expr:
        """The TVM expression of a form, with the coefficients inside ``//`` and ``%`` in [0,
        divisor).
        """
        terms, value = self.terms(f)
        if dtype is None:
            dtype = "int64" if any(self.wide[s] for s in f) else "int32"
        return _sum(terms, value, dtype)

    def terms(self, f: Form) -> tuple[list[tuple[int, Expr]], int]:
        """A form as ``[(coefficient, expression)]`` and a constant, remainders recognised."""
        self._emit_inner(f)
        return self._terms(f)

    def _emit_inner(self, f: Form) -> None:
        """Build the expressions of all atoms below, constituents first (their numbers are
        smaller).
        """
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

    def _terms(self, f: Form) -> tuple[list[tuple[int, Expr]], int]:
        extra: list[tuple[int, Expr]] = []
        products = [s for s in f if self.kinds[s][0] == "mul"]
        for s in products:
            f, more = self._symbolic_remainder(f, s)
            extra += more
        divisions = [s for s in f if s != CONST and self.kinds[s][0] == "div"]
        for q in sorted(divisions, key=lambda s: (-self.kinds[s][2], -s)):
            if q in f:
                f, more = self._best_division(f, q)
                extra += more
        terms = [(k, self._exprs[s]) for s, k in sorted(f.items()) if s != CONST]
        return terms + extra, f.get(CONST, 0)

    def _best_division(self, f: Form, q: int) -> tuple[Form, list[tuple[int, Expr]]]:
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
        best = min(range(len(options)), key=lambda n: (_cost(*options[n][:2]), n))
        rest, k, name, numerator, c = options[best]
        if best == 0:
            return rest, [(k, self._exprs[q])]
        dtype = "int64" if self.wide[q] else "int32"
        inner = _sum(*self._terms(numerator), dtype)
        return rest, [(k, build.binary(name, inner, build.const(c, dtype)))]

    def _symbolic_remainder(self, f: Form, atom: int) -> tuple[Form, list[tuple[int, Expr]]]:
        """``x - n*(x // n) → x % n`` for a product in f, where that leaves fewer terms."""
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
        """Ways to write the division q: its own, and ``x // (a*b) → (x // a) // b`` where ``x //
        a`` occurs.
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
        """``f >= 0`` or ``f == 0`` (name ``"ge"``, ``"eq"``) with the terms spread over both
        sides.
        """
        terms, value = self.terms(f)
        if not terms:
            return build.const(value >= 0 if name == "ge" else value == 0, "bool")
        dtype = "int64" if any(self.wide[s] for s in f) else "int32"
        plus = [(k, e) for k, e in terms if k > 0]
        minus = [(-k, e) for k, e in terms if k < 0]
        if name == "eq":
            if not plus:
                plus, minus, value = minus, plus, -value
            if value < 0 or not minus:
                return build.compare("eq", _sum(plus, 0, dtype), _sum(minus, -value, dtype))
            return build.compare("eq", _sum(plus, value, dtype), _sum(minus, 0, dtype))
        if not minus:
            return build.compare("ge", _sum(plus, 0, dtype), build.const(-value, dtype))
        if not plus or value >= 0:
            return build.compare("le", _sum(minus, 0, dtype), _sum(plus, value, dtype))
        if value == -1:
            return build.compare("lt", _sum(minus, 0, dtype), _sum(plus, 0, dtype))
        return build.compare("le", _sum(minus, -value, dtype), _sum(plus, 0, dtype))

    # ----------------------------------------------------------------- rewriting

    def substitute(self, f: Form, values: Mapping[int, Form]) -> Form:
        """Replace variables everywhere, also inside divisions, products and opaque expressions."""
        if not values:
            return f
        hit = self.mask_of(values)
        if not hit & self.mask_of(f):
            return f
        pending, needed = list(f), set()
        while pending:
            s = pending.pop()
            if s in needed or not self.masks[s] & hit:
                continue
            needed.add(s)
            kind, a, b = self.kinds[s]
            if kind in ("div", "mul", "sdiv"):
                pending.extend(a)
            if kind == "sdiv":
                pending.extend(b)
        replaced: dict[int, Form] = {}
        for s in sorted(needed):
            kind, a, b = self.kinds[s]
            if s in values:
                replaced[s] = values[s]
            elif kind == "div":
                replaced[s] = self.floordiv(substitute_linear(a, replaced), b)
            elif kind == "sdiv":
                sides = (substitute_linear(a, replaced), substitute_linear(b, replaced))
                replaced[s] = self.symbolic_floordiv(*sides)
            elif kind == "mul":
                result = constant(1)
                for factor in a:
                    result = self.product(result, replaced.get(factor, {factor: 1}))
                replaced[s] = result
            elif kind == "opaque":
                mapping = {
                    self.variable(v): self.expr(g)
                    for v, g in values.items()
                    if self.kinds[v][0] == "var"
                }
                replaced[s] = self.form(_substituted(a, mapping))
        return substitute_linear(f, replaced)

    def conditions(self, condition: Expr) -> list[tuple[str, Any]]:
        """A condition as a conjunction of ``("ge", form)``, ``("eq", form)`` and ``("rest",
        expression)``.

        ``min(a, b) >= c → a >= c, b >= c``, ``max(a, b) <= c → a <= c, b <= c``; negations turn
        round.
        """
        out: list[tuple[str, Any]] = []
        for part in build.conjuncts(condition):
            name = op_name(part)
            if name == "not":
                inner = build.negate(operands(part)[0])
                if op_name(inner) in COMPARISONS:
                    part, name = inner, op_name(inner)
            if const_value(part) is not None:
                out.append(("ge", constant(0 if const_value(part) else -1)))
            elif name not in COMPARISONS or name == "ne" or not is_integer(operands(part)[0]):
                out.append(("rest", part))
            else:
                left, right = (self.form(side) for side in operands(part))
                if name == "eq":
                    out.append(("eq", combine(left, right, 1, -1)))
                elif name in ("ge", "gt"):
                    f = combine(left, right, 1, -1)
                    out += self._without_min_max(f if name == "ge" else shifted(f, -1))
                else:
                    f = combine(right, left, 1, -1)
                    out += self._without_min_max(f if name == "le" else shifted(f, -1))
        return out

    def _without_min_max(self, f: Form) -> list[tuple[str, Any]]:
        pending, out = [f], []
        while pending:
            g = pending.pop()
            for s, k in g.items():
                kind, node, _ = self.kinds[s]
                if kind == "opaque" and op_name(node) == ("min" if k > 0 else "max"):
                    rest = {t: v for t, v in g.items() if t != s}
                    pending += [combine(rest, self.form(part), 1, k) for part in operands(node)]
                    break
            else:
                out.append(("ge", g))
        return out[::-1]

    # --------------------------------------------------- handlers of integer nodes

    def _floordiv_forms(self, f: Form, g: Form) -> Form | None:
        if not g:
            return None
        if not is_constant(g):
            return self.symbolic_floordiv(f, g)
        c = g[CONST]
        return self.floordiv(f, c) if c > 0 else self.floordiv(scaled(f, -1), -c)

    def _floormod_forms(self, f: Form, g: Form) -> Form | None:
        q = self._floordiv_forms(f, g)
        return None if q is None else combine(f, self.product(g, q), 1, -1)

    def _truncdiv_forms(self, f: Form, g: Form) -> Form | None:
        if not is_constant(g) or not g:
            return None
        sign = 1 if g[CONST] > 0 else -1
        lo, hi = self.interval(f)
        if lo is not None and lo >= 0:
            return scaled(self.floordiv(f, abs(g[CONST])), sign)
        if hi is not None and hi <= 0:
            return scaled(self.floordiv(scaled(f, -1), abs(g[CONST])), -sign)
        return None

    def _truncmod_forms(self, f: Form, g: Form) -> Form | None:
        q = self._truncdiv_forms(f, g)
        return None if q is None else combine(f, q, 1, -g[CONST])

    def _mul_forms(self, f: Form, g: Form) -> Form | None:
        if len(f) * len(g) > _MAX_PRODUCT_TERMS and not (is_constant(f) or is_constant(g)):
            return None
        return self.product(f, g)


_LINEAR: dict[str, Any] = {
    "add": lambda atoms, f, g: combine(f, g),
    "sub": lambda atoms, f, g: combine(f, g, 1, -1),
    "mul": Atoms._mul_forms,
    "floordiv": Atoms._floordiv_forms,
    "floormod": Atoms._floormod_forms,
    "truncdiv": Atoms._truncdiv_forms,
    "truncmod": Atoms._truncmod_forms,
}


def _without(factors: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...] | None:
    """The factors without the wanted ones, None where one of these is missing."""
    rest = list(factors)
    for s in wanted:
        if s not in rest:
            return None
        rest.remove(s)
    return tuple(rest)


def _widens(source: Expr, target: Expr) -> bool:
    """Whether a cast keeps every value: from int32 (or narrower) to int64, or to the same type."""
    widths = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
    a, b = widths.get(dtype_of(source)), widths.get(dtype_of(target))
    return a is not None and b is not None and a <= b


def _weight(f: Form) -> tuple[int, int, FormKey]:
    """Order among equivalent numerators: small coefficients, then few constants, then any fixed
    order.
    """
    return sum(k for s, k in f.items() if s != CONST), f.get(CONST, 0), key_of(f)


def _cost(rest: Form, k: int) -> tuple[int, int, int]:
    terms = sum(1 for s in rest if s != CONST)
    return terms, (CONST in rest) + (k < 0), abs(k)


def _interval_product(a: Interval, b: Interval) -> Interval:
    if None in a or None in b:
        nonnegative = all(x[0] is not None and x[0] >= 0 for x in (a, b))
        return (a[0] * b[0], None) if nonnegative else UNBOUNDED  # type: ignore[operator]
    corners = [x * y for x in a for y in b]  # type: ignore[operator]
    return min(corners), max(corners)


def _substituted(node: Expr, mapping: Mapping[Var, Expr]) -> Expr:
    typed = {var: build.cast(dtype_of(var), value) for var, value in mapping.items()}
    return substitute(node, typed)


def _sum(terms: Sequence[tuple[int, Expr]], value: int, dtype: str) -> Expr:
    """``sum(k * e) + value`` with the positive terms first and no literal ``+ -c``."""
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
