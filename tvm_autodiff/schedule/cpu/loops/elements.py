"""What the values of elements imply for the loops over them: borders, reads that are worth a name,
and the same values without branches where reads are safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ....codegen.passes.short_circuit import holds_mark, surely_evaluated
from ....codegen.statements import STORED
from ....expr.build import select
from ....expr.nodes import (
    COMPARISONS,
    Axis,
    Expr,
    Var,
    is_integer,
    is_load,
    node_id,
    op_name,
    operands,
)
from ....expr.rewrite import Fold, Rewriter, depends_on, postorder, variables_of
from ....expr.sharing.weights import MAX_WEIGHT, weighed, weight
from ....graph.stage import axis_range
from ...cost import MAX_STRIDE, SHORT_LOOP, STORE
from ...kernel import size_of
from ...nest.access import Affine, AffineForms, affine_forms, strides_along
from ...nest.in_range import Loops, Safety
from ...nest.inside import borders, has_borders, reads_within
from ...rewrites.conditions.guards import safe_branches, unmarked, with_sure_conditions


def has_outer_border(axes: Sequence[Axis], exprs: Sequence[Expr]) -> bool:
    """Whether reads are guarded or clamped along a symbolic axis around short rows: LLVM has no
    vectors along these, and does not cut it.
    """
    for number, axis in enumerate(axes[:-1]):
        extent, inner = axis_range(axis)[1], [axis_range(one)[1] for one in axes[number + 1 :]]
        short = all(isinstance(one, int) for one in inner) and size_of(inner) < SHORT_LOOP
        if short and not isinstance(extent, int):
            others = [one.var for one in axes if one is not axis]
            return any(borders(exprs, axis.var, extent, [*others, *variables_of(extent)]))
    return False


def has_border(axes: Sequence[Axis], exprs: Sequence[Expr]) -> bool:
    """Whether reads that run along the last axis are guarded or clamped along it."""
    variables, axis = [axis.var for axis in axes], axes[-1]
    nodes = postorder(list(exprs))
    extent = axis_range(axis)[1]
    strides = strides_along(reads_within(exprs, axes, axis.var), axis.var, variables)
    most = 1 if isinstance(extent, int) else MAX_STRIDE
    if strides is None or not strides or not 1 <= max(strides) <= most:
        return False
    if isinstance(extent, int):
        bordered = has_borders(exprs, axis.var)
    else:
        others = [*variables[:-1], *variables_of(extent)]
        bordered = any(borders(exprs, axis.var, extent, others))
    return bordered or any(
        op_name(node) in COMPARISONS
        and is_integer(operands(node)[0])
        and any(form.coefficient(node_id(axis.var)) for form in _sides(node, variables))
        for node in nodes
    )


def _sides(node: Expr, variables: Sequence[Var]) -> list[Affine]:
    forms = affine_forms(list(operands(node)), variables)
    return [forms[node_id(part)] for part in operands(node) if node_id(part) in forms]


def worth_binding(values: Sequence[Expr]) -> list[Expr]:
    """The reads, and large or reading parts that occur twice, if they are certainly evaluated;
    inner ones first. Of values that are too large for TVM's passes, more parts.

    TVM walks expressions as trees, so the operands of a comparison would be repeated for each use.
    """
    reached = {node_id(node) for node in surely_evaluated(values)}
    uses: dict[int, int] = {}
    reads: set[int] = set()
    sizes: dict[int, int] = {}
    found = []
    order = postorder(list(values))
    indices = [index for node in order if is_load(node) for index in operands(node)]
    in_index = {node_id(part) for part in postorder(indices)}
    for node in order:
        for part in operands(node):
            uses[node_id(part)] = uses.get(node_id(part), 0) + 1
        if is_load(node) or any(node_id(part) in reads for part in operands(node)):
            reads.add(node_id(node))
        sizes[node_id(node)] = 1 + sum(sizes[node_id(part)] for part in operands(node))
    for node in order:
        key = node_id(node)
        shared = is_load(node) or uses.get(key, 0) > 1
        large = sizes[key] >= STORE and key not in in_index
        if shared and key in reached and (key in reads or large):
            found.append(node)
    if weight(values, found) <= MAX_WEIGHT:
        return found
    return _cut_small(order, {node_id(node) for node in found}, reached - in_index)


def _cut_small(order: Sequence[Expr], bound: set[int], allowed: set[int]) -> list[Expr]:
    """``f(a, g(b, h(c))) → t = h(c); u = g(b, t); f(a, u)``: the nodes that are bound, and as many
    of those that may be as keep what is between them small.
    """
    sizes: dict[int, int] = {}
    found = []
    for node in order:
        key = node_id(node)
        sizes[key] = weighed(node, [sizes[node_id(part)] for part in operands(node)])
        if key in bound or (sizes[key] > STORED and key in allowed):
            found.append(node)
            sizes[key] = 1
    return found


def without_branches(exprs: Sequence[Expr], loops: Loops) -> list[Expr]:
    """``if c then x[i] else 0 → select(c, x[i], 0)`` if i lies inside x in either case."""
    if not any(op_name(node) == "if_then_else" for node in postorder(list(exprs))):
        return unmarked(exprs, loops)
    forms, last = AffineForms(loops.variables), list(loops.variables[-1:])
    safety, is_plain = Safety(loops), Fold(partial(_is_plain, forms, last))
    plain = unmarked(exprs, loops)
    surely = with_sure_conditions(plain)

    def visit(node: Expr) -> Expr | None:
        if op_name(node) != "if_then_else":
            return None
        condition, *branches = operands(node)
        condition = surely(condition)
        keeps = holds_mark(condition) or not all(map(is_plain, branches))
        safe = None if keeps else safe_branches(branches, safety)
        return None if safe is None else select(condition, *safe)

    return list(map(Rewriter(visit), plain))


def _is_plain(forms: AffineForms, last: list[Var], node: Expr, parts: Sequence[bool]) -> bool:
    """Whether a branch takes little time: all reads are along lines of memory, or the same for the
    whole last loop.
    """
    if not all(parts) or op_name(node) in ("if_then_else", "floordiv", "floormod"):
        return False
    if not is_load(node):
        return True
    places = [index for index in operands(node) if forms.of(index) is None]
    return not any(depends_on(place, last) for place in places)
