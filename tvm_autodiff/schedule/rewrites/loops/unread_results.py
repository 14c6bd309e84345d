"""Removes unread results of loops: stacked results, carried tensors, and what only these need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....expr.nodes import Tensor, tensor_key
from ....graph.graph import retarget, tensors_read_by, topological
from ....graph.kinds.kind import kind_of
from ....graph.kinds.loop import Loop, Step
from ....graph.kinds.rewind import KeptLoop, stage_of_loops
from ....graph.stage import Operation, is_placeholder, outputs_of

Key = tuple[int, int]


def without_unread_results(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``(a, ys, zs) = loop step; f(ys)  →  (a, ys) = loop step'``."""
    ops = topological(outputs)
    smaller: dict[int, tuple[Loop | KeptLoop, list[int]]] = {}
    read = {tensor_key(tensor) for tensor in outputs}
    unread: set[int] = set()
    for op in reversed(ops):
        kind = kind_of(op)
        asked = [tensor_key(t) in read for t in outputs_of(op)]
        if not any(asked):  # only what was left out of loops read it
            unread.add(hash(op))
            continue
        if not isinstance(kind, (Loop, KeptLoop)):
            read |= {tensor_key(tensor) for tensor in tensors_read_by(op)}
            continue
        loop = kind if isinstance(kind, Loop) else kind.loop
        part: Loop | KeptLoop
        if isinstance(kind, Loop):
            live, kept = _smaller(kind, asked)
            part = live
        else:
            part, live, kept = _smaller_kept(kind, asked)
        if len(kept) < op.num_outputs or len(live.inputs) < len(loop.inputs):
            smaller[hash(op)] = part, kept
        read |= {tensor_key(tensor) for tensor in live.inputs}
    if not smaller:
        return list(outputs)
    done: dict[Key, Tensor] = {}
    for op in ops:
        if is_placeholder(op) or hash(op) in unread:
            continue
        numbers = list(range(op.num_outputs))
        current: Operation = op
        if hash(op) in smaller:
            part, numbers = smaller[hash(op)]
            current = stage_of_loops(op.name, part)[0].op
        news = retarget(current, lambda tensor: done.get(tensor_key(tensor)))
        for number, new in zip(numbers, news, strict=True):
            if tensor_key(op.output(number)) != tensor_key(new):
                done[tensor_key(op.output(number))] = new
    return [done.get(tensor_key(tensor), tensor) for tensor in outputs]


def _smaller_kept(
    kept: KeptLoop, read: Sequence[bool]
) -> tuple[Loop | KeptLoop, Loop, list[int]]:
    """`_smaller` for a loop that keeps states, as a stage and as a loop: a plain one if they are
    unread.
    """
    loop, first = kept.loop, len(kept.loop.step.outputs)
    if not any(read[first:]):
        live, numbers = _smaller(loop, read[:first])
        return live, live, numbers
    asked = [flag or n in kept.carries for n, flag in enumerate(read[:first])]
    live, numbers = _smaller(loop, asked)
    places = tuple(numbers.index(n) for n in kept.carries)
    numbers = [*numbers, *range(first, len(read))]
    return replace(kept, loop=live, carries=places), live, numbers


def _smaller(loop: Loop, read: Sequence[bool]) -> tuple[Loop, list[int]]:
    """A loop with the results that are read, and the numbers of those among all."""
    step, count = loop.step, len(loop.init)
    ys = [n for n in range(len(step.ys)) if read[count + n]]
    carries = {n for n in range(count) if read[n]}
    while True:
        needed = [*(step.news[n] for n in sorted(carries)), *(step.ys[n] for n in ys)]
        inside = {tensor_key(t) for op in topological(needed) for t in tensors_read_by(op)}
        more = {n for n in range(count) if tensor_key(step.carries[n]) in inside}
        if more <= carries:
            break
        carries |= more
    kept = sorted(carries)

    def used(tensors: Sequence[Tensor]) -> list[int]:
        return [n for n, tensor in enumerate(tensors) if tensor_key(tensor) in inside]

    xs, consts = used(step.xs), used(step.consts)
    if not xs and not isinstance(loop.length, int):
        xs = list(range(len(step.xs)))  # one of them may define the length
    part = Step(
        tuple(step.carries[n] for n in kept),
        tuple(step.xs[n] for n in xs),
        tuple(step.consts[n] for n in consts),
        tuple(step.news[n] for n in kept),
        tuple(step.ys[n] for n in ys),
    )
    live = replace(
        loop,
        step=part,
        init=tuple(loop.init[n] for n in kept),
        xs=tuple(loop.xs[n] for n in xs),
        consts=tuple(loop.consts[n] for n in consts),
    )
    return live, [*kept, *(count + n for n in ys)]
