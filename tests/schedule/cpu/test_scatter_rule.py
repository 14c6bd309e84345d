"""The CPU's scatter-add equals numpy's, in order, for any number of threads."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tests.machines import avx512
from tvm_autodiff import build, differentiate, scatter_add
from tvm_autodiff.schedule import machine as hardware
from tvm_autodiff.schedule.backends import rules_for
from tvm_autodiff.schedule.fusion.added_scatters import AddedScatters
from tvm_autodiff.schedule.fusion.kernels import cut
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rule import apply_rules

#: rows, width, reads
SIZES = [(5, 4, 9), (1, 16, 3), (50, 24, 200), (7, 131, 11), (64, 300, 1), (3, 8, 64)]


def taken_rows(rows, width, reads):
    table = te.placeholder((rows, width), name="table")
    index = te.placeholder((reads,), "int32", name="index")
    head = te.placeholder((reads, width), name="head")
    out = te.compute((reads, width), lambda i, j: table[index[i], j] * 3.0, name="out")
    return [index, head], list(differentiate(out, [table], head))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", SIZES)
def test_rows(size, threads, monkeypatch):
    monkeypatch.setattr(hardware, "THREAD_CYCLES", 0)
    rows, width, reads = size
    inputs, outputs = taken_rows(*size)
    rng = np.random.default_rng(0)
    index = rng.integers(0, rows, reads, dtype="int32")
    head = rng.standard_normal((reads, width)).astype("float32")
    [got] = build(inputs, outputs, num_threads=threads)(index, head)
    want = np.zeros((rows, width), "float32")
    np.add.at(want, index, head * np.float32(3))
    np.testing.assert_array_equal(got, want)


def test_inner_dimension(monkeypatch):
    monkeypatch.setattr(hardware, "THREAD_CYCLES", 0)
    table = te.placeholder((6, 9, 8), name="table")
    index = te.placeholder((20,), "int32", name="index")
    head = te.placeholder((6, 20, 8), name="head")
    out = te.compute((6, 20, 8), lambda a, i, j: table[a, index[i], j], name="out")
    rng = np.random.default_rng(1)
    places = rng.integers(0, 9, 20, dtype="int32")
    values = rng.integers(-3, 4, (6, 20, 8)).astype("float32")
    [got] = build([index, head], list(differentiate(out, [table], head)))(places, values)
    want = np.zeros((6, 9, 8), "float32")
    np.add.at(want, (slice(None), places), values)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("row", [lambda i: i % 3, lambda i: i + 1])
def test_places_that_are_one_of_several_results_of_a_stage(row):
    """``(p, q) = (row(i), i // 3)``: a stage with two bodies."""
    value = te.placeholder((6,), name="value")
    rows, columns = te.compute((6,), lambda i: (row(i), i // 3), name="places")
    found = build(value, scatter_add(value, [rows, columns], (8, 3)))(np.arange(6, dtype="float32"))
    want = np.zeros((8, 3), "float32")
    np.add.at(want, ([row(i) for i in range(6)], [i // 3 for i in range(6)]), np.arange(6))
    np.testing.assert_array_equal(found, want)


def test_rule_applies():
    machine = avx512(2)
    kernels, _ = cut(normal_form(taken_rows(50, 24, 200)[1]))
    [*_, last] = [apply_rules(kernel, machine, rules_for(machine)) for kernel in kernels]
    assert [one.rule for one in last] == ["scatter"]


def placeholder(name, dtype, *shape):
    return te.placeholder(shape, dtype, name=name)


X = placeholder("x", "float32", 2, 4, 9, 8)
I, J = placeholder("I", "int32", 6), placeholder("J", "int64", 7)  # noqa: E741 - index tensors
L = placeholder("L", "int32", 2, 6)

#: name → (what is read, tensors of indices, shape of the result, the read)
LAYOUTS = {
    "planes": ([I, J], (2, 4, 6, 7), lambda n, c, h, w: X[n, c, I[h], J[w]]),
    "the last axis": ([J], (2, 4, 9, 7), lambda n, c, h, w: X[n, c, h, J[w]]),
    "a middle axis": ([I], (2, 4, 6, 8), lambda n, c, h, w: X[n, c, I[h], w]),
    "two axes with one between": ([I, J], (6, 4, 9, 7), lambda a, c, h, b: X[I[a], c, h, J[b]]),
    "the second axis": ([I], (2, 6, 9, 8), lambda n, a, h, w: X[n, I[a], h, w]),
    "a place for each batch": ([L], (2, 4, 6, 8), lambda n, c, h, w: X[n, c, L[n, h], w]),
    "two places of one tensor": ([L], (2, 4, 6), lambda n, c, a: X[n, c, L[n, a], L[n, a]]),
    "turned round": ([I], (8, 6, 4, 2), lambda w, h, c, n: X[n, c, I[h], w]),
    "scaled": ([I, J], (2, 4, 6, 7), lambda n, c, h, w: X[n, c, I[h], J[w]] * 2.0),
    "a part of a row": ([I], (2, 4, 6, 3), lambda n, c, h, w: X[n, c, I[h], w + 1]),
    "a diagonal": ([I], (2, 6, 7), lambda n, h, w: X[n, w // 2, I[h], w]),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name, threads, monkeypatch):
    """Whatever the place of the axes that data give: one pass by the rule, equal to numpy's."""
    monkeypatch.setattr(hardware, "THREAD_CYCLES", 0)
    indices, shape, read = LAYOUTS[name]
    out = te.compute(shape, read, name="out")
    head = te.placeholder(shape, name="head")
    [gradient] = differentiate(out, X, head)
    function = build([*indices, head], gradient, num_threads=threads, cache=False)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 2, tuple(map(int, t.shape))).astype(str(t.dtype)) for t in indices]
    weights = rng.integers(-3, 4, shape).astype("float32")
    places = dict(zip(indices, arrays, strict=True))

    want = np.zeros(tuple(map(int, X.shape)), "float32")
    numbers = np.arange(want.size, dtype="float32").reshape(want.shape)
    factor = 2 if name == "scaled" else 1
    [at] = evaluate_graph([out], {X: numbers, **places})
    np.add.at(want.reshape(-1), at.astype(int).reshape(-1) // factor, factor * weights.reshape(-1))
    np.testing.assert_array_equal(function(*arrays, weights), want)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_rule_takes_every_layout(name):
    _, shape, read = LAYOUTS[name]
    gradient = differentiate(te.compute(shape, read), X, te.placeholder(shape))
    machine = avx512(2)
    kernels, _ = cut(normal_form(list(gradient)))
    names = [
        one.rule for kernel in kernels for one in apply_rules(kernel, machine, rules_for(machine))
    ]
    assert "scatter" in names
    assert "fallback" not in names
    if name in (
        "planes",
        "the last axis",
        "a middle axis",
        "two axes with one between",
        "turned round",
    ):
        assert names == ["scatter"]  # the cotangent as it lies in memory


E, K = placeholder("E", "float32", 40, 24), placeholder("K", "int64", 6)
S = placeholder("S", "float32", 4, 24, 24)
d, h = te.reduce_axis((0, 24), "d"), te.reduce_axis((0, 12), "h")


def changed(body):
    """A stage over the gradient g of a table t."""
    return lambda g, t: te.compute(t.shape, lambda *at: body(g(*at), t(*at)), name="y")


def itself(g, t):
    return g


#: name → (table, what is read for points p, dimensions of p, the stage that adds up its gradients,
#: how many scatter-adds are added)
ADDED = {
    "two tensors of indices": (E, lambda p: te.sum(E[I[p], d] * E[K[p], d], axis=d), 1, itself, 2),
    "halves of rows": (
        E,
        lambda p: te.sum(E[I[p], h] * E[I[p], h + 12] * E[K[p], h + 12], axis=h),
        1,
        itself,
        3,
    ),
    "a decay": (E, lambda p: te.sum(E[I[p], d], axis=d), 1, changed(lambda g, t: g + t * 2.0), 1),
    "a step": (
        E,
        lambda p: te.sum(E[I[p], d] * E[K[p], d], axis=d),
        1,
        changed(lambda g, t: t - g * 0.5),
        2,
    ),
    "slices": (
        S,
        lambda a, p: te.sum(S[a, I[p], d] * S[a, K[p], d], axis=d),
        2,
        itself,
        2,
    ),
    "rows and columns": (
        S,
        lambda a, p: te.sum(S[a, I[p], d] * S[a, d, K[p]], axis=d),
        2,
        itself,
        2,
    ),
}


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("name", ADDED)
def test_added(name, threads, monkeypatch):
    """One pass over the table, equal to numpy's, whatever divides the result among threads."""
    monkeypatch.setattr(hardware, "THREAD_CYCLES", 0)
    table, read, dims, finish, count = ADDED[name]
    shape = (4, 6)[-dims:]
    head = te.placeholder(shape, name="head")
    out = te.compute(shape, read, name="out")
    [gradient] = differentiate(out, table, head)
    result = finish(gradient, table)
    machine = avx512(threads)
    kernels, _ = cut(normal_form([result]))
    [group] = [kernel for kernel in kernels if isinstance(kernel, AddedScatters)]
    assert len(group.scatters) == count
    rules = [one.rule for one in apply_rules(group, machine, rules_for(machine))]
    if name == "rows and columns" and threads > shape[0]:
        assert rules == ["scatter", "scatter", "elementwise"]
    else:
        assert rules == ["added_scatters"]
    rng = np.random.default_rng(0)
    inputs = [table, I, K, head]
    arrays = [
        rng.integers(-3, 4, list(map(int, t.shape))).astype("float32")
        if str(t.dtype) == "float32"
        else rng.integers(0, 24, list(map(int, t.shape))).astype(str(t.dtype))
        for t in inputs
    ]
    function = build(inputs, result, num_threads=threads, cache=False)
    [want] = evaluate_graph([result], list(zip(inputs, arrays, strict=True)))
    np.testing.assert_array_equal(function(*arrays), want)


def test_choices_by_data_begin_the_result_in_vectors():
    """LLVM would branch around the read of ``head[i]`` for each element."""
    scores = te.placeholder((64, 40), name="scores")
    labels = te.placeholder((64, 2), "int32", name="labels")
    head = te.placeholder((64,), name="head")
    r, k = te.reduce_axis((0, 2), name="r"), te.reduce_axis((0, 40), name="k")

    def margin(i):
        return te.max(1.0 + scores[i, k], te.const(0.0, "float32"))

    margins = te.compute((64,), lambda i: te.sum(margin(i) * margin(i), axis=k), name="margins")
    chosen = te.compute((64,), lambda i: te.sum(scores[i, labels[i, r]], axis=r), name="chosen")
    loss = te.compute((64,), lambda i: margins[i] - chosen[i], name="loss")
    gradient = differentiate(loss, [scores], head)
    step = build([scores, labels, head], list(gradient), cache=False, num_threads=1)
    [start] = re.findall(r"define [^\n]*@\w*scatter_dscores.*?^}", step.source(), re.S | re.M)
    assert re.search(r"fcmp \w+ <\d+ x float>", start)
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (64, 40)).astype("float32")
    rows, g = rng.integers(0, 40, (64, 2), dtype="int32"), rng.integers(-3, 4, 64).astype("float32")
    want = 2 * g[:, None] * np.maximum(1 + x, 0)
    for column in rows.T:
        want[np.arange(64), column] -= g
    np.testing.assert_array_equal(step(x, rows, g)[0], want)


def test_a_table_is_updated_in_place():
    _, read, _, finish, _ = ADDED["a step"]
    head = te.placeholder((6,), name="head")
    [gradient] = differentiate(te.compute((6,), read, name="out"), E, head)
    step = build([E, I, K, head], [], updates={E: finish(gradient, E)}, cache=False)
    rng = np.random.default_rng(0)
    table = rng.integers(-3, 4, (40, 24)).astype("float32")
    rows, others = rng.integers(0, 40, (2, 6))
    ones = np.ones(6, "float32")
    want = table.copy()
    np.add.at(want, rows, -0.5 * table[others])
    np.add.at(want, others, -0.5 * table[rows])
    step(table, rows.astype("int32"), others, ones)
    np.testing.assert_array_equal(table, want)
