"""Tensors of more than 2**31 elements: their addresses are computed in int64, and all are written.

No array is made.
"""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from tvm import te, topi

from tests.exact_integers import exact_values
from tests.machines import avx512, synthetic
from tests.schedule.lowered_accesses import Accesses, lowered

N = te.var("n", "int64")
ROWS = 100_000  #: what n is

#: name → shape of the large tensor
SHAPES: dict[str, tuple[Any, ...]] = {
    "one axis": (2**31 + 8,),
    "two axes": (65_536, 65_536),
    "odd extents": (46_351, 46_339),
    "three axes": (3, 30_011, 30_000),
    "short rows": (2**29, 5),
    "four axes": (256, 64, 512, 512),
    "a symbolic first axis": (N, 65_536),
    "a symbolic first axis of three": (N, 300, 100),
}


def scaled(shape: tuple[Any, ...]) -> Any:
    x = te.placeholder(shape, name="x")
    return te.compute(shape, lambda *i: x(*i) * 2.0, name="y")


def turned(shape: tuple[Any, ...]) -> Any:
    x = te.placeholder(shape, name="x")
    return te.compute(shape[::-1], lambda *i: x(*reversed(i)), name="y")


def summed(shape: tuple[Any, ...]) -> Any:
    x = te.placeholder(shape, name="x")
    k = te.reduce_axis((0, shape[-1]), "k")
    return te.compute(shape[:-1], lambda *i: te.sum(x(*i, k), axis=k), name="y")


def summed_first(shape: tuple[Any, ...]) -> Any:
    x = te.placeholder(shape, name="x")
    k = te.reduce_axis((0, shape[0]), "k")
    return te.compute(shape[1:], lambda *i: te.sum(x(k, *i), axis=k), name="y")


def outer(shape: tuple[Any, ...]) -> Any:
    """A product with a sum over few terms."""
    a = te.placeholder((*shape[:-1], 8), name="a")
    b, k = te.placeholder((8, shape[-1]), name="b"), te.reduce_axis((0, 8), "k")
    return te.compute(shape, lambda *i: te.sum(a(*i[:-1], k) * b[k, i[-1]], axis=k), name="y")


def fetched(shape: tuple[Any, ...]) -> Any:
    x, at = te.placeholder(shape, name="x"), te.placeholder((50,), "int64", name="at")
    return te.compute((50, *shape[1:]), lambda i, *j: x(at[i], *j) + 1.0, name="y")


def windowed(shape: tuple[Any, ...]) -> Any:
    x = te.placeholder((*shape[:-1], shape[-1] + 2), name="x")
    k = te.reduce_axis((0, 3), "k")
    return te.compute(shape, lambda *i: te.max(x(*i[:-1], i[-1] + k), axis=k), name="y")


def cumulative(shape: tuple[Any, ...]) -> Any:
    x = te.placeholder(shape, name="x")
    k = te.reduce_axis((0, shape[-1]), "k")
    until = lambda *i: te.if_then_else(k <= i[-1], x(*i[:-1], k), 0.0)  # noqa: E731
    return te.compute(shape, lambda *i: te.sum(until(*i), axis=k), name="y")


def softmax(shape: tuple[Any, ...]) -> Any:
    return topi.nn.softmax(te.placeholder(shape, name="x"))


MADE = (scaled, turned, summed, summed_first, outer, fetched, windowed, cumulative, softmax)
PROGRAMS = {made.__name__: made for made in MADE}
MACHINES = {"AVX-512, one thread": avx512(), "NEON, threads": synthetic("NEON", 3)}


def elements(shape: Any) -> int:
    """The number of elements of a shape, with the value of n."""
    return prod(dim if isinstance(dim, int) else exact_values(dim, {N: ROWS})[-1] for dim in shape)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_positions_fit_their_types_and_all_is_written(
    program: str, shape: str, machine: str
) -> None:
    output = PROGRAMS[program](SHAPES[shape])
    large = max(elements(t.shape) for t in (output, *output.op.input_tensors))
    assert large > 2**31
    rows = elements(SHAPES[shape][:1])
    given = {"n": ROWS}
    found = [Accesses(func, given, rows - 1) for func in lowered(output, MACHINES[machine])]
    assert max(one.furthest for one in found) >= large - 1  # more behind guards of tails
    assert max(found[-1].stores.values()) >= elements(output.shape)
