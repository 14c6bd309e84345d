"""Simplifies a domain to a small box: removes divisions, solves equations, and bounds the free
variables.

The variables of the new domain run from 0 to an extent that contains no index parameter. Conditions
that the ranges do not imply remain. Systems are cut into small independent components first. The
steps are in `system`, `equations`, `inequalities` and `box`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import UnsolvableError
from ..expr.nodes import Expr
from .bounds import tighten
from .box import UnboundedBox, smallest_box
from .digits import split_digits
from .domain import Domain, DomainTransformation
from .forms import CONST, Form, is_constant, scaled, substitute_linear
from .narrowing import above_zero, narrow
from .nonlinear import linearize
from .solvers.equations import merge_parallel, solve_forms
from .system import System
from .writing import holds

_MAX_ROUNDS = 3


@dataclass
class _Solved:
    """The components solved so far; fields as in `Box`, with equations among the guards."""

    variables: list[int] = field(default_factory=list)
    extents: dict[int, Form] = field(default_factory=dict)
    values: dict[int, Form] = field(default_factory=dict)
    back: dict[int, Form] = field(default_factory=dict)
    equations: list[Form] = field(default_factory=list)
    guards: list[Form] = field(default_factory=list)


@dataclass
class _Component:
    """Unknowns that depend on each other, with the conditions on them."""

    unknowns: list[int] = field(default_factory=list)
    equations: list[Form] = field(default_factory=list)
    inequalities: list[Form] = field(default_factory=list)


def simplify_domain(domain: Domain) -> DomainTransformation:
    """Transform a domain into a small box that starts at zero.

    Parameters
    ----------
    domain : Domain
        A domain with bounded ranges for all variables.

    Returns
    -------
    DomainTransformation
        The new variables run over ``[0, extent)``; extents are ints, or expressions in sizes
        (parameters without an upper bound). Conditions that follow from the ranges are removed, and
        non-linear conditions are rewritten. `new_domain.is_empty` is set if no point exists for any
        parameters.

    Raises
    ------
    UnsolvableError
        If a variable has no bounds that are constant or depend only on sizes.

    Examples
    --------
    >>> from tvm import te
    >>> i, k, b = te.var("i"), te.var("k"), te.var("b")
    >>> d = Domain((i, k), {i: (0, 8), k: (0, 3), b: (0, 17)}, ((2 * i + k).equal(b),))
    >>> t = simplify_domain(d)
    >>> t.new_domain.volume(), t.old_to_new[i]
    (2, b // 2 - t0)
    """
    transformation, again = _simplify_once(domain)
    for _ in range(_MAX_ROUNDS - 1):
        if not again or transformation.new_domain.is_empty:
            break
        following, again = _simplify_once(transformation.new_domain)
        if following.new_domain.is_empty:
            return DomainTransformation.empty(domain)
        transformation = transformation.then(following)
    return transformation


def _simplify_once(domain: Domain) -> tuple[DomainTransformation, bool]:
    """One round, and whether a condition became linear, so that another round can use it."""
    if domain.is_empty:
        return DomainTransformation.empty(domain), False
    system = System(domain)
    narrow(system)
    eliminated = linearize(system)
    split_digits(system)
    solved = _Solved()
    for component in _components(system):
        if not _solve_component(system, component, solved):
            return DomainTransformation.empty(domain), False
    guards = _needed_guards(system, solved)
    if guards is None:
        return DomainTransformation.empty(domain), False
    ordered = _name_variables(system, solved)
    for s, f in reversed(eliminated.items()):
        solved.values[s] = system.atoms.substitute(f, solved.values)
    values = {s: solved.values[s] for s in system.variables}
    again = False
    known = [f for _, f in guards]
    rest: list[tuple[str, Any]] = []
    for kind, f in system.rest:
        if kind == "rest":
            rest.append((kind, f))
            continue
        g = system.atoms.substitute(f, values)
        verdict = _verdict(system, kind, g)
        if verdict is None and kind == "ge" and system.facts.nonnegative(g, known):
            continue
        if verdict is False:
            return DomainTransformation.empty(domain), False
        if verdict is None and kind == "ne":
            positive = above_zero(system, g, known)
            kind, g = ("ne", g) if positive is None else ("ge", positive)
        if verdict is None:
            again = again or (kind != "ne" and _became_linear(system, solved, g))
            rest.append((kind, g))
    return _assemble(system, solved, values, guards, rest, ordered), again


def _components(system: System) -> list[_Component]:
    """Unknowns that conditions connect, with these conditions; parameters do not connect."""
    leader = {s: s for s in system.unknowns}

    def find(s: int) -> int:
        while leader[s] != s:
            leader[s] = leader[leader[s]]
            s = leader[s]
        return s

    place = {s: n for n, s in enumerate(system.unknowns)}
    for f in (*system.equations, *system.inequalities):
        mine = [s for s in f if s in leader]
        for s in mine[1:]:
            a, b = find(mine[0]), find(s)
            if a != b:
                early, late = (a, b) if place[a] < place[b] else (b, a)
                leader[late] = early
    groups: dict[int, _Component] = {}
    for s in system.unknowns:
        groups.setdefault(find(s), _Component()).unknowns.append(s)
    outside = _Component()

    def owner(f: Form) -> _Component:
        mine = next((s for s in f if s in leader), None)
        return outside if mine is None else groups[find(mine)]

    for f in system.equations:
        owner(f).equations.append(f)
    for f in system.inequalities:
        owner(f).inequalities.append(f)
    return [*groups.values(), outside]


def _solve_component(system: System, component: _Component, solved: _Solved) -> bool:
    """Solve one component and add it to `solved`; False if it has no points."""
    atoms = system.atoms
    unknowns, equations = component.unknowns, component.equations
    current = list(unknowns)
    values: dict[int, Form] = {s: {s: 1} for s in unknowns}
    back: dict[int, Form] = dict(values)
    forms = component.inequalities
    while True:
        merged = merge_parallel([tighten(f) for f in forms])
        if merged is None:
            return False
        forms, implicit = merged
        equations = [*equations, *implicit]
        if not equations:
            break
        solution = solve_forms(atoms, current, equations, system.wide)
        if solution is None:
            return False
        values = {s: substitute_linear(f, solution.values) for s, f in values.items()}
        back = {s: substitute_linear(f, back) for s, f in solution.back.items()}
        forms = [substitute_linear(f, solution.values) for f in forms]
        solved.equations += solution.conditions
        current, equations = solution.free, []
    mask = atoms.mask_of(current)
    solved.guards += [f for f in forms if not atoms.mask_of(f) & mask]
    if current:
        forms = [f for f in forms if atoms.mask_of(f) & mask]
        own = set(system.variables)
        natural = sorted(unknowns, key=lambda s: (s not in own, _width(system, s)))
        units = [[values[s].get(y, 0) for y in current] for s in natural]
        try:
            box = smallest_box(system.facts, current, forms, system.sizes, units, system.wide)
        except UnboundedBox:
            names = ", ".join(str(atoms.variable(s)) for s in unknowns if s in own)
            raise UnsolvableError(
                f"found no bounds for {names} that are constant or depend only on sizes: give "
                "their ranges constant extents, or omit the ranges of the parameters in them"
            ) from None
        if box is None:
            return False
        values = {s: substitute_linear(f, box.values) for s, f in values.items()}
        solved.variables += box.variables
        solved.extents.update(box.extents)
        solved.back.update({t: substitute_linear(f, back) for t, f in box.back.items()})
        solved.guards += box.guards
    solved.values.update(values)
    return True


def _width(system: System, s: int) -> int:
    lo, hi = system.atoms.intervals[s]
    return hi - lo if lo is not None and hi is not None else 1 << 30


def _needed_guards(system: System, solved: _Solved) -> list[tuple[str, Form]] | None:
    """The conditions that ranges and other conditions do not imply, or None for a contradiction."""
    facts = system.facts
    equations: list[Form] = []
    for f in solved.equations:
        verdict = _verdict(system, "eq", f)
        if verdict is False:
            return None
        if verdict is None and f not in equations and scaled(f, -1) not in equations:
            equations.append(f)
    known = [g for f in equations for g in (f, scaled(f, -1))]
    candidates: list[Form] = []
    for f in solved.guards:
        verdict = _verdict(system, "ge", f)
        if verdict is False:
            return None
        if verdict is None:
            candidates.append(f)
    merged = merge_parallel([facts.without_small_terms(f) for f in candidates])
    if merged is None:
        return None
    candidates, more = merged
    equations += more
    known += [g for f in more for g in (f, scaled(f, -1))]
    if len(candidates) + len(known) > 1 and facts.infeasible([*candidates, *known]):
        return None
    kept = list(candidates)
    for f in reversed(candidates):
        others = [g for g in kept if g is not f]
        if facts.nonnegative(f, [*others, *known]):
            kept = others
    return [("eq", f) for f in equations] + [("ge", f) for f in kept]


def _verdict(system: System, kind: str, f: Form) -> bool | None:
    """Whether a condition always holds, never holds, or cannot be decided quickly."""
    if is_constant(f):
        return holds(kind, f.get(CONST, 0))
    low = system.facts.minimum(f)
    high = system.facts.minimum(scaled(f, -1))
    if kind == "ge":
        if low is not None and low[0] > -low[1]:
            return True
        return False if high is not None and high[0] > 0 else None
    if (low is not None and low[0] > 0) or (high is not None and high[0] > 0):
        return kind == "ne"
    exact = low is not None and high is not None and low[0] > -low[1] and high[0] > -high[1]
    return kind == "eq" if exact else None


def _became_linear(system: System, solved: _Solved, f: Form) -> bool:
    """Whether the form is now linear in the new variables and in divisions of them."""
    mask = system.atoms.mask_of(solved.variables)
    pending = [s for s in f if s != CONST]
    while pending:
        s = pending.pop()
        if not system.atoms.masks[s] & mask or s in solved.extents:
            continue
        kind, low, _ = system.atoms.kinds[s]
        if kind != "div":
            return False
        pending += [t for t in low if t != CONST]
    return True


def _assemble(
    system: System,
    solved: _Solved,
    values: dict[int, Form],
    guards: list[tuple[str, Form]],
    rest: list[tuple[str, Any]],
    ordered: list[int],
) -> DomainTransformation:
    """Write the result as TVM expressions."""
    atoms, domain = system.atoms, system.domain
    old_forms: dict[int, Form] = {}
    for t in solved.variables:  # in order of creation: a shift may depend on earlier ones
        old_forms[t] = atoms.substitute(solved.back[t], old_forms)
    ranges = {v: domain.ranges[v] for v in domain.parameters if v in domain.ranges}
    for t in ordered:
        extent = solved.extents[t]
        size: Expr | int = extent.get(CONST, 0) if is_constant(extent) else system.typed(t, extent)
        ranges[atoms.variable(t)] = (0, size)
    conditions = [atoms.condition(kind, f) for kind, f in guards]
    conditions += [atoms.condition(kind, f) for kind, f in rest if kind != "rest"]
    system.rest = [(kind, f) for kind, f in rest if kind == "rest"]
    conditions += system.emitted_rest(values)
    return DomainTransformation(
        Domain(tuple(atoms.variable(t) for t in ordered), ranges, tuple(conditions)),
        domain,
        {atoms.variable(t): system.typed(t, old_forms[t]) for t in ordered},
        {atoms.variable(s): system.typed(s, f) for s, f in values.items()},
    )


def _name_variables(system: System, solved: _Solved) -> list[int]:
    """Make TVM variables for the new variables, and return them in order."""
    place = {t: _source(system, solved, t) for t in solved.variables}
    ordered = sorted(solved.variables, key=lambda t: place[t][0])
    taken: set[str] = set()
    count = 0
    for t in ordered:
        name = place[t][1]
        while not name or name in taken:
            name = f"t{count}"
            count += 1
        taken.add(name)
        system.atoms.name_variable(t, name)
    return ordered


def _source(system: System, solved: _Solved, t: int) -> tuple[int, str]:
    """The index and name of the old variable that a new one equals up to a shift."""
    first = len(system.variables)
    for n, s in enumerate(system.variables):
        f = solved.values.get(s, {})
        if t in f:
            if all(u in (t, CONST) for u in f) and f[t] == 1:
                return n, system.atoms.variable(s).name
            first = min(first, n)
    return first, ""
