"""Functions that are called by the addresses of their arrays, and ``main``, which calls them in
order.

Each array is a parameter of the program or lies in its workspace. The functions have no calling
convention of their own; ``main`` checks all arrays once and then only calls. Memory is planned
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, tirx

from ...expr.build import all_of, any_of, cast, compare, const
from ...expr.nodes import Expr, Var, binary, dtype_of, node_id, op_name
from ...expr.rewrite import variables_of
from ..functions import with_body, with_llvm_code
from ..loop_nest import bind, branch, sequence, when
from ..modules import compiled_module, module_of
from ..passes.compaction import compacting_blocks
from ..passes.indices.hoisted_divisions import with_hoisted_divisions
from ..passes.indices.size_divisions import with_rounding_down
from ..passes.short_circuit import short_circuited
from ..passes.small_launches import without_small_launches
from ..passes.subnormals import FLUSHED, without_subnormals
from ..passes.vectors.aligned_stack import with_aligned_stack
from ..passes.vectors.scalar_turns import with_scalar_turns
from ..passes.vectors.strided_reads import without_strided_reads
from ..passes.vectors.vector_conditions import without_vectors_as_numbers
from ..stages.primfunc import PrimFunc
from .call_check import CHECK_CODE, CODE, FITS, address_word
from .constants import SYMBOL
from .parallel_launch import CODE as EXCHANGE_CODE

Statement = Any  #: a TVM statement

#: the type of the launch number of ``main``
ALL_LAUNCHES, NO_LAUNCH = -1, 2**31 - 1
#: instead of a launch, before a pointer: exchanges the function that divides loops among threads
EXCHANGE = -2
ALIGNMENT = 64  #: bytes: places in a workspace begin at multiples

_IN_FRONT = 3  #: arguments of ``main`` before the arrays


@dataclass(frozen=True)
class Parameter:
    """An array that is passed to the program, by its number among inputs followed by outputs."""

    number: int


@dataclass(frozen=True)
class Offset:
    """Memory in the workspace, at an offset in bytes."""

    bytes: int


@dataclass(frozen=True)
class TableOffset:
    """Memory in the workspace, at an offset in bytes that is a word of the array table."""

    word: int


@dataclass(frozen=True)
class ConstantOffset:
    """A table of constants, at an offset in bytes from the first one."""

    bytes: int


Place = Parameter | Offset | TableOffset | ConstantOffset

#: the names of what lowers modules with such functions, as `tvm.compile` takes them; the second
#: keeps subnormal numbers
PIPELINE, EXACT_PIPELINE = "tvm_autodiff", "tvm_autodiff_exact"

_BY_ADDRESS = "tvm_autodiff.by_address"
_PACKED = 1  #: TVM's calling convention of functions that are called from outside


@dataclass(frozen=True)
class DirectCall:
    """A call of a function of the same module.

    Attributes
    ----------
    function : GlobalVar
    arguments : tuple of Place or Var
        Arrays, and sizes that the program binds.
    launches : int
        The number of launches; more than one if it calls other functions.
    selects : bool
        Whether its last argument selects one of these launches, or -1 for all.
    """

    function: Any
    arguments: tuple[Place | Var, ...]
    launches: int = 1
    selects: bool = False


def sizes_of(func: PrimFunc) -> list[Var]:
    """The sizes in buffer shapes of a function that no parameter defines."""
    given = {node_id(param) for param in func.params if not is_buffer(param)}
    dims = [dim for param in func.params if is_buffer(param) for dim in param.ty.shape]
    found = {node_id(var): var for var in variables_of(dims) if node_id(var) not in given}
    return list(found.values())


def is_buffer(param: Any) -> bool:
    """Whether a parameter is an array rather than a size."""
    return hasattr(param.ty, "shape")


def by_address(func: PrimFunc, name: str, only: Var | None = None) -> PrimFunc:
    """``f(buffers, sizes) → f(addresses, sizes, sizes of the shapes, only)``; `PIPELINE` adds the
    end.
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
    """Prevent LLVM from inlining the body of a function that is called by address.

    Otherwise all kernels would become one function in ``main``, which LLVM's passes handle badly.
    TVM does the same for functions that are called from outside, also after `StorageRewrite`, which
    would move local buffers out of the scope. TVM frees large buffers at the end of the scope,
    which a return must not precede.
    """
    if func.attrs is None or _BY_ADDRESS not in func.attrs:
        return func
    scope = with_aligned_stack(func).body
    for key, value in (
        ("compute_scope", ir.StringImm(f"{func.attrs[_BY_ADDRESS]}_compute_")),
        # large local buffers are allocated here
        ("device_type", const(tvm.cpu().dlpack_device_type(), "int32")),
        ("device_id", const(0, "int32")),
    ):
        scope = tirx.AttrStmt("default", key, value, scope)
    body = sequence([scope, tirx.Return(const(0, "int32"))])
    return with_body(func, body)


