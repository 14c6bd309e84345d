"""Small tensors that an elementwise kernel reads along another axis than it writes are copied."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.rewrites.operands.crossed_operands import over_turned_copies

A, B, C, D = 17, 16, 40, 24
small = te.placeholder((A, B), name="small")
large = te.placeholder((C, B, D, A), name="large")
index = te.placeholder((A,), "int32", name="index")
INPUTS = (small, large, index)


def stage(body, shape=(B, C, D, A)):
    return te.compute(shape, body, name="y")


#: name → (the stage, the shapes of the copies, the result in numpy)
CASES = {
    "a small one": (
        stage(lambda b, c, d, a: large[c, b, d, a] * small[a, b]),
        [(B, A)],
        lambda s, x, i: np.einsum("cbda,ab->bcda", x, s),
    ),
    "beside one that is transposed": (
        stage(lambda b, a, d, c: large[c, b, d, a] * small[a, b], (B, A, D, C)),
        [],
        lambda s, x, i: np.einsum("cbda,ab->badc", x, s),
    ),
    "in the order of the loops": (
        stage(lambda c, d, a, b: large[c, b, d, a] + small[A - 1 - a, b], (C, D, A, B)),
        [],
        lambda s, x, i: np.transpose(x, (0, 2, 3, 1)) + s[::-1],
    ),
    "twice": (
        stage(lambda b, c, d, a: te.exp(small[a, b]) + small[a, 3] * large[c, b, d, a]),
        [(B, A), (A,)],
        lambda s, x, i: np.exp(s.T)[:, None, None] + np.transpose(x, (1, 0, 2, 3)) * s[:, 3],
    ),
    "at places that are data": (
        stage(lambda b, c, d, a: large[c, b, d, a] * small[index[a], b]),
        [],
        lambda s, x, i: np.transpose(x, (1, 0, 2, 3)) * s[i].T[:, None, None],
    ),
    "under a condition of its bounds": (
        stage(
            lambda b, c, d, a: te.if_then_else(a + c < A, small[a + c, b], large[c, b, d, a])
        ),
        [],
        lambda s, x, i: np.array(
            [
                [[[s[a + c, b] if a + c < A else x[c, b, d, a] for a in range(A)]
                  for d in range(D)] for c in range(C)] for b in range(B)
            ]
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_copies(name):
    output, shapes, numpy = CASES[name]
    found = over_turned_copies(Kernel(output.op))
    assert (found is None) == (not shapes)
    copies = [] if found is None else [copy.root.output(0) for copy in found[0]]
    assert [tuple(map(int, copy.shape)) for copy in copies] == shapes
    rng = np.random.default_rng(0)
    arrays = [rng.random([int(n) for n in t.shape], "float32") for t in INPUTS[:2]]
    arrays.append(rng.integers(0, A, A).astype("int32"))
    got = ad.build(list(INPUTS), output, cache=False)(*arrays)
    np.testing.assert_allclose(got, numpy(*arrays), rtol=1e-6)


def test_few_elements_are_read_where_they_are():
    few = te.placeholder((2, 3), name="few")
    assert over_turned_copies(Kernel(te.compute((3, 2), lambda i, j: few[j, i]).op)) is None


def test_symbolic_sizes_stay():
    n = te.var("n")
    x, w = te.placeholder((n, 64, 32), name="x"), te.placeholder((32, 64), name="w")
    y = te.compute((n, 64, 32), lambda i, j, k: x[i, j, k] * w[k, j], name="y")
    assert over_turned_copies(Kernel(y.op)) is None
