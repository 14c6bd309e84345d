"""Functions of te tensors in JAX, under `jit`, `grad`, `vmap` and all other transforms."""

from __future__ import annotations

from ...errors import MissingFrameworkError

_INSTALL = "pip install 'tvm_autodiff[jax]' (on Python 3.11 or newer)"

try:
    import jax
except ImportError as error:
    raise MissingFrameworkError(
        f"tvm_autodiff.interop.jax needs JAX, which is not installed here: {_INSTALL}"
    ) from error

if jax.__version_info__ < (0, 10):
    raise MissingFrameworkError(
        f"tvm_autodiff.interop.jax needs JAX 0.10, this is {jax.__version__}: {_INSTALL}"
    )

from .function import function  # noqa: E402

__all__ = ["function"]

del jax
