"""Terms of a derivative, and the reverse sweep through one expression that produces them.

For each requested read or variable the sweep collects the values that reach it, each with the
conditions of its path. Conditions are kept apart from values, so that the solver can use conditions
on indices, and a guard is never a factor: `if c: h*p` instead of `c*h*p`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from ..errors import NotDifferentiableError
from ..expr.build import add, cast, if_then_else, negate, select, zero_like
from ..expr.float_functions import why_meaningless
from ..expr.nodes import (
    COMPARISONS,
    Axis,
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_float,
    node_id,
    op_name,
    operands,
    own_fields,
)
from ..expr.printing.text import text
from ..expr.rewrite import postorder
from .registry import called_name, scalar_rule
from .scalar_rules import NO_DERIVATIVE, Branch

#: the number of paths that a shared node keeps separate before they are joined into one value
_MOST_PATHS = 4


@dataclass(frozen=True, eq=False)
class Condition:
    """A condition on a path; `guards` means that it protects reads and must stay a real branch."""

    expr: Expr
    guards: bool

    def key(self) -> tuple[int, bool]:
        """Equal for equal conditions of one sweep; a choice does not guard reads, a branch does."""
        return node_id(self.expr), self.guards


@dataclass(frozen=True)
class Contribution:
    """A value that reaches a read if all conditions hold, outermost first."""

    value: Expr
    conditions: tuple[Condition, ...] = ()

    def key(self) -> tuple[tuple[int, bool], ...]:
        """Equal for contributions along equal paths."""
        return tuple(condition.key() for condition in self.conditions)


@dataclass(frozen=True)
class Term:
    """One summand of a stage's derivative: ``d out[a] += Σ_k [conditions] value/seed · d
    tensor[indices]``.

    Attributes
    ----------
    tensor, indices
        The read site: the tensor and its element, in the stage's axes and `reduce_axes`.
    component : int
        The number of the output whose cotangent is `seed`.
    seed : Var
        The variable for the cotangent of ``out[a]`` in `value`.
    value : Expr
        An expression that is linear in `seed`, in the dtype of `tensor`.
    conditions : tuple of Condition
        The conditions under which the term is not zero.
    reduce_axes : tuple of Axis
        The axes ``k`` of the stage's reduction.
    """

    tensor: Tensor
    indices: tuple[Expr, ...]
    component: int
    seed: Var
    value: Expr
    conditions: tuple[Condition, ...]
    reduce_axes: tuple[Axis, ...]


def guarded(
    value: Expr, conditions: Sequence[Condition], otherwise: Expr | None = None
) -> Expr:
    """``if c1: select c2: value`` with zero or another number elsewhere, conditions outermost
    first.
    """
    nothing = zero_like(value) if otherwise is None else otherwise
    for condition in reversed(conditions):
        choose = if_then_else if condition.guards else select
        value = choose(condition.expr, value, nothing)
    return value


def pull_back(
    roots: Sequence[tuple[Expr, Sequence[Contribution], Expr | None]],
    wanted: Callable[[Expr], bool],
    where: str,
) -> dict[int, tuple[Expr, list[Contribution]]]:
    """One reverse sweep over a graph of expressions.

    Parameters
    ----------
    roots : sequence of (expression, contributions, alias)
        The expression to differentiate, its cotangents, and an equal expression that the rules may
        read instead (the forward output), or None. Lets must be expanded, and equal parts should be
        one node (`expr.sharing.lets.merge_equal`).
    wanted : callable
        A predicate for the nodes (reads, variables) at which contributions are collected.
    where : str
        The name of the stage, for error messages.

    Returns
    -------
    dict
        A map from node id to (node, contributions), in order of first occurrence.
    """
    order = postorder([expr for expr, _, _ in roots])
    active: set[int] = set()
    for node in order:
        if wanted(node) or (
            not _is_piecewise_constant(node)
            and any(node_id(part) in active for part in operands(node))
        ):
            meaningless = why_meaningless(node)
            if meaningless is not None:
                raise NotDifferentiableError(f"{where}: {meaningless}")
            active.add(node_id(node))
    arriving: dict[int, list[Contribution]] = {}
    alias: dict[int, Expr] = {}
    for expr, contributions, other in roots:
        for contribution in contributions:
            _arrive(arriving, expr, contribution)
        if other is not None:
            alias[node_id(expr)] = other
    found: dict[int, tuple[Expr, list[Contribution]]] = {}
    conditions: dict[Hashable, Condition] = {}
    for node in reversed(order):
        key = node_id(node)
        if key not in active or key not in arriving:
            continue
        if wanted(node):
            paths = _with_sides_joined(arriving[key], _if_equal)
            found[key] = (node, _by_indices(paths))
            continue
        rule = scalar_rule(node)
        if rule is None:
            raise NotDifferentiableError(
                f"{where}: no derivative rule for {called_name(node)} in {text(node, limit=200)}; "
                "add one for the function with register_rule, or for the stage with override= or "
                "manual="
            )
        out = alias.get(key, node)
        parts = operands(node)
        for contribution in arriving[key]:
            partials = rule.pullback(contribution.value, parts, out)
            for part, partial in zip(parts, partials, strict=True):
                if partial is None or node_id(part) not in active:
                    continue
                dtype = dtype_of(part)
                if isinstance(partial, Branch):
                    condition = _known(conditions, partial.condition, partial.guards)
                    path = contribution.conditions
                    if condition not in path:
                        path = (*path, condition)
                    _arrive(arriving, part, Contribution(cast(dtype, partial.value), path))
                else:
                    path = contribution.conditions
                    _arrive(arriving, part, Contribution(cast(dtype, partial), path))
    return {node_id(n): found[node_id(n)] for n in order if node_id(n) in found}


def _known(conditions: dict[Hashable, Condition], expr: Expr, guards: bool) -> Condition:
    """One object for equal conditions, so that a path with a repeated condition contains it once.
    """
    return conditions.setdefault((_form(expr), guards), Condition(expr, guards))


def _is_piecewise_constant(node: Expr) -> bool:
    """Whether a node ends a path: a comparison or a conversion to integers. Other integers may
    carry bits.
    """
    name = op_name(node)
    return name in NO_DERIVATIVE or (name == "cast" and not is_float(node))


def _arrive(arriving: dict[int, list[Contribution]], node: Expr, new: Contribution) -> None:
    """Add a contribution to a node: equal paths are summed, too many paths are joined."""
    known = arriving.setdefault(node_id(node), [])
    for place, old in enumerate(known):
        if old.key() == new.key():
            known[place] = Contribution(add(old.value, new.value), old.conditions)
            return
    known.append(new)
    if len(known) > _MOST_PATHS:
        known[:] = [_join(known)]


def _join(contributions: Sequence[Contribution]) -> Contribution:
    """Contributions along several paths as one; conditions that all of them share stay conditions.
    """
    paths = [contribution.conditions for contribution in contributions]
    length = 0
    while all(len(path) > length for path in paths) and (
        len({path[length].key() for path in paths}) == 1
    ):
        length += 1
    shared = paths[0][:length]
    value: Expr | None = None
    apart = [Contribution(one.value, one.conditions[length:]) for one in contributions]
    for one in _with_sides_joined(apart, _chosen):
        part = guarded(one.value, one.conditions)
        value = part if value is None else add(value, part)
    assert value is not None
    return Contribution(value, shared)


def _by_indices(contributions: Sequence[Contribution]) -> list[Contribution]:
    """``[p, x > 0] v, [p] w → [p] (if x > 0 then v else 0) + w``: floats choose no elements, so
    paths that differ by comparisons of floats only are one.
    """
    groups: dict[Hashable, list[Contribution]] = {}
    for one in contributions:
        indices = tuple(c.key() for c in one.conditions if not _compares_floats(c.expr))
        groups.setdefault(indices, []).append(one)
    return [
        _join(list(map(_indices_first, group))) if len(group) > 1 else group[0]
        for group in groups.values()
    ]


def _indices_first(one: Contribution) -> Contribution:
    """Conditions of indices protect what floats read, and floats need not protect indices."""
    ordered = sorted(one.conditions, key=lambda condition: _compares_floats(condition.expr))
    return Contribution(one.value, tuple(ordered))


def _compares_floats(condition: Expr) -> bool:
    """Whether floats alone decide a condition."""
    compared = [operands(n)[0] for n in postorder(condition) if op_name(n) in COMPARISONS]
    return bool(compared) and all(map(is_float, compared))


def _with_sides_joined(
    contributions: Sequence[Contribution],
    joined: Callable[[Condition, Expr, Expr], Expr | None],
) -> list[Contribution]:
    """``[p, c] v, [p, not c] w → [p] joined(c, v, w)``, where that is not None."""
    found, place = list(contributions), 0
    while place < len(found):
        one = found[place]
        for number in range(place + 1, len(found)):
            other = found[number]
            if not _are_sides(one, other):
                continue
            value = joined(one.conditions[-1], one.value, other.value)
            if value is not None:
                found[place] = Contribution(value, one.conditions[:-1])
                del found[number]
                place = -1
                break
        place += 1
    return found


def _chosen(condition: Condition, then: Expr, otherwise: Expr) -> Expr:
    """``if c then v else w``: what both sides read is read anyway."""
    choose = if_then_else if condition.guards else select
    return choose(condition.expr, then, otherwise)


def _if_equal(condition: Condition, then: Expr, otherwise: Expr) -> Expr | None:
    """What comes along both sides of a branch that changes other elements only."""
    return then if node_id(then) == node_id(otherwise) else None


def _are_sides(left: Contribution, right: Contribution) -> bool:
    """Whether two paths are the sides of one branch."""
    if not left.conditions or left.key()[:-1] != right.key()[:-1] or not right.conditions:
        return False
    one, other = left.conditions[-1], right.conditions[-1]
    return one.guards == other.guards and (
        _form(negate(one.expr)) == _form(other.expr) or _form(one.expr) == _form(negate(other.expr))
    )


def _form(condition: Expr) -> Hashable:
    """Equal for equal conditions over the same nodes."""
    parts = tuple(node_id(part) for part in operands(condition))
    return op_name(condition), own_fields(condition), parts
