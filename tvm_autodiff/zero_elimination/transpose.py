"""The pullback of one stage: its derivative's terms, transposed the best way each.

In: a stage, the cotangents of its outputs, the tensors that adjoints are asked for. Out: gathered
terms for each tensor. An index that is data (`table[I[n]]`) is scattered; any other term that the
solver cannot treat becomes the guarded dense sum, and a warning says so and names the way out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ..calculus.copies import through_copy
from ..calculus.linearize import linearize
from ..calculus.terms import Term
from ..ir.build import all_of
from ..ir.nodes import Tensor, load
from ..ir.stage import Operation, axis_vars, data_axis, index_dtype, shape_of
from ..ir.text import text
from .cases import cases_of
from .gather import Cotangent, Gathered, Target, gather
from .narrow import narrow_to_guards
from .residues import split_by_residue
from .scatter import reads_by_data, scatter


class DenseSumWarning(UserWarning):
    """A gradient sums over structural zeros, since an equation could not be solved."""


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
) -> list[tuple[int, Tensor, Gathered]]:
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
    list of (component, tensor, gathered)
        The output component that a term belongs to, the tensor it contributes to, and the term.

    Raises
    ------
    NotDifferentiableError
        See `tvm_autodiff.calculus.linearize.linearize`.
    """
    result: list[tuple[int, Tensor, Gathered]] = []
    for term in linearize(op, tensors):
        cotangent = cotangents.get(term.component)
        if cotangent is None:
            continue
        for final, gathered in _past_copies(op, term, cotangent, target, copies):
            if gathered.unsolved:
                _warn_dense(op, final.tensor, gathered)
            result.append((term.component, final.tensor, gathered))
    return result


def _past_copies(
    op: Operation,
    term: Term,
    cotangent: Cotangent,
    target: Callable[[Tensor], Target],
    copies: Callable[[Tensor], list[Term] | None],
) -> list[tuple[Term, Gathered]]:
    """The term gathered at the sources of the copies it reads, or at the copy where that fails."""
    inner = None if reads_by_data(term) else copies(term.tensor)
    if inner is not None:
        further = [
            pair
            for part in inner
            for pair in _past_copies(
                op, through_copy(term, term.tensor.op, part), cotangent, target, copies
            )
        ]
        if not any(gathered.unsolved for _, gathered in further):
            return further
    where = target(term.tensor)
    whole = gather(op, term, cotangent, where)
    if whole is None:
        return []
    name = f"d{term.tensor.op.name}"
    if whole.unsolved:
        parts = _by_cases(op, term, cotangent, where, name)
        if parts is not None:
            return parts
    if whole.unsolved and reads_by_data(term):
        scattered = scatter(op, term, cotangent, where, f"{name}_scatter")
        if scattered is not None:
            here = [axis.var for axis in (*where.prefix, *where.axes)]
            return [(term, Gathered((), load(scattered, here)))]
    return [(term, _divided(op, term, cotangent, where, whole, name))]


def _divided(
    op: Operation, term: Term, cotangent: Cotangent, where: Target, whole: Gathered, name: str
) -> Gathered:
    """A solved term, its sum made only where and as long as its guards allow."""
    at = partial(gather, op, term, cotangent)
    split = split_by_residue(whole, where, at, name)
    return narrow_to_guards(split, where, at, f"{name}_part")


def _by_cases(
    op: Operation, term: Term, cotangent: Cotangent, where: Target, name: str
) -> list[tuple[Term, Gathered]] | None:
    """The cases of a term's clamps gathered one by one, where that solves every equation."""
    cases = cases_of(term)
    if cases is None:
        return None
    parts = [(case, gather(op, case, cotangent, where)) for case in cases]
    found = [(case, gathered) for case, gathered in parts if gathered is not None]
    if any(gathered.unsolved for _, gathered in found):
        return None
    return [
        (case, _divided(op, case, cotangent, where, gathered, name)) for case, gathered in found
    ]


def _warn_dense(op: Operation, tensor: Tensor, gathered: Gathered) -> None:
    warnings.warn(
        f"the gradient of stage {op.name} with respect to {tensor.op.name} sums over zeros: "
        f"the solver leaves {text(all_of(gathered.unsolved), limit=200)} as a guard. It is right, "
        f"and slow; manual={{({op.name}, {tensor.op.name}): f}} replaces it",
        DenseSumWarning,
        stacklevel=2,
    )
