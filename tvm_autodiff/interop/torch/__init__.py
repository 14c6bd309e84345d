"""te functions as operators of PyTorch, with derivatives of every order.

Importing this package loads PyTorch; no other part of the library does.
"""

from __future__ import annotations

from ...errors import MissingFrameworkError

try:
    import torch
except ImportError as error:
    raise MissingFrameworkError(
        "tvm_autodiff.interop.torch needs PyTorch, which is not installed here: "
        "pip install 'tvm_autodiff[torch]'"
    ) from error

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):
    raise MissingFrameworkError(
        f"tvm_autodiff.interop.torch needs PyTorch 2.13, and this is {torch.__version__}: "
        "pip install 'tvm_autodiff[torch]'"
    )

from .function import TorchFunction, function

__all__ = ["TorchFunction", "function"]
