"""Symbolic strides and quotients, equations with one loose variable: bijections for many sizes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tvm import te

from tvm_autodiff.domain import Domain, simplify_domain
from tvm_autodiff.expr.integers.integer_functions import compile_integers

a, b, i, j, k, m, n, p = (te.var(name) for name in "abijkmnp")
b0, b1, b2 = (te.var(name) for name in ("b0", "b1", "b2"))
SIZES = {m: range(1, 4), n: range(1, 4), p: range(1, 3)}


def eq(left: Any, right: Any) -> Any:
    return (left + 0).equal(right)


#: name → variables, ranges, conditions, old_to_new and extents as text, conditions left
CASES: dict[str, tuple[Any, Any, Any, dict[str, str], list[str], int]] = {
    "unflatten 2": (
        (i, j),
        {i: (0, m), j: (0, n), b: (0, m * n)},
        [eq(i * n + j, b)],
        {"i": "b // n", "j": "b % n"},
        [],
        0,
    ),
    "unflatten 3": (
        (i, j, k),
        {i: (0, p), j: (0, m), k: (0, n), b: (0, p * m * n)},
        [eq(i * (m * n) + j * n + k, b)],
        {"i": "b // (m * n)", "j": "b // n % m", "k": "b % n"},
        [],
        0,
    ),
    "unflatten with a constant": (
        (i, j, k),
        {i: (0, m), j: (0, n), k: (0, 4), b: (0, m * n * 4)},
        [eq(i * (n * 4) + j * 4 + k, b)],
        {"i": "b // (n * 4)", "j": "b // 4 % n", "k": "b % 4"},
        [],
        0,
    ),
    "flatten 2": (
        (a,),
        {a: (0, m * n), b0: (0, m), b1: (0, n)},
        [eq(a // n, b0), eq(a % n, b1)],
        {"a": "b1 + b0 * n"},
        [],
        0,
    ),
    "flatten 3": (
        (a,),
        {a: (0, p * m * n), b0: (0, p), b1: (0, m), b2: (0, n)},
        [eq(a // (m * n), b0), eq((a // n) % m, b1), eq(a % n, b2)],
        {"a": "b2 + b0 * m * n + b1 * n"},
        [],
        0,
    ),
    "flatten 3, nested": (
        (a,),
        {a: (0, p * m * n), b0: (0, p), b1: (0, m), b2: (0, n)},
        [eq(a // n // m, b0), eq((a // n) % m, b1), eq(a % n, b2)],
        {"a": "b2 + b0 * m * n + b1 * n"},
        [],
        0,
    ),
    "reverse": ((a,), {a: (0, n), b: (0, n)}, [eq(n - 1 - a, b)], {"a": "n - b - 1"}, [], 0),
    "circular": (
        (i, j),
        {i: (0, n), j: (0, n), b: (0, n)},
        [eq((i + j) % n, b)],
        {"i": "(b - j) % n", "j": "j"},
        ["n"],
        0,
    ),
    "circular, backwards": (
        (i, j),
        {i: (0, n), j: (0, m), b: (0, n)},
        [eq((3 * j - i) % n, b)],
        {"i": "(j * 3 - b) % n", "j": "j"},
        ["m"],
        0,
    ),
    "bits that differ": (
        (i,),
        {i: (0, 8), b: (0, 8)},
        [eq(i ^ b, 5)],
        {"i": "b ^ 5"},
        [],
        2,
    ),
    "bits that are literals": (
        (i,),
        {i: (0, 8)},
        [eq(i ^ 6, 3)],
        {"i": "5"},
        [],
        0,
    ),
    "bits of a second variable": (
        (i, j),
        {i: (0, 7), j: (0, 5), b: (0, 9)},
        [eq(j ^ i, b + 1)],
        {"i": "i", "j": "i ^ b + 1"},
        ["7"],
        2,
    ),
    "out of the shape": (
        (i, j),
        {i: (0, m), j: (0, n), b: (-2, m * n + 4)},
        [eq(i * n + j, b)],
        {"i": "b // n", "j": "b % n"},
        [],
        2,
    ),
    "overlapping strides": (
        (i, j),
        {i: (0, m), j: (0, n + 1), b: (0, m * n + 1)},
        [eq(i * n + j, b)],
        {"i": "i", "j": "b - n * i"},
        ["m"],
        2,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_symbolic_equation(name: str) -> None:
    variables, ranges, conditions, values, extents, left = CASES[name]
    domain = Domain(variables, ranges, tuple(conditions))
    transformation = simplify_domain(domain)
    new = transformation.new_domain
    assert {var.name: str(e) for var, e in transformation.old_to_new.items()} == values
    assert [str(new.extent(var)) for var in new.variables] == extents
    assert len(new.conditions) == left
    sizes = [var for var in (m, n, p) if var in domain.parameters]
    places = [var for var in domain.parameters if var not in sizes]
    limits = compile_integers([part for var in places for part in ranges[var]], sizes)
    for chosen in itertools.product(*(SIZES[var] for var in sizes)):
        ends = limits(*chosen)
        spans = [range(lo, lo + size) for lo, size in zip(ends[::2], ends[1::2], strict=True)]
        for point in itertools.product(*spans):
            pairs = (*zip(sizes, chosen, strict=True), *zip(places, point, strict=True))
            transformation.check(dict(pairs))


def test_variable_beside_a_load_is_substituted() -> None:
    table = te.placeholder((8,), "int32", name="table")
    domain = Domain((i, k), {i: (0, 8), k: (0, 5), b: (0, 9)}, (eq(table[i] + k, b),))
    new = simplify_domain(domain).new_domain
    assert [new.extent(var) for var in new.variables] == [8]
    assert len(new.conditions) == 2  # the range of k
