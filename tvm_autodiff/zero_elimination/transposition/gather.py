"""One derivative term transposed into a gather: for each element of the gradient, the sum of what
reaches it.

In: a term ``d out[a] += Σ_k [c] p · d x[g(a, k)]`` and the cotangent of `out`. Out: the expression
of ``Σ_{(a, k): c, g(a, k) = b} head[a] · p`` over axes that solve the system ``g(a, k) = b``:
0-based, of constant extents, with guards only where a box holds more than the solutions. What
cannot be solved stays a guard, so a system outside of the solver's reach is the dense sum: slow,
and right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...domain import Domain, DomainTransformation, simplify_domain
from ...expr.build import all_of, compare, conjuncts, const, equal_integers, if_then_else, zero_like
from ...expr.fold import fold
from ...expr.lets import bind_shared
from ...expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_const,
    is_float,
    is_load,
    load,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import contains_load, depends_on, postorder, substituter, variables_of
from ...expr.simplify import collect_indices, prove
from ...graph.stage import Operation, axis_range, bodies, bounds_of, is_compute, reduce_axis_over
from ...rules.terms import Condition, Term, guarded
from .condition_order import in_order
from .data_equations import Points, is_data_equation, reads_inside, solve_data_equations
from .scaling import read_through_scaling
from .windows import Ranges, constant_box, nonempty, within


@dataclass(frozen=True)
class Cotangent:
    """The cotangent of a stage's output: a tensor of shape prefix + output shape, or the identity.

    The identity (`tensor` is None) is the indicator that prefix and output index are equal; it
    never becomes a tensor. With an empty prefix it is the number one: the gradient of a scalar.
    """

    tensor: Tensor | None


@dataclass(frozen=True)
class Target:
    """Where a gradient is gathered: the axes of the prefix and of the tensor differentiated.

    `places` are the tensor's indices in terms of `axes`, where those are not the axes themselves.
    """

    prefix: tuple[Axis, ...]
    axes: tuple[Axis, ...]
    places: tuple[Expr, ...] | None = None

    @property
    def indices(self) -> tuple[Expr, ...]:
        """The element of the tensor that the gradient is gathered at."""
        return tuple(axis.var for axis in self.axes) if self.places is None else self.places

    @property
    def ranges(self) -> Ranges:
        """The range of every axis."""
        return {axis.var: axis_range(axis) for axis in (*self.prefix, *self.axes)}


@dataclass(frozen=True)
class Gathered:
    """``Σ_axes source``: what one term contributes to the gradient at the target's axes.

    Attributes
    ----------
    axes : tuple of Axis
        Reduce axes, 0-based; empty where the index map is injective.
    source : Expr
        Guards included.
    guards : tuple of Expr
        The conditions on indices among them.
    unsolved : tuple of Expr
        Equations between indices that stay guards: the sum is dense in their variables.
    masks : tuple of Expr
        Equations with data that stay guards, over an axis that nothing else bounds: the sum is
        dense in it, too. (A maximum's place within a few windows is no such equation.)
    """

    axes: tuple[Axis, ...]
    source: Expr
    guards: tuple[Expr, ...] = ()
    unsolved: tuple[Expr, ...] = ()
    masks: tuple[Expr, ...] = ()

    @property
    def dense(self) -> tuple[Expr, ...]:
        """All equations that the sum is dense in."""
        return (*self.unsolved, *self.masks)


def gather(op: Operation, term: Term, cotangent: Cotangent, target: Target) -> Gathered | None:
    """Transpose one term of a stage's derivative.

    Parameters
    ----------
    op : Operation
        The stage that the term belongs to.
    term : Term
        One summand of its derivative.
    cotangent : Cotangent
        Of the term's output component.
    target : Target
        The axes of the gradient: prefix of the cotangent, then those of ``term.tensor``.

    Returns
    -------
    Gathered or None
        None where no point of the domain reaches the tensor at all.
    """
    outer = [axis.var for axis in op.axis]
    seed, head_conditions = _seed(op, term, cotangent, target, outer)
    if is_const(term.value, 0) or is_const(seed, 0):
        return None
    conditions = (*head_conditions, *term.conditions)
    equations = [
        equal_integers(index, place)
        for index, place in zip(term.indices, target.indices, strict=True)
    ]
    value = substituter({term.seed: seed})(term.value)
    gathered = sum_where(
        fold(value) if is_const(seed) else value,
        conditions,
        (*op.axis, *term.reduce_axes),
        target.ranges,
        equations,
    )
    if gathered is None or gathered.axes or cotangent.tensor is None:
        return gathered
    return replace(gathered, source=read_through_scaling(gathered.source, cotangent.tensor))


def sum_where(
    value: Expr,
    conditions: Sequence[Condition],
    axes: Sequence[Axis],
    parameters: Ranges,
    equations: Sequence[Expr] = (),
) -> Gathered | None:
    """``Σ_axes if conditions then value``, summed over a box in which few points fail them.

    Parameters
    ----------
    value : Expr
        What is summed.
    conditions : sequence of Condition
        Those on indices are solved, others stay in the source.
    axes : sequence of Axis
        What is summed over; bounds may depend on other axes.
    parameters : mapping from Var to (minimum, extent)
        Ranges of the other variables.
    equations : sequence of Expr
        Further conditions, solved as far as may be although they read tensors.

    Returns
    -------
    Gathered or None
        None where the conditions never hold.
    """
    loops, axes, bounds = _data_loops(axes, equations)
    looping = [axis.var for axis in loops]
    index_conditions, others = [], list(bounds)
    for condition in conditions:
        if on_indices(condition.expr) and not depends_on(condition.expr, looping):
            index_conditions.append(condition.expr)
        else:
            others.append(condition)
    box, limits = constant_box({a.var: axis_range(a) for a in axes if not is_jagged(a)})
    box |= {axis.var: (0, None) for axis in axes if is_jagged(axis)}
    domain = Domain(tuple(box), {**box, **parameters}, (*equations, *index_conditions, *limits))
    solution = simplify_domain(domain)
    if solution.new_domain.is_empty:
        return None
    new = solution.new_domain
    move = substituter(solution.old_to_new)
    remaining = [part for c in new.conditions for part in conjuncts(c)]
    guards = [c for c in remaining if on_indices(c)]
    data = [c for c in remaining if not on_indices(c)]
    unsolved = [c for c in remaining if op_name(c) == "eq" and depends_on(c, new.variables)]
    found = solve_data_equations(
        Points(
            new.variables,
            {**parameters, **new.ranges},
            (
                *(Condition(c, True) for c in guards),
                *(Condition(move(c.expr), c.guards) for c in others),
            ),
            {},
        )
    )
    if found is None:
        return None
    move_on = found.move
    known = [c.expr for c in found.conditions if on_indices(c.expr)]
    others = [c for c in found.conditions if not on_indices(c.expr)]
    ranges = {**parameters, **found.ranges}
    # those on data themselves, and what stands in front of them
    early = [*map(move_on, data), *(c.expr for c in others)] if data else []
    if not all(reads_inside(c, ranges) for c in early):
        every = {axis.var: axis_range(axis) for axis in axes if not is_jagged(axis)}
        solved = {v: bounds for v, bounds in every.items() if contains_load(move(v))}
        filled = [move_on(move(condition)) for condition in nonempty(solved)]
        # the solver drops what follows from equations that read, but the reads need it before
        plain = {v: bounds for v, bounds in every.items() if v not in solved}
        filled += [c for c in map(move_on, map(move, within(plain))) if on_indices(c)]
        known = [*(c for c in filled if on_indices(c) and not prove(c, ranges)), *known]
        data = [*(c for c in filled if not on_indices(c)), *data]
    masks = [c.expr for c in others if is_data_equation(c.expr)]
    loose = [var for axis in axes for var in _loose(axis, equations, solution)]
    source = guarded(
        collect_indices(move_on(move(value))),
        [
            *([Condition(all_of(known), True)] if known else []),
            *in_order(others, [Condition(move_on(c), False) for c in data]),
        ],
    )
    summed = [reduce_axis_over(var, found.ranges[var][1]) for var in found.variables]
    for loop in loops:
        extent = move_on(move(bounds_of(loop)[1]))
        if not reads_inside(extent, ranges):
            allowed = all_of(c for c in known if not depends_on(c, looping))
            extent = if_then_else(allowed, extent, zero_like(extent))
        summed.append(reduce_axis_over(loop.var, extent))
    return Gathered(
        tuple(summed),
        bind_shared(source),
        tuple(known),
        tuple(map(move_on, unsolved)),
        tuple(
            c for c in masks if _is_join(c, found.variables, parameters) and depends_on(c, loose)
        ),
    )


def is_jagged(axis: Axis) -> bool:
    """Whether a bound of an axis is data: ``k < length[i]``."""
    return contains_load(list(bounds_of(axis)))


def _data_loops(
    axes: Sequence[Axis], equations: Sequence[Expr]
) -> tuple[list[Axis], list[Axis], list[Condition]]:
    """Axes with data for bounds that stay loops, all other axes, and the bounds of those of them
    that an equation determines.
    """
    loops: list[Axis] = []
    others: list[Axis] = []
    bounds: list[Condition] = []
    for axis in axes:
        tied = any(depends_on(equation, [axis.var]) for equation in equations)
        (loops if is_jagged(axis) and not tied else others).append(axis)
        if is_jagged(axis) and tied:
            bounds.append(Condition(compare("lt", axis.var, bounds_of(axis)[1]), True))
    return loops, others, bounds


def _loose(axis: Axis, equations: Sequence[Expr], solution: DomainTransformation) -> list[Var]:
    """The new variable that an axis is, up to a shift, where nothing ties it to other axes."""
    found = variables_of(solution.old_to_new[axis.var])
    tied = len(found) != 1 or any(depends_on(equation, [axis.var]) for equation in equations)
    return [] if tied else found


def _is_join(equation: Expr, summed: Sequence[Var], parameters: Ranges) -> bool:
    """Whether an equation tests pairs of points: ``I[n] == J[e]``, while ``I[n] == 3`` chooses."""
    axes = {node_id(var) for var in (*summed, *parameters)}
    count = sum(node_id(var) in axes for var in variables_of(equation))
    return count > 1 and depends_on(equation, summed)


def on_indices(condition: Expr) -> bool:
    """Whether a condition is on indices alone: no tensor is read and no float is compared."""
    return not any(is_load(node) or is_float(node) for node in postorder(condition))


def _seed(
    op: Operation, term: Term, cotangent: Cotangent, target: Target, outer: Sequence[Var]
) -> tuple[Expr, list[Condition]]:
    """The cotangent of ``out[a]`` as an expression, with the conditions where it is not zero."""
    prefix = [axis.var for axis in target.prefix]
    if cotangent.tensor is None:
        equal = (
            [
                Condition(equal_integers(axis, place), True)
                for axis, place in zip(outer, prefix, strict=True)
            ]
            if prefix
            else []
        )
        return const(1, dtype_of(term.seed)), equal
    head = cotangent.tensor
    constant = _constant_of(head)
    if constant is not None:
        return constant, []
    inlined = _sparse_head(head, [*prefix, *outer])
    return inlined if inlined is not None else (load(head, [*prefix, *outer]), [])


def _constant_of(head: Tensor) -> Expr | None:
    """The value of a cotangent that is one literal everywhere, as that of a total sum is."""
    if not is_compute(head.op):
        return None
    body = bodies(head.op)[head.value_index]
    return body if is_const(body) else None


def _sparse_head(head: Tensor, indices: Sequence[Expr]) -> tuple[Expr, list[Condition]] | None:
    """``head[i] → value, [c]`` where the head's stage is ``if c then value else 0`` with an
    equation in c.

    The Jacobian of an elementwise map is such a guarded diagonal; read as a tensor it would be a
    sum over zeros in every later step.
    """
    if not is_compute(head.op):
        return None
    body = bodies(head.op)[head.value_index]
    if op_name(body) not in ("if_then_else", "select"):
        return None
    condition, value, otherwise = operands(body)
    parts = conjuncts(condition)
    if not is_const(otherwise, 0) or not any(
        op_name(part) == "eq" and on_indices(part) for part in parts
    ):
        return None
    rename = substituter(
        {axis.var: index for axis, index in zip(head.op.axis, indices, strict=True)}
    )
    guards = op_name(body) == "if_then_else"
    return rename(value), [Condition(rename(part), guards) for part in parts]
