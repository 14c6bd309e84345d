"""Lower bounds and proofs: never wrong, and strong enough for what guards need."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings, strategies as st
from tvm import te

from tvm_autodiff.domain.affine import Atoms
from tvm_autodiff.domain.bounds import Facts, tighten
from tvm_autodiff.domain.forms import CONST, Form, combine
from tvm_autodiff.domain.solvers.simplex import INFEASIBLE, minimum

b, c, m, n, p = (te.var(name) for name in "bcmnp")


def facts() -> Facts:
    """b in [0, n), c in [0, m), p in [0, 10); m and n at least 1."""
    atoms = Atoms()
    for var in (n, m):
        atoms.symbol(var, (1, None))
    found = Facts(atoms)
    for var, size in ((b, n), (c, m)):
        found.bound(atoms.symbol(var), {}, combine(atoms.form(size), {CONST: -1}))
    found.bound(atoms.symbol(p), {}, {CONST: 9})
    return found


PROVED = {
    "bound": n - 1 - b,
    "sum of bounds": n + m - 2 - b - c,
    "scaled": 2 * n - 2 * b - 1,
    "flattened": m * n - 1 - (b * m + c),
    "division": p - 2 * (p // 2),
    "division with room": p // 2 * 2 + 1 - p,
    "symbolic remainder": n - 1 - p % n,
    "symbolic product": (n - 1) * m - b * m,
    "halves": p // 2 + 5 - (p + 1) // 2,
}
REFUTED = {"too tight": n - 2 - b, "other size": m - 1 - b, "division": 4 * (p // 2) - p}


@pytest.mark.parametrize("name", PROVED)
def test_proved(name: str) -> None:
    known = facts()
    assert known.nonnegative(known.atoms.form(PROVED[name]))


@pytest.mark.parametrize("name", REFUTED)
def test_not_proved(name: str) -> None:
    known = facts()
    assert not known.nonnegative(known.atoms.form(REFUTED[name]))


def test_contradiction() -> None:
    known = facts()
    forms = [known.atoms.form(e) for e in (b - c - 1, c - p - 1, p - b - 1)]
    assert known.infeasible(forms)
    assert not known.infeasible(forms[:2])


def test_tighten_rounds_inwards() -> None:
    assert tighten({1: 3, 2: -6, CONST: 5}) == {1: 1, 2: -2, CONST: 1}
    assert tighten({1: 3, CONST: -1}) == {1: 1, CONST: -1}


forms = st.dictionaries(st.integers(0, 3), st.integers(-4, 4).filter(bool), max_size=4)
boxes = st.lists(
    st.tuples(st.integers(-3, 0), st.integers(0, 3)).map(lambda t: (t[0], t[1])),
    min_size=3,
    max_size=3,
)


def value(f: Form, point: tuple[int, ...]) -> int:
    return f.get(CONST, 0) + sum(k * point[s - 1] for s, k in f.items() if s != CONST)


@pytest.mark.slow
@settings(max_examples=300)
@given(forms, st.lists(forms, max_size=4), boxes)
def test_simplex_bounds_every_integer_point(
    objective: Form, constraints: list[Form], box: list[tuple[int, int]]
) -> None:
    found = minimum(objective, constraints, [(1, 1), *box])
    assert found is not None
    points = product(*(range(lo, hi + 1) for lo, hi in box))
    inside = [q for q in points if all(value(f, q) >= 0 for f in constraints)]
    if found == INFEASIBLE:
        assert not inside
    else:
        assert all(value(objective, q) >= Fraction(*found) for q in inside)


@settings(max_examples=200)
@given(forms, boxes)
def test_simplex_is_exact_on_boxes(objective: Form, box: list[tuple[int, int]]) -> None:
    found = minimum(objective, [], [(1, 1), *box])
    assert found is not None
    assert Fraction(*found) == min(value(objective, q) for q in product(*box))


@pytest.mark.slow
@given(st.lists(st.integers(-9, 9), min_size=3, max_size=3), st.integers(-60, 60))
@settings(max_examples=300)
def test_small_terms_are_left_out_of_equal_conditions(factors: list[int], constant: int) -> None:
    """Over q and t in small ranges, and i with its quotient by 4."""
    q, t, i = te.var("q"), te.var("t"), te.var("i")
    atoms = Atoms()
    known = Facts(atoms)
    for var, most in ((q, 6), (t, 2), (i, 23)):
        known.bound(atoms.symbol(var), {}, {CONST: most})
    whole = 4 * factors[0] * q + factors[1] * t + factors[2] * i + 8 * (i // 4) + constant
    form = atoms.form(whole)
    other = known.without_small_terms(form)
    for values in product(range(7), range(3), range(24)):
        at = dict(zip((q, t, i), values, strict=True))
        assert (value_of(atoms, form, at) >= 0) == (value_of(atoms, other, at) >= 0), values


def value_of(atoms: Atoms, form: Form, at: dict) -> int:
    """A form over symbols and quotients of them."""
    total = 0
    for atom, factor in form.items():
        kind, low, divisor = atoms.kinds[atom] if atom != CONST else ("", {}, 0)
        if atom == CONST:
            value = 1
        elif kind == "div":
            value = value_of(atoms, low, at) // divisor
        else:
            value = next(n for var, n in at.items() if atoms.symbol(var) == atom)
        total += factor * value
    return total
