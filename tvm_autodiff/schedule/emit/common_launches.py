"""Removes launches that repeat an earlier one, such as packing the same operand for several
products.

Readers of a repeated launch read the first result. A step of a recurrent network packs the same
weights as every other, and one copy serves all. Results of stages are not compared: those that are
equal were merged before, unless the user asked for one to be computed again (`checkpoint`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...codegen.stages.primfunc import StageFunction, same_function
from ...expr.nodes import Tensor, tensor_key
from ..machine import Machine
from ..work import bytes_of
from .updates import Step

Key = tuple[int, int]


def without_common_launches(steps: Sequence[Step], machine: Machine) -> list[Step]:
    """``p = f(x); ..; q = f(x); g(q) → p = f(x); ..; g(p)``.

    Parameters
    ----------
    steps : sequence of Step
        The launches in order.
    machine : Machine
        The machine. A result is shared while it may still be in the cache: later it would keep its
        memory for nothing.
    """
    first: dict[tuple[Key, ...], list[_Seen]] = {}
    same: dict[Key, Tensor] = {}
    result: list[Step] = []
    written = 0  # bytes so far
    for step in steps:
        inputs = tuple(same.get(tensor_key(tensor), tensor) for tensor in step.launch.inputs)
        launch = replace(step.launch, inputs=inputs)
        sizes = [bytes_of(tensor) for tensor in launch.outputs]
        written += sum(machine.cache_bytes if size is None else size for size in sizes)
        stages = {tensor_key(tensor) for tensor in step.kernel.outputs}
        if not any(tensor_key(tensor) in stages for tensor in launch.outputs):
            earlier = first.setdefault(tuple(map(tensor_key, inputs)), [])
            found = next((e for e in earlier if same_function(e.launch.func, launch.func)), None)
            if found is None:
                earlier.append(_Seen(launch, written))
            elif written - found.last_use > machine.cache_bytes:
                found.launch, found.last_use = launch, written
            else:
                old = found.launch.outputs
                same |= {tensor_key(a): b for a, b in zip(launch.outputs, old, strict=True)}
                found.last_use = written
                continue
        result.append(replace(step, launch=launch))
    return result


@dataclass
class _Seen:
    """A launch that later ones may repeat; `last_use` counts the bytes written until then."""

    launch: StageFunction
    last_use: int
