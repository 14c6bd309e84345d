"""The evals in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from .library import Library, PeerOf


def functions_of_jax() -> Library:
    """The functions of JAX."""

    def scattered(shape: tuple[int, ...], places: tuple[Any, ...], values: Any) -> Any:
        return jax.numpy.zeros(shape, values.dtype).at[places].set(values)

    def powers(values: Any, count: int) -> Any:
        # products of squares: XLA makes them where they are read, and a cumulative product not
        result, square = 1.0, values
        for bit in range(count.bit_length()):
            chosen = (np.arange(count) >> bit) % 2 == 1
            result = result * jax.numpy.where(chosen, square[:, None], 1.0)
            square = square * square
        return result

    return Library(
        numpy=jax.numpy,
        grad=lambda function, places: jax.grad(function, argnums=places),
        jacrev=jax.jacrev,
        jacfwd=jax.jacfwd,
        jvp=jax.jvp,
        vmap=jax.vmap,
        constant=jax.device_put,
        log_sum_exp=lambda values, axis: jax.nn.logsumexp(values, axis),
        largest=jax.numpy.max,
        nearest=lambda values: jax.numpy.argmin(values, 1),
        scattered=scattered,
        powers=powers,
        scan=jax.lax.scan,
        sigmoid=jax.nn.sigmoid,
    )


def compiled_by_jax(
    peer_of: PeerOf, function: str, data: Mapping[str, Any]
) -> Callable[[], list[np.ndarray]]:
    """A compiled function of an eval, whose calls wait for results."""
    jax.config.update("jax_enable_x64", True)
    peer = peer_of(functions_of_jax(), data)
    compiled = jax.jit(peer.functions[function])
    return lambda: jax.tree.leaves(jax.block_until_ready(compiled(*peer.arguments)))
