"""Converts integer TVM expressions to linear forms ``{atom: coefficient}`` and back.

Equal expressions get equal atoms, so differences cancel. Internally ``x % c`` is ``x - c * (x //
c)``. Facts about atoms beyond constant intervals are in `bounds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..expr import build
from ..expr.dtypes import integer_range, keeps_values
from ..expr.nodes import (
    COMPARISONS,
    INDEX_DTYPES,
    Expr,
    Var,
    const_value,
    dtype_of,
    is_integer,
    node_id,
    op_name,
    operands,
    own_fields,
    with_operands,
)
from ..expr.rewrite import postorder, substitute
from .forms import (
    CONST,
    UNBOUNDED,
    Form,
    Interval,
    combine,
    constant,
    is_constant,
    key_of,
    scaled,
    shifted,
    substitute_linear,
)
from .writing import WritingTable

_MAX_PRODUCT_TERMS = 32


class Atoms(WritingTable):
    """A table of atoms that reads and writes TVM expressions.

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
                mask = 0
                for part in operands(node):
                    mask |= self._depends.get(node_id(part), 0)
                if op_name(node) == "var" and is_integer(node):
                    mask = self.masks[self.symbol(node)]
                self._depends[key] = mask
                memo[key] = self._convert_node(node)
                self._alive.append(node)
                self._forget_cancelled(node)
        return memo[node_id(root)]

    def _forget_cancelled(self, node: Expr) -> None:
        """``min(k // 2, 3) → min(0, 3)`` with k in [0, 2): equal keys have equal variables.

        A form may depend on fewer variables than the original expression. An expression that still
        contained the others would survive their substitution.
        """
        key = node_id(node)
        value = self._memo[key]
        mask = self.mask_of(value) if isinstance(value, dict) else self._depends[key]
        if mask == self._depends[key] and not any(
            node_id(part) in self._lean for part in operands(node)
        ):
            return
        self._depends[key] = mask
        written = isinstance(value, dict)
        self._lean[key] = self.expr(value, dtype_of(node)) if written else self._leaner(node)

    def _leaner(self, node: Expr) -> Expr:
        """The node over operands without the variables that cancel in their forms."""
        parts = operands(node)
        lean = [self._lean.get(node_id(part), part) for part in parts]
        if all(node_id(a) == node_id(b) for a, b in zip(parts, lean, strict=True)):
            return node
        return with_operands(node, lean)

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
                if result is not None and self._is_exact(result, dtype_of(node)):
                    return result
        if name == "cast" and is_integer(operands(node)[0]):
            source = operands(node)[0]
            value = self._memo[node_id(source)]
            if keeps_values(dtype_of(source), dtype_of(node)) or self._fits(value, dtype_of(node)):
                return value
        return {self._opaque(node): 1}

    def _is_exact(self, f: Form, dtype: str) -> bool:
        """Whether arithmetic of a type equals integer arithmetic.

        This holds for index types. Narrow and unsigned arithmetic wraps unless the result is known
        to fit.
        """
        return dtype in INDEX_DTYPES or self._fits(f, dtype)

    def _fits(self, f: Form, dtype: str) -> bool:
        """Whether a form is known to fit an integer type; variables fit their own type."""
        least, most = integer_range(dtype)
        low = high = 0
        for s, k in f.items():
            a, b = self.intervals[s]
            if self.kinds[s][0] == "var":
                own = integer_range("int64" if self.wide[s] else "int32")
                a, b = own[0] if a is None else a, own[1] if b is None else b
            if a is None or b is None:
                return False
            low += k * (a if k > 0 else b)
            high += k * (b if k > 0 else a)
        return least <= low and high <= most

    def _structure(self, node: Expr) -> Any:
        """A small number for a structure ``("op", dtype, extra, operands)``; equal structures share
        it.
        """
        name = op_name(node)
        parts = []
        for part in operands(node):
            value = self._memo.get(node_id(part))
            # equal forms of different dtypes have different values if they wrap
            parts.append((dtype_of(part), key_of(value) if isinstance(value, dict) else value))
        key = ("structure", name, dtype_of(node), own_fields(node), tuple(parts))
        return self._ids.setdefault(key, -len(self._ids) - 1)

    def _opaque(self, node: Expr) -> int:
        mask, lean = self._depends[node_id(node)], self._leaner(node)
        wide = not keeps_values(dtype_of(node), "int32")
        index = self._intern(("opaque", self._structure(node)), "opaque", lean, None, mask, wide)
        self._exprs.setdefault(index, lean)
        self.intervals[index] = self._opaque_interval(node)
        return index

    def _opaque_interval(self, node: Expr) -> Interval:
        """The interval of an opaque node.

        ``min``, ``max`` and branches lie between their operands, other nodes in a narrow type.
        """
        name = op_name(node)
        if name not in ("min", "max", "select", "if_then_else"):
            return UNBOUNDED if dtype_of(node) in INDEX_DTYPES else integer_range(dtype_of(node))
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

    def substitute(self, f: Form, values: Mapping[int, Form]) -> Form:
        """Replace variables everywhere, including inside divisions, products and opaque
        expressions.
        """
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
        """A condition as a conjunction of ``("ge", form)``, ``("eq", form)``, ``("ne", form)`` and
        ``("rest", expression)``.

        ``min(a, b) >= c → a >= c, b >= c``, ``max(a, b) <= c → a <= c, b <= c``; negations reverse.
        """
        out: list[tuple[str, Any]] = []
        for part in build.conjuncts(condition):
            name = op_name(part)
            if name == "not":
                inner = build.negate(operands(part)[0])
                if op_name(inner) in COMPARISONS:
                    part, name = inner, op_name(inner)
            part = _other_parity(part)
            name = op_name(part)
            if const_value(part) is not None:
                out.append(("ge", constant(0 if const_value(part) else -1)))
            elif name not in COMPARISONS or not is_integer(operands(part)[0]):
                out.append(("rest", part))
            elif any(dtype_of(side) == "uint64" for side in operands(part)):
                out.append(("rest", part))  # no type that forms are written in holds its values
            else:
                left, right = (self.form(side) for side in operands(part))
                if name == "eq":
                    out.append(("eq", combine(left, right, 1, -1)))
                elif name == "ne":
                    f = combine(left, right, 1, -1)
                    opaque = any(self.kinds[s][0] == "opaque" for s in f)
                    out.append(("rest", part) if opaque else ("ne", f))
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

    def _min_forms(self, f: Form, g: Form) -> Form | None:
        lo, hi = self.interval(combine(f, g, 1, -1))
        if hi is not None and hi <= 0:
            return f
        return g if lo is not None and lo >= 0 else None

    def _max_forms(self, f: Form, g: Form) -> Form | None:
        lo, hi = self.interval(combine(f, g, 1, -1))
        if lo is not None and lo >= 0:
            return f
        return g if hi is not None and hi <= 0 else None

    def _shift_right_forms(self, f: Form, g: Form) -> Form | None:
        """``x >> 3 → x // 8``, of negative numbers, too."""
        places = _shifted_by(g)
        return None if places is None else self.floordiv(f, 1 << places)

    def _shift_left_forms(self, f: Form, g: Form) -> Form | None:
        places = _shifted_by(g)
        return None if places is None else scaled(f, 1 << places)

    def _bitwise_and_forms(self, f: Form, g: Form) -> Form | None:
        """``x & 7 → x % 8``, of negative numbers, too."""
        if is_constant(f):
            f, g = g, f
        mask = g.get(CONST, 0) if is_constant(g) else -1
        if mask < 0 or mask & (mask + 1):
            return None
        return self._floormod_forms(f, constant(mask + 1))

    def _mul_forms(self, f: Form, g: Form) -> Form | None:
        if len(f) * len(g) > _MAX_PRODUCT_TERMS and not (is_constant(f) or is_constant(g)):
            return None
        return self.product(f, g)


