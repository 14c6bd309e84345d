"""The control flow of a loop that keeps some states, forward and back, as statements.

The caller supplies functions that write the statements of a run of steps ahead, of a step back and
of a copy, so plain loop nests and functions that call kernels share this file. All integers are
int64; mutable ones are buffers of one element. The size of the code depends neither on the number
of steps nor on the number of states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm.script.ir_builder import tirx as T

from ...expr.build import all_of, cast, compare, const, select
from ...expr.nodes import Expr, binary
from ..stage import Extent

_I64 = "int64"


class Register:
    """A mutable integer."""

    def __init__(self, value: int = 0) -> None:
        self._buffer = T.alloc_buffer((1,), _I64)
        self.set(const(value, _I64))

    @property
    def now(self) -> Expr:
        """Its current value."""
        return self._buffer[0]

    def set(self, value: Expr) -> None:
        """Assign a value."""
        T.buffer_store(self._buffer, value, [0])


def number(value: int) -> Expr:
    """An int64 literal."""
    return const(value, _I64)


def _least(left: Expr, right: Expr) -> Expr:
    return binary("min", left, right)


class Stops:
    """``first_stop`` of `binomial`, computed at run time."""

    def __init__(self) -> None:
        self._repeats, self._most, self._below = Register(), Register(), Register()
        self.stop = Register()  #: the result of `compute`

    def compute(self, length: Expr, slots: Expr) -> None:
        """The first stop of at least two steps with at least two slots.

        ``b(c, r)`` is the number of steps that c slots cover with r repeats, and r is the smallest
        number for which this suffices.
        """
        repeats, most, below = self._repeats, self._most, self._below
        repeats.set(number(0))
        most.set(number(1))
        with T.While(compare("lt", most.now, length)):
            below.set(most.now)
            repeats.set(repeats.now + number(1))
            grown = most.now * (slots + repeats.now)
            most.set(binary("floordiv", grown, repeats.now))
        # b(c - 1, r - 1) = b(c, r - 1)·c/(c + r - 1)
        part = binary("floordiv", below.now * slots, slots + repeats.now - number(1))
        self.stop.set(_least(below.now, length - part))


@dataclass(frozen=True)
class Forward:
    """The parts of the forward loop.

    Attributes
    ----------
    run : callable
        ``run(at, stop, row)``: the steps from `at` to `stop`. Unless `row` is -1, the state is then
        stored in that row of the arrays.
    slots : int
        The number of states.
    """

    run: Callable[[Expr, Expr, Expr], None]
    slots: int


def written_forward(length: Extent, forward: Forward) -> None:
    """``state₀ → stop → stop → .. → the state before the last step → the end``."""
    count = wide(length)
    slots = number(forward.slots)
    at, top, stop, row = Register(), Register(), Register(), Register()
    stops = Stops() if forward.slots > 1 else None
    with T.While(compare("lt", at.now, count)):
        left = count - at.now
        # by default, the next state is the one before the last step, and then the end
        more = compare("gt", left, number(1))
        stop.set(select(more, count - number(1), count))
        row.set(select(more, slots - number(1), number(-1)))
        if stops is not None:
            free = slots - top.now
            with _when(all_of([more, compare("gt", free, number(1))])):
                stops.compute(left, free)
                stop.set(at.now + stops.stop.now)
                row.set(top.now)
                top.set(top.now + number(1))
        forward.run(at.now, stop.now, row.now)
        at.set(stop.now)


@dataclass(frozen=True)
class Where:
    """The location of a state: the initial state, a row of the input arrays, a row of the reverse
    loop's arrays, or a separate buffer.

    Attributes
    ----------
    slot : Expr
        0 for the first state, and n for row n - 1.
    given : Expr
        Whether the row is still the one in the input arrays.
    held : Expr
        Whether it is in a slot; otherwise it is the state computed last.
    """

    slot: Expr
    given: Expr
    held: Expr


@dataclass(frozen=True)
class Backward:
    """The parts of the reverse loop.

    Attributes
    ----------
    run : callable
        ``run(at, stop, where, row)``: the steps from the state at a location. Unless `row` is -1,
        the last state is stored in that row of the arrays.
    pull : callable
        ``pull(done, time, where)``: one step back, after `done` others.
    positions : buffer
        The steps that the states in the slots precede.
    slots : int
        The number of states.
    """

    run: Callable[[Expr, Expr, Where, Expr], None]
    pull: Callable[[Expr, Expr, Where], None]
    positions: Any
    slots: int


def written_backward(length: Extent, backward: Backward) -> None:
    """``for t from the last: state before t, from the nearest kept state; then step t back``."""
    count, slots, positions = wide(length), number(backward.slots), backward.positions
    at, top, given, following = Register(), Register(), Register(), Register()
    stops = Stops() if backward.slots > 1 else None

    def position() -> Expr:
        return positions[top.now]

    T.buffer_store(positions, number(0), [0])
    if stops is not None:
        left, free = count - position(), slots - top.now
        some = [compare("gt", left, number(1)), compare("gt", free, number(1))]
        with T.While(all_of(some)):
            stops.compute(left, free)
            T.buffer_store(positions, position() + stops.stop.now, [top.now + number(1)])
            top.set(top.now + number(1))
    given.set(top.now)
    at.set(count - number(1))

    def where() -> Where:
        held = compare("eq", position(), at.now)
        return Where(top.now, compare("le", top.now, given.now), held)

    def follow(end: Expr) -> None:
        """Find the next state to keep on the way to the step before `end`."""
        following.set(number(-1))
        if stops is not None:
            left, free = end - at.now, slots - top.now
            some = [compare("gt", left, number(1)), compare("gt", free, number(1))]
            with _when(all_of(some)):
                stops.compute(left, free)
                following.set(at.now + stops.stop.now)

    with T.serial(0, count) as done:
        time = count - number(1) - done
        with T.While(compare("lt", at.now, time)):
            keeps = compare("ge", following.now, number(0))
            stop = T.bind(select(keeps, following.now, time))
            backward.run(at.now, stop, where(), select(keeps, top.now, number(-1)))
            at.set(stop)
            if stops is not None:
                with _when(keeps):
                    top.set(top.now + number(1))
                    T.buffer_store(positions, at.now, [top.now])
                    follow(time + number(1))
        backward.pull(done, time, where())
        with _when(all_of([compare("gt", top.now, number(0)), compare("eq", position(), time)])):
            top.set(top.now - number(1))
            given.set(_least(given.now, top.now))
        at.set(position())
        follow(time)


def wide(extent: Extent) -> Expr:
    """An extent as an int64."""
    return const(extent, _I64) if isinstance(extent, int) else cast(_I64, extent)


@contextmanager
def _when(condition: Expr) -> Iterator[None]:
    with T.If(condition), T.Then():
        yield
