"""Translates expressions and statements of loop nests into Python functions on single numbers.

The functions take a `Frame`, which holds the variables and buffers. They compute what
`evaluate.Expression` does, one point at a time, and only the branch of a choice that is taken. A
read outside of a buffer is therefore an error only if the program makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import ir, tirx
from tvm.ir import prim

from tests.evaluate import Array, Expression, Key, OutsideRead, float_dtype
from tests.evaluate_functions import BINARY, CALLS, numpy_dtype


class Frame:
    """Values while a loop nest runs: of variables by identity, of buffers by key, and of the nodes
    of the current statement.
    """

    def __init__(self, variables: Mapping[int, Any], buffers: Mapping[Key, Array]) -> None:
        self.variables, self.buffers = dict(variables), dict(buffers)
        self.known: dict[int, Array] = {}


Value = Callable[[Frame], Any]
Made = dict[int, Value]
Statement = Callable[[Frame], None]


def value_of(node: Any, made: Made | None = None) -> Value:
    """A function that computes an expression.

    A node that expressions with the same `made` share is translated once, and computed once per
    statement.
    """
    made = {} if made is None else made
    cls, dtype = type(node), float_dtype(node.ty)
    if cls in (prim.IntImm, prim.FloatImm):
        constant = np.asarray(node.value).astype(dtype)[()]
        return lambda frame: constant
    key = hash(node)
    if key in made:
        return made[key]
    make = _binary if cls in BINARY else _VALUES.get(cls, _in_general)
    compute = make(node, dtype, made)

    def value(frame: Frame) -> Any:
        known = frame.known
        if key not in known:
            found = compute(frame)
            same = getattr(found, "dtype", None) is dtype
            known[key] = found if same else np.asarray(found).astype(dtype)[()]
        return known[key]

    value.node = node  # type: ignore[attr-defined]  # alive as long as its address is a key
    made[key] = value
    return value


def _in_general(node: Any, dtype: np.dtype, made: Made) -> Value:
    return lambda frame: Expression(frame.variables, frame.buffers, strict=True).value(node)


def _binary(node: Any, dtype: np.dtype, made: Made) -> Value:
    function, left, right = BINARY[type(node)], value_of(node.a, made), value_of(node.b, made)
    return lambda frame: function(left(frame), right(frame))


def _var(node: Any, dtype: np.dtype, made: Made) -> Value:
    key = hash(node)
    return lambda frame: frame.variables[key]


def _not(node: Any, dtype: np.dtype, made: Made) -> Value:
    operand = value_of(node.a, made)
    return lambda frame: np.logical_not(operand(frame))


def _choice(condition: Any, then: Any, other: Any, made: Made) -> Value:
    holds, first, second = value_of(condition, made), value_of(then, made), value_of(other, made)
    return lambda frame: first(frame) if holds(frame) else second(frame)


def _let(node: Any, dtype: np.dtype, made: Made) -> Value:
    key, bound, body = hash(node.var), value_of(node.value, made), value_of(node.body, made)

    def value(frame: Frame) -> Any:
        frame.variables[key] = bound(frame)
        return body(frame)

    return value


def _load(node: Any, dtype: np.dtype, made: Made) -> Value:
    key, name = (hash(node.source), 0), node.source.name
    indices = [value_of(index, made) for index in node.indices]

    def value(frame: Frame) -> Any:
        array = frame.buffers[key]
        index = tuple([int(place(frame)) for place in indices])
        if not _is_inside(index, array):
            raise OutsideRead(f"{name}, of shape {array.shape}, is read outside at {index}")
        return array[index]

    return value


def _call(node: Any, dtype: np.dtype, made: Made) -> Value:
    name, args = node.op.name.rpartition(".")[2], list(node.args)
    if name == "tensor_load":
        return _in_general(node, dtype, made)
    if name in ("call_extern", "call_pure_extern"):
        name, args = args[0].value, args[1:]
    if name == "if_then_else":
        return _choice(*args, made)
    values = [value_of(arg, made) for arg in args]
    if name == "reinterpret":
        return lambda frame: np.asarray(values[0](frame)).view(dtype)
    function = CALLS[name]
    return lambda frame: function(*[value(frame) for value in values])


_VALUES: dict[type, Callable[[Any, np.dtype, Made], Value]] = {
    ir.Var: _var,
    prim.Not: _not,
    prim.Cast: lambda node, dtype, made: value_of(node.value, made),
    prim.Select: lambda node, dtype, made: _choice(
        node.condition, node.true_value, node.false_value, made
    ),
    prim.Let: _let,
    ir.TensorLoad: _load,
    ir.Call: _call,
}


def _is_inside(index: tuple[int, ...], array: Array) -> bool:
    return all(0 <= place < extent for place, extent in zip(index, array.shape, strict=True))


def statement_of(node: Any) -> Statement:
    """A function that runs a statement."""
    return _STATEMENTS[type(node)](node)


def _fresh(node: Any) -> Value:
    """The value of an expression at the start of a statement, with no node known from before."""
    value = value_of(node)

    def begun(frame: Frame) -> Any:
        frame.known.clear()
        return value(frame)

    return begun


def _loop(node: Any) -> Statement:
    first, extent, body = _fresh(node.min), _fresh(node.extent), statement_of(node.body)
    key, scalar = hash(node.loop_var), numpy_dtype(node.loop_var.ty).type

    def run(frame: Frame) -> None:
        begin = int(first(frame))
        for place in range(begin, begin + int(extent(frame))):
            frame.variables[key] = scalar(place)
            body(frame)

    return run


def _while(node: Any) -> Statement:
    condition, body = _fresh(node.condition), statement_of(node.body)

    def run(frame: Frame) -> None:
        while condition(frame):
            body(frame)

    return run


def _store(node: Any) -> Statement:
    key, name = (hash(node.buffer), 0), node.buffer.name
    made: Made = {}
    indices = [value_of(index, made) for index in node.indices]
    value = value_of(node.value, made)

    def run(frame: Frame) -> None:
        frame.known.clear()
        index = tuple([int(place(frame)) for place in indices])
        array = frame.buffers[key]
        assert _is_inside(index, array), f"a store outside of {name}: {index}"
        array[index] = value(frame)

    return run


def _if(node: Any) -> Statement:
    condition, then = _fresh(node.condition), statement_of(node.then_case)
    other = statement_of(node.else_case) if node.else_case is not None else None

    def run(frame: Frame) -> None:
        if condition(frame):
            then(frame)
        elif other is not None:
            other(frame)

    return run


def _sequence(node: Any) -> Statement:
    parts = [statement_of(part) for part in node.seq]

    def run(frame: Frame) -> None:
        for part in parts:
            part(frame)

    return run


def _allocate(node: Any) -> Statement:
    key, dtype = (hash(node.buffer), 0), float_dtype(node.buffer.ty.dtype)
    extents = [_fresh(dim) for dim in node.buffer.ty.shape]

    def run(frame: Frame) -> None:
        frame.buffers[key] = np.zeros([int(extent(frame)) for extent in extents], dtype)

    return run


def _bind(node: Any) -> Statement:
    key, value = hash(node.var), _fresh(node.value)

    def run(frame: Frame) -> None:
        frame.variables[key] = value(frame)

    return run


_STATEMENTS: dict[type, Callable[[Any], Statement]] = {
    tirx.For: _loop,
    tirx.While: _while,
    tirx.BufferStore: _store,
    tirx.IfThenElse: _if,
    tirx.SeqStmt: _sequence,
    tirx.AllocBuffer: _allocate,
    tirx.Bind: _bind,
}
