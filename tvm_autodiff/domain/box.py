"""Turns linear inequalities over free variables into a box that starts at zero.

Each variable is expressed in new variables, which run from 0 to an extent that contains no index
parameter (it is constant, or symbolic in sizes). Inequalities that the box does not imply remain as
guards. Several orders and bases of the variables are tried, and the smallest box is chosen.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .affine import Atoms
from .bounds import Facts
from .forms import (
    CONST,
    Form,
    combine,
    is_constant,
    scaled,
    shifted,
    substitute_linear,
)
from .nominal import nominal
from .solvers.inequalities import project
from .solvers.integers import Matrix, determinant, identity_matrix, inverse_unimodular

_MAX_CANDIDATES = 12
_MAX_BOUNDS = 6  #: of each kind compared for one variable
_MAX_WORK = 300  #: bounds computed for one box before no further candidate is tried


@dataclass
class Box:
    """A box, and how it relates to the original variables.

    Attributes
    ----------
    variables : list of int
        Atoms of the new variables.
    extents : dict of variable to Form
    values : dict of old variable to Form
        Values of the old variables, in new variables and parameters.
    back : dict of new variable to Form
        Values of the new variables, in old variables, parameters and earlier new variables.
    guards : list of Form
        Forms that must still be checked to be non-negative.
    volume : int
        The product of the extents, with the nominal size for sizes.
    """

    variables: list[int] = field(default_factory=list)
    extents: dict[int, Form] = field(default_factory=dict)
    values: dict[int, Form] = field(default_factory=dict)
    back: dict[int, Form] = field(default_factory=dict)
    guards: list[Form] = field(default_factory=list)
    volume: int = 1

    def score(self, atoms: Atoms) -> tuple[int, int, int, int]:
        """The rank of the box, smaller is better: volume, then number of guards, then length of the
        values.
        """
        inner = atoms.mask_of(self.variables)
        guards = sum(1 for f in self.guards if atoms.mask_of(f) & inner)
        length = sum(
            len(f) + sum(atoms.kinds[s][0] == "div" for s in f) for f in self.values.values()
        )
        return self.volume, guards, len(self.variables), length


@dataclass(frozen=True)
class _Shift:
    """A way to shift a variable so that it starts at zero: ``y = base + sign * t`` with t in ``[0,
    extent)``.
    """

    extent: Form
    base: Form
    sign: int

    def key(self, facts: Facts) -> tuple[int, ...]:
        atoms = facts.atoms
        symbols = [s for s in self.base if s != CONST]
        return (
            nominal(atoms, self.extent, facts.nominal_size),
            _length(atoms, self.base),
            sum(abs(self.base[s]) for s in symbols),
            abs(self.base.get(CONST, 0)) if not symbols else int(CONST in self.base),
            self.sign < 0,
        )


def _length(atoms: Atoms, form: Form) -> int:
    """How much of an expression a form is: its variables, and two more for each division."""
    kinds = [atoms.kinds[s] for s in form if s != CONST]
    return sum(2 + _length(atoms, low) if kind == "div" else 1 for kind, low, _ in kinds)


class EmptyBox(Exception):
    """Raised internally if inequalities contradict each other."""


class UnboundedBox(Exception):
    """Raised internally if a variable has no bounds of the required kind."""


def smallest_box(
    facts: Facts,
    variables: Sequence[int],
    inequalities: Sequence[Form],
    sizes: int,
    units: Sequence[Sequence[int]],
    wide: bool,
) -> Box | None:
    """The smallest box among the orders and bases that are tried, or None for an empty set.

    Parameters
    ----------
    units : sequence of rows
        Linear forms in the variables (a row of coefficients each), the natural coordinates: bases
        whose coordinates are among them are tried in addition to the given one.
    """
    atoms = facts.atoms
    limit = facts.work + _MAX_WORK
    best: Box | None = None
    best_score: tuple[int, int, int, int] | None = None
    for basis, order in _candidates(len(variables), units):
        try:
            box = _box(facts, variables, basis, order, inequalities, sizes, wide)
        except EmptyBox:
            return None
        except UnboundedBox:
            continue
        score = box.score(atoms)
        if best_score is None or score < best_score:
            best, best_score = box, score
        if score[1] == 0 or score[0] == 1:
            break  # every point of the box belongs to the set: no smaller one exists
        if facts.work > limit:
            break
    if best is None:
        raise UnboundedBox
    return best


def _candidates(n: int, units: Sequence[Sequence[int]]) -> Iterator[tuple[Matrix, tuple[int, ...]]]:
    """Bases (rows: coordinates in the variables) and orders, the most promising first."""
    natural = _natural_bases(n, units) if n > 1 else []
    bases = [*natural[:1], identity_matrix(n), *natural[1:]]
    if n == 1:
        bases = bases[-1:]
    orders = list(itertools.islice(itertools.permutations(range(n)), 6))
    if n > 3:
        orders = [tuple(range(n)), tuple(range(n - 1, -1, -1))]
        orders += [(*range(k, n), *range(k)) for k in range(1, n)]
    pairs = [(basis, order) for order in orders for basis in bases]
    yield from pairs[:_MAX_CANDIDATES]


def _natural_bases(n: int, units: Sequence[Sequence[int]]) -> list[Matrix]:
    """Up to three bases of natural coordinates."""
    found: list[Matrix] = []
    rows = [list(unit) for unit in units if any(unit)]
    for chosen in itertools.islice(itertools.combinations(range(len(rows)), n), 24):
        matrix = [rows[i] for i in chosen]
        if abs(determinant(matrix)) == 1 and matrix not in found:
            found.append(matrix)
            if len(found) == 3:
                break
    return found


def _box(
    facts: Facts,
    variables: Sequence[int],
    basis: Matrix,
    order: Sequence[int],
    inequalities: Sequence[Form],
    sizes: int,
    wide: bool,
) -> Box:
    """Project, then shift each variable in order by its best lower or upper bound."""
    atoms = facts.atoms
    n = len(variables)
    box = Box()
    if basis == identity_matrix(n):
        coordinates = list(variables)
        forms = list(inequalities)
    else:
        coordinates = [atoms.fresh(wide) for _ in range(n)]
        inverse = inverse_unimodular(basis)
        assert inverse is not None
        change = {
            y: {z: k for z, k in zip(coordinates, line, strict=True) if k}
            for y, line in zip(variables, inverse, strict=True)
        }
        forms = [substitute_linear(f, change) for f in inequalities]
    levels = project(forms, [coordinates[i] for i in order])
    if levels is None:
        raise EmptyBox
    values: dict[int, Form] = {}
    for place, level in zip(order, levels, strict=True):
        z = coordinates[place]
        shift = _best_shift(facts, z, [substitute_linear(f, values) for f in level], sizes)
        extent = nominal(atoms, shift.extent, facts.nominal_size)
        box.volume *= extent
        if is_constant(shift.extent) and extent <= 1:
            if extent <= 0:
                raise EmptyBox
            values[z] = shift.base
            continue
        t = atoms.fresh(wide)
        facts.bound(t, {}, shifted(shift.extent, -1))
        box.variables.append(t)
        box.extents[t] = shift.extent
        values[z] = combine(shift.base, {t: shift.sign})
        row = {y: k for y, k in zip(variables, basis[place], strict=True) if k}
        box.back[t] = combine(row, shift.base, shift.sign, -shift.sign)
    for y in variables:
        value = {y: 1} if basis == identity_matrix(n) else change[y]
        box.values[y] = substitute_linear(value, values)
    for f in forms:
        g = substitute_linear(f, values)
        if is_constant(g):
            if g.get(CONST, 0) < 0:
                raise EmptyBox
            continue
        low = facts.minimum(g)
        if low is None or low[0] <= -low[1]:
            box.guards.append(facts.without_small_terms(g))
    return box


def _best_shift(facts: Facts, z: int, bounds: Sequence[Form], sizes: int) -> _Shift:
    """The smallest extent among all pairs of a lower and an upper bound, then the simplest base."""
    atoms = facts.atoms
    lowers = [(f[z], {s: k for s, k in f.items() if s != z}) for f in bounds if f[z] > 0]
    uppers = [(-f[z], {s: k for s, k in f.items() if s != z}) for f in bounds if f[z] < 0]
    lowers.sort(key=lambda bound: len(bound[1]))
    uppers.sort(key=lambda bound: len(bound[1]))
    del lowers[_MAX_BOUNDS:], uppers[_MAX_BOUNDS:]
    pairs: list[tuple[int, Form, int, int]] = []
    for i, (a, low) in enumerate(lowers):
        for j, (b, high) in enumerate(uppers):
            width = combine(high, low, a, b)  # over a*b
            count = facts.maximum_extent(width, a * b)
            extent: Form | None
            if count is not None:
                extent = {CONST: count} if count else {}
            else:
                extent = facts.symbolic_extent(width, a * b, sizes)
                if extent is None:
                    continue
            pairs.append((nominal(atoms, extent, facts.nominal_size), extent, i, j))
    if not pairs:
        raise UnboundedBox
    least = min(pair[0] for pair in pairs)
    shifts: list[_Shift] = []
    for size, extent, i, j in pairs:
        if size == least:
            a, low = lowers[i]
            b, high = uppers[j]
            # a*z + low >= 0  →  z >= -(low // a);   -b*z + high >= 0  →  z <= high // b
            shifts.append(_Shift(extent, scaled(atoms.floordiv(low, a), -1), 1))
            shifts.append(_Shift(extent, atoms.floordiv(high, b), -1))
    return min(shifts, key=lambda shift: shift.key(facts))
