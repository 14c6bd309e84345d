"""Functions of te tensors under every transform of JAX, alone and composed, beside JAX's own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tvm import te, topi

pytest.importorskip("tvm_autodiff.interop.jax", exc_type=ImportError)

from tests.processes import without_torch
from tvm_autodiff import show
from tvm_autodiff.errors import InvalidArgumentError
from tvm_autodiff.interop.jax import function

RNG = np.random.default_rng(0)


def rand(*shape: int) -> np.ndarray:
    return RNG.uniform(0.2, 1.2, shape)


def pair(ours: Callable[..., Any], theirs: Callable[..., Any]) -> tuple[Any, Any]:
    return function(ours), theirs


SCALAR = pair(lambda x, y: topi.sum(topi.sin(x * y) * x), lambda x, y: jnp.sum(jnp.sin(x * y) * x))
VECTOR = pair(
    lambda x, y: {"e": topi.exp(x) * y, "s": topi.sum(x * y)},
    lambda x, y: {"e": jnp.exp(x) * y, "s": jnp.sum(x * y)},
)
LAYER = pair(
    lambda w, x: topi.sum(topi.tanh(topi.matmul(x, w["a"])) * w["b"]),
    lambda w, x: jnp.sum(jnp.tanh(x @ w["a"]) * w["b"]),
)
CUBE = pair(lambda x: x * x * x, lambda x: x * x * x)

x3, y3, xs, ys = rand(3), rand(3), rand(4, 3), rand(4, 3)
w = {"a": rand(3, 2), "b": rand(2)}


def carried(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function as the step of a loop."""

    def loop(x: Any, ys: Any) -> Any:
        def step(carry: Any, y: Any) -> Any:
            return carry + 0.1 * f(carry, y)["e"], f(carry, y)["s"]

        return jax.lax.scan(step, x, ys)

    return loop


def total(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: sum(jnp.sum(leaf) for leaf in jax.tree.leaves(f(*args)))


#: name → (the functions, a transform, arguments)
CASES: dict[str, tuple[tuple[Any, Any], Callable[[Any], Any], tuple[Any, ...]]] = {
    "call": (VECTOR, lambda f: f, (x3, y3)),
    "jit": (VECTOR, jax.jit, (x3, y3)),
    "grad": (SCALAR, jax.grad, (x3, y3)),
    "grad of both": (SCALAR, lambda f: jax.jit(jax.grad(f, (0, 1))), (x3, y3)),
    "value and grad": (LAYER, jax.value_and_grad, (w, xs)),
    "third derivative": (CUBE, lambda f: jax.grad(jax.grad(jax.grad(f))), (1.5,)),
    "hessian": (SCALAR, lambda f: jax.hessian(f, (0, 1)), (x3, y3)),
    "hessian of containers": (LAYER, lambda f: jax.jit(jax.hessian(f)), (w, xs)),
    "reverse over reverse": (LAYER, lambda f: jax.jacrev(jax.jacrev(f)), (w, xs)),
    "reverse over forward": (SCALAR, lambda f: jax.jacrev(jax.jacfwd(f)), (x3, y3)),
    "forward over forward": (SCALAR, lambda f: jax.jacfwd(jax.jacfwd(f)), (x3, y3)),
    "jacobians": (VECTOR, lambda f: jax.jacrev(f, (0, 1)), (x3, y3)),
    "jacfwd": (VECTOR, lambda f: jax.jacfwd(f, 1), (x3, y3)),
    "jvp": (VECTOR, lambda f: lambda x, y: jax.jvp(f, (x, y), (y, x)), (x3, y3)),
    "jvp of one": (
        VECTOR,
        lambda f: lambda x, y: jax.jvp(lambda u: f(u, y), (x,), (y,)),
        (x3, y3),
    ),
    "vjp": (
        VECTOR,
        lambda f: lambda x, y: jax.vjp(f, x, y)[1]({"e": x, "s": jnp.asarray(2.0)}),
        (x3, y3),
    ),
    "linearize": (
        VECTOR,
        lambda f: lambda x, y: jax.linearize(f, x, y)[1](y, x),
        (x3, y3),
    ),
    "linear transpose": (
        VECTOR,
        lambda f: lambda x, y: jax.linear_transpose(lambda u: f(x, u)["e"], y)(x),
        (x3, y3),
    ),
    "vmap": (VECTOR, jax.vmap, (xs, ys)),
    "vmap of one": (VECTOR, lambda f: jax.jit(jax.vmap(f, (0, None))), (xs, y3)),
    "vmap of columns": (SCALAR, lambda f: jax.vmap(f, (1, 1)), (xs, ys)),
    "vmap of vmap": (
        SCALAR,
        lambda f: jax.vmap(jax.vmap(f, (None, 0)), (0, None)),
        (xs, ys),
    ),
    "per-example gradients": (LAYER, lambda f: jax.vmap(jax.grad(f), (None, 0)), (w, xs[:, None])),
    "grad of vmap": (SCALAR, lambda f: jax.grad(total(jax.vmap(f)), (0, 1)), (xs, ys)),
    "vmap of hessian": (SCALAR, lambda f: jax.vmap(jax.hessian(f)), (xs, ys)),
    "scan": (VECTOR, carried, (x3, ys)),
    "grad of scan": (VECTOR, lambda f: jax.grad(total(carried(f)), (0, 1)), (x3, ys)),
    "hessian of scan": (VECTOR, lambda f: jax.jit(jax.hessian(total(carried(f)))), (x3, ys[:2])),
    "vmap of scan": (VECTOR, lambda f: jax.vmap(carried(f), (0, None)), (xs, ys)),
    "remat": (VECTOR, lambda f: jax.grad(total(jax.checkpoint(f))), (x3, y3)),
    "cond": (
        CUBE,
        lambda f: jax.grad(lambda x: jax.lax.cond(x > 1, f, lambda x: 2 * x, x)),
        (1.5,),
    ),
    "between operations": (
        CUBE,
        lambda f: jax.jit(jax.grad(lambda x: jnp.sum(jnp.sin(f(jnp.cos(x))) * x))),
        (x3,),
    ),
}


def close(found: Any, wanted: Any) -> None:
    mine, form = jax.tree.flatten(found)
    theirs, other = jax.tree.flatten(wanted)
    assert form == other
    for one, two in zip(mine, theirs, strict=True):
        assert (one.shape, one.dtype) == (two.shape, two.dtype)
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)


