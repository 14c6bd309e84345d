"""The pullback of one stage: its derivative's terms, transposed the best way each.

In: a stage, the cotangents of its outputs, the tensors that adjoints are asked for. Out: gathered
terms for each tensor. An index that is data (`table[I[n]]`) or that the solver cannot treat is
scattered; where there is no tensor to scatter, the guarded dense sum is left. The way is recorded
for `transforms.explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...domain.from_floats import without_floats
from ...errors import UnsolvableError
from ...expr.build import conjuncts
from ...expr.nodes import (
    Expr,
    Tensor,
    dtype_of,
    is_float,
    is_integer,
    is_load,
    load,
    op_name,
    operands,
)
from ...expr.rewrite import contains, postorder
from ...graph.stage import Operation, axis_range, axis_vars, data_axis, index_dtype, shape_of
from ...rules.copies import through_copy
from ...rules.linearize import linearize
from ...rules.terms import Term
from .cases import cases_of
from .gather import Cotangent, Gathered, Target, gather, is_jagged
from .jagged import from_zero, update_loops
from .narrow import narrow_to_guards
from .ragged import follow_guards
from .residues import split_by_residue
from .scatter import reads_by_data, scatter
from .sparse_operands import with_sparse_operands
from .summands import summands

#: ways of what could not be solved
_LAST_RESORTS = ("scatter-add", "dense sum")


@dataclass(frozen=True)
class Transposed:
    """One read site's way into a gradient.

    Attributes
    ----------
    op : Operation
        The stage that reads.
    term : Term
        The term of its derivative, continued through copies and cut into cases.
    gathered : Gathered
        What it contributes.
    way : str
        How: ``gather``, ``residue classes``, ``part of the box``, ``ragged loops``,
        ``scatter-add``, ``loop over updates`` or ``dense sum``.
    target : Target
        The axes it contributes at.
    cotangent : Cotangent
        Of the output component that the term belongs to.
    """

    op: Operation
    term: Term
    gathered: Gathered
    way: str
    target: Target
    cotangent: Cotangent


def target_of(tensor: Tensor, prefix_shape: Sequence[object]) -> Target:
    """Fresh axes for the gradient of a tensor: those of the prefix, then those of the tensor."""
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
    """What a stage contributes to the adjoints of the tensors it reads.

    Parameters
    ----------
    op : Operation
        A compute stage.
    cotangents : mapping from int to Cotangent
        For each output component that has one.
    tensors : sequence of Tensor
        The tensors whose reads count.
    target : callable
        The axes to gather at, for each tensor.
    copies : callable, optional
        The terms of a tensor's stage where that only copies and may be passed by; else None.

    Returns
    -------
    list of Transposed
        In the order of the read sites.

    Raises
    ------
    NotDifferentiableError
        See `tvm_autodiff.rules.linearize.linearize`.
    """
    result: list[Transposed] = []
    terms = [part for term in linearize(op, tensors) for part in _with_masks_as_conditions(term)]
    for term in map(partial(_with_integer_indices, op), terms):
        cotangent = cotangents.get(term.component)
        if cotangent is None:
            continue
        sparse = with_sparse_operands(term)
        sites = _past_copies(op, sparse, cotangent, target, copies)
        if sparse is not term and any(site.way in _LAST_RESORTS for site in sites):
            sites = _past_copies(op, term, cotangent, target, copies)
        result += sites
    return result


def _with_masks_as_conditions(term: Term) -> list[Term]:
    """``head[n]*float(idx[e] == n)  →  head[n], where idx[e] == n``: an equation that a factor
    holds can be solved only as a condition.
    """
    if not contains(term.value, _is_mask):
        return [term]
    return [
        replace(term, value=part.value, conditions=(*term.conditions, *part.conditions))
        for part in summands(term.value)
    ]


def _is_mask(node: Expr) -> bool:
    """Whether a number is a choice by an equation between integers."""
    name = op_name(node)
    if name not in ("cast", "select", "if_then_else"):
        return False
    condition = operands(node)[0]
    return dtype_of(condition) == "bool" and any(
        op_name(part) == "eq" and is_integer(operands(part)[0]) for part in conjuncts(condition)
    )


def _with_integer_indices(op: Operation, term: Term) -> Term:
    """The term with indices that the solver understands, where they are computed in floats."""
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
    """The term gathered at the sources of the copies it reads, or at the copy where that fails."""
    if any(is_jagged(axis) for axis in term.reduce_axes):
        return _by_data_bounds(op, from_zero(term), cotangent, target(term.tensor))
    inner = None if reads_by_data(term) else copies(term.tensor)
    if inner is not None:
        further = [
            site
            for part in inner
            for site in _past_copies(
                op, through_copy(term, term.tensor.op, part), cotangent, target, copies
            )
        ]
        if not any(site.way in _LAST_RESORTS for site in further):
            return further
    where = target(term.tensor)
    try:
        return _solved(op, term, cotangent, where)
    except UnsolvableError:  # a window that sizes do not bound
        return _by_updates(op, term, cotangent, where)


def _solved(op: Operation, term: Term, cotangent: Cotangent, where: Target) -> list[Transposed]:
    """The term gathered, or scattered where the gather would be dense."""
    whole = gather(op, term, cotangent, where)
    if whole is None:
        return []
    name = f"d{term.tensor.op.name}"
    if whole.unsolved:
        parts = _by_cases(op, term, cotangent, where, name)
        if parts is not None:
            return parts
    if whole.dense:
        way = "dense sum"
        scattered = scatter(op, term, cotangent, where, f"{name}_scatter")
        if scattered is not None and (whole.unsolved or scattered.is_less_than(whole, where)):
            here = [axis.var for axis in (*where.prefix, *where.axes)]
            source = load(scattered.tensor, here)
            whole, way = Gathered((), source, masks=scattered.unsolved), "scatter-add"
        return [Transposed(op, term, whole, way, where, cotangent)]
    return [_divided(op, term, cotangent, where, whole, name)]


def _by_data_bounds(
    op: Operation, term: Term, cotangent: Cotangent, where: Target
) -> list[Transposed]:
    """A term whose loops have data for bounds: gathered where its index determines them or leaves
    them loops, else added up in one loop over the points.
    """
    if not reads_by_data(term):
        try:
            whole = gather(op, term, cotangent, where)
        except UnsolvableError:  # an index that does not bound such a loop
            return _by_updates(op, term, cotangent, where)
        if whole is None:
            return []
        if not whole.dense:
            return [Transposed(op, term, whole, "gather", where, cotangent)]
    return _by_updates(op, term, cotangent, where)


def _by_updates(op: Operation, term: Term, cotangent: Cotangent, where: Target) -> list[Transposed]:
    """A term added up in one loop over its points, whatever their bounds are."""
    name = f"d{term.tensor.op.name}_updates"
    updated = update_loops(op, term, cotangent, where, name)
    if updated is None:
        return []
    here = [axis.var for axis in (*where.prefix, *where.axes)]
    whole = Gathered((), load(updated, here))
    return [Transposed(op, term, whole, "loop over updates", where, cotangent)]


def _divided(
    op: Operation, term: Term, cotangent: Cotangent, where: Target, whole: Gathered, name: str
) -> Transposed:
    """A solved term, its sum made only where and as long as its guards allow."""
    at = partial(gather, op, term, cotangent)
    split = split_by_residue(whole, where, at, name)
    if split is not whole:
        return Transposed(op, term, split, "residue classes", where, cotangent)
    narrow = narrow_to_guards(whole, where, at, f"{name}_part")
    if narrow is not whole:
        return Transposed(op, term, narrow, "part of the box", where, cotangent)
    ragged = follow_guards(whole, where)
    way = "gather" if ragged is whole else "ragged loops"
    return Transposed(op, term, ragged, way, where, cotangent)


def _by_cases(
    op: Operation, term: Term, cotangent: Cotangent, where: Target, name: str
) -> list[Transposed] | None:
    """The cases of a term's clamps gathered one by one, where that solves every equation."""
    ranges = {axis.var: axis_range(axis) for axis in (*op.axis, *term.reduce_axes)}
    cases = cases_of(term, ranges)
    if cases is None:
        return None
    found = []
    for case in cases:
        try:
            gathered = gather(op, case, cotangent, where)
        except UnsolvableError:  # the solver does not bound this one: no case is gathered
            return None
        if gathered is None:
            continue
        if gathered.unsolved:  # the others would be gathered for nothing
            return None
        found.append((case, gathered))
    return [_divided(op, case, cotangent, where, gathered, name) for case, gathered in found]
