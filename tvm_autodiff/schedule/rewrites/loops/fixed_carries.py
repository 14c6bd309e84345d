"""Makes constants of carries that no step changes: the cotangent of a sum that a loop adds up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....expr.nodes import Tensor, tensor_key
from ....graph.kinds.loop import Loop, copy_of, loop_stage, source_of, step_of
from ....graph.stage import is_placeholder
from .each_loop import each_loop


def without_fixed_carries(tensors: Sequence[Tensor]) -> list[Tensor]:
    """``(a, b) = loop a' = a, b' = b + a*x[t] from (s, z)  →  b = loop b' = b + s*x[t] from z``,
    and a is s; in nested loops, too.
    """
    return each_loop(tensors, _with_constants)


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


def _with_constants(name: str, loop: Loop) -> list[Tensor]:
    """The results of a loop, whose fixed carries are constants."""
    step, fixed = loop.step, _fixed(loop)
    if not fixed:
        return loop_stage(name, loop)
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
