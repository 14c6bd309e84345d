"""Moves work out of loops over time: before the loop if it depends on no carry, after it if no
carry depends on it.

``h' = f(W h + U x_t), y_t = V h' → p = U x; h' = f(W h + p_t); y = V h`` over all times: a product
with a matrix in each step becomes one product of matrices. A stage leaves only if its work per
element is much more than the cost of storing and reading the element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ....expr.nodes import Tensor, tensor_key
from ....graph.graph import Graph, replace_tensors, tensors_read_by, topological
from ....graph.kinds.loop import Loop, copy_of, loop_stage, slice_of, source_of, step_of
from ....graph.stage import (
    Extent,
    Operation,
    axis_range,
    is_compute,
    is_placeholder,
    outputs_of,
    placeholder_like,
    reduction_of,
    shape_of,
)
from ....rules.batching import batched_stage, repeated
from ...cost import STORE, SYMBOLIC_SIZE
from .each_loop import each_loop
from .invariant_values import with_invariant_values

Key = tuple[int, int]
Pair = tuple[Tensor, Tensor]


def without_loop_invariants(tensors: Sequence[Tensor], gain: int = STORE) -> list[Tensor]:
    """Equal tensors with work moved out of their loops, including nested ones; `gain` as in
    `hoisted`.
    """
    return each_loop(tensors, lambda name, loop: hoisted(name, loop, gain))


def hoisted(name: str, loop: Loop, gain: int = STORE) -> list[Tensor]:
    """The outputs of a loop, computed around a loop with less work.

    Parameters
    ----------
    name : str
        The name of the loop's stage.
    loop : Loop
        The loop.
    gain : int
        The minimum number of reduction points per stored element for a stage to leave the loop.

    Returns
    -------
    list of Tensor
        The final carries and the stacked results.
    """
    if loop.carries_only:  # what leaves is stored for all times
        return loop_stage(name, loop)
    loop = _with_work_before(with_invariant_values(loop), gain)
    later = _leaving_later(loop, gain)
    if not later:
        return loop_stage(name, loop)
    return _with_work_after(name, loop, later)


def _with_work_before(loop: Loop, gain: int) -> Loop:
    """``step(c, x) = g(c, f(x))  →  f over all x first, then g(c, f(x)_t)``."""
    step = loop.step
    graph = Graph(list(step.outputs))
    late, timed = graph.depends_on(step.carries), graph.depends_on(step.xs)
    roots = _leaving_before(graph, late, timed, gain)
    if not roots:
        return loop
    before = _over_time(roots, list(zip(step.xs, loop.xs, strict=True)), loop)
    fresh = [
        slice_of(many, one.op.name) if hash(one.op) in timed else placeholder_like(one)
        for one, many in zip(roots, before, strict=True)
    ]
    outputs = replace_tensors(step.outputs, list(zip(roots, fresh, strict=True)))
    found = list(zip(fresh, before, strict=True))
    moving = [pair for pair, one in zip(found, roots, strict=True) if hash(one.op) in timed]
    fixed = [pair for pair, one in zip(found, roots, strict=True) if hash(one.op) not in timed]
    xs = [*zip(step.xs, loop.xs, strict=True), *moving]
    consts = [*zip(step.consts, loop.consts, strict=True), *fixed]
    return _over(loop, outputs[: len(step.news)], outputs[len(step.news) :], xs, consts)


def _leaving_before(graph: Graph, late: set[int], timed: set[int], gain: int) -> list[Tensor]:
    """The tensors that stages with a carry read and that are worth storing.

    They have much work per element, or are the same at all times.
    """
    pending = [
        tensor
        for op in reversed(graph.ops)
        if hash(op) in late
        for tensor in graph.reads(op)
        if hash(tensor.op) not in late
    ]
    roots: dict[Key, Tensor] = {}
    seen: set[Key] = set()
    while pending:
        tensor = pending.pop()
        if tensor_key(tensor) in seen or is_placeholder(tensor.op):
            continue
        seen.add(tensor_key(tensor))
        below = [op for op in topological([tensor]) if not is_placeholder(op)]
        reads_something = len(below) < len(topological([tensor]))
        work = sum(map(_points, below))
        pays = work >= gain * _elements(tensor) or hash(tensor.op) not in timed
        if reads_something and pays and all(map(is_compute, below)):
            roots[tensor_key(tensor)] = tensor
        else:
            pending += reversed(graph.reads(tensor.op))
    return list(roots.values())


def _over(
    loop: Loop,
    news: Sequence[Tensor],
    ys: Sequence[Tensor],
    xs: Sequence[Pair],
    consts: Sequence[Pair],
) -> Loop:
    """The loop over a step with other results, which reads the pairs (placeholder, tensor) that it
    needs.
    """
    step = loop.step
    read = {hash(op) for op in topological([*news, *ys])}
    xs = [pair for pair in xs if hash(pair[0].op) in read]
    consts = [pair for pair in consts if hash(pair[0].op) in read]
    made = step_of(step.carries, [x for x, _ in xs], [c for c, _ in consts], news, ys)
    return replace(
        loop, step=made, xs=tuple(many for _, many in xs), consts=tuple(one for _, one in consts)
    )


@dataclass(frozen=True)
class _Later:
    """Results that leave a loop.

    Attributes
    ----------
    numbers : list of int
        The numbers of ``step.ys``.
    reads : list of Tensor
        The tensors of the step from which they are computed, without sequences and constants.
    """

    numbers: list[int]
    reads: list[Tensor]


def _leaving_later(loop: Loop, gain: int) -> _Later | None:
    """The results that no carry depends on, if they are enough work."""
    step = loop.step
    kept = {hash(op) for op in topological(step.news)}
    given = {tensor_key(tensor) for tensor in (*step.xs, *step.consts)}
    known = {tensor_key(source_of(y)) for y in step.ys}
    numbers: list[int] = []
    reads: dict[Key, Tensor] = {}
    for number, y in enumerate(step.ys):
        own = [op for op in topological([y]) if hash(op) not in kept and not is_placeholder(op)]
        if not own or not all(map(is_compute, own)):
            continue
        needed = {
            tensor_key(tensor): tensor
            for op in own
            for tensor in tensors_read_by(op)
            if (hash(tensor.op) in kept or is_placeholder(tensor.op))
            and tensor_key(tensor) not in given
        }
        fresh = [tensor for key, tensor in needed.items() if key not in known]
        stored = max(sum(map(_elements, fresh)), _elements(y))
        # work without any carry does not depend on the loop
        if not needed or sum(map(_points, own)) >= gain * stored:
            numbers.append(number)
            reads |= needed
    return _Later(numbers, list(reads.values())) if numbers else None


def _with_work_after(name: str, loop: Loop, later: _Later) -> list[Tensor]:
    """``y_t = f(c_t)  →  c stacked, then f over all c``."""
    step = loop.step
    staying = [y for n, y in enumerate(step.ys) if n not in later.numbers]
    known = {tensor_key(source_of(y)): n for n, y in enumerate(staying)}
    stacked = list(staying)
    for tensor in later.reads:
        if tensor_key(tensor) not in known:
            known[tensor_key(tensor)] = len(stacked)
            stacked.append(copy_of(tensor, f"{tensor.op.name}_kept"))
    pairs = (zip(step.xs, loop.xs, strict=True), zip(step.consts, loop.consts, strict=True))
    xs, consts = map(list, pairs)
    count = len(step.news)
    # a loop without carries may have nothing left to do
    rest_of_loop = [*step.news, *stacked]
    made = loop_stage(name, _over(loop, step.news, stacked, xs, consts)) if rest_of_loop else []
    stacks = [(tensor, made[count + known[tensor_key(tensor)]]) for tensor in later.reads]
    leaving = [step.ys[n] for n in later.numbers]
    found = _over_time(leaving, [*stacks, *xs], loop)
    after = iter(
        many if len(many.shape) > len(y.shape) else repeated(many, loop.length)
        for y, many in zip(leaving, found, strict=True)
    )
    rest = iter(made[count : count + len(staying)])
    ys = [next(after) if n in later.numbers else next(rest) for n in range(len(step.ys))]
    return [*made[:count], *ys]


def _over_time(tensors: Sequence[Tensor], sequences: Sequence[Pair], loop: Loop) -> list[Tensor]:
    """Tensors of the step for all times, from pairs (one, all).

    Those that depend on none of these are computed once.
    """
    step, length = loop.step, loop.length
    known = {tensor_key(one): many for one, many in sequences}
    given = set(known)

    def unknown(op: Operation) -> list[Tensor]:
        return [tensor for tensor in tensors_read_by(op) if tensor_key(tensor) not in given]

    for op in topological([t for t in tensors if tensor_key(t) not in given], unknown):
        if any(tensor_key(tensor) in known for tensor in tensors_read_by(op)):
            made = batched_stage(op, lambda tensor: known.get(tensor_key(tensor)), length)
            known.update(zip(map(tensor_key, outputs_of(op)), made, strict=True))
    found = [known.get(tensor_key(tensor), tensor) for tensor in tensors]
    table = [(many, many) for _, many in sequences]  # nothing below is looked at
    table += zip(step.consts, loop.consts, strict=True)
    return replace_tensors(found, table)


def _points(op: Operation) -> int:
    """The number of points of a reduction, or None for other stages."""
    reduction = reduction_of(op)
    if reduction is None:
        return 0
    return prod(_sizes([axis_range(axis)[1] for axis in (*op.axis, *reduction.axes)]))


def _elements(tensor: Tensor) -> int:
    return prod(_sizes(shape_of(tensor)))


def _sizes(extents: Sequence[Extent]) -> list[int]:
    """Extents as numbers; a symbolic one counts as a large one."""
    return [extent if isinstance(extent, int) else SYMBOLIC_SIZE for extent in extents]
