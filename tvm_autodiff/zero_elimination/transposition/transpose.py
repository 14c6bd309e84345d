"""The pullback of one stage: each term of its derivative as a sum, by the cheapest strategy.

Every sum keeps its read site, which `transforms.explain` shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...domain.from_floats import without_floats
from ...expr.nodes import (
    Tensor,
    is_float,
    is_load,
)
from ...expr.rewrite import contains, contains_load, postorder
from ...graph.stage import Operation, axis_range, axis_vars, data_axis, index_dtype, shape_of
from ...rules.copies import through_copy
from ...rules.linearize import linearize
from ...rules.terms import Term
from ..strategies.table import LAST_RESORTS, cheapest
from ..sums.data.stored_masks import is_mask, with_stored_masks
from ..sums.sum import Sum, Target
from ..sums.summands import summands
from ..sums.windows import is_jagged
from .gather import Cotangent, TermSum, dense_seed
from .jagged import from_zero
from .shared_factors import with_shared_factors
from .sparse_operands import with_sparse_operands
from .summed_points import divides, with_summed_points


@dataclass(frozen=True)
class Transposed:
    """The contribution of one read site to a gradient.

    Attributes
    ----------
    op : Operation
        The reading stage.
    term : Term
        The term of its derivative, continued through copies and split into cases.
    cotangent : Cotangent
        The cotangent of the term's output component.
    sum : Sum
        The contribution, with its strategy and its elements.
    """

    op: Operation
    term: Term
    cotangent: Cotangent
    sum: Sum

    @property
    def target(self) -> Target:
        """The axes of the contribution."""
        return self.sum.target

    @property
    def strategy(self) -> str:
        """The name of a row of `strategies.table.STRATEGIES`."""
        return self.sum.strategy


def target_of(tensor: Tensor, prefix_shape: Sequence[object]) -> Target:
    """New axes for the gradient of a tensor: those of the prefix, then those of the tensor."""
    prefix = tuple(data_axis(f"p{n}", extent) for n, extent in enumerate(prefix_shape))
    axes = tuple(
        data_axis(name, extent, index_dtype(tensor.shape[n]))
        for n, (name, extent) in enumerate(zip(_axis_names(tensor), shape_of(tensor), strict=True))
    )
    return Target(prefix, axes)


def _axis_names(tensor: Tensor) -> list[str]:
    op = tensor.op
    if hasattr(op, "axis") and hasattr(op, "body"):
        return [var.name for var in axis_vars(op)]
    return [f"i{n}" for n in range(len(tensor.shape))]


def transpose(
    op: Operation,
    cotangents: Mapping[int, Cotangent],
    tensors: Sequence[Tensor],
    target: Callable[[Tensor], Target],
    copies: Callable[[Tensor], list[Term] | None] = lambda tensor: None,
) -> list[Transposed]:
    """The contributions of a stage to the gradients of the tensors it reads.

    Parameters
    ----------
    op : Operation
        A compute stage.
    cotangents : mapping from int to Cotangent
        The cotangents by output component.
    tensors : sequence of Tensor
        The tensors to differentiate with respect to.
    target : callable
        Returns the axes of the gradient of a tensor.
    copies : callable, optional
        Returns the terms of a tensor's stage if it only copies and is fused through, else None.

    Returns
    -------
    list of Transposed
        Contributions in the order of the read sites.

    Raises
    ------
    NotDifferentiableError
        As in `tvm_autodiff.rules.linearize.linearize`.
    """
    result: list[Transposed] = []
    terms = linearize(op, tensors)
    found = {number: dense_seed(arrived, axis_vars(op)) for number, arrived in cotangents.items()}
    seeds = {number: seed for number, seed in found.items() if seed is not None}
    terms = with_shared_factors(op, terms, seeds)
    terms = [replace(term, value=with_stored_masks(term.value)) for term in terms]
    terms = [part for term in terms for part in _with_masks_as_conditions(term)]
    for term in map(partial(_with_integer_indices, op), terms):
        cotangent = cotangents.get(term.component)
        if cotangent is None:
            continue
        sparse = with_sparse_operands(term)
        sites = _past_copies(op, sparse, cotangent, target, copies)
        if sparse is not term and any(site.strategy in LAST_RESORTS for site in sites):
            sites = _past_copies(op, term, cotangent, target, copies)
        result += sites
    return result


def _with_masks_as_conditions(term: Term) -> list[Term]:
    """``head[n]*float(idx[e] == n) → head[n], if idx[e] == n``.

    The solver can use an equation in a factor only as a condition.
    """
    if not contains(term.value, is_mask):
        return [term]
    return [
        replace(term, value=part.value, conditions=(*term.conditions, *part.conditions))
        for part in summands(term.value)
    ]


def _with_integer_indices(op: Operation, term: Term) -> Term:
    """The term with integer indices that the solver can handle, if they are computed in floats."""
    if not any(is_float(node) and not is_load(node) for node in postorder(term.indices)):
        return term
    ranges = {axis.var: axis_range(axis) for axis in (*op.axis, *term.reduce_axes)}
    return replace(term, indices=tuple(without_floats(index, ranges) for index in term.indices))


def _past_copies(
    op: Operation,
    term: Term,
    cotangent: Cotangent,
    target: Callable[[Tensor], Target],
    copies: Callable[[Tensor], list[Term] | None],
) -> list[Transposed]:
    """The term at the sources of the copies it reads, or at the copy if that cannot be solved."""
    inner = None
    if any(is_jagged(axis) for axis in term.reduce_axes):
        term = from_zero(term)
    elif not any(contains_load(index) for index in term.indices):
        inner = copies(term.tensor)
    if inner is not None:
        further = [
            site
            for part in inner
            for site in _past_copies(
                op, through_copy(term, term.tensor.op, part), cotangent, target, copies
            )
        ]
        if not any(site.strategy in LAST_RESORTS for site in further):
            return further
    definition = TermSum(op, term, cotangent)
    whole = definition.at(target(term.tensor))
    if whole is None:
        return []
    direct = cheapest(whole)
    if any(map(divides, direct)) and (found := _in_two_steps(definition, whole.target)) is not None:
        return [Transposed(op, term, cotangent, found)]
    return [_site(found) for found in direct]


def _in_two_steps(definition: TermSum, target: Target) -> Sum | None:
    """The sum of a term from its sums at the points that its read depends on, if that is solved."""
    first = with_summed_points(definition, target)
    if first is None:
        return None
    points, made = first
    whole = points.at(target)
    found = () if whole is None else cheapest(whole)
    if len(found) != 1 or found[0].dense or found[0].strategy in LAST_RESORTS:
        return None
    return replace(found[0], made=(*found[0].made, made))


def _site(found: Sum) -> Transposed:
    definition = found.definition
    assert isinstance(definition, TermSum)
    return Transposed(definition.op, definition.term, definition.cotangent, found)
