"""Makes constants of carries that no step changes: the cotangent of a sum that a loop adds up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....expr.nodes import Tensor, tensor_key
from ....graph.graph import retarget, topological
from ....graph.kinds.kind import kind_of
from ....graph.kinds.loop import Loop, copy_of, loop_stage, source_of, step_of
from ....graph.stage import is_placeholder, outputs_of

Key = tuple[int, int]


def without_fixed_carries(tensors: Sequence[Tensor]) -> list[Tensor]:
    """``(a, b) = loop a' = a, b' = b + a*x[t] from (s, z)  →  b = loop b' = b + s*x[t] from z``,
    and a is s; in nested loops, too.
    """
    replaced: dict[Key, Tensor] = {}
    for op in topological(tensors):
        moved = retarget(op, lambda tensor: replaced.get(tensor_key(tensor)))
        kind = kind_of(moved[0].op)
        if isinstance(kind, Loop):
            inner = kind.step.with_outputs(without_fixed_carries(kind.step.outputs))
            if any(map(_differ, inner.outputs, kind.step.outputs)):
                moved = loop_stage(str(op.name), replace(kind, step=inner))
                kind = replace(kind, step=inner)
            fixed = _fixed(kind)
            moved = _with_constants(str(op.name), kind, fixed) if fixed else moved
        for old, new in zip(outputs_of(op), moved, strict=True):
            if _differ(old, new):
                replaced[tensor_key(old)] = new
    return [replaced.get(tensor_key(tensor), tensor) for tensor in tensors]


def _differ(old: Tensor, new: Tensor) -> bool:
    return tensor_key(old) != tensor_key(new)


def _fixed(loop: Loop) -> list[int]:
    """The numbers of the carries that each step only copies."""
    pairs = zip(loop.step.carries, loop.step.news, strict=True)
    return [n for n, (carry, new) in enumerate(pairs) if not _differ(_copied(new), carry)]


def _copied(tensor: Tensor) -> Tensor:
    """What a tensor is a copy of, or of a copy."""
    source = source_of(tensor)
    return _copied(source) if _differ(source, tensor) else tensor


def _with_constants(name: str, loop: Loop, fixed: Sequence[int]) -> list[Tensor]:
    """The results of a loop whose fixed carries are constants."""
    step = loop.step
    kept = [n for n in range(len(step.carries)) if n not in fixed]
    part = step_of(
        [step.carries[n] for n in kept],
        step.xs,
        [*step.consts, *(step.carries[n] for n in fixed)],
        [step.news[n] for n in kept],
        step.ys,
    )
    init = tuple(loop.init[n] for n in kept)
    consts = (*loop.consts, *(loop.init[n] for n in fixed))
    live = replace(loop, step=part, init=init, consts=consts)
    made = iter(loop_stage(name, live) if part.outputs else [])
    finals = [_final(loop.init[n]) if n in fixed else next(made) for n in range(len(step.carries))]
    return [*finals, *made]


def _final(init: Tensor) -> Tensor:
    """The carry after the last step. A result is no input: what calls the loop gives it memory."""
    return copy_of(init, f"{init.op.name}_copy") if is_placeholder(init.op) else init
