"""Takes conditions that a sum does not change out of it, where the sum is a product without them.

    ``s[i, j] = Σ_k if c(i, j) and d(i, k) then x[i, k]*y[k, j] else 0  →
    p[i, j] = Σ_k if d(i, k) then x[i, k]*y[k, j] else 0,  s[i, j] = if c(i, j) then p[i, j]``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....expr.build import all_of, conjuncts, if_then_else, select, zero_like
from ....expr.nodes import BRANCHES, Expr, Tensor, is_const, load, op_name, operands, tensor_key
from ....expr.rewrite import contains_load, depends_on, expand_lets, map_loads, substituter
from ....graph.stage import (
    Operation,
    axis_vars,
    bodies,
    make_stage,
    reduction_of,
    reduction_stage,
    renewed,
)
from ...kernel import Kernel
from ...nest.in_range import is_safe, loops_of
from ...nest.reductions.products import is_sum, product_of


def without_outer_guards(kernel: Kernel) -> Kernel | None:
    """The kernel with such conditions in its epilogue; None if it is a product with them, or none
    without.
    """
    op = kernel.root
    reduction = reduction_of(op)
    if reduction is None or reduction.init or not is_sum(reduction):
        return None
    conditions, value = _guards_of(expand_lets(reduction.sources[0]))
    reduced = [axis.var for axis in reduction.axes]
    outer = [c for c in conditions if not depends_on(c, reduced) and not contains_load(c)]
    if not outer or not is_safe([value], loops_of([*op.axis, *reduction.axes])):
        return None
    if _is_product(op):
        return None
    inner = [c for c in conditions if depends_on(c, reduced) or contains_load(c)]
    source = if_then_else(all_of(inner), value, zero_like(value)) if inner else value
    spatial, table = renewed(op.axis)
    axes, more = renewed(reduction.axes)
    rename = substituter({**table, **more})
    whole = replace(
        reduction,
        sources=(rename(source),),
        axes=tuple(axes),
        condition=rename(reduction.condition),
    )
    root = reduction_stage(f"{op.name}_everywhere", spatial, whole)[0]
    if not _is_product(root.op):
        return None
    key = tensor_key(op.output(0))

    def chosen(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        if tensor_key(tensor) != key:
            return None
        here = substituter(dict(zip(axis_vars(op), indices, strict=True)))(all_of(outer))
        read = load(root, indices)
        return select(here, read, zero_like(read))

    reader = kernel.epilogue
    name, old = (op.name, list(op.axis)) if reader is None else (reader.name, list(reader.axis))
    roots = [load(op.output(0), axis_vars(op))] if reader is None else bodies(reader)
    own, moved = renewed(old)
    move = substituter(moved)
    body = [move(map_loads(expand_lets(one), chosen)) for one in roots]
    return replace(kernel, root=root.op, epilogue=make_stage(name, own, body)[0].op)


def _is_product(op: Operation) -> bool:
    product = product_of(op)
    return product is not None and len(product.operands) > 1


def _guards_of(source: Expr) -> tuple[list[Expr], Expr]:
    """``if c and d then (if e then f else 0) else 0  →  [c, d, e], f``."""
    conditions: list[Expr] = []
    while op_name(source) in BRANCHES and is_const(operands(source)[2], 0):
        condition, source, _ = operands(source)
        conditions += conjuncts(condition)
    return conditions, source
