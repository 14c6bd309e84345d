"""Functions that are called by the addresses of their arrays, and one that calls them in order.

In: scheduled PrimFuncs, and for each call of one where its arrays lie: in a parameter of the
program or at a place in its workspace. Out: the same functions without a calling convention of
their own, and ``main``, which looks at all arrays once and then only calls. No memory is planned
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, tirx

from ..expr.build import any_of, compare, const
from ..expr.intrinsics import with_llvm_code
from ..expr.nodes import Expr, dtype_of, op_name
from .call_check import CODE, FITS, address_word
from .loop_nest import bind, sequence, when
from .passes.compaction import compacting_blocks
from .passes.short_circuit import short_circuited
from .passes.vector_conditions import without_vectors_as_numbers
from .primfunc import PrimFunc

Statement = Any  #: a TVM statement

#: what ``main`` takes for the number of the launch to run
ALL_LAUNCHES, NO_LAUNCH = -1, 2**31 - 1
ALIGNMENT = 64  #: bytes: places in a workspace begin at multiples


@dataclass(frozen=True)
class Parameter:
    """An array that is given to the program, by its number among inputs and then outputs."""

    number: int


@dataclass(frozen=True)
class Offset:
    """Memory in the workspace, from some byte on."""

    bytes: int


Place = Parameter | Offset

#: the name of what lowers modules with such functions, as `tvm.compile` takes it
PIPELINE = "tvm_autodiff"

_BY_ADDRESS = "tvm_autodiff.by_address"
_PACKED = 1  #: TVM's calling convention of functions that are called from outside


@dataclass(frozen=True)
class DirectCall:
    """A call of a function of the same module."""

    function: Any
    arguments: tuple[Place, ...]


def by_address(func: PrimFunc, name: str) -> PrimFunc:
    """``f(buffers)`` → ``f(addresses)``, whose end is added by `PIPELINE`."""
    addresses = [
        tirx.Var(param.name, ir.PointerType(ir.PrimType(str(param.ty.dtype))))
        for param in func.params
    ]
    views: list[Statement] = []
    for param, address in zip(func.params, addresses, strict=True):
        offset = param.ty.elem_offset
        if op_name(offset) == "var":
            views.append(bind(offset, const(0, dtype_of(offset))))
        views.append(tirx.DeclBuffer(param, data=address))
    body = sequence([*views, func.body])
    made = tirx.PrimFunc(addresses, body, ir.PrimType("int32"), func.attrs)
    return made.with_attr(_BY_ADDRESS, name)


@tirx.transform.prim_func_pass(opt_level=0)
def _apart(func: PrimFunc, _module: Any, _context: Any) -> PrimFunc:
    """The body of a function that is called by address becomes one that LLVM does not inline.

    In ``main``, all kernels would be one function, which LLVM's passes do not take well. TVM does
    the same for functions that are called from outside, and likewise after `StorageRewrite`, which
    would move local buffers out of the scope. It frees large ones at the end of the scope, which a
    return must not precede.
    """
    if func.attrs is None or _BY_ADDRESS not in func.attrs:
        return func
    scope = func.body
    for key, value in (
        ("compute_scope", ir.StringImm(f"{func.attrs[_BY_ADDRESS]}_compute_")),
        # where large local buffers are allocated
        ("device_type", const(tvm.cpu().dlpack_device_type(), "int32")),
        ("device_id", const(0, "int32")),
    ):
        scope = tirx.AttrStmt("default", key, value, scope)
    body = sequence([scope, tirx.Return(const(0, "int32"))])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _pipeline() -> tuple[Any, Any, Any]:
    lower, finish_host, finish_device = tirx.get_tir_pipeline("s_tir")
    return (
        compacting_blocks(lower),
        lambda: tvm.transform.Sequential(
            [_apart, short_circuited, without_vectors_as_numbers, finish_host()]
        ),
        finish_device,
    )


tirx.register_tir_pipeline(PIPELINE, _pipeline)


def calling(count: int, calls: Sequence[DirectCall | None]) -> PrimFunc:
    """``main(launch, table, workspace, *arrays)``: runs all launches, or the one of that number.

    It returns nothing, or what `call_check` found wrong.

    Parameters
    ----------
    count
        How many arrays the program has: inputs, then outputs.
    calls
        In order of execution; None for a launch that has nothing to do.
    """
    args, given = _handle("args"), tirx.Var("given", "int32")
    result, table, workspace = _handle("result"), _handle("table"), _handle("workspace")
    status, launch = tirx.Var("status", "int32"), tirx.Var("launch", "int32")

    def extern(dtype: str, name: str, *operands: Expr) -> Expr:
        return tirx.call_extern(dtype, f"tvm_autodiff_{name}", *operands)

    def address(place: Place) -> Expr:
        if isinstance(place, Parameter):
            word = address_word(count, place.number)
            return extern("handle", "array", table, const(word, "int32"))
        return extern("handle", "part", workspace, const(place.bytes, "int64"))

    in_front = const(3, "int32")
    body = [
        bind(table, extern("handle", "memory", args, const(1, "int32"))),
        bind(status, extern("int32", "check", args, given, table, in_front, result)),
        when(compare("ne", status, const(FITS, "int32")), tirx.Return(const(0, "int32"))),
        bind(launch, extern("int32", "launch", args)),
        bind(workspace, extern("handle", "memory", args, const(2, "int32"))),
    ]
    for number, call in enumerate(calls):
        if call is None:
            continue
        arguments = [address(place) for place in call.arguments]
        failed = compare("ne", ir.Call(call.function, arguments, ret_ty="int32"), const(0, "int32"))
        # the number of none is that of every launch
        wanted = [compare("lt", launch, const(0, "int32"))]
        wanted.append(compare("eq", launch, const(number, "int32")))
        raised = tirx.Evaluate(tirx.op.tvm_throw_last_error())
        body.append(when(any_of(wanted), when(failed, raised)))
    body.append(tirx.Return(const(0, "int32")))
    main = tirx.PrimFunc(
        [_handle("self"), args, given, result], sequence(body), ir.PrimType("int32")
    )
    main = main.with_attr("global_symbol", "__tvm_ffi_main").with_attr("calling_conv", _PACKED)
    return with_llvm_code(main, CODE)


def _handle(name: str) -> Any:
    return tirx.Var(name, ir.PointerType(ir.PrimType("void")))
