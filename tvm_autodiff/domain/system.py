"""Converts a domain to a system of linear forms over unknowns.

A `System` holds the table of atoms with the facts about parameters, the unknowns (the variables and
the divisions that depend on them), equations, inequalities, and the conditions that are not linear
in the unknowns. `equations`, `inequalities` and `simplify` solve it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..expr.nodes import Expr, Var, dtype_of, node_id
from ..expr.rewrite import substitute
from .affine import Atoms
from .bounds import Facts
from .domain import Domain
from .forms import CONST, Form, combine, scaled, shifted
from .nominal import nominal_size


class System:
    """Equations and inequalities of a domain.

    Parameters
    ----------
    domain : Domain
    divisions : bool
        Whether divisions that depend on variables become unknowns. Otherwise conditions that
        contain them are non-linear.

    Attributes
    ----------
    atoms : Atoms
    facts : Facts
        The facts about the parameters.
    variables : list of int
        Atoms of the domain's variables, in order.
    unknowns : list of int
        The variables, then the divisions that depend on them.
    equations, inequalities : list of Form
        Forms that are linear in the unknowns: ``form == 0`` and ``form >= 0``. The inequalities
        include the ranges of the variables and the definitions of the divisions.
    range_forms : list of Form
        The inequalities that state the ranges of the variables.
    rest : list of (kind, Form or expression)
        Conditions that are not linear: ``("eq", form)``, ``("ge", form)``, ``("ne", form)`` or
        ``("rest", expression)``.
    sizes : int
        The bit set of the parameters that extents may depend on.
    """

    def __init__(self, domain: Domain, divisions: bool = True) -> None:
        self.domain = domain
        self._divisions = divisions
        self.atoms = Atoms()
        self.facts = Facts(self.atoms)
        self.variables: list[int] = []
        self.equations: list[Form] = []
        self.inequalities: list[Form] = []
        self.rest: list[tuple[str, Any]] = []
        self.sizes = 0
        self._read_parameters()
        for var in domain.variables:
            self.variables.append(self.atoms.symbol(var))
        self.mask = self.atoms.mask_of(self.variables)
        self.unknowns = list(self.variables)
        self._linear: dict[int, bool] = dict.fromkeys(self.variables, True)
        self._read_variables()
        self.range_forms = list(self.inequalities)
        for condition in domain.conditions:
            for kind, f in self.atoms.conditions(condition):
                self.require(kind, f)

    def _read_parameters(self) -> None:
        """Record ranges of parameters as facts; parameters without an upper bound are sizes."""
        atoms, ranges = self.atoms, self.domain.ranges
        for var in self.domain.parameters:
            s = atoms.symbol(var)
            if ranges.get(var, (None, None))[1] is None:
                self.sizes |= atoms.masks[s]
        self._assume_sizes_positive()
        for var in self.domain.parameters:
            if var not in ranges:
                continue
            lo, extent = ranges[var]
            s = atoms.symbol(var)
            lower = atoms.form(lo)
            if extent is None:
                self.facts.bound(s, lower, None)
            else:
                self.facts.bound(s, lower, shifted(combine(lower, atoms.form(extent)), -1))

    def _assume_sizes_positive(self) -> None:
        """Assume that extents are not negative, and that extents of parameters are positive.

        A parameter with a range has a value, so its range is not empty.
        """
        own = {node_id(var) for var in self.domain.variables}
        for var, (_, extent) in self.domain.ranges.items():
            if extent is None or isinstance(extent, int):
                continue
            f = self.atoms.form(extent)
            if len(f) != 1:
                continue
            least = 0 if node_id(var) in own else 1
            for s in self.atoms.factors(next(iter(f))):
                lo, hi = self.atoms.intervals[s]
                if self.atoms.masks[s] & self.sizes and (lo is None or lo < least):
                    self.atoms.intervals[s] = (least, hi)

    def _read_variables(self) -> None:
        """Record ranges of variables as inequalities, and as intervals if they are constant."""
        extents: list[Form] = []
        for var, s in zip(self.domain.variables, self.variables, strict=True):
            lo, extent = self.domain.ranges[var]
            lower = self.atoms.form(lo)
            low, _ = self.atoms.interval(lower)
            high = None
            upper: Form | None = None
            if extent is not None:
                length = self.atoms.form(extent)
                if not self.atoms.mask_of(length) & ~self.sizes:
                    extents.append(length)
                upper = shifted(combine(lower, length), -1)
                _, high = self.atoms.interval(upper)
            self.atoms.intervals[s] = (low, high)
            self.require("ge", combine({s: 1}, lower, 1, -1))
            if upper is not None:
                self.require("ge", combine(upper, {s: 1}, 1, -1))
        self.facts.nominal_size = nominal_size(self.atoms, extents)

    def require(self, kind: str, f: Any) -> None:
        """Add a condition to the list of its kind."""
        if kind in ("ne", "rest") or not self._is_linear(f):
            self.rest.append((kind, f))
        elif kind == "eq":
            self.equations.append(f)
        else:
            self.inequalities.append(f)

    def forget_conditions(self) -> None:
        """Remove all conditions, and the quotients among the unknowns."""
        self.equations, self.inequalities, self.rest = [], [], []
        self._linear = dict.fromkeys(self.variables, True)
        self.unknowns = [s for s in self.unknowns if s in self._linear]

    def _is_linear(self, f: Form) -> bool:
        """Whether every atom that depends on variables is an unknown; new divisions become
        unknowns.
        """
        return all(self._is_unknown(s) for s in f if self.atoms.masks[s] & self.mask)

    def _is_unknown(self, atom: int) -> bool:
        """Whether a division is an unknown; its parts are decided first."""
        pending = [(atom, False)]
        while pending:
            s, ready = pending.pop()
            if s in self._linear:
                continue
            kind, low, c = self.atoms.kinds[s]
            if kind != "div" or not self._divisions:
                self._linear[s] = False
                continue
            inner = [t for t in low if t != CONST and self.atoms.masks[t] & self.mask]
            if not ready:
                pending.append((s, True))
                pending.extend((t, False) for t in inner)
                continue
            self._linear[s] = all(self._linear[t] for t in inner)
            if self._linear[s]:
                self.unknowns.append(s)
                # 0 <= low - c*s <= c - 1
                self.inequalities.append(combine(low, {s: -c}))
                self.inequalities.append(combine(shifted(scaled(low, -1), c - 1), {s: c}))
                self._bound(s)
        return self._linear[atom]

    def _bound(self, quotient: int) -> None:
        """State the ends of a quotient that are integers: 95//8 is 11, and not 95/8."""
        low, high = self.atoms.intervals[quotient]
        if low is not None:
            self.inequalities.append(shifted({quotient: 1}, -low))
        if high is not None:
            self.inequalities.append(shifted({quotient: -1}, high))

    @property
    def wide(self) -> bool:
        """Whether new variables are int64."""
        return any(dtype_of(var) == "int64" for var in self.domain.variables)

    def emitted_rest(self, values: Mapping[int, Form]) -> list[Expr]:
        """The non-linear conditions, with the variables replaced."""
        out: list[Expr] = []
        mapping: dict[Var, Expr] | None = None
        for kind, f in self.rest:
            if kind == "rest":
                if mapping is None:
                    mapping = {
                        self.atoms.variable(s): self.typed(s, values[s]) for s in self.variables
                    }
                out.append(substitute(f, mapping))
            else:
                out.append(self.atoms.condition(kind, self.atoms.substitute(f, values)))
        return out

    def typed(self, atom: int, f: Form) -> Expr:
        """The expression of a form, in the dtype of a variable."""
        return self.atoms.expr(f, "int64" if self.atoms.wide[atom] else "int32")
