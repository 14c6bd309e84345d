"""Merges sums over the same indices that are added later, so that they share their work.

The gradient with respect to something that several stages read has a sum for each of them. With
respect to the width of a normalised filter, one comes from the weighted values and one from the
weights, with the same exponentials.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

from ....expr.build import add, sum_of, zero_like
from ....expr.factoring import addends_of
from ....expr.nodes import (
    BRANCHES,
    Expr,
    Tensor,
    is_const,
    is_float,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    same_node,
    tensor_key,
    with_operands,
)
from ....expr.rewrite import postorder, replace_outermost, rewrite
from ....expr.structural import StructuralKeys
from ....graph.graph import Graph, Replacement, each_original_stage, rebuild, retarget
from ....graph.stage import Operation, bodies, is_compute, make_stage, reduction_of, reduction_stage
from ...nest.reductions.products import is_sum
from .shared.common_functions import aligned


def with_added_sums(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``Σ_a f(a) + Σ_b g(b) → Σ_a (f(a) + g(a))`` where f and g have an expensive function of all
    axes in common: others are computed before the loops, as operands of products are.
    """
    current = list(outputs)
    while joins := _joins(current):

        def change(op: Operation, replacement: Replacement) -> list[Tensor]:
            joined = joins.get(hash(op))
            return retarget(op, replacement) if joined is None else rebuild([joined], replacement)

        current = each_original_stage(current, change)
    return current


def _joins(outputs: Sequence[Tensor]) -> dict[int, Tensor]:
    """Stages with two of their summands merged, by the stages that they replace."""
    graph = Graph(outputs)
    wanted = {tensor_key(tensor) for tensor in outputs}
    found = {}
    for op in graph.ops:
        if is_compute(op) and op.num_outputs == 1 and reduction_of(op) is None:
            joined = _joined(op, graph, wanted)
            if joined is not None:
                found[hash(op)] = joined
    return found


def _joined(op: Operation, graph: Graph, wanted: set[tuple[int, int]]) -> Tensor | None:
    """The stage with two of its summands merged, or None."""
    body = _by_condition(bodies(op)[0])
    reads = _reads(body)
    for group in (addends_of(body), *_behind_conditions(body)):
        found = [
            (node, load_tensor(node).op)
            for node in group
            if is_load(node)
            and reads[tensor_key(load_tensor(node))] == 1
            and _is_own_sum(load_tensor(node), graph, wanted)
        ]
        table = _merged(found)
        if table is not None:
            return make_stage(op.name, list(op.axis), [_without(body, table)], op.tag)[0]
    return None


def _by_condition(body: Expr) -> Expr:
    """``(if c then a else 0) + (if c then b else 0) → if c then a + b else 0``

    The gradient by numbers that are read at literal places is such a sum.
    """
    keys = StructuralKeys()
    groups: dict[Hashable, list[Expr]] = {}
    for number, part in enumerate(addends_of(body)):
        known = (op_name(part), keys.expr(operands(part)[0])) if _is_guarded(part) else number
        groups.setdefault(known, []).append(part)
    if all(len(parts) == 1 for parts in groups.values()):
        return body
    terms = []
    for first, *others in groups.values():
        if others:
            condition, value, zero = operands(first)
            total = sum_of([value, *(operands(other)[1] for other in others)])
            first = with_operands(first, [condition, total, zero])
        terms.append(first)
    return sum_of(terms)


def _is_guarded(part: Expr) -> bool:
    return op_name(part) in BRANCHES and is_const(operands(part)[2], 0)


def _behind_conditions(body: Expr) -> list[list[Expr]]:
    """The summands of each sum behind a condition."""
    return [addends_of(operands(part)[1]) for part in addends_of(body) if _is_guarded(part)]


def _merged(found: Sequence[tuple[Expr, Operation]]) -> dict[int, Expr] | None:
    """What two of some sums become, by the ids of their reads: one that adds both, and zero."""
    for number, (node, first) in enumerate(found):
        for other, second in found[number + 1 :]:
            places = zip(operands(node), operands(other), strict=True)
            if len(first.axis) != len(second.axis) or not all(same_node(a, b) for a, b in places):
                continue
            moved = aligned(second, first)
            reduction = reduction_of(first)
            if moved is None or reduction is None:
                continue
            both = replace(reduction, sources=(add(reduction.sources[0], *moved),))
            total = reduction_stage(first.name, list(first.axis), both)[0]
            return {node_id(node): load(total, operands(node)), node_id(other): zero_like(other)}
    return None


def _reads(body: Expr) -> Counter[tuple[int, int]]:
    """How often tensors are read, counting all occurrences of a node."""
    places = Counter({node_id(body): 1})
    reads: Counter[tuple[int, int]] = Counter()
    for node in reversed(list(postorder(body))):
        if is_load(node):
            reads[tensor_key(load_tensor(node))] += places[node_id(node)]
        for part in operands(node):
            places[node_id(part)] += places[node_id(node)]
    return reads


def _without(body: Expr, table: dict[int, Expr]) -> Expr:
    """The sum with some summands replaced; those that are zero now are left out."""

    def visit(node: Expr) -> Expr | None:
        return add(*operands(node)) if op_name(node) == "add" else None

    return rewrite(replace_outermost(body, table), visit)


def _is_own_sum(tensor: Tensor, graph: Graph, wanted: set[tuple[int, int]]) -> bool:
    """Whether a tensor is a floating point sum with a single reader."""
    reduction = reduction_of(tensor.op) if is_compute(tensor.op) else None
    return (
        reduction is not None
        and is_sum(reduction)
        and not reduction.init
        and is_float(reduction.sources[0])
        and tensor_key(tensor) not in wanted
        and len(graph.consumers(tensor)) == 1
    )
