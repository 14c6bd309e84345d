"""Normal form and kernels: what is merged, inlined, fused, and what is kept apart."""

from __future__ import annotations

import pytest
from tvm import te, tirx, topi

from tvm_autodiff.codegen.passes.short_circuit import holds_mark
from tvm_autodiff.expr.nodes import always, tensor_key
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.stage import bodies, is_placeholder, reduction_of
from tvm_autodiff.schedule.fusion.kernels import separate
from tvm_autodiff.schedule.rewrites.normal_form import normal_form


def names(outputs):
    return [kernel.name for kernel in separate(normal_form(outputs))[0]]


def mapped(tensor, rule, name):
    return te.compute(tensor.shape, lambda *i: rule(tensor(*i)), name=name)


A = te.placeholder((8, 16), name="A")


def row_sum(tensor, name="R", **keywords):
    k = te.reduce_axis((0, tensor.shape[1]), "k")
    return te.compute(
        (tensor.shape[0],), lambda i: te.sum(tensor[i, k], axis=k, **keywords), name=name
    )


def group():
    B = mapped(A, lambda x: x + 1.0, "B")
    return [mapped(mapped(B, lambda x: x * 2.0, "C"), te.exp, "D")]


def shared_expensive():
    E = mapped(A, te.exp, "E")
    return [te.compute(A.shape, lambda i, j: E[i, j] / E[i, 0], name="F")]


def shared_cheap():
    B = mapped(A, lambda x: x + 1.0, "B")
    return [te.compute(A.shape, lambda i, j: B[i, j] * B[i, j], name="F")]


def into_reduction():
    return [row_sum(mapped(A, te.exp, "E"))]


def padded_into_windows():
    P = te.compute(
        (8, 18), lambda i, j: te.if_then_else(te.all(j > 0, j < 17), A[i, j - 1], 0.0), name="P"
    )
    k = te.reduce_axis((0, 3), "k")
    return [te.compute((8, 16), lambda i, j: te.sum(P[i, j + k], axis=k), name="W")]


def epilogue():
    return [mapped(row_sum(A), te.exp, "E")]


def epilogue_elsewhere():
    R = row_sum(A)
    return [te.compute((8,), lambda i: R[7 - i], name="E")]


def output_in_between():
    R = row_sum(A)
    return [R, mapped(R, te.exp, "E")]


def two_readers():
    R = row_sum(A)
    return [mapped(R, te.exp, "E"), mapped(R, te.sin, "S")]


KERNELS = [
    (group, ["D"]),
    (shared_expensive, ["E", "F"]),
    (shared_cheap, ["F"]),
    (into_reduction, ["R"]),
    (padded_into_windows, ["W"]),
    (epilogue, ["R_E"]),
    (epilogue_elsewhere, ["R", "E"]),
    (output_in_between, ["R", "E"]),
    (two_readers, ["R", "E", "S"]),
]


@pytest.mark.parametrize(("make", "expected"), KERNELS, ids=[make.__name__ for make, _ in KERNELS])
def test_kernels(make, expected):
    assert names(make()) == expected


def test_softmax_is_four_passes_at_most():
    assert len(names([topi.nn.softmax(A)])) <= 4


def test_equal_stages_are_merged():
    B, C = (mapped(A, lambda x: x + 1.0, name) for name in "BC")
    sums = [row_sum(B, "S"), row_sum(C, "T")]
    total = te.compute((8,), lambda i: sums[0][i] + sums[1][i], name="total")
    [merged] = normal_form([total])
    assert [op.name for op in topological([merged])] == ["A", "B", "S", "total"]


def test_equal_outputs_stay_two_tensors():
    first, second = normal_form([row_sum(A, "S"), row_sum(A, "T")])
    assert tensor_key(first) != tensor_key(second)


@pytest.mark.parametrize(
    "keywords", [{"where": A[0, 0] > 0.0}, {"init": tirx.const(3.0, "float32")}]
)
def test_reductions_become_plain(keywords):
    [result] = normal_form([row_sum(A, **keywords)])
    for op in topological([result]):
        reduction = None if is_placeholder(op) else reduction_of(op)
        if reduction is not None:
            assert always(reduction.condition)
            assert not reduction.init


@pytest.mark.parametrize(("extent", "read"), [(20, True), (12, False)])
def test_what_is_inlined_behind_a_bound_is_guarded(extent, read):
    """TVM makes one condition of ``if j < 12 then (if x[j] > 1 then y[j] else 0) else 0``."""
    x, y = te.placeholder((12,), name="x"), te.placeholder((12,), name="y")
    chosen = te.compute((12,), lambda i: te.if_then_else(x[i] > 1.0, y[i], 0.0), name="S")
    padded = te.compute((extent,), lambda j: te.if_then_else(j < 12, chosen[j], 0.0), name="T")
    [kernel] = separate(normal_form([padded]))[0]
    assert not any(tensor.op.same_as(chosen.op) for tensor in kernel.root.input_tensors)
    assert holds_mark(bodies(kernel.root)[0]) is read
