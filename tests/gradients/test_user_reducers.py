"""Gradients of user-made reducers to second order, and their cost: linear at every order.

Tuples whose components depend on each other, combiners that do not commute, integer components,
conditions, initial values, several axes, windows of different length, sources of every form.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tests.gradient_case import Case, derivatives
from tvm_autodiff import build, check_grads, differentiate, estimate_cost

D = "float64"


def f(value):
    return tirx.const(value, D)


def constants(*values):
    return lambda *dtypes: tuple(tirx.const(v, t) for v, t in zip(values, dtypes, strict=True))


def reducer(function, *identity):
    one = len(identity) == 1
    return te.comm_reducer(
        function, (lambda t: tirx.const(identity[0], t)) if one else constants(*identity)
    )


log_add = reducer(lambda a, b: te.log(te.exp(a) + te.exp(b)), -700)
# no smooth function: the sum stays at 2
saturating = reducer(lambda a, b: tirx.Min(a + b, f(2)), 0)
sum_and_max = reducer(lambda a, b: (a[0] + b[0], tirx.Max(a[1], b[1])), 0, -700)


def _softmax(a, b):
    top = tirx.Max(a[0], b[0])
    return top, a[1] * te.exp(a[0] - top) + b[1] * te.exp(b[0] - top)


softmax = reducer(_softmax, -700, 0)


def _welford(a, b):
    """(number, mean, sum of squared distances from the mean)"""
    count = a[0] + b[0]
    apart = b[1] - a[1]
    share = b[0] / tirx.Max(count, f(1))
    return count, a[1] + apart * share, a[2] + b[2] + apart * apart * a[0] * share


welford = reducer(_welford, 0, 0, 0)
# products of 2x2 matrices, row by row
matrices = reducer(
    lambda a, b: (
        a[0] * b[0] + a[1] * b[2],
        a[0] * b[1] + a[1] * b[3],
        a[2] * b[0] + a[3] * b[2],
        a[2] * b[1] + a[3] * b[3],
    ),
    1, 0, 0, 1,
)  # fmt: skip
# of the largest key: its place, the key, and the sum of all keys times its value
keyed = reducer(
    lambda a, b: (
        tirx.Select(a[1] >= b[1], a[0], b[0]),
        tirx.Select(a[1] >= b[1], a[1], b[1]),
        a[2] + b[2] + a[2] * b[2],
    ),
    -1, -700, 0,
)  # fmt: skip


def axes_of(x, rank):
    return [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(x.shape[rank:])]


def over_rows(reduce, *sources, combine=None, where=None, start=None):
    """``out[i] = combine(components of reduce over k of sources(x, i, k), i)``."""

    def make(x):
        k = axes_of(x, 1)
        more = {} if where is None else {"where": where(*k)}
        if start is not None:
            more["init"] = start

        def body(i):
            values = tuple(source(x, i, *k) for source in sources)
            return reduce(values if len(values) > 1 else values[0], axis=k, **more)

        made = te.compute((x.shape[0],), body, name="reduced")
        if combine is None:
            return made
        return te.compute((x.shape[0],), lambda i: combine(*(t[i] for t in made)), name="out")

    return make


x_at = lambda x, *point: x(*point)  # noqa: E731
square = lambda x, *point: x(*point) * x(*point)  # noqa: E731
one = lambda x, *point: f(1)  # noqa: E731
nothing = lambda x, *point: f(0)  # noqa: E731
half = lambda x, *point: x(*point) * 0.5  # noqa: E731
place = lambda x, i, k: k  # noqa: E731
scaled = lambda x, i, k: x[i, k] * (k + 1).astype(D)  # noqa: E731


def columns(reduce):
    """out[j] = reduce over i of x[i, j]: elements are copied, transposed."""

    def make(x):
        i = te.reduce_axis((0, x.shape[0]), "i")
        return te.compute((x.shape[1],), lambda j: reduce(x[i, j], axis=i), name="out")

    return make


def log_sum(x):
    k = te.reduce_axis((0, x.shape[0]), "k")
    return te.compute((), lambda: log_add(x[k], axis=k), name="out")


def shared_row(x, w):
    """out[i] = affine maps x[i, k]*s + w[k], composed: every row reads the same w."""
    k = te.reduce_axis((0, x.shape[1]), "k")
    affine = reducer(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), 1, 0)
    slope, offset = te.compute((x.shape[0],), lambda i: affine((x[i, k], w[k]), axis=k))
    return te.compute((x.shape[0],), lambda i: slope[i] * offset[i], name="out")


def weighted(x, w):
    k = te.reduce_axis((0, x.shape[1]), "k")
    return te.compute((x.shape[0],), lambda i: log_add(x[i, k] * w[k, i], axis=k), name="out")


def windows(reduce):
    """Overlapping windows of three, two apart."""

    def make(x):
        k = te.reduce_axis((0, 3), "k")
        return te.compute((3,), lambda i: reduce(x[2 * i + k], axis=k), name="out")

    return make


def uneven(reduce):
    """Windows ``[i*7//3, ((i + 1)*8 + 2)//3)``, of three to five elements."""

    def make(x):
        def body(i):
            low, high = i * 7 // 3, ((i + 1) * 8 + 2) // 3
            return reduce(x[low + (k := te.reduce_axis((0, high - low), "k"))], axis=k)

        return te.compute((3,), body, name="out")

    return make


X, M = [(3, 4)], [(3, 6, 19)]
product = reducer(lambda a, b: a * b, 1)
CASES = [
    Case("log-add", X, over_rows(log_add, x_at), 2),
    Case("log-add-of-squares", X, over_rows(log_add, square), 2),
    Case("log-add-to-scalar", [(5,)], log_sum, 2),
    Case("log-add-two-axes", [(2, 3, 2)], over_rows(log_add, x_at), 2),
    Case("log-add-columns", X, columns(log_add), 2),
    Case("log-add-weighted", [(3, 4), (4, 3)], weighted, 2),
    Case("log-add-windows", [(8,)], windows(log_add), 2),
    Case("log-add-uneven-windows", [(9,)], uneven(log_add), 2),
    Case("product-uneven-windows", [(9,)], uneven(product), 2),
    Case("log-add-where", X, over_rows(log_add, square, where=lambda k: k > 1), 2),
    Case("log-add-init", X, over_rows(log_add, x_at, start=f(0.5)), 2),
    Case("log-add-one-element", [(3, 1)], over_rows(log_add, x_at), 2),
    Case("saturating-below", [(3, 4)], over_rows(saturating, x_at), 2, domain=(0.1, 0.4)),
    Case("saturating-above", [(3, 4)], over_rows(saturating, x_at), 2, domain=(0.7, 0.9)),
    Case("sum-and-max", X, over_rows(sum_and_max, x_at, x_at, combine=lambda s, m: s * m), 2),
    Case("softmax", X, over_rows(softmax, x_at, one, combine=lambda m, s: m + te.log(s)), 2),
    Case("softmax-sum", X, over_rows(softmax, x_at, square, combine=lambda m, s: s), 2),
    Case(
        "softmax-where",
        X,
        over_rows(softmax, x_at, one, combine=lambda m, s: m * s, where=lambda k: k < 3),
        2,
    ),
    Case(
        "variance",
        X,
        over_rows(welford, one, x_at, nothing, combine=lambda n, mean, m2: m2 / n),
        2,
    ),
    Case(
        "mean-and-variance",
        X,
        over_rows(welford, one, square, nothing, combine=lambda n, mean, m2: mean * m2),
        2,
    ),
    Case(
        "variance-two-axes",
        [(2, 2, 3)],
        over_rows(welford, one, x_at, nothing, combine=lambda n, mean, m2: mean + m2),
        2,
    ),
    Case(
        "matrices",
        X,
        over_rows(
            matrices, x_at, one, half, square, combine=lambda a, b, c, d: a * d + te.sin(b) + c
        ),
        2,
    ),
    Case("keyed", X, over_rows(keyed, place, x_at, scaled, combine=lambda p, k, s: s * k), 2),
    Case("shared-elements", [(3, 4), (4,)], shared_row, 2),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_user_reducer(case):
    case.check()


def over_middle(reduce, *sources, combine):
    """``out[i, j] = combine(components of reduce over k of sources(x, i, k, j))``, in columns."""

    def make(x):
        k = te.reduce_axis((0, x.shape[1]), "k")
        made = te.compute(
            (x.shape[0], x.shape[2]),
            lambda i, j: reduce(tuple(source(x, i, k.var, j) for source in sources), axis=k),
            name="reduced",
        )
        return te.compute(made[0].shape, lambda i, j: combine(*(t[i, j] for t in made)), name="out")

    return make


number = lambda x, i, k, j: k  # noqa: E731
numbered = lambda x, i, k, j: x[i, k, j] * (k + 1).astype(D)  # noqa: E731
#: in vectors along the last axis
COLUMNS = [
    Case("softmax", M, over_middle(softmax, x_at, one, combine=lambda m, s: m + te.log(s))),
    Case("moments", M, over_middle(sum_and_max, square, x_at, combine=lambda s, m: s * m)),
    Case("variance", M, over_middle(welford, one, x_at, nothing, combine=lambda n, m, v: v / n)),
    Case("keyed", M, over_middle(keyed, number, x_at, numbered, combine=lambda p, k, s: s * k)),
    Case(
        "matrices",
        M,
        over_middle(
            matrices, x_at, one, half, square, combine=lambda a, b, c, d: a * d + te.sin(b) + c
        ),
    ),
]


@pytest.mark.parametrize("case", COLUMNS, ids=lambda case: case.name)
def test_columns(case):
    case.check_compiled()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["log-add", "softmax", "product-uneven-windows"])
def test_third_derivatives(name):
    [case] = [case for case in CASES if case.name == name]
    [x], out = case.tensors()
    for number in range(2):
        [out] = differentiate(out, [x], te.placeholder(out.shape, D, name=f"head{number}"))
    check_grads(out, [x])


def test_a_jacobian_is_that_of_the_definition():
    x = te.placeholder((2, 3), D, name="x")
    out = over_rows(log_add, x_at)(x)
    at = np.random.default_rng(0).normal(size=(2, 3))
    [jacobian] = differentiate(out, [x])
    shares = np.exp(at) / np.exp(at).sum(1, keepdims=True)
    expected = np.zeros((2, 2, 3))
    expected[[0, 1], [0, 1]] = shares
    np.testing.assert_allclose(build([x], jacobian)(at), expected, rtol=1e-12)
    # d²out/dx² = diag(s) - s sᵀ in each row
    [hessian] = differentiate(jacobian, [x])
    expected = np.zeros((2, 2, 3, 2, 3))
    for row, s in enumerate(shares):
        expected[row, row, :, row, :] = np.diag(s) - np.outer(s, s)
    np.testing.assert_allclose(build([x], hessian)(at), expected, atol=1e-12)


@pytest.mark.slow
def test_extents_may_be_symbolic():
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=(3, 4))]

    def first_and_second(n, m):
        x = te.placeholder((n, m), D, name="x")
        out = over_rows(log_add, square)(x)
        heads = [te.placeholder((n,), D, name="h"), te.placeholder((n, m), D, name="g")]
        [first] = differentiate(out, [x], heads[0])
        [second] = differentiate(first, [x], heads[1])
        return build([x, *heads], [first, second])(*values)

    symbolic, constant = first_and_second(te.var("n"), te.var("m")), first_and_second(3, 4)
    np.testing.assert_allclose(symbolic[0], constant[0], rtol=1e-12)
    np.testing.assert_allclose(symbolic[1], constant[1], rtol=1e-12)


