"""The vocabulary of expressions: the name and the operands of each node, and how to rebuild it.

All other packages use these names, so a TVM release that renames its node classes only affects this
file. `rewrite` traverses expressions, and `build` constructs them with folding.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import tvm
import tvm_ffi
from tvm import ir, te, tirx
from tvm.ir import prim
from tvm_ffi import Object

Expr = Any  #: a TVM scalar expression
Var: TypeAlias = ir.Var
Tensor: TypeAlias = te.Tensor
Axis: TypeAlias = tirx.IterVar

BINARY_CLASSES: dict[str, type] = {
    "add": prim.Add,
    "sub": prim.Sub,
    "mul": prim.Mul,
    "div": prim.Div,
    "truncmod": prim.Mod,
    "floordiv": prim.FloorDiv,
    "floormod": prim.FloorMod,
    "min": prim.Min,
    "max": prim.Max,
    "eq": prim.EQ,
    "ne": prim.NE,
    "lt": prim.LT,
    "le": prim.LE,
    "gt": prim.GT,
    "ge": prim.GE,
    "and": prim.And,
    "or": prim.Or,
}
BITWISE_CLASSES: dict[str, type] = {
    name: getattr(prim, cls)
    for name, cls in {
        "bitwise_and": "BitwiseAnd",
        "bitwise_or": "BitwiseOr",
        "bitwise_xor": "BitwiseXor",
        "shift_left": "LShift",
        "shift_right": "RShift",
    }.items()
    if hasattr(prim, cls)
}
BRANCHES = ("if_then_else", "select")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
INTEGER_DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")
FLOAT_DTYPES = ("float16", "bfloat16", "float32", "float64")
#: the dtypes of indices, whose arithmetic is treated as exact: values that would overflow are
#: widened on emission; all other integer arithmetic wraps
INDEX_DTYPES = ("int32", "int64")

#: the identity of an expression or stage, as `node_id`, which takes everything
address = Object.__hash__
#: for arrays of nodes; `array[n]` and slices go through several Python calls
_length = tvm_ffi.get_global_func("ffi.ArraySize")
_element = tvm_ffi.get_global_func("ffi.ArrayGetItem")
#: a call from its type, operator, operands, attributes, type arguments and place in a source; the
#: constructor of the Python class takes five times as long
_new_call = tvm_ffi.get_global_func("ir.Call")
_NAME_OF_CLASS: dict[type, str] = {
    **{cls: name for name, cls in BINARY_CLASSES.items()},
    **{cls: name for name, cls in BITWISE_CLASSES.items()},
    prim.Not: "not",
    prim.BitwiseNot: "bitwise_not",
    prim.Select: "select",
    prim.Cast: "cast",
    prim.Let: "let",
    prim.IntImm: "const",
    prim.FloatImm: "const",
    ir.StringImm: "string",
    ir.Var: "var",
    tirx.Reduce: "reduce",
}
#: nodes that are determined by their class, dtype and operands
_VALUE_IN_OPERANDS = frozenset(
    (*BINARY_CLASSES.values(), *BITWISE_CLASSES.values())
    + (prim.Not, prim.BitwiseNot, prim.Select, prim.Cast)
)
_LEAVES = frozenset((prim.IntImm, prim.FloatImm, ir.Var, ir.StringImm))
_LOAD = ir.Op.get("te.tensor_load")
_LOAD_ADDRESS = address(_LOAD)
#: names of operators by address: TVM keeps operators for the whole process
_CALLED: dict[int, str] = {}
#: names of types by address, valid while the types live: TVM keeps one type object for each dtype
#: for the whole process, and printing it takes ten times as long as this look-up
_DTYPES: dict[int, tuple[str, Any]] = {}
#: nodes and their operands by address, and how many are kept: many walks ask for the same
_OPERANDS: dict[int, tuple[Any, tuple[Any, ...]]] = {}
_MOST_OPERANDS = 1 << 14
#: calls whose name in the vocabulary differs from TVM's
_CALL_NAMES = {_LOAD.name: "load", "tirx.pow": "power", "tirx.fabs": "abs"}
_CALL_IDS = {"power": "tirx.pow", "abs": "tirx.fabs"}
_PRIM_CALLS = ("if_then_else", "ceil", "log2", "likely", "clz")
#: operators by their name in the vocabulary: TVM keeps them for the whole process
_OPERATORS: dict[str, Any] = {}


def op_name(expr: Expr) -> str:
    """Name of a node in the library's vocabulary.

    Binary nodes and calls have their mathematical name (``"add"``, ``"floordiv"``, ``"exp"``,
    ``"power"``, ``"abs"``, ``"if_then_else"``); the others are ``"const"``, ``"var"``, ``"load"``,
    ``"select"``, ``"cast"``, ``"let"``, ``"not"``, ``"bitwise_not"``, ``"string"``, ``"reduce"``.
    An integer `div` is ``"truncdiv"``.

    Examples
    --------
    >>> from tvm import te
    >>> op_name(te.var("i") // 2)
    'floordiv'
    """
    cls = type(expr)
    name = _NAME_OF_CLASS.get(cls)
    if name is None:
        if cls is ir.Call:
            op = expr.op
            return _CALLED.get(address(op)) or _called(op)
        return cls.__name__.lower()
    if name == "div" and not is_float(expr):
        return "truncdiv"
    return name


def _called(op: Any) -> str:
    """The name of what a call calls; that of an operator is kept."""
    if not isinstance(op, ir.Op):
        return str(op).rpartition(".")[2]
    name = _CALL_NAMES.get(op.name) or op.name.rpartition(".")[2]
    return _CALLED.setdefault(address(op), name)


def operands(expr: Expr) -> tuple[Expr, ...]:
    """Scalar operands of a node, left to right.

    The tensor of a load, the variable of a let and the axes of a reduction are not operands:
    see `load_tensor`, `let_variable` and `Reduction`.
    """
    if type(expr) in _LEAVES:
        return ()
    known = _OPERANDS.get(address(expr))
    return _operands(expr) if known is None else known[1]


def _operands(expr: Expr) -> tuple[Expr, ...]:
    """What `operands` remembers, as `remembered` does: its answer takes one call."""
    read = _OPERANDS_OF_CLASS.get(type(expr))
    parts = tuple(getattr(expr, "args", ())) if read is None else read(expr)
    if len(_OPERANDS) >= _MOST_OPERANDS:
        _OPERANDS.clear()
    _OPERANDS[address(expr)] = (expr, parts)
    return parts


def _operands_of_call(expr: Expr) -> tuple[Expr, ...]:
    args = expr.args
    first = 1 if _is_load(expr) else 0
    return elements(args, first)


def elements(array: Any, first: int = 0) -> tuple[Any, ...]:
    """The elements of one of TVM's arrays; iterating over it takes several Python calls each."""
    return tuple([_element(array, place) for place in range(first, _length(array))])


#: what reads the operands of a node; an `attrgetter` of several names gives a tuple
_OPERANDS_OF_CLASS: dict[type, Callable[[Expr], tuple[Expr, ...]]] = {
    **dict.fromkeys((*BINARY_CLASSES.values(), *BITWISE_CLASSES.values()), attrgetter("a", "b")),
    ir.Call: _operands_of_call,
    prim.Not: lambda expr: (expr.a,),
    prim.BitwiseNot: lambda expr: (expr.a,),
    prim.Select: attrgetter("condition", "true_value", "false_value"),
    prim.Cast: lambda expr: (expr.value,),
    prim.Let: attrgetter("value", "body"),
    prim.Shuffle: lambda expr: elements(expr.vectors),
    tirx.Reduce: lambda expr: (*elements(expr.source), *elements(expr.init), expr.condition),
}


def with_operands(expr: Expr, new: Sequence[Expr]) -> Expr:
    """The same node over other operands; nothing is folded."""
    cls = type(expr)
    if cls is ir.Call:
        op = expr.op
        args = (load_tensor(expr), *new) if address(op) == _LOAD_ADDRESS else tuple(new)
        return _new_call(expr.ty, op, args, expr.attrs, expr.ty_args, None)
    if cls is prim.Select:
        return prim.Select(*new)
    if cls is prim.Cast:
        return prim.Cast(dtype_of(expr), new[0])
    if cls is prim.Not or cls is prim.BitwiseNot:
        return cls(new[0])
    if cls is prim.Let:
        return prim.Let(expr.var, new[0], new[1])
    if cls is prim.Shuffle:
        return prim.Shuffle(list(new), list(expr.indices))
    if cls is tirx.Reduce:
        n_source, n_init = len(expr.source), len(expr.init)
        return tirx.Reduce(
            expr.combiner,
            list(new[:n_source]),
            list(expr.axis),
            new[-1],
            expr.value_index,
            list(new[n_source : n_source + n_init]),
        )
    if cls in _NAME_OF_CLASS and len(new) == 2:
        return cls(new[0], new[1])
    return expr


def _is_load(call: Any) -> bool:
    return address(call.op) == _LOAD_ADDRESS


def is_load(expr: Expr) -> bool:
    """Whether a node reads an element of a tensor."""
    return type(expr) is ir.Call and _is_load(expr)


def load_tensor(expr: Expr) -> Tensor:
    """The tensor that a load reads."""
    return _element(expr.args, 0)


def load(tensor: Tensor, indices: Sequence[Expr]) -> Expr:
    """The element of `tensor` at `indices`."""
    return tensor(*indices)


def let_variable(expr: Expr) -> Var:
    """The variable that a let binds; its operands are the value and the body."""
    return expr.var


def is_tensor(value: Any) -> bool:
    """Whether a value is a te tensor (an element or a slice of one is not)."""
    return isinstance(value, te.Tensor)


def is_expr(value: Any) -> bool:
    """Whether a value is a scalar expression."""
    return isinstance(value, ir.Expr)


def as_expr(value: Any) -> Expr:
    """A user's value as an expression; an element ``A[i]`` is a slice until it is used."""
    return value.asobject() if isinstance(value, te.TensorSlice) else value


def is_const(expr: Expr, value: float | None = None) -> bool:
    """Whether a node is a literal and, if `value` is given, equals it."""
    cls = type(expr)
    if cls is not prim.IntImm and cls is not prim.FloatImm:
        return False
    return value is None or expr.value == value


def const_value(expr: Expr) -> int | float | None:
    """The value of a literal, or None for any other node. Booleans are returned as 0 or 1."""
    if isinstance(expr, (int, float)):
        return expr
    cls = type(expr)
    return expr.value if cls is prim.IntImm or cls is prim.FloatImm else None


def dtype_of(node: Any) -> str:
    """The dtype of an expression or tensor as a plain string (``"float32"``, ``"int32"``,
    ``"bool"``).
    """
    # isinstance would go through Python's abstract base classes for every node
    ty = node.dtype if type(node) is te.Tensor else node.ty
    known = _DTYPES.get(address(ty))
    if known is None:
        known = _DTYPES[address(ty)] = (str(ty), ty)
    return known[0]


def is_float(node: Any) -> bool:
    """Whether an expression or tensor has a floating point dtype."""
    dtype = dtype_of(node)
    return dtype.startswith(("float", "bfloat"))


def is_integer(node: Any) -> bool:
    """Whether an expression or tensor has an integer dtype (bool is not one)."""
    return dtype_of(node).startswith(("int", "uint"))


def node_id(node: Any) -> int:
    """The identity of a node: equal for two Python handles of one TVM object while the node lives.
    """
    # an integer literal hashes as its value, and Python gives -1 and -2 the same hash
    return address(node) if type(node) is prim.IntImm else hash(node)


def same_node(left: Any, right: Any) -> bool:
    """Whether two handles are one and the same TVM object."""
    return node_id(left) == node_id(right)


def own_fields(node: Expr) -> Hashable:
    """The fields of a node, besides its dtype and operands, that determine its value.

    Two nodes of equal name, dtype and own fields over equal operands compute the same value.
    Variables, reductions and nodes outside the vocabulary equal only themselves, so keys are valid
    while the nodes live.

    Examples
    --------
    >>> from tvm import te, tirx
    >>> x = te.var("x", "float32")
    >>> sine, cosine = (tirx.call_pure_extern("float32", f, x) for f in ("sinf", "cosf"))
    >>> [own_fields(operands(call)[0]) for call in (sine, cosine)]
    ['sinf', 'cosf']
    """
    cls = type(node)
    if cls in _VALUE_IN_OPERANDS:
        return None
    if cls is prim.IntImm or cls is prim.FloatImm:
        return repr(node.value)  # distinguishes -0.0 from 0.0, and treats a NaN as equal to itself
    if cls is ir.StringImm:
        return node.value
    if cls is prim.Let:
        return node_id(node.var)
    if cls is ir.Call:
        op, attrs, types = node.op, node.attrs, node.ty_args
        called = op.name if isinstance(op, ir.Op) else node_id(op)
        read = tensor_key(load_tensor(node)) if _is_load(node) else None
        texts = tuple(map(str, types)) if _length(types) else ()
        return (called, None if attrs is None else node_id(attrs), texts, read)
    return node_id(node)


def matched(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """Two operands of one dtype: if one is int32 and the other int64, the int32 one is widened.

    Both dtypes meet in programs with sizes of both, and TVM's nodes take only one.
    """
    a, b = left.ty, right.ty
    if a.same_as(b) or a == b:
        return left, right
    dtypes = str(a), str(b)
    if dtypes == ("int32", "int64"):
        return _wide(left), right
    return (left, _wide(right)) if dtypes == ("int64", "int32") else (left, right)


def _wide(expr: Expr) -> Expr:
    value = const_value(expr)
    return prim.Cast("int64", expr) if value is None else tirx.const(value, "int64")


def binary(name: str, left: Expr, right: Expr) -> Expr:
    """A binary node by name, not folded; ``"truncdiv"`` is the integer `div`."""
    cls = BINARY_CLASSES.get("div" if name == "truncdiv" else name) or BITWISE_CLASSES[name]
    return cls(*matched(left, right))


def call_node(name: str, args: Sequence[Expr], dtype: str) -> Expr:
    """A call of an intrinsic by its name in the vocabulary."""
    op = _OPERATORS.get(name)
    if op is None:
        full = _CALL_IDS.get(name) or ("prim." if name in _PRIM_CALLS else "tirx.") + name
        op = _OPERATORS[name] = ir.Op.get(full)
    return _new_call(ir.PrimType(dtype), op, tuple(args), None, (), None)


def tensor_key(tensor: Tensor) -> tuple[int, int]:
    """A dictionary key for a tensor: its operation and its output number.

    Tensors themselves cannot be keys because equality of te tensors of rank 0 raises. The key is
    valid while the tensor lives.
    """
    return (hash(tensor.op), tensor.value_index)


def always(condition: Expr) -> bool:
    """Whether a condition is the literal truth."""
    return is_const(condition, 1)


TVM_VERSION: str = tvm.__version__
