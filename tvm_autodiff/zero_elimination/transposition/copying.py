"""Reads through stages that only copy another tensor with permuted or shifted indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...expr.nodes import Expr, Tensor, is_load, load_tensor, op_name, operands
from ...expr.rewrite import map_loads, substituter
from ...expr.simplify import collect_terms
from ...graph.stage import bodies, is_compute


def read_through_copies(expr: Expr, keep: Callable[[Tensor], bool] = lambda tensor: False) -> Expr:
    """``y[i, j] → x[j, i]`` if y's stage is ``y[a, b] = x[b, a]``: permuted or shifted copies.

    An empty padding, a transpose or a slice need not exist for the gradient. Copies whose indices
    divide (reshapes) stay, because every reader would get the divisions. Tensors selected by `keep`
    stay as well, since they are differentiated with respect to.
    """

    def replace(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        result: Expr | None = None
        while not keep(tensor) and (body := _copied(tensor)) is not None:
            axes = (axis.var for axis in tensor.op.axis)
            read = substituter(dict(zip(axes, indices, strict=True)))(body)
            result = collect_terms(read)
            tensor, indices = load_tensor(result), operands(result)
        return result

    return map_loads(expr, replace)


def is_shifted_copy(tensor: Tensor) -> bool:
    """Whether a tensor's stage only copies another, permuted or shifted."""
    return _copied(tensor) is not None


def _copied(tensor: Tensor) -> Expr | None:
    """The read that a copying stage consists of, or None for any other stage."""
    if not is_compute(tensor.op) or tensor.op.num_outputs != 1:
        return None
    body = bodies(tensor.op)[0]
    if not is_load(body) or not all(_is_shift(index) for index in operands(body)):
        return None
    return body


def _is_shift(index: Expr) -> bool:
    """Whether an index is a variable or a literal, or the sum or difference of the two."""
    leaves = operands(index) if op_name(index) in ("add", "sub") else (index,)
    return all(op_name(leaf) in ("var", "const") for leaf in leaves)
