"""Functions of stages: names that TVM has uses for."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

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
