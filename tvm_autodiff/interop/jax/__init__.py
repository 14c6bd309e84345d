"""Functions of te tensors inside of JAX: under `jit`, `grad`, `vmap` and all other transforms."""

from __future__ import annotations

from ...errors import MissingFrameworkError

try:
    import jax
    import jax_tvm_ffi
except ImportError as error:
    raise MissingFrameworkError(
        f"tvm_autodiff.interop.jax needs JAX and jax-tvm-ffi, and {error.name} is not installed "
        "here: pip install 'tvm_autodiff[jax]' (on Python 3.11 or newer)"
    ) from error

from .function import function

__all__ = ["function"]

del jax, jax_tvm_ffi
