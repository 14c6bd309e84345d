"""Integer domains and bijections between them.

A `Domain` has variables with ranges, and conditions on them, all as TVM expressions; other
variables are parameters. A `DomainTransformation` maps the integer points of one domain to those of
another and back. `equations`, `inequalities`, `divmod` and `simplify` find transformations.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import InvalidArgumentError, UnsolvableError
from ..expr import build
from ..expr.integers.integer_functions import compile_integers
from ..expr.nodes import Expr, Var, const_value, dtype_of, node_id, op_name
from ..expr.rewrite import substituter, variables_of

Range = tuple["Expr | int", "Expr | int | None"]


def _plain(value: Expr | int | None) -> Expr | int | None:
    """A literal as a Python integer."""
    if value is None:
        return None
    number = const_value(value)
    return value if number is None else int(number)


@dataclass(frozen=True)
class Domain:
    """The integer points of a box that satisfy conditions.

    Parameters
    ----------
    variables : sequence of Var
        The variables of the domain, in order. dtype int32 or int64.
    ranges : mapping of Var to (min, extent)
        Ranges of every variable, and of parameters if known: ``min <= var < min + extent``. Minimum
        and extent are ints or TVM expressions; an extent of None means no upper bound. A parameter
        without an upper bound (or without a range) is a *size*: extents of new variables may depend
        on it.
    conditions : sequence of TVM boolean expressions
        Conditions that all hold. They may contain anything, including loads; non-linear ones are
        kept unchanged.
    is_empty : bool
        Whether the domain is known to have no points for any parameters.

    Examples
    --------
    >>> from tvm import te
    >>> i, j = te.var("i"), te.var("j")
    >>> d = Domain((i, j), {i: (0, 3), j: (0, 3)}, (i < j,))
    >>> list(d.points())
    [(0, 1), (0, 2), (1, 2)]
    """

    variables: tuple[Var, ...]
    ranges: Mapping[Var, Range]
    conditions: tuple[Expr, ...] = ()
    is_empty: bool = False
    _parameters: list[tuple[Var, ...]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        ranges = {var: (_plain(lo), _plain(extent)) for var, (lo, extent) in self.ranges.items()}
        conditions = tuple(c.asobject() if hasattr(c, "asobject") else c for c in self.conditions)
        object.__setattr__(self, "variables", tuple(self.variables))
        object.__setattr__(self, "ranges", ranges)
        object.__setattr__(self, "conditions", conditions)
        seen: set[int] = set()
        for var in self.variables:
            if op_name(var) != "var" or dtype_of(var) not in ("int32", "int64"):
                raise InvalidArgumentError(
                    f"a variable of a domain must be an int32 or int64 Var, not {var}"
                )
            if node_id(var) in seen:
                raise InvalidArgumentError(f"variable {var} occurs twice in a domain")
            seen.add(node_id(var))
            if var not in ranges:
                raise InvalidArgumentError(
                    f"variable {var} of a domain has no range: give ranges[{var}] = (min, extent)"
                )

    @property
    def parameters(self) -> tuple[Var, ...]:
        """The variables in conditions or ranges that are not variables of the domain."""
        if not self._parameters:
            own = {node_id(var) for var in self.variables}
            roots: list[Expr] = list(self.ranges)
            for pair in self.ranges.values():
                roots += [part for part in pair if part is not None and not isinstance(part, int)]
            found = variables_of([*roots, *self.conditions])
            self._parameters.append(tuple(v for v in found if node_id(v) not in own))
        return self._parameters[0]

    def extent(self, var: Var) -> Expr | int | None:
        """The extent of a variable's range."""
        return self.ranges[var][1]

    def volume(self, parameters: Mapping[Var, int] | None = None) -> int:
        """The number of points of the box, ignoring conditions; `parameters` maps symbolic extents
        to values.
        """
        if self.is_empty:
            return 0
        total = 1
        for var in self.variables:
            extent = self.ranges[var][1]
            if extent is None:
                raise UnsolvableError(f"the range of {var} has no upper bound")
            values = dict(parameters or {})
            count = (
                extent
                if isinstance(extent, int)
                else compile_integers([extent], list(values))(*values.values())[0]
            )
            total *= max(0, count)
        return total

    def points(self, parameters: Mapping[Var, int] | None = None) -> Iterator[tuple[int, ...]]:
        """All points for given parameter values, found by brute force. Intended for tests."""
        if self.is_empty:
            return
        given = dict(parameters or {})
        names = [*given, *self.variables]
        outer = tuple(given.values())
        bounds = []
        for n, var in enumerate(self.variables):
            lo, extent = self.ranges[var]
            if extent is None:
                raise UnsolvableError(f"the range of {var} has no upper bound")
            bounds.append(compile_integers([lo, extent], names[: len(given) + n]))
        holds = compile_integers(list(self.conditions), names)

        def extend(prefix: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            depth = len(prefix)
            if depth == len(bounds):
                if all(holds(*outer, *prefix)):
                    yield prefix
                return
            lo, extent = bounds[depth](*outer, *prefix)
            for value in range(lo, lo + extent):
                yield from extend((*prefix, value))

        yield from extend(())

    def parameter_values(
        self, ranges: Mapping[Var, Iterable[int]] | None = None
    ) -> Iterator[dict[Var, int]]:
        """All combinations of parameter values within their constant ranges, or within the given
        ones.
        """
        chosen = []
        for var in self.parameters:
            if ranges is not None and var in ranges:
                chosen.append([(var, value) for value in ranges[var]])
                continue
            lo, extent = self.ranges.get(var, (None, None))
            if not isinstance(lo, int) or not isinstance(extent, int):
                raise UnsolvableError(f"parameter {var} has no constant range: pass values for it")
            chosen.append([(var, value) for value in range(lo, lo + extent)])
        for combination in itertools.product(*chosen):
            yield dict(combination)


@dataclass(frozen=True)
class DomainTransformation:
    """A bijection between the integer points of two domains.

    Attributes
    ----------
    new_domain, old_domain : Domain
    new_to_old : dict of Var to expression
        The value of each variable of the new domain, in variables of the old one (and parameters).
    old_to_new : dict of Var to expression
        The value of each variable of the old domain, in variables of the new one (and parameters).
        ``substitute(e, old_to_new)`` rewrites an expression for the new domain.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff.domain import simplify_domain
    >>> i, j = te.var("i"), te.var("j")
    >>> t = simplify_domain(Domain((i, j), {i: (0, 9), j: (0, 9)}, (i.equal(j + 4),)))
    >>> t.new_domain.volume(), t.old_to_new[i]
    (5, i + 4)
    """

    new_domain: Domain
    old_domain: Domain
    new_to_old: Mapping[Var, Expr]
    old_to_new: Mapping[Var, Expr]

    @staticmethod
    def identity(domain: Domain) -> DomainTransformation:
        """The transformation that changes nothing."""
        same = {var: var for var in domain.variables}
        return DomainTransformation(domain, domain, dict(same), dict(same))

    @staticmethod
    def empty(domain: Domain) -> DomainTransformation:
        """The transformation of a domain without points to the empty domain without variables."""
        kept = {var: domain.ranges[var] for var in domain.parameters if var in domain.ranges}
        nothing = Domain((), kept, (build.const(False, "bool"),), is_empty=True)
        zeros = {var: build.const(0, dtype_of(var)) for var in domain.variables}
        return DomainTransformation(nothing, domain, {}, zeros)

    def then(self, other: DomainTransformation) -> DomainTransformation:
        """The composition of this transformation with `other`, which starts at this one's new
        domain.
        """
        forward = substituter(other.old_to_new)
        back = substituter(self.new_to_old)
        return DomainTransformation(
            other.new_domain,
            self.old_domain,
            {var: back(expr) for var, expr in other.new_to_old.items()},
            {var: forward(expr) for var, expr in self.old_to_new.items()},
        )

    def check(self, parameters: Mapping[Var, int] | None = None) -> int:
        """Check by brute force that this is a bijection, for given values of the parameters.

        Returns
        -------
        int
            The number of points.

        Raises
        ------
        AssertionError
            If a point has no counterpart. The message names the first such point.

        Examples
        --------
        >>> from tvm import te
        >>> i = te.var("i")
        >>> DomainTransformation.identity(Domain((i,), {i: (0, 4)})).check()
        4
        """
        given = dict(parameters or {})
        old_points = list(self.old_domain.points(given))
        new_points = list(self.new_domain.points(given))
        outer = tuple(given.values())
        new_vars: Sequence[Var] = self.new_domain.variables
        old_vars: Sequence[Var] = self.old_domain.variables
        to_old = compile_integers([self.old_to_new[var] for var in old_vars], [*given, *new_vars])
        to_new = compile_integers([self.new_to_old[var] for var in new_vars], [*given, *old_vars])
        news, olds = set(new_points), set(old_points)
        for point in old_points:
            image = to_new(*outer, *point)
            if image not in news or to_old(*outer, *image) != point:
                raise AssertionError(f"old point {point} maps to {image}; parameters {given}")
        for point in new_points:
            image = to_old(*outer, *point)
            if image not in olds or to_new(*outer, *image) != point:
                raise AssertionError(f"new point {point} maps to {image}; parameters {given}")
        return len(old_points)
