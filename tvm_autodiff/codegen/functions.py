"""TIR functions with other bodies: calls replaced, LLVM code added."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx

from ..expr.nodes import Expr, const_value, op_name


def with_body(func: Any, body: Any) -> Any:
    """A PrimFunc with another body; the function itself if it has this one."""
    if body.same_as(func.body):
        return func
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def replace_calls(func: Any, rules: Mapping[str, Callable[[Expr], Expr]]) -> Any:
    """A PrimFunc in which calls of the named intrinsics are replaced.

    Parameters
    ----------
    func : PrimFunc
    rules
        From the name in the vocabulary to a function of the node; it returns the new expression,
        or the node itself.
    """

    def visit(node: Any) -> Any:
        rule = rules.get(op_name(node))
        return node if rule is None else rule(node)

    body = tvm_ffi.structural_map(func.body, (ir.Call, visit))
    return with_body(func, body)


def vector_widths(func: Any) -> list[int]:
    """The vector widths that calls may get: 1, and the lengths of vectorised loops."""
    found = {1}

    def visit(loop: Any) -> None:
        if loop.kind == tirx.ForKind.VECTORIZED:
            found.add(int(const_value(loop.extent) or 1))

    tvm_ffi.structural_walk(func.body, (tirx.For, visit))
    return sorted(found)


def with_llvm_code(func: Any, text: str) -> Any:
    """A PrimFunc that is compiled together with functions in LLVM IR."""

    def marked(body: Any) -> Any:
        return tirx.AttrStmt(tirx.const(0), "pragma_import_llvm", ir.StringImm(text), body)

    realize = func.body
    if isinstance(realize, s_tir.SBlockRealize):  # Relax requires the root block to be outermost
        root = realize.block
        block = s_tir.SBlock(
            root.iter_vars,
            root.reads,
            root.writes,
            root.name_hint,
            marked(root.body),
            root.init,
            root.alloc_buffers,
            root.match_buffers,
            root.annotations,
        )
        body = s_tir.SBlockRealize(realize.iter_values, realize.predicate, block)
    else:
        body = marked(realize)
    return with_body(func, body)
