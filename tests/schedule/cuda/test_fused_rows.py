"""Chains and reductions by blocks of threads give what numpy gives, and their threads wait for each
other where they have to.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx, topi

from tests.cuda_on_cpu.checking import Case, check, groups
from tests.schedule.cuda.programs import PROGRAMS, drawn, with_gradients
from tests.schedule.cuda.scheduled import kernels_of, problems_of, rules_of


def placeholder(name, *shape, dtype="float32"):
    return te.placeholder(shape, dtype, name=name)


def softmax(rows, columns, dtype="float32"):
    x = placeholder("x", rows, columns, dtype=dtype)
    return [x], topi.nn.softmax(x)


def layer_norm(rows, columns, dtype="float32"):
    x, g, b = placeholder("x", rows, columns), placeholder("g", columns), placeholder("b", columns)
    return [x, g, b], topi.nn.layer_norm(x, g, b, [1])


def group_norm():
    x, g, b = placeholder("x", 3, 8, 5, 7), placeholder("g", 8), placeholder("b", 8)
    return [x, g, b], topi.nn.group_norm(x, g, b, 2, 1, [2, 3])


def cross_entropy(rows, classes):
    x, y = placeholder("x", rows, classes), placeholder("y", rows, classes)
    return [x, y], topi.negative(topi.sum(topi.multiply(topi.nn.log_softmax(x), y)))


def scores(rows, columns):
    x = placeholder("x", 2, rows, columns)
    masked = te.compute(
        x.shape, lambda b, i, j: te.if_then_else(j <= i, x[b, i, j] * 0.5, -1e9), name="masked"
    )
    return [x], topi.nn.softmax(masked)


def gated(rows, columns):
    x = placeholder("x", rows, 4 * columns)
    i, f, g, o = topi.split(topi.nn.softmax(x), 4, 1)
    return [x], topi.sigmoid(o) * topi.tanh(f) + i * g


def long_product(rows, columns):
    """A reducer that TVM does not know."""
    x, k = placeholder("x", rows, columns), te.reduce_axis((0, columns), "k")
    both = te.comm_reducer(lambda a, b: a + b + a * b, lambda t: tirx.const(0, t))
    return [x], te.compute((rows,), lambda i: both(x[i, k] * 0.01, axis=k), name="both")


def ranges_of_groups(rows, groups, columns):
    """What each column of a row lacks to its greatest element, in parts of its range: two values
    of one reduction, one for each column.
    """
    x, k = placeholder("x", rows, groups, columns), te.reduce_axis((0, groups), "k")
    both = te.comm_reducer(
        lambda a, b: (tirx.Max(a[0], b[0]), a[1] + b[1]),
        lambda s, t: (tirx.const(-1e30, s), tirx.const(0, t)),
    )
    top, total = te.compute(
        (rows, columns), lambda i, j: both((x[i, k, j], x[i, k, j] * x[i, k, j]), axis=k), name="w"
    )
    body = lambda i, k, j: (top[i, j] - x[i, k, j]) / (total[i, j] + 1.0)  # noqa: E731
    return [x], te.compute(x.shape, body, name="y")


#: a program, and how many functions its chains and kernels become, with all gradients
CASES = {
    "softmax": (softmax(33, 70), 1),
    "softmax of a prime": (softmax(7, 1031), 1),
    "softmax of one row": (softmax(1, 300), 1),
    "softmax of float64": (softmax(5, 600, "float64"), 1),
    "softmax of many short rows": (softmax(1056, 40), 1),
    "layer norm": (layer_norm(16, 96), 3),
    "layer norm of long rows": (layer_norm(40, 5000), 3),
    "group norm": (group_norm(), None),
    "cross entropy": (cross_entropy(20, 100), None),
    "masked scores": (scores(24, 24), 1),
    "gates": (gated(12, 64), None),
    "maximum": (PROGRAMS["maximum"](), None),
    "attention": (PROGRAMS["attention"](), None),
}


@pytest.mark.slow
@pytest.mark.parametrize("names", groups(CASES, 7))
def test_chains_with_gradients(names):
    found = {}
    for name in names:
        program, count = CASES[name]
        inputs, outputs = with_gradients(*program)
        kernels = kernels_of(outputs)
        assert "fused_rows" in [one.rule for one in kernels]
        assert count is None or sum(len(one.launches) for one in kernels) == count
        assert problems_of(kernels) == []
        found[name] = Case(inputs, outputs, [drawn(inputs)], 2e-5)
    check(found)


#: rows of a block, and threads along a row that are more than a warp, or not as many as elements
@pytest.mark.parametrize("rows", [132 * 2, 132 * 4, 132 * 8])
def test_rows_that_share_a_block(rows):
    """Threads (x, y) of a block read what (0, y) has reduced: behind a barrier."""
    found = {}
    for columns in (33, 40, 64):
        inputs, outputs = with_gradients(*softmax(rows, columns))
        found[str(columns)] = Case(inputs, outputs, [drawn(inputs)], 2e-5)
    check(found)


def test_several_values_of_each_column():
    inputs, output = ranges_of_groups(600, 8, 32)
    assert rules_of([output]) == ["fused_rows"]
    check({"ranges": Case(inputs, [output], [drawn(inputs)], 2e-5)})


@pytest.mark.slow
def test_symbolic_rows():
    inputs, outputs = with_gradients(*softmax(te.var("n"), 300))
    assert rules_of(outputs) == ["fused_rows"]
    calls = [drawn(inputs, {"n": rows}) for rows in (0, 1, 7, 1000)]
    check({"softmax": Case(inputs, outputs, calls, 2e-5)})


def test_any_reducer():
    found = {}
    for size in [(3, 33), (37, 150), (260, 64), (2, 20_000)]:
        inputs, output = long_product(*size)
        assert rules_of(output) == ["reduction"]
        found[str(size)] = Case(inputs, [output], [drawn(inputs)], 1e-4, one_less_than_product)
    check(found)


def one_less_than_product(x):
    """What `long_product` is."""
    return [np.prod(1 + 0.01 * x.astype("float64"), axis=1) - 1]


@pytest.mark.slow
def test_place_of_the_maximum_with_its_value():
    found = {}
    for size in [(5, 200), (64, 9000)]:
        inputs, outputs = with_gradients(*softmax(*size))
        assert "fallback" not in rules_of(outputs)
        # all equal: the first wins
        pairs = zip(inputs, drawn(inputs), strict=True)
        arrays = [a * 0 if tensor.op.name == "x" else a for tensor, a in pairs]
        found[str(size)] = Case(inputs, outputs, [arrays], 2e-4)
    check(found)
