"""Removes launches that repeat an earlier one, such as packing the same operand for several
products.

Readers of a repeated launch read the first result. A step of a recurrent network packs the same
weights as every other, and one copy serves all.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from ...codegen.primfunc import same_function
from ...expr.nodes import Tensor, tensor_key
from ..machine import Machine
from ..work import bytes_of
from .updates import Step

Key = tuple[int, int]


def without_repeats(steps: Sequence[Step], kept: Container[Key], machine: Machine) -> list[Step]:
    """``p = f(x); ..; q = f(x); g(q) → p = f(x); ..; g(p)``.

    Parameters
    ----------
    kept
        Keys of tensors that must be written: results of the program.
    machine : Machine
        The machine. Only results that fit its cache are shared, because anything larger would be
        read from memory again.
    """
    first: dict[tuple[Key, ...], list[Step]] = {}
    same: dict[Key, Tensor] = {}
    result: list[Step] = []
    for step in steps:
        inputs = tuple(same.get(tensor_key(tensor), tensor) for tensor in step.launch.inputs)
        launch = replace(step.launch, inputs=inputs)
        outputs = launch.outputs
        small = all(_fits(tensor, machine) for tensor in outputs)
        if small and not any(tensor_key(tensor) in kept for tensor in outputs):
            earlier = first.setdefault(tuple(map(tensor_key, inputs)), [])
            found = next((e for e in earlier if same_function(e.launch.func, launch.func)), None)
            if found is not None:
                old = found.launch.outputs
                same |= {tensor_key(a): b for a, b in zip(outputs, old, strict=True)}
                continue
            earlier.append(replace(step, launch=launch))
        result.append(replace(step, launch=launch))
    return result


def _fits(tensor: Tensor, machine: Machine) -> bool:
    size = bytes_of(tensor)
    return size is not None and size <= machine.cache_bytes
