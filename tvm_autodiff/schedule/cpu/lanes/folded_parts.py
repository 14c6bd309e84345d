"""The folded form of one state over parts of time: ``h' = a·h + b`` over a whole part.

A product that overflows, or one that is too small for its dtype while the preceding state is not,
makes the folded form unreliable. Therefore a bound of the product is kept that never falls below a
threshold; where it exceeds the product, the difference shows the possible loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....codegen.loop_nest import Local, Statement, element, local, sequence, store
from ....expr.build import add, all_of, any_of, call, compare, const, mul, select, sub, true
from ....expr.nodes import Expr, Var, binary, const_value, dtype_of, is_float


@dataclass(frozen=True)
class Folded:
    """One state over all parts, a number for each of them.

    Attributes
    ----------
    factor : Expr
        The factor of a step.
    starts : Local
        The state before each part, and after the last one.
    sums : Local
        The result of each part for a zero state.
    products, bounds : Local or None
        The product of its factors, and a bound of its size; None if all factors are one or zero.
    """

    factor: Expr
    starts: Local
    sums: Local
    products: Local | None
    bounds: Local | None

    @staticmethod
    def of(var: Var, factor: Expr, parts: int) -> Folded:
        """Allocate a state for several parts."""
        name, dtype = str(var.name), dtype_of(var)
        starts = local(f"{name}_starts", [parts + 1], dtype)
        sums = local(f"{name}_sums", [parts], dtype)
        if const_value(factor) in (0, 1):
            return Folded(factor, starts, sums, None, None)
        products, bounds = (local(f"{name}_{which}", [parts], dtype) for which in ("a", "bound"))
        return Folded(factor, starts, sums, products, bounds)

    @property
    def buffers(self) -> list[Local]:
        """All that it keeps."""
        places = (self.starts, self.sums, self.products, self.bounds)
        return [place for place in places if place is not None]

    def after(self, part: Expr) -> tuple[Expr, Expr]:
        """The state after a part, and whether its rounding error is that of single steps.

        ``a·h + b``, where ``(bound - |a|)·|h|`` must be negligible beside it, or zero.
        """
        start, total = element(self.starts, [part]), element(self.sums, [part])
        if const_value(self.factor) == 0:
            return total, _is_finite(total)
        if self.products is None or self.bounds is None:
            after = add(start, total)
            return after, _is_finite(after)
        factor, bound = element(self.products, [part]), element(self.bounds, [part])
        after, dtype = add(mul(factor, start), total), dtype_of(start)
        lost = mul(sub(bound, call("abs", factor)), call("abs", start))
        limits = np.finfo(dtype)
        small = mul(const(float(limits.eps), dtype), call("abs", after))
        none = const(float(limits.tiny), dtype)
        nothing = any_of([compare("le", lost, small), compare("le", lost, none)])
        return after, all_of([_is_finite(after), nothing])


def multiplied(product: Local, bound: Local, lane: Expr, factor: Expr) -> Statement:
    """``a ← a·factor``, set to zero below the threshold, and a bound of its size that is never
    zero.
    """
    dtype = dtype_of(factor)
    least, new = const(_floor(dtype), dtype), mul(element(product, [lane]), factor)
    size = mul(element(bound, [lane]), call("abs", factor))
    fits = compare("ge", call("abs", new), least)
    return sequence(
        [
            store(product, select(fits, new, const(0, dtype)), [lane]),
            store(bound, binary("max", size, least), [lane]),
        ]
    )


def _floor(dtype: str) -> float:
    """The threshold below which a product counts as zero.

    Above it, the next factor rarely makes a subnormal number, which takes a processor a hundred
    times as long.
    """
    limits = np.finfo(dtype)
    return float(limits.tiny / limits.eps)


def _is_finite(value: Expr) -> Expr:
    if not is_float(value):
        return true()
    most = const(float(np.finfo(dtype_of(value)).max), dtype_of(value))
    return compare("le", call("abs", value), most)
