"""The choice of residuals as a problem about numbers, and its solution as a minimum cut.

In: tensors with what keeping them costs, stages with what computing them again costs. Out: which
tensors are kept and which stages are computed again, so that everything needed is there and the
total is least. No tensor of TVM occurs here.
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
        The number of the stage that computes it; None for an input.
    bytes : int
        What it takes of the budget; 0 for an input.
    price : int
        What it costs in time to keep it.
    """

    stage: int | None
    bytes: int
    price: int


@dataclass(frozen=True)
class Problem:
    """Tensors, stages and what is needed.

    Attributes
    ----------
    items : sequence of Item
    reads : sequence of tuples of int
        For each stage, the items that it reads.
    work : sequence of int
        For each stage, what computing it again costs.
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
        """What the kept items take of the budget."""
        return sum(problem.items[number].bytes for number in self.kept)

    def work(self, problem: Problem) -> int:
        """What computing stages again costs."""
        return sum(problem.work[number] for number in self.again)

    def price(self, problem: Problem) -> int:
        """What both cost in time."""
        return self.work(problem) + sum(problem.items[number].price for number in self.kept)


def cheapest(
    problem: Problem,
    rate: Fraction = Fraction(0),
    *,
    without: Collection[int] = (),
    always: Collection[int] = (),
    priced: bool = True,
) -> Choice:
    """The choice of least ``work + price + rate * bytes``, exact.

    An item is there if it is kept or its stage is computed again, for which what the stage reads
    must be there: with one element for "the item is there", one for "the stage is computed again"
    and one for both, which saves what keeping costs, that is a cheapest closed set.

    Parameters
    ----------
    rate : Fraction
        What a byte costs.
    without, always : collection of int
        Items not to keep, and items to keep.
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

    # of equal choices, the one that computes least again
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
    """What is computed again if these items may be kept; those that nothing reads are not."""
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
    # what is computed again anyway, for another output of its stage, need not be kept
    return Choice(
        frozenset(n for n in held if problem.items[n].stage not in again), frozenset(again)
    )