@tirx.transform.prim_func_pass(opt_level=0)
def _internal(func: PrimFunc, _module: Any, _context: Any) -> PrimFunc:
    """Make a function that is called by address visible only in its module.

    Relax would make every function callable from outside, with packed arguments.
    """
    if func.attrs is None or _BY_ADDRESS not in func.attrs:
        return func
    return func.without_attr("global_symbol")


def _pipeline(*passes: Any) -> tuple[Any, Any, Any]:
    lower, finish_host, finish_device = tirx.get_tir_pipeline("s_tir")
    return (
        tvm.transform.Sequential([_internal, with_scalar_turns, compacting_blocks(lower)]),
        lambda: tvm.transform.Sequential(
            [
                *passes,
                _apart,
                with_hoisted_divisions,
                with_rounding_down,
                short_circuited,
                without_vectors_as_numbers,
                without_strided_reads,
                finish_host(),
            ]
        ),
        finish_device,
    )


tirx.register_tir_pipeline(
    PIPELINE, lambda: _pipeline(without_small_launches, without_subnormals)
)
tirx.register_tir_pipeline(EXACT_PIPELINE, lambda: _pipeline(without_small_launches))


@dataclass(frozen=True)
class Parts:
    """Calls of which a word of the table selects some: the first `counts[0]`, the next ones..."""

    word: int
    counts: tuple[int, ...]


def calling(
    count: int,
    calls: Sequence[DirectCall | None],
    sizes: Sequence[tuple[Var, int]] = (),
    parts: Parts | None = None,
    constants: str = "",
) -> PrimFunc:
    """``main(launch, table, workspace, *arrays)``: runs all launches, or the one with that number.

    It returns nothing, or the violation that `call_check` found.

    Parameters
    ----------
    count
        The number of arrays of the program: inputs, then outputs.
    calls
        The calls in order of execution; None for a launch that has nothing to do.
    sizes
        The variables of symbolic sizes, each with the word of the table that has its value.
    parts
        Which of the calls run; all of them without it.
    constants
        The definition of tables of constants, of `codegen.host.constants`.
    """
    args, given = _handle("args"), tirx.Var("given", "int32")
    result, table, workspace = _handle("result"), _handle("table"), _handle("workspace")
    status, launch = tirx.Var("status", "int32"), tirx.Var("launch", "int32")

    def extern(dtype: str, name: str, *operands: Expr) -> Expr:
        return tirx.call_extern(dtype, f"tvm_autodiff_{name}", *operands)

    def word(number: int) -> Expr:
        return extern("int64", "word", table, const(number, "int32"))

    def argument(place: Place | Var) -> Expr:
        if isinstance(place, Parameter):
            number = address_word(count, place.number)
            return extern("handle", "array", table, const(number, "int32"))
        if isinstance(place, Offset):
            return extern("handle", "part", workspace, const(place.bytes, "int64"))
        if isinstance(place, TableOffset):
            return extern("handle", "part", workspace, word(place.word))
        if isinstance(place, ConstantOffset):
            first = extern("handle", SYMBOL)
            return extern("handle", "part", first, const(place.bytes, "int64"))
        return place

    in_front = const(_IN_FRONT, "int32")
    exchange = tirx.Evaluate(extern("int32", "exchange", args, result))
    body = [
        bind(launch, extern("int32", "launch", args)),
        when(
            compare("eq", launch, const(EXCHANGE, "int32")),
            sequence([exchange, tirx.Return(const(0, "int32"))]),
        ),
        bind(table, extern("handle", "memory", args, const(1, "int32"))),
        bind(status, extern("int32", "checked", args, given, table, in_front, result)),
        when(compare("ne", status, const(FITS, "int32")), tirx.Return(const(0, "int32"))),
        bind(workspace, extern("handle", "memory", args, const(2, "int32"))),
        *(bind(var, cast(dtype_of(var), word(number))) for var, number in sizes),
    ]
    runs: list[Statement] = []
    first = 0
    for call in calls:
        if call is not None:
            arguments = [argument(place) for place in call.arguments]
            if call.selects:  # all launches are a number below zero
                own = binary("max", launch - const(first, "int32"), const(ALL_LAUNCHES, "int32"))
                arguments.append(own)
            run = called(call.function, arguments)
            runs.append(when(chosen(launch, first, call.launches), run))
        else:
            runs.append(sequence([]))
        first += 1 if call is None else call.launches
    if parts is None:
        chosen_runs = sequence(runs)
    else:
        chosen_runs = _of_parts(runs, parts, cast("int32", word(parts.word)))
    one = const(1, "int32")
    body.append(tirx.AttrStmt(const(0, "int32"), FLUSHED, one, chosen_runs))
    body.append(tirx.Return(const(0, "int32")))
    main = tirx.PrimFunc(
        [_handle("self"), args, given, result], sequence(body), ir.PrimType("int32")
    )
    main = main.with_attr("global_symbol", "__tvm_ffi_main").with_attr("calling_conv", _PACKED)
    return with_llvm_code(main, CODE + EXCHANGE_CODE + constants)


