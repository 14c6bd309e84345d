"""Pushforward rules, one for each kind of stage: stages for the tangents of its outputs.

A sum stays a sum. The combiner of any other reduction works on pairs of value and tangent, which is
exact at ties and at zeros of products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import NotDifferentiableError
from ..expr.build import compare, const, select, variable
from ..expr.nodes import (
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_float,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ..expr.rewrite import expand_lets, substituter, variables_of
from ..expr.sharing.lets import bind_shared, merge_equal
from ..graph.bounded_stage import bounded_stage
from ..graph.graph import tensors_read_by
from ..graph.kinds.kind import Compute, Input, Kind, Opaque, kind_of
from ..graph.kinds.prefix_scan import Recurrence, Scan, scan_stage
from ..graph.kinds.rewind import KeptLoop, Rewind
from ..graph.kinds.scatter_add import ScatterAdd, scatter_add_stage
from ..graph.kinds.update_loops import UpdateLoops, update_stage
from ..graph.plain_reduction import split_init
from ..graph.stage import (
    Combiner,
    Operation,
    Reduction,
    axis_vars,
    bodies,
    is_extern,
    outputs_of,
    reduction_of,
    renew_axis,
    shape_of,
    sum_combiner,
)
from .reductions.reducers import classify
from .reductions.reducing import copy_of_stage
from .tangents import or_zero, push_forward

TangentOf = Callable[[Tensor], Tensor | None]  #: None is zero
Tangents = dict[int, Tensor]  #: by number of the output; what is missing is zero


def pushforward(op: Operation, tangent_of: TangentOf) -> Tangents:
    """The tangents of a stage's outputs, each with the shape and dtype of its output.

    Parameters
    ----------
    op : Operation
        A stage of any kind.
    tangent_of : callable
        Returns the tangent of a tensor that the stage reads, or None if it is zero.

    Raises
    ------
    NotDifferentiableError
        If the stage is opaque, or uses an intrinsic without a rule.
    """
    kind = kind_of(op)
    return _RULES[type(kind)](op, kind, tangent_of)


def _of_reads(tangent_of: TangentOf) -> Callable[[Expr], Expr | None]:
    """``x[g] → dx[g]`` for reads of tensors that have a tangent."""

    def visit(node: Expr) -> Expr | None:
        if not is_load(node) or not is_float(node):
            return None
        tangent = tangent_of(load_tensor(node))
        return None if tangent is None else load(tangent, operands(node))

    return visit


def _name(op: Operation) -> str:
    return f"{op.name}_dot"


def _constant(op: Operation, kind: Kind, tangent_of: TangentOf) -> Tangents:
    return {}


def _opaque(op: Operation, kind: Opaque, tangent_of: TangentOf) -> Tangents:
    what = "te.extern" if is_extern(op) else "te.scan"
    names = ", ".join(tensor.op.name for tensor in tensors_read_by(op))
    raise NotDifferentiableError(
        f"stage {op.name} is an opaque {what} stage that reads {names}: it has no expression to "
        f"differentiate. Pass override={{{op.name}: ([{names}], f)}} with "
        "f(out, deps, tangents) -> tangent of out, or attach a rule to the stage with with_rule"
    )


def _scatter_add(op: Operation, found: ScatterAdd, tangent_of: TangentOf) -> Tangents:
    """``out[p] += u → dout[p] += du``: linear in the updates."""
    tangent = tangent_of(found.updates)
    if tangent is None:
        return {}
    shape = shape_of(found.result)
    return {0: scatter_add_stage(_name(op), found.positions, tangent, shape, found.layout)}


def _update_loops(op: Operation, loops: UpdateLoops, tangent_of: TangentOf) -> Tangents:
    """``out[place] += value → dout[place] += dvalue``, over the same loops."""
    [value] = merge_equal([expand_lets(loops.value)])
    [tangent] = push_forward([(value, None)], _of_reads(tangent_of), f"stage {op.name}")
    if tangent is None:
        return {}
    moved = UpdateLoops(loops.axes, loops.conditions, loops.place, bind_shared(tangent))
    return {0: update_stage(_name(op), moved, shape_of(op.output(0)))}


def _prefix_scan(op: Operation, scan: Scan, tangent_of: TangentOf) -> Tangents:
    """``s ← step(s, x) → ds ← ∂step/∂s · ds + ∂step/∂x · dx``, with s read from the outputs."""
    recurrence = scan.recurrence
    moving = {node_id(var): variable(f"{var.name}_dot", dtype_of(var)) for var in recurrence.state}
    given: dict[int, tuple[Var, Tensor]] = {}
    for var, tensor in zip(recurrence.element, scan.elements, strict=True):
        tangent = tangent_of(tensor) if is_float(var) else None
        if tangent is not None:
            given[node_id(var)] = (variable(f"{var.name}_dot", dtype_of(var)), tangent)
    if not given:
        return {}

    def tangent_at(node: Expr) -> Expr | None:
        key = node_id(node)
        if key in given:
            return given[key][0]
        return moving.get(key) if is_float(node) else None

    floats = [n for n, var in enumerate(recurrence.state) if is_float(var)]
    steps = merge_equal([expand_lets(recurrence.step[n]) for n in floats])
    pushed = push_forward([(step, None) for step in steps], tangent_at, f"stage {op.name}")
    news = [
        const(0, dtype_of(step)) if tangent is None else tangent
        for step, tangent in zip(steps, pushed, strict=True)
    ]
    sources = {
        **dict(zip(map(node_id, recurrence.state), outputs_of(op), strict=True)),
        **dict(zip(map(node_id, recurrence.element), scan.elements, strict=True)),
        **{node_id(var): tangent for var, tangent in given.values()},
    }
    read = [var for var in variables_of(news) if node_id(var) in sources]
    states = tuple(moving[node_id(recurrence.state[n])] for n in floats)
    zero = tuple(const(0, dtype_of(var)) for var in states)
    dual = Recurrence(states, tuple(read), tuple(news), zero)
    elements = tuple(sources[node_id(var)] for var in read)
    found = scan_stage(_name(op), Scan(dual, elements, scan.rows, scan.scanned, scan.backward))
    return dict(zip(floats, found, strict=True))


def _compute(op: Operation, kind: Compute, tangent_of: TangentOf) -> Tangents:
    reduction = reduction_of(op)
    if reduction is None:
        return _elementwise(op, tangent_of)
    if reduction.init:
        combination, plain = split_init(op)
        inner = pushforward(plain[0].op, tangent_of)
        known = {tensor_key(plain[n]): tangent for n, tangent in inner.items()}

        def found(tensor: Tensor) -> Tensor | None:
            key = tensor_key(tensor)
            return known[key] if key in known else tangent_of(tensor)

        return pushforward(combination[0].op, found)
    return _reduction(op, reduction, tangent_of)


def _elementwise(op: Operation, tangent_of: TangentOf) -> Tangents:
    """``y[a] = f(x[g]) → dy[a] = Σ ∂f/∂x · dx[g]``, which may read y."""
    roots = merge_equal([expand_lets(body) for body in bodies(op)])
    aliases = [load(op.output(number), axis_vars(op)) for number in range(len(roots))]
    pushed = push_forward(
        list(zip(roots, aliases, strict=True)), _of_reads(tangent_of), f"stage {op.name}"
    )
    moving = {number: tangent for number, tangent in enumerate(pushed) if tangent is not None}
    if not moving:
        return {}
    axes = [renew_axis(axis) for axis in op.axis]
    rename = substituter({old.var: new.var for old, new in zip(op.axis, axes, strict=True)})
    stages = bounded_stage(_name(op), axes, [bind_shared(rename(t)) for t in moving.values()])
    return dict(zip(moving, stages, strict=True))


def _reduction(op: Operation, reduction: Reduction, tangent_of: TangentOf) -> Tangents:
    sources = merge_equal([expand_lets(source) for source in reduction.sources])
    pushed = push_forward(
        [(source, None) for source in sources], _of_reads(tangent_of), f"stage {op.name}"
    )
    moving = {number: tangent for number, tangent in enumerate(pushed) if tangent is not None}
    if not moving:
        return {}
    result: Tangents = {}
    left: list[int] = []
    for number, source in enumerate(sources):
        if classify(reduction.combiner, number) != "sum":
            left += [number] if is_float(source) else []
        elif number in moving:
            plain = sum_combiner(dtype_of(source))
            tangent = bind_shared(moving[number])
            [result[number]] = copy_of_stage(op, reduction, plain, [tangent], "dot")
    if left:
        result |= _dual_reduction(op, reduction, sources, moving, left)
    return result


def _dual_reduction(
    op: Operation,
    reduction: Reduction,
    sources: Sequence[Expr],
    moving: Mapping[int, Expr],
    wanted: Sequence[int],
) -> Tangents:
    """``⊕_k F → (⊕, d⊕)_k (F, dF)``: a reduction of values and tangents at once."""
    dual = _dual_combiner(op, reduction.combiner, moving, wanted)
    if not dual.tangents:
        return {}
    parts = [
        *(sources[number] for number in dual.values),
        *(bind_shared(or_zero(moving.get(number), sources[number])) for number in dual.tangents),
    ]
    found = copy_of_stage(op, reduction, dual.combiner, parts, "dot")
    return dict(zip(dual.tangents, found[len(dual.values) :], strict=True))


@dataclass(frozen=True)
class _Dual:
    """A combiner on values and tangents, and the original component of each."""

    combiner: Combiner
    values: tuple[int, ...]
    tangents: tuple[int, ...]


def _dual_combiner(
    op: Operation, combiner: Combiner, moving: Mapping[int, Expr], wanted: Sequence[int]
) -> _Dual:
    """The combiner of pairs, restricted to what the tangents of `wanted` depend on."""
    results = merge_equal([expand_lets(_as_choice(combiner, n)) for n in range(len(combiner.lhs))])
    dots = [
        [variable(f"{var.name}_dot", dtype_of(var)) for var in side]
        for side in (combiner.lhs, combiner.rhs)
    ]
    tangents = _tangents_of_results(op, combiner, results, dots, moving)
    #: variable → (whether it is a tangent, component)
    component = {
        node_id(var): (which is dots, number)
        for which in ((combiner.lhs, combiner.rhs), dots)
        for side in which
        for number, var in enumerate(side)
    }
    needed = [(True, number) for number in wanted if tangents.get(number) is not None]
    pending = list(needed)
    while pending:
        is_dot, number = pending.pop()
        expr = tangents.get(number) if is_dot else results[number]
        for var in [] if expr is None else variables_of(expr):
            found = component.get(node_id(var))
            if found is not None and found not in needed:
                needed.append(found)
                pending.append(found)
    values = sorted(number for is_dot, number in needed if not is_dot)
    moved = sorted(number for is_dot, number in needed if is_dot)
    sides = [
        (*(side[n] for n in values), *(own[n] for n in moved))
        for side, own in zip((combiner.lhs, combiner.rhs), dots, strict=True)
    ]
    combined = [
        *(results[number] for number in values),
        *(or_zero(tangents[number], results[number]) for number in moved),
    ]
    identity = (
        *(combiner.identity[number] for number in values),
        *(const(0, dtype_of(combiner.lhs[number])) for number in moved),
    )
    dual = Combiner(sides[0], sides[1], tuple(map(bind_shared, combined)), identity)
    return _Dual(dual, tuple(values), tuple(moved))


def _tangents_of_results(
    op: Operation,
    combiner: Combiner,
    results: Sequence[Expr],
    dots: Sequence[Sequence[Var]],
    moving: Mapping[int, Expr],
) -> dict[int, Expr | None]:
    """The tangents of the results by component, given the components in `moving` that have
    tangents.
    """
    floats = [number for number, var in enumerate(combiner.lhs) if is_float(var)]
    active = [number for number in floats if number in moving]
    while True:
        known = {
            node_id(side[number]): own[number]
            for side, own in zip((combiner.lhs, combiner.rhs), dots, strict=True)
            for number in active
        }
        roots = [(results[number], None) for number in floats]
        pushed = push_forward(roots, _named(known), f"stage {op.name} (its reducer)")
        reached = [n for n, t in zip(floats, pushed, strict=True) if n in active or t is not None]
        if reached == active:
            return dict(zip(floats, pushed, strict=True))
        active = reached


def _named(known: Mapping[int, Var]) -> Callable[[Expr], Expr | None]:
    return lambda node: known.get(node_id(node))


def _as_choice(combiner: Combiner, number: int) -> Expr:
    """``max(l, r) → select(l >= r, l, r)``: value and tangent are then one selection."""
    result = combiner.result[number]
    kept = {"max": "ge", "min": "le"}.get(op_name(result))
    if kept is None:
        return result
    left, right = operands(result)
    return select(compare(kept, left, right), left, right)


_RULES: dict[type, Callable[[Operation, Any, TangentOf], Tangents]] = {
    Input: _constant,
    Compute: _compute,
    Scan: _prefix_scan,
    ScatterAdd: _scatter_add,
    UpdateLoops: _update_loops,
    KeptLoop: _opaque,
    Rewind: _opaque,
    Opaque: _opaque,
}
