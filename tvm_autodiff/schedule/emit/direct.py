"""Assembles launches into one host function that calls them directly, on a CPU.

A launch then costs nanoseconds, unlike with Relax's virtual machine, which `program` uses for
everything else. A kernel that only copies between temporaries is an alias of what it reads, and
identical kernels appear once. Symbolic sizes, and the offsets of temporaries that follow from them,
come from the table of the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen.host.call_check import further_words
from ...codegen.host.direct_calls import (
    ALIGNMENT,
    DirectCall,
    Offset,
    Parameter,
    Place,
    TableOffset,
    calling,
    sizes_of,
)
from ...codegen.host.workspace import Temporary, Workspace, plan_workspace
from ...codegen.modules import function_var, module_of
from ...expr.nodes import Tensor, Var, node_id, tensor_key
from ...expr.rewrite import variables_of
from ...graph.stage import shape_of
from ..work import bytes_of
from .functions import Functions, Module
from .loop_workspace import Size, size_in_bytes
from .places import Key, aliases_of, bound, temporaries_of
from .updates import Step, Update


@dataclass(frozen=True)
class CallSizes:
    """What ``main`` reads from the table of a call: sizes, and offsets of temporaries."""

    variables: tuple[Var, ...]
    temporaries: tuple[Temporary[Size], ...]


@dataclass(frozen=True)
class DirectProgram:
    """A module, the names of the functions that the launches call, and the positions of
    temporaries, or what determines them at a call.
    """

    module: Any
    names: tuple[str, ...]
    workspace: Workspace | None
    sizes: CallSizes | None


def is_static(steps: Sequence[Step], tensors: Sequence[Tensor]) -> bool:
    """Whether all sizes of a program are literals."""
    inner = [t for step in steps for t in (*step.launch.inputs, *step.launch.outputs)]
    return not any(step.launch.scalars for step in steps) and all(
        isinstance(extent, int) for tensor in (*tensors, *inner) for extent in shape_of(tensor)
    )


def are_sizes_known(steps: Sequence[Step], inputs: Sequence[Tensor]) -> bool:
    """Whether the shapes of the inputs tell all sizes of a program."""
    told = {node_id(var) for var in _variables(inputs)}
    inner = [t for step in steps for t in (*step.launch.inputs, *step.launch.outputs)]
    return all(node_id(var) in told for var in (*_variables(inner), *_used_sizes(steps)))


def _variables(tensors: Sequence[Tensor]) -> list[Var]:
    return variables_of([d for t in tensors for d in shape_of(t) if not isinstance(d, int)])


def _used_sizes(steps: Sequence[Step]) -> list[Var]:
    """The symbolic sizes that launches take, each once."""
    found = [var for s in steps for var in (*s.launch.scalars, *sizes_of(s.launch.func))]
    return list({node_id(var): var for var in found}.values())


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
    count = len(inputs) + len(outputs)
    workspace: Workspace | None = None
    sizes: CallSizes | None = None
    words: list[tuple[Var, int]] = []
    if is_static(steps, [*inputs, *outputs]):
        pieces = [_temporary(*found) for found in temporaries.values()]
        workspace = plan_workspace(pieces, ALIGNMENT)
        offsets: list[Place] = [Offset(offset) for offset in workspace.offsets]
    else:
        sizes = CallSizes(
            tuple(_used_sizes(steps)),
            tuple(_symbolic_temporary(*found) for found in temporaries.values()),
        )
        first = further_words([len(shape_of(tensor)) for tensor in (*inputs, *outputs)])
        words = [(var, first + number) for number, var in enumerate(sizes.variables)]
        first += len(words)
        offsets = [TableOffset(first + number) for number in range(len(temporaries))]
    places |= dict(zip(temporaries, offsets, strict=True))
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
        func, given_places = bound(step.launch, places)
        reads = len(step.launch.inputs)
        arguments: tuple[Place | Var, ...] = (
            *given_places[:reads],
            *step.launch.scalars,
            *given_places[reads:],
            *sizes_of(func),
        )
        only = step.launch.only
        var = functions.add(func, step.kernel.name, only, step.launch.callees)
        calls.append(DirectCall(var, arguments, step.launches, only is not None))
        names.append(str(var.name_hint))
    main = calling(count, calls, words)
    made = module_of({**module.functions, function_var("main"): main})
    return DirectProgram(made, tuple(names), workspace, sizes)


def _temporary(tensor: Tensor, first: int, last: int) -> Temporary[int]:
    size = bytes_of(tensor)
    assert size is not None, "the sizes of a direct program are literals"
    return Temporary(str(tensor.op.name), size, first, last)


def _symbolic_temporary(tensor: Tensor, first: int, last: int) -> Temporary[Size]:
    return Temporary(str(tensor.op.name), size_in_bytes(tensor), first, last)
