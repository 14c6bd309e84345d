"""Results without values, with which PyTorch traces instead of running kernels.

Sizes may be PyTorch symbols. Each comparison of a symbol becomes a condition of the compiled graph,
so there are no more of them than kernels need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...errors import CallError
from ...partition.programs import Program
from ...runtime.calls.signature import TensorSpec, dim_value, linear_in, symbols_of
from ...runtime.calls.tensor_signature import signature_of


def shapes_of(program: Program) -> Callable[..., Any]:
    """A function from tensors without values to results without values."""
    signature = signature_of(program.inputs, program.outputs, False)

    def shapes(*tensors: torch.Tensor) -> Any:
        sizes: dict[str, Any] = {}
        for tensor, spec in zip(tensors, signature.inputs, strict=True):
            _learn(tensor, spec, sizes)
        device = next((t.device for t in tensors if t.dim()), None)
        results = [
            torch.empty(
                [dim_value(dim, sizes) for dim in spec.shape],
                dtype=getattr(torch, spec.dtype),
                device=device or (tensors[0].device if tensors else None),
            )
            for spec in signature.outputs
        ]
        return results[0] if len(results) == 1 else tuple(results)

    return shapes


def _learn(tensor: torch.Tensor, spec: TensorSpec, sizes: dict[str, Any]) -> None:
    """Add the sizes that a tensor defines.

    Raises
    ------
    CallError
        If it does not fit.
    """
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype != spec.dtype or tensor.dim() != len(spec.shape):
        raise CallError(f"expected {spec}, got {dtype} of shape {tuple(tensor.shape)}")
    for dim, size in zip(spec.shape, tensor.shape, strict=True):
        if isinstance(dim, list):
            unknown = {name for name in symbols_of(dim) if name not in sizes}
            if len(unknown) == 1:
                [name] = unknown
                form = linear_in(name, dim, sizes)
                if form is not None and form[0] != 0:
                    sizes[name] = (size - form[1]) // form[0]
            continue
        if isinstance(dim, str) and dim not in sizes:
            sizes[dim] = size
        elif size != dim_value(dim, sizes):
            raise CallError(f"expected {spec}, got shape {tuple(tensor.shape)}")
