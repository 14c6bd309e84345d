"""Computes a factor of several terms that takes long once for each point of their stage.

A stencil with a nonlinear body reads one tensor at several shifted places, and a sum over
neighbours that a table names reads several of their coordinates. Without this, each element of the
gradient evaluates the same factor once for each shift or coordinate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from ...codegen.passes.short_circuit import nodes_with_marks, sure_operands, surely_evaluated
from ...codegen.passes.small_launches import CALL
from ...expr.costly import is_expensive
from ...expr.fold import fold
from ...expr.nodes import (
    Expr,
    Var,
    dtype_of,
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
    contains_load,
    depends_on,
    expand_lets,
    postorder,
    preorder,
    replace_outermost,
    substituter,
)
from ...expr.sharing.lets import bind_shared, merge_equal
from ...graph.bounded_stage import bounded_stage
from ...graph.stage import (
    Operation,
    axis_range,
    axis_vars,
    data_axis,
    loop_axes,
    reduction_bounds,
    reduction_of,
    sources_of,
)
from ...rules.terms import Term


def with_shared_factors(
    op: Operation, terms: Sequence[Term], seeds: Mapping[int, Expr]
) -> list[Term]:
    """``Σ_s p_s·f(a)·dx[g_s(a)] → e[a] = f(a), Σ_s p_s·e[a]·dx[g_s(a)]`` for an f with an expensive
    function, or with as many operations as one takes.

    Two of the reads must lie in one tensor, at places that each determine the point ``a``: where
    several points read one element, a tensor of all points may be much larger than the gradient.
    Of a sum, two must lie in one tensor at data that differ from point to point: what is added
    there is stored for each point in any case.

    Parameters
    ----------
    op : Operation
        An elementwise stage, or a reduction; the terms of others are returned as they are.
    terms : sequence of Term
        The terms of its derivative.
    seeds : mapping from int to Expr
        The cotangent of ``out[a]`` for the components whose factors may hold it.
    """
    if len(terms) < 2 or not len(op.axis) or not _is_box(op):
        return list(terms)
    forward = [expand_lets(source) for source in sources_of(op)]
    places = [index for term in terms for index in term.indices]
    flat = [part for term in terms for part in _parts(term)]
    merged = iter(merge_equal([*forward, *places, *flat]))
    forward = list(islice(merged, len(forward)))
    indices = [tuple(islice(merged, len(term.indices))) for term in terms]
    parts = [list(islice(merged, len(_parts(term)))) for term in terms]
    shared = _shared(op, terms, indices, parts)
    if not any(_takes_long(*found) for found in shared.values()):
        return list(terms)
    every = [part for own in parts for part in own]
    given = {node_id(term.seed): seeds.get(term.component) for term in terms}
    factors = _storable(op, forward, every, given) & shared.keys()
    factors = {key for key in factors if _takes_long(*shared[key])}
    cotangents = {term.seed: seeds[term.component] for term in terms if term.component in seeds}
    wanted = {node_id(node) for part in every for node in _outermost(part, factors)}
    reads: dict[int, Expr] = {}
    for node in postorder(every):  # a factor inside another one first, which reads it
        if node_id(node) in wanted:
            rest = replace_outermost(node, reads)
            if _takes_long(rest, shared[node_id(node)][1]):
                reads[node_id(node)] = _stored(op, rest, cotangents)
    if not reads:
        return list(terms)
    return [_with_parts(term, own, reads) for term, own in zip(terms, parts, strict=True)]


def _is_box(op: Operation) -> bool:
    """Whether the points of a stage can be those of another one: not of ragged sums, nor pairs."""
    if reduction_of(op) is None:
        return True
    starts = [axis_range(axis)[0] for axis in loop_axes(op)]
    own = [axis.var for axis in loop_axes(op)]
    ragged = any(depends_on(bound, own) or contains_load(bound) for bound in reduction_bounds(op))
    return op.num_outputs == 1 and not ragged and all(start == 0 for start in starts)


def _parts(term: Term) -> list[Expr]:
    """What a term evaluates at a point: its value, and conditions."""
    return [term.value, *(condition.expr for condition in term.conditions)]


def _with_parts(term: Term, parts: Sequence[Expr], reads: Mapping[int, Expr]) -> Term:
    """A term whose parts read factors that are stored."""
    value, *others = (replace_outermost(part, reads) for part in parts)
    pairs = zip(term.conditions, others, strict=True)
    return replace(
        term, value=value, conditions=tuple(replace(old, expr=new) for old, new in pairs)
    )


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


def _takes_long(expr: Expr, repeats: int) -> bool:
    """Whether an expression calls an expensive function, or what repeats it has as many operations
    as one takes, less one of each but the first for a read of the result. A read at data is two:
    the data are read, too.
    """
    count = 0
    for node in preorder(expr):
        if is_load(node):
            count += 2 * contains_load(operands(node))
        else:
            count += bool(operands(node)) and is_float(node)
        if is_expensive(node) or count * repeats - (repeats - 1) >= CALL:
            return True
    return False


def _shared(
    op: Operation,
    terms: Sequence[Term],
    indices: Sequence[tuple[Expr, ...]],
    parts: Sequence[Sequence[Expr]],
) -> dict[int, tuple[Expr, int]]:
    """The nodes in the parts of terms of one tensor at two places, which determine the point, and
    how many terms repeat them: one of a stencil, whose factor takes memory that nothing else does.
    """
    found: dict[tuple[tuple[int, int], int], set[tuple[int, ...]]] = {}
    nodes: dict[int, Expr] = {}
    uses: Counter[int] = Counter()
    for term, place, own in zip(terms, indices, parts, strict=True):
        determines = _determines_point(op, term)
        for node in filter(is_float, postorder(list(own))):
            nodes[node_id(node)] = node
            uses[node_id(node)] += 1
            if determines:
                at = found.setdefault((tensor_key(term.tensor), node_id(node)), set())
                at.add(tuple(map(node_id, place)))
    stored = reduction_of(op) is not None
    return {
        key: (nodes[key], uses[key] - 1 if stored else 1)
        for (_, key), at in found.items()
        if len(at) > 1
    }


def _determines_point(op: Operation, term: Term) -> bool:
    """Whether each axis of the stage has an index of its own: ``x[i + 1, max(2*j - 1, 0)]``; of a
    reduction, whether data that differ from point to point are an index: ``x[at[i, k], 0]``.
    """
    if reduction_of(op) is not None:
        places = [i for node in postorder(term.indices) if is_load(node) for i in operands(node)]
        every = [axis.var for axis in loop_axes(op)]
        return all(any(depends_on(place, [var]) for place in places) for var in every)
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
    points = [axis.var for axis in loop_axes(op)]
    axes = [
        data_axis(axis.var.name, axis_range(axis)[1], dtype_of(axis.var)) for axis in loop_axes(op)
    ]
    rename = substituter(dict(zip(points, (axis.var for axis in axes), strict=True)))
    [stage] = bounded_stage(f"{op.name}_factor", axes, [bind_shared(rename(value))])
    return load(stage, points)
