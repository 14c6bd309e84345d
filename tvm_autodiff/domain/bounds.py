"""Known facts about atoms, and proofs of inequalities from them.

Facts are intervals and symbolic bounds of atoms, and forms known to be non-negative. A quick method
is tried first: intervals, with divisions and symbolically bounded atoms replaced by their bounds
one after the other. An exact rational method (`simplex`) follows. Both have bounded effort.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .affine import Atoms
from .forms import (
    CONST,
    Form,
    combine,
    content,
    is_constant,
    scaled,
    shifted,
)
from .nominal import NOMINAL_SIZE
from .solvers.simplex import minimum as simplex_minimum

_MAX_STEPS = 16
_MAX_CONSTRAINTS = 40
_MAX_EXACT_WORK = 100_000  #: entries of tableaus times their rows


class Facts:
    """Known facts about the atoms of one table.

    Parameters
    ----------
    atoms : Atoms
        The table, which holds the constant intervals.

    Attributes
    ----------
    nominal_size : int
        What a size parameter counts as when symbolic extents are compared.

    Examples
    --------
    >>> from tvm import te
    >>> atoms = Atoms()
    >>> b, n = atoms.symbol(te.var("b")), atoms.symbol(te.var("n"))
    >>> facts = Facts(atoms)
    >>> facts.bound(b, {}, {n: 1, CONST: -1})
    >>> facts.nonnegative({n: 2, b: -2})
    True
    """

    def __init__(self, atoms: Atoms) -> None:
        self.atoms = atoms
        self.lowers: dict[int, list[Form]] = {}
        self.uppers: dict[int, list[Form]] = {}
        self.known: list[Form] = []
        self.nominal_size = NOMINAL_SIZE
        self.exact_work = 0
        self.work = 0  #: bounds computed so far, the same in every run

    def bound(self, atom: int, lower: Form | None, upper: Form | None) -> None:
        """Record ``lower <= atom <= upper``; constants tighten the interval of the atom."""
        lo, hi = self.atoms.intervals[atom]
        if lower is not None:
            if is_constant(lower):
                value = lower.get(CONST, 0)
                lo = value if lo is None else max(lo, value)
            else:
                self.lowers.setdefault(atom, []).append(lower)
        if upper is not None:
            if is_constant(upper):
                value = upper.get(CONST, 0)
                hi = value if hi is None else min(hi, value)
            else:
                self.uppers.setdefault(atom, []).append(upper)
        self.atoms.intervals[atom] = (lo, hi)

    def add(self, form: Form) -> None:
        """Record ``form >= 0``."""
        self.known.append(form)

    # ------------------------------------------------------------- the quick method

    def minimum(self, f: Form) -> tuple[int, int] | None:
        """A lower bound as numerator and denominator, not necessarily the tightest; None if none is
        found.
        """
        self.work += 1
        best: tuple[int, int] | None = None
        scale = 1
        done: set[int] = set()
        for _ in range(_MAX_STEPS):
            lo, _hi = self.atoms.interval(f)
            if lo is not None and (best is None or lo * best[1] > best[0] * scale):
                best = (lo, scale)
            step = self._replace_one(f, done)
            if step is None:
                break
            f, factor = step
            scale *= factor
        return best

    def _replace_one(self, f: Form, done: set[int]) -> tuple[Form, int] | None:
        """Replace the last atom that has symbolic bounds by the bound that makes f smaller, up to a
        factor.
        """
        kinds = self.atoms.kinds
        for s in sorted(f, reverse=True):
            if s == CONST or s in done:
                continue
            k = f[s]
            bounds = (self.lowers if k > 0 else self.uppers).get(s)
            kind, low, c = kinds[s]
            if not bounds and kind != "div":
                continue
            done.add(s)
            rest = {t: v for t, v in f.items() if t != s}
            if bounds:
                return combine(rest, bounds[0], 1, k), 1
            if kind == "div":
                # (low - c + 1) / c <= s <= low / c
                return combine(rest, shifted(low, 1 - c) if k > 0 else low, c, k), c
        return None

    def maximum_extent(self, f: Form, divisor: int) -> int | None:
        """The maximum number of integers in an interval of real length ``f / divisor``, or None if
        unbounded.
        """
        found = self.minimum(scaled(f, -1))
        if found is None:
            return None
        numerator, denominator = found
        return max(0, -numerator // (denominator * divisor) + 1)

    def symbolic_extent(self, f: Form, divisor: int, sizes: int) -> Form | None:
        """The same as a form in the variables of the bit set `sizes` only, if the bounds allow it.
        """
        masks, scale = self.atoms.masks, 1
        for _ in range(_MAX_STEPS):
            s = max((t for t in f if t != CONST and masks[t] & ~sizes), default=None)
            if s is None:
                return shifted(self.atoms.floordiv(f, scale * divisor), 1)
            k = f[s]
            lo, hi = self.atoms.intervals[s]
            end = hi if k > 0 else lo
            kind, low, c = self.atoms.kinds[s]
            rest = {t: v for t, v in f.items() if t != s}
            bounds = self.uppers.get(s) if k > 0 else self.lowers.get(s)
            if bounds:
                f = combine(rest, bounds[0], 1, k)
            elif end is not None:
                f = shifted(rest, k * end)
            elif kind == "div":
                f = combine(rest, low if k > 0 else shifted(low, 1 - c), c, k)
                scale *= c
            else:
                return None
        return None

    def without_small_terms(self, f: Form) -> Form:
        """``g*A + r >= 0  →  A >= 0`` for the largest g, where 0 <= r < g is known.

        Examples
        --------
        >>> from tvm import te
        >>> atoms = Atoms()
        >>> q, t = atoms.symbol(te.var("q")), atoms.symbol(te.var("t"))
        >>> facts = Facts(atoms)
        >>> facts.bound(t, {}, {CONST: 1})
        >>> facts.without_small_terms({q: 2, t: 1, CONST: -32}) == {q: 1, CONST: -16}
        True
        """
        f = tighten(f)
        for form, rest in self._by_quotients(f):
            for g in sorted({abs(k) for s, k in form.items() if s != CONST} - {1}, reverse=True):
                c = form.get(CONST, 0)
                low, high = self.atoms.interval(
                    {CONST: c % g} | {s: k for s, k in form.items() if s != CONST and k % g}
                )
                if low is None or high is None or low + rest[0] < 0 or high + rest[1] >= g:
                    continue
                left = {s: k // g for s, k in form.items() if s != CONST and k % g == 0}
                return self._of_dividend({**left, CONST: c // g} if c // g else left)
        return f

    def _by_quotients(self, f: Form) -> Iterator[tuple[Form, tuple[int, int]]]:
        """A form, and ``i + 16*q + c  →  32*q + c`` for ``q = i//16``, with the interval of what is
        left out.
        """
        yield f, (0, 0)
        for s in sorted(f, reverse=True):
            kind, low, c = self.atoms.kinds[s] if s != CONST else ("", {}, 0)
            symbols = [t for t in low if t != CONST] if kind == "div" else []
            if len(symbols) == 1 and abs(low[symbols[0]]) == 1 and symbols[0] in f:
                k = f[symbols[0]] * low[symbols[0]]
                ends = (0, k * (c - 1))
                yield combine(combine(f, low, 1, -k), {s: k * c}), (min(ends), max(ends))

    def _of_dividend(self, f: Form) -> Form:
        """``15 - i//16 >= 0  →  255 - i >= 0``"""
        atoms = [s for s in f if s != CONST]
        kind, low, c = self.atoms.kinds[atoms[0]] if len(atoms) == 1 else ("", {}, 0)
        if kind != "div" or abs(f[atoms[0]]) != 1:
            return f
        if f[atoms[0]] > 0:
            return shifted(low, c * f.get(CONST, 0))
        return shifted(scaled(low, -1), c * f.get(CONST, 0) + c - 1)

    # ------------------------------------------------------------- the exact method

    def nonnegative(self, f: Form, others: Sequence[Form] = ()) -> bool:
        """Whether ``f >= 0`` follows from the facts and from `others`, which are non-negative."""
        found = self.minimum(f)
        if found is not None and found[0] > -found[1]:
            return True  # an integer above -1
        if is_constant(f):
            return f.get(CONST, 0) >= 0
        constraints = self._relevant(f, others)
        if not constraints:
            return False
        exact = self._exact(f, constraints, enough=-1)
        return exact is not None and exact[0] > -exact[1]

    def infeasible(self, forms: Sequence[Form]) -> bool:
        """Whether it is proved, over the rationals, that no point makes all the forms non-negative.
        """
        constraints = list(forms)
        for f in forms:
            for g in self._relevant(f, ()):
                if g not in constraints:
                    constraints.append(g)
        exact = self._exact({}, constraints[:_MAX_CONSTRAINTS])
        return exact is not None and exact[1] == 0

    def _exact(
        self, f: Form, constraints: Sequence[Form], enough: int | None = None
    ) -> tuple[int, int] | None:
        """The minimum by the simplex method, within the effort allowed for one table."""
        rows = len({s for g in (f, *constraints) for s in g})
        self.exact_work += rows * rows * (len(constraints) + 2 * rows)
        if self.exact_work > _MAX_EXACT_WORK:
            return None
        return simplex_minimum(f, constraints, self.atoms.intervals, enough)

    def _relevant(self, f: Form, others: Iterable[Form]) -> list[Form]:
        """Non-negative forms that are connected with f through shared atoms."""
        pool = [*others, *self.known]
        holding: dict[int, list[int]] = {}
        for n, g in enumerate(pool):
            for s in g:
                holding.setdefault(s, []).append(n)
        used = [False] * len(pool)
        seen: set[int] = {CONST}
        frontier = [s for s in f if s != CONST]
        out: list[Form] = []

        def take(g: Form) -> None:
            out.append(g)
            frontier.extend(s for s in g if s not in seen)

        while frontier and len(out) < _MAX_CONSTRAINTS:
            frontier.sort()
            s = frontier.pop(0)
            if s in seen:
                continue
            seen.add(s)
            frontier.extend(t for t in self.atoms.factors(s) if t not in seen)
            for g in self._definition(s):
                take(g)
            for n in holding.get(s, ()):
                if not used[n]:
                    used[n] = True
                    take(pool[n])
        return out

    def _definition(self, s: int) -> list[Form]:
        """Non-negative forms that follow from the definition of an atom: bounds, division, products
        of bounds.
        """
        out = [combine({s: 1}, g, 1, -1) for g in self.lowers.get(s, ())]
        out += [combine(g, {s: 1}, 1, -1) for g in self.uppers.get(s, ())]
        kind, a, c = self.atoms.kinds[s]
        if kind == "div":
            out.append(combine(a, {s: -c}))
            out.append(combine(shifted(scaled(a, -1), c - 1), {s: c}))
        elif kind == "sdiv" and (self.atoms.interval(c)[0] or 0) >= 1:
            remainder = combine(a, self.atoms.product(c, {s: 1}), 1, -1)
            out += [remainder, combine(shifted(c, -1), remainder, 1, -1)]
        elif kind == "mul":
            for place, one in enumerate(a):
                others = self.atoms.product_of(a[:place] + a[place + 1 :])
                lo, _ = self.atoms.interval(others)
                if lo is not None and lo >= 0:
                    bounds = self._definition_bounds(one)
                    out += [self.atoms.product(g, others) for g in bounds]
        return out

    def _definition_bounds(self, s: int) -> list[Form]:
        out = [combine({s: 1}, g, 1, -1) for g in self.lowers.get(s, ())]
        out += [combine(g, {s: 1}, 1, -1) for g in self.uppers.get(s, ())]
        lo, hi = self.atoms.intervals[s]
        if lo is not None:
            out.append(shifted({s: 1}, -lo))
        if hi is not None:
            out.append(shifted({s: -1}, hi))
        return out


def tighten(f: Form) -> Form:
    """``g*x + c >= 0  →  x + c // g >= 0`` for the common factor g of the coefficients.

    Examples
    --------
    >>> tighten({1: 2, 2: 4, CONST: -3})
    {1: 1, 2: 2, 0: -2}
    """
    g = content(f)
    if g <= 1:
        return f
    out = {s: k // g for s, k in f.items()}
    if not out.get(CONST, 1):
        del out[CONST]
    return out
