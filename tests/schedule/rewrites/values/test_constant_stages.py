"""Stages of constants: which they are, that calls do not compute them, and what they hold."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.machines import TARGETS
from tvm_autodiff.expr.nodes import tensor_key
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.schedule.rewrites.values.constant_stages import constant_stages

COUNT = 64
x = te.placeholder((7, COUNT), "float64", name="x")
k = te.reduce_axis((0, COUNT), "k")


def window(dtype="float64", shape=(COUNT,)):
    """Half of a cosine, raised."""

    def at(*indices):
        place = sum(index.astype(dtype) for index in indices)
        return te.const(0.5, dtype) - te.cos(place * (2 * math.pi / COUNT)) * 0.5

    return te.compute(shape, at, name="window")


def scaled(tensor):
    return te.compute(
        tensor.shape, lambda *i: tensor(*i) * te.const(2.0, tensor.dtype), name="scaled"
    )


def total(tensor):
    return te.compute((), lambda: te.sum(tensor[k], axis=k), name="total")


def flat(tensor):
    return te.compute((COUNT,), lambda i: te.const(2.0, "float64"), name="flat")


#: a stage, and the names of the constants among those that it needs, itself included
STAGES = {
    "a window": (window, ["window"]),
    "of a window": (lambda: scaled(window()), ["window", "scaled"]),
    "its sum": (lambda: total(window()), ["window", "total"]),
    "without an expensive function": (lambda: flat(None), []),
    "of data": (lambda: scaled(x), []),
    "of a symbolic size": (lambda: window(shape=(te.var("n"),)), []),
    "a dtype that it has": (lambda: window("float16"), ["window"]),
    "too large": (lambda: window(shape=(1000, 1000)), []),
    "no element": (lambda: window(shape=(0,)), []),
}


@pytest.mark.parametrize("name", STAGES)
def test_stages(name):
    make, names = STAGES[name]
    last = make()
    graph = Graph([last])
    found = constant_stages(graph, ())
    assert [op.name for op in graph.ops if hash(op) in found] == names
    assert hash(last.op) not in constant_stages(graph, {tensor_key(last)})


def spectrum(windowed=True, kept=False):
    """``z[b, j] = Σ_k x[b, k]*window[k]*cos(2π*j*k/64)``, its gradient, and what it reads."""
    weights = window()
    y = te.compute((7, COUNT), lambda b, i: x[b, i] * weights[i], name="y") if windowed else x
    angle = lambda j, k: j.astype("float64") * k.astype("float64")  # noqa: E731
    cosine = lambda j, k: te.cos(angle(j, k) * (2 * math.pi / COUNT))  # noqa: E731
    z = te.compute((7, COUNT), lambda b, j: te.sum(y[b, k] * cosine(j, k), axis=k), name="z")
    head = te.placeholder((7, COUNT), "float64", name="head")
    return [x, head], [z, *ad.differentiate(z, [x], head), *([weights] if kept else [])]


def expected(a, h):
    places = np.arange(COUNT)
    weights = 0.5 - 0.5 * np.cos(2 * np.pi * places / COUNT)
    cosines = np.cos(2 * np.pi * places[:, None] * places / COUNT)
    return (a * weights) @ cosines, (h @ cosines) * weights, weights


def arrays():
    rng = np.random.default_rng(0)
    return rng.standard_normal((7, COUNT)), rng.standard_normal((7, COUNT))


def assert_right(found, a, h):
    for got, want in zip(found, expected(a, h), strict=False):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("exact_math", [False, True])
def test_no_call_computes_them(exact_math, kept):
    """An output is written at each call, by a kernel."""
    inputs, outputs = spectrum(kept=kept)
    built = ad.build(inputs, outputs, exact_math=exact_math, cache=False)
    a, h = arrays()
    assert_right(built(a, h), a, h)
    kernels = [kernel.name for kernel in built.profile(a, h).kernels]
    assert not any("values" in name for name in kernels)
    assert any("window" in name for name in kernels) == kept


def test_results_do_not_alias_them():
    inputs, outputs = spectrum()
    built = ad.build(inputs, outputs, cache=False)
    a, h = arrays()
    first = built(a, h)
    for one in first:
        one[...] = 0.0
    assert_right(built(a, h), a, h)


def test_a_copy_of_one_is_an_output():
    """Calls may write to what they get."""
    weights = window()
    y = te.compute((7, COUNT), lambda b, i: x[b, i] * weights[i], name="y")
    copy = te.compute((8, 8), lambda i, j: weights[i * 8 + j], name="copy")
    built = ad.build(x, [y, copy], cache=False)
    a, _ = arrays()
    built(a)[1][...] = 0.0
    found = built(a)
    np.testing.assert_allclose(found[0], a * expected(a, a)[2], rtol=1e-12)
    np.testing.assert_allclose(found[1].reshape(-1), expected(a, a)[2], rtol=1e-12, atol=1e-15)


def test_stored_programs_have_them(tmp_path):
    inputs, outputs = spectrum()
    a, h = arrays()
    ad.build(inputs, outputs, cache=False).export(tmp_path / "spectrum.so")
    assert_right(ad.load(tmp_path / "spectrum.so")(a, h), a, h)
    for _ in range(2):
        assert_right(ad.build(inputs, outputs, cache=tmp_path / "cache")(a, h), a, h)


@pytest.mark.parametrize("vectors", TARGETS)
def test_other_targets(vectors):
    """They are computed here for any target; the code for it is not run."""
    inputs, outputs = spectrum()
    target = {"kind": "llvm", **TARGETS[vectors]}
    code = ad.build(inputs, outputs, target, cache=False).source()
    [size] = re.findall(r"@tvm_autodiff_table = .*\[(\d+) x i8\]", code)
    # the window, and the cosines of the value and of the gradient, which are equal
    assert int(size) == (COUNT + COUNT * COUNT) * 8


def test_symbolic_sizes():
    """Some sizes have kernels of their own; all read one table."""
    n = te.var("n")
    rows = te.placeholder((n, COUNT), "float64", name="rows")
    angle = lambda j, k: j.astype("float64") * k.astype("float64")  # noqa: E731
    z = te.compute(
        (n, COUNT),
        lambda b, j: te.sum(rows[b, k] * te.cos(angle(j, k) * (2 * math.pi / COUNT)), axis=k),
        name="z",
    )
    built = ad.build(rows, z, cache=False)
    places = np.arange(COUNT)
    cosines = np.cos(2 * np.pi * places[:, None] * places / COUNT)
    for count in (0, 1, 7, 300):
        a = np.random.default_rng(count).standard_normal((count, COUNT))
        np.testing.assert_allclose(built(a), a @ cosines, rtol=1e-10, atol=1e-10)


def test_in_a_loop():
    """Steps of loops compute theirs, once for all steps."""
    start = te.placeholder((COUNT,), "float64", name="start")

    def step(state, _):
        angle = lambda j, k: j.astype("float64") * k.astype("float64")  # noqa: E731
        cosine = lambda j, k: te.cos(angle(j, k) * (2 * math.pi / COUNT)) / COUNT  # noqa: E731
        new = te.compute(
            (COUNT,), lambda j: te.sum(state[k] * cosine(j, k), axis=k), name="new"
        )
        return new, None

    last, _ = ad.scan(step, start, length=5)
    places = np.arange(COUNT)
    cosines = np.cos(2 * np.pi * places[:, None] * places / COUNT) / 64
    a = np.random.default_rng(1).standard_normal(COUNT)
    want = a @ np.linalg.matrix_power(cosines, 5)
    np.testing.assert_allclose(ad.build(start, last, cache=False)(a), want, rtol=1e-8, atol=1e-12)
