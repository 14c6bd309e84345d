"""The oracle itself: graphs evaluated in numpy equal what TVM compiles, and guards do not leak."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

from tests.evaluate import evaluate, evaluate_graph
from tvm_autodiff.ir.build import const, if_then_else, select
from tvm_autodiff.ir.nodes import binary

A = te.placeholder((4, 6), name="A")
IMAGE = te.placeholder((2, 3, 6, 6), name="image")
K = te.reduce_axis((0, 6), "k")
LATE = te.reduce_axis((2, 4), "late")
ROWS = (4,)

GRAPHS: list[tuple[str, Any]] = [
    ("softmax", lambda: topi.nn.softmax(A)),
    ("pooling", lambda: topi.nn.pool2d(IMAGE, (2, 2), (2, 2), (1, 1), (1, 0, 0, 1), "max")),
    ("adaptive pooling", lambda: topi.nn.adaptive_pool(IMAGE, (4, 2), "avg")),
    ("argmax", lambda: topi.argmax(A, axis=1)),
    ("variance", lambda: topi.sum(topi.multiply(A, A), axis=0)),
    ("reshape", lambda: topi.reshape(IMAGE, (12, 18))),
    ("late axis", lambda: te.compute(ROWS, lambda i: te.sum(A[i, LATE], axis=LATE), name="B")),
    ("rank 0", lambda: te.compute((), lambda: A[1, 2] * 3.0, name="B")),
    ("fast exp", lambda: topi.fast_exp(A)),
]


@pytest.mark.parametrize("build", [b for _, b in GRAPHS], ids=[name for name, _ in GRAPHS])
def test_graph_equals_what_tvm_compiles(build: Any) -> None:
    output = build()
    rng = np.random.default_rng(0)
    arrays = [(t, rng.normal(size=[int(d) for d in t.shape]).astype("float32")) for t in (A, IMAGE)]
    inputs = [pair for pair in arrays if pair[0] in _placeholders(output)]
    [ours] = evaluate_graph([output], inputs)
    result = tvm.runtime.empty(ours.shape, str(output.dtype))
    library = tvm.compile(te.create_prim_func([*(t for t, _ in inputs), output]), target="llvm")
    library(*(tvm.runtime.tensor(array) for _, array in inputs), result)
    np.testing.assert_allclose(ours, result.numpy(), rtol=1e-5, atol=1e-6)
    assert ours.dtype == result.numpy().dtype


def _placeholders(output: te.Tensor) -> list[te.Tensor]:
    found, pending = [], [output]
    while pending:
        tensor = pending.pop()
        found += [tensor] if not tensor.op.input_tensors else []
        pending += list(tensor.op.input_tensors)
    return found


def test_conditions_and_init_of_reductions_count() -> None:
    """What TVM drops on the way down (`where=`, `init=`) is part of the value here."""
    x = np.arange(24, dtype="float32").reshape(4, 6)
    masked = te.compute(ROWS, lambda i: te.sum(A[i, K], axis=K, where=i < K), name="masked")
    started = te.compute(ROWS, lambda i: te.max(A[i, K], axis=K, init=15.0), name="started")
    ours = evaluate_graph([masked, started], {A: x})
    np.testing.assert_array_equal(ours[0], [x[i, i + 1 :].sum() for i in range(4)])
    np.testing.assert_array_equal(ours[1], [15.0, 15.0, 17.0, 23.0])


def test_symbolic_extents_take_values() -> None:
    n = te.var("n")
    P = te.placeholder((n,), name="P")
    k = te.reduce_axis((0, n), "k")
    total = te.compute((2,), lambda i: te.sum(P[k] * 2.0, axis=k), name="total")
    [ours] = evaluate_graph([total], {P: np.ones(5)}, {n: 5})
    np.testing.assert_array_equal(ours, [10.0, 10.0])


def test_reads_outside_are_poison() -> None:
    i = te.var("i")
    V = te.placeholder((3,), name="V")
    index = te.placeholder((3,), "int32", name="index")
    x = {V: np.ones(3, "float32"), index: np.zeros(3, "int32")}
    at = {i: np.arange(-1, 5)}
    bare = evaluate(V(i) + 1.0, at, x)
    np.testing.assert_array_equal(np.isnan(bare), [True, False, False, False, True, True])
    inside = te.all(i >= 0, i < 3)
    for choose in (if_then_else, select):
        guarded = evaluate(choose(inside, V(i), const(0, "float32")), at, x)
        np.testing.assert_array_equal(guarded, [0, 1, 1, 1, 0, 0])
    assert np.isnan(evaluate(V(index(i)), {i: 7}, x))


INTEGERS = [
    # operator, operands, value in C and in TVM
    ("floordiv", (-7, 2), -4),
    ("floormod", (-7, 2), 1),
    ("truncdiv", (-7, 2), -3),
    ("truncmod", (-7, 2), -1),
    ("truncdiv", (7, -2), -3),
    ("truncmod", (7, -2), 1),
    ("floormod", (7, -2), -1),
    ("shift_left", (3, 4), 48),
]


@pytest.mark.parametrize(("name", "values", "expected"), INTEGERS)
def test_integer_division(name: str, values: tuple[int, int], expected: int) -> None:
    i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    made = tirx.shift_left(i, j) if name == "shift_left" else binary(name, i, j)
    assert evaluate(made, dict(zip((i, j), values, strict=True))) == expected
