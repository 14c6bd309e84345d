"""Stages whose values are known when a program is built: they read nothing but each other.

Angles of a Fourier transform, window functions and positional encodings are such stages. Their
values lie beside the code, so that no call computes them.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from math import prod

from ....expr.costly import is_expensive
from ....expr.dtypes import itemsize
from ....expr.nodes import dtype_of, node_id, tensor_key
from ....expr.rewrite import contains, expand_lets
from ....graph.free_variables import free_variables
from ....graph.graph import Graph, tensors_read_by
from ....graph.stage import Operation, is_compute, outputs_of, shape_of, sources_of
from ...cost import MAX_CONSTANT
from .dependence import FEW_OPERATIONS, bends, operations_of

#: dtypes of numpy's own
_DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64")


def constant_stages(graph: Graph, wanted: Container[tuple[int, int]]) -> set[int]:
    """The ids of stages whose values are constants that take long to compute; `wanted` holds the
    keys of results, which are written at each call.
    """
    found: set[int] = set()
    known: set[tuple[int, int]] = set()
    for op in graph.ops:
        if not is_compute(op) or any(tensor_key(tensor) in wanted for tensor in outputs_of(op)):
            continue
        reads = tensors_read_by(op)
        if not all(tensor_key(tensor) in known for tensor in reads):
            continue
        if (reads or _takes_long(op)) and _is_small(op):
            found.add(hash(op))
            known |= {tensor_key(tensor) for tensor in outputs_of(op)}
    return found


def _takes_long(op: Operation) -> bool:
    """Whether an element takes longer to compute than to read; polynomials of places, which stages
    compute where they read them, do not.
    """
    sources = [expand_lets(source) for source in sources_of(op)]
    if contains(sources, is_expensive):
        return True
    counts = operations_of(sources)
    few = all(counts[node_id(source)] < FEW_OPERATIONS for source in sources)
    return not few and contains(sources, bends)


def _is_small(op: Operation) -> bool:
    """Whether the results of a stage have literal sizes, and are small enough to keep."""
    return not free_variables(op) and all(
        all(isinstance(extent, int) for extent in shape_of(tensor))
        and is_kept(shape_of(tensor), dtype_of(tensor))
        for tensor in outputs_of(op)
    )


def is_kept(shape: Sequence[int], dtype: str) -> bool:
    """Whether a tensor of constants is kept: numpy has its dtype, and it is small."""
    return dtype in _DTYPES and 0 < prod(shape) * itemsize(dtype) <= MAX_CONSTANT
