"""One step of a reverse loop that recomputes the step from the carry before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...expr.nodes import Tensor
from ...graph.graph import replace_tensors, topological
from ...graph.kinds.loop import Loop, Step, step_of
from ...graph.stage import placeholder_like
from ..custom_rules.apply_rule import zeros_like
from ..local import local_vjp
from .needs import Needs
from .stored import stored_tensors, tensors_read_of
from .totals import Totals

Entry = Tensor | None


@dataclass(frozen=True)
class StepBack:
    """``λ, w̄ ← ∂step/∂carryᵀ λ, w̄ + ∂step/∂wᵀ λ``, which puts out ``∂step/∂xᵀ λ``.

    Attributes
    ----------
    step : Step
        The step forward.
    needs : Needs
        The parts that take part.
    arriving, given, sums : list of Tensor
        Placeholders for λ, the cotangents of the step's results, and the sums w̄.
    results : list of Tensor
        The next λ and w̄, and the outputs, over the tensors of the step.
    """

    step: Step
    needs: Needs
    arriving: list[Tensor]
    given: list[Tensor]
    sums: list[Tensor]
    results: list[Tensor]

    @staticmethod
    def of(step: Step, needs: Needs) -> StepBack:
        """The reverse of a step."""
        outputs = [step.news[n] for n in needs.carries] + [step.ys[n] for n in needs.ys]
        arriving = [
            placeholder_like(step.news[n], f"d{step.carries[n].op.name}") for n in needs.carries
        ]
        given = [placeholder_like(step.ys[n], f"d{step.ys[n].op.name}") for n in needs.ys]
        carries = [step.carries[n] for n in needs.carries]
        xs, consts = [step.xs[n] for n in needs.xs], [step.consts[n] for n in needs.consts]
        pulled = local_vjp(outputs, [*carries, *xs, *consts], [*arriving, *given], [])
        first, second = len(carries), len(carries) + len(xs)
        totals = Totals.of(step, needs.consts, pulled[second:])
        results = [*pulled[:first], *totals.after, *pulled[first:second]]
        return StepBack(step, needs, arriving, given, totals.before, results)

    def carries_read(self) -> list[Tensor]:
        """The carries from which the step is recomputed."""
        own = {hash(inner) for inner in topological(self.step.outputs)}
        read = tensors_read_of(self.results, own)
        return stored_tensors(self.step, read, carries_only=True)

    def loop(
        self,
        forward: Loop,
        last: Sequence[Tensor],
        cotangents: Sequence[Tensor],
        states: Sequence[tuple[Tensor, Tensor]],
        stacks: Sequence[Tensor] | None = None,
    ) -> Loop:
        """The reverse loop.

        Parameters
        ----------
        forward : Loop
            The loop that is reversed.
        last : sequence of Tensor
            The cotangents of the final carries in ``needs.carries``.
        cotangents : sequence of Tensor
            The cotangents of the stacked results in ``needs.ys``.
        states : sequence of (Tensor, Tensor)
            Carries of the step, and the placeholders for them in the reverse step.
        stacks : sequence of Tensor, optional
            The values of the placeholders at all times. Without them, the step reads the
            placeholders first, and the loop has no sequences for them.
        """
        step = self.step
        moved = replace_tensors(self.results, list(states))
        read = {hash(inner) for inner in topological(moved)}
        inside = [state for _, state in states]
        pairs = [*zip(step.xs, forward.xs, strict=True), *zip(self.given, cotangents, strict=True)]
        if stacks is not None:
            pairs = [*zip(inside, stacks, strict=True), *pairs]
            inside = []
        moving = [pair for pair in pairs if hash(pair[0].op) in read]
        fixed = [
            pair
            for pair in zip(step.consts, forward.consts, strict=True)
            if hash(pair[0].op) in read
        ]
        carried = len(self.arriving) + len(self.sums)
        return Loop(
            step_of(
                [*self.arriving, *self.sums],
                [*inside, *(x for x, _ in moving)],
                [x for x, _ in fixed],
                moved[:carried],
                moved[carried:],
            ),
            (*last, *(zeros_like(forward.consts[n], (), "bar") for n in self.needs.consts)),
            tuple(tensor for _, tensor in moving),
            tuple(tensor for _, tensor in fixed),
            forward.length,
            not forward.reverse,
            carries_only=True,
        )

    def by_input(
        self, forward: Loop, ends: Sequence[Tensor], wanted: Sequence[bool]
    ) -> list[Entry]:
        """The results of the reverse loop, one for each input of the forward loop."""
        found: list[Entry] = [None] * len(forward.inputs)
        for place, end in zip(self.places(forward), ends, strict=True):
            found[place] = end if wanted[place] else None
        return found

    def places(self, forward: Loop) -> list[int]:
        """For each result of the reverse loop, the number of the input whose cotangent it is."""
        count, first, needs = len(forward.init), len(forward.init) + len(forward.xs), self.needs
        return [
            *needs.carries,
            *(first + n for n in needs.consts),
            *(count + n for n in needs.xs),
        ]
