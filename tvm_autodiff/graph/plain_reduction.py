"""Rewrites reductions to have neither `where=` nor `init=`, which TVM's lowering silently ignores,
nor literals of other dtypes than what is reduced, which it refuses.

Differentiation needs the second step, because an initial value is one more operand of the combiner.
Lowering needs all three.
"""

from __future__ import annotations

from dataclasses import replace

from ..expr.build import cast, if_then_else, true
from ..expr.nodes import Tensor, always, dtype_of, load
from .own_dtypes import is_of_one_dtype
from .stage import (
    Operation,
    Reduction,
    axis_vars,
    bodies,
    make_stage,
    reduction_of,
    reduction_stage,
    renew_axis,
    renewed_reduction,
)


def fold_condition(reduction: Reduction) -> Reduction:
    """``⊕_{k | c} source → ⊕_k (if c then source else identity)``, component by component."""
    if always(reduction.condition):
        return reduction
    sources = tuple(
        if_then_else(reduction.condition, source, identity)
        for source, identity in zip(reduction.sources, reduction.combiner.identity, strict=True)
    )
    return Reduction(reduction.combiner, sources, reduction.axes, true(), reduction.init)


def of_one_dtype(op: Operation) -> Operation:
    """A reducer in the dtypes of what it reduces: ``lambda t: 0.0f → lambda t: 0.0`` in float64."""
    reduction = reduction_of(op)
    if reduction is None or is_of_one_dtype(bodies(op)[0]):
        return op
    return reduction_stage(op.name, list(op.axis), reduction)[0].op


def split_init(op: Operation) -> tuple[list[Tensor], list[Tensor]]:
    """``init ⊕ (⊕_k source)`` as two stages: the combination, and the plain reduction it reads.

    Returns
    -------
    combination, plain : list of Tensor
        The outputs of the combining stage, over the axes of `op`, and of the reduction without
        init.
    """
    reduction = reduction_of(op)
    assert reduction is not None
    fresh = [renew_axis(axis) for axis in op.axis]
    moved = renewed_reduction(
        reduction, {old.var: new.var for old, new in zip(op.axis, fresh, strict=True)}
    )
    plain = reduction_stage(f"{op.name}_plain", fresh, replace(moved, init=()))
    here = axis_vars(op)
    pairs = zip(reduction.init, reduction.sources, strict=True)
    start = [cast(dtype_of(source), value) for value, source in pairs]
    body = reduction.combiner.apply(start, [load(tensor, here) for tensor in plain])
    return make_stage(op.name, list(op.axis), list(body), op.tag), plain
