"""Decides which elementwise kernels over the same axes are computed in one pass, because they share
work: the updates of several columns of a gradient, which read the same elements by index.
"""

from __future__ import annotations

from ...expr.nodes import Expr, op_name, operands
from ...expr.rewrite import expand_lets, postorder, substituter
from ...expr.sharing.lets import merge_equal
from ...graph.sizes.equal_sizes import is_same
from ...graph.stage import axis_range, axis_vars, bodies, is_compute, reduction_of
from ..cost import CALL, MAX_NODES
from ..kernel import Kernel


def share_work(kernels: list[Kernel], other: Kernel) -> bool:
    """Whether another kernel computes what the first of some kernels does, and the pass of all of
    them is small enough.

    Examples
    --------
    ``u[e] = f(x[n[e]]), v[e] = g(f(x[n[e]]))`` share the work of f.
    """
    first = kernels[0]
    if not _is_map(first) or not _is_map(other):
        return False
    ours, theirs = first.root.axis, other.root.axis
    if len(ours) != len(theirs):
        return False
    for a, b in zip(ours, theirs, strict=True):
        if axis_range(a)[0] != 0 or axis_range(b)[0] != 0:
            return False
        if not is_same(axis_range(a)[1], axis_range(b)[1]):
            return False
    own = [body for kernel in kernels for body in values_over(first, kernel)]
    new = values_over(first, other)
    every = merge_equal([*own, *new])
    together = _operations(every)
    shared = _operations(every[: len(own)]) + _operations(every[len(own) :]) - together
    # what is worth a stage of its own if it is read again
    return shared > 2 * CALL and together <= MAX_NODES


def values_over(first: Kernel, other: Kernel) -> list[Expr]:
    """The values of a map over the axes of another one."""
    rename = substituter(dict(zip(axis_vars(other.root), axis_vars(first.root), strict=True)))
    return [rename(expand_lets(body)) for body in bodies(other.root)]


def _is_map(kernel: Kernel) -> bool:
    op = kernel.root
    elementwise = is_compute(op) and reduction_of(op) is None
    return elementwise and kernel.epilogue is None and len(op.axis) > 0


def _operations(values: list[Expr]) -> int:
    """The number of different operations and reads."""
    return sum(1 for node in postorder(values) if operands(node) and op_name(node) != "cast")
