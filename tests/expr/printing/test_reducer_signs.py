"""Reducers that have a mathematical sign, and those that are written out."""

from __future__ import annotations

import pytest
from tvm import te, tirx, topi

from tvm_autodiff import differentiate, show
from tvm_autodiff.expr.printing.reducer_signs import sign_of

A = te.placeholder((4, 5), name="A")


def combiner(make):
    k = te.reduce_axis((0, 5), "k")
    made = te.compute((4,), lambda i: make(i, k), name="y")
    return (made if hasattr(made, "op") else made[0]).op.body[0].combiner


def pair(better, first="le"):
    order = {"gt": lambda a, b: a > b, "lt": lambda a, b: a < b, "ge": lambda a, b: a >= b}
    earlier = {"le": lambda a, b: a <= b, "lt": lambda a, b: a < b}[first]

    def keep(left, right):
        tied = tirx.all(left[0].equal(right[0]), earlier(left[1], right[1]))
        wins = tirx.any(order[better](left[0], right[0]), tied)
        return tuple(tirx.Select(wins, a, b) for a, b in zip(left, right, strict=True))

    reducer = te.comm_reducer(keep, lambda s, t: (tirx.const(0, s), tirx.const(0, t)), name="pair")
    return lambda i, k: reducer((A[i, k], k.var), axis=k)


def single(combine, identity):
    reducer = te.comm_reducer(combine, lambda t: tirx.const(identity, t), name="single")
    return lambda i, k: reducer(A[i, k], axis=k)


CASES = [
    ("Σ", lambda i, k: te.sum(A[i, k], axis=k)),
    ("max", lambda i, k: te.max(A[i, k], axis=k)),
    ("min", lambda i, k: te.min(A[i, k], axis=k)),
    ("Π", single(lambda a, b: a * b, 1)),
    (None, single(lambda a, b: a * b, 2)),
    (None, single(lambda a, b: a + b, 1)),
    (None, single(lambda a, b: a * b + a + b, 0)),
    ("argmax", pair("gt")),
    ("argmin", pair("lt")),
    (None, pair("ge")),
    (None, pair("gt", "lt")),
]


@pytest.mark.parametrize(("sign", "make"), CASES, ids=[str(n) for n in range(len(CASES))])
def test_sign(sign, make):
    assert sign_of(combiner(make)) == sign


def test_the_winner_of_a_maximum_prints_short():
    y = topi.max(A, axis=1)
    printed = show(list(differentiate(y, A, te.placeholder((4,), name="head"))))
    assert "argmax_{k1<5} (A[ax0, k1], k1)" in printed
