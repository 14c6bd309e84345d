"""Sums over float16 and bfloat16 that accumulate in float32 and round once, at the end.

In: a stage that reduces or scatters. Out: the same over float32, and a stage that rounds its
result; nothing for a reduction that only chooses, as max and argmax do. A product or sum under the
reduction, and functions of those, are computed in float32 as well: what is rounded before it is
added cannot be put right afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.build import cast, if_then_else, select, variable
from ..ir.nodes import (
    Expr,
    Tensor,
    Var,
    binary,
    call_node,
    dtype_of,
    load,
    node_id,
    op_name,
    operands,
)
from ..ir.rewrite import postorder, substituter
from ..ir.scatter_kernel import SCATTER_DIMS, scatter_add_stage
from ..ir.stage import (
    Combiner,
    Operation,
    Reduction,
    axis_vars,
    data_axis,
    is_extern,
    make_stage,
    reduction_of,
    reduction_stage,
    renew_axis,
    shape_of,
)

NARROW = ("float16", "bfloat16")
WIDE = "float32"

_CHOICES = frozenset(
    ("select", "if_then_else", "likely", "min", "max", "and", "or", "not", "var", "const")
    + ("eq", "ne", "lt", "le", "gt", "ge")
)
_ARITHMETIC = frozenset(("add", "sub", "mul", "div", "min", "max"))
_FUNCTIONS = frozenset(
    ("exp", "exp2", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "power", "abs")
    + ("tanh", "sigmoid", "erf", "sin", "cos")
)
_BRANCHES = {"select": select, "if_then_else": if_then_else}


def accumulated_wide(op: Operation) -> tuple[list[Tensor], list[Tensor]] | None:
    """``C = ⊕ source → W = ⊕ float32(source), C = float16(init ⊕ W)``; None where nothing is
    narrow.

    Returns
    -------
    rounded, wide : list of Tensor
        The outputs of the stage that rounds, over the axes of `op`, and of the reduction it reads.
    """
    reduction = reduction_of(op)
    if reduction is None or not _rounds(reduction.combiner):
        return None
    axes = [renew_axis(axis) for axis in op.axis]
    rename = substituter({old.var: new.var for old, new in zip(op.axis, axes, strict=True)})
    combiner = _widened_combiner(reduction.combiner)
    sources = tuple(rename(widened(source)) for source in reduction.sources)
    condition = rename(reduction.condition)
    wide = reduction_stage(
        f"{op.name}_wide", axes, Reduction(combiner, sources, reduction.axes, condition, ())
    )
    values: Sequence[Expr] = [load(tensor, axis_vars(op)) for tensor in wide]
    if reduction.init:
        values = combiner.apply([widened(init) for init in reduction.init], values)
    body = [
        cast(dtype_of(source), value)
        for source, value in zip(reduction.sources, values, strict=True)
    ]
    return make_stage(op.name, list(op.axis), body, op.tag), wide


def scattered_wide(op: Operation) -> Tensor | None:
    """The same for a scatter-add, which adds into its result; None for other stages."""
    if not is_extern(op) or SCATTER_DIMS not in op.attrs:
        return None
    *positions, updates = list(op.inputs)
    if dtype_of(updates) not in NARROW:
        return None
    dims = [int(dim) for dim in op.attrs[SCATTER_DIMS]]
    shape = shape_of(op.output(0))
    wide = scatter_add_stage(
        f"{op.name}_wide",
        positions,
        _converted(updates, WIDE, f"{op.name}_updates"),
        shape,
        dims,
        {SCATTER_DIMS: dims},
    )
    return _converted(wide, dtype_of(updates), op.name)


def _converted(tensor: Tensor, dtype: str, name: str) -> Tensor:
    axes = [data_axis(f"i{number}", extent) for number, extent in enumerate(shape_of(tensor))]
    return make_stage(name, axes, [cast(dtype, load(tensor, [axis.var for axis in axes]))])[0]


def widened(expr: Expr, known: Mapping[int, Expr] | None = None) -> Expr:
    """``a*b + c → float32(a)*float32(b) + float32(c)`` for narrow floats, down to the reads.

    `known` holds what stands for some nodes, by id.
    """
    inside: set[int] = set()
    pending = [expr]
    while pending:
        node = pending.pop()
        if dtype_of(node) in NARROW and node_id(node) not in inside:
            name = op_name(node)
            if name in _ARITHMETIC or name in _FUNCTIONS or name in _BRANCHES:
                inside.add(node_id(node))
                pending += operands(node)
    done: dict[int, Expr] = dict(known or {})

    def wide(node: Expr) -> Expr:
        key = node_id(node)
        if key not in done:
            done[key] = cast(WIDE, node) if dtype_of(node) in NARROW else node
        return done[key]

    for node in postorder(expr):
        if node_id(node) not in inside:
            continue
        name, parts = op_name(node), operands(node)
        if name in _BRANCHES:
            condition, then, otherwise = parts
            done[node_id(node)] = _BRANCHES[name](condition, wide(then), wide(otherwise))
        elif name in _ARITHMETIC:
            done[node_id(node)] = binary(name, wide(parts[0]), wide(parts[1]))
        else:
            done[node_id(node)] = call_node(name, [wide(part) for part in parts], WIDE)
    return wide(expr)


def _rounds(combiner: Combiner) -> bool:
    """Whether combining narrow values makes new ones, and does not only choose among them."""
    return any(dtype_of(var) in NARROW for var in combiner.lhs) and any(
        dtype_of(node) in NARROW and op_name(node) not in _CHOICES
        for node in postorder(list(combiner.result))
    )


def _widened_combiner(combiner: Combiner) -> Combiner:
    fresh = {var: _wide_variable(var) for var in (*combiner.lhs, *combiner.rhs)}
    known = {node_id(old): new for old, new in fresh.items()}
    # below anything else, as a call of a C function, a formal has the dtype it had
    rounded = substituter(
        {old: cast(dtype_of(old), new) for old, new in fresh.items() if dtype_of(old) in NARROW}
    )
    return Combiner(
        tuple(fresh[var] for var in combiner.lhs),
        tuple(fresh[var] for var in combiner.rhs),
        tuple(rounded(widened(result, known)) for result in combiner.result),
        tuple(widened(identity) for identity in combiner.identity),
    )


def _wide_variable(var: Var) -> Var:
    return variable(var.name, WIDE) if dtype_of(var) in NARROW else var
