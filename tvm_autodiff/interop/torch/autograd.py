"""Operator calls under PyTorch's transforms: autograd, forward mode, functorch.

A derivative is again an operator call, derived from the program, so all orders and nestings of
transforms work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._C import _are_functorch_transforms_active as transforms_active, _functorch as functorch
from torch._functorch import pyfunctorch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from .calls import Call, Tensors, call_for, plain
from .operator import Operator
from .plain_calls import is_plain_call


def call_of(operator: Operator, tensors: Tensors, budget: int | None) -> tuple[torch.Tensor, ...]:
    """The results of an operator, recorded for possible derivatives."""
    return applied(call_for(operator, differentiated(tensors), budget), tensors)


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
