"""Stages with far more elements than what they read and what reads them, such as functions of all
pairs of points, are computed where they are read if no cache holds them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.dtypes import itemsize
from ...expr.nodes import Tensor, dtype_of, tensor_key
from ...expr.rewrite import postorder
from ...graph.graph import Graph, Replacement, each_original_stage, retarget, tensors_read_by
from ...graph.stage import (
    Operation,
    bodies,
    is_compute,
    outputs_of,
    reduction_of,
    shape_of,
)
from ..cost import MAX_COPIES, MAX_NODES
from ..kernel import iterations, size_of
from ..machine import Machine
from .kernels import absorb, sites_of


def with_pairs_computed_again(outputs: Sequence[Tensor], machine: Machine) -> list[Tensor]:
    """``p[i, j] = f(x[i], x[j]), y[i] = Σ_j g(p[i, j])  →  y[i] = Σ_j g(f(x[i], x[j]))`` where half
    of the cache that all cores share does not hold p.

    Tensors of pairs would else take memory that grows with the square of the number of points.
    """
    graph = Graph(outputs)
    wanted = set(map(tensor_key, outputs))
    large = {
        hash(op)
        for op in graph.ops
        if _is_map(op) and not wanted.intersection(map(tensor_key, outputs_of(op)))
        if 2 * _bytes(op.output(0), machine) > machine.last_cache_bytes
        if all(map(is_compute, graph.consumers(op.output(0))))
    }
    if not large:
        return list(outputs)
    absorbed: dict[tuple[int, int], Operation] = {}

    def change(op: Operation, replacement: Replacement) -> list[Tensor]:
        current = retarget(op, replacement)
        if not is_compute(op):
            return current
        whole = absorb(current[0].op, absorbed)
        if hash(op) in large and _is_spread(whole, machine) and _is_read_a_few_times(op, graph):
            absorbed[tensor_key(current[0])] = whole
            return current
        return outputs_of(whole)

    return each_original_stage(outputs, change)


def _is_map(op: Operation) -> bool:
    return is_compute(op) and reduction_of(op) is None and op.num_outputs == 1


def _bytes(tensor: Tensor, machine: Machine) -> int:
    return itemsize(dtype_of(tensor)) * size_of(shape_of(tensor), machine.symbolic_size)


def _is_spread(op: Operation, machine: Machine) -> bool:
    """Whether a stage has far more elements than it reads, and a body that can be repeated."""
    read = sum(_bytes(tensor, machine) for tensor in tensors_read_by(op))
    few = MAX_COPIES * read <= _bytes(op.output(0), machine)
    return few and len(postorder(bodies(op))) <= MAX_NODES // MAX_COPIES


def _is_read_a_few_times(op: Operation, graph: Graph) -> bool:
    """Whether the readers need each element no more often than a body is written out."""
    tensor = op.output(0)
    readers = graph.consumers(tensor)
    times = sum(sites_of(one, tensor) * iterations(one) for one in readers)
    return times <= MAX_COPIES * size_of(shape_of(tensor))
