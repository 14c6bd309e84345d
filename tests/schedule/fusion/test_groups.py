"""Chains: which kernels run as one, and that they compute what an evaluation in numpy gives."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.machines import avx512
from tests.schedule import group_cases as cases
from tests.schedule.test_rules import arrays_for
from tvm_autodiff.compile import build
from tvm_autodiff.schedule import machine as hardware
from tvm_autodiff.schedule.cpu.rows import fused_rows
from tvm_autodiff.schedule.declined import Declined
from tvm_autodiff.schedule.fusion import row_kernels
from tvm_autodiff.schedule.fusion.groups import FusionGroup
from tvm_autodiff.schedule.fusion.kernels import cut
from tvm_autodiff.schedule.rewrites.normal_form import normal_form


def groups_of(outputs):
    return [kernel for kernel in cut(normal_form(outputs))[0] if isinstance(kernel, FusionGroup)]


def assert_values(got, inputs, outputs, arrays):
    """Compare values with an evaluation in numpy."""
    want = evaluate_graph(outputs, list(zip(inputs, arrays, strict=True)))
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


CASES = {
    **{f"softmax {n}x{m}": cases.softmax(n, m) for n, m in ((7, 13), (1, 64), (9, 1), (33, 101))},
    "softmax of three axes": cases.softmax(3, 4, 37),
    "softmax of eight": cases.softmax(11, 8),
    **{f"layer norm {n}x{m}": cases.layer_norm(n, m) for n, m in ((5, 8), (31, 67), (64, 48))},
    "batch norm": cases.batch_norm(3, 5, 6),
    "batch norm of one row each": cases.batch_norm(2, 3, 1),
    "cross entropy": cases.cross_entropy(13, 29),
    "cross entropy of two classes": cases.cross_entropy(40, 2),
    "squared error": cases.squared_error(17, 23),
    "gates": cases.gates(6, 24),
    "gates of seven": cases.gates(5, 7),
    "rows and columns": cases.two_sums(19, 33),
    "two maps": cases.two_maps(9, 77),
    "two maps of small rows": cases.two_maps(5, 6, 3, 3),
    "conditions": cases.guarded(8, 53),
    "conditions in short rows": cases.guarded(8, 9),
    "triangle": cases.triangle(21),
    "winners": cases.winners(14, 45),
    "blocks": cases.blocks(12, 9, 19),
    "few blocks": cases.blocks(12, 5, 19),
    "blocks of vectors": cases.blocks(6, 40, 16),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_values(name, threads, monkeypatch):
    monkeypatch.setattr(hardware, "THREAD_CYCLES", 0)
    inputs, outputs = CASES[name]
    arrays = arrays_for(inputs, {})
    arrays = [abs(a) % 2 if a.dtype == "int32" else a for a in arrays]
    got = build(inputs, outputs, num_threads=threads)(*arrays)
    assert_values(got, inputs, outputs, arrays)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_every_chain_is_taken(name, threads, monkeypatch):
    monkeypatch.setattr(hardware, "THREAD_CYCLES", 0)
    machine = avx512(threads)
    for group in groups_of(CASES[name][1]):
        rows = np.prod([int(extent) for extent in group.extents])
        taken = fused_rows(group, machine)
        # a chain of fewer rows than the threads need is better run kernel by kernel
        assert isinstance(taken, Declined) == (threads > 1 and rows < 2 * threads)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", [cases.softmax, cases.layer_norm], ids=["softmax", "layer norm"])
def test_symbolic_rows(case, threads, monkeypatch):
    monkeypatch.setattr(hardware, "THREAD_CYCLES", 0)
    inputs, outputs = case(te.var("n"), 37)
    assert groups_of(outputs)
    function = build(inputs, outputs, num_threads=threads)
    for n in (1, 2, 7, 64):
        arrays = arrays_for(inputs, {"n": n})
        assert_values(function(*arrays), *case(n, 37), arrays)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_symbolic_length(dtype, threads, monkeypatch):
    """Softmax and its gradient are one kernel for any length, shorter than a vector or not."""
    monkeypatch.setattr(hardware, "THREAD_CYCLES", 0)
    n = te.var("n")
    x, head = te.placeholder((6, n), dtype, name="x"), te.placeholder((6, n), dtype, name="head")
    y = topi.nn.softmax(x)
    outputs = [y, *ad.differentiate(y, [x], head)]
    [group] = groups_of(outputs)
    assert not isinstance(fused_rows(group, avx512(threads)), Declined)
    function = build([x, head], outputs, num_threads=threads)
    rng = np.random.default_rng(0)
    for size in (0, 1, 3, 7, 16, 31, 64, 150):
        a, h = rng.standard_normal((2, 6, size)).astype(dtype)
        powers = np.exp(a - a.max(1, keepdims=True, initial=-np.inf))
        want = powers / powers.sum(1, keepdims=True)
        got, da = function(a, h)
        tolerance = 1e-5 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(got, want, rtol=tolerance)
        slope = want * (h - (want * h).sum(1, keepdims=True))
        np.testing.assert_allclose(da, slope, rtol=tolerance, atol=tolerance)


#: case → names of the stages that run as one
JOINED = {
    "layer norm 64x48": [{"mean", "var", "Y", "dX", "dG", "dB"}],
    "squared error": [{"loss", "dA"}],
    "rows and columns": [{"rows", "columns"}],
    "two maps": [{"sum_", "product"}],
    "gates": [{"open", "new", "out", "dbiased", "dB"}],
    "blocks": [{"sums", "top", "out"}],
    "batch norm": [{"total", "var", "Y", "dX"}],
    "conditions": [{"shifted", "total"}],
    "triangle": [{"part", "rest"}],
}


@pytest.mark.parametrize("name", JOINED)
def test_what_is_joined(name):
    chains = groups_of(CASES[name][1])
    assert len(chains) == len(JOINED[name])
    for group, expected in zip(chains, JOINED[name], strict=True):
        assert expected <= {op.name for op in group.ops}


def test_a_row_of_another_row_is_not_joined():
    A = te.placeholder((8, 32), name="A")
    k = te.reduce_axis((0, 32), "k")
    total = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="total")
    back = te.compute((8, 32), lambda i, j: A[i, j] - total[7 - i], name="back")
    assert groups_of([back, total]) == []


def test_a_reshape_is_not_joined():
    """It is an alias apart from others, and a copy among them."""
    x, k = te.placeholder((8, 32, 16), name="x"), te.reduce_axis((0, 128), "k")
    groups = topi.reshape(x, (8, 4, 128))
    y = te.compute((8, 4), lambda i, g: te.sum(groups[i, g, k], axis=k), name="y")
    z = te.compute((8, 4, 128), lambda i, g, c: groups[i, g, c] - y[i, g], name="z")
    [group] = groups_of([z])
    assert [op.name for op in group.ops] == ["y", "z"]


def test_large_matrix_products_stay_alone():
    A, B = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    k, j = te.reduce_axis((0, 64), "k"), te.reduce_axis((0, 64), "j")
    C = te.compute((64, 64), lambda i, q: te.sum(A[i, k] * B[k, q], axis=k), name="C")
    total = te.compute((64,), lambda i: te.sum(C[i, j], axis=j), name="total")
    out = te.compute((64, 64), lambda i, q: C[i, q] / total[i], name="out")
    [group] = groups_of([out])
    assert {op.name for op in group.ops} == {"total", "out"}


#: name → the sum of a node that the group of its row sum and its edges may hold, by (node, other)
SUMS = {
    "of its row": (lambda a, i, k: a[i, k], True),
    "of its column": (lambda a, i, k: a[k, i], False),
    "of its row times another's column": (lambda a, i, k: a[i, k] * a[k, i], False),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_columns_stay_outside(name):
    body, joins = SUMS[name]
    a, b = (te.placeholder((200, 200), name=name) for name in "ab")
    k = te.reduce_axis((0, 200), "k")
    total = te.compute((200,), lambda i: te.sum(body(a, i, k), axis=k), name="total")
    edges = te.compute((200, 200), lambda i, j: b[i, j] * total[i], name="edges")
    names = [part.name for group in groups_of([edges]) for part in group.parts]
    assert ("total" in names) == joins


def test_differences_of_products_are_no_rows_of_a_group():
    """Each element of the tables and of the operands is read many times: a tile shares them."""
    x, y = te.placeholder((4, 90, 66), name="x"), te.placeholder((4, 90, 66), name="y")
    angle = lambda a, b: (a * b % 90).astype("float32")  # noqa: E731
    cosine = te.compute((90, 90), lambda a, b: te.cos(angle(a, b)), name="cosine")
    sine = te.compute((90, 90), lambda a, b: te.sin(angle(a, b)), name="sine")
    m = te.reduce_axis((0, 90), "m")
    z = te.compute(
        (4, 90, 66),
        lambda b, i, e: te.sum(cosine[i, m] * x[b, m, e] - sine[i, m] * y[b, m, e], axis=m),
        name="z",
    )
    assert not [group for group in groups_of([z]) if "z" in [op.name for op in group.ops]]


@pytest.mark.parametrize(("steps", "apart"), [(128, True), (4, False)])
def test_a_long_window_is_a_tile_beside_the_row_of_its_reader(steps, apart):
    """What the neighbours of a short window read again is in the first cache anyway."""
    x, y = te.placeholder((16, steps, 8), name="x"), te.placeholder((16, steps, 8), name="y")
    scale = te.placeholder((steps, 8), name="scale")
    b, t = te.reduce_axis((0, 16), "b"), te.reduce_axis((0, steps), "t")
    zero = te.const(0.0, "float32")

    def body(k, d):
        return te.sum(te.if_then_else(k <= t, y[b, t, d] * x[b, t - k, d], zero), axis=[b, t])

    taps = te.compute((steps, 8), body, name="taps")
    scaled = te.compute((steps, 8), lambda k, d: taps[k, d] * scale[k, d], name="scaled")
    r = te.reduce_axis((0, steps), "r")
    rates = te.compute((8,), lambda d: te.sum(scaled[r, d] * taps[r, d], axis=r), name="rates")
    together = [g for g in groups_of([scaled, rates]) if "taps" in [op.name for op in g.ops]]
    assert bool(together) != apart


@pytest.mark.parametrize("rows", [64, te.var("n")], ids=["literal", "symbolic"])
def test_chosen_functions_are_computed_apart(rows):
    """Each component in vectors of rows, not one row after the other."""
    x = te.placeholder((rows, 2), name="x")

    def component(i, c):
        return te.if_then_else(c == 0, te.sin(x[i, 0]), te.cos(x[i, 1]) * x[i, 0])

    parts = te.compute((rows, 3), component, name="parts")
    k = te.reduce_axis((0, 3), "k")
    total = te.compute((rows,), lambda i: te.sum(parts[i, k] * parts[i, k], axis=k), name="total")
    assert not [g for g in groups_of([parts, total]) if "parts" in [op.name for op in g.ops]]


@pytest.mark.parametrize("components", [3, 40])
def test_few_chosen_components_of_many_rows_are_computed_apart(components):
    """Vectors run over the rows of all poses; of many components, along them."""
    x, p = te.placeholder((500, components), name="x"), te.placeholder((8, components), name="p")
    moved = te.compute((8, 500, components), lambda k, i, c: x[i, c] + p[k, c], name="moved")

    def component(k, i, c):
        depth = moved[k, i, components - 1] + 6.0
        return te.if_then_else(c == 0, moved[k, i, 0] / depth, moved[k, i, c] * depth)

    seen = te.compute((8, 500, components), component, name="seen")
    together = [g for g in groups_of([seen]) if "seen" in [op.name for op in g.ops]]
    assert bool(together) == (components == 40)


def sum_of_exponentials(x, column):
    row = te.compute(x.shape, lambda i, j: te.exp(x[i, j] - column[j]), name="row")
    k = te.reduce_axis((0, x.shape[1]), "k")
    return te.compute((x.shape[0],), lambda i: te.sum(row[i, k], axis=k), name="total")


def test_rows_of_members_are_looked_for_once(monkeypatch):
    """However many kernels ask whether they join them."""
    places, calls = row_kernels._places, []

    def counting(*args):
        calls.append(args)
        return places(*args)

    monkeypatch.setattr(row_kernels, "_places", counting)
    counts = []
    for number in (8, 16, 32):
        x = te.placeholder((40, 64), name="x")
        columns = [te.placeholder((64,), name=f"c{n}") for n in range(number)]
        sums = [sum_of_exponentials(x, column) for column in columns]
        calls.clear()
        [group] = groups_of(sums)
        assert len(group.parts) >= number
        counts.append(len(calls))
    assert 0 < counts[2] - counts[1] <= 2.1 * (counts[1] - counts[0])
