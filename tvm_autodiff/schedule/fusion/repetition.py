"""Marks what a step of a loop computes in the same way each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...expr.nodes import Tensor, tensor_key
from ...graph.graph import tensors_read_by
from ...graph.stage import is_placeholder, outputs_of
from ..kernel import Kernel, Repetition
from .groups import FusionGroup


def repeated(
    kernels: Sequence[Kernel | FusionGroup], times: int, varying: Sequence[Tensor]
) -> list[Kernel | FusionGroup]:
    """Kernels of a step that is repeated, over inputs of which some vary.

    Parameters
    ----------
    kernels
        The kernels in order of execution.
    times
        The number of steps.
    varying
        The placeholders that vary.

    Examples
    --------
    >>> from tvm import te
    >>> h, w = te.placeholder((4,), name="h"), te.placeholder((4,), name="w")
    >>> new = te.compute((4,), lambda i: h[i] * w[i], name="new")
    >>> [kernel] = repeated([Kernel(new.op)], 100, [h])
    >>> [tensor_key(tensor) in kernel.repetition.fixed for tensor in (h, w)]
    [False, True]
    """
    if times <= 1:
        return list(kernels)
    moving = set(map(tensor_key, varying))
    fixed: set[tuple[int, int]] = set()
    for op in (op for kernel in kernels for op in kernel.ops):
        reads = tensors_read_by(op)
        fixed |= {tensor_key(t) for t in reads if is_placeholder(t.op)} - moving
        own = {tensor_key(tensor) for tensor in outputs_of(op)}
        if all(tensor_key(tensor) in fixed for tensor in reads):
            fixed |= own
        else:
            moving |= own
    repetition = Repetition(times, frozenset(fixed))

    def known(kernel: Kernel) -> Kernel:
        return replace(kernel, repetition=repetition)

    return [
        replace(one, parts=tuple(map(known, one.parts)))
        if isinstance(one, FusionGroup)
        else known(one)
        for one in kernels
    ]
