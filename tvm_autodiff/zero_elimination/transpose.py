"""The pullback of one stage: its derivative's terms, transposed the best way each.

In: a stage, the cotangents of its outputs, the tensors that adjoints are asked for. Out: gathered
terms for each tensor. A term that the solver cannot treat becomes the guarded dense sum, and a
warning says so and names the way out; data as index (`table[I[n]]`) is such a term until scatter
kernels exist.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from ..calculus.linearize import linearize
from ..ir.build import all_of
from ..ir.nodes import Tensor
from ..ir.stage import Operation, axis_vars, data_axis, index_dtype, shape_of, tensor_key
from ..ir.text import text
from .gather import Cotangent, Gathered, Target, gather


class DenseSumWarning(UserWarning):
    """A gradient sums over elements that are structurally zero, since an equation could not be
    solved.
    """


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
    targets: Sequence[tuple[Tensor, Target]],
) -> list[tuple[int, Tensor, Gathered]]:
    """What a stage contributes to the adjoints of the tensors it reads.

    Parameters
    ----------
    op : Operation
        A compute stage.
    cotangents : mapping from int to Cotangent
        For each output component that has one.
    targets : sequence of (Tensor, Target)
        The tensors whose adjoints are asked for, with the axes to gather at.

    Returns
    -------
    list of (component, tensor, gathered)
        The output component that a term belongs to, the tensor it contributes to, and the term.

    Raises
    ------
    NotDifferentiableError
        See `tvm_autodiff.calculus.linearize.linearize`.
    """
    target_by_key = {tensor_key(tensor): target for tensor, target in targets}
    result: list[tuple[int, Tensor, Gathered]] = []
    for term in linearize(op, [tensor for tensor, _ in targets]):
        if term.component not in cotangents:
            continue
        key = tensor_key(term.tensor)
        gathered = gather(op, term, cotangents[term.component], target_by_key[key])
        if gathered is None:
            continue
        if gathered.unsolved:
            _warn_dense(op, term.tensor, gathered)
        result.append((term.component, term.tensor, gathered))
    return result


def _warn_dense(op: Operation, tensor: Tensor, gathered: Gathered) -> None:
    warnings.warn(
        f"the gradient of stage {op.name} with respect to {tensor.op.name} sums over zeros: "
        f"the solver leaves {text(all_of(gathered.unsolved), limit=200)} as a guard. It is right, "
        f"and slow; manual={{({op.name}, {tensor.op.name}): f}} replaces it",
        DenseSumWarning,
        stacklevel=2,
    )
