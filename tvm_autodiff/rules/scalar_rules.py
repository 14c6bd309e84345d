"""The table of scalar rules: one row for each operator, used by both modes.

A row maps a node and a seed (the cotangent of the node's value) to one entry for each operand: the
seed times the partial derivative, as an expression, a `Branch` (it applies only if a condition
holds), or None (identically zero). Its dtype is that of the operands, or the widest of them.
Entries are linear in the seed, so a row also serves the pushforward. If a limit exists at a
singular point, the rule gives it, as the rows note. Elsewhere the value is the mathematical one:
infinite where the derivative is, NaN where the function is undefined. Lets must be expanded first;
`linearize` and `reducers` handle loads, reductions and the walk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..expr.build import add, any_of, call, cast, compare, div, like, mul, neg, negate, select, sub
from ..expr.float_functions import TWO_FLOATS, widest_of
from ..expr.nodes import Expr, call_node, const_value, dtype_of, is_float, same_node
from ..graph.marks.checkpoint import CHECKPOINT, RECOMPUTED
from ..graph.marks.stop_gradient import NAME as STOP


@dataclass(frozen=True)
class Branch:
    """A contribution that applies where a condition holds, and is zero elsewhere.

    Attributes
    ----------
    condition : Expr
        The condition under which the contribution applies (bool).
    value : Expr
        The seed times the partial derivative. It may be NaN or out of bounds if the condition is
        false.
    guards : bool
        True if the condition protects reads (`if_then_else`) and must stay a real branch. False if
        both sides may be evaluated (`select`, `max`, a limit at a singular point).
    """

    condition: Expr
    value: Expr
    guards: bool


Entry = Expr | Branch | None
Pullback = Callable[[Expr, tuple[Expr, ...], Expr], tuple[Entry, ...]]
_Unary = Callable[[Expr, Expr, Expr], Expr]


@dataclass(frozen=True)
class ScalarRule:
    """One row of the table.

    Attributes
    ----------
    name : str
        The operator, in the vocabulary of `expr.nodes.op_name`.
    formula : str
        The derivative in plain notation; ``g`` is the seed, ``f`` the value of the node.
    note : str
        The value at points that the formula does not define, or empty.
    pullback : callable
        ``pullback(seed, operands, out)`` with the node `out` and a seed of its dtype; returns one
        entry per operand. The entry is None for operands that are not floats, and for all operands
        of such a node.
    """

    name: str
    formula: str
    note: str
    pullback: Pullback


def _of_one_type(name: str, pullback: Pullback) -> Pullback:
    """The rule in the widest dtype of the operands: TVM accepts ``fmod(x, y)`` of a float16 x and a
    float32 or int32 y.
    """

    def converted(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
        if name not in TWO_FLOATS and not all(map(is_float, parts)):
            return pullback(seed, parts, out)
        if len({dtype_of(part) for part in parts}) < 2:
            return pullback(seed, parts, out)
        wide = widest_of(parts, dtype_of(out))
        wider = tuple(cast(wide, part) for part in parts)
        return pullback(cast(wide, seed), wider, cast(wide, out))

    return converted


def _masked(name: str, pullback: Pullback) -> Pullback:
    """Entries of non-float operands, and of non-float nodes, become None."""
    pullback = _of_one_type(name, pullback)

    def masked(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
        if not is_float(out):
            return (None,) * len(parts)
        entries = pullback(seed, parts, out)
        return tuple(
            entry if entry is not None and is_float(part) else None
            for part, entry in zip(parts, entries, strict=True)
        )

    return masked


def _unary(rule: _Unary) -> Pullback:
    """A pullback from ``rule(seed, x, out)``."""
    return lambda seed, parts, out: (rule(seed, parts[0], out),)


def _zero(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
    return (None,) * len(parts)


def _square(x: Expr) -> Expr:
    return mul(x, x)


def _one_minus_square(x: Expr) -> Expr:
    """``1 - x*x`` as ``(1 - x)*(1 + x)``, which is accurate near the ends of the domain."""
    return mul(sub(like(x, 1), x), add(like(x, 1), x))


def _scaled(seed: Expr, factor: float) -> Expr:
    return mul(seed, like(seed, factor))


def _sign(x: Expr) -> Expr:
    """1, 0 or -1."""
    return select(
        compare("gt", x, like(x, 0)),
        like(x, 1),
        select(compare("lt", x, like(x, 0)), like(x, -1), like(x, 0)),
    )


def _nonzero(x: Expr) -> Expr:
    return compare("ne", x, like(x, 0))


def _mul(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
    a, b = parts
    if same_node(a, b):
        return (mul(mul(like(a, 2), seed), a), None)
    return (mul(seed, b), mul(seed, a))


def _div(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
    # -g*f/b instead of -g*a/b²: one division less, and no overflow of b²
    _, b = parts
    return (div(seed, b), neg(div(mul(seed, out), b)))


def _truncmod(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
    # the quotient follows from the result: trunc(a/b) is wrong where the division rounds up
    a, b = parts
    quotient = call("nearbyint", div(sub(a, out), b))
    return (seed, neg(mul(seed, quotient)))


def _max(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
    a, b = parts
    return (
        Branch(compare("ge", a, b), seed, False),
        Branch(compare("lt", a, b), seed, False),
    )


def _min(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
    a, b = parts
    return (
        Branch(compare("le", a, b), seed, False),
        Branch(compare("gt", a, b), seed, False),
    )


def _choice(guards: bool) -> Pullback:
    def pullback(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
        condition = parts[0]
        return (None, Branch(condition, seed, guards), Branch(negate(condition), seed, guards))

    return pullback


def _cast(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
    return (cast(dtype_of(parts[0]), seed) if is_float(parts[0]) else None,)


def _power(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
    x, y = parts
    return (_power_by_base(seed, x, y, out), _power_by_exponent(seed, x, y, out))


def _power_by_base(seed: Expr, x: Expr, y: Expr, out: Expr) -> Entry:
    """``y*x**(y - 1)``; a constant exponent folds: ``x**2 → 2*x``, ``x**0.5 → 0.5/f``."""
    exponent = const_value(y)
    if const_value(x) is not None:
        return None
    if exponent is None:
        reduced = call("power", x, sub(y, like(y, 1)))
        return Branch(_nonzero(y), mul(seed, mul(y, reduced)), False)
    if exponent == 0:
        return None
    scaled = _scaled(seed, exponent)
    if exponent == 0.5:
        return div(scaled, out)
    if exponent == -1:
        return mul(scaled, _square(out))
    return mul(scaled, _constant_power(x, exponent - 1))


def _constant_power(x: Expr, exponent: float) -> Expr:
    """``x**exponent`` with the cheapest operator that has the same value."""
    if exponent == 0:
        return like(x, 1)
    if exponent == 1:
        return x
    if exponent == 2:
        return _square(x)
    if exponent == 0.5:
        return call("sqrt", x)
    return call("power", x, like(x, exponent))


def _power_by_exponent(seed: Expr, x: Expr, y: Expr, out: Expr) -> Entry:
    """``f*log(x)``, and 0 where ``x == 0 and y >= 0``, which is the limit for y > 0."""
    base = const_value(x)
    if const_value(y) is not None or base == 1:
        return None
    if base is not None and base > 0:
        return mul(_scaled(seed, math.log(base)), out)
    value = mul(seed, mul(out, call("log", x)))
    decreasing = compare("lt", y, like(y, 0))
    return Branch(any_of([_nonzero(x), decreasing]), value, False)


def _atan2(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
    y, x = parts
    square = add(_square(x), _square(y))
    away = any_of([_nonzero(y), _nonzero(x)])
    return (
        Branch(away, div(mul(seed, x), square), False),
        Branch(away, neg(div(mul(seed, y), square)), False),
    )


def _hypot(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
    away = _nonzero(out)
    return tuple(Branch(away, mul(seed, div(part, out)), False) for part in parts)


def _copysign(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
    # |x| with the sign of y: slope 1 where the result is x, -1 where its sign changed
    x, _ = parts
    slope = select(compare("eq", out, x), like(x, 1), like(x, -1))
    return (Branch(_nonzero(x), mul(seed, slope), False), None)


def _ldexp(seed: Expr, parts: tuple[Expr, ...], out: Expr) -> tuple[Entry, ...]:
    x, exponent = parts
    return (mul(seed, call_node("ldexp", (like(x, 1), exponent), dtype_of(out))), None)


_ROWS: tuple[tuple[str, str, str, Pullback], ...] = (
    # arithmetic
    ("add", "g; g", "", lambda g, ab, f: (g, g)),
    ("sub", "g; -g", "", lambda g, ab, f: (g, neg(g))),
    ("mul", "g*b; g*a", "a square: 2*g*a", _mul),
    ("div", "g/b; -g*f/b", "", _div),
    ("fma", "g*b; g*a; g", "", lambda g, abc, f: (mul(g, abc[1]), mul(g, abc[0]), g)),
    ("truncmod", "g; -g*trunc(a/b)", "at the jumps: of the branch the value is on", _truncmod),
    ("fmod", "g; -g*trunc(a/b)", "at the jumps: of the branch the value is on", _truncmod),
    ("cast", "cast(g)", "from or to an integer: zero", _cast),
    # choices
    ("max", "g if a >= b; g if a < b", "at a tie the first operand has all the weight", _max),
    ("min", "g if a <= b; g if a > b", "at a tie the first operand has all the weight", _min),
    ("select", "g if c; g if not c", "", _choice(guards=False)),
    ("if_then_else", "g if c; g if not c", "the condition guards reads", _choice(guards=True)),
    ("likely", "g", "transparent", lambda g, x, f: (g,)),
    ("abs", "g*sign(x)", "0 at 0", _unary(lambda g, x, f: mul(g, _sign(x)))),
    ("copysign", "g*f/x; 0", "0 at x = 0", _copysign),
    # powers and exponentials
    (
        "power",
        "g*b*a**(b - 1); g*f*log(a)",
        "by the base 0 at b = 0; by the exponent 0 at a = 0, b >= 0; NaN at a < 0",
        _power,
    ),
    ("sqrt", "g*0.5/f", "", _unary(lambda g, x, f: div(_scaled(g, 0.5), f))),
    (
        "rsqrt",
        "-g*0.5*f*f*f",
        "",
        _unary(lambda g, x, f: mul(_scaled(g, -0.5), mul(_square(f), f))),
    ),
    ("exp", "g*f", "", _unary(lambda g, x, f: mul(g, f))),
    ("exp2", "g*f*log(2)", "", _unary(lambda g, x, f: mul(_scaled(g, math.log(2)), f))),
    ("exp10", "g*f*log(10)", "", _unary(lambda g, x, f: mul(_scaled(g, math.log(10)), f))),
    ("log", "g/x", "", _unary(lambda g, x, f: div(g, x))),
    ("log2", "g/(x*log(2))", "", _unary(lambda g, x, f: div(_scaled(g, 1 / math.log(2)), x))),
    ("log10", "g/(x*log(10))", "", _unary(lambda g, x, f: div(_scaled(g, 1 / math.log(10)), x))),
    ("log1p", "g/(1 + x)", "", _unary(lambda g, x, f: div(g, add(like(x, 1), x)))),
    ("ldexp", "g*2**n; 0", "", _ldexp),
    ("hypot", "g*a/f; g*b/f", "0 at the origin", _hypot),
    # sigmoids
    ("sigmoid", "g*f*(1 - f)", "", _unary(lambda g, x, f: mul(g, mul(f, sub(like(f, 1), f))))),
    ("tanh", "g*(1 - f*f)", "", _unary(lambda g, x, f: mul(g, sub(like(f, 1), _square(f))))),
    (
        "erf",
        "g*2/sqrt(pi)*exp(-x*x)",
        "",
        _unary(
            lambda g, x, f: mul(_scaled(g, 2 / math.sqrt(math.pi)), call("exp", neg(_square(x))))
        ),
    ),
    # trigonometric and hyperbolic
    ("sin", "g*cos(x)", "", _unary(lambda g, x, f: mul(g, call("cos", x)))),
    ("cos", "-g*sin(x)", "", _unary(lambda g, x, f: neg(mul(g, call("sin", x))))),
    ("tan", "g*(1 + f*f)", "", _unary(lambda g, x, f: mul(g, add(like(f, 1), _square(f))))),
    (
        "asin",
        "g/sqrt(1 - x*x)",
        "",
        _unary(lambda g, x, f: div(g, call("sqrt", _one_minus_square(x)))),
    ),
    (
        "acos",
        "-g/sqrt(1 - x*x)",
        "",
        _unary(lambda g, x, f: neg(div(g, call("sqrt", _one_minus_square(x))))),
    ),
    ("atan", "g/(1 + x*x)", "", _unary(lambda g, x, f: div(g, add(like(x, 1), _square(x))))),
    ("sinh", "g*cosh(x)", "", _unary(lambda g, x, f: mul(g, call("cosh", x)))),
    ("cosh", "g*sinh(x)", "", _unary(lambda g, x, f: mul(g, call("sinh", x)))),
    (
        "asinh",
        "g/sqrt(x*x + 1)",
        "",
        _unary(lambda g, x, f: div(g, call("sqrt", add(_square(x), like(x, 1))))),
    ),
    (
        "acosh",
        "g/sqrt(x*x - 1)",
        "",
        _unary(lambda g, x, f: div(g, call("sqrt", mul(sub(x, like(x, 1)), add(x, like(x, 1)))))),
    ),
    ("atanh", "g/(1 - x*x)", "", _unary(lambda g, x, f: div(g, _one_minus_square(x)))),
    ("atan2", "g*b/(a*a + b*b); -g*a/(a*a + b*b)", "0 at the origin", _atan2),
    # steps by one unit in the last place
    ("nextafter", "g; 0", "", lambda g, xy, f: (g, None)),
    (CHECKPOINT, "g", "", _unary(lambda g, x, f: g)),
    # the second operand is the number of the sweep
    (RECOMPUTED, "g; 0", "", lambda g, xn, f: (g, None)),
)

#: operators whose derivative is zero wherever it exists
NO_DERIVATIVE: frozenset[str] = frozenset(
    {"floor", "ceil", "round", "trunc", "nearbyint"}
    | {"eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not"}
    | {"isnan", "isinf", "isfinite"}
    | {STOP}
)

RULES: dict[str, ScalarRule] = {
    **{
        name: ScalarRule(name, formula, note, _masked(name, pullback))
        for name, formula, note, pullback in _ROWS
    },
    **{name: ScalarRule(name, "0", "piecewise constant", _zero) for name in sorted(NO_DERIVATIVE)},
    STOP: ScalarRule(STOP, "0", "by definition", _zero),
}
