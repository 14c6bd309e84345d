"""Minimises the recomputation within a budget of bytes.

For a fixed price of a byte, the least work is a minimum cut (`problem.cheapest`). The best price
gives a lower bound and, rounded to the budget, a choice. If they differ, branch and bound decides
items one by one. Small problems are solved exactly; for large ones the number of cuts is limited.

References
----------
M. L. Fisher, "The Lagrangian relaxation method for solving integer programming problems",
Management Science 27 (1981).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from fractions import Fraction

from .problem import Choice, Problem, cheapest, recomputed_from

#: the maximum number of items times subproblems for branch and bound: a few seconds
_EFFORT = 20_000
#: the maximum number of items for improvements by single items
_MOST_SINGLE = 200


@dataclass(frozen=True)
class Within:
    """A choice within a budget, and a lower bound of the work of all such choices."""

    choice: Choice
    bound: int

    def exact(self, problem: Problem) -> bool:
        """Whether no other choice has less work."""
        return self.choice.work(problem) <= self.bound


@dataclass(frozen=True)
class _Node:
    """A subproblem: the items that are decided, a bound, and the item to decide next."""

    bound: int
    always: frozenset[int]
    without: frozenset[int]
    choice: Choice
    item: int | None


def within_budget(problem: Problem, budget: int) -> Within:
    """The choice with the least work whose kept items take at most `budget` bytes.

    Examples
    --------
    Two tensors of 8 bytes that take 3 and 5 to compute again from an input, and room for one:

    >>> from tvm_autodiff.partition.problem import Item
    >>> items = [Item(None, 0, 0), Item(0, 8, 0), Item(1, 8, 0)]
    >>> problem = Problem(items, [(0,), (0,)], [3, 5], [1, 2])
    >>> found = within_budget(problem, 8)
    >>> sorted(found.choice.kept), sorted(found.choice.again), found.exact(problem)
    ([0, 2], [0], True)
    """
    root = _node(problem, budget, frozenset(), frozenset())
    assert root is not None  # everything can be computed again from inputs
    best = root.choice
    left = max(1, _EFFORT // max(1, len(problem.items)))
    open_nodes: list[tuple[int, int, _Node]] = [(root.bound, 0, root)]
    bound, count = root.bound, 0
    while open_nodes:
        bound, _, node = open_nodes[0]
        if bound >= best.work(problem) or count >= left:
            break
        heapq.heappop(open_nodes)
        if node.item is None:
            continue
        for always, without in (
            (node.always | {node.item}, node.without),
            (node.always, node.without | {node.item}),
        ):
            count += 1
            part = _node(problem, budget, always, without)
            if part is None:
                continue
            if _order(problem, part.choice) < _order(problem, best):
                best = part.choice
            heapq.heappush(open_nodes, (max(part.bound, node.bound), count, part))
    else:
        bound = best.work(problem)
    return Within(best, min(bound, best.work(problem)))


def _order(problem: Problem, choice: Choice) -> tuple[int, int]:
    return choice.work(problem), choice.bytes(problem)


def _node(
    problem: Problem, budget: int, always: frozenset[int], without: frozenset[int]
) -> _Node | None:
    """The bound of a subproblem by the best price of a byte, or None if nothing fits."""

    def at(rate: Fraction) -> Choice:
        return cheapest(problem, rate, always=always, without=without, priced=False)

    total = sum(item.bytes for item in problem.items)
    # prefer fewer bytes for equal work, and less work for equal bytes
    least_work = at(Fraction(1, 1 + total))
    if least_work.bytes(problem) <= budget:
        return _Node(least_work.work(problem), always, without, least_work, None)
    least_bytes = at(Fraction(1 + sum(problem.work)))
    if least_bytes.bytes(problem) > budget:
        return None
    over, fits = least_work, least_bytes
    while True:
        steps = over.bytes(problem) - fits.bytes(problem)
        rate = Fraction(fits.work(problem) - over.work(problem), steps)
        line = over.work(problem) + rate * over.bytes(problem)
        found = at(rate)
        if found.work(problem) + rate * found.bytes(problem) >= line:
            break
        if found.bytes(problem) <= budget:
            fits = found
        else:
            over = found
    bound = -int((rate * budget - line) // 1)  # rounded up: work is a whole number
    choice = _improved(problem, budget, fits, without)
    split = sorted(over.kept - fits.kept - always)
    splitting = [number for number in split if problem.items[number].bytes]
    item = max(splitting, key=lambda number: problem.items[number].bytes, default=None)
    return _Node(bound, always, without, choice, item)


def _improved(problem: Problem, budget: int, choice: Choice, without: frozenset[int]) -> Choice:
    """The choice with further items kept, one by one, as long as they fit."""
    if len(problem.items) > _MOST_SINGLE:
        return choice
    while True:
        best = choice
        for number, item in enumerate(problem.items):
            if item.stage not in choice.again or number in problem.banned or number in without:
                continue
            found = recomputed_from(problem, choice.kept | {number})
            if found.bytes(problem) <= budget and _order(problem, found) < _order(problem, best):
                best = found
        if best is choice:
            return choice
        choice = best
