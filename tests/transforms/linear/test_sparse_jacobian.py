"""Sparse Jacobians and Hessians: values beside JAX, built functions, costs, bad input."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings, strategies as st
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.gradient_case import Case
from tests.gradients import test_against_jax, test_reducers
from tests.sparse.test_gradient_cases import assembled
from tests.sparse.test_pattern import stencil, stencils
from tests.transforms.linear.test_jacobian import (
    POINTS,
    SCALARS,
    hessian_by_jax,
    jacobian_by_jax,
)
from tvm_autodiff.expr.nodes import is_float

jax.config.update("jax_enable_x64", True)
F64 = "float64"
FORMATS = ("csr", "csc", "coo")
SMALL = [
    both for both in test_against_jax.CASES
    if all(np.prod(shape) <= 100 for shape in both.inputs if isinstance(shape, tuple))
    and both.name != "embedding"  # reads at data
]  # fmt: skip


@pytest.mark.parametrize("both", SMALL, ids=lambda both: both.name)
def test_values_are_those_of_jax(both) -> None:
    case = Case(both.name, both.inputs, both.ours, domain=both.domain, dense=both.dense)
    placeholders, output = case.tensors()
    arrays = case.arrays()
    place = next(n for n, tensor in enumerate(placeholders) if is_float(tensor))
    matrix = ad.jacobian(output, placeholders[place], format="csc")
    found = assembled(matrix, list(zip(placeholders, arrays, strict=True)))
    wanted = jacobian_by_jax(both.theirs, place, *map(jnp.asarray, arrays))
    np.testing.assert_allclose(found, np.asarray(wanted).reshape(found.shape), 1e-10, 1e-12)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(chain=stencils, size=st.integers(5, 12), periodic=st.booleans())
def test_chains_of_stencils(chain, size: int, periodic: bool) -> None:
    x = te.placeholder((size,), F64, name="x")
    tensor = x
    for number, own in enumerate(chain):
        tensor = stencil(tensor, own, periodic, f"stage{number}")
    pairs = [(x, np.random.default_rng(0).standard_normal(size))]
    [dense] = evaluate_graph([ad.jacobian(tensor, x)], pairs)
    found = assembled(ad.jacobian(tensor, x, format="csr"), pairs)
    np.testing.assert_allclose(found, dense, rtol=1e-12, atol=1e-13)


def vector(size: int, dtype: str = F64) -> te.Tensor:
    return te.placeholder((size,), dtype, name="x")


def tridiagonal(x: te.Tensor) -> te.Tensor:
    size, zero = int(x.shape[0]), te.const(0.0, F64)

    def body(i):
        left = te.if_then_else(i > 0, x[i - 1] * x[i], zero)
        return left + te.if_then_else(i < size - 1, te.sin(x[i + 1]), zero)

    return te.compute((size,), body, name="y")


def theirs(x):
    left = jnp.concatenate([jnp.zeros(1), x[:-1] * x[1:]])
    return left + jnp.concatenate([jnp.sin(x[1:]), jnp.zeros(1)])


@pytest.mark.parametrize("format", FORMATS)
def test_built_functions_return_scipy_matrices(format: str) -> None:
    x, point = vector(6), np.linspace(-1, 1, 6)
    found = ad.build(x, ad.jacobian(tridiagonal(x), x, format=format), cache=False)(point)
    assert isinstance(found, getattr(scipy.sparse, f"{format}_matrix"))
    wanted = np.asarray(jacobian_by_jax(theirs, 0, point))
    np.testing.assert_allclose(found.toarray(), wanted, rtol=1e-12, atol=1e-14)
    assert found.nnz == 15  # the diagonal, where there is a left neighbour, and what is beside it
    fresh = scipy.sparse.coo_matrix(wanted).asformat(format)
    assert found.has_canonical_format
    assert (abs(found - fresh)).max() < 1e-14
    np.testing.assert_allclose(found @ point, wanted @ point, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose((found.T @ found).toarray(), wanted.T @ wanted, atol=1e-12)


def test_a_matrix_beside_other_outputs_and_names() -> None:
    x, w = vector(5), te.placeholder((5,), F64, name="w")
    y = te.compute((4,), lambda i: x[i] * w[i + 1] + x[i + 1] * w[i], name="y")
    function = ad.build(
        [x, w], [y, ad.jacobian(y, x, format="csr"), ad.jacobian(y, w, format="csr")], cache=False
    )
    X, W = np.arange(1.0, 6.0), np.arange(2.0, 7.0)
    value, by_x, by_w = function(X, W)
    np.testing.assert_allclose(value, X[:-1] * W[1:] + X[1:] * W[:-1])
    np.testing.assert_allclose(by_x @ X, value)
    np.testing.assert_allclose(by_w @ W, value)
    for named in (function(w=W, x=X), function(X, w=W)):
        np.testing.assert_array_equal(named[1].data, by_x.data)
    with pytest.raises(ad.CallError, match="there is no argument 'v'"):
        function(X, v=W)
    with pytest.raises(ad.CallError):
        function(X)
    with pytest.raises(ad.InvalidArgumentError, match="out= does not support sparse matrices"):
        function(X, W, out=[value, by_x, by_w])
    assert "dy_dx" in str(function.profile(X, W)) or function.profile(X, W).kernels


def test_results_share_index_arrays_that_cannot_be_written() -> None:
    x = vector(5)
    function = ad.build(x, ad.jacobian(tridiagonal(x), x, format="csr"), cache=False)
    first, second = function(np.ones(5)), function(np.zeros(5))
    assert first.indices is second.indices
    wanted = np.asarray(jacobian_by_jax(theirs, 0, np.ones(5)))
    np.testing.assert_allclose(first.toarray(), wanted)
    with pytest.raises(ValueError, match="read-only"):
        first.indices[0] = 3
    own = second.copy()
    own.eliminate_zeros()
    assert own.nnz < second.nnz == first.nnz


def test_arrays_of_other_frameworks() -> None:
    x = vector(5)
    function = ad.build(x, ad.jacobian(tridiagonal(x), x, format="csr"), cache=False)
    wanted = function(np.ones(5)).toarray()
    np.testing.assert_array_equal(function(jnp.ones(5)).toarray(), wanted)


def test_no_entries() -> None:
    x, w = vector(4), te.placeholder((3,), F64, name="w")
    y = te.compute((3,), lambda i: w[i] * 2.0, name="y")
    matrix = ad.jacobian(y, x, format="csr")
    found = ad.build([w, x], matrix, cache=False)(np.ones(3), np.ones(4))
    assert (found.shape, found.nnz) == ((3, 4), 0)


def symbolic_stencil(x: te.Tensor) -> te.Tensor:
    size, zero = x.shape[0], te.const(0.0, F64)

    def body(i):
        left = te.if_then_else(i > 0, x[i - 1] * x[i], zero)
        return left + te.if_then_else(i < size - 1, te.sin(x[i + 1]), zero)

    return te.compute((size,), body, name="y")


@pytest.mark.parametrize("format", FORMATS)
def test_symbolic_shapes(format: str) -> None:
    x = te.placeholder((te.var("n"),), F64, name="x")
    matrix = ad.jacobian(symbolic_stencil(x), x, format=format)
    assert repr(matrix) == f"<SparseMatrix dy_dx: float64 of shape (n, n), {format}>"
    function = ad.build(x, matrix, cache=False)
    for size in (6, 9, 6, 2, 1, 0):
        point = np.linspace(-1.0, 1.0, size)
        found = function(point)
        assert found.has_canonical_format
        wanted = np.asarray(jacobian_by_jax(theirs, 0, point)) if size else np.zeros((0, 0))
        np.testing.assert_allclose(found.toarray(), wanted, rtol=1e-12, atol=1e-14)
    with pytest.raises(ad.CallError, match="argument x must be an array whose dimension 0 is n"):
        function(3.0)


def test_index_arrays_of_symbolic_sizes_are_made_once() -> None:
    x = te.placeholder((te.var("n"),), F64, name="x")
    function = ad.build(x, ad.jacobian(symbolic_stencil(x), x, format="csr"), cache=False)
    first = function(np.ones(5))
    function(np.ones(6))
    assert function(np.zeros(5)).indices is first.indices
    for size in range(2, 30):  # and given up when other sizes come
        function(np.ones(size))
    assert function(np.ones(5)).indices is not first.indices
    assert len(function._bound) <= 8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tvm_autodiff.PlainScheduleWarning")  # numbers, not speed
def test_several_symbolic_sizes_and_a_sum_of_contributions() -> None:
    n, m = te.var("n"), te.var("m")
    a, v = te.placeholder((n, m), F64, name="a"), te.placeholder((m,), F64, name="v")
    k = te.reduce_axis((0, m), "k")
    p = te.compute((n,), lambda i: te.sum(a[i, k] * te.exp(v[k]), axis=k), name="p")
    y = te.compute((n,), lambda i: p[i] * p[i] * v[0], name="y")
    function = ad.build(
        [a, v], [ad.jacobian(y, a, format="csr"), ad.jacobian(y, v, format="csc")], cache=False
    )
    random = np.random.default_rng(0)
    for shape in ((4, 3), (2, 5), (1, 1)):
        arrays = random.standard_normal(shape), random.standard_normal(shape[1])
        wanted = jax.jit(
            jax.jacobian(lambda a, v: (a @ jnp.exp(v)) ** 2 * v[0], argnums=(0, 1))
        )(*arrays)
        for ours, other in zip(function(*arrays), wanted, strict=True):
            np.testing.assert_allclose(ours.toarray(), other.reshape(ours.shape), rtol=1e-10)


def test_int64_shapes() -> None:
    six = tirx.IntImm("int64", 6)
    x = te.placeholder((six,), F64, name="x")
    matrix = ad.jacobian(symbolic_stencil(x), x, format="csr")
    point = np.linspace(-1.0, 1.0, 6)
    found = ad.build(x, matrix, cache=False)(point)
    np.testing.assert_allclose(found.toarray(), jacobian_by_jax(theirs, 0, point), atol=1e-14)


@pytest.mark.parametrize("symbolic", [False, True])
def test_paths_that_data_keep_inside(symbolic: bool) -> None:
    """Where the mask does not hold, z is not read: those points are no entries of the pattern."""
    size = te.var("n") if symbolic else 6
    x, mask = te.placeholder((size,), F64, name="x"), te.placeholder((size,), F64, name="mask")
    z = te.compute((3,), lambda i: te.sin(x[i]), name="z")
    body = te.compute(
        (size,), lambda i: te.if_then_else(mask[i] > 0.0, z[i] * x[i], te.const(0.0, F64)), name="y"
    )
    twice = te.compute((size,), lambda i: body[i] * 2.0, name="twice")
    matrix = ad.jacobian(twice, x, format="csr")
    point, inside = np.linspace(0.5, 1.0, 6), np.array([1.0, 0, 1, 0, 0, 0])
    found = ad.build([x, mask], matrix, cache=False)(point, inside)
    wanted = 2 * inside * (np.sin(point) + point * np.cos(point))
    np.testing.assert_allclose(found.toarray(), np.diag(wanted), atol=1e-14)


def test_a_size_of_the_body_alone() -> None:
    n = te.var("n")
    x, other = te.placeholder((4,), F64, name="x"), te.placeholder((n,), F64, name="other")
    y = te.compute((4,), lambda i: te.if_then_else(i < n, x[3 - i], 0.0 * other[0]), name="y")
    found = ad.build([x, other], ad.jacobian(y, x, format="csr"), cache=False)
    for size in (1, 3, 5):
        wanted = np.eye(4)[::-1] * (np.arange(4) < size)[:, None]
        np.testing.assert_array_equal(found(np.ones(4), np.ones(size)).toarray(), wanted)


def test_a_scalar_output() -> None:
    x, k = vector(4), te.reduce_axis((0, 2), "k")
    y = te.compute((), lambda: te.sum(x[2 * k] * x[2 * k], axis=k), name="y")
    found = ad.build(x, ad.jacobian(y, x, format="csr"), cache=False)(np.arange(4.0))
    assert found.shape == (1, 4)
    np.testing.assert_array_equal(found.toarray(), [[0.0, 0.0, 4.0, 0.0]])
    assert found.nnz == 2


def rosenbrock(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, int(x.shape[0]) - 1), "k")
    apart = x[k + 1] - x[k] * x[k]
    term = (1.0 - x[k]) * (1.0 - x[k]) + 100.0 * apart * apart
    return te.compute((), lambda: te.sum(term, axis=k), name="y")


def arrow(x: te.Tensor) -> te.Tensor:
    """Σ_k sin(x[k]·x[0]): every variable meets the first one."""
    k = te.reduce_axis((0, int(x.shape[0])), "k")
    return te.compute((), lambda: te.sum(te.sin(x[k] * x[0]), axis=k), name="y")


HESSIANS = {
    "rosenbrock": (
        rosenbrock, lambda x: jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2),
    ),
    "arrow": (arrow, lambda x: jnp.sum(jnp.sin(x * x[0]))),
}  # fmt: skip


@pytest.mark.parametrize("at", POINTS)
@pytest.mark.parametrize("name", SCALARS)
def test_hessians_at_zeros_and_elsewhere(name: str, at: str) -> None:
    """The second derivative of a product at its zeros, too: paths follow tensors of equal value."""
    ours, function = SCALARS[name]
    x, point = vector(4), np.array(POINTS[at])
    found = assembled(ad.hessian(ours(x), x, format="csc"), [(x, point)])
    np.testing.assert_allclose(found, hessian_by_jax(function, point), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", HESSIANS)
def test_hessians(name: str, format: str) -> None:
    make, function = HESSIANS[name]
    x, point = vector(7), np.linspace(-1.0, 1.5, 7)
    matrix = ad.hessian(make(x), x, format=format)
    wanted = np.asarray(hessian_by_jax(function, point))
    found = assembled(matrix, [(x, point)])
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-11)
    assert matrix.nnz == (wanted != 0).sum()


def test_a_symmetric_hessian_is_computed_on_one_side() -> None:
    x = vector(100)
    matrix = ad.hessian(rosenbrock(x), x, format="csr")
    assert "mirrored" in matrix.method
    whole = ad.jacobian(ad.gradient(rosenbrock(x), x)[0], x, format="csr")
    costs = [values_cost(m) for m in (matrix, whole)]
    assert costs[0] < costs[1] - 90
    found = assembled(matrix, [(x, np.linspace(0, 1, 100))])
    np.testing.assert_array_equal(found, found.T)


def values_cost(matrix: ad.SparseMatrix) -> int:
    """The iterations of the values alone, before they are put in order."""
    tensors = {hash(part.tensor.op): part.tensor for part in matrix._planned.parts}
    return sum(ad.estimate_cost([tensor]).iterations for tensor in tensors.values())


@pytest.mark.parametrize("size", [10, 1000])
def test_an_elementwise_map_costs_its_elements(size: int) -> None:
    x = vector(size)
    y = te.compute((size,), lambda i: te.exp(x[i]) * x[i], name="y")
    z = te.compute((size,), lambda i: te.sin(y[size - 1 - i]) + y[size - 1 - i], name="z")
    for output in (y, te.compute((size,), lambda i: te.sin(x[size - 1 - i]), name="turned")):
        matrix = ad.jacobian(output, x, format="csr")
        assert ad.estimate_cost([matrix.values]).iterations == size
        assert matrix.constants == []
    chain = ad.jacobian(z, x, format="csr")
    assert values_cost(chain) == 2 * size  # with the stage between


@pytest.mark.parametrize("width", [1, 3, 8])
def test_a_stencil_costs_its_width(width: int) -> None:
    x, k = vector(200), te.reduce_axis((0, width), "k")
    y = te.compute((200 - width,), lambda i: te.sum(te.exp(x[i + k]), axis=k), name="y")
    matrix = ad.jacobian(y, x, format="csr")
    assert matrix.nnz == (200 - width) * width
    assert ad.estimate_cost([matrix.values]).iterations == matrix.nnz


def test_a_stencil_with_borders_costs_its_entries() -> None:
    x = vector(500)
    matrix = ad.jacobian(tridiagonal(x), x, format="csr")
    assert ad.estimate_cost([matrix.values]).iterations == matrix.nnz


def mixing(x: te.Tensor, w: te.Tensor, name: str) -> te.Tensor:
    """Every eight elements are mixed with each other."""
    k = te.reduce_axis((0, 8), "k")
    return te.compute(
        x.shape, lambda b, i: te.sum(te.tanh(x[b, k]) * w[i, k], axis=k), name=name
    )


def test_where_paths_multiply_colours_are_taken() -> None:
    x, w = te.placeholder((6, 8), F64, name="x"), te.placeholder((8, 8), F64, name="w")
    y = mixing(mixing(mixing(x, w, "a"), w, "b"), w, "y")
    matrix = ad.jacobian(y, x, format="csr")
    assert "8 colours" in matrix.method
    assert matrix.nnz == 6 * 64
    random = np.random.default_rng(0)
    pairs = [(x, random.standard_normal((6, 8))), (w, random.standard_normal((8, 8)))]
    [dense] = evaluate_graph([ad.jacobian(y, x)], pairs)
    np.testing.assert_allclose(assembled(matrix, pairs), dense.reshape(48, 48), atol=1e-12)
    product = ad.estimate_cost(ad.jvp(y, x, te.placeholder((6, 8), F64, name="v"))).iterations
    assert values_cost(matrix) <= 9 * product


def test_long_chains_of_stencils_are_compressed_short_ones_are_not() -> None:
    """By iterations alone a value of four stages would cost as much as one of one stage."""

    def chain(length: int) -> ad.SparseMatrix:
        tensor = x = vector(297)
        for number in range(length):
            tensor = stencil(tensor, [-1, 0, 1], True, f"stage{number}")
        return ad.jacobian(tensor, x, format="csr")

    assert chain(1).method.startswith("directly")
    assert "9 colours" in chain(4).method


def test_the_mode_with_fewer_colours_is_taken() -> None:
    """Three dense layers to one element a block: a row each, and as many columns as inputs."""
    x, w = te.placeholder((6, 8), F64, name="x"), te.placeholder((8, 8), F64, name="w")
    k = te.reduce_axis((0, 8), "k")
    deep = mixing(mixing(x, w, "a"), w, "b")
    y = te.compute((6,), lambda b: te.sum(deep[b, k] * deep[b, k], axis=k), name="y")
    assert ad.jacobian(y, x, format="csr").method.startswith("reverse mode, 1 colours")
    few = te.placeholder((6,), F64, name="few")
    start = te.compute((6, 8), lambda b, i: te.sin(few[b] * (i + 1)), name="start")
    deep = mixing(mixing(start, w, "a"), w, "b")
    assert "forward mode, 1 colours" in ad.jacobian(deep, few, format="csr").method


X = te.placeholder((3,), "float32", name="x")
Y = te.compute((3,), lambda i: X[i] * X[i], name="y")
HALF = te.placeholder((3,), "float16", name="half")
LABEL = te.placeholder((3,), "int32", name="label")
HUGE = te.placeholder((2**15,), "float32", name="huge")
COPY = te.compute((2**15,), lambda i: HUGE[i] * HUGE[i], name="copy")
SYMBOLIC = te.placeholder((te.var("n"),), "float32", name="symbolic")



def symbolic_product(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, x.shape[0]), "k")
    return te.compute((), lambda: test_reducers.product(x[k], axis=k), name="y")


def doubled_pair() -> tuple[te.Tensor, te.Tensor]:
    n = te.var("n")
    x = te.placeholder((2 * n,), F64, name="x")
    return x, te.compute((n,), lambda i: x[2 * i] * x[2 * i + 1], name="y")


def doubled() -> tuple[te.Tensor, ad.SparseMatrix]:
    x, y = doubled_pair()
    return x, ad.jacobian(y, x, format="csr")


WRONG = {
    "a format": (lambda: ad.jacobian(Y, X, format="ell"), "one of dense, csr, csc, coo, got 'ell'"),
    "a hessian's format": (
        lambda: ad.hessian(rosenbrock(X), X, format="bsr"), "one of dense, csr, csc, coo",
    ),
    "a hessian of a vector": (
        lambda: ad.hessian(Y, X, format="csr"), "a Hessian needs a scalar",
    ),
    "symbolic, by colours": (
        lambda: ad.hessian(symbolic_product(SYMBOLIC), SYMBOLIC, format="csr"),
        r"symbolic shape \(n,\), and .* is a Scan stage: its Jacobian needs a colouring",
    ),
    "a size that no input has": (
        lambda: ad.build(*doubled()), "depends on the size n, which is not the extent of any input",
    ),
    "constants of a symbolic shape": (
        lambda: ad.jacobian(*reversed(doubled_pair()), format="csr").constants,
        r"its index arrays are those of \.at\(sizes\)",
    ),
    "no float output": (lambda: ad.jacobian(LABEL, X, format="csr"), "label has dtype int32"),
    "no float input": (lambda: ad.jacobian(Y, LABEL, format="csr"), "label has dtype int32"),
    "large and dense": (lambda: ad.jacobian(COPY, HUGE), r'jacobian\(\.\.\., format="csr"\)'),
    "float16": (
        lambda: ad.build(
            HALF,
            ad.jacobian(te.compute((3,), lambda i: HALF[i] * HALF[i]), HALF, format="csr"),
        ),
        "dtype float16, which scipy.sparse does not take",
    ),
    "export": (
        lambda: ad.build(X, ad.jacobian(Y, X, format="csr"), cache=False).export("a.so"),
        "a library cannot hold index arrays",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_bad_input(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(ad.AutodiffError, match=message):
        call()


def test_a_large_sparse_one_is_no_trouble() -> None:
    matrix = ad.jacobian(COPY, HUGE, format="csr")
    assert matrix.nnz == 2**15
    assert ad.estimate_cost([matrix.values]).iterations == 2**15


@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("rows", [1, 4])
def test_windows_of_one_row_have_an_extent(rows: int, columns: int) -> None:
    """The bounds of a window follow an axis of one element, whose index is a number."""
    x = te.placeholder((5, columns), F64, "x")
    moments = te.comm_reducer(
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
        lambda s, t: (tirx.const(0, s), tirx.const(0, t)),
    )

    def body(i, j):
        k = te.reduce_axis((te.max(te.min(i - 2, columns), 0), te.min(i + 3, columns)), "k")
        return moments((x[j, k], x[j, k] * x[j, k]), axis=k)

    first, second = te.compute((rows, 5), body, name="o")
    i, j = te.reduce_axis((0, rows), "i"), te.reduce_axis((0, 5), "j")
    loss = te.compute(
        (), lambda: te.sum(second[i, j] - first[i, j] * first[i, j], axis=[i, j]), name="loss"
    )
    given_values = [(x, np.random.default_rng(0).standard_normal((5, columns)))]
    found = assembled(ad.hessian(loss, x, format="csr"), given_values)
    [wanted] = evaluate_graph([ad.hessian(loss, x)], given_values)
    np.testing.assert_allclose(found, wanted.reshape(found.shape))
