"""Every transform of functions, alone and composed, beside JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tvm import te, topi

import tvm_autodiff.functions as ad
from tvm_autodiff.containers import flattened

RNG = np.random.default_rng(0)


def rand(*shape: int) -> np.ndarray:
    return RNG.uniform(0.2, 1.2, shape)


class Ops(NamedTuple):
    """The operations that the functions below are written in."""

    sum: Callable[..., Any]
    exp: Callable[..., Any]
    sin: Callable[..., Any]
    matmul: Callable[..., Any]


TE = Ops(topi.sum, topi.exp, topi.sin, topi.matmul)
JAX = Ops(jnp.sum, jnp.exp, jnp.sin, jnp.matmul)


def cubes(o: Ops):
    return lambda x: o.sum(x * x * x)


def mixed(o: Ops):
    return lambda x, y: o.sum(o.sin(x * y) * x)


def pairs(o: Ops):
    return lambda x, y: (o.exp(x) * y, {"s": o.sum(x * y)})


def layer(o: Ops):
    return lambda w, x: o.sum(o.sin(o.matmul(x, w["a"])) * w["b"])


def shares_with_outer(o: Ops, t: Any):
    # the inner derivative takes the outer x for a constant
    return lambda x: o.sum(t.grad(lambda y: o.sum(x * y * y))(x))


def aux(o: Ops):
    return lambda x: (o.sum(x * x), {"double": x + x, "same": x})


def equal_arguments(o: Ops, t: Any):
    return lambda x: o.sum(t.grad(lambda a, b: o.sum(a * b * b), 1)(x, x))


x3, y3, xs, m32 = rand(3), rand(3), rand(4, 3), rand(3, 2)
w = {"a": rand(3, 2), "b": rand(2)}
x13 = rand(5, 1, 3)

#: name → (function of operations and transforms, arguments)
CASES: dict[str, tuple[Callable[[Ops, Any], Callable[..., Any]], tuple[Any, ...]]] = {
    "grad": (lambda o, t: t.grad(cubes(o)), (x3,)),
    "grad of the second": (lambda o, t: t.grad(mixed(o), 1), (x3, y3)),
    "grad of both": (lambda o, t: t.grad(mixed(o), (0, 1)), (x3, y3)),
    "grad of a negative number": (lambda o, t: t.grad(mixed(o), -1), (x3, y3)),
    "grad of containers": (lambda o, t: t.grad(layer(o)), (w, xs)),
    "value and grad": (lambda o, t: t.value_and_grad(layer(o), 1), (w, xs)),
    "aux": (lambda o, t: t.grad(aux(o), has_aux=True), (x3,)),
    "value, aux": (lambda o, t: t.value_and_grad(aux(o), has_aux=True), (x3,)),
    "grad of grad": (lambda o, t: t.grad(lambda x: o.sum(t.grad(cubes(o))(x))), (x3,)),
    "third": (
        lambda o, t: t.grad(
            lambda x: o.sum(t.grad(lambda y: o.sum(o.sin(t.grad(cubes(o))(y))))(x))
        ),
        (x3,),
    ),
    "closure": (lambda o, t: t.grad(shares_with_outer(o, t)), (x3,)),
    "equal arguments": (lambda o, t: t.grad(equal_arguments(o, t)), (x3,)),
    "jacfwd": (lambda o, t: t.jacfwd(lambda x: o.sin(x) * x), (x3,)),
    "jacrev of containers": (lambda o, t: t.jacrev(pairs(o), (0, 1)), (x3, y3)),
    "jacfwd of containers": (lambda o, t: t.jacfwd(pairs(o), 1), (x3, y3)),
    "hessian": (lambda o, t: t.hessian(cubes(o)), (x3,)),
    "hessian of both": (lambda o, t: t.hessian(mixed(o), (0, 1)), (x3, y3)),
    "hessian of containers": (lambda o, t: t.hessian(layer(o)), (w, xs)),
    "jacfwd of grad": (lambda o, t: t.jacfwd(t.grad(layer(o))), (w, xs)),
    "vmap": (lambda o, t: t.vmap(cubes(o)), (xs,)),
    "vmap of one of two": (lambda o, t: t.vmap(mixed(o), in_axes=(0, None)), (xs, y3)),
    "vmap of a column": (lambda o, t: t.vmap(cubes(o), in_axes=1), (m32,)),
    "vmap to the last axis": (lambda o, t: t.vmap(lambda x: x * x, out_axes=-1), (xs,)),
    "vmap of containers": (
        lambda o, t: t.vmap(pairs(o), in_axes=(0, None), out_axes=(1, 0)),
        (xs, y3),
    ),
    "vmap of what is constant": (lambda o, t: t.vmap(lambda x, y: y * 2.0, (0, None)), (xs, y3)),
    "vmap of identity": (lambda o, t: t.vmap(lambda x: x), (xs,)),
    "nested vmap": (
        lambda o, t: t.vmap(t.vmap(mixed(o), (None, 0)), (0, None)),
        (xs, rand(2, 3)),
    ),
    "per-example gradients": (lambda o, t: t.vmap(t.grad(layer(o)), (None, 0)), (w, x13)),
    "grad of vmap": (lambda o, t: t.grad(lambda x: o.sum(t.vmap(cubes(o))(x))), (xs,)),
    "hessians of a batch": (lambda o, t: t.vmap(t.hessian(cubes(o))), (xs,)),
    "batched through closure": (
        lambda o, t: lambda a, b: t.vmap(lambda x: o.sum(x * b))(a),
        (xs, y3),
    ),
    "jit inside": (lambda o, t: t.grad(t.jit(cubes(o))), (x3,)),
    "jit outside": (lambda o, t: t.jit(t.vmap(t.grad(cubes(o)))), (xs,)),
    "jvp inside": (
        lambda o, t: lambda x, v: t.jvp(pairs(o), (x, x), (v, v)),
        (x3, y3),
    ),
    "forward over forward": (
        lambda o, t: lambda x, v: t.jvp(
            lambda u: t.jvp(lambda z: o.sin(z) * z, (u,), (v,))[1], (x,), (v,)
        ),
        (x3, y3),
    ),
    "grad of a jvp": (
        lambda o, t: t.grad(lambda x: o.sum(t.jvp(cubes(o), (x,), (x * x,))[1])),
        (x3,),
    ),
    "vjp inside": (
        lambda o, t: lambda x, y: t.vjp(pairs(o), x, y)[1]((x, {"s": o.sum(y)})),
        (x3, y3),
    ),
    "grad of a vjp": (
        lambda o, t: t.grad(lambda x: o.sum(t.vjp(lambda z: o.exp(z), x)[1](x)[0])),
        (x3,),
    ),
    "linearize inside": (
        lambda o, t: lambda x, v: t.linearize(lambda z: o.sin(z), x)[1](v),
        (x3, y3),
    ),
    "vmap of a vjp": (
        lambda o, t: t.vmap(lambda x, v: t.vjp(lambda z: o.exp(z) * z, x)[1](v)[0]),
        (xs, rand(4, 3)),
    ),
}


def close(found: Any, wanted: Any) -> None:
    mine, form = jax.tree.flatten(found)
    theirs, other = jax.tree.flatten(wanted)
    assert form == other
    for one, two in zip(mine, theirs, strict=True):
        assert isinstance(one, np.ndarray)
        assert one.shape == two.shape
        assert one.dtype == two.dtype
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)


@pytest.fixture(autouse=True)
def double() -> Any:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", CASES)
def test_as_in_jax(name: str) -> None:
    make, args = CASES[name]
    ours = make(TE, ad)
    call = ours if isinstance(ours, ad.ArrayFunction) else ad.jit(ours)
    close(call(*args), jax.jit(make(JAX, jax))(*args))  # one compilation


def test_jvp_of_arrays() -> None:
    primals, tangents = (w, xs), ({"a": rand(3, 2), "b": rand(2)}, rand(4, 3))
    close(ad.jvp(layer(TE), primals, tangents), jax.jvp(layer(JAX), primals, tangents))


def test_missing_tangents_are_zeros() -> None:
    part = {"a": None, "b": w["b"]}
    full = {"a": np.zeros((3, 2)), "b": w["b"]}, np.zeros((4, 3))
    close(ad.jvp(layer(TE), (w, xs), (part, None)), jax.jvp(layer(JAX), (w, xs), full))


def test_hvp_of_arrays() -> None:
    v = rand(3), rand(3)
    wanted = jax.jvp(jax.grad(mixed(JAX), (0, 1)), (x3, y3), v)[1]
    close(ad.hvp(mixed(TE), (x3, y3), v), wanted)


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_vjp_of_arrays(again: bool) -> None:
    heads = (rand(3), {"s": rand()[()]})
    result, pullback = ad.vjp(pairs(TE), x3, y3)
    wanted, theirs = jax.vjp(pairs(JAX), x3, y3)
    close(result, wanted)
    close(pullback(heads), theirs(heads))
    if again:
        close(pullback((heads[0], None)), theirs((heads[0], {"s": np.zeros(())})))


@pytest.mark.parametrize("function", [ad.vjp, ad.linearize])
@pytest.mark.parametrize("changed", ["argument", "result"])
def test_arrays_that_change_in_place_are_kept_as_they_were(function: Any, changed: str) -> None:
    """The derivative of a square reads the argument, that of exp the result."""
    body = {"argument": lambda x: x * x, "result": topi.exp}[changed]
    given = np.float32([0.5, 1.0, 2.0])
    wanted = {"argument": 2.0 * given, "result": np.exp(given)}[changed]
    result, later = function(body, given)
    {"argument": given, "result": result}[changed][:] = 0.0
    [found] = flattened(later(np.ones(3, "float32")))[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_linearize_of_arrays() -> None:
    result, linear = ad.linearize(pairs(TE), x3, y3)
    wanted, theirs = jax.linearize(pairs(JAX), x3, y3)
    close(result, wanted)
    for v in ((rand(3), rand(3)), (x3, y3)):
        close(linear(*v), theirs(*v))


def test_integers_have_no_derivative() -> None:
    def picked(x: te.Tensor, i: te.Tensor) -> te.Tensor:
        return te.compute((2,), lambda n: x[i[n]] * x[i[n]], name="picked")

    i = np.int32([2, 0])
    result, pullback = ad.vjp(picked, x3, i)
    np.testing.assert_allclose(result, x3[i] ** 2)
    dx, di = pullback(np.ones(2))
    np.testing.assert_allclose(dx, [2 * x3[0], 0, 2 * x3[2]])
    assert di is None
    _, tangent = ad.jvp(picked, (x3, i), (np.ones(3), None))
    np.testing.assert_allclose(tangent, 2 * x3[i])
