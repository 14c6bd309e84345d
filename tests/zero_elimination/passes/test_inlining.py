"""Stages put into their readers: which, what is written then, and that the values are equal."""

from __future__ import annotations

from functools import partial

import pytest
from tvm import te, topi

from tests.zero_elimination.graph_values import assert_equal_values
from tvm_autodiff import estimate_cost, inline_tensors, show
from tvm_autodiff.errors import InvalidArgumentError
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import is_placeholder

D = "float64"
x = te.placeholder((6,), D, name="x")
M = te.placeholder((6, 6), D, name="M")
I = te.placeholder((6,), "int32", name="I")  # noqa: E741 - an index


def stage(name, shape, body):
    return te.compute(shape, body, name=name)


def sums(name="S"):
    k = te.reduce_axis((0, 6), "k")
    return te.compute((6,), lambda i: te.sum(M[i, k], axis=k), name=name)


def names(tensors):
    """Names of the stages that tensors need."""
    return [op.name for op in Graph(tensors).ops if not is_placeholder(op)]


def chain(*bodies):
    """Stages t0, t1, ... of shape (6,), each a function of the one before and an index."""
    current = x
    for number, body in enumerate(bodies):
        current = stage(f"t{number}", (6,), partial(body, current))
    return current


def shared():
    t = stage("t", (6,), lambda i: te.exp(x[i]))
    return [stage("y", (6,), lambda i: t[i] + t[5 - i])]


def in_a_product():
    t = stage("t", (6, 6), lambda i, j: te.exp(M[i, j]))
    k = te.reduce_axis((0, 6), "k")
    return [stage("y", (6, 6), lambda i, j: te.sum(t[i, k] * M[k, j], axis=k))]


def cast_in_a_product():
    t = stage("t", (6, 6), lambda i, j: te.if_then_else(i > j, M[i, j], te.const(0.0, D)))
    k = te.reduce_axis((0, 6), "k")
    return [stage("y", (6, 6), lambda i, j: te.sum(t[i, k] * M[k, j], axis=k))]


def copied_sum(places=6, index=lambda i: 5 - i):
    s = sums()
    return [stage("y", (places,), lambda i: s[index(i)])]


def nested_index():
    t = stage("t", (6,), lambda i: I[i] + 1)
    u = stage("u", (6,), lambda i: te.exp(x[i]))
    return [stage("y", (6,), lambda i: u[te.min(t[i], 5)])]


def sum_at_data():
    s, t = sums(), stage("t", (6,), lambda i: te.max(I[i] - 1, 0))
    return [stage("y", (6,), lambda i: s[t[i]])]


def output_read_by_another():
    t = stage("t", (6,), lambda i: te.exp(x[i]))
    return [t, stage("y", (6,), lambda i: t[i] + 1.0)]


def copy_among_outputs():
    t = stage("t", (6,), lambda i: x[5 - i])
    return [t, stage("y", (6,), lambda i: t[i] + t[5 - i])]


