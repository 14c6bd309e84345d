"""Prints expressions as LaTeX: ``\\sum_{0 \\le k < 9} A_{i,\\,k}\\,B_{k,\\,j}``.

The walk is that of `text`, with its precedences; only the forms of the nodes differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..nodes import Axis, Expr, Tensor, Var, always, is_const, load_tensor, op_name, operands
from .reducer_signs import sign_of
from .text import (
    _ATOM,
    _COMPARE,
    _INFIX,
    _LOOSE,
    _PRODUCT,
    Printer,
    _listed as listed,
    _Output,
    _Piece,
    _tidy,
)

_SIGNS = {"Σ": r"\sum", "Π": r"\prod", "max": r"\max", "min": r"\min"}
_SYMBOLS = {
    "or": r" \lor ",
    "and": r" \land ",
    "eq": " = ",
    "ne": r" \ne ",
    "le": r" \le ",
    "ge": r" \ge ",
    "mul": r"\,",
    "floormod": r" \bmod ",
}
_FUNCTIONS = {
    name: rf"\{name}" for name in ("exp", "log", "sin", "cos", "tan", "tanh", "sinh", "max", "min")
}


class NoLatex(Exception):
    """The expression holds something that has no LaTeX form here."""


def latex_name(name: str) -> str:
    """A name in mathematics: one letter stays, longer names are upright text."""
    if re.fullmatch(r"[A-Za-z]", name):
        return name
    numbered = re.fullmatch(r"([A-Za-z])_?(\d+)", name)
    if numbered:
        return f"{numbered[1]}_{{{numbered[2]}}}"
    escaped = name.replace("_", r"\_")
    return rf"\mathrm{{{escaped}}}"


class LatexPrinter(Printer):
    """Prints expressions as LaTeX, with the names of a `Printer`."""

    def tensor(self, tensor: Tensor) -> str:
        """The name of a tensor."""
        return latex_name(super().tensor(tensor))

    def variable(self, var: Var) -> str:
        """The name of a variable."""
        return latex_name(super().variable(var))

    def axes(self, axes: Sequence[Axis], condition: Expr) -> str:
        """The subscript of a sum: bounds, and the condition below them."""
        lines = [self._bounds(axis) for axis in axes]
        lines += [] if always(condition) else [self(condition)]
        stacked = r" \\ ".join(lines)
        return stacked if len(lines) == 1 else rf"\substack{{{stacked}}}"

    def _bounds(self, axis: Axis) -> str:
        low, extent = axis.dom.min, axis.dom.extent
        end = extent if is_const(low, 0) else low + extent
        return rf"{self(_tidy(low))} \le {self.variable(axis.var)} < {self(_tidy(end))}"

    def reduction(self, node: Expr) -> str:
        """A sum, product, maximum or minimum."""
        sign = _SIGNS.get(sign_of(node.combiner) or "")
        if sign is None or node.init or len(node.source) != 1:
            raise NoLatex(op_name(node))
        return (
            rf"{sign}_{{{self.axes(list(node.axis), node.condition)}}} {self._sources(node.source)}"
        )

    def _write(self, pieces: list[_Piece], roots: Sequence[Expr]) -> str:
        written = _Output(self._limit)
        self._emit(pieces, written, {})
        if written.full:
            raise NoLatex("the expression is too long")
        return written.text()

    def _form(self, node: Expr, negated: bool) -> tuple[int, list[_Piece]]:
        name, parts = op_name(node), operands(node)
        if name == "load" and parts:
            tensor = self.tensor(load_tensor(node))
            # a name that has a subscript of its own is grouped before it gets another one
            base = f"{{{tensor}}}" if "_{" in tensor else tensor
            return _ATOM, [base, "_{", *_spaced(parts), "}"]
        if name == "div":
            return _PRODUCT, [r"\frac{", (parts[0], _LOOSE, negated), "}{", _bare(parts[1]), "}"]
        if name == "floordiv" and not negated:
            top, bottom = map(_bare, parts)
            return _ATOM, [r"\left\lfloor \frac{", top, "}{", bottom, r"} \right\rfloor"]
        if name == "power" and not negated:
            return _PRODUCT, [(parts[0], _ATOM, False), "^{", _bare(parts[1]), "}"]
        if name == "sqrt" and not negated:
            return _ATOM, [r"\sqrt{", _bare(parts[0]), "}"]
        if name == "if_then_else":
            condition, then, otherwise = map(_bare, parts)
            rows = [then, r" & \text{if } ", condition, r" \\ ", otherwise, r" & \text{otherwise}"]
            return _ATOM, [r"\begin{cases} ", *rows, r" \end{cases}"]
        if name == "not":
            return _COMPARE, [r"\lnot ", (parts[0], _ATOM, False)]
        if name in ("let", "reinterpret"):
            raise NoLatex(name)
        strength, pieces = super()._form(node, negated)
        if name == "const":
            digits = "".join(map(str, pieces))
            if not re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", digits):
                raise NoLatex(digits)
            return strength, [re.sub(r"e\+?(-?\d+)", r" \\cdot 10^{\1}", digits)]
        if name in _INFIX or name == "mul":
            symbol, plain = _SYMBOLS.get(name), _INFIX[name][0]
            if name == "mul" and any(is_const(part) for part in parts):
                symbol = r" \cdot "  # digits beside each other would read as one number
            return strength, [symbol if symbol and piece == plain else piece for piece in pieces]
        if name in ("var", "load", "reduce"):
            return strength, pieces
        function = _FUNCTIONS.get(name, rf"\operatorname{{{name.split('.')[-1]}}}")
        function = function.replace("_", r"\_")
        return _ATOM, [function, r"\left(", *listed(parts), r"\right)"]


def _bare(node: Expr) -> _Piece:
    return (node, _LOOSE, False)


def _spaced(parts: Sequence[Expr]) -> list[_Piece]:
    return [r",\," if piece == ", " else piece for piece in listed(parts)]
