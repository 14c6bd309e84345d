"""Rewrites every loop of a program, those inside of others first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ....expr.nodes import Tensor, tensor_key
from ....graph.graph import retarget, topological
from ....graph.kinds.kind import kind_of
from ....graph.kinds.loop import Loop
from ....graph.stage import outputs_of


def each_loop(
    tensors: Sequence[Tensor], results: Callable[[str, Loop], list[Tensor]]
) -> list[Tensor]:
    """Equal tensors, for which `results` makes those of each loop, from its name and the loop over
    a step whose own loops are rewritten.
    """
    replaced: dict[tuple[int, int], Tensor] = {}
    for op in topological(tensors):
        moved = retarget(op, lambda tensor: replaced.get(tensor_key(tensor)))
        kind = kind_of(moved[0].op)
        if isinstance(kind, Loop):
            inner = kind.step.with_outputs(each_loop(kind.step.outputs, results))
            moved = results(str(op.name), replace(kind, step=inner))
        for old, new in zip(outputs_of(op), moved, strict=True):
            if tensor_key(old) != tensor_key(new):
                replaced[tensor_key(old)] = new
    return [replaced.get(tensor_key(tensor), tensor) for tensor in tensors]
