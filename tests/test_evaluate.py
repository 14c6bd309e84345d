"""The oracle itself: graphs evaluated in numpy equal what TVM compiles, and guards do not leak."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

from tests.evaluate import OutsideRead, evaluate, evaluate_at, evaluate_graph, stages_of
from tvm_autodiff import differentiate
from tvm_autodiff.expr.build import const, if_then_else, select
from tvm_autodiff.expr.nodes import binary

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


def test_integers_wrap_at_their_width() -> None:
    i = tirx.Var("i", "int32")
    assert evaluate(i * 3, {i: 2**30}) == 3 * 2**30 - 2**32
    assert evaluate(tirx.Cast("uint8", i), {i: 259}) == 3
    assert evaluate(tirx.Cast("uint32", i) - tirx.const(5, "uint32"), {i: 4}) == 2**32 - 1


def test_strict_reads_raise_where_no_guard_fails() -> None:
    x = te.placeholder((3,), name="x")
    guarded = te.compute((5,), lambda i: te.if_then_else(i < 3, x[i], 0.0), name="guarded")
    bare = te.compute((5,), lambda i: x[i] * te.if_then_else(i < 3, 1.0, 0.0), name="bare")
    [values] = evaluate_graph([guarded], [(x, np.ones(3))], strict=True)
    np.testing.assert_array_equal(values, [1, 1, 1, 0, 0])
    with pytest.raises(OutsideRead, match="x, of shape"):
        evaluate_graph([bare], [(x, np.ones(3))], strict=True)


def test_opaque_stages_are_run_statement_by_statement() -> None:
    x, index = te.placeholder((4, 2), name="x"), te.placeholder((5,), "int32", name="index")
    y = te.compute((5, 2), lambda i, j: x[index[i], j] * 1.0, name="y")
    head = te.placeholder((5, 2), name="head")
    [dx] = differentiate(y, [x], head)
    assert any(isinstance(op, te.ExternOp) for op in stages_of([dx]))
    places, weights = np.array([1, 1, 3, 0, 1]), np.arange(10.0).reshape(5, 2)
    expected = np.zeros((4, 2))
    np.add.at(expected, places, weights)
    [ours] = evaluate_graph([dx], [(index, places), (head, weights)])
    np.testing.assert_array_equal(ours, expected)


def test_some_elements_of_large_tensors() -> None:
    n = 3_000_000
    x = te.placeholder((n,), "float64", name="x")
    k = te.reduce_axis((0, 1024), "k")
    power = te.compute((n // 512 - 1,), lambda i: te.sum(x[512 * i + k], axis=k), name="power")
    last = te.compute((n // 512 - 1,), lambda i: power[n // 512 - 2 - i] * 2.0, name="last")
    array = np.random.default_rng(0).normal(size=n)

    def read(indices: Any, active: Any) -> Any:
        return array[indices[0]]

    places = np.array([0, 17, n // 512 - 2])
    starts = 512 * (n // 512 - 2 - places)
    expected = [2 * array[start : start + 1024].sum() for start in starts]
    np.testing.assert_allclose(evaluate_at(last, [places], [(x, read)]), expected)
