"""Batches a loop: a loop over the batched step, with time as the first axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...expr.nodes import Tensor, dtype_of, load
from ...graph.bounded_stage import elementwise_stage
from ...graph.graph import Graph
from ...graph.kinds.loop import Loop, loop_stage, step_of
from ...graph.stage import Extent, Operation, placeholder, shape_of
from ...rules.batching import repeated


def batched_loop(
    op: Operation, loop: Loop, batched_of: Callable[[Tensor], Tensor | None], size: Extent
) -> list[Tensor]:
    """The outputs for each member of a batch, ``(size,) + shape``.

    Parameters
    ----------
    op : Operation
        The stage.
    loop : Loop
        The loop that it computes.
    batched_of : callable
        Returns the batch of a tensor that the loop reads, or None if all members read the same
        tensor.
    size : int or Expr
        The size of the batch.
    """
    from ..batch import batch_of_tensors  # which comes here for loops in a step

    step, count = loop.step, len(loop.init)
    given = [batched_of(tensor) for tensor in loop.inputs]
    graph = Graph(list(step.outputs))
    flags = [tensor is not None for tensor in given]
    while True:
        reached = graph.depends_on([x for x, many in zip(step.inputs, flags, strict=True) if many])
        more = [
            flags[n] or hash(step.news[n].op) in reached if n < count else flags[n]
            for n in range(len(flags))
        ]
        if more == flags:
            break
        flags = more

    def inside(n: int) -> Tensor:
        x = step.inputs[n]
        if not flags[n]:
            return x
        return placeholder([size, *shape_of(x)], dtype_of(x), x.op.name)

    def outside(n: int) -> Tensor:
        tensor, many = loop.inputs[n], given[n]
        if not flags[n]:
            return tensor
        if many is None:
            return repeated(tensor, size)
        return exchanged(many) if count <= n < count + len(loop.xs) else many

    own = [inside(n) for n in range(len(flags))]
    pairs = [(x, many) for x, many, flag in zip(step.inputs, own, flags, strict=True) if flag]
    # a result that is equal for all members is computed once
    moved = [(n < count and flags[n]) or hash(y.op) in reached for n, y in enumerate(step.outputs)]
    changing = [y for y, many in zip(step.outputs, moved, strict=True) if many]
    found = iter(batch_of_tensors(changing, pairs, size))
    outputs = [next(found) if many else y for y, many in zip(step.outputs, moved, strict=True)]
    first = count + len(loop.xs)
    whole = replace(
        loop,
        step=step_of(own[:count], own[count:first], own[first:], outputs[:count], outputs[count:]),
        init=tuple(outside(n) for n in range(count)),
        xs=tuple(outside(n) for n in range(count, first)),
        consts=tuple(outside(n) for n in range(first, len(own))),
    )
    results = []
    for n, (tensor, many) in enumerate(zip(loop_stage(str(op.name), whole), moved, strict=True)):
        if not many:
            results.append(repeated(tensor, size))
        else:
            results.append(tensor if n < count else exchanged(tensor))
    return results


def exchanged(tensor: Tensor) -> Tensor:
    """``x[b, t, i] → y[t, b, i]``."""
    first, second, *shape = shape_of(tensor)
    return elementwise_stage(
        f"{tensor.op.name}_by_step",
        (second, first, *shape),
        lambda place: load(tensor, [place[1], place[0], *place[2:]]),
    )
