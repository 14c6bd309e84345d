"""Launches as one host function that calls them directly, for programs of constant sizes on a CPU.

In: launches in order, the inputs and outputs of the program, the inputs that take new values. Out:
a module of kernels and ``main``, and the plan of its workspace. Beside Relax's virtual machine,
which `program` takes for everything else, a launch costs nanoseconds. A kernel that only copies
between temporaries is another name of what it reads; identical kernels appear once.
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
    by_address,
    calling,
)
from ...codegen.modules import (
    FunctionVar,
    function_hash,
    function_var,
    module_of,
    only_reshapes,
)
from ...codegen.passes.function_widths import with_safe_indices
from ...codegen.passes.in_place import shared
from ...codegen.primfunc import StageFunction, relax_alignment, same_function
from ...expr.nodes import Tensor, tensor_key
from ...graph.stage import shape_of
from ..work import bytes_of
from .names import identifier
from .updates import Step, Update
from .workspace import Temporary, Workspace, plan_workspace

Key = tuple[int, int]  #: of a tensor


@dataclass(frozen=True)
class DirectProgram:
    """A module, the names of the functions that the launches call, and the temporaries' places."""

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
    """The module of a program; arguments as of `program.assemble`."""
    given = {tensor_key(t): Parameter(number) for number, t in enumerate((*inputs, *outputs))}
    updated = {tensor_key(old) for old, _ in updates}
    given |= {tensor_key(new): given[tensor_key(old)] for old, new in updates}
    aliases = _aliases(steps, given, updated)
    places: dict[Key, Place] = {**given}
    temporaries = _temporaries(steps, given, aliases)
    workspace = plan_workspace(list(temporaries.values()), ALIGNMENT)
    places |= {
        key: Offset(offset) for key, offset in zip(temporaries, workspace.offsets, strict=True)
    }
    for key, root in aliases.items():
        places[key] = places[root]
    functions = _Functions()
    calls: list[DirectCall | None] = []
    names: list[str] = []
    for step in steps:
        if tensor_key(step.launch.outputs[0]) in aliases:
            calls.append(None)
            names.append(step.kernel.name)
            continue
        func, arguments = _bound(step.launch, places)
        var = functions.add(func, step.kernel.name)
        calls.append(DirectCall(var, arguments))
        names.append(str(var.name_hint))
    main = calling(len(inputs) + len(outputs), calls)
    module = module_of({**functions.module, function_var("main"): main})
    return DirectProgram(module, tuple(names), workspace)


def _aliases(
    steps: Sequence[Step], given: dict[Key, Parameter], updated: set[Key]
) -> dict[Key, Key]:
    """Temporaries that hold the elements of another tensor in the same order, and that one."""
    aliases: dict[Key, Key] = {}
    for step in steps:
        launch = step.launch
        if len(launch.inputs) != 1 or len(launch.outputs) != 1:
            continue
        read, written = tensor_key(launch.inputs[0]), tensor_key(launch.outputs[0])
        # an old value must outlive its input
        if written in given or read in updated:
            continue
        if only_reshapes(launch.func):
            aliases[written] = aliases.get(read, read)
    return aliases


def _temporaries(
    steps: Sequence[Step], given: dict[Key, Parameter], aliases: dict[Key, Key]
) -> dict[Key, Temporary]:
    """What lies in the workspace, in the order in which it is written."""
    last: dict[Key, int] = {}
    for number, step in enumerate(steps):
        for tensor in (*step.launch.inputs, *step.launch.outputs):
            key = tensor_key(tensor)
            last[aliases.get(key, key)] = number
    found: dict[Key, Temporary] = {}
    for number, step in enumerate(steps):
        for tensor in step.launch.outputs:
            key = tensor_key(tensor)
            if key not in given and key not in aliases:
                size = bytes_of(tensor)
                assert size is not None, "the sizes of a direct program are literals"
                found[key] = Temporary(str(tensor.op.name), size, number, last[key])
    return found


def _bound(launch: StageFunction, places: dict[Key, Place]) -> tuple[Any, tuple[Place, ...]]:
    """The function of a launch and its arguments; a result that takes the place of an input is one
    parameter with it.
    """
    func = launch.func
    count = len(launch.inputs)
    read = {places[tensor_key(t)]: p for t, p in zip(launch.inputs, func.params, strict=False)}
    arguments = [places[tensor_key(tensor)] for tensor in launch.inputs]
    for tensor, param in zip(launch.outputs, list(func.params)[count:], strict=True):
        place = places[tensor_key(tensor)]
        if place in read:
            func = shared(func, read[place], param)
        else:
            arguments.append(place)
    return func, tuple(arguments)


class _Functions:
    """The kernels of a module, each once."""

    def __init__(self) -> None:
        self.module: dict[FunctionVar, Any] = {}
        self._known: dict[int, list[tuple[Any, FunctionVar]]] = {}
        self._names: set[str] = {"main"}

    def add(self, func: Any, name: str) -> FunctionVar:
        """The variable of a scheduled function."""
        same = self._known.setdefault(function_hash(func), [])
        for known, var in same:
            if same_function(known, func):
                return var
        text = identifier(name)
        unique, number = text, 1
        while unique in self._names:
            unique, number = f"{text}_{number}", number + 1
        self._names.add(unique)
        var = function_var(unique)
        # safe to compile, and to call with what is aligned to its elements only
        self.module[var] = by_address(relax_alignment(with_safe_indices(func)), unique)
        same.append((func, var))
        return var
