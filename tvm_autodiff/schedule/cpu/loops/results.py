"""Stores of the results of a kernel that reduces, through its epilogue if there is one."""

from __future__ import annotations

from collections.abc import Sequence

from ....codegen.loop_nest import Places, Statement
from ....expr.nodes import Expr
from ...kernel import Kernel, results_of


def stored(
    kernel: Kernel, values: Sequence[Expr], indices: Sequence[Expr], places: Places
) -> list[Statement]:
    """The stores of an element of each output, from the reduced values."""
    return [
        places.write(result, places.read(value), indices)
        for result, value in zip(kernel.outputs, results_of(kernel, values, indices), strict=True)
    ]
