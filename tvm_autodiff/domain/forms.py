"""Linear forms with exact integer coefficients: ``{atom: coefficient}``, with key `CONST` for the
constant.

Forms are plain dicts without zero coefficients. Atoms are numbers, whose meaning is in the tables
of `atoms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

Form = dict[int, int]
FormKey = tuple[tuple[int, int], ...]
Interval = tuple[int | None, int | None]

CONST = 0  #: the key of the constant term
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
    out = f.copy() if a == 1 else {s: a * k for s, k in f.items()}
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
    """A hashable key, equal for equal forms."""
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
    """The greatest common divisor of the coefficients of the atoms, or 0 for a constant."""
    g = 0
    for s, k in f.items():
        if s != CONST:
            g = gcd(g, k)
    return g
