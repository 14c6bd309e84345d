"""Assembles launches into one host function that calls them directly, on a CPU.

A launch then costs nanoseconds, unlike with Relax's virtual machine, which `program` uses for
everything else. A kernel that only copies between temporaries is an alias of what it reads, and
identical kernels appear once. Symbolic sizes, and the offsets of temporaries that follow from them,
come from the table of the call. Some sizes may have launches of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...codegen.host.call_check import further_words
from ...codegen.host.constants import Constants
from ...codegen.host.direct_calls import (
    ALIGNMENT,
    ConstantOffset,
    DirectCall,
    Offset,
    Parameter,
    Parts,
    Place,
    TableOffset,
    calling,
    sizes_of,
)
from ...codegen.host.workspace import Temporary, Workspace, plan_workspace
from ...codegen.modules import function_var, module_of
from ...expr.nodes import Expr, Tensor, Var, node_id, tensor_key
from ...expr.rewrite import variables_of
from ...graph.stage import shape_of
from ..work import bytes_of
from .functions import Functions, Module
from .loop_workspace import Size, size_in_bytes
from .places import Key, aliases_of, bound, is_in_place, temporaries_of
from .updates import Step, Update


@dataclass(frozen=True)
class SizeRange:
    """The calls for which ``low <= size < high``, for an expression of sizes."""

    size: Expr
    low: int
    high: int


@dataclass(frozen=True)
class Part:
    """The launches of a program for some of its calls.

    Attributes
    ----------
    steps : sequence of Step
        Launches in order of execution.
    inputs, outputs : sequence of Tensor
        The parameters of ``main``, as these launches know them.
    updates : sequence of Update
    when : SizeRange or None
        The calls; None for all that no other part is for.
    constants : mapping from key to array
        The values of tensors that the launches read and none writes.
    """

    steps: Sequence[Step]
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    updates: Sequence[Update] = ()
    when: SizeRange | None = None
    constants: Mapping[Key, np.ndarray] = field(default_factory=dict)

    @property
    def is_static(self) -> bool:
        """Whether all of its sizes are literals."""
        return is_static(self.steps, [*self.inputs, *self.outputs])

    @property
    def launches(self) -> int:
        """The number of launches, those of loops included."""
        return sum(step.launches for step in self.steps)


@dataclass(frozen=True)
class PartOfCalls:
    """When a part runs, and the numbers of its launches and of its temporaries."""

    when: SizeRange | None
    launches: int
    temporaries: int


@dataclass(frozen=True)
class CallSizes:
    """What ``main`` reads from the table of a call: sizes, and offsets of temporaries; with several
    parts, also which of them runs.
    """

    variables: tuple[Var, ...]
    temporaries: tuple[Temporary[Size], ...]
    parts: tuple[PartOfCalls, ...] = ()


@dataclass(frozen=True)
class DirectProgram:
    """A module, the names of the functions that the launches call, empty for those of no function,
    and the positions of temporaries, or what determines them at a call.
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


class _Placed:
    """A part, with the places of its tensors that are parameters or constants, and its
    temporaries.
    """

    def __init__(self, part: Part, constants: Constants) -> None:
        arrays = [*part.inputs, *part.outputs]
        given = {tensor_key(tensor): Parameter(number) for number, tensor in enumerate(arrays)}
        updated = {tensor_key(old) for old, _ in part.updates}
        given |= {tensor_key(new): given[tensor_key(old)] for old, new in part.updates}
        known = {key: ConstantOffset(constants.add(v)) for key, v in part.constants.items()}
        self.steps = part.steps
        results = set(map(tensor_key, part.outputs)) - set(updated)
        self.aliases = aliases_of(part.steps, given, updated, results=results)
        self.temporaries = temporaries_of(part.steps, given, self.aliases)
        self.places: dict[Key, Place] = {**given, **known}

    def put(self, offsets: Sequence[Place]) -> None:
        """Set the places of temporaries."""
        self.places |= dict(zip(self.temporaries, offsets, strict=True))
        for key, root in self.aliases.items():
            self.places[key] = self.places[root]


def direct_program(parts: Sequence[Part]) -> DirectProgram:
    """The module of a program, of which the last part is for all calls that no other one is for."""
    constants = Constants()
    usual, placed = parts[-1], [_Placed(part, constants) for part in parts]
    ranks = [len(shape_of(tensor)) for tensor in (*usual.inputs, *usual.outputs)]
    workspace: Workspace | None = None
    sizes: CallSizes | None = None
    words: list[tuple[Var, int]] = []
    chosen: Parts | None = None
    if len(parts) == 1 and usual.is_static:
        [one] = placed
        pieces = [_temporary(*found) for found in one.temporaries.values()]
        workspace = plan_workspace(pieces, ALIGNMENT)
        one.put([Offset(offset) for offset in workspace.offsets])
    else:
        sizes = _call_sizes(parts, placed)
        first = further_words(ranks)
        if sizes.parts:
            chosen = Parts(first, tuple(len(part.steps) for part in parts))
            first += 1
        words = [(var, first + number) for number, var in enumerate(sizes.variables)]
        first += len(words)
        for one in placed:
            one.put([TableOffset(first + number) for number in range(len(one.temporaries))])
            first += len(one.temporaries)
    module = Module()
    functions = Functions(module.put)
    calls: list[DirectCall | None] = []
    names: list[str] = []
    for one in placed:
        _add_calls(one, functions, calls, names)
    main = calling(len(ranks), calls, words, chosen, constants.code)
    made = module_of({**module.functions, function_var("main"): main})
    return DirectProgram(made, tuple(names), workspace, sizes)


def _call_sizes(parts: Sequence[Part], placed: Sequence[_Placed]) -> CallSizes:
    """What a call reads; the launches of temporaries are counted through all parts."""
    temporaries: list[Temporary[Size]] = []
    first = 0
    for part, one in zip(parts, placed, strict=True):
        for tensor, begin, end in one.temporaries.values():
            temporaries.append(_symbolic_temporary(tensor, first + begin, first + end))
        first += len(part.steps)
    used = _used_sizes([step for part in parts for step in part.steps])
    found = tuple(
        PartOfCalls(part.when, part.launches, len(one.temporaries))
        for part, one in zip(parts, placed, strict=True)
    )
    return CallSizes(tuple(used), tuple(temporaries), found if len(parts) > 1 else ())


def _add_calls(
    placed: _Placed,
    functions: Functions,
    calls: list[DirectCall | None],
    names: list[str],
) -> None:
    """Add the calls of a part, and the names of the functions that they call."""
    places = placed.places
    for step in placed.steps:
        if is_in_place(step.launch, places):
            calls.append(None)
            names.append("")
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


def _temporary(tensor: Tensor, first: int, last: int) -> Temporary[int]:
    size = bytes_of(tensor)
    assert size is not None, "the sizes of a direct program are literals"
    return Temporary(str(tensor.op.name), size, first, last)


def _symbolic_temporary(tensor: Tensor, first: int, last: int) -> Temporary[Size]:
    return Temporary(str(tensor.op.name), size_in_bytes(tensor), first, last)
