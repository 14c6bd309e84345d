"""Stores of the results of a kernel that reduces, through its epilogue if there is one."""

from __future__ import annotations

from collections.abc import Sequence

from ....codegen.loop_nest import Places, Statement
from ....expr.nodes import Expr
from ....graph.stage import bodies
from ...kernel import Kernel, results_of
from ...rewrites.conditions.guards import selected


def stored(
    kernel: Kernel, values: Sequence[Expr], indices: Sequence[Expr], places: Places
) -> list[Statement]:
    """The stores of an element of each output, from the reduced values.

    A choice of the epilogue between values that are safe to evaluate is no branch: elements are
    stored in vectors.
    """
    last = kernel.epilogue
    epilogue = None if last is None else selected(bodies(last), last.axis)
    results = results_of(kernel, values, indices, epilogue)
    return [
        places.write(result, places.read(value), indices)
        for result, value in zip(kernel.outputs, results, strict=True)
    ]