#: name → (outputs, stages left by default)
DEFAULTS = {
    "read once": (lambda: [chain(lambda t, i: te.exp(t[i]), lambda t, i: t[i] + 1.0)], ["t1"]),
    "a chain": (lambda: [chain(*[lambda t, i: te.exp(t[5 - i])] * 4)], ["t3"]),
    "read twice": (shared, ["t", "y"]),
    "one element twice": (
        lambda: [chain(lambda t, i: te.exp(t[i]), lambda t, i: t[i] * t[i])],
        ["t1"],
    ),
    "copies": (lambda: [chain(lambda t, i: t[5 - i], lambda t, i: t[i] + t[5 - i])], ["t1"]),
    "copies, then work": (
        lambda: [chain(lambda t, i: te.exp(t[i]), lambda t, i: t[5 - i], lambda t, i: t[i] + t[0])],
        ["t1", "t2"],
    ),
    "dear work in a sum": (in_a_product, ["t", "y"]),
    "a guard in a sum": (cast_in_a_product, ["y"]),
    "a sum that is copied": (copied_sum, ["y"]),
    "a sum that is copied in part": (lambda: copied_sum(3), ["y"]),
    "a sum that is repeated": (lambda: copied_sum(12, lambda i: i // 2), ["S", "y"]),
    "a sum that is scaled": (lambda: [chain(lambda _, i: sums()[i] * 2.0)], ["S", "t0"]),
    "indices": (nested_index, ["y"]),
    "a sum at data": (sum_at_data, ["y"]),
    "an output that another reads": (output_read_by_another, ["t", "y"]),
    "a copy that is an output": (copy_among_outputs, ["t", "y"]),
    "an input": (lambda: [x], []),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_what_goes_by_default(name):
    make, left = DEFAULTS[name]
    outputs = make()
    inlined = inline_tensors(outputs)
    assert sorted(names(inlined)) == sorted(left)
    assert [t.op.name for t in inlined] == [t.op.name for t in outputs]
    assert_equal_values(outputs, inlined)
    assert estimate_cost(inlined).iterations <= estimate_cost(outputs).iterations


def test_a_copy_that_is_an_output_is_read_past():
    text = show(inline_tensors(copy_among_outputs()))
    assert "y[i] = x[5 - i] + x[5 - (5 - i)]" in text


def test_asked_for():
    [y] = shared()
    [t] = Graph([y]).reads(y.op)
    [inlined] = inline_tensors(y, t)
    assert "y[i] = exp(x[i]) + exp(x[5 - i])" in show(inlined)
    assert_equal_values([y], [inlined])


def test_only_what_is_asked_for():
    before = chain(lambda t, i: te.exp(t[i]), lambda t, i: t[i] + 1.0, lambda t, i: t[i] * 2.0)
    [t1] = Graph([before]).reads(before.op)
    [inlined] = inline_tensors([before], [t1])
    assert sorted(names([inlined])) == ["t0", "t2"]
    assert_equal_values([before], [inlined])


def test_nothing_to_do_is_the_same_tensor():
    [y] = shared()
    assert tensor_key(inline_tensors(y)[0]) == tensor_key(y)
    assert tensor_key(inline_tensors(y, [])[0]) == tensor_key(y)


def test_a_sum_copied_twice_has_axes_of_its_own():
    s = sums()
    outputs = [stage("y", (6,), lambda i: s[i]), stage("z", (6,), lambda i: s[5 - i])]
    inlined = inline_tensors(outputs, s)
    axes = [t.op.reduce_axis[0].var for t in inlined]
    assert not axes[0].same_as(axes[1])
    assert_equal_values(outputs, inlined)


def test_several_components():
    pair = te.compute((6,), lambda i: (te.exp(x[i]), x[i] + 1.0), name="pair")
    y = stage("y", (6,), lambda i: pair[0][i] * pair[1][i])
    [inlined] = inline_tensors(y)
    assert names([inlined]) == ["y"]
    assert_equal_values([y], [inlined])


def test_softmax_keeps_its_sums():
    y = topi.nn.softmax(M)
    [inlined] = inline_tensors(y)
    assert_equal_values([y], [inlined])
    assert estimate_cost(inlined).multiplications <= estimate_cost(y).multiplications


@pytest.mark.slow
def test_long_chains_stay_stages_of_limited_size():
    before = chain(*[lambda t, i: te.exp(t[i]) + 1.0] * 1500)
    [inlined] = inline_tensors(before)
    assert 10 <= len(names([inlined])) <= 60


def scaled_sum():
    s = sums()
    return [stage("y", (6,), lambda i: s[i] * 2.0)], s


def several_sums():
    k = te.reduce_axis((0, 6), "k")
    reducer = te.comm_reducer(
        lambda a, b: (a[0] + b[0], a[1] * b[1]), lambda a, b: (te.const(0, a), te.const(1, b))
    )
    pair = te.compute((6,), lambda i: reducer((M[i, k], M[k, i]), axis=k), name="pair")
    return [stage("y", (6,), lambda i: pair[0][i])], pair[0]


def read_by_extern():
    t = stage("t", (6,), lambda i: te.exp(x[i]))
    y = te.extern((6,), [t], lambda ins, outs: te_copy(ins[0], outs[0]), name="y", dtype=D)
    return [y], t


def te_copy(source, target):
    from tvm import tirx

    return tirx.Evaluate(tirx.call_packed("copy", source.data, target.data))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: (shared(), x), "tensor x is an input"),
        (lambda: (shared(), stage("other", (6,), lambda i: x[i])), "other is not needed"),
        (scaled_sum, "S is a reduction, and stage y does more than copy"),
        (several_sums, "pair is one of several outputs"),
        (read_by_extern, "t is read by the opaque stage y"),
        (lambda: (shared(), 3), "tensors must be a te.Tensor"),
        (lambda: ("y", None), "outputs must be a te.Tensor"),
    ],
)
def test_refusals(make, complaint):
    outputs, asked = make()
    with pytest.raises(InvalidArgumentError, match=complaint):
        inline_tensors(outputs, asked)
