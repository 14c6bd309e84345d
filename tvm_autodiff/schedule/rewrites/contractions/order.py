"""Finds the cheapest order of smaller sums for a sum of products of several tensors.

Each reduce axis concerns only the factors that depend on it, so their product can be summed over it
before it meets the others: variable elimination. The order with the fewest points is found by
trying all of them. A tile of the result multiplies once what its elements have in common: a point
costs one multiplication for any number of factors that lack loops of the result (up to one for each
loop), and one more for each that does not. What a sum does not change is multiplied after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, product
from math import prod
from typing import TypeVar

from ...cost import MAX_SEARCHED, STORE

Variables = frozenset[int]  #: numbers of loops
Merged = frozenset[int]  #: the numbers of the factors that one has been made of
Step = tuple[Variables, tuple[Merged, ...]]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Elimination:
    """A sum over `axes` of the product of factors, among them all that depend on one of the axes.

    Factors are numbered in order: those of the contraction, then the result of each elimination.
    """

    axes: Variables
    factors: tuple[int, ...]


@dataclass(frozen=True)
class Order:
    """Eliminations in order, their cost, and that of the sum as it is written.

    Attributes
    ----------
    points : int
        The cost of the eliminations if a point costs the same for any number of factors.
    """

    eliminations: list[Elimination]
    cost: int
    together: int
    points: int


def cheapest_order(
    factors: Sequence[Variables],
    kept: Variables,
    extents: Mapping[int, int],
    first: Elimination | None = None,
) -> Order:
    """The eliminations to do before the product of what remains, which cost least.

    Parameters
    ----------
    factors : sequence of frozenset of int
        The variables that each factor depends on.
    kept : frozenset of int
        The variables of the result; all others are summed over.
    extents : mapping from int to int
        The number of values of each variable.
    first : Elimination, optional
        An elimination whose result is there: the order begins with it, and it costs nothing.

    Examples
    --------
    >>> sizes = dict.fromkeys(range(4), 10)
    >>> chain = [frozenset({0, 1}), frozenset({1, 2}), frozenset({2, 3})]
    >>> cheapest_order(chain, frozenset({0, 3}), sizes).eliminations
    [Elimination(axes=frozenset({1}), factors=(0, 1))]
    >>> cheapest_order(chain[:2], frozenset({0, 2}), sizes).eliminations
    []
    """
    search = _Search(kept, extents)
    items = {frozenset([number]): factor for number, factor in enumerate(factors)}
    together = search.together(items.values())
    axes = groups_of(factors, kept, extents)
    steps: list[Step] = []
    if first is not None:
        bucket = tuple(frozenset([number]) for number in first.factors)
        steps.append((first.axes, bucket))
        items, axes = _eliminated(items, axes, first.axes, bucket)
    if min(len(axes), len(factors)) > MAX_SEARCHED:
        cost, following = search.together(items.values()), list[Step]()
    else:
        cost, following = search.best(items, axes)
    count = _points_of(items, following, search)
    return Order(_numbered([*steps, *following], len(factors)), cost, together, count)


def groups_of(
    factors: Sequence[Variables], kept: Variables, extents: Mapping[int, int]
) -> tuple[Variables, ...]:
    """The variables to sum over; those that the same factors depend on belong together."""
    groups: dict[tuple[int, ...], set[int]] = {}
    for variable in extents:
        readers = tuple(n for n, factor in enumerate(factors) if variable in factor)
        if readers and variable not in kept:
            groups.setdefault(readers, set()).add(variable)
    return tuple(map(frozenset, groups.values()))


def points(variables: Variables, extents: Mapping[int, int]) -> int:
    """The number of points of some loops."""
    return prod(extents[variable] for variable in variables)


def multiplications(
    factors: Sequence[Variables], kept: Variables, extents: Mapping[int, int]
) -> int:
    """Those of a sum: a tile of the result multiplies what lacks one of its loops for all elements
    along it, and what the sum does not change afterwards.

    Examples
    --------
    >>> rows, columns, both = frozenset({0, 2}), frozenset({1, 2}), frozenset({0, 1, 2})
    >>> sizes = dict.fromkeys(range(3), 10)
    >>> multiplications([rows, columns], frozenset({0, 1}), sizes)
    1000
    >>> multiplications([rows, columns, both], frozenset({0, 1}), sizes)
    2000
    """
    inside = [factor for factor in factors if not factor <= kept]
    partial = [factor for factor in inside if not kept <= factor]
    apart = (lacking for lacking in subsets(sorted(kept)) if _each_lacks(partial, lacking))
    parts = len(next(apart)) if partial else 0
    each = parts + len(inside) - len(partial) - 1
    return max(1, each) * points(kept.union(*factors), extents)


def _each_lacks(factors: Sequence[Variables], loops: Sequence[int]) -> bool:
    """Whether each factor does not depend on one of some loops."""
    return all(not factor.issuperset(loops) for factor in factors)


def subsets(items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    """All subsets but the empty one, small ones first."""
    for count in range(1, len(items) + 1):
        yield from combinations(items, count)


@dataclass(frozen=True)
class _Search:
    """All orders of eliminations, by their points and what they store.

    Attributes
    ----------
    known : dict
        What is left to do after some eliminations, which do not depend on their order.
    """

    kept: Variables
    extents: Mapping[int, int]
    known: dict[frozenset[tuple[Merged, Variables]], tuple[int, list[Step]]] = field(
        default_factory=dict
    )

    def together(self, factors: Iterable[Variables]) -> int:
        """The cost if everything that remains is one sum."""
        return multiplications(list(factors), self.kept, self.extents)

    def best(
        self, items: Mapping[Merged, Variables], groups: Sequence[Variables]
    ) -> tuple[int, list[Step]]:
        """The least cost and its eliminations."""
        state = frozenset(items.items())
        if state not in self.known:
            self.known[state] = self._searched(items, groups)
        return self.known[state]

    def _searched(
        self, items: Mapping[Merged, Variables], groups: Sequence[Variables]
    ) -> tuple[int, list[Step]]:
        cost, order = self.together(items.values()), list[Step]()
        for axes, bucket in self._buckets(items, groups):
            left = frozenset[int]().union(*(items[one] for one in bucket)) - axes
            here = multiplications([items[one] for one in bucket], left, self.extents)
            here += self.stored(left)
            if here >= cost:
                continue
            after, following = self.best(*_eliminated(items, groups, axes, bucket))
            if here + after < cost:
                cost = here + after
                order = [(axes, bucket), *following]
        return cost, order

    def _buckets(
        self, items: Mapping[Merged, Variables], groups: Sequence[Variables]
    ) -> Iterator[Step]:
        """Axes to sum over, with the factors that are multiplied before: those that depend on the
        axes, and any that depend on nothing else; not all factors.
        """
        for chosen in subsets(groups):
            axes: Variables = frozenset().union(*chosen)
            needed = [one for one, factor in items.items() if factor & axes]
            inside = frozenset[int]().union(*(items[one] for one in needed))
            free: dict[Variables, list[Merged]] = {}
            for one, factor in items.items():
                if factor and one not in needed and factor <= inside:
                    free.setdefault(factor, []).append(one)
            for more in _choices(list(free.values())):
                if len(needed) + len(more) < len(items):
                    yield axes, (*needed, *more)

    def stored(self, loops: Variables) -> int:
        """What it costs to store a sum: one that has the form of the result gets the other factors
        before.
        """
        return 0 if loops == self.kept else STORE * points(loops, self.extents)


def _choices(kinds: Sequence[Sequence[Item]]) -> Iterator[list[Item]]:
    """Any number of each kind of equal items, few first; of many none or all of each kind, of very
    many none or all.
    """
    numbers, most = [range(len(kind) + 1) for kind in kinds], 4**MAX_SEARCHED
    if prod(map(len, numbers)) > most:
        if 2 ** len(kinds) > most:
            kinds = [list(chain(*kinds))]
        numbers = [range(0, len(kind) + 1, len(kind)) for kind in kinds]
    for counts in sorted(product(*numbers), key=lambda one: (sum(one), [-n for n in one])):
        yield list(chain(*(kind[:count] for kind, count in zip(kinds, counts, strict=True))))


def _eliminated(
    items: Mapping[Merged, Variables],
    groups: Sequence[Variables],
    axes: Variables,
    bucket: Sequence[Merged],
) -> tuple[dict[Merged, Variables], tuple[Variables, ...]]:
    """The factors and axes that are left after an elimination."""
    rest = {one: factor for one, factor in items.items() if one not in bucket}
    result = frozenset[int]().union(*(items[one] for one in bucket)) - axes
    # a first elimination that others share may be over a part of a group
    others = tuple(group - axes for group in groups if not group <= axes)
    return {**rest, frozenset[int]().union(*bucket): result}, others


def _points_of(
    items: Mapping[Merged, Variables], steps: Sequence[Step], search: _Search
) -> int:
    """The points of some eliminations and of what is left, and what they store."""
    total = 0
    for axes, bucket in steps:
        loops = frozenset[int]().union(*(items[one] for one in bucket))
        total += points(loops, search.extents) + search.stored(loops - axes)
        items, _ = _eliminated(items, (), axes, bucket)
    return total + points(search.kept.union(*items.values()), search.extents)


def _numbered(steps: Sequence[Step], count: int) -> list[Elimination]:
    """Eliminations with numbers for the factors that they make."""
    numbers: dict[Merged, int] = {frozenset([n]): n for n in range(count)}
    found = []
    for axes, bucket in steps:
        found.append(Elimination(axes, tuple(sorted(numbers[one] for one in bucket))))
        # the sum of a single factor takes its place
        numbers[frozenset[int]().union(*bucket)] = count
        count += 1
    return found
