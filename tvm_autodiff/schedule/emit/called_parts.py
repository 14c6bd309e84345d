"""Programs that a host function calls repeatedly, each time with other addresses.

It plans the memory between the launches of such programs, and writes the statements of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen.host.direct_calls import ALL_LAUNCHES, called, sizes_of
from ...codegen.host.pointers import Pointer, moved
from ...codegen.loop_nest import Statement, bind
from ...codegen.modules import function_var
from ...codegen.stages.primfunc import Callee
from ...expr.build import const
from ...expr.nodes import Expr, Tensor, Var, tensor_key
from ...graph.stage import Extent
from .loop_workspace import Piece, piece_of, planned
from .places import Key, aliases_of, bound, temporaries_of
from .updates import Step


@dataclass(frozen=True)
class Part:
    """A program that is called.

    Attributes
    ----------
    steps : sequence of Step
        Its launches.
    inputs, results : sequence of Tensor
        Its inputs and results.
    length : Var or None
        The size whose value differs between calls.
    """

    steps: Sequence[Step]
    inputs: Sequence[Tensor]
    results: Sequence[Tensor]
    length: Var | None = None


class CalledParts:
    """Programs with shared memory for their temporaries.

    Parameters
    ----------
    parts : sequence of Part
        The programs, which run one after the other.
    spare : sequence of Tensor
        Tensors that need memory at all times.
    """

    def __init__(self, parts: Sequence[Part], spare: Sequence[Tensor]) -> None:
        self.callees: list[Callee] = []
        ordered = [step for part in parts for step in part.steps]
        given = {tensor_key(tensor) for part in parts for tensor in (*part.inputs, *part.results)}
        self._aliases = aliases_of(ordered, given, set())
        lives = temporaries_of(ordered, given, self._aliases)
        pieces: list[Piece] = [piece_of(tensor, 0, len(ordered)) for tensor in spare]
        pieces += [piece_of(*life) for life in lives.values()]
        self.size: Extent
        self.size, offsets = planned(pieces)
        self.spare_offsets = offsets[: len(spare)]
        self._offsets = dict(zip(lives, offsets[len(spare) :], strict=True))

    def call(
        self, part: Part, places: Mapping[Key, Pointer], base: Pointer | None, count: Expr | None
    ) -> list[Statement]:
        """The statements of a call.

        Parameters
        ----------
        part : Part
        places : mapping
            The addresses of its inputs and results.
        base : Pointer or None
            The start of the memory; None if none is needed.
        count : Expr or None
            The value of ``part.length``.
        """
        known = {
            **places,
            **{key: moved(base, offset) for key, offset in self._offsets.items()},
        }
        statements: list[Statement] = []
        if part.length is not None and count is not None:
            statements.append(bind(part.length, count))
        for step in part.steps:
            launch = step.launch
            if tensor_key(launch.outputs[0]) in self._aliases:
                continue
            keys = {
                tensor_key(tensor): self._aliases.get(tensor_key(tensor), tensor_key(tensor))
                for tensor in (*launch.inputs, *launch.outputs)
            }
            func, arguments = bound(launch, keys)
            callee = Callee(
                function_var(step.kernel.name), step.kernel.name, func, launch.only, launch.callees
            )
            self.callees.append(callee)
            first = len(launch.inputs)
            given: list[Any] = [known[key] for key in arguments[:first]]
            given += [*launch.scalars, *(known[key] for key in arguments[first:])]
            given += sizes_of(func)
            if launch.only is not None:
                given.append(const(ALL_LAUNCHES, "int32"))
            statements.append(called(callee.var, given))
        return statements
