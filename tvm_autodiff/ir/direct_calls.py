"""Functions that are called by the addresses of their arrays, and one that calls them in order.

In: scheduled PrimFuncs, and for each call of one where its arrays lie: in a parameter of the
program or at a place in its workspace. Out: the same functions without a calling convention of
their own, and ``main``, which looks at all arrays once and then only calls. No memory is planned
here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, tirx

from .build import add, all_of, any_of, compare, const, select, sub
from .intrinsics import with_llvm_code
from .loop_nest import allocated, bind, counter, element, local, loop, sequence, store, when
from .nodes import Expr, Tensor, dtype_of, op_name
from .primfunc import PrimFunc
from .stage import shape_of

Statement = Any  #: a TVM statement

#: what ``main`` returns: that all is done; that nothing is, since a written array shares memory
DONE, OVERLAP = 0, 1
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

_SPANS_ON_STACK = 100  #: arrays; from 128 on TVM would allocate memory

_BY_ADDRESS = "tvm_autodiff.by_address"
_ADDRESS = "tvm_autodiff_address"
# TVM's passes take no expression that makes a number of a pointer
_ADDRESS_CODE = f"""
define i64 @{_ADDRESS}(ptr %array) {{
  %address = ptrtoint ptr %array to i64
  ret i64 %address
}}
"""


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
    body = sequence([scope, tirx.Return(const(DONE, "int32"))])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _pipeline() -> tuple[Any, Any, Any]:
    lower, finish_host, finish_device = tirx.get_tir_pipeline("s_tir")
    return lower, lambda: tvm.transform.Sequential([_apart, finish_host()]), finish_device


tirx.register_tir_pipeline(PIPELINE, _pipeline)


def calling(
    tensors: Sequence[Tensor],
    written: Sequence[int],
    workspace: int,
    calls: Sequence[DirectCall | None],
) -> tuple[PrimFunc, int]:
    """``main(launch, [workspace,] *arrays)``: runs all launches, or the one of that number; and the
    bytes of the workspace, without any of which the parameter is missing.

    Parameters
    ----------
    tensors
        Inputs, then outputs, of constant shapes.
    written
        Numbers of those that are written: each must have its memory for itself.
    workspace
        Bytes for temporaries.
    calls
        In order of execution; None for a launch that has nothing to do.
    """
    launch = tirx.Var("launch", "int32")
    buffers = [_buffer(tensor, f"array{number}") for number, tensor in enumerate(tensors)]
    spans = _Spans(tensors, written, workspace)
    size = workspace + spans.bytes
    space = tirx.decl_buffer((size,), "uint8", "workspace", data_alignment=ALIGNMENT)

    def address(place: Place) -> Expr:
        if isinstance(place, Parameter):
            return tirx.op.buffer_data(buffers[place.number])
        return tirx.address_of(tirx.BufferLoad(space, [const(place.bytes, "int64")]))

    body = spans.refusing_overlap(address)
    for number, call in enumerate(calls):
        if call is None:
            continue
        status = ir.Call(
            call.function, [address(place) for place in call.arguments], ret_ty="int32"
        )
        failed = compare("ne", status, const(DONE, "int32"))
        # the number of none is that of every launch
        wanted = [compare("lt", launch, const(0, "int32"))]
        wanted.append(compare("eq", launch, const(number, "int32")))
        raise_it = tirx.Evaluate(tirx.op.tvm_throw_last_error())
        body.append(when(any_of(wanted), when(failed, raise_it)))
    body.append(tirx.Return(const(DONE, "int32")))
    params = [launch, *([space] if size else []), *buffers]
    main = tirx.PrimFunc(params, sequence(body)).with_attr("global_symbol", "main")
    return with_llvm_code(main, _ADDRESS_CODE) if written else main, size


def _buffer(tensor: Tensor, name: str) -> Any:
    bits = tvm.DataType(dtype_of(tensor)).bits
    return tirx.decl_buffer(
        shape_of(tensor), dtype_of(tensor), name, data_alignment=max(1, bits // 8)
    )


def tensor_bytes(tensor: Tensor) -> int:
    """The size of a tensor of constant shape."""
    count = 1
    for extent in shape_of(tensor):
        count *= int(extent)
    return count * ((tvm.DataType(dtype_of(tensor)).bits + 7) // 8)


class _Spans:
    """Where arrays begin and end in memory, those that are written first."""

    def __init__(self, tensors: Sequence[Tensor], written: Sequence[int], offset: int) -> None:
        chosen = set(written)
        order = [number for number, tensor in enumerate(tensors) if tensor_bytes(tensor)]
        self._order = sorted(order, key=lambda number: number not in chosen)
        self._written = sum(number in chosen for number in order)
        self._sizes = [tensor_bytes(tensor) for tensor in tensors]
        self._offset = offset
        many = self._written and len(order) > _SPANS_ON_STACK
        #: what is needed of the workspace: `main` returns early, and would not free other memory
        self.bytes = 2 * 8 * len(order) if many else 0

    def refusing_overlap(self, address: Callable[[Place], Expr]) -> list[Statement]:
        """Return `OVERLAP` where a written array shares memory with another."""
        count = len(self._order)
        if not self._written or count < 2:
            return []
        begin, end = (local(name, [count], "int64") for name in ("begin", "end"))
        found = local("found", [1], "int32")
        zero = const(0, "int32")
        statements = [store(found, zero, [zero])]
        for row, number in enumerate(self._order):
            start = tirx.call_pure_extern("int64", _ADDRESS, address(Parameter(number)))
            at = [const(row, "int32")]
            statements.append(store(begin, start, at))
            statements.append(store(end, add(start, const(self._sizes[number], "int64")), at))
        one, other = counter("one", count), counter("other", count)
        meet = all_of(
            compare("lt", element(begin, [left]), element(end, [right]))
            for left, right in ((one, other), (other, one))
        )
        seen = select(meet, const(1, "int32"), element(found, [zero]))
        after = add(one, const(1, "int32"))
        rest = sub(const(count, "int32"), after)
        search = loop(other, rest, store(found, seen, [zero]), low=after)
        statements.append(loop(one, self._written, search))
        met = compare("ne", element(found, [zero]), zero)
        statements.append(when(met, tirx.Return(const(OVERLAP, "int32"))))
        if not self.bytes:
            return [allocated([begin, end, found], sequence(statements))]
        places = (Offset(self._offset), Offset(self._offset + 8 * count))
        views = [
            tirx.DeclBuffer(part.buffer, data=address(place))
            for part, place in zip((begin, end), places, strict=True)
        ]
        return [*views, allocated([found], sequence(statements))]
