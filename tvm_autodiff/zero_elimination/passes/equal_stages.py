"""Merges stages that compute the same thing.

Stages are equal if they have the same expression over the same tensors, up to the names of axes.
Nothing is proved.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...expr.nodes import Tensor
from ...graph.stage import outputs_of
from ...graph.structural import EqualStages
from ...keywords import checked_keywords
from ..walk import each_stage, tensor_list


@checked_keywords
def merge_equal_stages(tensors: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """Merge stages that compute the same values, so that they are computed once.

    ``y[i] = exp(x[i]), z[j] = exp(x[j]), w[i] = y[i] + z[i] → w[i] = y[i] + y[i]``

    Parameters
    ----------
    tensors : Tensor or sequence of Tensor
        The outputs. All stages that they need are compared, producers first.

    Returns
    -------
    list of Tensor
        Tensors of the same shapes and values. Outputs that are computed alike are one tensor.

    Raises
    ------
    InvalidArgumentError
        If an argument is not a tensor.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import estimate_cost
    >>> x = te.placeholder((3,), name="x")
    >>> y, z = (te.compute((3,), lambda i: te.exp(x[i]), name=name) for name in "yz")
    >>> w = te.compute((3,), lambda i: y[i] + z[i], name="w")
    >>> estimate_cost(w).iterations, estimate_cost(merge_equal_stages(w)).iterations
    (9, 6)
    """
    stages = EqualStages()
    return each_stage(tensor_list(tensors), lambda op: outputs_of(stages.first(op)))
