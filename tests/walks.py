"""Walks over TVM's own expressions, for oracles: names and operands of nodes, and their order.

This shares no code with the library. Names are those of `evaluate_functions`, or of the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, te, tirx
from tvm.ir import prim
from tvm_ffi import Object

#: the identity of a node, while it lives; a literal's hash is that of its number
address_of = Object.__hash__

_NAMES: dict[type, str] = {
    prim.Add: "add",
    prim.Sub: "sub",
    prim.Mul: "mul",
    prim.Div: "div",
    prim.Mod: "truncmod",
    prim.FloorDiv: "floordiv",
    prim.FloorMod: "floormod",
    prim.Min: "min",
    prim.Max: "max",
    prim.EQ: "eq",
    prim.NE: "ne",
    prim.LT: "lt",
    prim.LE: "le",
    prim.GT: "gt",
    prim.GE: "ge",
    prim.And: "and",
    prim.Or: "or",
    prim.Not: "not",
    prim.Select: "select",
    prim.Cast: "cast",
    prim.Let: "let",
    prim.Ramp: "ramp",
    prim.Broadcast: "broadcast",
    prim.Shuffle: "shuffle",
    prim.IntImm: "const",
    prim.FloatImm: "const",
    ir.StringImm: "string",
    ir.Var: "var",
    ir.TensorLoad: "load",
    tirx.Reduce: "reduce",
}
#: bitwise operators, which some builds of TVM have as calls
_NAMES.update(
    (getattr(prim, cls), name)
    for cls, name in (
        ("BitwiseAnd", "bitwise_and"),
        ("BitwiseOr", "bitwise_or"),
        ("BitwiseXor", "bitwise_xor"),
        ("BitwiseNot", "bitwise_not"),
        ("LShift", "shift_left"),
        ("RShift", "shift_right"),
    )
    if hasattr(prim, cls)
)
#: class of a node → its operands, other than the two of a binary one
_PARTS: dict[type, tuple[str, ...]] = {
    **{cls: ("a",) for cls, name in _NAMES.items() if name in ("not", "bitwise_not")},
    prim.Select: ("condition", "true_value", "false_value"),
    prim.Cast: ("value",),
    prim.Let: ("value", "body"),
    prim.Ramp: ("base", "stride"),
    prim.Broadcast: ("value",),
    prim.IntImm: (),
    prim.FloatImm: (),
    ir.StringImm: (),
    ir.Var: (),
}
#: calls that go by two names
_CALLS = {"tensor_load": "load", "pow": "power", "fabs": "abs"}


def dtype_of(node: Any) -> str:
    """The dtype of an expression or tensor."""
    return str(node.dtype) if isinstance(node, te.Tensor) else str(node.ty)


def is_float(node: Any) -> bool:
    """Whether it has a dtype of floats."""
    return dtype_of(node).startswith(("float", "bfloat"))


def name_of(node: Any) -> str:
    """What a node computes: ``"add"``, ``"exp"``, ``"load"``, ``"var"``.

    An integer quotient that is rounded to zero is ``"truncdiv"``.

    Examples
    --------
    >>> i = te.var("i")
    >>> name_of(te.truncdiv(i, 2)), name_of(te.exp(i.astype("float32")))
    ('truncdiv', 'exp')
    """
    if type(node) is not ir.Call:
        name = _NAMES[type(node)]
        return "truncdiv" if name == "div" and not is_float(node) else name
    name = node.op.name.rpartition(".")[2]
    return _CALLS.get(name, name)


def parts_of(node: Any) -> list[Any]:
    """The operands of a node; of a read the indices."""
    cls = type(node)
    if cls is ir.Call:
        return list(node.args)[node.op.name == "te.tensor_load" :]
    if cls is ir.TensorLoad:
        return list(node.indices)
    if cls is prim.Shuffle:
        return list(node.vectors)
    if cls is tirx.Reduce:
        return [*node.source, *node.init, node.condition]
    return [getattr(node, part) for part in _PARTS.get(cls, ("a", "b"))]


def read_of(node: Any) -> Any:
    """The tensor that a read of te takes an element of."""
    return node.args[0]


def in_order(roots: Any | Sequence[Any]) -> list[Any]:
    """Every node once, each after its operands.

    Examples
    --------
    >>> i = te.var("i")
    >>> [name_of(node) for node in in_order(i * i + 1)]
    ['var', 'mul', 'const', 'add']
    """
    found: dict[int, Any] = {}
    listed = list(roots) if isinstance(roots, (list, tuple)) else [roots]
    pending = [(root, False) for root in reversed(listed)]
    while pending:
        node, ready = pending.pop()
        if address_of(node) in found:
            continue
        if ready:
            found[address_of(node)] = node
        else:
            pending.append((node, True))
            pending += [(part, False) for part in reversed(parts_of(node))]
    return list(found.values())


def bound_values(nodes: Sequence[Any]) -> dict[int, Any]:
    """The values of the variables that lets among some nodes bind, by variable.

    In the order of `in_order`, a value precedes all that its variable is used in.
    """
    return {address_of(node.var): node.value for node in nodes if name_of(node) == "let"}
