"""Both modes on lists of tensors, with None for zeros and for tensors without derivatives."""

from __future__ import annotations

from collections.abc import Sequence

from ..expr.nodes import Tensor, is_float
from ..transforms.jvp import jvp
from ..transforms.vjp import vjp


def pulled(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], heads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The cotangents of the inputs, with None for inputs that are not floating point."""
    floats = [tensor for tensor in inputs if is_float(tensor)]
    if not floats:
        return [None] * len(inputs)
    found = iter(vjp(outputs, floats, heads))
    return [next(found) if is_float(tensor) else None for tensor in inputs]


def pushed(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], tangents: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The tangents of the outputs, with None for outputs that are not floating point."""
    pairs = [(x, t) for x, t in zip(inputs, tangents, strict=True) if t is not None]
    floats = [tensor for tensor in outputs if is_float(tensor)]
    if not pairs or not floats:
        return [None] * len(outputs)
    found = iter(jvp(floats, [x for x, _ in pairs], [t for _, t in pairs]))
    return [next(found) if is_float(tensor) else None for tensor in outputs]
