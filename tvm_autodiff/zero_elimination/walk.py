"""Shared by the transformations of whole graphs: checking their arguments, and walking the stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import InvalidArgumentError
from ..expr.nodes import Tensor, is_tensor, tensor_key
from ..graph.graph import retarget, topological
from ..graph.stage import Operation, outputs_of


def tensor_list(tensors: Tensor | Sequence[Tensor], what: str = "tensors") -> list[Tensor]:
    """A tensor or a sequence of tensors, as a list.

    Raises
    ------
    InvalidArgumentError
        If an element is not a tensor.
    """
    listed = [tensors] if is_tensor(tensors) else tensors
    if not isinstance(listed, (list, tuple)):
        raise InvalidArgumentError(
            f"{what} must be a te.Tensor or a list of te.Tensors, got {type(tensors).__name__}"
        )
    for number, tensor in enumerate(listed):
        if not is_tensor(tensor):
            raise InvalidArgumentError(
                f"{what}[{number}] must be a te.Tensor (a placeholder or the result of te.compute),"
                f" got {type(tensor).__name__}"
            )
    return list(listed)


def each_stage(
    tensors: Sequence[Tensor], step: Callable[[Operation], Sequence[Tensor]]
) -> list[Tensor]:
    """The tensors after replacing every stage they need by ``step(stage)``, producers first.

    Parameters
    ----------
    tensors : sequence of Tensor
        The outputs.
    step : callable
        Maps a stage that already reads new tensors to tensors of the same shapes.
    """
    replaced: dict[tuple[int, int], Tensor] = {}

    def known(tensor: Tensor) -> Tensor | None:
        return replaced.get(tensor_key(tensor))

    stages = topological(tensors)
    for op in stages:
        current = retarget(op, known)[0].op
        for old, new in zip(outputs_of(op), step(current), strict=True):
            if tensor_key(old) != tensor_key(new):
                replaced[tensor_key(old)] = new
    return [replaced.get(tensor_key(tensor), tensor) for tensor in tensors]
