"""Finds scatter-adds whose results one elementwise stage adds up: all can add into one result.

The gradient of a table that is read by several index tensors is such a sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass

from ...expr.build import sum_of
from ...expr.costly import is_expensive
from ...expr.factoring import addends_of
from ...expr.nodes import (
    Expr,
    Tensor,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ...expr.rewrite import postorder, replace_outermost, substituter
from ...graph.graph import tensors_read_by
from ...graph.kinds.kind import kind_of
from ...graph.kinds.scatter_add import ScatterAdd
from ...graph.sizes.equal_sizes import is_same
from ...graph.stage import (
    Operation,
    axis_range,
    axis_vars,
    bodies,
    is_compute,
    make_stage,
    reduction_of,
    renewed,
    shape_of,
)
from ..kernel import Kernel
from .groups import FusionGroup

Key = tuple[int, int]  #: of a tensor


@dataclass(frozen=True)
class AddedScatters(FusionGroup):
    """Scatter-adds, and the stage that adds up their results.

    Attributes
    ----------
    scatters : tuple of ScatterAdd
    total : Tensor
        The sum, of the stage's axes: its result, or a tensor that `reader` reads.
    start : Expr or None
        What is added to the results of the scatter-adds, over the axes of `total`.
    reader : Kernel or None
        The stage over `total`, where it computes more than a sum.
    """

    scatters: tuple[ScatterAdd, ...]
    total: Tensor
    start: Expr | None
    reader: Kernel | None


def with_added_scatters(
    kernels: Sequence[Kernel | FusionGroup], wanted: Container[Key]
) -> list[Kernel | FusionGroup]:
    """``s = scatter(u); t = scatter(v); y = s + t`` as one group, in order of execution."""
    readers = Counter(
        tensor_key(tensor)
        for kernel in kernels
        for op in kernel.ops
        for tensor in tensors_read_by(op)
    )
    scatters: dict[Key, Kernel] = {}
    for kernel in kernels:
        if isinstance(kernel, Kernel) and isinstance(kind_of(kernel.root), ScatterAdd):
            key = tensor_key(kernel.outputs[0])
            if readers[key] == 1 and key not in wanted:
                scatters[key] = kernel
    if not scatters:
        return list(kernels)
    found = [_group(kernel, scatters) for kernel in kernels]
    taken = {
        id(part) for group in found if isinstance(group, AddedScatters) for part in group.parts
    }
    return [
        group
        for kernel, group in zip(kernels, found, strict=True)
        if group is not kernel or id(kernel) not in taken
    ]


def _group(
    kernel: Kernel | FusionGroup, scatters: dict[Key, Kernel]
) -> Kernel | FusionGroup:
    """The group that a kernel ends, or else the kernel."""
    if not isinstance(kernel, Kernel) or kernel.epilogue is not None:
        return kernel
    op = kernel.root
    if not is_compute(op) or reduction_of(op) is not None or op.num_outputs != 1:
        return kernel
    if not len(op.axis) or any(axis_range(axis)[0] != 0 for axis in op.axis):
        return kernel
    [body] = bodies(op)
    sites = Counter(tensor_key(load_tensor(node)) for node in postorder(body) if is_load(node))
    for node in _sums(body):
        terms = addends_of(node)
        parts = [term for term in terms if _is_scatter_here(term, op, scatters, sites)]
        rest = [term for term in terms if not any(term is part for part in parts)]
        whole = node_id(node) == node_id(body)
        cheap = not any(is_expensive(part) for part in postorder(rest))
        if len(parts) > 1 or (parts and whole and rest and cheap):
            chosen = [scatters[tensor_key(load_tensor(part))] for part in parts]
            if whole and cheap:
                return _added(chosen, kernel, sum_of(rest) if rest else None)
            return _read(chosen, kernel, node, parts, rest)
    return kernel


def _added(scatters: Sequence[Kernel], kernel: Kernel, start: Expr | None) -> AddedScatters:
    [result] = kernel.outputs
    return AddedScatters(
        (*scatters, kernel), (), (), kernel.outputs, _kinds(scatters), result, start, None
    )


def _read(
    scatters: Sequence[Kernel],
    kernel: Kernel,
    node: Expr,
    parts: Sequence[Expr],
    rest: Sequence[Expr],
) -> AddedScatters:
    """``y = f(s + t + r)  →  z = s + t; y = f(z + r)``"""
    op = kernel.root
    axes, table = renewed(op.axis)
    [total] = make_stage(f"{op.name}_scatters", axes, [substituter(table)(sum_of(parts))])
    changed = sum_of([load(total, axis_vars(op)), *rest])
    [body] = bodies(op)
    [made] = make_stage(op.name, list(op.axis), [replace_outermost(body, {node_id(node): changed})])
    reader = Kernel(made.op)
    return AddedScatters(
        (*scatters, kernel), (), (), kernel.outputs, _kinds(scatters), total, None, reader
    )


def _kinds(scatters: Sequence[Kernel]) -> tuple[ScatterAdd, ...]:
    kinds = (kind_of(scatter.root) for scatter in scatters)
    return tuple(kind for kind in kinds if isinstance(kind, ScatterAdd))


def _sums(body: Expr) -> list[Expr]:
    """The sums that are no part of another one, the largest first."""
    nodes = [node for node in postorder(body) if op_name(node) == "add"]
    inner = {node_id(part) for node in nodes for part in operands(node)}
    return [node for node in reversed(nodes) if node_id(node) not in inner]


def _is_scatter_here(
    term: Expr, op: Operation, scatters: dict[Key, Kernel], sites: Counter[Key]
) -> bool:
    """Whether a term is the result of a scatter-add at the stage's own place, and its only read."""
    if not is_load(term):
        return False
    tensor = load_tensor(term)
    key = tensor_key(tensor)
    if key not in scatters or sites[key] != 1:
        return False
    shapes = zip(shape_of(tensor), shape_of(op.output(0)), strict=False)
    here = list(map(node_id, operands(term))) == list(map(node_id, axis_vars(op)))
    return here and all(is_same(a, b) for a, b in shapes)
