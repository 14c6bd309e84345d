"""Stages whose cotangent is zero, whatever that of the outputs is: proved, and never wrongly.

Each program names the stages that must have no gradient work; all gradients are compared with
differences of an evaluation in numpy. Where nothing is proved, the gradient goes through the stage.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.expr.nodes import call_node
from tvm_autodiff.graph.graph import Graph

ROWS, COLUMNS = 3, 4
D = "float64"


def f(value):
    return tirx.const(value, D)


def tensor(*shape, name):
    return te.placeholder(shape, D, name=name)


def stage(body, name, shape=(ROWS, COLUMNS)):
    return te.compute(shape, body, name=name)


def over_columns(body, name, combine=te.sum, where=None):
    k = te.reduce_axis((0, COLUMNS), "k")
    conditions = {} if where is None else {"where": where(k)}
    return te.compute((ROWS,), lambda i: combine(body(i, k), axis=k, **conditions), name=name)


def largest(x, name="m"):
    return over_columns(lambda i, k: x(i, k), name, te.max)


def exponentials(x, m, name="e"):
    return stage(lambda i, j: te.exp(x[i, j] - m[i]), name)


def softmax(x, w):
    m = largest(x)
    e = exponentials(x, m)
    s = over_columns(lambda i, k: e[i, k], "s")
    return stage(lambda i, j: e[i, j] / s[i], "y")


def log_softmax(x, w):
    m = largest(x)
    s = over_columns(lambda i, k: te.exp(x[i, k] - m[i]), "s")
    return stage(lambda i, j: x[i, j] - m[i] - te.log(s[i]), "y")


def log_sum_exp(x, w):
    m = largest(x)
    s = over_columns(lambda i, k: te.exp(x[i, k] - m[i]), "s")
    return stage(lambda i: te.log(s[i]) + m[i], "y", (ROWS,))


def cross_entropy(x, w):
    y = log_softmax(x, w)
    return over_columns(lambda i, k: f(-1) * y[i, k] * w[k], "loss")


def mean_as_the_shift(x, w):
    m = over_columns(lambda i, k: x[i, k] * f(1 / COLUMNS), "m")
    e = exponentials(x, m)
    s = over_columns(lambda i, k: e[i, k], "s")
    return stage(lambda i, j: w[j] * e[i, j] / s[i], "y")


def smallest_as_the_shift(x, w):
    m = over_columns(lambda i, k: x[i, k], "m", te.min)
    e = exponentials(x, m)
    s = over_columns(lambda i, k: e[i, k], "s")
    return stage(lambda i, j: e[i, j] / s[i], "y")


def powers_of_two(x, w):
    m = largest(x)
    e = stage(lambda i, j: call_node("exp2", ((x[i, j] - m[i]) * f(1.5),), D), "e")
    s = over_columns(lambda i, k: e[i, k], "s")
    return stage(lambda i: call_node("log2", (s(i),), D) + m[i] * f(1.5), "y", (ROWS,))


def scaled_logits(x, w):
    m = largest(x)
    e = stage(lambda i, j: te.exp(f(0.3) * x[i, j] - f(0.3) * m[i]), "e")
    s = over_columns(lambda i, k: e[i, k], "s")
    return stage(lambda i, j: e[i, j] / s[i], "y")


def masked(x, w):
    m = largest(x)
    e = stage(lambda i, j: te.if_then_else(j <= i, te.exp(x[i, j] - m[i]), f(0)), "e")
    s = over_columns(lambda i, k: e[i, k], "s", where=lambda k: k < 3)
    return stage(lambda i, j: tirx.Select(j < 3, e[i, j] / s[i], f(0)), "y")


def attention(x, w):
    m = largest(x)
    e = exponentials(x, m)
    s = over_columns(lambda i, k: e[i, k], "s")
    o = over_columns(lambda i, k: e[i, k] * w[k], "o")
    return stage(lambda i: o[i] / s[i], "y", (ROWS,))


def norm_of_exponentials(x, w):
    """e / sqrt(Σ e²): degrees of a half and two."""
    m = largest(x)
    e = exponentials(x, m)
    s = over_columns(lambda i, k: e[i, k] * e[i, k], "s")
    return stage(lambda i, j: e[i, j] * te.rsqrt(s[i]) + te.power(e[i, j], f(2)) / s[i], "y")


def by_way_of_a_broadcast(x, w):
    m = largest(x)
    wide = topi.broadcast_to(topi.reshape(m, (ROWS, 1)), (ROWS, COLUMNS))
    e = stage(lambda i, j: te.exp(x[i, j] - wide[i, j]), "e")
    s = over_columns(lambda i, k: e[i, k], "s")
    return stage(lambda i, j: e[i, j] / s[i], "y")


def at_other_rows(x, w):
    m = largest(x)
    e = exponentials(x, m)
    s = over_columns(lambda i, k: e[ROWS - 1 - i, k], "s")
    return stage(lambda i, j: e[i, j] / s[ROWS - 1 - i], "y")


def two_shifts(x, w):
    """By rows and by columns: each is taken out again."""
    m = largest(x)
    c = te.compute(
        (COLUMNS,),
        lambda j: te.max(x[(r := te.reduce_axis((0, ROWS), "r")), j], axis=r),
        name="c",
    )
    e = stage(lambda i, j: te.exp(x[i, j] - m[i] - c[j]), "e")
    return stage(lambda i, j: te.log(e[i, j]) + c[j] + m[i], "y")


def a_maximum_of_what_was_shifted(x, w):
    m = largest(x)
    z = stage(lambda i, j: x[i, j] - m[i], "z")
    top = over_columns(lambda i, k: z[i, k] * f(1), "top", te.max)
    return stage(lambda i, j: z[i, j] - top[i] + x[i, j] * w[j], "y")


def of_topi(x, w):
    return stage(lambda i, j: topi.nn.softmax(x)[i, j] * w[j], "y")


def log_of_topi(x, w):
    return stage(lambda i, j: topi.nn.log_softmax(x)[i, j] * w[j], "y")


def along_columns_of_topi(x, w):
    return topi.nn.softmax(x, axis=0)


PROVED = {
    softmax: {"m"},
    log_softmax: {"m"},
    log_sum_exp: {"m"},
    cross_entropy: {"m"},
    mean_as_the_shift: {"m"},
    smallest_as_the_shift: {"m"},
    powers_of_two: {"m"},
    scaled_logits: {"m"},
    masked: {"m"},
    attention: {"m"},
    norm_of_exponentials: {"m"},
    by_way_of_a_broadcast: {"m"},
    at_other_rows: {"m"},
    two_shifts: {"m", "c"},
    a_maximum_of_what_was_shifted: {"m"},
    of_topi: {"T_softmax_maxelem"},
    log_of_topi: {"T_softmax_maxelem"},
    along_columns_of_topi: {"T_softmax_maxelem"},
}


# Near misses: the stage matters, and its gradient must be there.


def not_added_again(x, w):
    m = largest(x)
    s = over_columns(lambda i, k: te.exp(x[i, k] - m[i]), "s")
    return stage(lambda i: te.log(s[i]), "y", (ROWS,))


def added_twice(x, w):
    m = largest(x)
    s = over_columns(lambda i, k: te.exp(x[i, k] - m[i]), "s")
    return stage(lambda i: te.log(s[i]) + m[i] + m[i], "y", (ROWS,))


def of_another_row(x, w):
    m = largest(x)
    e = exponentials(x, m)
    s = over_columns(lambda i, k: e[i, k], "s")
    return stage(lambda i, j: e[i, j] / s[ROWS - 1 - i], "y")


def sums_over_the_rows(x, w):
    m = largest(x)
    e = exponentials(x, m)
    k = te.reduce_axis((0, ROWS), "k")
    s = te.compute((COLUMNS,), lambda j: te.sum(e[k, j], axis=k), name="s")
    return stage(lambda i, j: e[i, j] / s[j], "y")


def a_part_of_the_sum_is_not_shifted(x, w):
    m = largest(x)
    e = exponentials(x, m)
    s = over_columns(lambda i, k: e[i, k] + f(0.125), "s")
    return stage(lambda i, j: e[i, j] / s[i], "y")


def a_constant_beside(x, w):
    m = largest(x)
    e = stage(lambda i, j: tirx.Select(j < 3, te.exp(x[i, j] - m[i]), f(0.5)), "e")
    s = over_columns(lambda i, k: e[i, k], "s")
    return stage(lambda i, j: e[i, j] / s[i], "y")


def another_base(x, w):
    m = largest(x)
    e = stage(lambda i, j: call_node("exp2", (x[i, j] - m[i],), D), "e")
    s = over_columns(lambda i, k: e[i, k], "s")
    return stage(lambda i: te.log(s[i]) + m[i], "y", (ROWS,))


def another_scale(x, w):
    m = largest(x)
    s = over_columns(lambda i, k: te.exp(f(2) * (x[i, k] - m[i])), "s")
    return stage(lambda i: te.log(s[i]) + m[i], "y", (ROWS,))


def read_besides(x, w):
    y, m = softmax(x, w), largest(x, "again")
    return stage(lambda i, j: y[i, j] * m[i], "z")


def a_sum_of_shifts(x, w):
    m = largest(x)
    return over_columns(lambda i, k: (x[i, k] - m[i]) * w[k], "y")


def a_square_of_shifts(x, w):
    m = over_columns(lambda i, k: x[i, k] * f(1 / COLUMNS), "m")
    return over_columns(lambda i, k: (x[i, k] - m[i]) * (x[i, k] - m[i]), "y")


def a_stopped_denominator(x, w):
    """The derivative holds the sum, so that the maximum in the numerator counts."""
    m = largest(x)
    e = exponentials(x, m)
    s = ad.stop_gradient(over_columns(lambda i, k: e[i, k], "s"))
    return stage(lambda i, j: e[i, j] / s[i], "y")


NOT_PROVED = {
    not_added_again: "m",
    added_twice: "m",
    of_another_row: "m",
    sums_over_the_rows: "m",
    a_part_of_the_sum_is_not_shifted: "m",
    a_constant_beside: "m",
    another_base: "m",
    another_scale: "m",
    read_besides: "again",
    a_sum_of_shifts: "m",
    a_square_of_shifts: "m",
    a_stopped_denominator: "m",
}

X = np.random.default_rng(0).uniform(-1, 1, (ROWS, COLUMNS))
W = np.random.default_rng(1).uniform(0.5, 1.5, COLUMNS)


def built(make):
    x, w = tensor(ROWS, COLUMNS, name="x"), tensor(COLUMNS, name="w")
    return x, w, make(x, w)


def visited(result):
    """Names of the stages that have an adjoint, or that contribute to one."""
    lines = result.explain().splitlines()
    heads = [line for line in lines if line.startswith("d")]
    return {name for line in heads for name in (line.split(",")[0][1:], line.split()[-1])}


def check_values(x, w, output, step=1e-3):
    head = te.placeholder(output.shape, D, name="head")
    weights = np.random.default_rng(2).uniform(-1, 1, [int(extent) for extent in output.shape])
    result = ad.vjp(output, [x, w], head)
    got = evaluate_graph(list(result), [(x, X), (w, W), (head, weights)])
    for place, value in enumerate(got):
        points = [X.copy(), W.copy()]
        for index in np.ndindex(value.shape):
            slope, centre = 0.0, points[place][index]
            for offset, factor in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
                points[place][index] = centre + offset * step
                [moved] = evaluate_graph([output], [(x, points[0]), (w, points[1])])
                slope += factor * float((moved * weights).sum()) / (12 * step)
            points[place][index] = centre
            assert abs(slope - value[index]) <= 1e-7, (place, index)
    return result


@pytest.mark.parametrize("make", PROVED, ids=lambda make: make.__name__)
def test_what_does_not_matter_gets_no_gradient(make):
    result = check_values(*built(make))
    assert not PROVED[make] & visited(result)
    names = {f"d{name}" for name in PROVED[make]}
    assert not names & {op.name for op in Graph(list(result)).ops}


@pytest.mark.parametrize("make", NOT_PROVED, ids=lambda make: make.__name__)
def test_what_matters_gets_its_gradient(make):
    x, w, output = built(make)
    if make is a_stopped_denominator:  # differences do not see what is stopped
        result = ad.vjp(output, [x], te.placeholder(output.shape, D, name="head"))
    else:
        result = check_values(x, w, output)
    assert NOT_PROVED[make] in visited(result)


def test_second_order():
    """The Hessian of a log-sum-exp is diag(p) - p pᵀ, and none of it passes the maximum."""
    x, _, output = built(log_sum_exp)
    head, second = tensor(ROWS, name="h"), tensor(ROWS, COLUMNS, name="v")
    [dx] = ad.vjp(output, [x], head)
    result = ad.vjp(dx, [x], second)
    h = np.random.default_rng(3).uniform(-1, 1, ROWS)
    v = np.random.default_rng(4).uniform(-1, 1, (ROWS, COLUMNS))
    [got] = evaluate_graph(list(result), [(x, X), (head, h), (second, v)])
    p = np.exp(X) / np.exp(X).sum(1, keepdims=True)
    np.testing.assert_allclose(got, h[:, None] * (p * v - p * (p * v).sum(1, keepdims=True)))
    assert "m" not in visited(result)


def test_a_tensor_that_is_asked_for_keeps_its_adjoint():
    x, _, output = built(log_sum_exp)
    [m] = [op.output(0) for op in Graph([output]).ops if op.name == "m"]
    head = tensor(ROWS, name="h")
    [dm] = ad.vjp(output, [m], head)
    [got] = evaluate_graph([dm], [(x, X), (head, np.ones(ROWS))])
    np.testing.assert_allclose(got, np.zeros(ROWS), atol=1e-15)
    result = ad.vjp(output, [x, m], head)
    dx, dm = evaluate_graph(list(result), [(x, X), (head, np.ones(ROWS))])
    np.testing.assert_allclose(dx, np.exp(X) / np.exp(X).sum(1, keepdims=True))
    np.testing.assert_allclose(dm, np.zeros(ROWS), atol=1e-15)


def test_an_output_beside_counts():
    """Of two outputs, one shows the maximum."""
    x, _, output = built(log_sum_exp)
    [m] = [op.output(0) for op in Graph([output]).ops if op.name == "m"]
    heads = [tensor(ROWS, name="h"), tensor(ROWS, name="g")]
    result = ad.vjp([output, m], [x], heads)
    [got] = evaluate_graph(list(result), [(x, X), (heads[0], np.ones(ROWS)), (heads[1], W[:ROWS])])
    winner = X.max(1, keepdims=True) == X
    softmax_of_x = np.exp(X) / np.exp(X).sum(1, keepdims=True)
    np.testing.assert_allclose(got, softmax_of_x + winner * W[:ROWS, None])


def test_custom_rules_are_followed():
    """A rule for one of the stages on the way may be anything: nothing is proved past it."""
    x, _, output = built(log_sum_exp)
    [m] = [op.output(0) for op in Graph([output]).ops if op.name == "m"]
    head = tensor(ROWS, name="h")
    rule = lambda out, inp, h: te.compute((ROWS,), lambda i: h[i] * f(5), name="by_hand")  # noqa: E731
    result = ad.differentiate(output, [x], head, manual={(output, m): rule})
    [got] = evaluate_graph(list(result), [(x, X), (head, np.ones(ROWS))])
    p = np.exp(X) / np.exp(X).sum(1, keepdims=True)
    np.testing.assert_allclose(got, p + 4 * (X.max(1, keepdims=True) == X))
