"""Results of register tiles whose vectors lie apart in memory: how many stores, and right ones."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te, tirx, topi

from tests.machines import avx512
from tests.schedule import cases
from tests.schedule.test_rules import check
from tvm_autodiff.codegen.loop_nest import UNROLLED
from tvm_autodiff.schedule.cpu.contraction import contraction
from tvm_autodiff.schedule.declined import Declined
from tvm_autodiff.schedule.fusion.kernels import separate
from tvm_autodiff.schedule.rewrites.normal_form import normal_form


def dense(rows: int, columns: int, terms: int, dtype: str = "float32") -> cases.Case:
    """More rows than columns: the vectors lie along the rows."""
    x, w = cases.placeholder("x", rows, terms, dtype=dtype), te.placeholder((columns, terms), dtype)
    return [x, w], topi.nn.dense(x, w, out_dtype=dtype)


def finished(rows: int, columns: int, terms: int) -> cases.Case:
    """An epilogue over the lanes."""
    inputs, root = dense(rows, columns, terms)
    bias = cases.placeholder("bias", columns)
    return [*inputs, bias], topi.nn.relu(topi.add(root, bias))


def channels(n: int, f: int, size: int) -> cases.Case:
    """Filters in lanes, which lie outside of the rows of images."""
    x, w = cases.placeholder("x", n, 3, size, size), cases.placeholder("w", f, 3, 3, 3)
    return [x, w], topi.nn.conv2d(x, w, strides=1, padding=0, dilation=1)


CASES: dict[str, cases.Case] = {
    "few columns": dense(64, 10, 84),
    "rows beyond the last vector": dense(61, 10, 84),
    "odd columns": dense(80, 7, 33),
    "one column": dense(64, 1, 84),
    "float64": dense(64, 10, 84, "float64"),
    "an epilogue": finished(61, 10, 84),
    "filters": channels(2, 16, 9),
    "filters beyond the last vector": channels(2, 13, 8),
}


@pytest.mark.parametrize("name", CASES)
def test_results(name: str) -> None:
    check(CASES[name], tolerance=1e-4)


def stores(statement: Any) -> int:
    """How many stores TVM writes, of vectors or of single elements."""
    if isinstance(statement, tirx.BufferStore):
        return 1
    if isinstance(statement, tirx.SeqStmt):
        return sum(map(stores, statement.seq))
    fields = ("block", "body", "then_case", "else_case")
    inside = [part for part in (getattr(statement, name, None) for name in fields) if part]
    copies = int(statement.extent) if getattr(statement, "kind", None) == UNROLLED else 1
    return copies * sum(map(stores, inside))


def test_a_store_for_each_row_and_not_for_each_lane() -> None:
    [kernel] = separate(normal_form([CASES["few columns"][1]]))[0]
    made = contraction(kernel, avx512(1, 2 << 20))
    assert not isinstance(made, Declined)
    assert 0 < max(stores(one.func.body) for one in made) < 200
