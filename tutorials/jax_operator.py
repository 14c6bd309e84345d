"""A custom operator in JAX.

The operator is the energy of a chain of springs, written as tensor expressions. The script uses it
under `jit`, `grad`, `vmap` and `hessian`, and finds the equilibrium by gradient descent.
Run it: ``python tutorials/jax_operator.py`` (needs JAX).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from tvm import te, topi

from tvm_autodiff.interop.jax import function

POINTS = 8


@function
def energy(places: te.Tensor, lengths: te.Tensor) -> te.Tensor:
    """Half the sum of the squared extensions of springs between neighbours."""
    extension = te.compute(
        (POINTS - 1,), lambda i: places[i + 1] - places[i] - lengths[i], name="extension"
    )
    return topi.sum(
        te.compute((POINTS - 1,), lambda i: extension[i] * extension[i] * 0.5, name="half")
    )


def main() -> None:
    """Derivatives of the operator, then a descent in one compiled loop."""
    lengths = jnp.linspace(0.5, 1.5, POINTS - 1)
    places = jnp.arange(POINTS, dtype=jnp.float32)
    print("gradient:", jax.jit(jax.grad(energy))(places, lengths))
    several = jnp.stack([places, 2 * places])
    print("gradients of two chains:", jax.vmap(jax.grad(energy), (0, None))(several, lengths).shape)
    print("the middle of the Hessian:\n", jax.hessian(energy)(places, lengths)[2:5, 2:5])

    @jax.jit
    def descend(start: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(
            0, 400, lambda _, x: x - 0.25 * jax.grad(energy)(x, lengths), start
        )

    rest = descend(places)
    print(f"energy before {energy(places, lengths):.4f}, after {energy(rest, lengths):.1e}")
    print(f"largest error of a length: {jnp.abs(jnp.diff(rest) - lengths).max():.1e}")


if __name__ == "__main__":
    main()
