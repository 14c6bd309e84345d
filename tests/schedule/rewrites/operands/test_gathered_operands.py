"""Operands at quotients are gathered once, for all reductions over the same windows."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.schedule.rewrites.operands.gathered_operands import with_gathered_operands

x = te.placeholder((16, 16, 24), "float64", name="x")
y = te.placeholder((16, 64, 24), "float64", name="y")
z = te.placeholder((8, 16), "float64", name="z")
u = te.placeholder((16, 24), "float64", name="u")
k = te.reduce_axis((0, 24), "k")
c = te.reduce_axis((0, 4), "c")


def rolled(w, a, d):
    """Windows of 4x4 of an image that is rolled by 2."""
    return x[(w // 4 * 4 + a // 4 + 2) % 16, (w % 4 * 4 + a % 4 + 2) % 16, d]


def scores(w, a, b):
    return te.sum(rolled(w, a, k.var) * y[w, b, k], axis=k)


#: outputs, and the shapes of what is gathered for them
CASES = {
    "windows": (lambda: [te.compute((16, 16, 64), scores)], [(16, 16, 24)]),
    "two products": (
        lambda: [
            te.compute((16, 16, 64), scores),
            te.compute((16, 64, 16), lambda w, b, a: te.sum(rolled(w, a, k.var) * y[w, b, k], k)),
        ],
        [(16, 16, 24)],
    ),
    "windows against windows": (
        lambda: [
            te.compute(
                (16, 16, 16),
                lambda w, a, b: te.sum(rolled(w, a, k.var) * rolled(w, b, k.var), axis=k),
            )
        ],
        [(16, 16, 24)],
    ),
    # groups of channels become an axis
    "groups": (
        lambda: [
            te.compute((16, 16), lambda n, f: te.sum(x[n, f // 4 * 4 + c.var, 0] * z[0, c], axis=c))
        ],
        [],
    ),
    "read once": (
        lambda: [te.compute((16, 16), lambda w, a: te.sum(rolled(w, a, k.var), axis=k))],
        [],
    ),
    "means of groups": (
        lambda: [
            te.compute((16, 16, 24), lambda a, b, d: x[a, b, d] - u[a, d // 3] * y[a, 0, d // 8])
        ],
        [(16, 24), (16, 24)],
    ),
    "a wrapped row": (
        lambda: [te.compute((16, 16, 24), lambda a, b, d: x[a, b, d] - u[(a + 1) % 16, d])],
        [],
    ),
    "an image of twice the size": (
        lambda: [te.compute((32, 32, 24), lambda a, b, d: x[a // 2, b // 2, d] * 2.0)],
        [],
    ),
    "few elements": (lambda: [te.compute((16, 16), lambda a, b: x[a, b, 0] - z[0, b // 2])], []),
    # elements are read in many windows: the copy would be larger
    "overlapping": (
        lambda: [
            te.compute(
                (16, 16, 64),
                lambda w, a, b: te.sum(u[(w + a) % 16, k] * y[w, b, k], axis=k),
            )
        ],
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_gathered(name):
    make, shapes = CASES[name]
    outputs = make()
    found = with_gathered_operands(outputs)
    ops = [op for op in topological(found) if op.name.endswith("_gathered")]
    assert [shape_of(op.output(0)) for op in ops] == shapes
    rng = np.random.default_rng(0)
    values = {tensor: rng.standard_normal(shape_of(tensor)) for tensor in (x, y, z, u)}
    for old, new in zip(*(evaluate_graph(some, values) for some in (outputs, found)), strict=True):
        np.testing.assert_array_equal(new, old)


def test_windows_of_a_batch_of_any_size():
    n = te.var("n")
    p, q = (te.placeholder((n, *shape), "float64") for shape in ((16, 4), (16, 4)))
    k = te.reduce_axis((0, 4), "k")

    def body(i, w, a, b):
        return te.sum(p[i, (w * 4 + a + 3) % 16, k] * q[i, b, k], axis=k)

    [gathered] = with_gathered_operands([te.compute((n, 4, 4, 16), body, name="y")])
    [stage] = [op for op in topological([gathered]) if op.name.endswith("_gathered")]
    assert shape_of(stage.output(0))[1:] == (4, 4, 4)
    function = ad.build([p, q], gathered, cache=False)
    for size in (0, 1, 3):
        a, b = (np.arange(size * m * 4.0).reshape(size, m, 4) for m in (16, 16))
        place = (np.arange(4)[:, None] * 4 + np.arange(4) + 3) % 16
        want = np.einsum("nwak,nbk->nwab", a[:, place], b)
        np.testing.assert_array_equal(function(a, b), want)