def _of_parts(runs: Sequence[Statement], parts: Parts, number: Expr) -> Statement:
    """``if number == 0: the first runs; else if number == 1: ...``."""
    groups, first = [], 0
    for count in parts.counts:
        groups.append(sequence(runs[first : first + count]))
        first += count
    whole = groups[-1]
    for place, group in reversed(list(enumerate(groups[:-1]))):
        whole = branch(compare("eq", number, const(place, "int32")), group, whole)
    return whole


def check_module(target: Any) -> Any:
    """The check of arrays as machine code for a target, for programs outside of this process.

    The function is ``__tvm_ffi_check(table, args, given, result)``.
    """
    table, args, result = _handle("table"), _handle("args"), _handle("result")
    given = tirx.Var("given", "int32")
    operands = [args, given, table, const(_IN_FRONT, "int32"), result]
    check = tirx.Evaluate(tirx.call_extern("int32", "tvm_autodiff_check", *operands))
    body = sequence([check, tirx.Return(const(0, "int32"))])  # TVM allows no other
    func = tirx.PrimFunc([table, args, given, result], body, ir.PrimType("int32"))
    func = func.with_attr("global_symbol", "__tvm_ffi_check").with_attr("calling_conv", _PACKED)
    module = module_of({"check": with_llvm_code(func, CHECK_CODE)})
    return compiled_module(module, target, tir_pipeline=PIPELINE).mod


def called(function: Any, arguments: Sequence[Expr]) -> Statement:
    """A call of a function by addresses, which raises what the function raises."""
    failed = compare("ne", ir.Call(function, list(arguments), ret_ty="int32"), const(0, "int32"))
    return when(failed, tirx.Evaluate(tirx.op.tvm_throw_last_error()))


def chosen(launch: Expr, first: int, count: int = 1) -> Expr:
    """Whether launches from `first` on are selected: all are, or `launch` is one of them."""
    every = compare("lt", launch, const(0, "int32"))
    if count == 1:
        return any_of([every, compare("eq", launch, const(first, "int32"))])
    after = compare("ge", launch, const(first, "int32"))
    before = compare("lt", launch, const(first + count, "int32"))
    return any_of([every, all_of([after, before])])


def _handle(name: str) -> Any:
    return tirx.Var(name, ir.PointerType(ir.PrimType("void")))
