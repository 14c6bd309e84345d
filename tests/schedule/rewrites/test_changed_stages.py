"""Changes of stages that read each other: each is computed once, over what the others became."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tvm import te, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import is_placeholder
from tvm_autodiff.schedule.machine import as_target, machine_of
from tvm_autodiff.schedule.rewrites.argmax_fusion import with_fused_argmax
from tvm_autodiff.schedule.rewrites.contractions.ordered import with_ordered_contractions
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rewrites.sums.added_sums import with_added_sums
from tvm_autodiff.schedule.rewrites.sums.shared.stored_functions import with_stored_functions
from tvm_autodiff.schedule.rewrites.sums.shared.stored_summands import with_stored_summands

MACHINE = machine_of(as_target({"kind": "llvm", "mcpu": "skylake-avx512"}), threads=1)
N = 5000

a = te.placeholder((24, 24), "float64", name="a")
u = te.placeholder((24,), "float64", name="u")
image = te.placeholder((1, 2, 12, 12), "float64", name="image")
points = te.placeholder((N, 3), "float64", name="points")


def total(body, name, extent):
    k = te.reduce_axis((0, extent), name)
    return te.compute((), lambda: te.sum(body(k), axis=k), name=name)


def chained_products():
    """Each sum is one over a matrix and a vector, times a number of the row."""

    def layer(x, name):
        k, n = te.reduce_axis((0, 24), "k"), te.reduce_axis((0, 24), "n")
        return te.compute(
            (24, 24), lambda i, j: te.sum(x[i, k] * a[k, n] * a[n, j], axis=[k, n]), name=name
        )

    thin = te.compute((24, 24), lambda i, j: a[i, j] * u[i], name="thin")
    return [layer(layer(thin, "first"), "second")]


def two_pools():
    def pool(x):
        return topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")

    y = topi.sum(pool(topi.exp(pool(topi.sin(image)))))
    return normal_form([y, *ad.differentiate(y, [image])])


def chained_summands():
    """Six sums that share their work, twice: the last of the first six is in the second."""

    def six(scale, name, extent):
        return [
            total(
                lambda k, n=n: te.tanh(points[k, 0] * scale / (points[k, 1] + scale))
                / (points[k, 1] * scale + 2.0)
                * (n + 1.0),
                f"{name}{n}",
                extent,
            )
            for n in range(6)
        ]

    one = six(te.const(1.5, "float64"), "first", N)
    return [*one, *six(one[-1]() / N, "second", N - 1)]


def chained_functions():
    """Sums of one function along either axis, twice."""

    def both(scale, name):
        k, n = te.reduce_axis((0, 96), "k"), te.reduce_axis((0, 96), "n")

        def value(i, j):
            return te.exp(points[i, 0] * points[j, 1] * scale)

        rows = te.compute((96,), lambda i: te.sum(value(i, k), axis=k), name=f"{name}_rows")
        columns = te.compute((96,), lambda j: te.sum(value(n, j), axis=n), name=f"{name}_columns")
        return rows, columns

    rows, columns = both(te.const(0.5, "float64"), "first")
    return [rows, columns, *both(rows[0] / 200.0, "second")]


def chained_additions():
    """Stages that add two sums of one function, the second over the first."""

    def weighted(x, weight, name):
        k = te.reduce_axis((0, 24), "k")
        body = lambda i: te.sum(te.exp(x[i] * a[i, k] / 99.0) * weight, axis=k)  # noqa: E731
        return te.compute((24,), body, name=name)

    def added(x, name):
        first, second = (weighted(x, 1.0 + n, f"{name}{n}") for n in range(2))
        return te.compute((24,), lambda i: first[i] + second[i], name=name)

    return [added(added(u, "first"), "second")]


#: name → the rewrite, and a program with two stages that it changes, one of which needs the other
CASES: dict[str, tuple[Callable[..., list[te.Tensor]], Callable[[], list[te.Tensor]]]] = {
    "products": (with_ordered_contractions, chained_products),
    "maxima and their places": (with_fused_argmax, two_pools),
    "summands": (lambda outputs: with_stored_summands(outputs, MACHINE), chained_summands),
    "functions": (lambda outputs: with_stored_functions(outputs, MACHINE), chained_functions),
    "sums that are added": (with_added_sums, chained_additions),
}


def stages(tensors) -> Iterator[object]:
    return (op for op in Graph(tensors).ops if not is_placeholder(op))


@pytest.mark.parametrize("name", CASES)
def test_no_stage_is_left_beside_what_replaced_it(name):
    rewrite, make = CASES[name]
    before = make()
    after = rewrite(before)
    kept = {hash(op) for op in stages(before)} & {hash(op) for op in stages(after)}
    assert len([op for op in stages(before) if hash(op) not in kept]) > 1
    old, new = (Counter(op.name for op in stages(one)) for one in (before, after))
    assert {name: new[name] for name in old if new[name] > old[name]} == {}
    rng = np.random.default_rng(0)
    inputs = [op.output(0) for op in Graph(before).ops if is_placeholder(op)]
    values = {t: rng.uniform(0.5, 1.5, [int(n) for n in t.shape]) for t in inputs}
    for want, got in zip(*(evaluate_graph(one, values) for one in (before, after)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9)
