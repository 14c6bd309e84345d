"""Splits time into parts that run side by side as vector lanes, and writes the passes over all
parts.

A pass for each level of states folds a part into one step, ``h' = a·h + b``, while the states of
lower levels run normally. What it reads and writes goes through blocks that are transposed in
registers. A serial pass over the parts computes their initial states. Results that need no further
states are written on the way. A part that cannot be folded runs step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ....codegen.loop_nest import (
    PARALLEL,
    VECTORIZED,
    Local,
    Statement,
    allocated,
    branch,
    counter,
    element,
    function,
    local,
    loop,
    parameters,
    sequence,
    store,
    when,
)
from ....expr.build import add, all_of, cast, compare, const, mul, select, sub, variable
from ....expr.nodes import Expr, Tensor, binary, dtype_of, tensor_key
from ....graph.graph import tensors_read_by
from ....graph.kinds.loop import Loop
from ....graph.stage import Extent, Operation, index_dtype, outputs_of
from ...nest.recurrences.affine_states import AffineStates
from ...nest.recurrences.row_program import components_of
from .folded_parts import Folded, multiplied
from .row_lanes import Lanes, RowLanes, Stack, stacks_in, tensors_read
from .time_blocks import TimeBlock


class PartPasses:
    """The function of one loop while it is written.

    Parameters
    ----------
    op : Operation
        The stage.
    loop : Loop
        The loop, with a step in normal form.
    states : AffineStates
        The states of that step.
    lanes, threads : int
        The number of parts per thread, which is the number of vector lanes, and the number of
        threads.
    """

    def __init__(
        self, op: Operation, loop: Loop, states: AffineStates, lanes: int, threads: int
    ) -> None:
        self._op, self._loop, self._states = op, loop, states
        self._lanes, self._threads = lanes, threads
        self._program = program = states.program
        self._variables = [var for vars in program.states for var in vars]
        self._news = [value for values in program.news for value in values]
        self._parts = self._threads * self._lanes
        self._last = states.passes_for_states  # the pass that needs all of them

    def function(self) -> tuple[Any, list[Tensor], list[Tensor]]:
        """The function over what the stage reads, and its results."""
        inputs, outputs = tensors_read_by(self._op), outputs_of(self._op)
        buffers = parameters(inputs, outputs)
        loop_, step, count = self._loop, self._loop.step, len(self._loop.init)
        stacks = partial(stacks_in, buffers)
        self._xs = stacks(step.xs, loop_.xs, True)
        read = [*self._xs, *stacks(step.consts, loop_.consts, False)]
        self._sources = {tensor_key(stack.tensor): stack for stack in read}
        self._ys = stacks(step.ys, outputs[count:], True)
        self._kept = [
            Folded.of(var, factor, self._parts)
            for var, factor in zip(self._variables, self._states.factors, strict=True)
        ]
        self._dtype = index_dtype(loop_.length)
        length: Extent = loop_.length
        self._length = const(length, self._dtype) if isinstance(length, int) else length
        self._steps = self._steps_of_part()
        first, last = (stacks(step.carries, t, False) for t in (loop_.init, outputs[:count]))
        passes: list[Statement] = []
        for level in range(self._states.passes):
            passes.append(self._pass(level))
            if level < self._last:
                passes.append(self._composed(level))
        start, end = const(0, "int32"), const(self._parts, "int32")
        none = [store(k.starts, element(k.starts, [start]), [end]) for k in self._kept]
        some = compare("gt", self._steps, const(0, self._dtype))
        body = [
            self._moved(first, start, False),
            branch(some, sequence(passes), sequence(none)),
            self._rest(),
            self._moved(last, end, True),
        ]
        held = [place for kept in self._kept for place in kept.buffers]
        func = function(list(buffers.values()), allocated(held, sequence(body)))
        return func, inputs, outputs

    def _steps_of_part(self) -> Expr:
        """An odd number of cache lines of steps for each part, or zero if there are few steps."""
        line = self._lanes  # parts that begin a power of two apart would share lines of a cache
        whole = line * self._parts
        if isinstance(self._loop.length, int):
            lines = self._loop.length // whole
            return const(line * (lines - (lines > 0 and lines % 2 == 0)), self._dtype)
        lines = binary("floordiv", self._length, const(whole, self._dtype))
        even = sub(const(1, self._dtype), binary("floormod", lines, const(2, self._dtype)))
        odd = binary("max", sub(lines, even), const(0, self._dtype))
        return mul(odd, const(line, self._dtype))

    def _alone(self, done: Expr) -> Lanes:
        """One lane, after some steps."""
        time = done
        if self._loop.reverse:
            time = sub(sub(self._length, const(1, self._dtype)), done)
        return Lanes(1, lambda lane: [], lambda lane: time, neighbours=False)

    def _moved(self, stacks: Sequence[Stack], part: Expr, out: bool) -> Statement:
        """Copy the first states into the first part, or the last ones out of the last part."""
        statements: list[Statement] = []
        places = iter(kept.starts for kept in self._kept)
        for stack in stacks:
            for component in components_of(stack.tensor, 0):
                index = [const(n, "int32") for n in component]
                place = next(places)
                if out:
                    statements.append(store(stack.buffer, element(place, [part]), index))
                else:
                    statements.append(store(place, element(stack.buffer, index), [part]))
        return sequence(statements)

    def _numbers(self, level: int) -> list[int]:
        """The states up to a level."""
        return [n for n, own in enumerate(self._states.levels) if own <= level]

    def _pass(self, level: int) -> Statement:
        """All parts: states below a level run normally, those of the level start from zero."""
        thread, step = counter("thread", self._threads), counter("step", self._lanes)
        block = counter("blocks", self._loop.length)
        states = self._vectors("state", self._numbers(level))
        fresh = [n for n in states if self._states.levels[n] == level]
        folded = [n for n in fresh if self._kept[n].products is not None]
        products, bounds = self._vectors("a", folded), self._vectors("bound", folded)
        into: list[tuple[Local, Local | None]] = [(states[n], self._kept[n].sums) for n in fresh]
        into += [(products[n], self._kept[n].products) for n in folded]
        into += [(bounds[n], self._kept[n].bounds) for n in folded]
        before, after = [], []
        lane = variable("lane", "int32")
        part = add(mul(thread, const(self._lanes, "int32")), lane)
        for n, state in states.items():
            zero = const(0, dtype_of(self._variables[n]))
            known = zero if n in fresh else element(self._kept[n].starts, [part])
            before.append(store(state, known, [lane]))
        for n in folded:
            one = const(1, dtype_of(self._variables[n]))
            before += [store(products[n], one, [lane]), store(bounds[n], one, [lane])]
        for source, target in into:
            assert target is not None
            after.append(store(target, element(source, [lane]), [part]))
        results = [(self._news[n], partial(_write, states[n])) for n in states]
        results += [
            (self._states.factors[n], partial(multiplied, products[n], bounds[n])) for n in folded
        ]
        numbered = zip(self._states.result_levels, self._program.ys, self._ys, strict=True)
        ys = [(values, stack) for own, values, stack in numbered if own == level]
        values = [value for value, _ in results] + [value for many, _ in ys for value in many]
        needed = tensors_read(self._states.program, values)
        taken = [TimeBlock(x, self._lanes) for x in self._xs if tensor_key(x.tensor) in needed]
        given = [TimeBlock(stack, self._lanes) for _, stack in ys]
        inside = {tensor_key(one.stack.tensor): one.inside for one in taken}
        writer = RowLanes(self._states.program, {**self._sources, **inside})
        time: Expr = step
        if self._loop.reverse:
            time = sub(const(self._lanes - 1, dtype_of(step)), step)
        body = writer.step(
            Lanes(self._lanes, lambda lane: [], lambda lane: time, neighbours=False),
            [self._getter(states, n) for n in range(len(self._variables))],
            results,
            [(values, one.inside) for (values, _), one in zip(ys, given, strict=True)],
        )
        times = [self._block_time(thread, block, n) for n in range(self._lanes)]
        blocks = binary("floordiv", self._steps, const(self._lanes, self._dtype))
        whole = [one.taken(times) for one in taken]
        whole.append(loop(step, self._lanes, sequence(body)))
        whole += [one.given(times) for one in given]
        run = sequence(
            [
                loop(lane, self._lanes, sequence(before), VECTORIZED),
                loop(block, blocks, sequence(whole)),
                *([loop(lane, self._lanes, sequence(after), VECTORIZED)] if after else []),
            ]
        )
        held = [*states.values(), *products.values(), *bounds.values(), *writer.buffers]
        for one in (*taken, *given):
            held += [one.held, *one.buffers]
        return loop(thread, self._threads, allocated(held, run), PARALLEL)

    def _block_time(self, thread: Expr, block: Expr, lane: int) -> Expr:
        """The first time of a block of a part."""
        part = add(mul(thread, const(self._lanes, "int32")), const(lane, "int32"))
        ahead = mul(cast(self._dtype, block), const(self._lanes, self._dtype))
        done = add(mul(cast(self._dtype, part), self._steps), ahead)
        if not self._loop.reverse:
            return done
        return sub(sub(self._length, const(self._lanes, self._dtype)), done)

    def _vectors(self, name: str, numbers: Sequence[int]) -> dict[int, Local]:
        return {
            n: local(f"{name}{n}", [self._lanes], dtype_of(self._variables[n])) for n in numbers
        }

    def _getter(self, states: dict[int, Local], number: int) -> Callable[[Expr], Expr]:
        """A state in a lane, or zero if nothing of a pass depends on it."""
        if number in states:
            return partial(_read, states[number])
        zero = const(0, dtype_of(self._variables[number]))
        return lambda lane: zero

    def _composed(self, level: int) -> Statement:
        """``start[part + 1] = product[part]·start[part] + sum[part]``; an unreliable part runs step
        by step.
        """
        part, zero = counter("part", self._parts), const(0, "int32")
        next_part = add(part, const(1, "int32"))
        sure = local("sure", [1], "int32")
        checks, statements = [], []
        for n, own in enumerate(self._states.levels):
            if own == level:
                after, holds = self._kept[n].after(part)
                checks.append(holds)
                statements.append(store(self._kept[n].starts, after, [next_part]))
        # a flag, because the negation of a comparison would be wrong for NaN
        flag = select(all_of(checks), const(1, "int32"), zero)
        unsure = compare("eq", element(sure, [zero]), zero)
        again = self._serial(
            self._numbers(level),
            part,
            [n for n, own in enumerate(self._states.levels) if own == level],
            next_part,
            mul(cast(self._dtype, part), self._steps),
            self._steps,
            [],
        )
        body = sequence([*statements, store(sure, flag, [zero]), when(unsure, again)])
        return loop(part, self._parts, allocated([sure], body))

    def _rest(self) -> Statement:
        """The steps after the last part."""
        everything = list(range(len(self._variables)))
        last = const(self._parts, "int32")
        done = mul(const(self._parts, self._dtype), self._steps)
        ys = list(zip(self._program.ys, self._ys, strict=True))
        return self._serial(everything, last, everything, last, done, sub(self._length, done), ys)

    def _serial(
        self,
        numbers: Sequence[int],
        begin: Expr,
        kept: Sequence[int],
        end: Expr,
        done: Expr,
        count: Expr,
        ys: Sequence[tuple[Sequence[Expr], Stack]],
    ) -> Statement:
        """Some states step by step, from those of part `begin` to those of part `end`."""
        lanes_of_one, zero = 1, const(0, "int32")
        states = {
            n: local(f"alone{n}", [lanes_of_one], dtype_of(self._variables[n])) for n in numbers
        }
        writer = RowLanes(self._states.program, self._sources)
        step = counter("step", self._loop.length)
        body = writer.step(
            self._alone(add(done, cast(self._dtype, step))),
            [self._getter(states, n) for n in range(len(self._variables))],
            [(self._news[n], partial(_write, states[n])) for n in numbers],
            ys,
        )
        first = [store(states[n], element(self._kept[n].starts, [begin]), [zero]) for n in numbers]
        last = [store(self._kept[n].starts, element(states[n], [zero]), [end]) for n in kept]
        run = sequence([*first, loop(step, count, sequence(body)), *last])
        return allocated([*states.values(), *writer.buffers], run)


def _read(place: Local, lane: Expr) -> Expr:
    return element(place, [lane])


def _write(place: Local, lane: Expr, value: Expr) -> Statement:
    return store(place, value, [lane])
