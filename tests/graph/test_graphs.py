"""Stages, graphs of stages, structural keys, plain reductions: stage, graph, structural."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate_graph
from tvm_autodiff import show
from tvm_autodiff.expr.nodes import always, const_value, tensor_key
from tvm_autodiff.graph.graph import Graph, rebuild, replace_tensors, tensors_read_by, topological
from tvm_autodiff.graph.plain_reduction import fold_condition, split_init
from tvm_autodiff.graph.stage import (
    axis_range,
    make_stage,
    reduce_expr,
    reduction_of,
    renew_axis,
    shape_of,
)
from tvm_autodiff.graph.structural import StageKeys

A = te.placeholder((4, 5), "float64", name="A")
B = te.placeholder((4, 5), "float64", name="B")


def sum_rows(source, name="S", **options):
    k = te.reduce_axis((0, 5), name="k")
    return te.compute((4,), lambda i: te.sum(source[i, k], axis=k, **options), name=name)


def scaled(source, factor, name="T"):
    return te.compute((4, 5), lambda i, j: source[i, j] * factor, name=name)


def test_topological_order_is_that_of_the_reads():
    T, U = scaled(A, 2.0, "T"), scaled(B, 3.0, "U")
    V = te.compute((4, 5), lambda i, j: U[i, j] + T[i, j], name="V")
    assert [op.name for op in topological([V])] == ["B", "U", "A", "T", "V"]
    graph = Graph([V])
    assert [op.name for op in graph.consumers(U)] == ["V"]
    assert [t.op.name for t in graph.placeholders()] == ["B", "A"]
    assert len(graph.depends_on([A])) == 3


def test_a_replaced_tensor_is_not_entered():
    T = scaled(A, 2.0)
    S = sum_rows(T)
    [new] = replace_tensors([S], [(T, B)])
    assert [op.name for op in topological([new])] == ["B", "S"]
    [same] = rebuild([S], lambda tensor: None)
    assert tensor_key(same) == tensor_key(S)


@pytest.mark.slow
def test_long_chains_are_rebuilt():
    T = A
    for _ in range(3000):
        T = scaled(T, 1.5)
    [new] = replace_tensors([T], {A: B})
    assert [t.op.name for t in Graph([new]).placeholders()] == ["B"]


def test_rank_zero_tensors_have_keys():
    s = te.compute((), lambda: A[0, 0], name="s")
    t = te.compute((), lambda: A[0, 0], name="t")
    assert len({tensor_key(s): 1, tensor_key(t): 2, tensor_key(s.op.output(0)): 3}) == 2


SAME = [
    ("names do not matter", lambda: sum_rows(A, "S"), lambda: sum_rows(A, "other"), True),
    ("tensors do", lambda: sum_rows(A), lambda: sum_rows(B), False),
    ("constants do", lambda: scaled(A, 2.0), lambda: scaled(A, 3.0), False),
    (
        "conditions do",
        lambda: sum_rows(A),
        lambda: sum_rows(A, where=tirx.const(1) > tirx.Var("q", "int32")),
        False,
    ),
    ("zero is not minus zero", lambda: scaled(A, 0.0), lambda: scaled(A, -0.0), False),
]


@pytest.mark.parametrize(
    ("left", "right", "equal"), [c[1:] for c in SAME], ids=[c[0] for c in SAME]
)
def test_structural_keys(left, right, equal):
    keys = StageKeys()
    assert (keys.stage(left().op) == keys.stage(right().op)) is equal


def test_keys_follow_representatives():
    keys = StageKeys()
    T, U = scaled(A, 2.0), scaled(A, 2.0)
    assert keys.stage(sum_rows(T).op) != keys.stage(sum_rows(U).op)
    keys.same_tensor(U, T)
    assert keys.stage(sum_rows(T).op) == keys.stage(sum_rows(U).op)


def test_a_stage_is_taken_apart_and_made_again():
    k = te.reduce_axis((1, 3), name="k")
    S = te.compute((4,), lambda i: te.max(A[i, k], axis=k, where=k > i), name="S")
    reduction = reduction_of(S.op)
    assert axis_range(reduction.axes[0]) == (1, 2)
    assert not always(reduction.condition)
    [again] = make_stage("S", list(S.op.axis), [reduce_expr(reduction)])
    assert show(again) == show(S)
    assert reduction_of(scaled(A, 2.0).op) is None
    assert shape_of(S) == (4,)
    assert renew_axis(S.op.axis[0]).var.name == S.op.axis[0].var.name


def plain_value(tensor):
    """Value of a tensor whose reductions have neither where= nor init=."""
    array = np.arange(20, dtype="float64").reshape(4, 5)
    return evaluate_graph([tensor], {A: array})[0]


def test_conditions_fold_into_the_source():
    k = te.reduce_axis((0, 5), name="k")
    S = te.compute((4,), lambda i: te.sum(A[i, k], axis=k, where=k > 1), name="S")
    folded = fold_condition(reduction_of(S.op))
    assert always(folded.condition)
    [plain] = make_stage("S", list(S.op.axis), [reduce_expr(folded)])
    assert np.array_equal(plain_value(plain), np.arange(20.0).reshape(4, 5)[:, 2:].sum(1))


def test_an_initial_value_becomes_an_operand_of_the_combiner():
    k = te.reduce_axis((0, 5), name="k")
    S = te.compute((4,), lambda i: te.max(A[i, k], axis=k, init=A[i, 0]), name="S")
    [combined], [plain] = split_init(S.op)
    assert tensors_read_by(combined.op)[0].op.name in ("A", "S_plain")
    assert const_value(plain.shape[0]) == 4
    assert np.array_equal(plain_value(combined), np.arange(20.0).reshape(4, 5).max(1))