@pytest.fixture(autouse=True)
def double() -> Any:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", CASES)
def test_as_jax(name: str) -> None:
    (ours, theirs), transform, args = CASES[name]
    close(transform(ours)(*args), jax.jit(transform(theirs))(*args))  # one compilation


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32", "uint8", "bool"])
def test_dtypes(dtype: str) -> None:
    x = jnp.asarray([1, 0, 1], dtype)
    flipped = function(lambda x: te.compute((3,), lambda i: x[2 - i], name="flipped"))
    found = jax.jit(flipped)(x)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, x[::-1])


def test_integers_have_no_derivative() -> None:
    def picked(x: te.Tensor, i: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
        return te.compute((2,), lambda n: x[i[n]] * x[i[n]], name="picked"), i + 1

    ours, i = function(picked), jnp.asarray([2, 0], "int32")

    def loss(x: Any) -> Any:
        values, places = ours(x, i)
        return values.sum() + places.sum()

    np.testing.assert_allclose(jax.grad(loss)(x3), [2 * x3[0], 0, 2 * x3[2]])
    both = jax.grad(lambda x, i: ours(x, i)[0].sum(), (0, 1), allow_int=True)(x3, i)
    assert both[1].dtype == jax.dtypes.float0
    _, (tangent, zero) = jax.jvp(lambda x: ours(x, i), (x3,), (x3,))
    np.testing.assert_allclose(tangent, 2 * x3[i] * x3[i])
    assert zero.dtype == jax.dtypes.float0


def test_numbers_take_the_dtype_of_arrays() -> None:
    scaled = function(lambda x, s: x * s)
    assert scaled(jnp.ones(2, "float32"), 0.1).dtype == "float32"
    np.testing.assert_allclose(jax.grad(lambda s: scaled(x3, s).sum())(0.5), x3.sum())


def test_one_trace_for_each_signature() -> None:
    traced: list[Any] = []

    def noted(x: te.Tensor) -> te.Tensor:
        traced.append(x)
        return x * 2.0

    ours = function(noted)
    for shape in ((2,), (3,), (2,)):
        jax.grad(lambda x: jax.jit(ours)(x).sum())(jnp.ones(shape))
    assert len(traced) == 2


def test_residuals_are_kept() -> None:
    """The backward program reads what the forward program computed, and its hyperbolic tangent."""
    equations = jax.make_jaxpr(jax.grad(LAYER[0]))(w, xs).eqns
    programs = [e.params["program"] for e in equations if "program" in e.params]
    assert [len(program.results) for program in programs] == [2, 2]
    texts = [show(program.tensors[1]) for program in programs]
    assert ["tanh" in text for text in texts] == [True, False]


BAD = {
    "no function": (lambda: function(3), InvalidArgumentError, "got int"),
    "no tensor": (
        lambda: function(lambda x: 3.0)(x3),
        InvalidArgumentError,
        "returned float",
    ),
    "nothing": (lambda: function(lambda x: None)(x3), InvalidArgumentError, "no te.Tensor"),
    "text": (lambda: function(lambda x, y: x)(x3, "a"), InvalidArgumentError, "called with str"),
    "an integer beyond JAX's": (
        lambda: function(lambda x, n: x)(x3, 2**63),
        InvalidArgumentError,
        "called with an integer beyond int",
    ),
    "complex numbers": (
        lambda: function(lambda x: x)(x3.astype("complex64")),
        InvalidArgumentError,
        "has dtype complex64, which no kernel",
    ),
    "random keys": (
        lambda: function(lambda x: x)(jax.random.key(0)),
        InvalidArgumentError,
        "has dtype key<fry>, which no kernel",
    ),
    "objects": (
        lambda: function(lambda x: x)(np.array([None])),
        InvalidArgumentError,
        "has dtype object, which no kernel",
    ),
    "another library's array": (
        lambda: function(lambda x: x)(te.placeholder((3,), name="x")),
        InvalidArgumentError,
        "called with Tensor",
    ),
    "shapes": (
        lambda: function(lambda x, y: x + y)(x3, xs[:2, :2]),
        InvalidArgumentError,
        "(?s)test_transforms.py.*Incompatible",
    ),
    "negative": (
        lambda: function(lambda x: te.compute((x.shape[0] - 4,), lambda i: x[i]))(x3),
        InvalidArgumentError,
        "cannot be negative",
    ),
    "symbolic": (
        lambda: jax.export.export(jax.jit(CUBE[0]))(
            jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), "float64")
        ),
        InvalidArgumentError,
        "jax.export is not supported",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name: str) -> None:
    call, kind, message = BAD[name]
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.slow
def test_two_devices() -> None:
    """Data parallel over two CPU devices: the gradients of the whole batch."""
    script = """
        import jax, jax.numpy as jnp, numpy as np
        from jax.sharding import Mesh, PartitionSpec as P
        from tvm import topi
        from tvm_autodiff.interop.jax import function

        ours = function(lambda w, x: topi.sum(topi.tanh(topi.matmul(x, w))))
        w = np.full((3, 2), 0.1, "float32")
        x = np.linspace(-1, 1, 24, dtype="float32").reshape(8, 3)
        mesh = Mesh(np.array(jax.devices()), ("data",))

        def step(w, x):
            value, gradient = jax.value_and_grad(ours)(w, x)
            return jax.lax.psum((value, gradient), "data")

        want = jax.value_and_grad(lambda w: jnp.tanh(x @ w).sum())(w)
        # where variance is tracked, replicated inputs have summed gradients already
        for check, factor in ((False, 1), (True, 2)):
            specs = {"in_specs": (P(), P("data")), "out_specs": P(), "check_vma": check}
            value, gradient = jax.jit(jax.shard_map(step, mesh=mesh, **specs))(w, x)
            np.testing.assert_allclose(value, want[0], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(gradient, want[1] * factor, rtol=1e-5, atol=1e-6)
        print(len(jax.devices()))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=without_torch(XLA_FLAGS="--xla_force_host_platform_device_count=2"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "2\n"
