"""Scatter-adds into one result: how many are left, and equal values."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.kinds.kind import kind_of
from tvm_autodiff.graph.kinds.scatter_add import ScatterAdd
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rewrites.sums.added_updates import with_added_updates

F, N, E = "float64", 9, 14
u = te.placeholder((N, 4), F, name="u")
wide = te.placeholder((N, 40), F, name="wide")
edges = te.var("edges")
i, j = (te.placeholder((E,), "int32", name=name) for name in "ij")
head = te.placeholder((E,), F, name="head")


def gradient(body, tensor=u, extra=False):
    """The derivative with respect to a tensor of which rows are read."""
    y = te.compute((E,), body, name="y")
    [found] = ad.differentiate(y, [tensor], head)
    return normal_form([found])


def components(e):
    """One component of the product of two quaternions and all of the norm of one."""
    product = u[i[e], 0] * u[j[e], 1] - u[i[e], 2] * u[j[e], 3]
    return product * te.exp(u[i[e], 1] * u[i[e], 3]) + u[j[e], 0] * u[j[e], 2]


def read_elsewhere(e):
    return u[i[e], 0] * u[i[e], 1] * u[i[e], 2]


#: name → (the tensors, and how many scatter-adds are left)
CASES = {
    "components of rows": (lambda: gradient(components), 2),
    "three components of four": (lambda: gradient(read_elsewhere), 1),
    "few components of many": (
        lambda: gradient(lambda e: wide[i[e], 3] * wide[i[e], 7], wide),
        2,
    ),
    "rows of two index tensors": (
        lambda: gradient(lambda e: u[i[e], i[e] % 4] * u[j[e], j[e] % 4]),
        2,
    ),
    "guarded components": (
        lambda: gradient(
            lambda e: te.if_then_else(
                te.all(i[e] > 0, i[e] < N), u[i[e], 0] * u[i[e], 1] + u[i[e], 3], 0.0
            )
        ),
        1,
    ),
}


def values():
    rng = np.random.default_rng(0)
    given = {t: rng.uniform(0.5, 1.5, [int(n) for n in t.shape]) for t in (u, wide, head)}
    return {**given, **{t: rng.integers(0, N, E).astype("int32") for t in (i, j)}}


def scatters(tensors):
    return sum(isinstance(kind_of(op), ScatterAdd) for op in topological(tensors))


@pytest.mark.parametrize("name", CASES)
def test_how_many_are_left(name):
    make, left = CASES[name]
    before = make()
    after = with_added_updates(before)
    assert scatters(before) > 1
    assert scatters(after) == left
    for want, got in zip(
        *(evaluate_graph(one, values()) for one in (before, after)), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_scatter_that_others_read_stays():
    [whole] = gradient(read_elsewhere)
    parts = [op.output(0) for op in topological([whole]) if isinstance(kind_of(op), ScatterAdd)]
    assert with_added_updates([whole, *parts]) == [whole, *parts]


def test_updates_that_read_another_result():
    [first] = gradient(read_elsewhere)
    k, c = te.reduce_axis((0, N), "k"), te.reduce_axis((0, 4), "c")
    norm = te.compute((), lambda: te.sum(first[k, c] * first[k, c], axis=[k, c]), name="norm")
    before = normal_form(ad.differentiate(norm, [u]))
    after = with_added_updates(before)
    assert scatters(after) == 2 < scatters(before)
    [want], [got] = (evaluate_graph(one, values()) for one in (before, after))
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_symbolic_sizes():
    places = te.placeholder((edges,), "int32", name="places")
    y = te.compute((edges,), lambda e: u[places[e], 0] * u[places[e], 1] * u[places[e], 2])
    seed = te.placeholder((edges,), F, name="seed")
    before = normal_form(ad.differentiate(y, [u], seed))
    after = with_added_updates(before)
    assert (scatters(before), scatters(after)) == (3, 1)
    rng = np.random.default_rng(0)
    given = {u: rng.normal(size=(N, 4)), places: rng.integers(0, N, 6).astype("int32")}
    given[seed] = rng.normal(size=6)
    [want], [got] = (evaluate_graph(one, given, {edges: 6}) for one in (before, after))
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_equal_literal_places_of_two_stages_are_one():
    def parts():
        y = te.compute((E,), read_elsewhere, name="y")
        [whole] = ad.differentiate(y, [u], head)
        return [op.output(0) for op in topological([whole]) if isinstance(kind_of(op), ScatterAdd)]

    every = [*parts(), *parts()]  # whose literal places are tensors of their own
    before = [te.compute(u.shape, lambda *at: sum((t(*at) for t in every[1:]), every[0](*at)))]
    after = with_added_updates(before)
    assert (scatters(before), scatters(after)) == (6, 1)
    [want], [got] = (evaluate_graph(one, values()) for one in (before, after))
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_shapes_of_64_bits():
    count = tirx.IntImm("int64", E)
    place = te.placeholder((count,), "int32", name="place")
    seed = te.placeholder((count,), F, name="seed")
    y = te.compute((count,), lambda e: u[place[e], 0] * u[place[e], 1] * u[place[e], 2], name="y")
    before = normal_form(ad.differentiate(y, [u], seed))
    after = with_added_updates(before)
    assert scatters(after) == 1
    given = {u: values()[u], place: values()[i], seed: values()[head]}
    [want], [got] = (evaluate_graph(one, given) for one in (before, after))
    np.testing.assert_allclose(got, want, rtol=1e-12)
    function = ad.build([u, place, seed], after, num_threads=1, cache=False)
    np.testing.assert_allclose(function(*given.values())[0], want, rtol=1e-12)
