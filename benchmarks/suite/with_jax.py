"""Runs a case in JAX, compiled as one function; a call waits for its answers.

The mode "jit" uses the dtypes of the case. "reference" uses float64, as the reference for all
libraries.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .case import RATE, Array, Case

Forward = Callable[..., Any]


def prepare(case: Case, arrays: Sequence[Array], threads: int, mode: str) -> Callable[[], Any]:
    """A call without arguments that returns the answers."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    wide = any(array.dtype == np.float64 for array in arrays)
    jax.config.update("jax_enable_x64", mode == "reference" or wide)
    if mode == "reference":
        arrays = [
            array.astype("float64") if np.issubdtype(array.dtype, np.floating) else array
            for array in arrays
        ]
    forward = functools.partial(case.jax, jax)
    if case.derivative == "per-example":
        derivative = jax.jit(jax.vmap(jax.grad(forward, argnums=case.places), in_axes=case.axes))
    else:
        derivative = jax.jit(_DERIVATIVES[case.derivative](jax, forward, case.places))
    values = [jax.device_put(array) for array in arrays]
    return lambda: jax.block_until_ready(derivative(*values))


def _gradient(jax: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    both = jax.value_and_grad(forward, argnums=places)

    def derivative(*inputs: Any) -> Any:
        value, gradients = both(*inputs)
        return (value, *gradients)

    return derivative


def _of_chosen(function: Forward, places: tuple[int, ...], inputs: Sequence[Any]) -> Forward:
    """The function of the chosen inputs, with the others fixed."""

    def chosen(*values: Any) -> Any:
        full = list(inputs)
        for place, value in zip(places, values, strict=True):
            full[place] = value
        return function(*full)

    return chosen


def _pulled_back(jax: Any, forward: Forward, places: tuple[int, ...], inputs: Any) -> Any:
    """The output, and the function from its cotangent to those of the chosen inputs."""
    chosen = _of_chosen(forward, places, inputs)
    return jax.vjp(chosen, *(inputs[place] for place in places))


def _pullback(jax: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    def derivative(*arrays: Any) -> Any:
        *inputs, head = arrays
        return _pulled_back(jax, forward, places, inputs)[1](head)

    return derivative


def _both(jax: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    def derivative(*arrays: Any) -> Any:
        *inputs, head = arrays
        value, pull = _pulled_back(jax, forward, places, inputs)
        return (value, *pull(head))

    return derivative


def _step(jax: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    gradient = _gradient(jax, forward, places)

    def derivative(*inputs: Any) -> Any:
        value, *gradients = gradient(*inputs)
        updated = (
            inputs[place] - RATE * slope for place, slope in zip(places, gradients, strict=True)
        )
        return (value, *updated)

    return derivative


def _jacobian(jax: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    # the pullback of all rows at once, mapped over outputs, is miscompiled by XLA of JAX 0.10.2
    def row(*inputs: Any) -> Any:
        return forward(*(value[None] for value in inputs))[0]

    return jax.vmap(jax.jacrev(row, argnums=places), out_axes=1)


def _hessian(jax: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    hessian = jax.hessian(forward, argnums=places[0])
    return lambda *inputs: (hessian(*inputs),)


def _hvp(jax: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    gradient = jax.grad(forward, argnums=places)

    def derivative(*arrays: Any) -> Any:
        count = len(arrays) - len(places)
        inputs, directions = arrays[:count], arrays[count:]
        at = [inputs[place] for place in places]
        return jax.jvp(_of_chosen(gradient, places, inputs), at, list(directions))[1]

    return derivative


def _csr(jax: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    return lambda *inputs: (forward(*inputs),)


_DERIVATIVES = {
    "gradient": _gradient,
    "pullback": _pullback,
    "both": _both,
    "step": _step,
    "jacobian": _jacobian,
    "hessian": _hessian,
    "hvp": _hvp,
    "csr": _csr,
}


def answers(results: Any) -> list[Array]:
    """The results of a call as numpy arrays."""
    return [np.asarray(result) for result in results]


def warm() -> None:
    """Load the library."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.block_until_ready(jax.numpy.zeros(()))
