"""Splits equations whose terms are the digits of a number into one for each digit.

A place in a flat array is such a number: its digits are the indices of an array of as many
dimensions. Solved as one equation, the digits would be mixed.

``34*(i + u) + (j + v) == q, j + v in [0, 34)  →  i + u == q//34, j + v == q%34``
"""

from __future__ import annotations

from .forms import CONST, Form, Interval, combine, scaled, shifted
from .system import System


def split_digits(system: System) -> None:
    """Split the equations of a system as far as their lower terms span less than the factor of all
    others.
    """
    pending, system.equations = system.equations[::-1], []
    while pending:
        equation = pending.pop()
        parts = _split(system, equation)
        if parts is None:
            system.equations.append(equation)
        else:
            pending += parts[::-1]


def _split(system: System, equation: Form) -> tuple[Form, Form] | None:
    """``S*H + L == r  →  H == (r - l)//S, L == l + (r - l)%S`` with L in [l, l + S)."""
    own = set(system.unknowns)
    terms = {s: k for s, k in equation.items() if s in own}
    number = scaled({s: k for s, k in equation.items() if s not in own}, -1)
    for size in sorted({abs(k) for k in terms.values()} - {1}):
        low = {s: k for s, k in terms.items() if k % size}
        if not low or len(low) == len(terms):
            continue
        least, most = _interval(system, low)
        if least is None or most is None or most - least >= size:
            continue
        high = {s: k // size for s, k in terms.items() if k % size == 0}
        rest = shifted(number, -least)
        quotient = system.atoms.floordiv(rest, size)
        digit = shifted(combine(rest, quotient, 1, -size), least)
        return combine(high, quotient, 1, -1), combine(low, digit, 1, -1)
    return None


def _interval(system: System, f: Form) -> Interval:
    """The bounds of a form over unknowns, by their ranges and by inequalities on it."""
    least, most = system.atoms.interval(f)
    for inequality in system.inequalities:
        linear = {s: k for s, k in inequality.items() if s != CONST}
        bound = inequality.get(CONST, 0)
        if linear == f:
            least = -bound if least is None else max(least, -bound)
        elif linear == scaled(f, -1):
            most = bound if most is None else min(most, bound)
    return least, most
