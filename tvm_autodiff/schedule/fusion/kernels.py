"""Cuts a graph of stages into kernels, each computed in one pass over memory.

A kernel is one reduction or one elementwise stage, with elementwise producers inlined if that
repeats no expensive work and, after a reduction, the elementwise stage that is its only reader.
`groups` joins kernels that process the same rows. The rules decide how the loops of a kernel run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...expr.costly import SLOW
from ...expr.nodes import Expr, Tensor, is_load, load_tensor, node_id, op_name, operands, tensor_key
from ...expr.rewrite import contains_load, expand_lets, map_loads, postorder, substituter, tree_size
from ...graph.graph import Graph, retarget
from ...graph.sizes.equal_sizes import is_same
from ...graph.stage import (
    Operation,
    axis_vars,
    bodies,
    is_compute,
    is_placeholder,
    loop_axes,
    make_stage,
    outputs_of,
    reduction_of,
    reduction_stage,
    shape_of,
    sources_of,
)
from ..cost import CALL, LATENCY, MAX_NODES
from ..kernel import Kernel, iterations, size_of
from ..rewrites.conditions.clamped_gathers import with_clamped_gathers
from ..rewrites.conditions.guards import with_guards
from ..rewrites.operands.contiguous_operands import with_contiguous_operands
from ..rewrites.table import INTO_KERNELS, rewritten
from ..rewrites.values.constant_stages import constant_stages
from .added_scatters import with_added_scatters
from .groups import FusionGroup, fusion_groups

__all__ = ["FusionGroup", "Kernel", "cut", "iterations", "separate", "size_of"]


def cut(
    outputs: Sequence[Tensor], exact_math: bool = False, constants: bool = False
) -> tuple[list[Kernel | FusionGroup], list[Tensor]]:
    """The kernels and fusion groups for some outputs, in order of execution, and the computed
    outputs; with `constants`, each stage of constants is a kernel of its own, before all others.
    """
    kernels, results = separate(outputs, exact_math, constants)
    wanted = {tensor_key(tensor) for tensor in results}
    fixed = constant_stages(Graph(results), wanted) if constants else set()
    known: list[Kernel | FusionGroup] = []
    others: list[Kernel] = []
    for kernel in kernels:
        (known if all(hash(op) in fixed for op in kernel.ops) else others).append(kernel)
    groups = fusion_groups(others, wanted)
    return [*known, *(groups if exact_math else with_added_scatters(groups, wanted))], results


def separate(
    outputs: Sequence[Tensor], exact_math: bool = False, constants: bool = False
) -> tuple[list[Kernel], list[Tensor]]:
    """Kernels for some outputs, without joining, and the computed outputs."""
    inlined = inline_producers(rewritten(outputs, INTO_KERNELS, exact_math=exact_math), constants)
    inlined = with_contiguous_operands(inlined)  # copies, which would be inlined
    inlined = with_clamped_gathers(inlined)  # products and sums know branches as guards
    graph = Graph(inlined)
    wanted = {tensor_key(tensor) for tensor in inlined}
    epilogues: dict[int, Operation] = {}
    fused: set[int] = set()
    for op in graph.ops:
        reader = _epilogue_of(op, graph, wanted)
        if reader is not None and hash(reader) not in fused:
            epilogues[hash(op)] = reader
            fused.add(hash(reader))
    kernels: list[Kernel] = []
    roots = {hash(epilogues[hash(op)]): op for op in graph.ops if hash(op) in epilogues}
    for op in graph.ops:
        if is_placeholder(op) or hash(op) in epilogues:
            continue
        # a fused kernel runs where its epilogue stands: all that either stage reads is there by
        # then
        root = roots.get(hash(op))
        kernels.append(Kernel(op) if root is None else Kernel(root, op))
    return kernels, list(inlined)


def _epilogue_of(op: Operation, graph: Graph, wanted: set[tuple[int, int]]) -> Operation | None:
    if not is_compute(op) or op.num_outputs != 1 or reduction_of(op) is None or not len(op.axis):
        return None
    tensor = op.output(0)
    consumers = graph.consumers(tensor)
    if tensor_key(tensor) in wanted or len(consumers) != 1:
        return None
    reader = consumers[0]
    if not is_compute(reader) or reduction_of(reader) is not None or reader.num_outputs != 1:
        return None
    if not _same_shape(reader, op):
        return None
    here = [node_id(var) for var in axis_vars(reader)]
    for node in postorder(bodies(reader)[0]):
        reads = is_load(node) and tensor_key(load_tensor(node)) == tensor_key(tensor)
        if reads and [node_id(index) for index in operands(node)] != here:
            return None
    return reader


def _same_shape(left: Operation, right: Operation) -> bool:
    a, b = shape_of(left.output(0)), shape_of(right.output(0))
    return len(a) == len(b) and all(map(is_same, a, b))


def inline_producers(outputs: Sequence[Tensor], constants: bool = False) -> list[Tensor]:
    """``C[i] = f(P[g(i)]), P[a] = h(a) → C[i] = f(h(g(i)))`` if that repeats no expensive work.

    With `constants`, stages of constants stay stages: no call computes them.
    """
    graph = Graph(outputs)
    wanted = {tensor_key(tensor) for tensor in outputs}
    fixed = constant_stages(graph, wanted) if constants else set()
    replaced: dict[tuple[int, int], Tensor] = {}
    absorbed: dict[tuple[int, int], Operation] = {}
    for op in graph.ops:
        if is_placeholder(op):
            continue
        current = retarget(op, lambda tensor: replaced.get(tensor_key(tensor)))[0].op
        if is_compute(current):
            current = absorb(current, absorbed)
        for old, new in zip(outputs_of(op), outputs_of(current), strict=True):
            if tensor_key(old) != tensor_key(new):
                replaced[tensor_key(old)] = new
        hidden = is_compute(op) and op.num_outputs == 1 and tensor_key(op.output(0)) not in wanted
        hidden = hidden and hash(op) not in fixed
        if hidden and worth_inlining(op, current, graph.consumers(op.output(0))):
            absorbed[tensor_key(current.output(0))] = current
    return [replaced.get(tensor_key(tensor), tensor) for tensor in outputs]


def absorb(op: Operation, absorbed: Mapping[tuple[int, int], Operation]) -> Operation:
    """A stage that computes elements of some stages itself, which are known by their tensors."""

    def expand(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        producer = absorbed.get(tensor_key(tensor))
        if producer is None:
            return None
        # lets are expanded: one variable must not be bound twice, to values at different indices
        return substituter(dict(zip(axis_vars(producer), indices, strict=True)))(
            expand_lets(bodies(producer)[0])
        )

    reduction = reduction_of(op)
    old = sources_of(op)
    new = [map_loads(body, expand) for body in old]
    if all(node_id(a) == node_id(b) for a, b in zip(old, new, strict=True)):
        return op
    # what a producer reads everywhere may be read behind a condition of the reader alone
    new = [with_guards(body, loop_axes(op)) for body in new]
    if reduction is None:
        return make_stage(op.name, list(op.axis), new, op.tag)[0].op
    return reduction_stage(op.name, list(op.axis), replace(reduction, sources=tuple(new)))[0].op


def worth_inlining(original: Operation, current: Operation, readers: Sequence[Operation]) -> bool:
    """Whether every reader of a stage should compute its elements itself.

    `current` is the stage with what was inlined into it.
    """
    if reduction_of(current) is not None:
        return False
    body = expand_lets(bodies(current)[0])
    size = tree_size(body)
    tensor = original.output(0)
    elements = size_of(shape_of(tensor))
    reads, reduces, sites = 0, False, 0
    for consumer in readers:
        if not is_compute(consumer):
            return False
        here = sites_of(consumer, tensor)
        sites += here
        reads += here * iterations(consumer)
        reduces |= reduction_of(consumer) is not None
        if _body_size(consumer) + here * size > MAX_NODES // LATENCY:
            return False
    names = {op_name(node) for node in postorder(body)}
    if "load" not in names and size <= 3:
        return True  # a constant
    if reads <= elements:
        return True
    divides = bool(names & {"floordiv", "floormod", "truncdiv", "truncmod"})
    if op_name(body) == "load" and not divides and not contains_load(operands(body)):
        return True  # only another way to index
    if names & SLOW or size > 2 * CALL:
        return False
    return not reduces and reads <= 2 * elements


def sites_of(consumer: Operation, tensor: Tensor) -> int:
    """How often the expressions of a stage read a tensor."""
    key = tensor_key(tensor)
    return sum(
        1
        for node in postorder(bodies(consumer))
        if is_load(node) and tensor_key(load_tensor(node)) == key
    )


def _body_size(op: Operation) -> int:
    return tree_size(bodies(op)[0])
