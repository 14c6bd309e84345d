"""Makes the forward program and the backward program for a choice of residuals.

The forward program computes outputs and kept tensors from the inputs. The backward program computes
adjoints from residuals and cotangents. The source of each residual is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..codegen.stages.sizes import known_sizes
from ..expr.nodes import Tensor, node_id, tensor_key
from ..graph.free_variables import free_variables
from ..graph.graph import Graph, rebuild
from ..graph.stage import placeholder_like
from ..schedule.rewrites.normal_form import copy_of
from .choice import Residuals
from .joint import Joint


@dataclass(frozen=True)
class Program:
    """Tensors to build: placeholders, and the tensors computed from them."""

    inputs: list[Tensor]
    outputs: list[Tensor]


@dataclass(frozen=True)
class Passes:
    """A forward and a backward program.

    Attributes
    ----------
    forward : Program
        From the inputs to the outputs, followed by kept tensors that are not outputs.
    backward : Program
        From residuals, followed by cotangents, to the adjoints.
    passed : tuple of int
        The inputs that are residuals; they come first.
    kept : tuple of int
        The outputs of the forward program that are the other residuals.
    """

    forward: Program
    backward: Program
    passed: tuple[int, ...]
    kept: tuple[int, ...]


def passes_of(program: Joint, inputs: Sequence[Tensor], residuals: Residuals) -> Passes:
    """The programs of both passes."""
    kept = residuals.of("kept")
    results = distinct(program.outputs)
    numbers = {tensor_key(tensor): number for number, tensor in enumerate(results)}
    for tensor in kept:
        if tensor_key(tensor) not in numbers:
            numbers[tensor_key(tensor)] = len(results)
            results.append(tensor)
    given = [placeholder_like(tensor) for tensor in kept]
    table = {tensor_key(old): new for old, new in zip(kept, given, strict=True)}
    adjoints = distinct(rebuild(program.adjoints, lambda tensor: table.get(tensor_key(tensor))))
    passed = inputs_of(adjoints, inputs, [*given, *program.cotangents])
    return Passes(
        Program(list(inputs), results),
        Program([*(inputs[n] for n in passed), *given, *program.cotangents], adjoints),
        tuple(passed),
        tuple(numbers[tensor_key(tensor)] for tensor in kept),
    )


def distinct(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors, with repeated ones replaced by copies: a program returns each tensor once."""
    seen: set[tuple[int, int]] = set()
    results = []
    for tensor in tensors:
        results.append(copy_of(tensor) if tensor_key(tensor) in seen else tensor)
        seen.add(tensor_key(tensor))
    return results


def inputs_of(
    adjoints: Sequence[Tensor], inputs: Sequence[Tensor], others: Sequence[Tensor]
) -> list[int]:
    """The numbers of the inputs that a program needs.

    These are the inputs that it reads, and inputs whose shapes define sizes that nothing else
    defines.
    """
    graph = Graph(adjoints)
    passed = [number for number, tensor in enumerate(inputs) if graph.contains(tensor)]
    needed = {node_id(var) for op in graph.ops for var in free_variables(op)}

    def missing(chosen: Sequence[int]) -> set[int]:
        told = known_sizes([*(inputs[number] for number in chosen), *others])
        return needed - {node_id(var) for var in told}

    for number in range(len(inputs)):
        if not missing(passed):
            break
        if number not in passed and len(missing([*passed, number])) < len(missing(passed)):
            passed = sorted([*passed, number])
    return passed
