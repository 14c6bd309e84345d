"""`stop_gradient`: the value stays, and no gradient passes it, at any order, after any rewrite."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph as evaluate
from tvm_autodiff import stop_gradient

X = np.random.default_rng(0).uniform(0.25, 1.25, (3, 4))
W = np.random.default_rng(1).uniform(0.25, 1.25, (4,))
H = np.random.default_rng(2).uniform(-1, 1, (3, 4))


def tensor(*shape, name="x", dtype="float64"):
    return te.placeholder(shape, dtype, name=name)


def stage(shape, body, name="y"):
    return te.compute(shape, body, name=name)


def reduced(x, name="total", combine=te.sum):
    k = te.reduce_axis((0, 4), "k")
    return stage((3,), lambda i: combine(x[i, k], axis=k), name)


def spread(rows, name="spread"):
    return stage((3, 4), lambda i, j: rows[i] * 1.0, name)


def weighted(x, w, name="product"):
    return stage((3, 4), lambda i, j: x[i, j] * w[j], name)


# Each program gives y from x and w; beside it: y with the constant c in the place of what is
# stopped, and what is stopped, both in numpy.


def of_an_input(x, w):
    s = stop_gradient(x)
    return stage((3, 4), lambda i, j: x[i, j] * s[i, j] + w[j])


def of_an_element(x, w):
    return stage((3, 4), lambda i, j: x[i, j] * stop_gradient(x[i, j]) + w[j])


def of_a_stage(x, w):
    s = stop_gradient(weighted(x, w))
    return stage((3, 4), lambda i, j: te.exp(s[i, j] * x[i, j]) * w[j])


def of_a_reduction(x, w):
    s = stop_gradient(reduced(x))
    return stage((3, 4), lambda i, j: x[i, j] * x[i, j] / s[i] * w[j])


def in_a_reduction(x, w):
    k = te.reduce_axis((0, 4), "k")
    body = lambda i: te.sum(x[i, k] * stop_gradient(x[i, k] * w[k]), axis=k)  # noqa: E731
    return spread(stage((3,), body, "rows"))


def in_a_product(x, w):
    k = te.reduce_axis((0, 4), "k")
    product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="product")
    body = lambda i: product(x[i, k] + stop_gradient(w[k]), axis=k)  # noqa: E731
    rows = stage((3,), body, "rows")
    return stage((3, 4), lambda i, j: rows[i] * w[j])


def in_a_maximum(x, w):
    k = te.reduce_axis((0, 4), "k")
    body = lambda i: te.max(x[i, k] * stop_gradient(x[i, k]), axis=k)  # noqa: E731
    return spread(stage((3,), body, "rows"))


def read_at_other_places(x, w):
    s = stop_gradient(x)
    turned = topi.transpose(s)
    return stage((3, 4), lambda i, j: x[i, j] * turned[3 - j, 2 - i] * w[j])


def behind_a_copy(x, w):
    s = topi.reshape(stop_gradient(topi.reshape(x, (12,))), (3, 4))
    return stage((3, 4), lambda i, j: x[i, j] * s[i, j] + w[j])


def twice(x, w):
    s = stop_gradient(stop_gradient(x))
    return stage((3, 4), lambda i, j: x[i, j] * s[i, j] + w[j])


PROGRAMS = {
    of_an_input: (lambda x, w, c: x * c + w, lambda x, w: x),
    of_an_element: (lambda x, w, c: x * c + w, lambda x, w: x),
    of_a_stage: (lambda x, w, c: np.exp(c * x) * w, lambda x, w: x * w),
    of_a_reduction: (lambda x, w, c: x * x / c * w, lambda x, w: x.sum(1, keepdims=True)),
    in_a_reduction: (
        lambda x, w, c: np.repeat((x * c).sum(1, keepdims=True), 4, 1),
        lambda x, w: x * w,
    ),
    in_a_product: (
        lambda x, w, c: (x + c).prod(1, keepdims=True) * w,
        lambda x, w: np.broadcast_to(w, (3, 4)),
    ),
    in_a_maximum: (
        lambda x, w, c: np.repeat(
            np.take_along_axis(x * c, (x * c).argmax(1)[:, None], 1), 4, axis=1
        ),
        lambda x, w: x,
    ),
    read_at_other_places: (lambda x, w, c: x * c * w, lambda x, w: x[::-1, ::-1]),
    behind_a_copy: (lambda x, w, c: x * c + w, lambda x, w: x),
    twice: (lambda x, w, c: x * c + w, lambda x, w: x),
}


def by_differences(function, at, step=1e-3):
    """d function(at)/d at for a scalar function, with an error of fourth order in the step."""
    at = at.copy()
    gradient = np.zeros(at.shape)
    for place in np.ndindex(at.shape):
        centre = at[place]
        for offset, factor in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
            at[place] = centre + offset * step
            gradient[place] += factor * function(at) / (12 * step)
        at[place] = centre
    return gradient


def rebuilt(y):
    """The same tensor after each transformation of graphs."""
    yield from (
        transform([y])[0]
        for transform in (
            list,
            ad.inline_tensors,
            ad.merge_equal_stages,
            ad.remove_unused_dims,
            ad.simplify_reductions,
            lambda tensors: [ad.lift_nonzeroness_condition(tensors[0])],
        )
    )


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_it_is_a_constant_to_derivatives(make):
    function, stopped = PROGRAMS[make]
    x, w, head = tensor(3, 4), tensor(4, name="w"), tensor(3, 4, name="h")
    y = make(x, w)
    pairs = [(x, X), (w, W), (head, H)]
    held = stopped(X, W)
    np.testing.assert_allclose(evaluate([y], pairs)[0], function(X, W, held), rtol=1e-12)
    wants = [
        by_differences(lambda at: (H * function(at, W, held)).sum(), X),
        by_differences(lambda at: (H * function(X, at, held)).sum(), W),
    ]
    for whole in rebuilt(y):
        got = evaluate(list(ad.vjp(whole, [x, w], head)), pairs)
        for value, want in zip(got, wants, strict=True):
            np.testing.assert_allclose(value, want, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_it_is_one_at_second_order(make):
    """d <dx(x), V> / dx: the first derivative as a function of x with what is stopped held."""
    function, stopped = PROGRAMS[make]
    x, w, head = tensor(3, 4), tensor(4, name="w"), tensor(3, 4, name="h")
    second = tensor(3, 4, name="v")
    V = np.random.default_rng(3).uniform(-1, 1, (3, 4))
    [dx] = ad.differentiate(make(x, w), [x], head)
    held = stopped(X, W)

    def first(at):
        step = 1e-3
        plus, minus = (function(at + sign * step * V, W, held) for sign in (1, -1))
        plus2, minus2 = (function(at + sign * 2 * step * V, W, held) for sign in (1, -1))
        return (H * (8 * (plus - minus) - (plus2 - minus2))).sum() / (12 * step)

    want = by_differences(first, X)
    for whole in rebuilt(dx):
        result = ad.vjp([whole], [x], [second])
        [got] = evaluate(list(result), [(x, X), (w, W), (head, H), (second, V)])
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_nothing_goes_into_what_is_stopped():
    """No adjoint, no work and no error of a stage that only what is stopped needs."""
    x = tensor(4, dtype="float32")
    opaque = topi.cumsum(x)
    s = stop_gradient(opaque)
    y = stage((4,), lambda i: x[i] * s[i])
    result = ad.differentiate(y, [x], tensor(4, name="h", dtype="float32"))
    assert "cumsum_generic_stopped" not in [t.op.name for t in result.adjoints]
    assert "cumsum" not in result.explain()
    with pytest.raises(ad.NotDifferentiableError):
        ad.differentiate(stage((4,), lambda i: x[i] * opaque[i]), [x])


def test_the_stopped_tensor_itself_has_an_adjoint():
    x, head = tensor(3, 4), tensor(3, 4, name="h")
    s = stop_gradient(x)
    y = stage((3, 4), lambda i, j: x[i, j] * s[i, j])
    ds, dx = evaluate(list(ad.differentiate(y, [s, x], head)), [(x, X), (head, H)])
    np.testing.assert_allclose(ds, H * X)
    np.testing.assert_allclose(dx, H * X)


def test_custom_rules_pass_it():
    """A straight-through estimator: the marked read has a rule of its own."""
    x, head = tensor(3, 4), tensor(3, 4, name="h")
    s = stop_gradient(x)
    y = stage((3, 4), lambda i, j: s[i, j] * 2.0)
    straight = lambda out, inp, h: stage((3, 4), lambda i, j: h[i, j] * 3.0, "straight")  # noqa: E731
    pairs = [(x, X), (head, H)]
    [dx] = evaluate(list(ad.differentiate(y, [x], head, manual={(s, x): straight})), pairs)
    np.testing.assert_allclose(dx, 6 * H)
    over = {s: ([x], lambda out, deps, h: [straight(out, deps[0], h)])}
    [dx] = evaluate(list(ad.differentiate(y, [x], head, override=over)), pairs)
    np.testing.assert_allclose(dx, 6 * H)
    over = {y: ([x], lambda out, deps, h: [straight(out, deps[0], h)])}
    [dx] = evaluate(list(ad.differentiate(y, [x], head, override=over)), pairs)
    np.testing.assert_allclose(dx, 3 * H)


def test_a_rule_for_all_edges_does_not_pass_it():
    x, head = tensor(3, 4), tensor(3, 4, name="h")
    s = stop_gradient(x)
    y = stage((3, 4), lambda i, j: s[i, j] * x[i, j])
    edges = []

    def fdiff(out, inp, h):
        edges.append((out.op.name, inp.op.name))
        return ad.pullback(out, inp, h)

    [dx] = evaluate(list(ad.differentiate(y, [x], head, fdiff=fdiff)), [(x, X), (head, H)])
    np.testing.assert_allclose(dx, H * X)
    assert edges == [("y", "x")]


def test_it_costs_nothing_when_built():
    x, w = tensor(3, 4), tensor(4, name="w")
    plain = stage((3, 4), lambda i, j: x[i, j] * w[j] + x[i, j], "y")
    s = stop_gradient(x)
    marked = stage((3, 4), lambda i, j: x[i, j] * w[j] + s[i, j], "y")
    one, other = (ad.lower([x, w], y)["main"] for y in (plain, marked))
    tvm.ir.assert_structural_equal(one, other)
    rows, stopped = reduced(x), stop_gradient(reduced(x))
    pairs = [[rows, spread(rows)], [rows, spread(stopped)]]
    kernels = [len(ad.build([x], pair, cache=False).profile(X).kernels) for pair in pairs]
    assert kernels[0] == kernels[1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_it_is_the_identity(dtype):
    x = tensor(5, dtype=dtype)
    values = np.arange(5).astype(tvm.runtime.empty((1,), dtype).numpy().dtype)
    [got] = ad.build([x], [stop_gradient(x)], cache=False)(values)
    np.testing.assert_array_equal(got, values)


def test_tvm_lowers_it_alone():
    x = tensor(64, dtype="float32")
    s = stop_gradient(x)
    y = stage((64,), lambda i: s[i] + stop_gradient(x[i] * 2.0))
    module = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    module.vectorize(module.get_loops(module.get_sblock("y"))[-1])
    result = tvm.runtime.empty((64,), "float32")
    values = np.arange(64, dtype="float32")
    tvm.compile(module.mod, target="llvm")["main"](tvm.runtime.tensor(values), result)
    np.testing.assert_array_equal(result.numpy(), 3 * values)


def test_what_is_not_floating_point_stays_as_it_is():
    n = tensor(4, name="n", dtype="int32")
    assert stop_gradient(n) is n
    y = stage((4,), lambda i: stop_gradient(n[i]) + 1)
    assert "stop_gradient" not in ad.show(y)


def test_symbolic_shapes_and_the_cache(tmp_path):
    n = te.var("n")
    x = tensor(n, dtype="float32")
    s = stop_gradient(x)
    y = stage((n,), lambda i: x[i] * s[i])
    [dx] = ad.differentiate(y, [x], tensor(n, name="h", dtype="float32"))
    values = np.arange(5, dtype="float32")
    for _ in range(2):
        f = ad.build([x], y, cache=tmp_path)
        np.testing.assert_array_equal(f(values), values**2)
    assert "stop_gradient(x[i0])" in ad.show(dx)


@pytest.mark.parametrize("value", [3.0, "x", None, np.zeros(3), [tensor(3)]])
def test_other_values(value):
    with pytest.raises(ad.InvalidArgumentError, match="takes a te.Tensor or an expression"):
        stop_gradient(value)
