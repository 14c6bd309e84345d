"""Exact matrices: every identity that a diagonalisation promises, against sympy."""

from __future__ import annotations

import sympy
from hypothesis import given, strategies as st

from tvm_autodiff.domain.solvers.integers import (
    determinant,
    diagonalize,
    identity_matrix,
    inverse_unimodular,
    multiply,
)

matrices = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.lists(st.integers(-9, 9), min_size=n, max_size=n), min_size=1, max_size=5)
)
squares = st.integers(1, 4).flatmap(
    lambda n: st.lists(st.lists(st.integers(-5, 5), min_size=n, max_size=n), min_size=n, max_size=n)
)


@given(matrices)
def test_diagonalize(a: list[list[int]]) -> None:
    m, n = len(a), len(a[0])
    form = diagonalize(a, n)
    expected = [
        [form.pivots[i] if i == j and i < form.rank else 0 for j in range(n)] for i in range(m)
    ]
    assert multiply(multiply(form.left, a), form.right) == expected
    assert all(pivot > 0 for pivot in form.pivots)
    assert multiply(form.right, form.right_inverse) == identity_matrix(n)
    assert abs(sympy.Matrix(form.left).det()) == 1
    assert form.rank == sympy.Matrix(a).rank()


@given(matrices)
def test_null_space_is_small(a: list[list[int]]) -> None:
    """No basis vector gets shorter by taking off another one."""
    form = diagonalize(a, len(a[0]))
    basis = [[line[j] for line in form.right] for j in range(form.rank, len(a[0]))]
    for v in basis:
        for w in basis:
            if v is not w:
                dot = sum(x * y for x, y in zip(v, w, strict=True))
                assert 2 * abs(dot) <= sum(y * y for y in w)


@given(squares)
def test_determinant(a: list[list[int]]) -> None:
    assert determinant(a) == sympy.Matrix(a).det()


@given(squares)
def test_inverse(a: list[list[int]]) -> None:
    inverse = inverse_unimodular(a)
    if abs(determinant(a)) == 1:
        assert inverse is not None
        assert multiply(a, inverse) == identity_matrix(len(a))
    else:
        assert inverse is None


def test_numbers_of_any_size() -> None:
    big = 10**30
    form = diagonalize([[big, big + 1]], 2)
    assert form.pivots == [1]
    assert [abs(line[1]) for line in form.right] == [big + 1, big]
