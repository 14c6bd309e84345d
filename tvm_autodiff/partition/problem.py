"""The choice of residuals as a problem about numbers, and its solution as a minimum cut.

Tensors have a cost of keeping them, and stages a cost of recomputing them. The solution keeps
tensors and recomputes stages so that everything needed exists at the least total cost. This file
does not use TVM.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from .closure import cheapest_closure


@dataclass(frozen=True)
class Item:
    """A tensor that may be kept.

    Attributes
    ----------
    stage : int or None
        The number of the stage that computes it, or None for an input.
    bytes : int
        Its part of the budget, which is 0 for an input.
    price : int
        The time cost of keeping it.
    """

    stage: int | None
    bytes: int
    price: int


@dataclass(frozen=True)
class Problem:
    """Tensors, stages and the tensors that are needed.

    Attributes
    ----------
    items : sequence of Item
    reads : sequence of tuples of int
        The items that each stage reads.
    work : sequence of int
        The cost of recomputing each stage.
    needed : sequence of int
        Items that the backward pass reads.
    banned : frozenset of int
        Items that are never kept.
    """

    items: Sequence[Item]
    reads: Sequence[tuple[int, ...]]
    work: Sequence[int]
    needed: Sequence[int]
    banned: frozenset[int] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Choice:
    """A solution.

    Attributes
    ----------
    kept : frozenset of int
        Items, inputs among them.
    again : frozenset of int
        Stages.
    """

    kept: frozenset[int]
    again: frozenset[int]

    def bytes(self, problem: Problem) -> int:
        """The bytes of the kept items."""
        return sum(problem.items[number].bytes for number in self.kept)

    def work(self, problem: Problem) -> int:
        """The cost of recomputing stages."""
        return sum(problem.work[number] for number in self.again)

    def price(self, problem: Problem) -> int:
        """The time cost of both."""
        return self.work(problem) + sum(problem.items[number].price for number in self.kept)


def cheapest(
    problem: Problem,
    rate: Fraction = Fraction(0),
    *,
    without: Collection[int] = (),
    always: Collection[int] = (),
    priced: bool = True,
) -> Choice:
    """The exact choice with the least ``work + price + rate * bytes``.

    An item is available if it is kept or its stage is recomputed, which requires the items that the
    stage reads. With one element for "the item is available", one for "the stage is recomputed" and
    one for both, which saves the cost of keeping, this is a cheapest closed set.

    Parameters
    ----------
    rate : Fraction
        The cost of a byte.
    without, always : collection of int
        Items that must not be kept, and items that must be kept.
    priced : bool
        Whether the prices of items count.
    """
    costs: list[int] = []
    implications: list[tuple[int, int]] = []
    p, q = rate.numerator, rate.denominator
    banned = problem.banned | frozenset(without)

    def element(cost: int) -> int:
        costs.append(cost)
        return len(costs) - 1

    # of equal choices, take the one that recomputes least
    stages = [element(q * work * _FINE + 1) for work in problem.work]
    there = []
    for number, item in enumerate(problem.items):
        price = ((item.price * q if priced else 0) + p * item.bytes) * _FINE
        place = element(price if item.stage is None or number not in banned else 0)
        there.append(place)
        if item.stage is None:
            continue
        if number in banned:
            implications.append((place, stages[item.stage]))
        elif number not in always:
            both = element(-price)
            implications += [(both, place), (both, stages[item.stage])]
    for number, reads in enumerate(problem.reads):
        implications += [(stages[number], there[read]) for read in reads]
    required = [there[number] for number in {*problem.needed, *always}]
    found = cheapest_closure(costs, implications, required)
    again = frozenset(n for n, place in enumerate(stages) if place in found)
    held = {*problem.needed, *always, *(read for n in again for read in problem.reads[n])}
    kept = frozenset(
        number for number in held if number in always or problem.items[number].stage not in again
    )
    return Choice(kept, again)


#: finer than any number of stages, so that these only break ties
_FINE = 1 << 20


def recomputed_from(problem: Problem, kept: Collection[int]) -> Choice:
    """The stages that are recomputed if these items may be kept; unused items are dropped."""
    again: set[int] = set()
    held: set[int] = set()
    seen: set[int] = set()
    pending = list(problem.needed)
    while pending:
        number = pending.pop()
        if number in seen:
            continue
        seen.add(number)
        stage = problem.items[number].stage
        if stage is None or number in kept:
            held.add(number)
        elif stage not in again:
            again.add(stage)
            pending += problem.reads[stage]
    # an item that is recomputed anyway, for another output of its stage, is not kept
    return Choice(
        frozenset(n for n in held if problem.items[n].stage not in again), frozenset(again)
    )
