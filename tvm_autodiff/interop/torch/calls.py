"""What calls of an operator compute, and the calls that compute their cotangents.

Only the first derivative uses residuals. Higher ones are derived from the pullback as a function of
inputs and cotangents, which are saved in addition to residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

from . import derived
from .operator import DerivedOperator, Operator

Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True, eq=False)
class Backward:
    """A backward pass from residuals.

    Attributes
    ----------
    wrt : tuple of int
        The inputs whose cotangents it computes.
    heads : tuple of int
        The outputs whose cotangents it takes.
    run : Operator
        From residuals and cotangents to cotangents.
    passed, kept : tuple of int
        The inputs, and then the outputs of the forward pass, that are residuals.
    pullback : DerivedOperator
        The same from inputs and cotangents only, for further differentiation.
    """

    wrt: tuple[int, ...]
    heads: tuple[int, ...]
    run: Operator
    passed: tuple[int, ...]
    kept: tuple[int, ...]
    pullback: DerivedOperator


@dataclass(frozen=True, eq=False)
class Call:
    """A call: what it computes, and with which operator.

    Attributes
    ----------
    operator : Operator
        The differentiated operator, a function of the first arguments.
    count : int
        The number of these arguments. Others are values that save work, and have no derivatives.
    run : Operator
        The operator that is run.
    takes : tuple of int or None
        The arguments that it takes; None for all of them.
    outputs : int
        The number of results. Further outputs of `run` are kept for the backward pass.
    backward : Backward or None
        The backward pass from residuals.
    """

    operator: Operator
    count: int
    run: Operator
    takes: tuple[int, ...] | None
    outputs: int
    backward: Backward | None = None
    _plans: dict[Hashable, Plan | None] = field(default_factory=dict)

    def execute(self, tensors: Tensors) -> tuple[torch.Tensor, ...]:
        """All outputs of `run`, without recording."""
        given = tensors if self.takes is None else [tensors[n] for n in self.takes]
        # autograd's part is done at this point
        with torch._C._AutoDispatchBelowAutograd():
            results = self.run.op(*given)
        return tuple(results) if isinstance(results, (tuple, list)) else (results,)

    def execute_on_cpu(self, tensors: Tensors) -> tuple[torch.Tensor, ...]:
        """The same for a plain call."""
        takes = self.takes
        return self._on_cpu(tensors if takes is None else [tensors[n] for n in takes])

    @cached_property
    def _on_cpu(self) -> Callable[[Tensors], tuple[torch.Tensor, ...]]:
        return self.run.kernels.on_cpu

    @cached_property
    def saved(self) -> tuple[int, ...]:
        """The arguments that derivatives of the call need."""
        if self.backward is None:
            return tuple(range(self.count))
        reads = self.backward.pullback[1]
        return tuple(sorted({*self.backward.passed, *(n for n in reads if n < self.count)}))

    def pulled(self, needs: tuple[bool, ...], given: tuple[bool, ...]) -> Plan | None:
        """What computes the cotangents that are needed from those that are given; None if nothing
        does.
        """
        key = needs, given
        if key not in self._plans:
            self._plans[key] = _pullback_plan(self, needs, given)
        return self._plans[key]

    def batched(self, members: tuple[bool, ...], size: int) -> Call:
        """The call for a batch; kept values are among its results."""
        taken = members if self.takes is None else tuple(members[n] for n in self.takes)
        run = self.run.batched(taken, size)
        operator = self.operator.batched(members[: self.count], size)
        return Call(operator, self.count, run, self.takes, self.outputs)


@dataclass(frozen=True)
class Plan:
    """A call that computes cotangents.

    Attributes
    ----------
    call : Call
        The call.
    places : tuple of int
        The positions of its results among the arguments of the autograd function.
    heads : tuple of int
        The outputs whose cotangents follow what was saved.
    gathered : tuple of int
        The positions of its arguments among what was saved and these cotangents.
    absent : tuple of (int, int)
        The numbers of outputs without a cotangent, which gets zeros, with their positions there.
    """

    call: Call
    places: tuple[int, ...]
    heads: tuple[int, ...]
    gathered: tuple[int, ...]
    absent: tuple[tuple[int, int], ...] = ()


def plain(operator: Operator) -> Call:
    """The call of an operator with only its inputs."""
    return operator.once("plain", lambda: _plain(operator))


def _plain(operator: Operator) -> Call:
    return Call(operator, operator.count, operator, None, len(operator.program.outputs))


def recording(operator: Operator, wrt: tuple[int, ...], budget: int | None) -> Call:
    """The call of an operator that keeps residuals for cotangents of some inputs."""
    return operator.once(("passes", wrt, budget), lambda: _recording(operator, wrt, budget))


def _recording(operator: Operator, wrt: tuple[int, ...], budget: int | None) -> Call:
    program = operator.program
    passes, (pulled, reads) = derived.two_passes(program, wrt, budget, operator.sizes)
    floats = tuple(n for n, t in enumerate(program.outputs) if "float" in str(t.dtype))
    forward = operator
    if len(passes.forward.outputs) > len(program.outputs):
        forward = Operator(f"{operator.name}_fwd", lambda: passes.forward, operator.sizes)
    backward = Backward(
        wrt,
        floats,
        Operator(f"{operator.name}_bwd", lambda: passes.backward, operator.sizes),
        passes.passed,
        passes.kept,
        (Operator(f"{operator.name}_vjp", lambda: pulled, operator.sizes), reads),
    )
    return Call(operator, operator.count, forward, None, len(program.outputs), backward)


def call_for(operator: Operator, wrt: tuple[int, ...], budget: int | None) -> Call:
    """The call of an operator that serves derivatives with respect to some inputs."""
    return recording(operator, wrt, budget) if wrt and _has_floats(operator) else plain(operator)


def _has_floats(operator: Operator) -> bool:
    outputs = operator.program.outputs
    return operator.once("floats", lambda: any("float" in str(t.dtype) for t in outputs))


def _pullback_plan(call: Call, needs: tuple[bool, ...], given: tuple[bool, ...]) -> Plan | None:
    wrt = tuple(n for n in range(call.count) if needs[1 + n])
    heads = tuple(n for n in range(call.outputs) if given[n])
    if not wrt or not heads:
        return None
    if call.backward is not None:
        return _plan_from_residuals(call, call.backward, wrt, given)
    operator, reads = call.operator.pullback(wrt, heads)
    return Plan(plain(operator), tuple(1 + n for n in wrt), heads, reads)


def _plan_from_residuals(
    call: Call, backward: Backward, wrt: tuple[int, ...], given: tuple[bool, ...]
) -> Plan:
    pullback, reads = backward.pullback
    numbers = tuple(backward.wrt.index(n) for n in wrt)
    # numbers of the available tensors: saved inputs, kept results, cotangents
    saved, kept = call.saved, len(backward.kept)
    there = {n: place for place, n in enumerate(saved)}
    for place in range(len(backward.heads)):
        there[call.count + place] = len(saved) + kept + place
    # residuals and cotangents that the pullback does not read follow those it reads
    residuals = [there[n] for n in backward.passed]
    residuals += range(len(saved), len(saved) + kept)
    taken = [*residuals, *(there[call.count + place] for place in range(len(backward.heads)))]
    gathered = [there[n] for n in reads]
    gathered += [place for place in taken if place not in gathered]
    takes = tuple(gathered.index(place) for place in taken)
    made = Call(
        pullback.selected(numbers),
        len(reads),
        backward.run.selected(numbers),
        None if takes == tuple(range(len(gathered))) else takes,
        len(numbers),
    )
    absent = tuple(
        (place, len(saved) + kept + place)
        for place, n in enumerate(backward.heads)
        if not given[n]
    )
    places = tuple(1 + n for n in wrt)
    return Plan(made, places, backward.heads, tuple(gathered), absent)
