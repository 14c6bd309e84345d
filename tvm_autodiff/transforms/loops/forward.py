"""Forward mode of a loop: one loop over pairs of carries and tangents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...expr.nodes import Tensor, is_float
from ...graph.graph import Graph
from ...graph.kinds.loop import Loop, loop_stage, step_of
from ...graph.stage import Operation, placeholder_like
from ..custom_rules.apply_rule import zeros_like


def push_loop(
    op: Operation, loop: Loop, tangent_of: Callable[[Tensor], Tensor | None]
) -> dict[int, Tensor]:
    """The tangents of a loop's outputs, by number; missing ones are zero.

    ``c ← f(c)  →  (c, ċ) ← (f(c), ∂f(c)·ċ)``.

    Parameters
    ----------
    op : Operation
        The stage.
    loop : Loop
        The loop that it computes.
    tangent_of : callable
        Returns the tangent of a tensor that the loop reads, or None if it is zero.
    """
    from ..jvp import ForwardSweep  # which comes here for loops in a step

    step, count = loop.step, len(loop.init)
    given = [tangent_of(x) if is_float(x) else None for x in loop.inputs]
    graph = Graph(list(step.outputs))
    fixed = [x for x, tangent in zip(step.inputs, given, strict=True) if tangent is not None]
    moving = {n for n in range(count) if given[n] is not None}
    while True:
        reached = graph.depends_on([*fixed, *(step.carries[n] for n in sorted(moving))])
        floats = (n for n in range(count) if is_float(step.carries[n]))
        more = moving | {n for n in floats if hash(step.news[n].op) in reached}
        if more == moving:
            break
        moving = more
    if not fixed:
        return {}
    names = {
        n: placeholder_like(x, f"{x.op.name}_dot")
        for n, x in enumerate(step.inputs)
        if n in moving or given[n] is not None
    }
    sweep = ForwardSweep(
        Graph(list(step.outputs)), [(step.inputs[n], dot) for n, dot in names.items()]
    )
    order = sorted(moving)
    news = []
    for n in order:
        tangent = sweep.tangent(step.news[n])
        news.append(zeros_like(step.news[n]) if tangent is None else tangent)
    pushed = [(n, sweep.tangent(y)) for n, y in enumerate(step.ys) if is_float(y)]
    ys = [(n, tangent) for n, tangent in pushed if tangent is not None]
    if not order and not ys:
        return {}
    xs = [n for n in names if count <= n < count + len(loop.xs)]
    consts = [n for n in names if n >= count + len(loop.xs)]
    dual = step_of(
        [*step.carries, *(names[n] for n in order)],
        [*step.xs, *(names[n] for n in xs)],
        [*step.consts, *(names[n] for n in consts)],
        [*step.news, *news],
        [tangent for _, tangent in ys],
    )

    def outside(n: int) -> Tensor:
        known = given[n]
        return zeros_like(loop.inputs[n]) if known is None else known

    whole = replace(
        loop,
        step=dual,
        init=(*loop.init, *map(outside, order)),
        xs=(*loop.xs, *map(outside, xs)),
        consts=(*loop.consts, *map(outside, consts)),
    )
    made = loop_stage(f"{op.name}_dot", whole)
    found = dict(zip(order, made[count:], strict=False))
    stacked = made[count + len(order) :]
    found |= {count + n: tensor for (n, _), tensor in zip(ys, stacked, strict=True)}
    return found
