"""Writes functions loop by loop, for what stages and schedules cannot express.

Expressions over te tensors, with a buffer for each tensor, become loops, stores, local buffers and
a PrimFunc without a block for each stage. Several stages can thus share a loop and keep a row of
their results on the stack. The rules of `schedule` decide what the loops are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx

from ..expr.build import add, cast, const, mul, variable
from ..expr.nodes import Expr, Tensor, Var, const_value, dtype_of, tensor_key
from ..expr.rewrite import map_loads
from ..graph.sizes.narrowed import plain_shape
from ..graph.stage import Combiner, Extent, index_dtype, shape_of
from .passes.in_place import WRITES_ONCE
from .stages.primfunc import PrimFunc

Statement = Any  #: a TVM statement
Buffer = Any  #: a TVM buffer

#: bytes up to which TVM puts a buffer on the stack, and not into the heap
ON_STACK = 1024

SERIAL, PARALLEL, VECTORIZED, UNROLLED = (
    tirx.ForKind.SERIAL,
    tirx.ForKind.PARALLEL,
    tirx.ForKind.VECTORIZED,
    tirx.ForKind.UNROLLED,
)


def parameter(tensor: Tensor, name: str) -> Buffer:
    """A buffer of the shape and dtype of a tensor."""
    return tirx.decl_buffer(plain_shape(tensor), dtype_of(tensor), name)


def parameters(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> dict[tuple[int, int], Buffer]:
    """The parameters of a function, inputs first, by the keys of their tensors."""
    return {
        tensor_key(tensor): parameter(tensor, f"{role}{number}")
        for role, tensors in (("p", inputs), ("out", outputs))
        for number, tensor in enumerate(tensors)
    }


@dataclass(frozen=True)
class Local:
    """A contiguous local buffer.

    For TVM it has one dimension. TVM would remove a dimension whose index is always zero from a
    buffer of several, but here the next index may run beyond it.
    """

    buffer: Buffer
    shape: tuple[Extent, ...]

    @property
    def elements(self) -> int:
        """The number of elements of a buffer of constant shape."""
        return prod(self.shape)


def local(name: str, shape: Sequence[Extent], dtype: str, scope: str = "global") -> Local:
    """A buffer for `allocated`, on the stack up to `ON_STACK`, otherwise on the heap, as those of
    symbolic shape.

    With scope ``"local"`` it is in the registers of a thread.
    """
    count: Any = 1
    for extent in shape:
        count = count * extent
    return Local(tirx.decl_buffer([count], dtype, name, scope=scope), tuple(shape))


def allocated(buffers: Sequence[Local], body: Statement) -> Statement:
    """`body` with local buffers, which live while it runs."""
    return sequence([*(tirx.AllocBuffer(local.buffer) for local in buffers), body])


def sequence(statements: Sequence[Statement]) -> Statement:
    """Statements one after the other."""
    if len(statements) == 1:
        return statements[0]
    return tirx.SeqStmt(list(statements)) if statements else tirx.Evaluate(tirx.const(0, "int32"))


def loop(
    var: Var, extent: Extent, body: Statement, kind: Any = SERIAL, low: Extent = 0
) -> Statement:
    """``for var in low .. low + extent``; a loop of one iteration is its body, of none nothing."""
    dtype = dtype_of(var)
    size = const(extent, dtype) if isinstance(extent, int) else extent
    start = const(low, dtype) if isinstance(low, int) else low
    literal = const_value(size)
    if literal == 0:
        return sequence([])
    if literal == 1:
        return sequence([bind(var, start), body])
    if const_value(start) is None:
        # where TVM lets loops begin at zero, it leaves variables of outer loops in where they begin
        turn = tirx.Var(str(var.name), dtype)
        body = sequence([bind(var, add(start, turn)), body])
        start, var = const(0, dtype), turn
    return tirx.For(var, start, size, kind, body)


def nested(loops: Sequence[tuple[Var, Extent]], body: Statement) -> Statement:
    """``for var, extent in loops: body``, the first one outermost."""
    for var, extent in reversed(loops):
        body = loop(var, extent, body)
    return body


def when(condition: Expr, body: Statement) -> Statement:
    """`body`, if a condition holds."""
    return body if const_value(condition) else tirx.IfThenElse(condition, body, None)


def branch(condition: Expr, then: Statement, otherwise: Statement) -> Statement:
    """`then` if a condition holds, else `otherwise`."""
    return tirx.IfThenElse(condition, then, otherwise)


def bind(var: Var, value: Expr) -> Statement:
    """``var = value`` for the statements that follow in the same sequence."""
    return tirx.Bind(var, value)


def combination(
    combiner: Combiner, old: Sequence[Expr], values: Sequence[Expr]
) -> tuple[list[Statement], list[Expr]]:
    """``old ⊕ values``, after bindings of the values that a combiner repeats.

    Expressions are trees to TVM: a combiner that writes its operand ten times would make one ten
    times as large.
    """
    before: list[Statement] = []
    if combiner.repeats():
        names = [variable("element", dtype_of(value)) for value in values]
        before = [bind(name, value) for name, value in zip(names, values, strict=True)]
        values = names
    return before, list(combiner.apply(old, values))


def store(place: Buffer | Local, value: Expr, indices: Sequence[Expr]) -> Statement:
    """``place[indices] = value``."""
    if isinstance(place, Local):
        return tirx.BufferStore(place.buffer, value, [_flat(place, indices)])
    return tirx.BufferStore(place, value, list(indices))


def element(place: Buffer | Local, indices: Sequence[Expr]) -> Expr:
    """``place[indices]``."""
    if isinstance(place, Local):
        return tirx.BufferLoad(place.buffer, [_flat(place, indices)])
    return tirx.BufferLoad(place, list(indices))


def _flat(place: Local, indices: Sequence[Expr]) -> Expr:
    """The position of an element in a buffer of one dimension."""
    position: Expr = const(0, "int32")
    for index, extent in zip(indices, place.shape, strict=True):
        dtype = dtype_of(index)
        size = const(extent, dtype) if isinstance(extent, int) else cast(dtype, extent)
        position = add(mul(cast(dtype, position), size), index)
    return position


def counter(name: str, extent: Extent) -> Var:
    """A fresh loop variable that can count to `extent`."""
    return tirx.Var(name, index_dtype(extent))


class Places:
    """The buffers of tensors, with some dimensions omitted.

    A buffer that holds one row of a tensor at a time has no dimension for the row's position.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], tuple[Buffer | Local, dict[int, int]]] = {}

    def put(
        self, tensor: Tensor, buffer: Buffer | Local, kept: Sequence[int] | None = None
    ) -> None:
        """Store a tensor in a buffer that has its dimensions `kept`, or all of them."""
        kept = range(len(shape_of(tensor))) if kept is None else kept
        self._places[tensor_key(tensor)] = buffer, dict.fromkeys(kept, 0)

    def put_beyond(self, tensor: Tensor, buffer: Buffer, offsets: Sequence[int]) -> None:
        """Store an element of a tensor so many places beyond its indices in a buffer."""
        self._places[tensor_key(tensor)] = buffer, dict(enumerate(offsets))

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> tuple[Places, list[Buffer]]:
        """Parameters ``p0, p1..`` for tensors, and the tensors in these."""
        places, buffers = Places(), [parameter(t, f"p{n}") for n, t in enumerate(tensors)]
        for tensor, buffer in zip(tensors, buffers, strict=True):
            places.put(tensor, buffer)
        return places, buffers

    def write(self, tensor: Tensor, value: Expr, indices: Sequence[Expr]) -> Statement:
        """The store of an element."""
        buffer, kept = self._places[tensor_key(tensor)]
        return store(buffer, value, _moved(indices, kept))

    def read(self, expr: Expr) -> Expr:
        """The expression with reads of tensors replaced by reads of their buffers."""

        def place(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
            buffer, kept = self._places[tensor_key(tensor)]
            return element(buffer, _moved(indices, kept))

        return map_loads(expr, place)


def _moved(indices: Sequence[Expr], offsets: Mapping[int, int]) -> list[Expr]:
    """The indices of some dimensions, so many places beyond."""
    return [
        add(indices[dim], const(offset, dtype_of(indices[dim]))) if offset else indices[dim]
        for dim, offset in offsets.items()
    ]


def function(parameters: Sequence[Buffer], body: Statement, once: bool = False) -> PrimFunc:
    """A PrimFunc over buffers that do not overlap.

    With `once`, each element of a result is stored at most once, so that a result may reuse the
    memory of a parameter (see `in_place`).
    """
    attrs: dict[str, Any] = {"tirx.noalias": True, "s_tir": True}
    if once:
        attrs[WRITES_ONCE] = True
    # Relax expects a block at the root of every function that a program calls
    root = s_tir.SBlock([], [], [], "root", body)
    body = s_tir.SBlockRealize([], const(1, "bool"), root)
    made = tirx.PrimFunc(list(parameters), body, attrs=tvm.ir.make_node("ir.DictAttrs", **attrs))
    return _with_own_variables(made)


def _with_own_variables(func: PrimFunc) -> PrimFunc:
    """``a[0] = let t = x in f(t); a[1] = let t = y in f(t) → .. let u = y in f(u)``.

    An expression that is written several times binds its variables each time, which TVM rejects.
    """
    module = tvm.IRModule({"main": func})
    return tirx.transform.ConvertSSA()(module)["main"]
