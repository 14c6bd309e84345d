"""Panels of operands: the loops that they begin in, and that products over them are right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import te, topi

from tests.machines import avx512
from tests.schedule import cases
from tests.schedule.test_rules import check
from tvm_autodiff.schedule.cpu.contraction import contraction
from tvm_autodiff.schedule.cpu.tiles.nests import padded_extents
from tvm_autodiff.schedule.cpu.tiles.panels import panels_of
from tvm_autodiff.schedule.cpu.tiles.tile import Tile
from tvm_autodiff.schedule.cpu.tiles.tile_functions import nest_of_kernel
from tvm_autodiff.schedule.declined import Declined
from tvm_autodiff.schedule.fusion.kernels import separate
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.rewrites.normal_form import normal_form


def strided(n: int, m: int, k: int) -> cases.Case:
    A, B = cases.placeholder("A", n, k), cases.placeholder("B", k, 3 * m)
    r = cases.axis(k)
    return [A, B], te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, 3 * j], axis=r), name="C")


def columns_of_four(threads: int = 1) -> tuple[cases.Case, Tile, int, int]:
    return cases.matmul(64, 128, 256), Tile(1, 16, 2, ((0, 8),)), threads, 1 << 20


#: name → the case, the tile, threads, bytes of the cache; and the order and the loops outside of
#: the panels of the second operand, or None
ORDERS: dict[str, tuple[tuple[cases.Case, Tile, int, int], tuple[list[int], int] | None]] = {
    "columns": (columns_of_four(), ([1, 0], 1)),
    "for two threads": (columns_of_four(2), ([1, 0], 1)),
    "too few for eight threads": (columns_of_four(8), None),
    "beyond the cache": ((*columns_of_four()[:3], 1 << 15), None),
    "transposed in registers": (
        (cases.matmul(64, 128, 256, "nt"), Tile(1, 16, 2, ((0, 8),)), 1, 1 << 20),
        ([1, 0], 1),
    ),
    "transposed with a border": (
        (cases.matmul(64, 120, 256, "nt"), Tile(1, 16, 2, ((0, 8),)), 1, 1 << 20),
        None,
    ),
    "copied with a border": (
        (cases.matmul(64, 120, 256), Tile(1, 16, 2, ((0, 8),)), 1, 1 << 20),
        ([1, 0], 1),
    ),
    "strided": ((strided(64, 128, 256), Tile(1, 16, 2, ((0, 8),)), 1, 1 << 20), None),
    "read once": ((cases.matmul(8, 128, 256), Tile(1, 16, 2, ((0, 8),)), 1, 1 << 20), None),
    "the whole operand": (
        (cases.matmul(64, 32, 256), Tile(1, 16, 2, ((0, 8),)), 1, 1 << 20),
        ([0, 1], 0),
    ),
    "of each of a batch": (
        (cases.batched(4, 64, 128, 256), Tile(2, 16, 2, ((1, 8),)), 1, 1 << 20),
        ([0, 2, 1], 2),
    ),
    "of each of a batch of any size": (
        (cases.batched(te.var("n"), 64, 128, 256), Tile(2, 16, 2, ((1, 8),)), 1, 1 << 20),
        ([0, 2, 1], 2),
    ),
    "over any size": (
        (cases.batched(4, 64, 128, te.var("n")), Tile(2, 16, 2, ((1, 8),)), 1, 1 << 20),
        None,
    ),
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders(name: str) -> None:
    (case, tile, threads, cache), want = ORDERS[name]
    machine = replace(avx512(threads, cache), last_cache_bytes=1 << 30)
    nest = nest_of_kernel(Kernel(normal_form([case[1]])[0].op), machine)
    assert nest is not None
    found = panels_of(nest.body.operands[1], nest, tile, padded_extents(nest, tile), machine)
    assert (None if found is None else (found.order, found.outer)) == want


def computed(n: int, m: int, k: int) -> cases.Case:
    """A function of an operand is computed once, in its panels."""
    A, B = cases.placeholder("A", n, k), cases.placeholder("B", k, m)
    r = cases.axis(k)
    body = lambda i, j: te.sum(A[i, r] * te.abs(B[r, j] - 1.0), axis=r)  # noqa: E731
    return [A, B], te.compute((n, m), body, name="C")


def finished(n: int, m: int, k: int) -> cases.Case:
    """An epilogue, which no part of the reduction applies."""
    inputs, root = cases.matmul(n, m, k)
    bias = cases.placeholder("bias", m)
    return [*inputs, bias], topi.nn.relu(topi.add(root, bias))


#: name → a case, whose operand is copied panel by panel
CASES: dict[str, cases.Case] = {
    "columns": cases.matmul(128, 128, 256),
    "columns with a border": cases.matmul(129, 120, 250),
    "rows": cases.matmul(128, 128, 256, "nt"),
    "rows and columns": cases.matmul(120, 136, 256, "tt"),
    "float64": cases.matmul(96, 104, 200, dtype="float64"),
    "a batch": cases.batched(3, 96, 128, 160),
    "a function of an operand": computed(128, 128, 256),
    "an epilogue": finished(128, 120, 256),
    "pairs": cases.distance(128, 120, 65),
    "four indices": cases.four_index(12),
}


def functions_of(case: cases.Case, threads: int) -> list[Any]:
    [kernel] = separate(normal_form([case[1]]))[0]
    made = contraction(kernel, avx512(threads, 2 << 20))
    assert not isinstance(made, Declined)
    return list(made)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_functions(name: str, threads: int) -> None:
    """The panels of an operand have no function of their own; of the other one there may be one."""
    assert len(functions_of(CASES[name], threads)) <= 2


@pytest.mark.parametrize("name", CASES)
def test_results(name: str) -> None:
    check(CASES[name])


def test_panels_are_copied_within_the_function() -> None:
    [made] = functions_of(cases.matmul(128, 128, 256), 1)
    assert "panel" in made.func.script()
    assert np.prod([int(n) for n in made.outputs[0].shape]) == 128 * 128
