"""Parts of stages over the places that they read: which there are, equal values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.gradient_case import check_numbers
from tvm_autodiff.graph.graph import tensors_read_by
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.rules.parts.placed_parts import adjoint_pays, placed_parts

x = te.placeholder((4, 5), "float64", name="x")
cube = te.placeholder((3, 4, 2), "float64", name="cube")
at = te.placeholder((4,), "int32", name="at")


def low(i: Any, extent: int = 4, size: int = 9) -> Any:
    """The place before that of a result, of as many results as there may be."""
    return te.floor(i.astype("float64") * ((extent - 1) / (size - 1))).astype("int32")


def near(i: Any, shift: int, extent: int = 4) -> Any:
    return te.max(te.min(low(i, extent) + shift, extent - 1), 0)


def weight(i: Any, extent: int = 4) -> Any:
    return i.astype("float64") * ((extent - 1) / 8) - low(i, extent).astype("float64")


def between(row: Callable[[Any], Any], i: Any, extent: int = 4) -> Any:
    return row(near(i, 0, extent)) * (1 - weight(i, extent)) + row(near(i, 1, extent)) * weight(
        i, extent
    )


def bilinear(i: Any, j: Any) -> Any:
    return between(lambda r: between(lambda c: x[r, c], j, 5), i)


def four_terms(i: Any, j: Any) -> Any:
    u, v = weight(i), weight(j, 5)
    r, c = [near(i, n) for n in range(2)], [near(j, n, 5) for n in range(2)]
    left = (1 - u) * (1 - v) * x[r[0], c[0]] + (1 - u) * v * x[r[0], c[1]]
    return left + u * (1 - v) * x[r[1], c[0]] + u * v * x[r[1], c[1]]


def trilinear(i: Any, j: Any, k: Any) -> Any:
    plane = lambda a: between(lambda b: between(lambda c: cube[a, b, c], k, 2), j)  # noqa: E731
    return between(plane, i, 3)


def chosen(condition: Any, value: Any) -> Any:
    return te.if_then_else(condition, value, te.const(0, "float64"))


def pair(r: Any) -> Any:
    return x[r, 0] * x[r, 1] + x[r, 2]


#: the shape, the body, and the shapes of the stages of parts
CASES: dict[str, tuple[tuple[int, ...], Callable[..., Any], list[tuple[int, ...]]]] = {
    "bilinear": ((9, 9), bilinear, [(4, 9)]),
    "four terms": ((9, 9), four_terms, [(4, 9)]),
    "trilinear": ((9, 9, 9), trilinear, [(3, 9, 9), (3, 4, 9)]),
    "of a batch in the middle": (
        (9, 3, 9),
        lambda i, b, j: bilinear(i, j) * te.exp(b.astype("float64")),
        [(4, 9)],
    ),
    "quotients": ((12, 3), lambda i, j: pair(i // 3) * x[i // 3, j], [(4, 3)]),
    "of one read and numbers": ((12, 4), lambda i, j: x[i // 3, j] * x[0, j] * 3.0, []),
    "two axes of one place": ((4, 4), lambda i, j: pair((i + j) // 2), [(4,)]),
    "under a function": ((12,), lambda i: te.exp(pair(i // 3)), [(4,)]),
    "several rows": ((12,), lambda i: pair(i // 3) + pair(3 - i // 3) * 2.0, [(4,), (4,)]),
    "a linear part of rows that are not all read": (
        (12, 4),
        lambda i, j: x[i // 6 * 3, j] * 2.0 + x[i // 6 * 3, j + 1] - x[i // 6 * 3, 0],
        [(4, 4)],
    ),
    "a product of rows that are not all read": ((12,), lambda i: pair(i // 6 * 3), []),
    "shifts of axes": (
        (2, 3),
        lambda i, j: sum((x[i + n, j] * x[i + n, j + 1] - x[i + n, j + 2] for n in range(3)), 0.0),
        [],
    ),
    "of one read": ((12, 5), lambda i, j: te.exp(x[i // 3, j]), []),
    "too few results": ((4,), lambda i: pair(3 - i), []),
    "changed by the axis elsewhere": (
        (12,),
        lambda i: x[i // 3, 0] * x[i // 3, 1] + x[i // 3, i // 6] + x[i // 3, i // 4],
        [(4,)],
    ),
    "beside a place that data give": (
        (12, 4),
        lambda i, j: pair(at[j]) * x[i // 3, j] + x[i // 3, j + 1],
        [(4, 4)],
    ),
    "at places that data give": ((12,), lambda i: pair(at[i // 3]), []),
    "read under a condition, beside what is always read": (
        (12, 4),
        lambda i, j: x[i // 3, j] * x[i // 3, 0] + chosen(at[j] > 0, x[i // 3, j + 1]),
        [(4, 4)],
    ),
    "read under a condition alone": (
        (24, 4),
        lambda i, j: 1.0 + chosen(at[j] > 3, x[i // 3, j] * x[i // 3, 0] + x[i // 3, 1]),
        [],
    ),
    "of a shorter dimension under a condition": (
        (12, 2),
        lambda i, j: x[i // 3, j] * x[i // 3, 0] + chosen(at[j] > 3, cube[i // 3, 0, j]),
        [(4, 2)],
    ),
    "a side of a branch": ((12,), lambda i: chosen(i > 3, pair(i // 3)), []),
}


def stage_of(name: str) -> Any:
    shape, body, _ = CASES[name]
    return te.compute(shape, body, name="y")


def data() -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    shapes = [[int(n) for n in shape_of(tensor)] for tensor in (x, cube)]
    values = [rng.uniform(0.5, 1.5, shape) for shape in shapes]
    return [(x, values[0]), (cube, values[1]), (at, np.array([3, 0, 2, 0], "int32"))]


def parts_of(stage: Any) -> list[tuple[int, ...]]:
    """The shapes of the stages below one that are no inputs."""
    found: list[tuple[int, ...]] = []
    for tensor in tensors_read_by(stage.op):
        if "placed" in tensor.op.name:
            found += [tuple(map(int, shape_of(tensor))), *parts_of(tensor)]
    return found


@pytest.mark.parametrize("name", CASES)
def test_parts_and_values(name: str) -> None:
    stage = stage_of(name)
    found = placed_parts(stage.op)
    assert (parts_of(found[0]) if found else []) == CASES[name][2]
    if found:
        want, got = (evaluate_graph([one], data())[0] for one in (stage, found[0]))
        np.testing.assert_allclose(got, want, rtol=1e-14)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    stage = stage_of(name)
    read = [t for t in (x, cube) if any(t.same_as(one) for one in tensors_read_by(stage.op))]
    check_numbers(stage, read, values=dict(data()))


def test_places_of_symbolic_dimensions() -> None:
    """As many results as a call has, twice as many as there are places."""
    n = te.var("n")
    rows = te.placeholder((n, 5), "float64", name="rows")

    def pairs(size: Any) -> Any:
        row = lambda i: rows[te.min(i // 2, n - 1), 0] * rows[te.min(i // 2, n - 1), 1]  # noqa: E731
        return te.compute((size, 3), lambda i, j: row(i) + rows[te.min(i // 2, n - 1), j], name="y")

    [found] = placed_parts(pairs(2 * n).op, adjoint_pays) or [None]
    assert found is None  # elements that no result reads might have no derivative
    linear = te.compute(
        (2 * n, 3),
        lambda i, j: rows[i // 2, j] * 2.0 + rows[i // 2, j + 1] - rows[i // 2, 0],
        name="y",
    )
    [found] = placed_parts(linear.op)
    values, sizes = [(rows, np.random.default_rng(0).random((4, 5)))], {n: 4}
    [want], [got] = (evaluate_graph([one], values, sizes) for one in (linear, found))
    np.testing.assert_allclose(got, want, rtol=1e-14)
    assert placed_parts(te.compute((n, 3), lambda i, j: rows[i, j] + rows[i, j + 1]).op) is None


def test_no_place_of_an_empty_dimension() -> None:
    empty = te.placeholder((0, 8), "float64", name="empty")
    y = te.compute((3, 8), lambda i, d: empty[te.max(i - 3, 0), d] * empty[te.max(i - 3, 0), 0])
    assert placed_parts(y.op) is None


def test_factors_stay_where_order_matters() -> None:
    assert placed_parts(stage_of("four terms").op, reorder=False) is None
    assert placed_parts(stage_of("bilinear").op, reorder=False) is not None


def test_elements_that_no_result_reads_have_no_gradient() -> None:
    """A root of a row that is not read is no number, and neither is zero times its derivative."""
    y = te.compute((12,), lambda i: te.sqrt(x[i // 6 * 3, 0] * x[i // 6 * 3, 1] - 1), name="y")
    head = te.placeholder((12,), "float64", name="head")
    [dx] = ad.differentiate(y, [x], head)
    values = np.full((4, 5), 2.0)
    values[1:3] = 0.0
    [got] = evaluate_graph([dx], [(x, values), (head, np.ones(12))])
    assert np.isfinite(got).all()
    assert not got[1:3].any()
    assert got[0, 0] > 0


def test_an_axis_of_any_length_stays() -> None:
    """Where it is empty, no place may be read; other axes may be so."""
    n = te.var("n")
    rows = te.placeholder((n, 4, 5), "float64", name="rows")
    by_batch = te.compute(
        (n, 12), lambda b, i: rows[b, i // 3, 0] * rows[b, i // 3, 1] + rows[b, i // 3, 2]
    )
    [found] = placed_parts(by_batch.op)
    assert len(parts_of_symbolic(found)) == 1
    assert placed_parts(te.compute((n,), lambda i: pair(i // 3)).op) is None
    assert placed_parts(te.compute((12, 0), lambda i, _: pair(i // 3)).op) is None


def parts_of_symbolic(stage: Any) -> list[str]:
    return [one.op.name for one in tensors_read_by(stage.op) if "placed" in one.op.name]


def test_work_grows_with_the_expression() -> None:
    """Where a part of a deep body does not pay, its own parts are not tried one after the other."""
    calls: list[Any] = []

    def pays(cost: Any) -> bool:
        calls.append(cost)
        return adjoint_pays(cost)

    def body(i: Any, deep: int) -> Any:
        value = x[i // 6 * 3, 0]
        for k in range(deep):
            value = te.sin(value * x[i // 6 * 3, k % 5])
        return value

    for deep in (10, 20):
        calls.clear()
        y = te.compute((12,), lambda i: body(i, deep), name="y")  # noqa: B023
        assert placed_parts(y.op, pays) is None
        assert len(calls) <= 20 * deep


METHODS = [("linear", "half_pixel"), ("cubic", "align_corners")]


@pytest.mark.parametrize(("method", "mode"), METHODS)
def test_resized_images_take_sums_along_one_axis(method: str, mode: str) -> None:
    image = te.placeholder((2, 3, 4), name="image")
    shaped = te.compute((1, 2, 3, 4), lambda _, c, i, j: image[c, i, j], name="shaped")
    y = topi.image.resize2d(shaped, (0.0,) * 4, (7, 9), "NCHW", method, mode)
    assert parts_of(placed_parts(y.op)[0]) == [(1, 2, 3, 9)]


def test_wide_indices() -> None:
    wide = te.placeholder([tirx.IntImm("int64", n) for n in (4, 5)], "float64", name="wide")
    shape = [tirx.IntImm("int64", 12), tirx.IntImm("int64", 4)]
    body = lambda i, j: wide[i // 3, j] * wide[i // 3, j + 1] + wide[i // 3, 0]  # noqa: E731
    y = te.compute(shape, body, name="y")
    [found] = placed_parts(y.op)
    values = [(wide, np.random.default_rng(0).uniform(size=(4, 5)))]
    want, got = (evaluate_graph([one], values)[0] for one in (y, found))
    np.testing.assert_allclose(got, want, rtol=1e-14)
    ad.check_grads(y, [wide])
