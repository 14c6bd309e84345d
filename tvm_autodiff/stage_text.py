"""Prints graphs of tensors as text.

The text has one line for the inputs and one for each stage, producers first: the axes, the
reduction with its bounds and condition, the body in plain notation, dtype and shape. Names are
distinct, and the text is the same in every process. `expr.printing.text` prints the expressions.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from .errors import InvalidArgumentError
from .expr.nodes import Tensor, dtype_of, is_tensor, node_id
from .expr.printing.latex import LatexPrinter, NoLatex
from .expr.printing.names import Names
from .expr.printing.text import Printer
from .graph.free_variables import free_variables
from .graph.graph import topological
from .graph.kinds.rules.table import rules_of
from .graph.stage import Operation, axis_vars, bodies, is_compute, is_placeholder, outputs_of
from .keywords import checked_keywords

_WIDTH = 100
#: stages longer than this do not move the column of types to the right
_COLUMN = 72


class Shown(str):
    """The text of a graph, which a notebook displays as formulas.

    Attributes
    ----------
    formulas : list of str
        One line of LaTeX for each stage, producers first.

    Examples
    --------
    >>> from tvm import te
    >>> A = te.placeholder((4, 6), name="A")
    >>> k = te.reduce_axis((0, 6), "k")
    >>> show(te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="C")).formulas
    ['C_{i} &= \\\\sum_{0 \\\\le k < 6} A_{i,\\\\,k}']
    """

    formulas: Sequence[str] = ()

    def _repr_latex_(self) -> str | None:
        if not self.formulas:
            return None
        rows = " \\\\\n".join(self.formulas)
        return f"$$\\begin{{aligned}}\n{rows}\n\\end{{aligned}}$$"


@checked_keywords
def show(tensors: Tensor | Sequence[Tensor], limit: int | None = 2000) -> Shown:
    """Print the stages that tensors need, in plain notation.

    Parameters
    ----------
    tensors : Tensor or sequence of Tensor
        The tensors to show: results of `te.compute` or `differentiate`, or inputs.
    limit : int or None
        The maximum length of a stage's text, in characters. Longer texts end in an ellipsis. None
        means no limit.

    Returns
    -------
    Shown
        A string. A notebook displays it as LaTeX, and stages without a LaTeX form as text.
        The inputs first, then one line for each stage, producers before the stages that read them:
        ``name[axes] = body``, followed by dtype and shape. ``Σ_{k<9}`` is a sum over ``0 <= k <
        9``, ``Σ_{k<9 | k > 1}`` one with a condition; ``Π``, ``max`` and ``min`` are written in the
        same way. Any other reducer is spelled out, with its identity: ``reduce[(a, b), (c, d) → (e,
        f); identity (x, y)]``. A stage with several outputs is ``(first, second)[axes] = ...``. For
        a `te.extern` or a `te.scan` only the inputs are shown. Prefix scans made by this library
        are shown as ``P[i, k] = scan_{k}[s, x → s + x*2.0; start 0.0] A[i, k]``: the state s before
        element k of a row. ``scan_{k from last}`` starts with the last element. Scatter-adds are
        shown as ``y[p[n], i] += u[n, i] for n<5, i<3``; y starts with zeros, and positions outside
        of it are skipped. Equal names get numbers: ``C``, ``C_1``.

    Raises
    ------
    InvalidArgumentError
        If an argument is not a tensor.

    Examples
    --------
    >>> from tvm import te
    >>> A, B = te.placeholder((4, 6), name="A"), te.placeholder((6, 5), name="B")
    >>> k = te.reduce_axis((0, 6), "k")
    >>> C = te.compute((4, 5), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    >>> print(show(C))
    inputs  A: float32[4, 6], B: float32[6, 5]
    C[i, j] = Σ_{k<6} A[i, k]*B[k, j]  float32[4, 5]
    """
    several = isinstance(tensors, Iterable) and not is_tensor(tensors)
    given = list(tensors) if several else [tensors]
    for tensor in given:
        if not is_tensor(tensor):
            raise InvalidArgumentError(
                f"show() takes te tensors, not {type(tensor).__name__}: pass what te.compute, "
                "te.placeholder or differentiate returned"
            )
    ops = topological(given)
    names = Names()
    for op in sorted(ops, key=lambda op: not is_placeholder(op)):
        for tensor in outputs_of(op):
            Printer(names).tensor(tensor)
    free = Names(names.taken)
    for op in ops:
        for var in free_variables(op):
            free.name(node_id(var), var.name, var)
    inputs = [op.output(0) for op in ops if is_placeholder(op)]
    stages = [op for op in ops if not is_placeholder(op)]
    lines = _inputs(inputs, Printer(names, free, limit))
    told = [_stage(op, names, free, limit) for op in stages]
    shown = Shown("\n".join(lines + _aligned(told)))
    shown.formulas = [
        _formula(op, names, free, limit) or _verbatim(f"{left}  {right}")
        for op, (left, right) in zip(stages, told, strict=True)
    ]
    return shown


def _inputs(inputs: Sequence[Tensor], printer: Printer) -> list[str]:
    """``inputs A: float32[4, 6], B: float32[6, 5]``, in as many lines as necessary."""
    if not inputs:
        return []
    listed = [f"{printer.tensor(tensor)}: {_type([tensor], printer)}" for tensor in inputs]
    solid = ", ".join(entry.replace(" ", "\0") for entry in listed)
    lines = textwrap.wrap(
        solid,
        _WIDTH,
        initial_indent="inputs  ",
        subsequent_indent=" " * 8,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in lines]


def _stage(op: Operation, names: Names, free: Names, limit: int | None) -> tuple[str, str]:
    """``("C[i, j] = Σ_{k<6} A[i, k]*B[k, j]", "float32[4, 5]")``."""
    printer = Printer(names, free.inner(), limit)
    kind, rules = rules_of(op)
    return rules.text(op, kind, printer), _type(outputs_of(op), printer)


def _formula(op: Operation, names: Names, free: Names, limit: int | None) -> str | None:
    """``C_{i} &= \\sum_{...} ...``; None for what has no such form."""
    outputs = outputs_of(op)
    if not is_compute(op) or len(outputs) != 1:
        return None
    printer = LatexPrinter(names, free.inner(), limit)
    name = printer.tensor(outputs[0])
    axes = r",\,".join(printer.variable(var) for var in axis_vars(op))
    try:
        body = printer(bodies(op)[0])
    except NoLatex:
        return None
    base = f"{{{name}}}" if "_{" in name else name
    return f"{base}_{{{axes}}} &= {body}" if axes else f"{base} &= {body}"


def _verbatim(text: str) -> str:
    """Text as it is printed, in a typewriter font: MathJax takes these escapes in formulas only."""
    spelled = {"\\": r"\backslash ", "^": r"\hat{\ }", "~": r"\sim ", " ": r"\ "}
    spelled |= {sign: "\\" + sign for sign in "{}$%&#_"}
    lines = ["".join(spelled.get(sign, sign) for sign in line) for line in text.splitlines()]
    return " \\\\\n".join(rf"&\mathtt{{{line}}}" for line in lines)


def _type(outputs: Sequence[Tensor], printer: Printer) -> str:
    """``float32[4, 5]``, ``float32`` for rank 0, ``(int32, float32)[4]`` for several outputs."""
    dtypes = ", ".join(dtype_of(tensor) for tensor in outputs)
    shapes = [", ".join(printer(dim) for dim in tensor.shape) for tensor in outputs]
    head = dtypes if len(outputs) == 1 else f"({dtypes})"
    if len(set(shapes)) > 1:
        return ", ".join(
            f"{dtype_of(t)}[{shape}]" if shape else dtype_of(t)
            for t, shape in zip(outputs, shapes, strict=True)
        )
    return f"{head}[{shapes[0]}]" if shapes[0] else head


def _aligned(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Bodies on the left, and types in one column on the right as far as possible.

    The stages that a loop repeats follow its line.
    """
    parts = [(*left.partition("\n"), right) for left, right in lines]
    width = max((len(left) for left, *_ in parts if len(left) <= _COLUMN), default=0)
    return [f"{left.ljust(width)}  {right}{end}{rest}" for left, end, rest, right in parts]
