"""Where shared parts of an expression are computed: the value stays, whatever is read where."""

from __future__ import annotations

import numpy as np
from tvm import te

from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import dtype_of, op_name, operands, same_node
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.expr.sharing.homes import GUARDS, MOST_HOMES, homes_of

COUNT = MOST_HOMES + 3


def test_a_guard_of_what_is_read_within_a_part_that_is_written_at_each_use() -> None:
    """The condition is that of the part; its first operand is no condition."""
    x = te.placeholder((40,), "float64", name="x")
    zero = te.const(0.0, "float64")
    made = {}

    def body(i):
        shared = x[i + 1]
        for step in range(20):
            shared = shared * x[i] + float(step)
        alone = shared + x[i + 2]
        for _ in range(20):
            alone = alone * x[i + 3]
        root = zero
        for n in range(COUNT):
            root = te.if_then_else(i == n, alone, root)
            root = root + te.if_then_else(i == n + COUNT, shared, zero)
        homes = homes_of([root], GUARDS, lambda node: not same_node(node, alone))
        [made["root"]] = homes.roots
        return made["root"]

    y = te.compute((2 * COUNT + 2,), body, name="y")
    conditions = [operands(n)[0] for n in postorder(made["root"]) if op_name(n) == "if_then_else"]
    assert len(conditions) > 2 * COUNT
    assert {dtype_of(condition) for condition in conditions} == {"bool"}
    values = np.random.default_rng(0).uniform(0.5, 1, 40)
    want = np.zeros(2 * COUNT + 2)
    for i in range(2 * COUNT):
        shared = values[i + 1]
        for step in range(20):
            shared = shared * values[i] + step
        want[i] = shared if i >= COUNT else (shared + values[i + 2]) * values[i + 3] ** 20
    [got] = evaluate_graph([y], [(x, values)])
    np.testing.assert_allclose(got, want, rtol=1e-12)
