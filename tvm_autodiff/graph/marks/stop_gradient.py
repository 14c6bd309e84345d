"""``stop_gradient(e)``: an expression equal to `e` whose derivative is zero.

The mark is an operator in the expression, not an attribute of a stage, so every rewrite keeps it
and every mode finds it in the table of scalar rules. It is removed before lowering; if TVM lowers
the program directly, it becomes its operand.
"""

from __future__ import annotations

from typing import Any

from tvm import ir

from ...expr.intrinsics import define_identity
from ...expr.nodes import (
    Expr,
    Tensor,
    dtype_of,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ...expr.rewrite import postorder
from ..graph import tensors_read_by
from ..stage import Operation, bodies, is_compute

NAME = "stop_gradient"  #: in the vocabulary of `nodes`

_OPERATOR = define_identity(NAME)


def stopped(expr: Expr) -> Expr:
    """The expression with the mark around it.

    Examples
    --------
    >>> from tvm import te
    >>> op_name(stopped(te.var("x", "float32")))
    'stop_gradient'
    """
    return ir.Call(_OPERATOR, [expr], ret_ty=ir.PrimType(dtype_of(expr)))


def has_stop(op: Operation) -> bool:
    """Whether a stage marks part of its expressions."""
    return is_compute(op) and any(op_name(node) == NAME for node in postorder(bodies(op)))


def stopped_reads(op: Operation) -> set[tuple[int, int]]:
    """Keys of the tensors that a stage reads only within marked expressions."""
    if not has_stop(op):
        return set()
    free: set[tuple[int, int]] = set()
    seen: set[int] = set()
    pending: list[Any] = bodies(op)
    while pending:
        node = pending.pop()
        if node_id(node) in seen or op_name(node) == NAME:
            continue
        seen.add(node_id(node))
        if is_load(node):
            free.add(tensor_key(load_tensor(node)))
        pending += operands(node)
    reads: list[Tensor] = tensors_read_by(op)
    return {tensor_key(tensor) for tensor in reads} - free
