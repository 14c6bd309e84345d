"""Decides where the carried tensors of a loop are stored from step to step, so that few are copied.

Each carried tensor has one of four locations: two buffers that are exchanged, the rows of a result
that is stacked anyway (before or after the step), or its initial value if it never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...codegen.host.pointers import Pointer, copied, either, moved
from ...codegen.loop_nest import Statement, when
from ...expr.build import compare, const
from ...expr.nodes import Expr, Tensor, binary, const_value, tensor_key
from ...graph.stage import is_placeholder
from ..rewrites.normal_form import copy_of, source_of_copies


@dataclass(frozen=True)
class Exchanged:
    """Each step reads one of two buffers and writes the other; the last step writes the result."""

    value: int  #: of the tensors that the step computes


@dataclass(frozen=True)
class AfterStep:
    """A result of the step is the next value, and its rows are the buffers."""

    result: int


@dataclass(frozen=True)
class BeforeStep:
    """A result of the step is its initial value: each step writes the next row."""

    result: int
    value: int


@dataclass(frozen=True)
class Unchanged:
    """Every step passes on the value unchanged."""


Carried: TypeAlias = Exchanged | AfterStep | BeforeStep | Unchanged


@dataclass(frozen=True)
class StepValues:
    """The tensors that a step has to compute, and the locations of its carried tensors.

    Attributes
    ----------
    tensors : tuple of Tensor
        The tensors, each computed by a stage.
    carried : tuple of Carried
        The location of each carried tensor.
    ys : tuple of (int or None)
        For each stacked result, the number of its tensor; None for the rows of `BeforeStep`.
    """

    tensors: tuple[Tensor, ...]
    carried: tuple[Carried, ...]
    ys: tuple[int | None, ...]


def step_values(
    carries: Sequence[Tensor], news: Sequence[Tensor], ys: Sequence[Tensor]
) -> StepValues:
    """The values of a step with placeholders `carries`, next values `news` and stacked `ys`.

    A result that is a copy of another tensor takes that one's place.

    Examples
    --------
    >>> from tvm import te
    >>> h = te.placeholder((2,), name="h")
    >>> new = te.compute((2,), lambda i: 2.0 * h[i], name="new")
    >>> y = te.compute((2,), lambda i: new[i], name="y")
    >>> step_values([h], [new], [y]).carried, step_values([h], [new], [h]).carried
    ((AfterStep(result=0),), (BeforeStep(result=0, value=0),))
    """
    tensors: list[Tensor] = []

    def value(tensor: Tensor) -> int:
        source = source_of_copies(tensor)
        if is_placeholder(source.op):
            source = copy_of(source) if is_placeholder(tensor.op) else tensor
        tensors.append(source)
        return len(tensors) - 1

    by_source: dict[tuple[int, int], int] = {}
    for number, y in enumerate(ys):
        by_source.setdefault(tensor_key(source_of_copies(y)), number)
    carried: list[Carried] = []
    before: set[int] = set()
    for carry, new in zip(carries, news, strict=True):
        source = source_of_copies(new)
        after, here = by_source.get(tensor_key(source)), by_source.get(tensor_key(carry))
        if tensor_key(source) == tensor_key(carry):
            carried.append(Unchanged())
        elif after is not None and not is_placeholder(source.op):
            carried.append(AfterStep(after))
        elif here is not None:
            before.add(here)
            carried.append(BeforeStep(here, value(new)))
        else:
            carried.append(Exchanged(value(new)))
    places = [None if number in before else value(y) for number, y in enumerate(ys)]
    return StepValues(tuple(tensors), tuple(carried), tuple(places))


@dataclass(frozen=True)
class Clock:
    """The time within a loop: the number of finished steps, and the position of this step."""

    done: Expr
    length: Expr
    backward: bool

    def position(self, done: Expr) -> Expr:
        """The position of the step that follows some others."""
        return self.length - const(1, "int64") - done if self.backward else done


@dataclass(frozen=True)
class Rows:
    """An array with one row for each step."""

    start: Pointer
    size: Expr | int  #: bytes of a row

    def at(self, position: Expr) -> Pointer:
        """The address of the row of a step."""
        return moved(self.start, position * self.size)


@dataclass(frozen=True)
class Memory:
    """The memory of one carried tensor: initial value, last value, spare buffer, rows."""

    first: Pointer
    last: Pointer
    size: Expr | int
    spare: Pointer | None = None
    rows: Rows | None = None


def read_from(carried: Carried, memory: Memory, clock: Clock) -> Pointer:
    """The address from which a step reads a carried tensor."""
    first = compare("eq", clock.done, const(0, "int64"))
    match carried:
        case Exchanged():
            held = either(_ends_there(clock), memory.spare, memory.last)
            return either(first, memory.first, held)
        case AfterStep():
            before = clock.position(clock.done - const(1, "int64"))
            return either(first, memory.first, _rows(memory).at(before))
        case BeforeStep():
            return _rows(memory).at(clock.position(clock.done))
        case Unchanged():
            return memory.first


def written_to(carried: Exchanged | BeforeStep, memory: Memory, clock: Clock) -> Pointer:
    """The address to which a step writes the next value of a carried tensor."""
    if isinstance(carried, Exchanged):
        return either(_ends_there(clock), memory.last, memory.spare)
    after = clock.done + const(1, "int64")
    is_last = compare("eq", after, clock.length)
    return either(is_last, memory.last, _rows(memory).at(clock.position(after)))


def before_all(carried: Carried, memory: Memory, clock: Clock) -> list[Statement]:
    """The copies before the first step."""
    if not isinstance(carried, BeforeStep):
        return []
    row = _rows(memory).at(clock.position(const(0, "int64")))
    return [copied(either(_is_empty(clock), memory.last, row), memory.first, memory.size)]


def after_all(carried: Carried, memory: Memory, clock: Clock) -> list[Statement]:
    """The copies after the last step."""
    match carried:
        case Exchanged():
            return _where(_is_empty(clock), copied(memory.last, memory.first, memory.size))
        case AfterStep():
            row = _rows(memory).at(clock.position(clock.length - const(1, "int64")))
            found = either(_is_empty(clock), memory.first, row)
            return [copied(memory.last, found, memory.size)]
        case BeforeStep():
            return []
        case Unchanged():
            return [copied(memory.last, memory.first, memory.size)]


def _where(condition: Expr, statement: Statement) -> list[Statement]:
    return [] if const_value(condition) == 0 else [when(condition, statement)]


def _rows(memory: Memory) -> Rows:
    assert memory.rows is not None, "the tensor lies in the rows of a result"
    return memory.rows


def _is_empty(clock: Clock) -> Expr:
    return compare("eq", clock.length, const(0, "int64"))


def _ends_there(clock: Clock) -> Expr:
    """Whether this step writes the buffer of the last value: every second step, counted from the
    last.
    """
    left = clock.length - const(1, "int64") - clock.done
    return compare("eq", binary("floormod", left, const(2, "int64")), const(0, "int64"))
