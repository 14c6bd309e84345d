"""Writes the stages of a sum of products: one for each elimination, and what is left of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from ....expr.build import div, like, multiplied
from ....expr.nodes import Axis, Expr, Tensor, const_value, dtype_of, load
from ....expr.rewrite import substituter
from ....graph.sizes.nonnegative import nonnegative, not_empty
from ....graph.stage import (
    Reduction,
    axis_range,
    data_axis,
    reduction_stage,
    renewed_reduction,
)
from ....graph.structural import EqualStages
from ...nest.in_range import is_safe, loops_of
from ...nest.reductions.operand_values import distinct, guarded, operand_value
from .order import Elimination, Variables
from .shared import Shared
from .terms import Contraction, divisor_of


@dataclass
class Results:
    """The stages of eliminations, for those that need them again."""

    equal: EqualStages = field(default_factory=EqualStages)
    shared: dict[Hashable, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Rest:
    """What is left of a contraction: the sum of a value over some axes, or the value."""

    reduction: Reduction
    summed: tuple[Axis, ...]
    value: Expr

    def renamed(self, old: Sequence[Axis], new: Sequence[Axis]) -> Rest:
        """The same over other data axes."""
        rename = substituter({a.var: b.var for a, b in zip(old, new, strict=True)})
        return replace(self, value=rename(self.value))

    def stage(self, name: str, axes: Sequence[Axis]) -> list[Tensor]:
        """The stage that sums it."""
        reduction = replace(self.reduction, axes=self.summed, sources=(self.value,))
        return reduction_stage(name, axes, renewed_reduction(reduction, {}))


class Stages:
    """The stages of a contraction in some order."""

    def __init__(self, contraction: Contraction, results: Results, name: str) -> None:
        self._contraction = contraction
        self._results, self._name = results, name
        self._axes = contraction.axes
        #: the conditions, value and loops of each factor
        self._factors: list[tuple[list[Expr], Expr, Variables]] = []
        # no condition protects a read that the sum performs at all of its points
        sizes = [axis_range(axis)[1] for axis in self._axes]
        conditional = any(operand.guards for operand in contraction.factors)
        conditional |= not all(isinstance(size, int) and size for size in sizes)
        for operand, loops in zip(contraction.factors, contraction.variables(), strict=True):
            conditions, value = list[Expr](), operand.expr
            if conditional:
                conditions, value = operand_value(operand, contraction.loops)
            self._factors.append((conditions, value, loops))
        # else a factor may divide by zero or read outside of its tensor where a sum has no terms
        self._is_total = all(
            operand.is_load and self._reads_inside(operand.expr, loops)
            for operand, (_, _, loops) in zip(contraction.factors, self._factors, strict=True)
        ) and all(const_value(factor) is not None for factor in contraction.scale)

    def of(self, order: Sequence[Elimination], first: Shared | None) -> Rest:
        """What is left after some eliminations."""
        left = list(range(len(self._factors)))
        for elimination in order:
            left = [factor for factor in left if factor not in elimination.factors]
            left.append(len(self._factors))
            self._factors.append(self._eliminated(elimination, first))
            first = None
        used = frozenset[int]().union(*(self._factors[number][2] for number in left))
        numbers = sorted(self._contraction.summed & used)
        summed = tuple(self._axes[number] for number in numbers)
        value = self._product(left, self._contraction.scale)
        return Rest(self._contraction.reduction, summed, value)

    def _eliminated(
        self, elimination: Elimination, shared: Shared | None
    ) -> tuple[list[Expr], Expr, Variables]:
        """The result of an elimination as a factor."""
        used = frozenset[int]().union(*(self._factors[n][2] for n in elimination.factors))
        left = used - elimination.axes
        kept = [self._axes[n] for n in (sorted(left) if shared is None else shared.kept)]
        known = self._results.shared.get(shared.key) if shared is not None else None
        tensor = known if known is not None else self._summed(elimination, kept)
        if shared is not None:
            self._results.shared[shared.key] = tensor
        summed = [self._axes[number] for number in sorted(elimination.axes)]
        conditions = [] if self._is_total else not_empty(summed)
        return conditions, load(tensor, [axis.var for axis in kept]), left

    def _reads_inside(self, read: Expr, loops: Variables) -> bool:
        """Whether a read is in bounds without the loops that it does not depend on."""
        return is_safe([read], loops_of([self._axes[number] for number in sorted(loops)]))

    def _summed(self, elimination: Elimination, kept: Sequence[Axis]) -> Tensor:
        """The stage of an elimination over some axes, or an equal one."""
        summed = tuple(self._axes[number] for number in sorted(elimination.axes))
        axes = [data_axis(str(axis.var.name), nonnegative(axis_range(axis)[1])) for axis in kept]
        value = self._product(elimination.factors, ())
        rest = Rest(self._contraction.reduction, summed, value).renamed(kept, axes)
        [made] = rest.stage(self._name, axes)
        return self._results.equal.first(made.op).output(0)

    def _product(self, numbers: Sequence[int], scale: Sequence[Expr]) -> Expr:
        """The product of some factors, divided by those that are reciprocals."""
        # sums have the highest numbers, and their conditions hold where the others are evaluated
        order = sorted(numbers, reverse=True)
        conditions = [c for number in order for c in self._factors[number][0]]
        parts = [self._factors[number][1:] for number in numbers]
        above = [(value, loops) for value, loops in parts if divisor_of(value) is None]
        left = []
        for factor, loops in parts:
            divisor = divisor_of(factor)
            # the factor of the fewest loops is divided, not the product, which may leave float16
            narrow = dtype_of(factor) == "float16"
            wider = [n for n, (_, own) in enumerate(above) if loops <= own and not narrow]
            if divisor is not None and wider:
                place = min(wider, key=lambda n: len(above[n][1]))
                above[place] = div(above[place][0], divisor), above[place][1]
            elif divisor is not None:
                left.append(divisor)
        value = multiplied([*(one for one, _ in above), *scale] or [like(parts[0][0], 1.0)])
        for divisor in left:
            value = div(value, divisor)
        return guarded(distinct(conditions, self._contraction.loops.variables), value)
