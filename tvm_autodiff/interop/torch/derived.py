"""Derives programs from a program: pullback, pushforward, batch, and the two passes.

Each result lists which of its possible arguments it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...expr.build import variable
from ...expr.nodes import Tensor, is_float
from ...functions.array_function import plain_outputs
from ...functions.modes import pulled, pushed
from ...graph.stage import placeholder, placeholder_like, shape_of
from ...partition.joint import Sizes
from ...partition.programs import Passes, Program, inputs_of
from ...partition.split import split
from ...transforms.batch import batch_of_tensors

#: more bytes than residuals can take: all are kept, and nothing is recomputed
ALL = 1 << 60

#: the budget in bytes of each way to choose residuals; None minimises the time
BUDGETS: Mapping[str, int | None] = {"auto": None, "all": ALL, "recompute": 0}

#: a program, and which of its possible arguments it reads
Derived = tuple[Program, tuple[int, ...]]


def pullback(program: Program, wrt: Sequence[int], heads: Sequence[int]) -> Derived:
    """The program from inputs and cotangents of the outputs `heads` to cotangents of the inputs
    `wrt`.
    """
    cotangents = _cotangents(program, heads)
    adjoints = _adjoints(program, wrt, cotangents)
    return _reading([*program.inputs, *_present(cotangents)], adjoints)


def pushforward(program: Program, moving: Sequence[int]) -> Derived:
    """The program from inputs and tangents of the inputs `moving` to tangents of floating point
    outputs.
    """
    tangents = [
        placeholder_like(tensor, f"{tensor.op.name}_dot") if number in moving else None
        for number, tensor in enumerate(program.inputs)
    ]
    moved = _present(pushed(program.outputs, program.inputs, tangents))
    return _reading([*program.inputs, *_present(tangents)], plain_outputs(moved))


def batched(program: Program, members: Sequence[bool], size: int) -> Program:
    """The program for a batch, with the batch axis first.

    `members` selects the inputs that differ between members. The outputs always do.
    """
    dims = [dim for tensor in program.inputs for dim in shape_of(tensor)]
    fixed = all(isinstance(dim, int) for dim in dims)
    extent = size if fixed else variable("members")
    inputs, pairs = list(program.inputs), []
    for number, (tensor, many) in enumerate(zip(program.inputs, members, strict=True)):
        if many:
            shape = [extent, *shape_of(tensor)]
            inputs[number] = placeholder(shape, str(tensor.dtype), tensor.op.name)
            pairs.append((tensor, inputs[number]))
    return Program(inputs, plain_outputs(batch_of_tensors(program.outputs, pairs, extent)))


def two_passes(
    program: Program, wrt: Sequence[int], budget: int | None, sizes: Mapping[str, int]
) -> tuple[Passes, Derived]:
    """A forward and a backward program, and the pullback that they compute together.

    The backward program takes cotangents of all floating point outputs.
    """
    heads = [number for number, tensor in enumerate(program.outputs) if is_float(tensor)]
    cotangents = _cotangents(program, heads)
    adjoints = _adjoints(program, wrt, cotangents)
    given = _present(cotangents)
    passes, _ = split(program.inputs, program.outputs, adjoints, given, Sizes(sizes), budget)
    return passes, _reading([*program.inputs, *given], adjoints)


def selected(program: Program, numbers: Sequence[int]) -> Program:
    """The program with some of its outputs."""
    return Program(program.inputs, [program.outputs[number] for number in numbers])


def _cotangents(program: Program, heads: Sequence[int]) -> list[Tensor | None]:
    return [
        placeholder_like(tensor, f"{tensor.op.name}_bar") if number in heads else None
        for number, tensor in enumerate(program.outputs)
    ]


def _adjoints(
    program: Program, wrt: Sequence[int], cotangents: Sequence[Tensor | None]
) -> list[Tensor]:
    by = [program.inputs[number] for number in wrt]
    return plain_outputs(_present(pulled(program.outputs, by, cotangents)))


def _reading(arguments: Sequence[Tensor], outputs: Sequence[Tensor]) -> Derived:
    reads = inputs_of(outputs, arguments, [])
    return Program([arguments[number] for number in reads], list(outputs)), tuple(reads)


def _present(tensors: Sequence[Tensor | None]) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor is not None]
