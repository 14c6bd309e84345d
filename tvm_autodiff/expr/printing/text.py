"""Prints expressions in plain notation: ``A[i, k]*B[k, j]``, ``if i >= 1 then A[i - 1] else 0``.

TVM's own printer cannot print tensors. An expression becomes one line with as few parentheses as
possible, distinct names for distinct variables and tensors, and the shortest decimal of every
float. Large shared parts are named: ``let t1 = ... in t1*t1``. The walk keeps its own stack and
stops at `limit` characters. `show` prints stages and graphs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tvm import sym

from ..nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    always,
    dtype_of,
    is_const,
    let_variable,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ..rewrite import postorder
from .literals import literal
from .names import Names
from .reducer_signs import sign_of
from .sharing import shared_parts

# binding strengths: an operand that binds less tightly than its position requires gets parentheses
_LOOSE, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(10)

#: name → (symbol, its strength, required strength of the left and of the right operand)
_INFIX: dict[str, tuple[str, int, int, int]] = {
    "or": (" or ", _OR, _OR, _OR),
    "and": (" and ", _AND, _AND, _AND),
    "eq": (" == ", _COMPARE, _SUM, _SUM),
    "ne": (" != ", _COMPARE, _SUM, _SUM),
    "lt": (" < ", _COMPARE, _SUM, _SUM),
    "le": (" <= ", _COMPARE, _SUM, _SUM),
    "gt": (" > ", _COMPARE, _SUM, _SUM),
    "ge": (" >= ", _COMPARE, _SUM, _SUM),
    "add": (" + ", _SUM, _SUM, _PRODUCT),
    "sub": (" - ", _SUM, _SUM, _PRODUCT),
    "mul": ("*", _PRODUCT, _PRODUCT, _SIGN),
    "div": ("/", _PRODUCT, _PRODUCT, _SIGN),
    "floordiv": ("//", _PRODUCT, _PRODUCT, _SIGN),
    "floormod": ("%", _PRODUCT, _PRODUCT, _SIGN),
    "power": ("**", _POWER, _ATOM, _SIGN),
}
_LIMIT = 2000

# a pending piece of output: text, or (node, required strength, negated?)
_Piece = str | tuple[Expr, int, bool]


class Printer:
    """Prints expressions that share their names of variables and tensors.

    Parameters
    ----------
    tensors, variables : Names, optional
        Names assigned so far. New names are added in the order of the text.
    limit : int or None
        The maximum length of one expression's text in characters. None means no limit.
    """

    def __init__(
        self,
        tensors: Names | None = None,
        variables: Names | None = None,
        limit: int | None = _LIMIT,
    ) -> None:
        self._tensors = tensors or Names()
        self._variables = variables or Names()
        self._limit = limit

    def inner(self) -> Printer:
        """A printer for an inner scope: names that it adds stay in it."""
        return Printer(self._tensors.inner(), self._variables.inner(), self._limit)

    def tensor(self, tensor: Tensor) -> str:
        """The name of a tensor."""
        return self._tensors.name(tensor_key(tensor), tensor.name, tensor)

    def variable(self, var: Var) -> str:
        """The name of a variable."""
        return self._variables.name(node_id(var), var.name, var)

    def __call__(self, expr: Expr) -> str:
        """The text of one expression."""
        if op_name(expr) == "reduce":
            return self.reduction(expr)
        return self._write([(expr, _LOOSE, False)], [expr])

    def tuple_of(self, exprs: Sequence[Expr]) -> str:
        """``(a, b)``; a single expression has no parentheses."""
        if len(exprs) == 1:
            return self(exprs[0])
        return self._write(["(", *_listed(exprs), ")"], exprs)

    def axes(self, axes: Sequence[Axis], condition: Expr) -> str:
        """The subscript of a reduction: ``k<5, 1<=l<4 | k > 1``."""
        bounds = ", ".join(self._bounds(axis) for axis in axes)
        return bounds if always(condition) else f"{bounds} | {self(condition)}"

    def _bounds(self, axis: Axis) -> str:
        low, extent = axis.dom.min, axis.dom.extent
        if is_const(low, 0):
            return f"{self.variable(axis.var)}<{self(_tidy(extent))}"
        return f"{self(_tidy(low))}<={self.variable(axis.var)}<{self(_tidy(low + extent))}"

    def reduction(self, node: Expr) -> str:
        """``Σ_{k<5} source``; any other reducer is spelled out: ``reduce[...]_{k<5} (a, b)``."""
        head = sign_of(node.combiner) or self._combiner(node.combiner)
        source = self._sources(list(node.source))
        init = f", init {self.tuple_of(list(node.init))}" if node.init else ""
        return f"{head}_{{{self.axes(list(node.axis), node.condition)}}} {source}{init}"

    def _sources(self, sources: Sequence[Expr]) -> str:
        if len(sources) > 1:
            return self.tuple_of(sources)
        branches = op_name(sources[0]) == "if_then_else"
        return self._write([(sources[0], _LOOSE if branches else _PRODUCT, False)], sources)

    def _combiner(self, combiner: Expr) -> str:
        """``reduce[(a, b), (c, d) → (a + c, b + d); identity (0, 0)]``."""
        rule = self.rule(combiner.lhs, combiner.rhs, combiner.result)
        identity = self.tuple_of(list(combiner.identity_element))
        return f"reduce[{rule}; identity {identity}]"

    def rule(self, left: Sequence[Var], right: Sequence[Var], result: Sequence[Expr]) -> str:
        """``(a, b), (c, d) → (a + c, b + d)``: a function, with its variables renamed."""
        printer = Printer(self._tensors, Names(), self._limit)
        formal = [
            f"({', '.join(map(printer.variable, side))})"
            if len(side) > 1
            else printer.variable(side[0])
            for side in (left, right)
        ]
        return f"{', '.join(formal)} → {printer.tuple_of(list(result))}"

    def _write(self, pieces: list[_Piece], roots: Sequence[Expr]) -> str:
        shared = shared_parts(roots)
        names: dict[int, str] = {}
        written = _Output(self._limit)
        if shared:
            fresh = Names(self._variables.taken | self._tensors.taken | _names_in(roots))
            for number, node in enumerate(shared):
                written.write("; " if number else "let ")
                name = fresh.fresh(f"t{number + 1}")
                self._emit([f"{name} = ", (node, _LOOSE, False)], written, names)
                names[node_id(node)] = name
            written.write(" in ")
        self._emit(pieces, written, names)
        return written.text()

    def _emit(self, pieces: Sequence[_Piece], written: _Output, names: dict[int, str]) -> None:
        pending = list(reversed(pieces))
        while pending and not written.full:
            piece = pending.pop()
            if isinstance(piece, str):
                written.write(piece)
                continue
            node, asked, negated = piece
            name = names.get(node_id(node))
            strength, parts = (_ATOM, [name]) if name else self._form(node, negated)
            if strength < asked:
                parts = ["(", *parts, ")"]
            pending.extend(reversed(parts))

    def _form(self, node: Expr, negated: bool) -> tuple[int, list[_Piece]]:
        """The binding strength of a node's text, and its pieces; `negated` gives the text of
        ``-node``.
        """
        name, parts = op_name(node), operands(node)
        if name == "const":
            digits = literal(node)
            if negated:
                return _ATOM, [digits[1:]]
            return (_SIGN if digits.startswith("-") else _ATOM), [digits]
        if name == "mul":
            return _product(node, negated)
        if name in ("add", "sub") and _looks_negative(parts[1]):
            turned = " - " if name == "add" else " + "
            return _SUM, [(parts[0], _SUM, False), turned, (parts[1], _PRODUCT, True)]
        if name in _INFIX:
            symbol, strength, left, right = _INFIX[name]
            return strength, [(parts[0], left, False), symbol, (parts[1], right, False)]
        if name == "var":
            return _ATOM, [self.variable(node)]
        if name == "load":
            tensor = self.tensor(load_tensor(node))
            return _ATOM, [tensor, "[", *_listed(parts), "]"] if parts else [tensor]
        if name == "not":
            return _NOT, ["not ", (parts[0], _NOT, False)]
        if name == "if_then_else":
            condition, then, otherwise = parts
            pieces: list[_Piece] = ["if ", (condition, _OR, False), " then ", (then, _OR, False)]
            return _LOOSE, [*pieces, " else ", (otherwise, _LOOSE, False)]
        if name == "let":
            bound = self.variable(let_variable(node))
            value: _Piece = (parts[0], _OR, False)
            return _LOOSE, [f"let {bound} = ", value, " in ", (parts[1], _LOOSE, False)]
        if name == "reduce":
            return _LOOSE, [self.reduction(node)]
        if name in ("cast", "reinterpret"):
            head = dtype_of(node) if name == "cast" else f"reinterpret_{dtype_of(node)}"
            return _ATOM, [head, "(", *_listed(parts), ")"]
        if not parts and hasattr(node, "value"):
            return _ATOM, [json.dumps(str(node.value))]
        return _ATOM, [name, "(", *_listed(parts), ")"]


class _Output:
    """A text buffer that stops at a limit and then ends in an ellipsis."""

    def __init__(self, limit: int | None) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self._limit = limit

    @property
    def full(self) -> bool:
        return self._limit is not None and self._size > self._limit

    def write(self, piece: str) -> None:
        if not self.full:
            self._pieces.append(piece)
            self._size += len(piece)

    def text(self) -> str:
        joined = "".join(self._pieces)
        return f"{joined[: self._limit]}…" if self.full else joined


def text(expr: Expr, limit: int | None = _LIMIT) -> str:
    """An expression in plain notation, on one line.

    Parameters
    ----------
    expr : Expr
        Any scalar expression, reductions included.
    limit : int or None
        The maximum length in characters; longer texts end in an ellipsis. None means no limit.

    Returns
    -------
    str
        The text, which is the same in every process for the same expression.

    Examples
    --------
    >>> from tvm import te
    >>> A = te.placeholder((8, 8), name="A")
    >>> i, j = te.var("i"), te.var("j")
    >>> text(te.if_then_else(te.all(i >= 1, j < 5), A[i - 1, j] * 2.0, 0.0))
    'if i >= 1 and j < 5 then A[i - 1, j]*2.0 else 0.0'
    """
    return Printer(limit=limit)(expr)


def _listed(exprs: Sequence[Expr]) -> list[_Piece]:
    pieces: list[_Piece] = []
    for expr in exprs:
        pieces += [", ", (expr, _LOOSE, False)]
    return pieces[1:]


def _without_signs(node: Expr) -> tuple[bool, Expr]:
    """``x*(-1)*(-1)*(-1) → (True, x)``: whether the factors -1 leave a minus, and the remaining
    node.
    """
    negative = False
    while op_name(node) == "mul":
        left, right = operands(node)
        if is_const(right, -1):
            node = left
        elif is_const(left, -1):
            node = right
        else:
            break
        negative = not negative
    return negative, node


def _negative_factor(node: Expr) -> int | None:
    """Which operand of a product is a negative literal."""
    if op_name(node) != "mul":
        return None
    return next((n for n, part in enumerate(operands(node)) if _is_negative(part)), None)


def _is_negative(node: Expr) -> bool:
    return is_const(node) and literal(node).startswith("-")


def _looks_negative(node: Expr) -> bool:
    """Whether a minus can be taken out of a node: ``-2.0``, ``x*(-1)``, ``x*(-2)``."""
    negative, rest = _without_signs(node)
    return negative != (_is_negative(rest) or _negative_factor(rest) is not None)


def _product(node: Expr, negated: bool) -> tuple[int, list[_Piece]]:
    """``x*(-1) → -x``, ``x*(-2)*(-1) → x*2``; negated: ``x*(-1) → x``, ``x*(-2) → x*2``."""
    negative, rest = _without_signs(node)
    negative = negative != negated
    factor = _negative_factor(rest) if negative else None
    if op_name(rest) == "mul" and (factor is not None or not negative):
        left, right = operands(rest)
        return _PRODUCT, [(left, _PRODUCT, factor == 0), "*", (right, _SIGN, factor == 1)]
    if not negative or _is_negative(rest):
        return _PRODUCT, [(rest, _PRODUCT, negative)]
    return _SUM, ["-", (rest, _PRODUCT if _minus_moves_in(rest) else _SIGN, False)]


def _minus_moves_in(node: Expr) -> bool:
    """Whether ``-a*b`` may be read as ``(-a)*b``: true of products, wrong of ``-a//b``."""
    while op_name(node) in ("mul", "div"):
        node = operands(node)[0]
    return op_name(node) not in ("floordiv", "floormod")


def _tidy(extent: Expr) -> Expr:
    return (
        extent if isinstance(extent, int) or is_const(extent) else sym.Analyzer().simplify(extent)
    )


def _names_in(roots: Sequence[Expr]) -> set[str]:
    """Names that variables and tensors may get; names of shared parts avoid them."""
    found = set()
    for node in postorder(list(roots)):
        name = op_name(node)
        if name == "var":
            found.add(node.name)
        elif name == "load":
            found.add(load_tensor(node).name)
    return found
