"""Graphs of tensors as text that a person can read.

In: tensors. Out: one line for the inputs and one a stage, producers first: the axes, the
reduction with its bounds and condition, the body in plain notation, dtype and shape. Names are
distinct, and the text is the same in every process. `expr.printing.text` prints expressions.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from .errors import InvalidArgumentError
from .expr.build import variable
from .expr.nodes import Expr, Tensor, Var, dtype_of, is_tensor, let_variable, node_id, op_name
from .expr.printing.names import Names
from .expr.printing.text import Printer
from .expr.rewrite import postorder
from .graph.graph import tensors_read_by, topological
from .graph.kinds.prefix_scan import Scan, scan_of
from .graph.stage import (
    Operation,
    axis_vars,
    bodies,
    bounds_of,
    is_compute,
    is_placeholder,
    is_scan,
    outputs_of,
    reduction_of,
)

_WIDTH = 100
#: stages longer than this do not push the column of types to the right
_COLUMN = 72


def show(tensors: Tensor | Sequence[Tensor], limit: int | None = 2000) -> str:
    """The stages that tensors need, in plain notation.

    Parameters
    ----------
    tensors : Tensor or sequence of Tensor
        What to show: results of `te.compute`, of `differentiate`, or inputs.
    limit : int or None
        Where the text of one stage is cut off with an ellipsis, in characters; None: never.

    Returns
    -------
    str
        The inputs first, then one line a stage, producers before the stages that read them:
        ``name[axes] = body``, and behind it dtype and shape. ``Σ_{k<9}`` is a sum over
        ``0 <= k < 9``, ``Σ_{k<9 | k > 1}`` one with a condition; ``Π``, ``max`` and ``min``
        likewise. Any other reducer is written out, with its identity:
        ``reduce[(a, b), (c, d) → (e, f); identity (x, y)]``. A stage with several outputs is
        ``(first, second)[axes] = ...``. What a `te.extern` or a `te.scan` computes is not shown,
        only what it reads; scans made by this library are,
        ``P[i, k] = scan_{k}[s, x → s + x*2.0; start 0.0] A[i, k]``: the state s before element k of
        a row is taken, for ``scan_{k from last}`` with the last element first. Equal names get
        numbers: ``C``, ``C_1``.

    Raises
    ------
    InvalidArgumentError
        Something else than tensors was given.

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
        for var in _free_variables(op):
            free.name(node_id(var), var.name, var)
    inputs = [op.output(0) for op in ops if is_placeholder(op)]
    stages = [op for op in ops if not is_placeholder(op)]
    lines = _inputs(inputs, Printer(names, free, limit))
    return "\n".join(lines + _aligned([_stage(op, names, free, limit) for op in stages]))


def _inputs(inputs: Sequence[Tensor], printer: Printer) -> list[str]:
    """``inputs  A: float32[4, 6], B: float32[6, 5]``, in as many lines as it takes."""
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
    outputs = outputs_of(op)
    listed = ", ".join(printer.tensor(tensor) for tensor in outputs)
    left = listed if len(outputs) == 1 else f"({listed})"
    scan = scan_of(op)
    if scan is not None:
        return f"{left}{_scan(scan, printer)}", _type(outputs, printer)
    if not is_compute(op):
        kind = "scan" if is_scan(op) else "extern"
        reads = ", ".join(printer.tensor(tensor) for tensor in tensors_read_by(op))
        return f"{left} = {kind}({reads})", _type(outputs, printer)
    axes = ", ".join(printer.variable(var) for var in axis_vars(op))
    # the components of a tuple reduction are one reduction, told apart by their place only
    right = printer.tuple_of(bodies(op) if reduction_of(op) is None else bodies(op)[:1])
    return f"{left}[{axes}] = {right}" if axes else f"{left} = {right}", _type(outputs, printer)


def _scan(scan: Scan, printer: Printer) -> str:
    """``[i, k] = scan_{k}[s, x → s + x; start 0.0] A[i, k]``."""
    axes = [printer.variable(variable(f"i{n}")) for n in range(len(scan.rows))]
    axes += [printer.variable(variable(f"k{n}")) for n in range(len(scan.scanned))]
    order = ", ".join(axes[len(scan.rows) :]) + (" from last" if scan.backward else "")
    recurrence = scan.recurrence
    rule = printer.rule(recurrence.state, recurrence.element, recurrence.step)
    start = printer.tuple_of(recurrence.start)
    reads = [
        f"{printer.tensor(tensor)}[{', '.join(axes[len(axes) - len(tensor.shape) :])}]"
        for tensor in scan.elements
    ]
    source = reads[0] if len(reads) == 1 else f"({', '.join(reads)})"
    return f"[{', '.join(axes)}] = scan_{{{order}}}[{rule}; start {start}] {source}"


def _type(outputs: Sequence[Tensor], printer: Printer) -> str:
    """``float32[4, 5]``, ``float32`` for rank 0, ``(int32, float32)[4]`` for several outputs."""
    dtypes = ", ".join(dtype_of(tensor) for tensor in outputs)
    shapes = [", ".join(printer(dim) for dim in tensor.shape) for tensor in outputs]
    head = dtypes if len(outputs) == 1 else f"({dtypes})"
    if len(set(shapes)) > 1:
        return ", ".join(
            f"{dtype_of(t)}[{shape}]" for t, shape in zip(outputs, shapes, strict=True)
        )
    return f"{head}[{shapes[0]}]" if shapes[0] else head


def _free_variables(op: Operation) -> list[Var]:
    """The variables of a stage that no axis and no let binds: symbolic extents and scalars."""
    roots: list[Expr] = [dim for tensor in outputs_of(op) for dim in tensor.shape]
    bound: set[int] = set()
    if is_compute(op):
        reduction = reduction_of(op)
        axes = [] if reduction is None else list(reduction.axes)
        bound = {node_id(var) for var in (*axis_vars(op), *(axis.var for axis in axes))}
        for axis in axes:
            roots += bounds_of(axis)
        roots += bodies(op)
    nodes = postorder(roots)
    bound |= {node_id(let_variable(node)) for node in nodes if op_name(node) == "let"}
    return [node for node in nodes if op_name(node) == "var" and node_id(node) not in bound]


def _aligned(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Bodies to the left, types in one column to the right as far as that is possible."""
    width = max((len(left) for left, _ in lines if len(left) <= _COLUMN), default=0)
    return [f"{left.ljust(width)}  {right}" for left, right in lines]
