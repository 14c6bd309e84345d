"""Makes sums over float16 and bfloat16 accumulate in float32 and round once, at the end.

A stage that reduces or scatters becomes the same stage over float32, and a stage that rounds its
result. A reduction that only selects, as max and argmax do, is unchanged unless TVM rejects its
dtype. Products, sums and functions of these under the reduction are computed in float32 as well,
because rounding before the sum cannot be undone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....expr.build import cast, if_then_else, select, variable
from ....expr.nodes import (
    COMPARISONS,
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
    with_operands,
)
from ....expr.rewrite import postorder, substituter
from ....graph.kinds.kind import kind_of
from ....graph.kinds.scatter_add import ScatterAdd, scatter_add_stage
from ....graph.stage import (
    Combiner,
    Operation,
    axis_vars,
    data_axis,
    make_stage,
    reduction_of,
    reduction_stage,
    renew_axis,
    renewed_reduction,
    shape_of,
)

NARROW = ("float16", "bfloat16")
WIDE = "float32"

_CONDITIONS = frozenset((*COMPARISONS, "and", "or", "not"))
_CHOICES = _CONDITIONS | {"select", "if_then_else", "likely", "min", "max", "var", "const"}
_ARITHMETIC = frozenset(("add", "sub", "mul", "div", "min", "max"))
_FUNCTIONS = frozenset(
    ("exp", "exp2", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "power", "abs")
    + ("tanh", "sigmoid", "erf", "sin", "cos")
)
_BRANCHES = {"select": select, "if_then_else": if_then_else}
_COMPUTED = _ARITHMETIC | _FUNCTIONS | frozenset((*_BRANCHES, "cast"))


def accumulated_wide(op: Operation) -> tuple[list[Tensor], list[Tensor]] | None:
    """``C = ⊕ source → W = ⊕ float32(source), C = float16(init ⊕ W)``; None where nothing is
    narrow.

    Returns
    -------
    rounded, wide : list of Tensor
        The outputs over the axes of `op`, each a separate stage, because an unread one must not be
        computed; and those of the reduction that they round.
    """
    reduction = reduction_of(op)
    if reduction is None:
        return None
    rounds = _rounds(reduction.combiner)
    if not rounds and not _is_bound(reduction.combiner):
        return None
    axes = [renew_axis(axis) for axis in op.axis]
    moved = renewed_reduction(
        reduction, {old.var: new.var for old, new in zip(op.axis, axes, strict=True)}
    )
    combiner = _widened_combiner(reduction.combiner)
    # what is only chosen among keeps its value: float32(if c then x) → if c then float32(x)
    into = _COMPUTED if rounds else frozenset(_BRANCHES)
    sources = tuple(widened(source, into=into) for source in moved.sources)
    wide = reduction_stage(
        f"{op.name}_wide", axes, replace(moved, combiner=combiner, sources=sources, init=())
    )
    values: Sequence[Expr] = [load(tensor, axis_vars(op)) for tensor in wide]
    if reduction.init:
        typed = zip(reduction.init, reduction.sources, strict=True)
        start = [widened(cast(dtype_of(source), value)) for value, source in typed]
        values = combiner.apply(start, values)
    rounded = [
        make_stage(op.name, list(op.axis), [cast(dtype_of(source), value)], op.tag)[0]
        for source, value in zip(reduction.sources, values, strict=True)
    ]
    return rounded, wide


def scattered_wide(op: Operation) -> Tensor | None:
    """The same for a scatter-add, which adds into its result; None for other stages."""
    found = kind_of(op)
    if not isinstance(found, ScatterAdd) or dtype_of(found.updates) not in NARROW:
        return None
    wide = scatter_add_stage(
        f"{op.name}_wide",
        found.positions,
        _converted(found.updates, WIDE, f"{op.name}_updates"),
        shape_of(found.result),
        found.layout,
    )
    return _converted(wide, dtype_of(found.updates), op.name)


def _converted(tensor: Tensor, dtype: str, name: str) -> Tensor:
    axes = [data_axis(f"i{number}", extent) for number, extent in enumerate(shape_of(tensor))]
    return make_stage(name, axes, [cast(dtype, load(tensor, [axis.var for axis in axes]))])[0]


def widened(
    expr: Expr, known: Mapping[int, Expr] | None = None, into: frozenset[str] = _COMPUTED
) -> Expr:
    """``a*b + c → float32(a)*float32(b) + float32(c)`` for narrow floats, down to the reads, and
    ``float16(w) → w`` for a float32 w, as in gradients of what reads narrow tensors as float32.

    `known` holds replacements of nodes, by id; if given, conditions compare wide values as well.
    `into` names operators whose operands are widened instead of their value.
    """
    inside: set[int] = set()
    pending = [expr]
    while pending:
        node = pending.pop()
        name = op_name(node)
        if dtype_of(node) in NARROW:
            enters = name in into and (name != "cast" or dtype_of(operands(node)[0]) == WIDE)
        else:
            enters = known is not None and (name in _CONDITIONS or name in _BRANCHES)
        if enters and node_id(node) not in inside:
            inside.add(node_id(node))
            pending += operands(node) if name != "cast" else ()
    done: dict[int, Expr] = dict(known or {})

    def wide(node: Expr) -> Expr:
        key = node_id(node)
        if key not in done:
            done[key] = _as_wide(node)
        return done[key]

    for node in postorder(expr):
        if node_id(node) not in inside:
            continue
        name, parts = op_name(node), operands(node)
        if name == "cast":
            done[node_id(node)] = parts[0]
        elif name in _CONDITIONS:
            done[node_id(node)] = with_operands(node, [wide(part) for part in parts])
        elif name in _BRANCHES:
            condition, then, otherwise = parts
            done[node_id(node)] = _BRANCHES[name](wide(condition), wide(then), wide(otherwise))
        elif name in _ARITHMETIC:
            done[node_id(node)] = binary(name, wide(parts[0]), wide(parts[1]))
        else:
            done[node_id(node)] = call_node(name, [wide(part) for part in parts], WIDE)
    return wide(expr)


def _rounds(combiner: Combiner) -> bool:
    """Whether combining narrow values computes new ones instead of selecting one."""
    return any(dtype_of(var) in NARROW for var in combiner.lhs) and any(
        dtype_of(node) in NARROW and op_name(node) not in _CHOICES
        for node in postorder(list(combiner.result))
    )


def _is_bound(combiner: Combiner) -> bool:
    """Whether TVM binds a bfloat16 to a variable, as for several components, and then rejects it.

    In float32 the same elements are selected.
    """
    return len(combiner.lhs) > 1 and any(dtype_of(var) == "bfloat16" for var in combiner.lhs)


def _as_wide(expr: Expr) -> Expr:
    return cast(WIDE, expr) if dtype_of(expr) in NARROW else expr


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
