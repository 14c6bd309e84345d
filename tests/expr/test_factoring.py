"""Common factors taken out of sums: equal values with fewer operations, and what stays exact."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.factoring import factored
from tvm_autodiff.expr.nodes import is_float, is_load, load_tensor, op_name, operands
from tvm_autodiff.expr.rewrite import depends_on, postorder
from tvm_autodiff.graph.stage import bodies, make_stage

N = 7
a, b, c, d = (te.placeholder((N,), "float64", name=name) for name in "abcd")
s, t = (te.placeholder((), "float64", name=name) for name in "st")
INPUTS = (a, b, c, d, s, t)


def floor(value):
    return te.floor(value)


#: name → (body, operations in loops as written, and after)
CASES = {
    "factors in common": (lambda i: a[i] * b[i] * c[i] + d[i] * b[i] * a[i], 5, 3),
    "a factor of all": (lambda i: a[i] * b[i] + a[i] * c[i] + a[i] * d[i], 5, 3),
    "powers": (lambda i: a[i] * a[i] * b[i] - a[i] * a[i] * c[i], 5, 3),
    "a literal and a loop invariant": (lambda i: a[i] * 2.0 * b[i] * t(), 3, 2),
    "divisors": (lambda i: a[i] * b[i] / d[0] + b[i] * c[i] / d[0], 5, 3),
    "a literal among squares": (lambda i: s() * s() * a[i] * 2.0 * a[i], 3, 2),
    "invariants of several terms": (lambda i: a[i] * (2.0 * s()) + a[i] * s() * 3.0, 4, 2),
    "literals": (lambda i: (a[i] * 2.0) * (b[i] * 4.0), 3, 2),
    "a literal of both": (lambda i: a[i] * 2.0 + b[i] * 2.0, 3, 2),
    "powers that differ": (lambda i: a[i] * a[i] * b[i] * 2.0 + a[i] * c[i] * 2.0, 6, 4),
    "signs": (lambda i: b[i] * 3.0 * (-a[i] * 2.0) + a[i] * c[i] * 6.0, 6, 3),
    "a literal under a condition": (
        lambda i: te.if_then_else(i < 3, 2.0 * (a[i] * b[i]) * s(), 0.0) * 4.0,
        4,
        3,
    ),
    "what is shared": (lambda i: shared(te.exp(a[i]) * b[i]), 8, 6),
    "nothing in common": (lambda i: a[i] * b[i] + c[i] * d[i], 3, 3),
    "one and a factor": (lambda i: a[i] * b[i] + a[i], 2, 2),
    "under a floor": (lambda i: b[i] * floor((a[i] + 0.5) * 0.25 - 0.25), 4, 4),
    "under a comparison": (
        lambda i: te.if_then_else(a[i] * 2.0 + b[i] * 2.0 > 0.0, c[i], d[i]),
        3,
        3,
    ),
}


def shared(value):
    return value * s() * c[1] + value * t() * c[2] + value * 3.0


def operations(root):
    return sum(
        is_float(node)
        and op_name(node) in ("add", "sub", "mul", "div")
        and not any(getattr(part, "value", 0) == -1 for part in operands(node))
        and any(load_tensor(p) in (a, b, c, d) for p in postorder(node) if is_load(p))
        for node in postorder(root)
    )


def changed(body):
    stage = te.compute((N,), body, name="y")
    [old], variables = bodies(stage.op), [axis.var for axis in stage.op.axis]
    [new] = factored([old], lambda part: depends_on(part, variables))
    return stage, old, new, make_stage("z", list(stage.op.axis), [new])[0]


@pytest.mark.parametrize("name", CASES)
def test_equal_values_with_fewer_operations(name):
    body, before, after = CASES[name]
    stage, old, new, other = changed(body)
    assert (operations(old), operations(new)) == (before, after)
    rng = np.random.default_rng(0)
    # small integers: every order of sums and products is exact
    given = {x: rng.integers(-4, 5, [int(n) for n in x.shape]).astype("float64") for x in INPUTS}
    [want], [got] = evaluate_graph([stage], given), evaluate_graph([other], given)
    np.testing.assert_allclose(got, want, rtol=1e-15)
    assert new.same_as(old) == (before == after)


def test_literals_that_may_leave_the_range_stay_apart():
    _, old, new, _ = changed(lambda i: (a[i] * 1e-30) * (b[i] * 1e-30) * c[i])
    assert new.same_as(old)


def test_factors_that_may_be_infinite_stay_under_their_condition():
    inverse = 1.0 / s()
    *_, other = changed(
        lambda i: te.if_then_else(s() > 0.0, a[i] * inverse * 2.0, 0.0) * 3.0 + b[i] * 6.0
    )
    zero = dict.fromkeys(INPUTS[:4], np.ones(N)) | {s: np.array(0.0), t: np.array(1.0)}
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(evaluate_graph([other], zero)[0], np.full(N, 6.0))


def test_expressions_share_what_they_have_in_common():
    stage = te.compute((N,), lambda i: te.exp(a[i]) * b[i], name="y")
    [body], variables = bodies(stage.op), [axis.var for axis in stage.op.axis]
    both = factored(
        [body * s() * 2.0 * t(), body * 3.0], lambda part: depends_on(part, variables)
    )
    assert sum(op_name(node) == "exp" for node in postorder(both)) == 1


@pytest.mark.parametrize("stays", [True, False])
def test_reciprocals_may_stay_factors(stays):
    stage = te.compute((N,), lambda i: a[i] * 2.0 * (1.0 / b[i]) * t(), "y")
    variables = [axis.var for axis in stage.op.axis]
    [new] = factored(bodies(stage.op), lambda p: depends_on(p, variables), lambda part: stays)
    quotients = [node for node in postorder(new) if op_name(node) == "div"]
    numerators = [operands(node)[0] for node in quotients]
    assert [float(getattr(one, "value", 0)) for one in numerators] == [1.0 if stays else 0.0]


def test_the_dtype_stays():
    x = te.placeholder((N,), "float32", name="x")
    stage = te.compute((N,), lambda i: x[i] * tirx.const(2, "float32") * x[i] * 3.0, name="y")
    [new] = factored(bodies(stage.op), lambda part: depends_on(part, [stage.op.axis[0].var]))
    assert str(new.ty) == "float32"
