"""Scans: the state before each element, by a loop of Python; what a stage tells of itself."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tests.cuda_on_cpu.checking import Case, check
from tests.evaluate import evaluate_graph
from tvm_autodiff import build, estimate_cost, merge_equal_stages, show
from tvm_autodiff.graph.kinds.prefix_scan import Recurrence, Scan, scan_of, scan_stage

D = "float64"
n, m = te.var("n"), te.var("m")
#: extents for the values of symbolic ones
SIZES = {n: 3, m: 2}


def f(value):
    return tirx.const(value, D)


def recurrence():
    """Both components depend on both, and on two elements; the last counts."""
    (a, b, x, w), count = (tirx.Var(name, D) for name in "abxw"), tirx.Var("count", "int32")
    step = (a * x + w, b * 0.5 + a * w, count + 1)
    return Recurrence((a, b, count), (x, w), step, (f(1), f(0.25), tirx.const(7, "int32")))


def stage(rows, scanned, backward):
    shape = (*rows, *scanned)
    X, W = te.placeholder(shape, D, name="X"), te.placeholder(shape[len(rows) :], D, name="W")
    return X, W, scan_stage("S", Scan(recurrence(), (X, W), rows, scanned, backward))


def by_hand(x, w, rank, backward):
    results = np.empty(x.shape), np.empty(x.shape), np.empty(x.shape, "int32")
    for row in np.ndindex(*x.shape[:rank]):
        a, b, count = 1.0, 0.25, 7
        places = list(np.ndindex(*x.shape[rank:]))
        for place in reversed(places) if backward else places:
            for result, state in zip(results, (a, b, count), strict=True):
                result[(*row, *place)] = state
            here, weight = x[(*row, *place)], w[place]
            a, b, count = a * here + weight, b * 0.5 + a * weight, count + 1
    return results


BOXES = [
    ((3,), (4,)),
    ((), (5,)),
    ((2, 3), (4,)),
    ((2,), (3, 4)),
    ((1, 2, 3), (2, 2)),
    ((3, 1), (1,)),
    ((n,), (4,)),
    ((3,), (n,)),
    ((n, m), (2, 2)),
    ((2, m), (n,)),
    ((), (n, m)),
]


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize(("rows", "scanned"), BOXES, ids=str)
@pytest.mark.parametrize("compiler", ["cpu", "numpy"])
def test_states_before_each_element(compiler, rows, scanned, backward):
    X, W, outputs = stage(rows, scanned, backward)
    rng = np.random.default_rng(0)
    shape = [SIZES.get(extent, extent) for extent in (*rows, *scanned)]
    x, w = rng.normal(size=shape), rng.normal(size=shape[len(rows) :])
    if compiler == "numpy":
        got = evaluate_graph(outputs, [(X, x), (W, w)], SIZES)
    else:
        got = build([X, W], outputs)(x, w)
    for value, expected in zip(got, by_hand(x, w, len(rows), backward), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-12)


@pytest.mark.slow
def test_states_on_a_gpu():
    found = {}
    rng = np.random.default_rng(0)
    for rows, scanned in BOXES:
        for backward in (False, True):
            X, W, outputs = stage(rows, scanned, backward)
            shape = [SIZES.get(extent, extent) for extent in (*rows, *scanned)]
            arrays = [rng.normal(size=shape), rng.normal(size=shape[len(rows) :])]
            found[f"{rows}, {scanned}, {backward}"] = Case([X, W], outputs, [arrays], 1e-12)
    check(found)


def test_the_same_with_any_number_of_threads():
    X, W, outputs = stage((50, 3), (20,), False)
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(50, 3, 20)), rng.normal(size=20)
    one, two = (build([X, W], outputs, num_threads=threads)(x, w) for threads in (1, 2))
    for left, right in zip(one, two, strict=True):
        np.testing.assert_array_equal(left, right)


def test_tvm_alone_lowers_a_scan_that_other_stages_read():
    X, W, (first, *_) = stage((3,), (4,), True)
    out = te.compute((3, 4), lambda i, k: first[i, 3 - k] * 2.0, name="out")
    rng = np.random.default_rng(0)
    x, w, got = rng.normal(size=(3, 4)), rng.normal(size=4), np.zeros((3, 4))
    tvm.compile(te.create_prim_func([X, W, out]), target="llvm")(x, w, got)
    np.testing.assert_allclose(got, 2 * by_hand(x, w, 1, True)[0][:, ::-1], rtol=1e-12)


def test_a_tensor_may_be_two_elements():
    a, x, y = (tirx.Var(name, D) for name in "axy")
    X = te.placeholder((2, 3), D, name="X")
    step = Recurrence((a,), (x, y), (a + x * y,), (f(0),))
    [squares] = scan_stage("S", Scan(step, (X, X), (2,), (3,), False))
    assert len(squares.op.inputs) == 1
    at = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(build([X], squares)(at), np.cumsum(at**2, axis=1) - at**2)


def test_a_stage_tells_what_it_computes():
    X, W, outputs = stage((2, n), (3, 4), True)
    scan = scan_of(outputs[0].op)
    assert scan.backward
    assert scan.elements[0].op.same_as(X.op)
    assert scan.elements[1].op.same_as(W.op)
    assert (len(scan.rows), scan.scanned) == (2, (3, 4))
    assert len(scan.recurrence.state) == 3
    assert scan_of(X.op) is None
    assert scan_of(te.compute((3,), lambda i: W[i, 0], name="c").op) is None


def test_equal_scans_are_one():
    X, W, (first, *_) = stage((2,), (3,), True)

    def again(rows, backward):
        return scan_stage("T", Scan(recurrence(), (X, W), rows, (3,), backward))[0]

    assert merge_equal_stages([first, again((2,), True)])[1].op.same_as(first.op)
    turned = again((2,), False)
    assert merge_equal_stages([first, turned])[1].op.same_as(turned.op)
    other = te.placeholder((2, 3), D, name="other")
    [apart, *_] = scan_stage("T", Scan(recurrence(), (other, W), (2,), (3,), True))
    assert merge_equal_stages([first, apart])[1].op.same_as(apart.op)


def test_a_step_an_element_is_counted():
    _, _, outputs = stage((5, 6), (7,), False)
    cost = estimate_cost(outputs)
    assert (cost.iterations, cost.memory) == (210, 3 * 210)
    assert cost.multiplications == 3 * 210  # a*x, b*0.5, a*w


def test_a_scan_is_shown():
    _, _, outputs = stage((2,), (3,), True)
    assert show(outputs).splitlines()[1] == (
        "(S.v0, S.v1, S.v2)[i0, k0] = scan_{k0 from last}[(a, b, count), (x, w) → "
        "(a*x + w, b*0.5 + a*w, count + 1); start (1.0, 0.25, 7)] (X[i0, k0], W[k0])  "
        "(float64, float64, int32)[2, 3]"
    )
