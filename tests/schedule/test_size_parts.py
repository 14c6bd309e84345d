"""Programs of symbolic sizes have plans for some sizes: each call runs the part of its sizes."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx, topi

import tvm_autodiff as ad
from tvm_autodiff.runtime.calls.call_sizes import launches_of, part_of

SIZES = (0, 1, 2, 7, 64, 513)


def layer(n):
    """``relu(x·w + b)`` of n rows, and the gradients of the weights."""
    x, w = te.placeholder((n, 24), name="x"), te.placeholder((24, 40), name="w")
    b = te.placeholder((40,), name="b")
    y = topi.nn.relu(topi.add(topi.matmul(x, w), b))
    head = te.placeholder((n, 40), name="head")
    return [x, w, b, head], [y, *ad.differentiate(y, [w, b], head)]


def layer_in_numpy(x, w, b, head):
    y = np.maximum(x @ w + b, 0)
    inside = head * (y > 0)
    return [y, x.T @ inside, inside.sum(0)]


def attention(n):
    """Attention over n tokens: the size is on both sides of a product."""
    q, k, v = (te.placeholder((2, n, 8), name=name) for name in "qkv")
    p = topi.nn.softmax(topi.nn.batch_matmul(q, k, transpose_b=True))
    return [q, k, v], [topi.nn.batch_matmul(p, v, transpose_b=False)]


def attention_in_numpy(q, k, v):
    p = np.exp(np.einsum("bik,bjk->bij", q, k))
    return [np.einsum("bij,bjk->bik", p / p.sum(-1, keepdims=True), v)]


def distances(n):
    """Squared distances of n points to 50 others."""
    x, y = te.placeholder((n, 16), name="x"), te.placeholder((50, 16), name="y")
    k = te.reduce_axis((0, 16), "k")

    def squared(i, j):
        return te.sum((x[i, k] - y[j, k]) * (x[i, k] - y[j, k]), axis=k)

    return [x, y], [te.compute((n, 50), squared, name="d")]


def distances_in_numpy(x, y):
    return [((x[:, None] - y) ** 2).sum(-1)]


def pool(n):
    """The largest of each 3 neighbours of n + 2 steps."""
    x, r = te.placeholder((4, n + 2), name="x"), te.reduce_axis((0, 3), "r")
    return [x], [te.compute((4, n), lambda c, t: te.max(x[c, t + r], axis=r), name="y")]


def pool_in_numpy(x):
    return [np.maximum(np.maximum(x[:, :-2], x[:, 1:-1]), x[:, 2:])]


def recurrent(n):
    """A loop over time with n rows."""
    xs, h = te.placeholder((5, n, 6), name="xs"), te.placeholder((n, 6), name="h")
    u = te.placeholder((6, 6), name="u")
    last, _ = ad.scan(lambda h, x: (topi.tanh(topi.add(x, topi.matmul(h, u))), None), h, xs)
    return [xs, h, u], [last]


def recurrent_in_numpy(xs, h, u):
    for x in xs:
        h = np.tanh(x + h @ u)
    return [h]


PROGRAMS = {
    "layer": (layer, layer_in_numpy),
    "attention": (attention, attention_in_numpy),
    "distances": (distances, distances_in_numpy),
    "pool": (pool, pool_in_numpy),
    "recurrent": (recurrent, recurrent_in_numpy),
}


def arrays_for(tensors, **sizes):
    rng = np.random.default_rng(0)

    def extent(dim):
        return int(dim) if not hasattr(dim, "ty") else eval(str(dim), {}, sizes)

    shapes = [[extent(dim) for dim in tensor.shape] for tensor in tensors]
    return [rng.uniform(-1, 1, shape).astype("float32") for shape in shapes]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_of_every_part(name):
    make, in_numpy = PROGRAMS[name]
    inputs, outputs = make(te.var("n"))
    run = ad.build(inputs, outputs, num_threads=2, cache=False)
    for n in SIZES:
        arrays = arrays_for(inputs, n=n)
        for got, want in zip(run(*arrays), in_numpy(*arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def run():
    return ad.build(*layer(te.var("n")), num_threads=2, cache=False)


@pytest.mark.slow
def test_a_part_for_one_row(run):
    sizes = run._manifest.sizes
    last = len(sizes.parts) - 1
    assert [part_of(sizes, {"n": n}) for n in (0, 1, 2)] == [last, 0, last]
    assert sum(part.launches for part in sizes.parts) == len(run._manifest.launches)
    ranges = {launches_of(run._manifest, {"n": n}) for n in SIZES}
    assert sorted(n for one in ranges for n in one) == list(range(len(run._manifest.launches)))


def test_parts_share_memory_and_functions(run):
    """What a call needs is what its part needs, and equal kernels are in the module once."""
    assert run.memory(n=1).temporaries <= run.memory(n=2).temporaries
    inputs, outputs = layer(te.var("n"))
    w = inputs[1]
    halved = te.compute(w.shape, lambda i, j: w[i, j] * 0.5, name="halved")
    both = ad.build(inputs, [*outputs, halved], num_threads=2, cache=False)
    assert len(both._manifest.sizes.parts) > 1
    names = [launch.name for launch in both._manifest.launches]
    assert len(set(names)) < len(names)


def test_profiles_show_the_part_that_runs(run):
    for n in (1, 64, 513):
        arrays = arrays_for(layer(n)[0])
        profile = run.profile(*arrays, repeats=2)
        numbers = launches_of(run._manifest, {"n": n})
        called = [number for number in numbers if run._manifest.launches[number].name]
        assert sum(kernel.launches for kernel in profile.kernels) == len(called)


def test_a_program_whose_parts_are_equal_has_one():
    n, m = te.var("n"), te.var("m")
    x, k = te.placeholder((n, m), name="x"), te.placeholder((3,), name="k")
    run = ad.build([x, k], te.compute((3,), lambda i: k[i] * 2.0), cache=False)
    assert run._manifest.sizes is None or not run._manifest.sizes.parts


@pytest.mark.slow
@pytest.mark.parametrize("m", [1, 3, 700])
@pytest.mark.parametrize("n", [1, 2, 600])
def test_two_symbols(two_sizes, n, m):
    arrays = arrays_for(two_sizes[0], n=n, m=m)
    x, w = arrays
    for got, want in zip(two_sizes[1](*arrays), [x @ w, x.sum(1)], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def two_sizes():
    n, m = te.var("n"), te.var("m", "int64")
    x, w = te.placeholder((n, m), name="x"), te.placeholder((m, 20), name="w")
    outputs = [topi.matmul(x, w), topi.sum(x, axis=1)]
    return [x, w], ad.build([x, w], outputs, cache=False)


@pytest.mark.slow
def test_updates_in_every_part():
    n = te.var("n")
    x, w, b, head = layer(n)[0]
    [x, w, b, head], [y, dw, db] = layer(n)
    new = topi.add(w, dw * te.const(-0.5, "float32"))
    run = ad.build([x, w, b, head], [y, db], updates={w: new}, cache=False)
    for size in SIZES:
        arrays = arrays_for([x, w, b, head], n=size)
        want, gradient, sums = layer_in_numpy(*arrays)
        updated = arrays[1] - 0.5 * gradient
        for got, one in zip(run(*arrays), [want, sums], strict=True):
            np.testing.assert_allclose(got, one, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(arrays[1], updated, rtol=1e-4, atol=1e-4)


def test_a_loaded_program_has_its_parts(run, tmp_path):
    run.export(tmp_path / "layer.so")
    again = ad.load(tmp_path / "layer.so")
    assert again._manifest.sizes == run._manifest.sizes
    for n in SIZES:
        arrays = arrays_for(layer(n)[0]) if n else arrays_for(layer(te.var("n"))[0], n=0)
        for got, want in zip(again(*arrays), layer_in_numpy(*arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_no_part_where_a_stage_is_empty():
    n = te.var("n")
    x = te.placeholder((n, 2), name="x")
    k = te.reduce_axis((0, 2), "k")
    y = te.compute((n, n // 2), lambda i, j: te.sum(x[i, k] + j, axis=k), name="y")
    function = ad.build(x, y)
    for rows in (1, 2, 5):
        found = function(np.ones((rows, 2), "float32"))
        want = 2 + 2 * np.arange(rows // 2, dtype="float32")
        np.testing.assert_array_equal(found, np.broadcast_to(want, (rows, rows // 2)))


def test_a_dimension_that_the_type_of_its_index_does_not_hold():
    """The gradient of ragged products reads a table of 300 rows at places of 8 bits."""
    product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t))
    table = te.placeholder((300, 1), "float64", name="table")
    places = te.placeholder((4,), "uint8", name="places")

    def body(i):
        k = te.reduce_axis((te.max(i - 2, 0), i + 1), "k")
        m = te.reduce_axis((0, te.max(i, 2 - i)), "m")
        return product(table[places[0], 0], axis=[k, m])

    y = te.compute((2,), body, name="y")
    head = te.placeholder((2,), "float64", name="head")
    [dtable] = ad.differentiate(y, [table], head)
    function = ad.build([table, places, head], dtable, cache=False)
    found = function(np.ones((300, 1)), np.array([255, 0, 0, 0], "uint8"), np.ones(2))
    assert found[255, 0] == found.sum() == 4
