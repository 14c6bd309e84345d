"""Operator calls under PyTorch's transforms: autograd, forward mode, functorch.

A derivative is again an operator call, derived from the program, so all orders and nestings of
transforms work. Only the first derivative uses residuals. Higher ones are derived from the pullback
as a function of inputs and cotangents, which are saved in addition to residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch._C import _are_functorch_transforms_active as transforms_active, _functorch as functorch
from torch._functorch import pyfunctorch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from . import derived
from .operator import DerivedOperator, Operator
from .plain_calls import is_plain_call

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

    def record_on_cpu(self, tensors: Tensors) -> tuple[torch.Tensor, ...]:
        """The results of a plain call, recorded for derivatives."""
        results = RecordedOnCpu.apply(self, *tensors)
        return results if len(results) == self.outputs else results[: self.outputs]

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


def call_of(operator: Operator, tensors: Tensors, budget: int | None) -> tuple[torch.Tensor, ...]:
    """The results of an operator, recorded for possible derivatives."""
    return applied(call_for(operator, differentiated(tensors), budget), tensors)


def call_for(operator: Operator, wrt: tuple[int, ...], budget: int | None) -> Call:
    """The call of an operator that serves derivatives with respect to some inputs."""
    return recording(operator, wrt, budget) if wrt and _has_floats(operator) else plain(operator)


def _has_floats(operator: Operator) -> bool:
    outputs = operator.program.outputs
    return operator.once("floats", lambda: any("float" in str(t.dtype) for t in outputs))


def differentiated(tensors: Tensors) -> tuple[int, ...]:
    """The numbers of the tensors for which reverse mode may request cotangents."""
    if transforms_active():
        return tuple(n for n, tensor in enumerate(tensors) if _requires_grad_somewhere(tensor))
    if not torch.is_grad_enabled():
        return ()
    return tuple([n for n, tensor in enumerate(tensors) if tensor.requires_grad])


def _requires_grad_somewhere(tensor: torch.Tensor) -> bool:
    """Whether a tensor requires a gradient at any level of nested transforms."""
    while True:
        if tensor.requires_grad:
            return True
        if not functorch.is_functorch_wrapped_tensor(tensor):
            return False
        tensor = functorch.get_unwrapped(tensor)


def applied(call: Call, tensors: Tensors) -> tuple[torch.Tensor, ...]:
    """The results of a call, recorded if anything requires it."""
    results = _with_residuals(call, tensors)
    return results if len(results) == call.outputs else results[: call.outputs]


def _with_residuals(call: Call, tensors: Tensors) -> tuple[torch.Tensor, ...]:
    """All results of what is run, for the innermost transform that is active, or for none."""
    if is_plain_call(tensors):
        if torch.is_grad_enabled() and differentiated(tensors):
            return RecordedOnCpu.apply(call, *tensors)
        return call.execute_on_cpu(tensors)
    # what was saved at a level that has ended is wrapped in it still
    tensors = [functorch.unwrap_if_dead(tensor) for tensor in tensors]
    if transforms_active():
        interpreter = pyfunctorch.retrieve_current_functorch_interpreter()
        if interpreter.key() == functorch.TransformType.Vmap:
            return _batched(interpreter, call, tensors)
        lifted = [interpreter._cptr.lift(tensor) for tensor in tensors]
        with enable_single_level_autograd_function():
            return Transformed.apply(call, *lifted)
    if forward_ad._current_level >= 0 or differentiated(tensors):
        return Recorded.apply(call, *tensors)
    return call.execute(tensors)


def _batched(interpreter: Any, call: Call, tensors: Tensors) -> tuple[torch.Tensor, ...]:
    """The results under a vmap: those of one call for the whole batch, a level below."""
    level = interpreter.level()
    pairs = [functorch._unwrap_batched(tensor, level) for tensor in tensors]
    members = tuple([dim is not None for _, dim in pairs])
    moved = [tensor if dim is None else tensor.movedim(dim, 0) for tensor, dim in pairs]
    with interpreter.lower():
        if not any(members):
            return _with_residuals(call, moved)
        many = call.batched(members, interpreter.batch_size())
        if many.operator is many.run or len(many.run.program.outputs) > many.outputs:
            # kept values are results here: the levels below see a function that returns both
            results = call_of(many.run, moved, None)
        else:
            results = applied(many, moved)
    return tuple([functorch._add_batch_dim(result, 0, level) for result in results])


def recorded(operator: Operator, tensors: Tensors) -> Any:
    """A call of the PyTorch operator itself, for instance from an exported graph."""
    results = call_of(operator, tensors, None)
    return results[0] if len(results) == 1 else results


class Recorded(_SingleLevelFunction):
    """A call outside functorch's transforms, of tensors that none of them wraps."""

    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the call and save what its derivatives need."""
        results = call.execute(tensors)
        _save(ctx, call, tensors, results)
        if forward_ad._current_level >= 0:
            _save_for_forward(ctx, tensors)
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[Any, ...]:
        """The cotangents of the arguments."""
        return _pulled(ctx, cotangents)

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor | None) -> tuple[Any, ...]:
        """The tangents of the results."""
        return _pushed(ctx, tangents)


class RecordedOnCpu(Recorded):
    """A plain call, of which no tangents are requested."""

    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the call and save what its derivatives need."""
        results = call.execute_on_cpu(tensors)
        _save(ctx, call, tensors, results)
        return results


