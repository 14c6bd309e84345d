"""Reverse mode of a loop that keeps only some of its states, and recomputes the others.

The reverse loop is one stage (`graph.kinds.rewind`) with a custom rule. Its derivatives and batches
are those of an equal program: the loop cut into segments and differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isqrt

from ...expr.nodes import Tensor, is_float, tensor_key
from ...graph.graph import Graph, replace_tensors, tensors_read_by, topological
from ...graph.kinds.custom import Rule, custom_stage
from ...graph.kinds.loop import Loop, Step, step_of
from ...graph.kinds.rewind import KeptLoop, Rewind, kept_stage, rewind_stage
from ...graph.stage import Extent, Operation, placeholder_like
from ..local import local_vjp
from .needs import Needs
from .segments import segmented
from .slots import slots_of
from .step_back import Entry, StepBack
from .stepwise import pull_step_by_step


def pull_rewound(
    op: Operation,
    loop: Loop,
    needs: Needs,
    last: Sequence[Tensor],
    given: Sequence[Tensor],
    wanted: Sequence[bool],
) -> tuple[list[Entry], list[Tensor]]:
    """The cotangents of a loop's inputs under its plan.

    Parameters
    ----------
    op, loop, needs, last, given, wanted
        As in `pull_step_by_step`.

    Returns
    -------
    list of Tensor or None, list of Tensor
        As in `pull_loop`.

    Raises
    ------
    InvalidArgumentError
        If a budget is too small for one state, or sizes are symbolic.
    """
    step, name = loop.step, str(op.name)
    back = StepBack.of(step, needs)
    carries = _carries_behind(step, back.carries_read())
    if not carries:  # a step that is linear in its state needs none
        return pull_step_by_step(op, loop, needs, last, given, wanted)
    ahead = replace(
        loop,
        step=step_of(
            [step.carries[n] for n in carries], step.xs, step.consts, _of(step.news, carries), []
        ),
        init=_of(loop.init, carries),
        plan=None,
    )
    states = [(step.carries[n], placeholder_like(step.carries[n])) for n in carries]
    whole = back.loop(loop, last, given, states)
    slots = slots_of(name, loop, ahead, whole)
    made = kept_stage(name, KeptLoop(replace(loop, plan=None), slots, tuple(carries)))
    kept = tuple(made[len(step.outputs) :])
    rewind = Rewind(ahead, whole, kept, slots)
    ends = rewind_stage(f"d{name}", rewind)[: rewind.own]
    inputs = [*loop.inputs, *last, *given]
    equal = _EqualProgram.of(name, loop, needs, back.places(loop), last, given, slots)
    return back.by_input(loop, custom_stage(f"d{name}", ends, inputs, equal.rule()), wanted), made


def _of(tensors: Sequence[Tensor], numbers: Sequence[int]) -> tuple[Tensor, ...]:
    return tuple(tensors[n] for n in numbers)


def _carries_behind(step: Step, read: Sequence[Tensor]) -> list[int]:
    """The carries from which the read ones follow, step by step; the others need not be kept."""
    keys = {tensor_key(tensor) for tensor in read}
    found = {n for n, carry in enumerate(step.carries) if tensor_key(carry) in keys}
    while True:
        below = {
            tensor_key(tensor)
            for op in topological([step.news[n] for n in sorted(found)])
            for tensor in tensors_read_by(op)
        }
        more = found | {n for n, carry in enumerate(step.carries) if tensor_key(carry) in below}
        if more == found:
            return sorted(found)
        found = more


@dataclass(frozen=True)
class _EqualProgram:
    """A program that equals a reverse loop, over placeholders for its inputs.

    Attributes
    ----------
    inputs, results : list of Tensor
        The placeholders, and the cotangents.
    """

    inputs: list[Tensor]
    results: list[Tensor]

    @staticmethod
    def of(
        name: str,
        loop: Loop,
        needs: Needs,
        places: Sequence[int],
        last: Sequence[Tensor],
        given: Sequence[Tensor],
        slots: int,
    ) -> _EqualProgram:
        fresh = [placeholder_like(tensor) for tensor in (*loop.inputs, *last, *given)]
        count, first = len(loop.init), len(loop.init) + len(loop.xs)
        total = len(loop.inputs)
        own = replace(
            loop,
            init=tuple(fresh[:count]),
            xs=tuple(fresh[count:first]),
            consts=tuple(fresh[first:total]),
            plan=None,
        )
        size = isqrt(loop.length) if isinstance(loop.length, int) else slots
        outputs = segmented(name, own, max(size, 2))
        ends = [*(outputs[n] for n in needs.carries), *(outputs[count + n] for n in needs.ys)]
        results = local_vjp(ends, [fresh[place] for place in places], fresh[total:], [])
        return _EqualProgram(fresh, results)

    def rule(self) -> Rule:
        """The derivatives and batches of the program."""
        return Rule(vjp=self._vjp, jvp=self._jvp, batch=self._batch)

    def _over(self, found: Sequence[Entry], inputs: Sequence[Tensor]) -> list[Entry]:
        """Tensors over the inputs instead of the placeholders."""
        given = [tensor for tensor in found if tensor is not None]
        moved = iter(replace_tensors(given, list(zip(self.inputs, inputs, strict=True))))
        return [None if tensor is None else next(moved) for tensor in found]

    def _vjp(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], cotangents: Sequence[Tensor]
    ) -> list[Entry]:
        floats = [x for x in self.inputs if is_float(x)]
        found = iter(local_vjp(self.results, floats, cotangents, []))
        return self._over([next(found) if is_float(x) else None for x in self.inputs], inputs)

    def _jvp(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], tangents: Sequence[Entry]
    ) -> list[Entry]:
        from ..jvp import ForwardSweep  # which comes here for loops

        pairs = [(x, dot) for x, dot in zip(self.inputs, tangents, strict=True) if dot is not None]
        sweep = ForwardSweep(Graph(self.results), pairs)
        return self._over([sweep.tangent(result) for result in self.results], inputs)

    def _batch(
        self, inputs: Sequence[Tensor], batched: Sequence[bool], size: Extent
    ) -> list[Entry]:
        from ..batch import batch_of_tensors  # which comes here for loops

        pairs = list(zip(self.inputs, inputs, strict=True))
        many = [pair for pair, flag in zip(pairs, batched, strict=True) if flag]
        found = batch_of_tensors(self.results, many, size)
        fixed = [pair for pair, flag in zip(pairs, batched, strict=True) if not flag]
        return list(replace_tensors(found, fixed))
