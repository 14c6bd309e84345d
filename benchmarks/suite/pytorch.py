"""Runs a case in PyTorch: eager, compiled with autograd, or with the whole derivative compiled.

The mode "eager" calls what an expert writes, and otherwise autograd or torch.func. "autograd"
compiles the forward pass, and PyTorch compiles its backward pass along with it. "functional"
compiles the derivative that torch.func makes; "reference" runs that derivative uncompiled in
float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .case import RATE, Array, Case

Forward = Callable[..., Any]


def prepare(case: Case, arrays: Sequence[Array], threads: int, mode: str) -> Callable[[], Any]:
    """A call without arguments that returns the answers."""
    import torch

    torch.compiler.reset()  # graphs of earlier cases count towards a limit
    torch.set_num_threads(threads)
    tensors = [torch.tensor(array) for array in arrays]
    # its integers are of 64 bits
    tensors = [value if value.is_floating_point() else value.long() for value in tensors]
    if mode == "reference":
        tensors = [value.double() if value.is_floating_point() else value for value in tensors]
    if case.channels_last:
        tensors = [
            value.contiguous(memory_format=torch.channels_last) if value.dim() == 4 else value
            for value in tensors
        ]
    count = len(case.inputs)
    inputs, heads = tensors[:count], tensors[count:]
    forward = functools.partial(case.torch, torch)
    if mode in ("functional", "reference"):
        derivative = _function(torch, case, forward)
        if mode == "reference":
            return _call(derivative, tensors)
        return _call(torch.compile(derivative, fullgraph=True, dynamic=False), tensors)
    if mode == "eager" and case.eager is not None:
        return _call(functools.partial(case.eager, torch), tensors)
    if case.derivative in ("hessian", "hvp", "per-example", "csr"):
        if mode == "autograd":
            raise NotImplementedError(f"compiled autograd has no {case.derivative}")
        return _call(_function(torch, case, forward), tensors)
    if mode == "autograd":
        forward = torch.compile(forward, fullgraph=True, dynamic=False)
    wrt = [inputs[place].requires_grad_() for place in case.places]
    return _AUTOGRAD[case.derivative](torch, lambda: forward(*inputs), wrt, *heads)


def _function(torch: Any, case: Case, forward: Forward) -> Forward:
    """The derivative as a function of all tensors, made with torch.func."""
    if case.derivative == "per-example":
        return torch.func.vmap(torch.func.grad(forward, argnums=case.places), in_dims=case.axes)
    return _FUNCTIONAL[case.derivative](torch, forward, case.places)


def _call(function: Callable[..., Any], tensors: Sequence[Any]) -> Callable[[], Any]:
    return lambda: function(*tensors)


# By autograd -------------------------------------------------------------------------------------


def _gradient(torch: Any, forward: Forward, wrt: Sequence[Any]) -> Callable[[], Any]:
    def call() -> Any:
        loss = forward()
        return (loss, *torch.autograd.grad(loss, wrt))

    return call


def _pullback(torch: Any, forward: Forward, wrt: Sequence[Any], head: Any) -> Callable[[], Any]:
    return lambda: torch.autograd.grad(forward(), wrt, head)


def _both(torch: Any, forward: Forward, wrt: Sequence[Any], head: Any) -> Callable[[], Any]:
    def call() -> Any:
        value = forward()
        return (value, *torch.autograd.grad(value, wrt, head))

    return call


def _step(torch: Any, forward: Forward, wrt: Sequence[Any]) -> Callable[[], Any]:
    def call() -> Any:
        loss = forward()
        gradients = torch.autograd.grad(loss, wrt)
        with torch.no_grad():
            return (loss, *torch._foreach_add(wrt, gradients, alpha=-RATE))

    return call


def _jacobian(torch: Any, forward: Forward, wrt: Sequence[Any]) -> Callable[[], Any]:
    def call() -> Any:
        # rows do not depend on each other: the sum of a column has the gradients of all rows
        output = forward()
        columns = [
            torch.autograd.grad(output[:, place].sum(), wrt, retain_graph=True)
            for place in range(output.shape[1])
        ]
        return tuple(map(torch.stack, zip(*columns, strict=True)))

    return call


_AUTOGRAD = {
    "gradient": _gradient,
    "pullback": _pullback,
    "both": _both,
    "step": _step,
    "jacobian": _jacobian,
}


# As functions ------------------------------------------------------------------------------------


def _gradient_function(torch: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    both = torch.func.grad_and_value(forward, argnums=places)

    def derivative(*inputs: Any) -> Any:
        gradients, value = both(*inputs)
        return (value, *gradients)

    return derivative


def _of_chosen(function: Forward, places: tuple[int, ...], inputs: Sequence[Any]) -> Forward:
    """The function of the chosen inputs, with the others fixed."""

    def chosen(*values: Any) -> Any:
        full = list(inputs)
        for place, value in zip(places, values, strict=True):
            full[place] = value
        return function(*full)

    return chosen


def _pulled_back(torch: Any, forward: Forward, places: tuple[int, ...], inputs: Any) -> Any:
    """The output, and the function from its cotangent to those of the chosen inputs."""
    chosen = _of_chosen(forward, places, inputs)
    return torch.func.vjp(chosen, *(inputs[place] for place in places))


def _pullback_function(torch: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    def derivative(*tensors: Any) -> Any:
        *inputs, head = tensors
        return _pulled_back(torch, forward, places, inputs)[1](head)

    return derivative


def _both_function(torch: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    def derivative(*tensors: Any) -> Any:
        *inputs, head = tensors
        value, pull = _pulled_back(torch, forward, places, inputs)
        return (value, *pull(head))

    return derivative


def _step_function(torch: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    gradient = _gradient_function(torch, forward, places)

    def derivative(*inputs: Any) -> Any:
        value, *gradients = gradient(*inputs)
        updated = (
            inputs[place] - RATE * slope for place, slope in zip(places, gradients, strict=True)
        )
        return (value, *updated)

    return derivative


def _jacobian_function(torch: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    def derivative(*inputs: Any) -> Any:
        output, pull = _pulled_back(torch, forward, places, inputs)
        unit = torch.eye(output.shape[1], dtype=output.dtype)
        return torch.func.vmap(lambda row: pull(row.expand(output.shape)))(unit)

    return derivative


def _hessian_function(torch: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    hessian = torch.func.hessian(forward, argnums=places[0])
    return lambda *inputs: (hessian(*inputs),)


def _hvp_function(torch: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    gradient = torch.func.grad(forward, argnums=places)

    def derivative(*tensors: Any) -> Any:
        count = len(tensors) - len(places)
        inputs, directions = tensors[:count], tensors[count:]
        at = tuple(inputs[place] for place in places)
        return torch.func.jvp(_of_chosen(gradient, places, inputs), at, directions)[1]

    return derivative


def _csr_function(torch: Any, forward: Forward, places: tuple[int, ...]) -> Forward:
    return lambda *tensors: (forward(*tensors),)


_FUNCTIONAL = {
    "gradient": _gradient_function,
    "pullback": _pullback_function,
    "both": _both_function,
    "step": _step_function,
    "jacobian": _jacobian_function,
    "hessian": _hessian_function,
    "hvp": _hvp_function,
    "csr": _csr_function,
}


def answers(results: Any) -> list[Array]:
    """The results of a call as numpy arrays."""
    return [result.detach().numpy() for result in results]


def warm() -> None:
    """Load the library."""
    import torch._dynamo  # noqa: F401  (as large as all the rest)
