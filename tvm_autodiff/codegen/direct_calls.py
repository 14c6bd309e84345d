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

from ..expr.build import all_of, any_of, compare, const
from ..expr.intrinsics import with_llvm_code
from ..expr.nodes import Expr, Var, binary, dtype_of, node_id, op_name
from ..expr.rewrite import variables_of
from .call_check import CODE, FITS, address_word
from .loop_nest import bind, sequence, when
from .parallel_launch import CODE as EXCHANGE_CODE
from .passes.compaction import compacting_blocks
from .passes.short_circuit import short_circuited
from .passes.vector_conditions import without_vectors_as_numbers
from .primfunc import PrimFunc

Statement = Any  #: a TVM statement

#: what ``main`` takes for the number of the launch to run
ALL_LAUNCHES, NO_LAUNCH = -1, 2**31 - 1
#: in the place of a launch, before a pointer: exchanges what divides loops among threads
EXCHANGE = -2
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
    """A call of a function of the same module.

    Attributes
    ----------
    function : GlobalVar
    arguments : tuple of Place
    launches : int
        How many numbers of launches it takes: more than one where it calls other functions.
    selects : bool
        Whether its last argument is the number of the launch to run among these, or -1.
    """

    function: Any
    arguments: tuple[Place, ...]
    launches: int = 1
    selects: bool = False


def sizes_of(func: PrimFunc) -> list[Var]:
    """The sizes that the shapes of the buffers of a function are over, and no parameter tells."""
    given = {node_id(param) for param in func.params if not is_buffer(param)}
    dims = [dim for param in func.params if is_buffer(param) for dim in param.ty.shape]
    found = {node_id(var): var for var in variables_of(dims) if node_id(var) not in given}
    return list(found.values())


def is_buffer(param: Any) -> bool:
    """Whether a parameter is an array, and not a size."""
    return hasattr(param.ty, "shape")


def by_address(func: PrimFunc, name: str, only: Var | None = None) -> PrimFunc:
    """``f(buffers, sizes) → f(addresses, sizes, those of the shapes, only)``, whose end is added by
    `PIPELINE`.
    """
    params: list[Var] = []
    views: list[Statement] = []
    for param in func.params:
        if not is_buffer(param):
            params.append(param)
            continue
        address = tirx.Var(param.name, ir.PointerType(ir.PrimType(str(param.ty.dtype))))
        params.append(address)
        offset = param.ty.elem_offset
        if op_name(offset) == "var":
            views.append(bind(offset, const(0, dtype_of(offset))))
        views.append(tirx.DeclBuffer(param, data=address))
    params += sizes_of(func)
    if only is not None:
        params.append(only)
    body = sequence([*views, func.body])
    made = tirx.PrimFunc(params, body, ir.PrimType("int32"), func.attrs)
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


@tirx.transform.prim_func_pass(opt_level=0)
def _internal(func: PrimFunc, _module: Any, _context: Any) -> PrimFunc:
    """A function that is called by address is seen by its module only: Relax makes every function
    one that is called from outside, with arguments packed.
    """
    if func.attrs is None or _BY_ADDRESS not in func.attrs:
        return func
    return func.without_attr("global_symbol")


def _pipeline() -> tuple[Any, Any, Any]:
    lower, finish_host, finish_device = tirx.get_tir_pipeline("s_tir")
    return (
        tvm.transform.Sequential([_internal, compacting_blocks(lower)]),
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
    exchange = tirx.Evaluate(extern("int32", "exchange", args, result))
    body = [
        bind(launch, extern("int32", "launch", args)),
        when(
            compare("eq", launch, const(EXCHANGE, "int32")),
            sequence([exchange, tirx.Return(const(0, "int32"))]),
        ),
        bind(table, extern("handle", "memory", args, const(1, "int32"))),
        bind(status, extern("int32", "check", args, given, table, in_front, result)),
        when(compare("ne", status, const(FITS, "int32")), tirx.Return(const(0, "int32"))),
        bind(workspace, extern("handle", "memory", args, const(2, "int32"))),
    ]
    first = 0
    for call in calls:
        if call is not None:
            arguments = [address(place) for place in call.arguments]
            if call.selects:  # all launches are a number below zero
                own = binary("max", launch - const(first, "int32"), const(ALL_LAUNCHES, "int32"))
                arguments.append(own)
            run = called(call.function, arguments)
            body.append(when(chosen(launch, first, call.launches), run))
        first += 1 if call is None else call.launches
    body.append(tirx.Return(const(0, "int32")))
    main = tirx.PrimFunc(
        [_handle("self"), args, given, result], sequence(body), ir.PrimType("int32")
    )
    main = main.with_attr("global_symbol", "__tvm_ffi_main").with_attr("calling_conv", _PACKED)
    return with_llvm_code(main, CODE + EXCHANGE_CODE)


def called(function: Any, arguments: Sequence[Expr]) -> Statement:
    """The call of a function by addresses, which raises what it raises."""
    failed = compare("ne", ir.Call(function, list(arguments), ret_ty="int32"), const(0, "int32"))
    return when(failed, tirx.Evaluate(tirx.op.tvm_throw_last_error()))


def chosen(launch: Expr, first: int, count: int = 1) -> Expr:
    """Whether launches from `first` on are among those to run: all are, or `launch` is."""
    every = compare("lt", launch, const(0, "int32"))
    if count == 1:
        return any_of([every, compare("eq", launch, const(first, "int32"))])
    after = compare("ge", launch, const(first, "int32"))
    before = compare("lt", launch, const(first + count, "int32"))
    return any_of([every, all_of([after, before])])


def _handle(name: str) -> Any:
    return tirx.Var(name, ir.PointerType(ir.PrimType("void")))
