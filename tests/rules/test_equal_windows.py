"""Windows of nearly equal lengths: which become windows of one length, values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.gradient_case import check_numbers
from tvm_autodiff.expr.nodes import Tensor
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import axis_range, is_compute, reduced_axes, shape_of
from tvm_autodiff.rules.equal_windows import equal_windows

F = "float64"
x = te.placeholder((2, 13, 11), F, name="x")
line = te.placeholder((40,), F, name="line")
where = te.placeholder((5,), "int32", name="where")
n = te.var("n")
batch = te.placeholder((n, 13), F, name="batch")


def start(i: Any, extent: int, count: int) -> Any:
    return i * extent // count


def length(i: Any, extent: int, count: int) -> Any:
    return ((i + 1) * extent + count - 1) // count - start(i, extent, count)


def pool(reducer: Any, body: Callable[[Any], Any] = lambda value: value) -> Tensor:
    """Adaptive windows of 13 rows and 11 columns into 5 and 4."""

    def window(c: Any, i: Any, j: Any) -> Any:
        a = te.reduce_axis((0, length(i, 13, 5)), "a")
        b = te.reduce_axis((0, length(j, 11, 4)), "b")
        return reducer(body(x[c, start(i, 13, 5) + a, start(j, 11, 4) + b]), axis=[a, b])

    return te.compute((2, 5, 4), window, name="y")


def of_line(extent: Callable[[Any], Any], low: Any = 0, count: int = 5) -> Tensor:
    def window(i: Any) -> Any:
        k = te.reduce_axis((low, extent(i)), "k")
        return te.sum(line[3 * i + k], axis=k)

    return te.compute((count,), window, name="y")


def of_batch() -> Tensor:
    def window(b: Any, i: Any) -> Any:
        k = te.reduce_axis((0, length(i, 13, 5)), "k")
        return te.sum(batch[b, start(i, 13, 5) + k], axis=k)

    return te.compute((n, 5), window, name="y")


def mean(c: Any) -> Tensor:
    return topi.nn.adaptive_pool(c, (5, 4), "avg", "NCHW")


product = te.comm_reducer(lambda a, b: a * b, lambda dtype: te.const(1, dtype), name="product")
odd = te.comm_reducer(lambda a, b: a + b * 0.5, lambda dtype: te.const(0, dtype), name="odd")
image = te.placeholder((1, 2, 13, 11), F, name="image")

#: name → the stage, and the extents that each stage reduces over, by the order of sums and without
CASES: dict[str, tuple[Callable[[], Tensor], Any, Any]] = {
    "sums": (lambda: pool(te.sum), [[4], [4]], [[4, 4]]),
    "maxima": (lambda: pool(te.max), [[4, 4]], [[4, 4]]),
    "minima": (lambda: pool(te.min), [[4, 4]], [[4, 4]]),
    "products": (lambda: pool(product), [[4, 4]], [[4, 4]]),
    "sums of a function": (lambda: pool(te.sum, te.exp), [[4, 4]], [[4, 4]]),
    "another reducer": (lambda: pool(odd), None, None),
    "one axis": (lambda: of_line(lambda i: 2 + i % 3), [[4]], [[4]]),
    "from a later element on": (lambda: of_line(lambda i: 3 + i % 2, 1), [[3]], [[3]]),
    "a place that no result moves": (
        lambda: te.compute(
            (5,),
            lambda i: te.sum(
                line[(k := te.reduce_axis((0, 3), "k"))],
                axis=[te.reduce_axis((0, 2 + i % 2), "a"), k],
            ),
            name="y",
        ),
        [[3, 3]],
        [[3, 3]],
    ),
    "of constant length": (lambda: of_line(lambda i: 3), None, None),
    "more than twice as long": (lambda: of_line(lambda i: 1 + i), None, None),
    "of no length": (lambda: of_line(lambda i: i % 2), None, None),
    "as long as data tell": (lambda: of_line(lambda i: where[i]), None, None),
    "of so many rows": (of_batch, [[4]], [[4]]),
}


def extents(outputs: list[Tensor] | None) -> Any:
    if outputs is None:
        return None
    return [
        [axis_range(axis)[1] for axis in reduced_axes(op)]
        for op in Graph(outputs).ops
        if is_compute(op)
    ]


@pytest.mark.parametrize("name", CASES)
def test_what_has_one_length(name: str) -> None:
    make, ordered, plain = CASES[name]
    stage = make()
    assert extents(equal_windows(stage.op)) == ordered
    assert extents(equal_windows(stage.op, False)) == plain
    if ordered is None:
        return
    rng = np.random.default_rng(0)
    given = [(t, rng.standard_normal(shape_of(t))) for t in (x, line)]
    given += [(batch, rng.standard_normal((3, 13)))]
    sizes = {n: 3} if "rows" in name else {}
    for reorder in (False, True):
        found = equal_windows(stage.op, reorder)
        [want], [got] = (evaluate_graph([one], given, sizes) for one in (stage, found[0]))
        np.testing.assert_allclose(got, want, rtol=1e-13)


@pytest.mark.parametrize("name", ["sums", "maxima", "minima", "products", "one axis"])
def test_gradients(name: str) -> None:
    stage = CASES[name][0]()
    check_numbers(stage, [line if "one" in name else x])


@pytest.mark.parametrize("kind", ["avg", "max"])
def test_adaptive_pools(kind: str) -> None:
    check_numbers(topi.nn.adaptive_pool(image, (5, 4), kind, "NCHW"), [image])


def test_the_first_of_equal_elements_has_the_gradient() -> None:
    """The last element stands for those behind the end of a window, and is no other one."""
    y = pool(te.max)
    head = te.placeholder((2, 5, 4), F, name="head")
    [dx] = ad.differentiate(y, [x], head)
    [got] = evaluate_graph([dx], [(x, np.ones((2, 13, 11))), (head, np.ones((2, 5, 4)))])
    want = np.zeros((2, 13, 11))
    for i in range(5):
        for j in range(4):
            want[:, i * 13 // 5, j * 11 // 4] += 1
    np.testing.assert_array_equal(got, want)
