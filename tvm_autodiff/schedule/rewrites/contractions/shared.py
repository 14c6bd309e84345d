"""Finds sums that several contractions can begin with, so that they are computed once.

The gradients of a quotient or of a function of a contraction contain the same contraction up to
factors that its sum does not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from ....expr.nodes import Var
from ....expr.structural import StructuralKeys
from ....graph.stage import axis_range
from ...cost import MARGIN, MAX_SEARCHED, STORE
from .order import Elimination, cheapest_order, groups_of, multiplications, points, subsets
from .terms import Contraction, operations_of

Place = tuple[int, int]  #: the numbers of a stage and of a term in it


@dataclass(frozen=True)
class Term:
    """A contraction of a program, and what its own order costs."""

    place: Place
    contraction: Contraction
    cost: int


@dataclass(frozen=True)
class Shared:
    """An elimination that several terms begin with, and the loops of its result in order."""

    key: Hashable
    elimination: Elimination
    kept: tuple[int, ...]


@dataclass(frozen=True)
class _Use:
    """A term that may begin with a shared elimination, and what is left to compute then.

    Attributes
    ----------
    evaluation : int
        The operations of the factors of the elimination, each at the points of its loops.
    """

    term: Term
    shared: Shared
    left: int
    evaluation: int

    @property
    def cost(self) -> int:
        """The operations of the term in its own order."""
        return self.term.cost + self.evaluation


def shared_eliminations(terms: Sequence[Term]) -> dict[Place, Shared]:
    """For each term the elimination that it shares with others, if that saves work.

    Those that save most are chosen first, one for each term.
    """
    uses: dict[Hashable, list[_Use]] = {}
    for use in _uses(terms):
        uses.setdefault(use.shared.key, []).append(use)
    chosen: dict[Place, Shared] = {}
    for group in sorted(uses.values(), key=_saved, reverse=True):
        left = _apart([use for use in group if use.term.place not in chosen])
        separate = sum(use.cost for use in left)
        if len(left) > 1 and MARGIN * (separate - _saved(left)) <= separate:
            chosen.update({use.term.place: use.shared for use in left})
    return chosen


def _apart(uses: Sequence[_Use]) -> list[_Use]:
    """The uses without stages that are equal as wholes but for the last one: the normal form has
    kept those apart, as what a checkpoint computes again.
    """
    whole = [use for use in uses if not use.left]
    return [*(use for use in uses if use.left), *whole[-1:]]


def _saved(uses: Sequence[_Use]) -> int:
    """The operations that a shared elimination saves, without its own."""
    contraction, shared = uses[0].term.contraction, uses[0].shared
    extents = contraction.extents()
    variables = contraction.variables()
    factors = [variables[number] for number in shared.elimination.factors]
    own = multiplications(factors, frozenset(shared.kept), extents) + uses[0].evaluation
    if all(use.left for use in uses):  # else it takes the place of a stage
        own += STORE * points(frozenset(shared.kept), extents)
    return sum(use.cost - use.left for use in uses) - own


def _uses(terms: Sequence[Term]) -> Iterator[_Use]:
    """The eliminations that more than one term may begin with."""
    keys = StructuralKeys()
    alike: dict[Hashable, list[tuple[Term, Elimination]]] = {}
    for term in terms:
        for elimination in _beginnings(term.contraction):
            rough = _rough_key(term.contraction, elimination, keys)
            alike.setdefault(rough, []).append((term, elimination))
    for group in alike.values():
        if len(group) == 1:
            continue
        known: set[Hashable] = set()
        for term, elimination in group:
            shared = _shared(term.contraction, elimination, keys, known)
            left = _left(term.contraction, shared)
            if left < term.cost:
                yield _Use(term, shared, left, _evaluation(term.contraction, elimination))


def _evaluation(term: Contraction, one: Elimination) -> int:
    """The operations of the factors of an elimination, each at the points of its loops."""
    extents, loops = term.extents(), term.variables()
    return sum(
        operations_of([term.factors[number].expr]) * points(loops[number], extents)
        for number in one.factors
    )


def _beginnings(term: Contraction) -> Iterator[Elimination]:
    """Sums of the factors that depend on some axes, over these axes."""
    variables = term.variables()
    groups = groups_of(variables, term.kept, term.extents())
    if len(groups) > MAX_SEARCHED or len(term.axes) > 2 * MAX_SEARCHED:
        return
    for some in subsets(groups):
        axes = frozenset[int]().union(*some)
        factors = tuple(n for n, factor in enumerate(variables) if factor & axes)
        if len(factors) > 1:
            yield Elimination(axes, factors)
    # what several sums compute at each point, over the axes that nothing else depends on
    for number, factor in enumerate(variables):
        others = frozenset[int]().union(*variables[:number], *variables[number + 1 :])
        alone = sorted(factor - others - term.kept)
        if not term.factors[number].is_load and len(alone) <= MAX_SEARCHED:
            yield from (Elimination(frozenset(some), (number,)) for some in subsets(alone))


def _left(term: Contraction, shared: Shared) -> int:
    """The cost of a term whose first elimination is there."""
    elimination = shared.elimination
    alone = len(elimination.factors) == len(term.factors) and not term.scale
    if alone and shared.kept == tuple(range(len(term.op.axis))):
        return 0
    return cheapest_order(term.variables(), term.kept, term.extents(), elimination).cost


def _rough_key(term: Contraction, one: Elimination, keys: StructuralKeys) -> Hashable:
    """Equal for equal eliminations, whatever the order of their loops."""
    numbers = {
        axis.var: (keys.extents([axis_range(axis)[1]]), number in one.axes)
        for number, axis in enumerate(term.axes)
    }
    return _factor_keys(term, one, keys, numbers)


def _shared(
    term: Contraction, one: Elimination, keys: StructuralKeys, known: set[Hashable]
) -> Shared:
    """An elimination as one that is known, or as a new one."""
    variables = term.variables()
    kept = sorted(frozenset[int]().union(*(variables[n] for n in one.factors)) - one.axes)

    def key_of(loops: Sequence[int]) -> Hashable:
        extents = keys.extents([axis_range(term.axes[loop])[1] for loop in loops])
        places = {term.axes[loop].var: place for place, loop in enumerate(loops)}
        return extents, len(kept), _factor_keys(term, one, keys, places)

    summed = sorted(one.axes)
    orders = [(tuple(kept), tuple(summed))]
    if len(kept) + len(summed) <= MAX_SEARCHED:
        orders = list(product(permutations(kept), permutations(summed)))
    for first, last in orders:
        key = key_of((*first, *last))
        if key in known:
            return Shared(key, one, first)
    key = key_of((*kept, *summed))
    known.add(key)
    return Shared(key, one, tuple(kept))


def _factor_keys(
    term: Contraction, one: Elimination, keys: StructuralKeys, numbers: Mapping[Var, Hashable]
) -> Hashable:
    """The factors, in any order."""
    found = Counter(
        tuple(keys.expr(part, numbers) for part in (factor.expr, *factor.guards))
        for factor in (term.factors[number] for number in one.factors)
    )
    return frozenset(found.items())
