"""Terms that read at quotients are summed at their own points first, then gathered."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff import differentiate
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import axis_range, bodies, reduction_of, shape_of
from tvm_autodiff.stage_text import show

D = "float64"
x = te.placeholder((14, 14, 3), D, name="x")
y = te.placeholder((4, 49, 3), D, name="y")
b = te.placeholder((7, 7), D, name="b")
z = te.placeholder((8, 8), D, name="z")
k = te.reduce_axis((0, 3), "k")
r, s = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")


def row(w, a):
    """A place in windows of 7x7 of an image that is rolled by 3."""
    return (w // 2 * 7 + a // 7 + 3) % 14, (w % 2 * 7 + a % 7 + 3) % 14


def offset(p, q):
    return p // 4 - q // 4 + 3, p % 4 - q % 4 + 3


def scores():
    return te.compute(
        (4, 49, 49), lambda w, p, q: te.sum(x[(*row(w, p), k)] * y[w, q, k], axis=k), name="s"
    )


def biased():
    return te.compute((12, 16, 16), lambda n, p, q: b[offset(p, q)] * 2.0, name="t")


def convolved():
    return te.compute(
        (6, 6, 16), lambda i, j, f: te.sum(z[i + r, j + s] * y[0, f, r], axis=[r, s]), name="c"
    )


#: output, input, the stages of the gradient, and the axes that their sums have
CASES = {
    "rolled windows": (scores, x, {"dx_points": [49], "dx": None}),
    "what is read along all loops": (scores, y, {"dy": [49]}),
    "offsets": (biased, b, {"db_points": [12], "db": None}),
    "a convolution": (convolved, z, {"dz": [16, 3, 3]}),
}


@pytest.mark.parametrize("name", CASES)
def test_stages(name):
    make, by, expected = CASES[name]
    out = make()
    head = te.placeholder(out.shape, D, name="head")
    result = differentiate(out, by, head)
    [gradient] = result
    graph = Graph([gradient])
    made = {op.name: reduction_of(op) for op in graph.ops if op.name.startswith("d")}
    assert set(made) == set(expected), show(gradient)
    for stage, extents in expected.items():
        found = made[stage]
        if extents is not None:
            assert [axis_range(axis)[1] for axis in (found.axes if found else ())] == extents
    rng = np.random.default_rng(0)
    values = {tensor: rng.standard_normal(shape_of(tensor)) for tensor in (x, y, b, z)}
    heads = rng.standard_normal(shape_of(out))
    [got] = evaluate_graph([gradient], {**values, head: heads})
    # the function is linear: its pullback by what it gives for a direction
    direction = rng.standard_normal(shape_of(by))
    [moved] = evaluate_graph([out], {**values, by: direction})
    np.testing.assert_allclose(np.vdot(got, direction), np.vdot(heads, moved), rtol=1e-12)


def test_loops_of_any_size():
    n = te.var("n")
    p = te.placeholder((n, 14, 14, 3), D, name="p")

    def body(i, w, a, q):
        return te.sum(p[(i, *row(w, a), k)] * y[w, q, k], axis=k)

    out = te.compute((n, 4, 49, 49), body, name="s")
    [gradient] = differentiate(out, p, te.placeholder(out.shape, D, name="head"))
    assert [op.name for op in Graph([gradient]).ops if op.name.startswith("d")] == [
        "dp_points",
        "dp",
    ]


def test_a_solution_by_quotients_has_neither_guards_nor_loops():
    """The inverse of rolled windows is one read, as the points of the image decide."""
    windows = te.compute((4, 16, 3), lambda w, a, d: x[(*row(w, a), d)], name="w")

    def rolled_back(i, j, d):
        p, q = (i + 7) % 8, (j + 7) % 8
        return windows[p // 4 * 2 + q // 4, p % 4 * 4 + q % 4, d]

    back = te.compute((8, 8, 3), rolled_back, name="back")
    head = te.placeholder(back.shape, D, name="head")
    [cotangent] = differentiate(back, windows, head)
    assert reduction_of(cotangent.op) is None
    assert "if" not in str(show(cotangent)), show(cotangent)
    assert len(bodies(cotangent.op)) == 1
