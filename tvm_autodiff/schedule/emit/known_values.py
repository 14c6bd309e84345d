"""Runs the launches of constants when a program is built: calls find their results beside the code.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from ...codegen.modules import module_of
from ...codegen.stages.primfunc import StageFunction
from ...expr.nodes import dtype_of, tensor_key
from ...graph.stage import shape_of
from ..fusion.groups import FusionGroup
from .program import finished_function
from .updates import Step

Key = tuple[int, int]  #: of a tensor


def with_known_values(
    steps: Sequence[Step], constants: Container[int], compiled: Callable[[Any], Any]
) -> tuple[list[Step], dict[Key, np.ndarray]]:
    """The launches without those of constants, and the values that the others read.

    Parameters
    ----------
    steps
        Launches in order of execution.
    constants
        The ids of the stages that are constants, as `constant_stages` finds them.
    compiled
        Compiles a module for this host.
    """
    known: list[StageFunction] = []
    rest: list[Step] = []
    there: set[Key] = set()
    for step in steps:
        launch = step.launch
        if _is_constant(step, constants) and there >= {tensor_key(t) for t in launch.inputs}:
            known.append(launch)
            there |= {tensor_key(tensor) for tensor in launch.outputs}
        else:
            rest.append(step)
    if not known:
        return rest, {}
    values = _values(known, compiled)
    read = {tensor_key(tensor) for step in rest for tensor in step.launch.inputs}
    return rest, {key: value for key, value in values.items() if key in read}


def _is_constant(step: Step, constants: Container[int]) -> bool:
    parts = step.kernel.parts if isinstance(step.kernel, FusionGroup) else [step.kernel]
    plain = not (step.launch.callees or step.launch.scalars)
    return plain and all(hash(op) in constants for part in parts for op in part.ops)


def _values(
    launches: Sequence[StageFunction], compiled: Callable[[Any], Any]
) -> dict[Key, np.ndarray]:
    """What launches compute."""
    functions = {
        f"constant{n}": finished_function(launch.func).with_attr("global_symbol", f"constant{n}")
        for n, launch in enumerate(launches)
    }
    code = compiled(module_of(functions))
    values: dict[Key, np.ndarray] = {}
    for number, launch in enumerate(launches):
        for tensor in launch.outputs:
            values[tensor_key(tensor)] = np.empty(shape_of(tensor), dtype_of(tensor))
        tensors = (*launch.inputs, *launch.outputs)
        code[f"constant{number}"](*(values[tensor_key(tensor)] for tensor in tensors))
    return values
