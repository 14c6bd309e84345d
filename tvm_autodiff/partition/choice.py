"""Chooses the residuals that a forward pass keeps: by estimated time, or by bytes.

Without a budget, time counts as operations. A kept tensor is written, unless the forward pass
writes it anyway, and read. A recomputed stage costs its arithmetic, and is written and read if it
is not fused into its readers. An input costs one read. With a budget, the bytes of the kept tensors
stay below it and iterations are minimal; arithmetic breaks ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..errors import InvalidArgumentError
from ..expr.nodes import Tensor, tensor_key
from ..graph.stage import is_placeholder, outputs_of, shape_of
from .budget import within_budget
from .joint import Joint, Sizes, Stage
from .problem import Choice, Item, Problem, cheapest

#: The operations that a machine performs while memory transfers a byte: 67 TFLOP/s of float32 and
#: 3.35 TB/s of an H100 (NVIDIA's data sheet) are 20, 7.4 TFLOP/s and 461 GB/s of an EPYC 9654
#: (AMD's) are 16; half of the smaller one, since these count a fused multiplication and addition as
#: two.
OPERATIONS_PER_BYTE = 8


@dataclass(frozen=True)
class Row:
    """A tensor or a stage, and the decision about it.

    Attributes
    ----------
    tensor : Tensor
        The tensor.
    kind : {"kept", "input", "recomputed"}
        The decision.
    bytes : int
        The size of the tensor, estimated with a sample size for symbols without a value.
    iterations : int
        The iterations to recompute it from what its stage reads; 0 for an input.
    """

    tensor: Tensor
    kind: str
    bytes: int
    iterations: int


@dataclass(frozen=True)
class Residuals:
    """What a forward pass keeps for a backward pass, and what the backward pass recomputes.

    Attributes
    ----------
    rows : tuple of Row
        The rows, inputs first, then in the order of the forward pass.
    budget : int or None
        The budget in bytes.
    exact : bool
        Whether no choice within the budget recomputes less.
    sampled : bool
        Whether symbolic sizes without a value were replaced by a sample size.
    """

    rows: tuple[Row, ...]
    budget: int | None
    exact: bool
    sampled: bool

    def of(self, kind: str) -> list[Tensor]:
        """The tensors of a kind."""
        return [row.tensor for row in self.rows if row.kind == kind]

    def with_inputs(self, tensors: Sequence[Tensor], sizes: Sizes) -> Residuals:
        """The same residuals, preceded by the inputs that are passed on."""
        rows = [Row(tensor, "input", sizes.bytes_of(tensor), 0) for tensor in tensors]
        return replace(self, rows=(*rows, *self.rows))

    @property
    def kept_bytes(self) -> int:
        """The bytes that are kept in addition to inputs."""
        return sum(row.bytes for row in self.rows if row.kind == "kept")

    @property
    def iterations(self) -> int:
        """The iterations that both passes perform."""
        return sum(row.iterations for row in self.rows if row.kind == "recomputed")

    def __str__(self) -> str:
        width = max((len(f"{row.bytes:,}") for row in self.rows), default=1)
        names = max((len(row.tensor.op.name) for row in self.rows), default=1)
        lines = [
            f"{row.bytes:>{width},}  {row.kind:10}  {row.tensor.op.name:{names}}  {_note(row)}"
            for row in self.rows
        ]
        total = f"{self.kept_bytes:>{width},}  bytes kept, {self.iterations:,} iterations again"
        if self.budget is not None:
            least = "the least" if self.exact else "perhaps not the least"
            total += f", {least} for {self.budget:,} bytes"
        if self.sampled:
            total += "; symbolic sizes without a value count as 64"
        return "\n".join(line.rstrip() for line in [*lines, total])


def _note(row: Row) -> str:
    if row.kind == "input":
        return "passed on"
    return f"{row.iterations:,} iterations" + (" saved" if row.kind == "kept" else "")


def choose(program: Joint, sizes: Sizes, budget: int | None) -> Residuals:
    """Decide what is kept and what is recomputed.

    Raises
    ------
    InvalidArgumentError
        If a budget is given and the size of a tensor is unknown.
    """
    tensors = _tensors(program)
    unknown = [
        tensor
        for tensor in tensors
        if not is_placeholder(tensor.op) and not all(map(sizes.known, shape_of(tensor)))
    ]
    if budget is not None and unknown:
        raise InvalidArgumentError(
            f"memory_budget: tensor {unknown[0].op.name} has a symbolic shape, so its bytes are "
            "not known: give the sizes to plan for, as in sizes={'n': 1024}"
        )
    problem = _problem(program, tensors, sizes, by_time=budget is None)
    if budget is None:
        found, exact = cheapest(problem), True
    else:
        within = within_budget(problem, budget)
        found, exact = within.choice, within.exact(problem)
    rows = _rows(program, tensors, sizes, found)
    return Residuals(tuple(rows), budget, exact, bool(unknown))


def _tensors(program: Joint) -> list[Tensor]:
    """Everything that is read or computed, inputs first."""
    computed = [tensor for stage in program.stages for tensor in outputs_of(stage.op)]
    read = [tensor for stage in program.stages for tensor in stage.reads]
    inputs = {
        tensor_key(tensor): tensor
        for tensor in [*program.needed, *read]
        if is_placeholder(tensor.op)
    }
    return [*inputs.values(), *computed]


def _problem(program: Joint, tensors: list[Tensor], sizes: Sizes, *, by_time: bool) -> Problem:
    numbers = {tensor_key(tensor): number for number, tensor in enumerate(tensors)}
    places = {hash(stage.op): place for place, stage in enumerate(program.stages)}
    items = []
    for tensor in tensors:
        size = sizes.bytes_of(tensor)
        place = places.get(hash(tensor.op))
        passes = 1 if place is None or program.stages[place].stored_forward else 2
        items.append(Item(place, 0 if place is None else size, passes * _moved(size)))
    total = 1 + sum(stage.operations for stage in program.stages)

    def work(stage: Stage) -> int:
        if not by_time:
            return stage.iterations * total + stage.operations
        size = sum(map(sizes.bytes_of, outputs_of(stage.op))) if stage.stored_backward else 0
        return stage.operations + 2 * _moved(size)

    return Problem(
        items,
        [tuple(numbers[tensor_key(t)] for t in stage.reads) for stage in program.stages],
        [work(stage) for stage in program.stages],
        [numbers[tensor_key(tensor)] for tensor in program.needed],
        frozenset(
            numbers[tensor_key(tensor)]
            for stage in program.stages
            if stage.never_kept
            for tensor in outputs_of(stage.op)
        ),
    )


def _moved(size: int) -> int:
    return OPERATIONS_PER_BYTE * size


def _rows(program: Joint, tensors: list[Tensor], sizes: Sizes, found: Choice) -> list[Row]:
    stages = {hash(stage.op): (place, stage) for place, stage in enumerate(program.stages)}
    rows = []
    for number, tensor in enumerate(tensors):
        size = sizes.bytes_of(tensor)
        if hash(tensor.op) not in stages:
            continue
        place, stage = stages[hash(tensor.op)]
        if number in found.kept:
            rows.append(Row(tensor, "kept", size, stage.iterations))
        elif place in found.again and tensor.value_index == 0:
            rows.append(Row(tensor, "recomputed", size, stage.iterations))
    return rows