def test_products_of_matrices_keep_their_order():
    """d(A B C)/dB = AᵀHCᵀ."""
    parts = [te.placeholder((1, 3), D, name=f"m{n}") for n in range(4)]
    k = te.reduce_axis((0, 3), "k")
    outs = te.compute((1,), lambda i: matrices(tuple(p[i, k] for p in parts), axis=k), name="p")
    out = te.compute((1,), lambda i: outs[1][i], name="out")
    at = np.random.default_rng(1).normal(size=(4, 1, 3))
    a, b, c = (at[:, 0, n].reshape(2, 2) for n in range(3))
    got = np.stack(derivatives(out, parts, list(at)))[:, 0]
    head = np.array([[0.0, 1.0], [0.0, 0.0]])
    for n, expected in enumerate([head @ (b @ c).T, a.T @ head @ c.T, (a @ b).T @ head]):
        np.testing.assert_allclose(got[:, n].reshape(2, 2), expected, rtol=1e-12)


REDUCED = {
    "maximum": te.max,
    "product": product,
    "log-add": log_add,
    "saturating": saturating,
}


@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("order", [1, 2])
def test_the_cost_grows_with_the_elements(name, order):
    def cost(length):
        x = te.placeholder((3, length), D, name="x")
        out = over_rows(REDUCED[name], square)(x)
        for number in range(order):
            head = te.placeholder(out.shape, D, name=f"head{number}")
            [out] = differentiate(out, [x], head)
        return estimate_cost(out).iterations

    first, second, third = (cost(length) for length in (10, 20, 30))
    assert third - second == second - first
