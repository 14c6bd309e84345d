"""Values that symbolic forms count as when boxes are compared.

A size parameter counts as one number for all forms of a system: 64, or more where the symbolic
ranges would be no longer than the constant ones. So the loop over ``(n - 700)//211 + 1`` frames is
not taken for shorter than the one over 4 terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .affine import Atoms
from .forms import CONST, Form, is_constant

NOMINAL_SIZE = 64  #: the least number that a size parameter counts as
_LARGEST_SIZE = NOMINAL_SIZE << 24


def nominal(atoms: Atoms, f: Form, size: int = NOMINAL_SIZE) -> int:
    """The value of a form with `size` for every variable, or the closest value that it can have."""
    pending, needed = list(f), set()
    while pending:
        s = pending.pop()
        if s not in needed:
            needed.add(s)
            if atoms.kinds[s][0] in ("div", "mul"):
                pending.extend(atoms.kinds[s][1])
    values: dict[int, int] = {CONST: 1}
    for s in sorted(needed):
        kind, a, c = atoms.kinds[s]
        if kind == "div":
            values[s] = sum(k * values[t] for t, k in a.items()) // c
        elif kind == "mul":
            values[s] = 1
            for t in a:
                values[s] *= values[t]
        elif s != CONST:
            lo, hi = atoms.intervals[s]
            values[s] = min(
                max(size, lo if lo is not None else size), hi if hi is not None else size
            )
    return sum(k * values[s] for s, k in f.items())


def nominal_size(atoms: Atoms, extents: Iterable[Form]) -> int:
    """The least power of two at which no symbolic extent is below `NOMINAL_SIZE`, and all are above
    the constant ones; `NOMINAL_SIZE` if there is none.
    """
    known, symbolic = _apart(extents)
    least = max([NOMINAL_SIZE, *(extent + 1 for extent in known)])
    size = NOMINAL_SIZE
    while size <= _LARGEST_SIZE:
        if all(nominal(atoms, extent, size) >= least for extent in symbolic):
            return size
        size *= 2
    return NOMINAL_SIZE


def _apart(extents: Iterable[Form]) -> tuple[list[int], Sequence[Form]]:
    """The constant extents, and the symbolic ones."""
    known: list[int] = []
    symbolic: list[Form] = []
    for extent in extents:
        if is_constant(extent):
            known.append(extent.get(CONST, 0))
        else:
            symbolic.append(extent)
    return known, symbolic
