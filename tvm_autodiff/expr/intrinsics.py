"""Defines the library's own scalar functions, which TVM's passes carry along as calls.

A function has a name and LLVM code for several vector widths. Its intrinsic is pure and vectorises
as exp does. TVM lowers it to a call of the function of the right width after loop vectorisation,
and LLVM inlines it before its own vectorisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import ir, tirx
from tvm.ir import op as operators

from .build import cast
from .nodes import Expr, dtype_of, operands

_SPACE = "tvm_autodiff"
_PURE = "tirx.exp"  # an intrinsic with the effects that ours have


def symbol(name: str, lanes: int) -> str:
    """The name of the LLVM function for vectors of a given width; width 1 is the scalar function.
    """
    return f"{_SPACE}_{name}_{lanes}"


def define(name: str, arity: int) -> None:
    """Register a pure float function ``tvm_autodiff.<name>`` with TVM, for LLVM targets.

    Parameters
    ----------
    name
        The name in the vocabulary of `nodes`.
    arity
        The number of operands.
    """

    def lower(node: Any) -> Expr:
        dtype = dtype_of(node)
        lanes = int(dtype.partition("x")[2] or 1)
        return tirx.call_pure_extern(dtype, symbol(name, lanes), *operands(node))

    _register(name, arity, "llvm", lower)


def define_identity(name: str, arity: int = 1) -> ir.Op:
    """Register ``tvm_autodiff.<name>``, which returns its first operand on every target."""
    return _register(name, arity, "default", lambda node: operands(node)[0])


def define_of_c(name: str, arity: int, symbols: Mapping[str, str], target: str) -> None:
    """Register ``tvm_autodiff.<name>``, a pure function that the target's C library has, by dtype;
    vectors call it for each element.
    """

    def lower(node: Any) -> Expr:
        dtype = dtype_of(node)
        return tirx.call_pure_extern(dtype, symbols[dtype.partition("x")[0]], *operands(node))

    _register(name, arity, target, lower)


def _register(name: str, arity: int, target: str, lower: Callable[[Any], Expr]) -> ir.Op:
    """Register a pure operator that vectorises; an operator that TVM already has is unchanged."""
    full = f"{_SPACE}.{name}"
    if full in operators.Op.list_op_names():
        return ir.Op.get(full)  # the table of operators is TVM's and lives as long as the process
    operators._ffi_api.RegisterOp(full, f"{name} of tvm_autodiff")
    operator = ir.Op.get(full)
    operator.set_num_inputs(arity)
    operator.set_attr("TVectorizable", True)
    operator.set_attr("TCallEffectKind", ir.Op.get(_PURE).get_attr("TCallEffectKind"))
    operator.set_attr("TScriptPrinterName", full.replace(".", "_"))
    tirx.register_intrin_lowering(full, target=target, f=lower, level=10)
    return operator


def own_call(name: str, args: Sequence[Expr], inside: str = "float32") -> Expr:
    """A call of a function of this library, which computes in one dtype; other dtypes are
    converted.

    Examples
    --------
    >>> from tvm import tirx
    >>> define("negated", 1)
    >>> own_call("negated", [tirx.Var("x", "float32")])
    T.tvm_autodiff_negated(x)
    """
    kind = dtype_of(args[0])
    wide = [cast(inside, part) for part in args]
    node = ir.Call(ir.Op.get(f"{_SPACE}.{name}"), wide, ret_ty=ir.PrimType(inside))
    return cast(kind, node)


def itself(value: Expr) -> Expr:
    """A call that returns its operand, which TVM looks into only after it has simplified."""
    define_identity("itself")
    return own_call("itself", [value], dtype_of(value))


def library_call(symbol: str, *args: Expr) -> Expr:
    """A call of a C function without side effects, with the dtype of its first argument."""
    return tirx.call_pure_extern(dtype_of(args[0]), symbol, *args)


def is_operator(name: str) -> bool:
    """Whether TVM has an operator with this full name."""
    return name in operators.Op.list_op_names()


def named_call(name: str, args: Sequence[Expr], dtype: str) -> Expr:
    """A call of a TVM operator by its full name, or of a C function without side effects."""
    if is_operator(name):
        return ir.Call(ir.Op.get(name), list(args), ret_ty=ir.PrimType(dtype))
    return tirx.call_pure_extern(dtype, name, *args)
