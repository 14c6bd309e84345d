"""Computes a factor of several terms that takes long once for each point of their stage.

A stencil with a nonlinear body reads one tensor at several shifted places. Without this, each
element of the gradient evaluates the same factor once for each shift.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ...codegen.passes.short_circuit import nodes_with_marks, sure_operands, surely_evaluated
from ...codegen.passes.small_launches import CALL
from ...expr.costly import is_expensive
from ...expr.fold import fold
from ...expr.nodes import (
    Expr,
    Var,
    is_const,
    is_float,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ...expr.rewrite import (
    contains,
    depends_on,
    expand_lets,
    postorder,
    preorder,
    replace_outermost,
    substituter,
)
from ...expr.sharing.lets import bind_shared, merge_equal
from ...graph.bounded_stage import bounded_stage
from ...graph.stage import Operation, axis_vars, bodies, reduction_of, renew_axis
from ...rules.terms import Term


def with_shared_factors(
    op: Operation, terms: Sequence[Term], seeds: Mapping[int, Expr]
) -> list[Term]:
    """``Σ_s p_s·f(a)·dx[g_s(a)] → e[a] = f(a), Σ_s p_s·e[a]·dx[g_s(a)]`` for an f with an expensive
    function, or with as many operations as one takes.

    Two of the reads must lie in one tensor, at places that each determine the point ``a``: where
    several points read one element, a tensor of all points may be much larger than the gradient.

    Parameters
    ----------
    op : Operation
        An elementwise stage; the terms of others are returned as they are.
    terms : sequence of Term
        The terms of its derivative.
    seeds : mapping from int to Expr
        The cotangent of ``out[a]`` for the components whose factors may hold it.
    """
    if len(terms) < 2 or not len(op.axis) or reduction_of(op) is not None:
        return list(terms)
    forward = [expand_lets(body) for body in bodies(op)]
    places = [index for term in terms for index in term.indices]
    merged = merge_equal([*forward, *places, *(term.value for term in terms)])
    values = merged[len(forward) + len(places) :]
    shared = _shared(op, terms, merged[len(forward) : -len(values)], values)
    if not any(map(_takes_long, shared.values())):
        return list(terms)
    given = {node_id(term.seed): seeds.get(term.component) for term in terms}
    factors = _storable(op, merged[: len(forward)], values, given) & shared.keys()
    factors = {key for key in factors if _takes_long(shared[key])}
    cotangents = {term.seed: seeds[term.component] for term in terms if term.component in seeds}
    wanted = {node_id(node) for value in values for node in _outermost(value, factors)}
    reads: dict[int, Expr] = {}
    for node in postorder(values):  # a factor inside another one first, which reads it
        if node_id(node) in wanted:
            rest = replace_outermost(node, reads)
            if _takes_long(rest):
                reads[node_id(node)] = _stored(op, rest, cotangents)
    return [
        replace(term, value=replace_outermost(value, reads)) if reads else term
        for term, value in zip(terms, values, strict=True)
    ]


def _storable(
    op: Operation,
    forward: Sequence[Expr],
    values: Sequence[Expr],
    given: Mapping[int, Expr | None],
) -> set[int]:
    """The nodes that can be evaluated at each point of a stage: they have no other variables than
    given ones, and read what the stage reads at each point, or results of the stage.
    """
    sure = {node_id(node) for node in surely_evaluated(forward)}
    late = nodes_with_marks(values)
    unknown: set[int] = set()  # with another variable inside
    unsafe: set[int] = set()
    storable: set[int] = set()
    for node in postorder(list(values)):
        key = node_id(node)
        alone = op_name(node) == "var" and given.get(key, node) is None
        if alone or any(node_id(part) in unknown for part in operands(node)):
            unknown.add(key)
        read = is_load(node) and key not in sure and hash(load_tensor(node).op) != hash(op)
        if read or any(node_id(part) in unsafe for part in sure_operands(node, late)):
            unsafe.add(key)
        if key not in unknown and key not in unsafe:
            storable.add(key)
    return storable


def _takes_long(expr: Expr) -> bool:
    """Whether an expression calls an expensive function, or has as many operations as one takes."""
    count = 0
    for node in preorder(expr):
        count += bool(operands(node)) and is_float(node) and not is_load(node)
        if is_expensive(node) or count >= CALL:
            return True
    return False


def _shared(
    op: Operation, terms: Sequence[Term], places: Sequence[Expr], values: Sequence[Expr]
) -> dict[int, Expr]:
    """The nodes in the values of terms of one tensor at two places, which determine the point."""
    found: dict[tuple[tuple[int, int], int], set[tuple[int, ...]]] = {}
    nodes: dict[int, Expr] = {}
    start = 0
    for term, value in zip(terms, values, strict=True):
        place = tuple(map(node_id, places[start : start + len(term.indices)]))
        start += len(term.indices)
        if _determines_point(op, term):
            for node in postorder(value):
                nodes[node_id(node)] = node
                found.setdefault((tensor_key(term.tensor), node_id(node)), set()).add(place)
    return {key: nodes[key] for (_, key), at in found.items() if len(at) > 1}


def _determines_point(op: Operation, term: Term) -> bool:
    """Whether each axis of the stage has an index of its own: ``x[i + 1, max(2*j - 1, 0)]``."""
    axes = axis_vars(op)
    alone: set[int] = set()
    for index in term.indices:
        used = [var for var in axes if depends_on(index, [var])]
        if len(used) == 1 and not contains(index, is_load):
            alone.add(node_id(used[0]))
    return len(alone) == len(axes)


def _outermost(root: Expr, factors: Collection[int]) -> list[Expr]:
    pending, seen, found = [root], set(), []
    while pending:
        node = pending.pop()
        if node_id(node) in seen:
            continue
        seen.add(node_id(node))
        if node_id(node) in factors:
            found.append(node)
        else:
            pending += reversed(operands(node))
    return found


def _stored(op: Operation, factor: Expr, cotangents: Mapping[Var, Expr]) -> Expr:
    """A read, at the point of `op`, of a stage that computes a factor."""
    value = substituter(cotangents)(factor)
    if any(map(is_const, cotangents.values())):
        value = fold(value)
    axes = [renew_axis(axis) for axis in op.axis]
    rename = substituter(dict(zip(axis_vars(op), (axis.var for axis in axes), strict=True)))
    [stage] = bounded_stage(f"{op.name}_factor", axes, [bind_shared(rename(value))])
    return load(stage, axis_vars(op))
