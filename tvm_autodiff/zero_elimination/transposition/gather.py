"""Defines one derivative term as a sum: the contributions to each element of the gradient.

For a term ``d out[a] += Σ_k [c] p · d x[g(a, k)]`` and the cotangent of `out` it is ``Σ_{(a, k): c,
g(a, k) = b} head[a] · p``, bounded by the solutions of ``g(a, k) = b``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...errors import UnsolvableError
from ...expr.build import cast, conjuncts, const, equal_integers
from ...expr.fold import fold
from ...expr.nodes import (
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_const,
    load,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import contains_load, replace_outermost, substituter
from ...expr.sharing.lets import merge_equal
from ...graph.stage import Operation, axis_range, axis_vars, bodies, is_compute, renew_axis
from ...rules.terms import Condition, Term
from ..cases import clamps, conditions
from ..sums.conditions import on_indices
from ..sums.solve import solve, unsolved
from ..sums.sum import Sum, Target, Updates
from ..sums.windows import is_jagged
from .scaling import read_through_scaling


@dataclass(frozen=True)
class Cotangent:
    """The cotangent of a stage's output: a tensor of shape prefix + output shape, or the identity.

    The identity (`tensor` is None) is the indicator that prefix and output index are equal. It
    never becomes a tensor. With an empty prefix it is the number one, for the gradient of a scalar.
    """

    tensor: Tensor | None


@dataclass(frozen=True)
class TermSum:
    """The contribution of one term of a stage's derivative to the gradient of ``term.tensor``.

    Attributes
    ----------
    op : Operation
        The stage of the term.
    term : Term
        One summand of its derivative.
    cotangent : Cotangent
        The cotangent of the term's output component.
    site : tuple of Expr
        The indices of the read site as they are written, of which those of the term may be a case.
    """

    op: Operation
    term: Term
    cotangent: Cotangent
    site: tuple[Expr, ...] = ()

    @property
    def name(self) -> str:
        """The prefix of the names of stages for its parts."""
        return f"d{self.term.tensor.op.name}"

    def stage_name(self, what: str) -> str:
        """The name of a stage that is the whole sum."""
        return f"{self.name}_{what}"

    @property
    def reads_by_data(self) -> bool:
        """Whether an index of the read site is read from a tensor."""
        return any(contains_load(index) for index in self.term.indices)

    def at(self, target: Target) -> Sum | None:
        """The sum at the elements of a target, or None if no point of the domain reaches them."""
        op, term, cotangent = self.op, self.term, self.cotangent
        seed, head_conditions = _seed(term, cotangent, target, axis_vars(op))
        if is_const(term.value, 0) or is_const(seed, 0):
            return None
        equations = [
            equal_integers(index, place)
            for index, place in zip(term.indices, target.indices, strict=True)
        ]
        value = _at_places(
            substituter({term.seed: seed})(term.value), self.site or term.indices, target.indices
        )
        axes = (*op.axis, *term.reduce_axes)
        if self.reads_by_data and any(map(is_jagged, axes)):
            return unsolved(self, target)
        try:
            solved = solve(
                self,
                target,
                fold(value) if is_const(seed) else value,
                (*head_conditions, *term.conditions),
                axes,
                equations,
            )
        except UnsolvableError:  # a window that sizes do not bound
            return unsolved(self, target)
        if solved is None or solved.axes or cotangent.tensor is None:
            return solved
        return replace(solved, source=read_through_scaling(solved.source, cotangent.tensor))

    def updates(self, target: Target) -> Updates:
        """``d out[a] += [c] p · dx[g(a, k)]  →  for all a, k: if c then dx[g(a, k)] += head[a]·p``.

        With the identity as cotangent, the prefix is the index of the output:
        ``for all (a, k): if c then dx[a, g(a, k)] += p``.
        """
        op, term, head = self.op, self.term, self.cotangent.tensor
        axes = (*op.axis, *term.reduce_axes)
        if head is None:
            outer = axis_vars(op) if target.prefix else []
            value = fold(substituter({term.seed: const(1, dtype_of(term.seed))})(term.value))
            return Updates(value, term.conditions, axes, (*outer, *term.indices))
        prefix = tuple(renew_axis(axis) for axis in target.prefix)
        seed = load(head, [*(axis.var for axis in prefix), *axis_vars(op)])
        value = substituter({term.seed: seed})(term.value)
        return Updates(value, term.conditions, axes, term.indices, prefix)

    def cases(self) -> list[TermSum] | None:
        """The cases of the clamps and choices in the indices of the read site."""
        axes = (*self.op.axis, *self.term.reduce_axes)
        if any(map(is_jagged, axes)):
            return None
        found = clamps.cases_of(self.term, {axis.var: axis_range(axis) for axis in axes})
        site = self.site or self.term.indices
        return None if found is None else [replace(self, term=one, site=site) for one in found]

    def parts(self) -> list[TermSum] | None:
        """The sums of the cases of the conditions."""
        ranges = {axis.var: axis_range(axis) for axis in (*self.op.axis, *self.term.reduce_axes)}
        found = conditions.cases_of(self.term.conditions, ranges)
        if found is None:
            return None
        return [replace(self, term=replace(self.term, conditions=case)) for case in found]


def _at_places(value: Expr, site: Sequence[Expr], places: Sequence[Expr]) -> Expr:
    """``x[clamp(i)]*y[i] → x[b]*y[i]`` where ``clamp(i) == b`` is what the sum is over."""
    [merged, *indices] = merge_equal([value, *site])
    table = {
        node_id(index): cast(dtype_of(index), place)
        for index, place in zip(indices, places, strict=True)
        if operands(index)
    }
    return replace_outermost(merged, table) if table else value


def _seed(
    term: Term, cotangent: Cotangent, target: Target, outer: Sequence[Var]
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
    inlined = _sparse_head(cotangent.tensor, [*prefix, *outer])
    return inlined if inlined is not None else (_read(cotangent.tensor, [*prefix, *outer]), [])


def dense_seed(cotangent: Cotangent, outer: Sequence[Var]) -> Expr | None:
    """The cotangent of ``out[a]`` without a prefix, or None if it is zero at most points."""
    head = cotangent.tensor
    if head is None or len(head.shape) != len(outer) or _sparse_head(head, outer) is not None:
        return None
    return _read(head, outer)


def _read(head: Tensor, indices: Sequence[Expr]) -> Expr:
    """An element of a cotangent; a literal if it is the same everywhere."""
    constant = _constant_of(head)
    return load(head, indices) if constant is None else constant


def _constant_of(head: Tensor) -> Expr | None:
    """The value of a cotangent that is one literal everywhere, such as that of a total sum."""
    if not is_compute(head.op):
        return None
    body = bodies(head.op)[head.value_index]
    return body if is_const(body) else None


def _sparse_head(head: Tensor, indices: Sequence[Expr]) -> tuple[Expr, list[Condition]] | None:
    """``head[i] → value, [c]`` if the head's stage is ``if c then value else 0`` with an equation
    in c.

    The Jacobian of an elementwise map is such a guarded diagonal. Read as a tensor, it would cause
    a sum over zeros in every later step.
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
