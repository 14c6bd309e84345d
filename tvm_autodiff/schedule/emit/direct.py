"""Assembles launches into one host function that calls them directly, for constant sizes on a CPU.

A launch then costs nanoseconds, unlike with Relax's virtual machine, which `program` uses for
everything else. A kernel that only copies between temporaries is an alias of what it reads, and
identical kernels appear once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen.direct_calls import (
    ALIGNMENT,
    DirectCall,
    Offset,
    Parameter,
    Place,
    calling,
)
from ...codegen.modules import function_var, module_of
from ...expr.nodes import Tensor, tensor_key
from ...graph.stage import shape_of
from ..work import bytes_of
from .functions import Functions, Module
from .places import Key, aliases_of, bound, temporaries_of
from .updates import Step, Update
from .workspace import Temporary, Workspace, plan_workspace


@dataclass(frozen=True)
class DirectProgram:
    """A module, the names of the functions that the launches call, and the positions of
    temporaries.
    """

    module: Any
    names: tuple[str, ...]
    workspace: Workspace


def is_static(steps: Sequence[Step], tensors: Sequence[Tensor]) -> bool:
    """Whether all sizes of a program are literals."""
    inner = [t for step in steps for t in (*step.launch.inputs, *step.launch.outputs)]
    return not any(step.launch.scalars for step in steps) and all(
        isinstance(extent, int) for tensor in (*tensors, *inner) for extent in shape_of(tensor)
    )


def direct_program(
    steps: Sequence[Step],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    updates: Sequence[Update],
) -> DirectProgram:
    """The module of a program; arguments as in `program.assemble`."""
    given = {tensor_key(t): Parameter(number) for number, t in enumerate((*inputs, *outputs))}
    updated = {tensor_key(old) for old, _ in updates}
    given |= {tensor_key(new): given[tensor_key(old)] for old, new in updates}
    aliases = aliases_of(steps, given, updated)
    places: dict[Key, Place] = {**given}
    temporaries = temporaries_of(steps, given, aliases)
    workspace = plan_workspace([_temporary(*found) for found in temporaries.values()], ALIGNMENT)
    places |= {
        key: Offset(offset) for key, offset in zip(temporaries, workspace.offsets, strict=True)
    }
    for key, root in aliases.items():
        places[key] = places[root]
    module = Module()
    functions = Functions(module.put)
    calls: list[DirectCall | None] = []
    names: list[str] = []
    for step in steps:
        if tensor_key(step.launch.outputs[0]) in aliases:
            calls.append(None)
            names.append(step.kernel.name)
            continue
        func, arguments = bound(step.launch, places)
        only = step.launch.only
        var = functions.add(func, step.kernel.name, only, step.launch.callees)
        calls.append(DirectCall(var, arguments, step.launches, only is not None))
        names.append(str(var.name_hint))
    main = calling(len(inputs) + len(outputs), calls)
    made = module_of({**module.functions, function_var("main"): main})
    return DirectProgram(made, tuple(names), workspace)


def _temporary(tensor: Tensor, first: int, last: int) -> Temporary:
    size = bytes_of(tensor)
    assert size is not None, "the sizes of a direct program are literals"
    return Temporary(str(tensor.op.name), size, first, last)