_LINEAR: dict[str, Any] = {
    "add": lambda atoms, f, g: combine(f, g),
    "sub": lambda atoms, f, g: combine(f, g, 1, -1),
    "mul": Atoms._mul_forms,
    "min": Atoms._min_forms,
    "max": Atoms._max_forms,
    "floordiv": Atoms._floordiv_forms,
    "floormod": Atoms._floormod_forms,
    "truncdiv": Atoms._truncdiv_forms,
    "truncmod": Atoms._truncmod_forms,
    "shift_right": Atoms._shift_right_forms,
    "shift_left": Atoms._shift_left_forms,
    "bitwise_and": Atoms._bitwise_and_forms,
}


def _shifted_by(f: Form) -> int | None:
    """A literal number of places by which an int32 may be shifted."""
    places = f.get(CONST, 0)
    return places if is_constant(f) and 0 <= places < 31 else None


def _other_parity(condition: Expr) -> Expr:
    """``a % 2 != 0 → a % 2 == 1``."""
    if op_name(condition) != "ne":
        return condition
    left, right = operands(condition)
    value = const_value(right)
    if op_name(left) != "floormod" or const_value(operands(left)[1]) != 2 or value not in (0, 1):
        return condition
    return build.compare("eq", left, build.const(1 - int(value), dtype_of(right)))


def _substituted(node: Expr, mapping: Mapping[Var, Expr]) -> Expr:
    typed = {var: build.cast(dtype_of(var), value) for var, value in mapping.items()}
    return substitute(node, typed)
