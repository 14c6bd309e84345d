"""What a point of a reduction costs: its reads, by how far neighbours lie apart, and its work, each
divided among the lanes of a vector or not.

``Σ_c w[c, j]*x[c, 2*j//3]``: 16 lanes along ``j`` read ``w`` as a vector and gather ``x``; along
``c`` they gather both, from a line of memory for each element.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....expr.costly import is_expensive
from ....expr.dtypes import itemsize
from ....expr.nodes import Expr, Var, dtype_of, is_float, is_load, load_tensor, node_id, operands
from ....expr.rewrite import depends_on, postorder
from ....graph.stage import shape_of
from ...cost import CALL, MAX_STRIDE, NEAR_BYTE
from ...kernel import size_of
from ...machine import Machine
from ..access import stride_of


def cycles_of_point(
    values: Sequence[Expr],
    along: Var,
    lanes: float,
    innermost: Var,
    variables: Sequence[Var],
    machine: Machine,
) -> float:
    """The cycles of a point of a loop whose neighbours are along a variable, in vectors of so many
    lanes or one by one. What the innermost loop over points does not change costs nothing.
    """
    total, size = 0.0, max(itemsize(dtype_of(value)) for value in values)
    operation = machine.vector_cycles(int(lanes * size)) / lanes
    for node in postorder(list(values)):
        if is_load(node):
            total += _read(node, along, lanes, operation, variables, machine)
        elif is_float(node) and operands(node):
            total += operation * (CALL if is_expensive(node) else 1)
        elif operands(node) and depends_on(node, [innermost]):
            total += operation
    return total


def _read(
    read: Expr,
    along: Var,
    lanes: float,
    operation: float,
    variables: Sequence[Var],
    machine: Machine,
) -> float:
    """To read an element, and its part of a line that the first cache does not hold."""
    size = itemsize(dtype_of(read))
    stride = stride_of(read, node_id(along), variables)
    by_data = any(is_load(node) for index in operands(read) for node in postorder(index))
    if stride is None:
        apart = machine.line_bytes if by_data else size
    else:
        apart = min(machine.line_bytes, abs(stride) * size)
    tensor = load_tensor(read)
    near = size_of(shape_of(tensor)) * size <= machine.first_cache_bytes
    moved = 0.0 if near else NEAR_BYTE * apart
    if stride is not None and 0 <= stride <= MAX_STRIDE:
        return operation * max(1, stride) + moved
    # elements that lie apart are read one by one, and each is put into its lane
    return machine.vector_cycles(size) * (2 if lanes > 1 else 1) + moved
