"""Functions of stages: names that TVM has uses for."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad

X = te.placeholder((4,), name="x")
K = te.reduce_axis((0, 4), "k")
STAGES = {
    "elementwise": lambda: te.compute((4,), lambda i: X[i] * 2.0, "root"),
    "sum": lambda: te.compute((), lambda: te.sum(X[K], axis=K), "root"),
    "rows": lambda: te.compute((4,), lambda i: te.sum(X[K] * X[i], axis=K), "root"),
}


@pytest.mark.parametrize("target", [None, "cuda"])
@pytest.mark.parametrize("kind", STAGES)
def test_a_stage_may_have_the_name_of_the_outermost_block(kind: str, target: str | None) -> None:
    root = STAGES[kind]()
    after = te.compute(root.shape, lambda *i: te.exp(root(*i)), "root")
    function = ad.build(X, [root, after], target, cache=False)
    if target is None:
        value, power = function(np.ones(4, "float32"))
        np.testing.assert_allclose(power, np.exp(value), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tvm_autodiff.PlainScheduleWarning")
def test_what_a_combiner_uses_twice_has_no_lets() -> None:
    p, q = te.placeholder((8, 16), name="p"), te.placeholder((16, 32), name="q")
    k = te.reduce_axis((0, 16), "k")
    product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="product")
    rest = te.compute((8, 32), lambda i, j: product(1.0 - p[i, k] * q[k, j], axis=k), "rest")
    head = te.placeholder((8, 32), name="head")
    [dp] = ad.differentiate(rest, [p], head)
    rng = np.random.default_rng(0)
    a, b, h = (rng.integers(-1, 2, s).astype("float32") for s in ((8, 16), (16, 32), (8, 32)))
    factors = 1 - a[:, :, None].astype("float64") * b
    others = [np.delete(factors, place, 1).prod(1) for place in range(16)]
    want = np.stack([-(h * other * b[place]).sum(1) for place, other in enumerate(others)], 1)
    np.testing.assert_array_equal(ad.build([p, q, head], dp, cache=False)(a, b, h), want)
