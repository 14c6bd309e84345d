"""Sums and products of float16 and bfloat16 accumulate in float32 and round once."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tvm import te

from tvm_autodiff.compile import build
from tvm_autodiff.expr.nodes import dtype_of
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.stage import is_placeholder, reduction_of
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.transforms.differentiate import differentiate

NARROW = {"float16": np.dtype("float16"), "bfloat16": np.dtype(ml_dtypes.bfloat16)}

add = te.comm_reducer(lambda x, y: x + y, lambda dtype: te_const(0, dtype), name="add")
times = te.comm_reducer(lambda x, y: x * y, lambda dtype: te_const(1, dtype), name="times")


def te_const(value, dtype):
    from tvm import tirx

    return tirx.const(value, dtype)


def ulps(got, want):
    """The largest distance to the exact result, in units in the last place of its dtype."""
    unit = np.abs(np.spacing(want.astype(got.dtype))).astype("float64")
    return float(np.max(np.abs(got.astype("float64") - want) / unit))


def near_one(dtype, *shape):
    """Values of one sign, so that the size of a sum tells the size of its terms."""
    return np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(NARROW[dtype])


def reduce_rows(reducer, dtype, rows=3, columns=4096, **keywords):
    A = te.placeholder((rows, columns), dtype, name="A")
    k = te.reduce_axis((0, columns), "k")
    return A, te.compute((rows,), lambda i: reducer(A[i, k], axis=k, **keywords), name="R")


@pytest.mark.parametrize("dtype", NARROW)
class TestValues:
    """Half a unit in the last place is the rounding at the end; float32 inside adds little."""

    def test_sum_of_4096(self, dtype):
        a = near_one(dtype, 3, 4096)
        assert ulps(build(*reduce_rows(te.sum, dtype))(a), a.astype("float64").sum(axis=1)) < 0.51

    @pytest.mark.parametrize(("reducer", "start"), [(add, 0), (times, 1)])
    def test_reducers_of_the_user(self, dtype, reducer, start):
        a = (1 + 0.01 * (near_one(dtype, 3, 300).astype("float32") - 1)).astype(NARROW[dtype])
        exact = a.astype("float64")
        want = exact.prod(axis=1) if start else exact.sum(axis=1)
        assert ulps(build(*reduce_rows(reducer, dtype, 3, 300))(a), want) < 0.51

    def test_matmul_multiplies_in_float32_too(self, dtype):
        A, B = (
            te.placeholder((33, 512), dtype, name="A"),
            te.placeholder((512, 40), dtype, name="B"),
        )
        k = te.reduce_axis((0, 512), "k")
        C = te.compute((33, 40), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
        a, b = near_one(dtype, 33, 512), near_one(dtype, 512, 40)
        want = a.astype("float64") @ b.astype("float64")
        assert ulps(build([A, B], C)(a, b), want) < 0.51

    def test_gradients_of_a_product_in_float32(self, dtype):
        """What the cotangent of a narrow operand rounds is the sum, not each product."""
        A = te.placeholder((20, 30), dtype, name="A")
        B = te.placeholder((30, 700), "float32", name="B")
        H = te.placeholder((20, 700), "float32", name="H")
        k = te.reduce_axis((0, 30), "k")
        C = te.compute(
            (20, 700),
            lambda i, j: te.sum(A[i, k].astype("float32") * B[k, j], axis=k),
            name="C",
        )
        shapes = (30, 700), (20, 700)
        b, h = (near_one(dtype, *shape).astype("float32") * 1.001 for shape in shapes)
        got = build([B, H], list(differentiate(C, [A], H)))(b, h)[0]
        assert ulps(got, h.astype("float64") @ b.T.astype("float64")) < 0.51

    def test_gradients_of_matmul(self, dtype):
        A, B = (
            te.placeholder((20, 700), dtype, name="A"),
            te.placeholder((700, 30), dtype, name="B"),
        )
        H = te.placeholder((20, 30), dtype, name="H")
        k = te.reduce_axis((0, 700), "k")
        C = te.compute((20, 30), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
        a, b, h = near_one(dtype, 20, 700), near_one(dtype, 700, 30), near_one(dtype, 20, 30)
        [da] = build([B, H], list(differentiate(C, [A], H)))(b, h)
        [db] = build([A, H], list(differentiate(C, [B], H)))(a, h)
        assert ulps(da, h.astype("float64") @ b.T.astype("float64")) < 0.51
        assert ulps(db, a.T.astype("float64") @ h.astype("float64")) < 0.51

    def test_condition_and_initial_value(self, dtype):
        A = te.placeholder((4096,), dtype, name="A")
        k = te.reduce_axis((0, 4096), "k")
        C = te.compute((2,), lambda i: te.sum(A[k], axis=k, where=k % 2 == i, init=A[i]), name="C")
        a = near_one(dtype, 4096)
        exact = a.astype("float64")
        want = np.array([exact[0::2].sum(), exact[1::2].sum()]) + exact[:2]
        assert ulps(build(A, C)(a), want) < 0.51

    def test_an_epilogue_starts_from_the_rounded_sum(self, dtype):
        A, R = reduce_rows(te.sum, dtype)
        E = te.compute((3,), lambda i: R[i] - A[i, 0], name="E")
        a = near_one(dtype, 3, 4096)
        rounded = a.astype("float64").sum(axis=1).astype(NARROW[dtype])
        np.testing.assert_array_equal(build(A, E)(a), rounded - a[:, 0])

    def test_scattered_gradient(self, dtype):
        """A table of 5 rows read 4,000 times: each row of its gradient is a sum of 800 terms."""
        table, places = te.placeholder((5, 3), dtype, name="T"), te.placeholder((4000,), "int32")
        H = te.placeholder((4000, 3), dtype, name="H")
        read = te.compute((4000, 3), lambda n, j: table[places[n], j], name="read")
        gradient = differentiate(read, [table], H)
        p, h = np.arange(4000, dtype="int32") % 5, near_one(dtype, 4000, 3)
        [got] = build([places, H], list(gradient))(p, h)
        assert ulps(got, h.astype("float64").reshape(800, 5, 3).sum(axis=0)) < 0.51

    def test_a_guard_of_the_source_still_guards(self, dtype):
        A = te.placeholder((8,), dtype, name="A")
        k = te.reduce_axis((0, 8), "k")
        C = te.compute(
            (1,), lambda i: te.sum(te.if_then_else(A[k] > 0, 1 / A[k], A[k] * 0), axis=k), name="C"
        )
        a = np.array([0, 1, 2, 4, 0, 1, 2, 4], NARROW[dtype])
        assert float(build(A, C)(a)[0]) == 3.5


def logsumexp():
    from tvm import tirx

    return te.comm_reducer(
        lambda x, y: tirx.log(tirx.exp(x) + tirx.exp(y)),
        lambda dtype: te_const(-20, dtype),
        name="lse",
    )


FORMS = [
    ("float16", te.sum, ["float32", "float16"]),
    ("bfloat16", te.sum, ["float32", "bfloat16"]),
    ("float16", times, ["float32", "float16"]),
    ("float16", logsumexp(), ["float32", "float16"]),
    ("float16", te.max, ["float16"]),
    ("float16", te.min, ["float16"]),
    ("float32", te.sum, ["float32"]),
    ("float64", te.sum, ["float64"]),
]


@pytest.mark.parametrize(("dtype", "reducer", "dtypes"), FORMS)
def test_stages(dtype, reducer, dtypes):
    """The reduction in float32 and one stage that rounds; nothing new where nothing rounds."""
    stages = [
        op
        for op in topological(normal_form([reduce_rows(reducer, dtype)[1]]))
        if not is_placeholder(op)
    ]
    assert [dtype_of(op.output(0)) for op in stages] == dtypes
    assert reduction_of(stages[0]) is not None
    assert stages[-1].name == "R"


def test_a_combiner_with_a_call_keeps_its_value():
    a = np.linspace(-1, 1, 12).astype("float16").reshape(3, 4)
    got = build(*reduce_rows(logsumexp(), "float16", 3, 4))(a)
    want = np.log(np.exp(a.astype("float64")).sum(axis=1))
    np.testing.assert_allclose(got.astype("float64"), want, rtol=5e-3)


def test_tuples_widen_what_is_narrow():
    """The sum of a float16 and a float32 component, over one pass."""
    A = te.placeholder((4096,), "float16", name="A")
    k = te.reduce_axis((0, 4096), "k")
    both = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] + y[1]),
        lambda t0, t1: (te_const(0, t0), te_const(0, t1)),
        name="both",
    )
    S, T = te.compute((1,), lambda i: both((A[k], A[k].astype("float32")), axis=k), name="ST")
    a = near_one("float16", 4096)
    s, t = build(A, [S, T])(a)
    assert (s.dtype, t.dtype) == (np.float16, np.float32)
    want = a.astype("float64").sum(keepdims=True)
    assert ulps(s, want) < 0.51
    np.testing.assert_allclose(t, want, rtol=1e-5)