class Transformed(_SingleLevelFunction):
    """A call under functorch's transforms, which require a separate context set-up and are slower.
    """

    @staticmethod
    def forward(call: Call, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the call."""
        interpreter = pyfunctorch.retrieve_current_functorch_interpreter()
        level = interpreter.level()
        plain = [functorch._unwrap_for_grad(tensor, level) for tensor in tensors]
        # a function of one level turns both modes off for all that it calls
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), interpreter.lower():
            results = _with_residuals(call, plain)
        return tuple([functorch._wrap_for_grad(result, level) for result in results])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        """Save what the derivatives of the call need."""
        _save(ctx, inputs[0], inputs[1:], output)
        _save_for_forward(ctx, inputs[1:])

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[Any, ...]:
        """The cotangents of the arguments."""
        return _pulled(ctx, cotangents)

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor | None) -> tuple[Any, ...]:
        """The tangents of the results."""
        return _pushed(ctx, tangents)


def _save(ctx: Any, call: Call, tensors: Tensors, results: Tensors) -> None:
    ctx.call = call
    backward = call.backward
    kept = () if backward is None else backward.kept
    ctx.save_for_backward(*[tensors[n] for n in call.saved], *[results[n] for n in kept])
    if len(results) == 1:
        return
    ctx.set_materialize_grads(False)
    if backward is not None and len(backward.heads) > 1:
        heads = [results[n] for n in backward.heads]
        ctx.likes = [(tensor.shape, tensor.dtype, tensor.device) for tensor in heads]
    if len(results) > call.outputs:
        ctx.mark_non_differentiable(*results[call.outputs :])


def _save_for_forward(ctx: Any, tensors: Tensors) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_forward(*tensors)


def _pulled(ctx: Any, cotangents: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:
    """The cotangents of the arguments, with None for those not requested."""
    call: Call = ctx.call
    needs = ctx.needs_input_grad
    plan = call.pulled(needs, tuple([cotangent is not None for cotangent in cotangents]))
    results: list[Any] = [None] * len(needs)
    if plan is None:
        return tuple(results)
    there = [*ctx.saved_tensors, *[cotangents[n] for n in plan.heads]]
    for head, place in plan.absent:
        there[place] = _zeros(ctx.likes[head])
    found = applied(plan.call, [there[place] for place in plan.gathered])
    for place, cotangent in zip(plan.places, found, strict=True):
        results[place] = cotangent
    return tuple(results)


def _zeros(like: tuple[Any, ...]) -> torch.Tensor:
    shape, dtype, device = like
    return torch.zeros(shape, dtype=dtype, device=device)


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


def _pushed(ctx: Any, tangents: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:
    """The tangents of the results, with None for those without a tangent."""
    call: Call = ctx.call
    moving = tuple(n for n in range(call.count) if tangents[1 + n] is not None)
    inputs = ctx.saved_tensors
    operator, reads = call.operator.pushforward(moving)
    there = [*inputs[: call.count], *(tangents[1 + n] for n in moving)]
    arguments = [there[n] for n in reads]
    found = iter(applied(plain(operator), arguments))
    floats = ["float" in str(tensor.dtype) for tensor in call.operator.program.outputs]
    extra = len(call.run.program.outputs) - call.outputs
    return tuple([next(found) if flag else None for flag in floats] + [None] * extra)
