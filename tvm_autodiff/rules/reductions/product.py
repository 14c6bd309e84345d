"""The derivative of a product: the seed times the product of the other factors.

It is correct with one, two or all factors zero, and takes linear time. One pass computes P, the
product of the non-zero factors, and Z, the number of zeros. The product of the others is P/F if Z
is 0, P at the only zero if Z is 1, and 0 elsewhere. P has a separate exponent, so that it neither
underflows nor overflows. This expression has the right value but the wrong derivative at zeros, so
an equal form, two scans of products, is differentiated instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...expr.build import (
    add,
    call,
    cast,
    compare,
    const,
    div,
    if_then_else,
    like,
    mul,
    select,
    sub,
    variable,
    zero_like,
)
from ...expr.nodes import Expr, Tensor, Var, dtype_of, load, tensor_key
from ...expr.rewrite import loaded_tensors, tree_size
from ...expr.sharing.lets import bind_shared
from ...graph.bounded_stage import bounded_stage
from ...graph.graph import replace_tensors, tensors_read_by
from ...graph.kinds.custom import Rule, custom_stage
from ...graph.stage import Axis, Combiner, axis_vars, renew_axis
from ..terms import Contribution
from .prefix_suffix import combined_prefix_suffix, element_tensor
from .reducing import (
    Reducing,
    SourceSeed,
    copy_of_stage,
    elements_of,
    own_condition,
    zero_based,
)

#: the maximum number of nodes of a factor that is repeated wherever it is needed
_MOST_NODES = 16


def product(stage: Reducing) -> list[SourceSeed]:
    """Π F → the seed times the product of the other factors, at every factor."""
    reduction, op = stage.reduction, stage.op
    scaling = _Scaling(dtype_of(stage.source))
    factors = _Factors(stage, scaling.dtype)
    source = factors.at(
        (*axis_vars(op), *zero_based(reduction.axes)), cast(scaling.dtype, stage.source)
    )
    left, right = map(scaling.variables, ("lhs", "rhs"))
    significand, exponent = scaling.multiplied(left[:2], right[:2])
    combiner = Combiner(
        left,
        right,
        (significand, exponent, add(left[2], right[2])),
        (const(1, scaling.dtype), const(0, "int32"), const(0, "int32")),
    )
    is_zero = compare("eq", source, zero_like(source))
    parts = scaling.split(select(is_zero, like(source, 1), source))
    counted = copy_of_stage(op, reduction, combiner, [*parts, cast("int32", is_zero)], "factors")
    others = _product_of_others(stage, scaling, counted, factors)
    here = (*axis_vars(op), *zero_based(reduction.axes))
    value = mul(stage.seed, load(others, here))
    return [(stage.component, Contribution(value, own_condition(stage)))]


class _Factors:
    """The factors, each 1 if there is none, as expressions or as a stored tensor.

    They occur many times in what follows, so only short expressions are not stored. bfloat16 is
    always stored, because TVM treats its bits as integers when one element is converted many times.
    """

    def __init__(self, stage: Reducing, dtype: str) -> None:
        self.places = elements_of(stage.op, stage.reduction)
        one, rename = const(1, dtype), self.places.rename
        # a condition may read variables that exist only inside
        counted = if_then_else(
            rename(stage.reduction.condition), rename(cast(dtype, stage.source)), one
        )
        self.everywhere = if_then_else(self.places.inside, counted, one)
        self._tensor: Tensor | None = None
        if dtype_of(stage.source) == "bfloat16" or tree_size(stage.source) > _MOST_NODES:
            axes, rows = self.places.axes, len(stage.op.axis)
            name = f"{stage.op.name}_elements"
            self._tensor = element_tensor(name, axes, bind_shared(self.everywhere), rows)
            self.everywhere = self.at([axis.var for axis in axes], self.everywhere)

    def at(self, place: Sequence[Expr], expr: Expr) -> Expr:
        """The factor at an index, where it is `expr`."""
        if self._tensor is None:
            return expr
        return load(self._tensor, place[len(place) - len(self._tensor.shape) :])


def _product_of_others(
    stage: Reducing, scaling: _Scaling, counted: Sequence[Tensor], factors: _Factors
) -> Tensor:
    """others[a, k] = Π_{k' != k} F(a, k'), computed from P and Z, and differentiated as scans."""
    op = stage.op
    axes, factor = factors.places.axes, factors.everywhere
    outer = [axis.var for axis in axes[: len(op.axis)]]
    one = const(1, scaling.dtype)
    significand, exponent, zeros = (load(tensor, outer) for tensor in counted)
    is_zero = compare("eq", factor, zero_like(factor))
    own, scale = scaling.split(select(is_zero, one, factor))
    whole = scaling.value(div(significand, own), sub(exponent, scale))
    only = compare("eq", zeros, cast("int32", is_zero))
    body = cast(dtype_of(stage.source), select(only, whole, zero_like(whole)))
    name, rows = f"{op.name}_others", len(op.axis)
    value = bounded_stage(name, axes, [body])
    elements = element_tensor(f"{op.name}_factors", axes, factor, rows)
    own = tensor_key(elements)
    read = any(tensor_key(tensor) == own for tensor in loaded_tensors(factor))
    reads = [elements] if read else tensors_read_by(elements.op)
    form = partial(_scanned_products, name, dtype_of(stage.source), axes, rows, elements, reads)
    return custom_stage(name, value, reads, Rule(form=form))[0]


def _scanned_products(
    name: str,
    dtype: str,
    axes: Sequence[Axis],
    rows: int,
    elements: Tensor,
    reads: Sequence[Tensor],
    inputs: Sequence[Tensor],
) -> list[Tensor]:
    """``others[a, k] = (Π_{k' < k} F(a, k'))·(Π_{k' > k} F(a, k'))``: two scans, in linear time."""
    [factors] = replace_tensors([elements], list(zip(reads, inputs, strict=True)))
    factor_dtype = dtype_of(factors)
    lhs, rhs = variable("lhs", factor_dtype), variable("rhs", factor_dtype)
    combiner = Combiner((lhs,), (rhs,), (mul(lhs, rhs),), (const(1, factor_dtype),))
    [before], [after] = combined_prefix_suffix(name, combiner, {0: factors}, {}, list(axes), rows)
    here = [renew_axis(axis) for axis in axes]
    place = [axis.var for axis in here]
    value = cast(dtype, mul(load(before, place), load(after, place)))
    return bounded_stage(f"{name}_plain", here, [value])


class _Scaling:
    """Numbers as ``significand * unit**exponent``, so that no product overflows the dtype.

    A significand lies between the square roots of 1/unit and unit, a product of two between 1/unit
    and unit. Units are powers of two, so scaling does not round.

    Attributes
    ----------
    dtype : str
        The dtype of the significands: float32 for narrower numbers.
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = "float64" if dtype == "float64" else "float32"
        bits = 512 if dtype == "float64" else 64
        self._down, self._up = (const(2.0**n, self.dtype) for n in (-bits, bits))
        self._limits = [2.0 ** (n * bits / 2) for n in (1, 3)]

    def variables(self, side: str) -> tuple[Var, Var, Var]:
        """The significand, exponent and number of zeros of one side of a combiner."""
        product = variable(f"product_{side}", self.dtype)
        return product, variable(f"scale_{side}"), variable(f"zeros_{side}")

    def split(self, number: Expr) -> tuple[Expr, Expr]:
        """The significand and exponent of a non-zero number."""
        significand, exponent = cast(self.dtype, number), const(0, "int32")
        size = call("abs", significand)
        for limit in self._limits:
            large = compare("ge", size, const(limit, self.dtype))
            small = compare("lt", size, const(1 / limit, self.dtype))
            significand, exponent = self._moved(significand, exponent, large, small)
        return significand, exponent

    def multiplied(self, left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, Expr]:
        """The product of two numbers, each a significand and an exponent."""
        whole, size = mul(left[0], right[0]), call("abs", mul(left[0], right[0]))
        large = compare("ge", size, const(self._limits[0], self.dtype))
        small = compare("lt", size, const(1 / self._limits[0], self.dtype))
        return self._moved(whole, add(left[1], right[1]), large, small)

    def _moved(
        self, significand: Expr, exponent: Expr, large: Expr, small: Expr
    ) -> tuple[Expr, Expr]:
        """The same number with another exponent if the significand is large or small."""
        factor = select(large, self._down, select(small, self._up, const(1, self.dtype)))
        up, none, down = (const(step, "int32") for step in (1, 0, -1))
        step = select(large, up, select(small, down, none))
        return mul(significand, factor), add(exponent, step)

    def value(self, significand: Expr, exponent: Expr) -> Expr:
        """The number, for a quotient of two significands.

        Beyond four units it is zero or infinite for every exponent.
        """
        for step in range(1, 5):
            larger = compare("ge", exponent, const(step, "int32"))
            smaller = compare("le", exponent, const(-step, "int32"))
            factor = select(larger, self._up, select(smaller, self._down, const(1, self.dtype)))
            significand = mul(significand, factor)
        return significand
