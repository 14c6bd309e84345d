"""The derivative of a product: the seed times the product of the other factors.

In: a reduction with ``*``. Out: the seed at every factor, right with one, two or all factors zero,
in linear time: one pass computes P, the product of the factors that are not zero, and Z, the number
of zeros; the product of the others is P/F where Z is 0, P at the only zero where Z is 1, and 0
elsewhere. That expression has the right value and the wrong derivative (at zeros); so its stage
carries a mark, by which `stand_in` finds two scans of products to differentiate in its place.
"""

from __future__ import annotations

from ..ir.bounded_stage import bounded_stage
from ..ir.build import (
    add,
    all_of,
    cast,
    compare,
    const,
    div,
    if_then_else,
    like,
    mul,
    select,
    variable,
    zero_like,
)
from ..ir.nodes import Tensor, dtype_of, load, operands
from ..ir.stage import (
    Combiner,
    Operation,
    always,
    axis_vars,
    bodies,
    renew_axis,
)
from .around import combined_around, element_tensor
from .reducing import (
    Reducing,
    SourceSeed,
    copy_of_stage,
    elements_of,
    own_condition,
    zero_based,
)
from .terms import Contribution

#: attribute of a stage ``others[a, k] = Π_{k' != k} F(a, k')``: how many of its last axes are k
_MARK = "tvm_autodiff.product_of_others"


def product(stage: Reducing) -> list[SourceSeed]:
    """Π F → the seed times the product of the other factors, at every factor."""
    reduction, op = stage.reduction, stage.op
    source = stage.source
    dtype = dtype_of(source)
    left = (variable("product_lhs", dtype), variable("zeros_lhs"))
    right = (variable("product_rhs", dtype), variable("zeros_rhs"))
    combiner = Combiner(
        left,
        right,
        (mul(left[0], right[0]), add(left[1], right[1])),
        (const(1, dtype), const(0, "int32")),
    )
    is_zero = compare("eq", source, zero_like(source))
    counted = copy_of_stage(
        op,
        reduction,
        combiner,
        [select(is_zero, like(source, 1), source), cast("int32", is_zero)],
        "factors",
    )
    others = _product_of_others(stage, counted[0], counted[1])
    here = (*axis_vars(op), *zero_based(reduction.axes))
    value = mul(stage.seed, load(others, here))
    return [(stage.component, Contribution(value, own_condition(stage)))]


def _product_of_others(stage: Reducing, product: Tensor, zeros: Tensor) -> Tensor:
    """others[a, k] = Π_{k' != k} F(a, k'), computed from P and Z, marked to be differentiated
    plainly.
    """
    op, reduction = stage.op, stage.reduction
    places = elements_of(op, reduction)
    outer = [axis.var for axis in places.axes[: len(op.axis)]]
    factor = places.rename(stage.source)
    exists = all_of([places.inside, places.rename(reduction.condition)])
    if not always(exists):
        factor = if_then_else(exists, factor, like(factor, 1))
    all_others, count = load(product, outer), load(zeros, outer)
    the_zero = all_of(
        [compare("eq", count, like(count, 1)), compare("eq", factor, zero_like(factor))]
    )
    body = select(
        compare("eq", count, zero_like(count)),
        div(all_others, factor),
        select(the_zero, all_others, zero_like(all_others)),
    )
    attrs = {_MARK: len(reduction.axes)}
    return bounded_stage(f"{op.name}_others", places.axes, [body], attrs=attrs)[0]


def stand_in(op: Operation) -> Tensor | None:
    """The tensor of equal value to differentiate in place of a marked stage; None for other stages.

    ``others[a, k] = select(Z == 0, P/F, ...)
    →  others[a, k] = (Π_{k' < k} F(a, k'))·(Π_{k' > k} F(a, k'))``, two scans: linear again.
    """
    if _MARK not in (getattr(op, "attrs", None) or {}):
        return None
    rows = len(op.axis) - int(op.attrs[_MARK])
    factor = operands(operands(bodies(op)[0])[1])[1]
    factors = element_tensor(f"{op.name}_factors", list(op.axis), factor, rows)
    dtype = dtype_of(factor)
    lhs, rhs = variable("lhs", dtype), variable("rhs", dtype)
    combiner = Combiner((lhs,), (rhs,), (mul(lhs, rhs),), (const(1, dtype),))
    [before], [after] = combined_around(op.name, combiner, {0: factors}, {}, list(op.axis), rows)
    axes = [renew_axis(axis) for axis in op.axis]
    here = [axis.var for axis in axes]
    return bounded_stage(f"{op.name}_plain", axes, [mul(load(before, here), load(after, here))])[0]
