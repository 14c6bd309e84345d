"""Determines which tensors between launches need memory, for how long, and the arguments of each
launch.

The caller defines what a location is.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from ...codegen.modules import only_reshapes
from ...codegen.passes.in_place import shared
from ...codegen.stages.primfunc import StageFunction
from ...expr.nodes import Tensor, tensor_key
from ...expr.simplify import prove_equal
from .loop_workspace import size_in_bytes
from .updates import Step

Key = tuple[int, int]  #: of a tensor
Place = TypeVar("Place", bound=Hashable)


def aliases_of(
    steps: Sequence[Step],
    given: Container[Key],
    updated: Container[Key],
    once: int = 0,
    results: Container[Key] = (),
) -> dict[Key, Key]:
    """Temporaries that share memory with another tensor, and that tensor.

    They hold its elements in the same order, or reuse its memory after its last use. The first
    `once` steps run once where the others are repeated. The memory of `results`, which are `given`,
    may be written at any time.
    """
    aliases: dict[Key, Key] = {}
    computed: set[Key] = set()
    reused = reused_memory(steps, given, once)
    for step in steps:
        launch = step.launch
        for written, read in launch.reuses:
            if tensor_key(written) in reused and tensor_key(read) not in aliases:
                aliases[tensor_key(written)] = tensor_key(read)
        computed |= set(map(tensor_key, launch.outputs))
        if not _may_reshape(launch):
            continue
        read, written = tensor_key(launch.inputs[0]), tensor_key(launch.outputs[0])
        if written in results and read in computed - set(aliases) and read not in given:
            if _has_equal_sizes(launch) and only_reshapes(launch.func):
                aliases |= {key: written for key, root in aliases.items() if root == read}
                aliases[read] = written
        # an old value must outlive its input
        elif written not in given and read not in updated and only_reshapes(launch.func):
            aliases[written] = aliases.get(read, read)
    return aliases


def is_in_place(launch: StageFunction, places: Mapping[Key, Place]) -> bool:
    """Whether a launch would write the elements that it reads to where they are."""
    if not _may_reshape(launch):
        return False
    read, written = (places[tensor_key(t)] for t in (launch.inputs[0], launch.outputs[0]))
    return read == written and only_reshapes(launch.func)


def _has_equal_sizes(launch: StageFunction) -> bool:
    """Whether a launch writes as many elements as it reads, not the first of them only."""
    read, written = (size_in_bytes(t) for t in (launch.inputs[0], launch.outputs[0]))
    return prove_equal(read, written)


def _may_reshape(launch: StageFunction) -> bool:
    return len(launch.inputs) == 1 and len(launch.outputs) == 1 and not launch.callees


def reused_memory(steps: Sequence[Step], given: Container[Key], once: int = 0) -> dict[Key, Key]:
    """Results that may reuse the memory of an input, and that input.

    A step of the same round wrote the input, and no later step reads it or what holds its elements.
    """
    writer: dict[Key, int] = {}
    last: dict[Key, int] = {}
    for number, step in enumerate(steps):
        writer |= {tensor_key(tensor): number for tensor in step.launch.outputs}
        last |= {tensor_key(tensor): number for tensor in step.launch.inputs}
    found: dict[Key, Key] = {}
    for number, step in enumerate(steps):
        for written, read in step.launch.reuses:
            key = tensor_key(read)
            same_round = key in writer and (writer[key] >= once or number < once)
            alone = not any(only_reshapes(steps[n].launch.func) for n in _readers(steps, key))
            free = key not in given and tensor_key(written) not in given
            if same_round and free and last[key] == number and alone:
                found[tensor_key(written)] = key
    return found


def _readers(steps: Sequence[Step], key: Key) -> list[int]:
    return [n for n, step in enumerate(steps) if key in map(tensor_key, step.launch.inputs)]


def temporaries_of(
    steps: Sequence[Step], given: Container[Key], aliases: Mapping[Key, Key]
) -> dict[Key, tuple[Tensor, int, int]]:
    """The tensors that need memory between launches, in the order in which they are written.

    Each comes with the numbers of the launch that writes it and of its last use.
    """
    last: dict[Key, int] = {}
    for number, step in enumerate(steps):
        for tensor in (*step.launch.inputs, *step.launch.outputs):
            key = tensor_key(tensor)
            last[aliases.get(key, key)] = number
    found: dict[Key, tuple[Tensor, int, int]] = {}
    for number, step in enumerate(steps):
        for tensor in step.launch.outputs:
            key = tensor_key(tensor)
            if key not in given and key not in aliases:
                found[key] = tensor, number, last[key]
    return found


def bound(launch: StageFunction, places: Mapping[Key, Place]) -> tuple[Any, tuple[Place, ...]]:
    """The function of a launch and its arguments without sizes.

    A result that replaces an input is one parameter with it.
    """
    func = launch.func
    count = len(launch.inputs)
    read = {places[tensor_key(t)]: p for t, p in zip(launch.inputs, func.params, strict=False)}
    arguments = [places[tensor_key(tensor)] for tensor in launch.inputs]
    written = list(func.params)[count + len(launch.scalars) :]
    for tensor, param in zip(launch.outputs, written, strict=True):
        place = places[tensor_key(tensor)]
        if place in read:
            func = shared(func, read[place], param)
        else:
            arguments.append(place)
    return func, tuple(arguments)


def runs_once(
    steps: Sequence[Step], varying: Collection[Key], results: Container[Key]
) -> list[bool]:
    """Whether one run of each launch of a repeated step serves all steps.

    Such a launch reads nothing that depends on `varying`, and writes no results of the step.
    """
    touched = set(varying)
    found = []
    for step in steps:
        launch = step.launch
        reads = any(tensor_key(tensor) in touched for tensor in launch.inputs)
        once = not reads and not any(tensor_key(tensor) in results for tensor in launch.outputs)
        if not once:
            touched |= {tensor_key(tensor) for tensor in launch.outputs}
        found.append(once)
    return found
