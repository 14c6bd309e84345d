"""Stores of the results of a kernel that reduces, through its epilogue if there is one."""

from __future__ import annotations

from collections.abc import Sequence

from ....codegen.loop_nest import Places, Statement
from ....expr.nodes import Expr, Tensor, tensor_key
from ....expr.rewrite import map_loads, substituter
from ....graph.stage import axis_vars, bodies
from ...kernel import Kernel


def stored(
    kernel: Kernel, values: Sequence[Expr], indices: Sequence[Expr], places: Places
) -> list[Statement]:
    """The stores of an element of each output, from the reduced values."""
    if kernel.epilogue is not None:
        root, [value] = tensor_key(kernel.root.output(0)), values

        def reduced(tensor: Tensor, _: Sequence[Expr]) -> Expr | None:
            return value if tensor_key(tensor) == root else None

        table = dict(zip(axis_vars(kernel.epilogue), indices, strict=True))
        values = [places.read(map_loads(substituter(table)(bodies(kernel.epilogue)[0]), reduced))]
    return [
        places.write(result, value, indices)
        for result, value in zip(kernel.outputs, values, strict=True)
    ]
