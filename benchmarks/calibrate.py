"""What work costs on this machine: ``python benchmarks/calibrate.py``, about a minute.

Small programs, of which two sizes or two numbers of operations are compared, give each price of
`tvm_autodiff/schedule/cost.py` that a program can measure. They are printed beside the prices that
the schedules compare by. Cycles are those of the core while it runs; its clock is measured by a
chain of shifts. Limits of code (`MAX_COPIES` and the like) and margins are no times. With two cores
or more, the cost of threads is measured, too.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tvm
from tvm import te

sys.path.insert(0, str(Path(__file__).parent.parent))

import tvm_autodiff as ad
from benchmarks.suite.machine import busy_seconds, describe
from tvm_autodiff.codegen.host.direct_calls import PIPELINE
from tvm_autodiff.codegen.loop_nest import (
    allocated,
    counter,
    element,
    function,
    local,
    loop,
    parameter,
    sequence,
    store,
)
from tvm_autodiff.expr.build import const
from tvm_autodiff.expr.nodes import Tensor, dtype_of
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.schedule import cost
from tvm_autodiff.schedule.cpu.recurrences import row_loop, small_loop, time_parts
from tvm_autodiff.schedule.machine import Machine, as_target, machine_of

ROUNDS = 15  #: the best of so many counts
LEAST = 0.002  #: seconds of a round
Call = Callable[[], Any]


@dataclass(frozen=True)
class Price:
    """A price, what it is here, and what both count."""

    name: str
    value: float | None
    here: float
    unit: str


def seconds(call: Call) -> float:
    """The best time of a call."""
    call()
    begin = time.perf_counter()
    call()
    repeats = max(1, round(LEAST / max(1e-7, time.perf_counter() - begin)))
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(repeats):
            call()
        best = min(best, (time.perf_counter() - begin) / repeats)
    return best


def call_of(outputs: list[Tensor], inputs: list[Tensor], threads: int = 1) -> Call:
    """A call of a compiled program with values between one and two."""
    built = ad.build(inputs, outputs, num_threads=threads, cache=False)
    rng = np.random.default_rng(0)
    values = [
        rng.integers(0, 2**30, shape_of(tensor), "int32")
        if dtype_of(tensor) == "int32"
        else rng.uniform(1, 2, shape_of(tensor)).astype(dtype_of(tensor))
        for tensor in inputs
    ]
    results = [np.empty(shape_of(tensor), dtype_of(tensor)) for tensor in outputs]
    return lambda: built(*values, out=results)


def chain(step: Callable[[Any], Any], dtype: str, steps: int) -> float:
    """Seconds of a step that waits for the one before."""
    first = te.placeholder((1,), dtype, name="first")
    given, result = parameter(first, "given"), parameter(first, "result")
    zero = const(0, "int32")
    state, turn = local("state", [1], dtype), counter("turn", steps)
    body = sequence(
        [
            store(state, element(given, [zero]), [zero]),
            loop(turn, steps, store(state, step(element(state, [zero])), [zero])),
            store(result, element(state, [zero]), [zero]),
        ]
    )
    func = function([given, result], allocated([state], body)).with_attr("global_symbol", "main")
    module = tvm.IRModule({"main": func})
    run = tvm.compile(module, target=as_target(None), tir_pipeline=PIPELINE)["main"]
    arrays = [tvm.runtime.tensor(np.ones(1, dtype)) for _ in range(2)]
    return seconds(lambda: run(*arrays)) / steps


def _mixed(h: Tensor) -> Tensor:
    """A stage that reads each element three times, so that nothing is written into it."""
    (count,) = shape_of(h)
    third = np.float32(1 / 3)
    return te.compute(h.shape, lambda i: (h[i] + h[count - 1 - i] + h[i // 2]) * third, name="h")


def _exponentials(x: Any) -> Any:
    return sum((te.exp(x - n) for n in range(1, 6)), te.exp(x))


class Here:
    """The prices of this machine; `clock` is in cycles a second."""

    def __init__(self) -> None:
        self.machine: Machine = machine_of(as_target(None), 1)
        self.lanes = self.machine.lanes("float32")

    @cached_property
    def clock(self) -> float:
        """Cycles a second: three pairs of a shift and an exclusive or take six."""

        def shifted(x: Any) -> Any:
            for op, by in (
                (tvm.tirx.shift_left, 13),
                (tvm.tirx.shift_right, 17),
                (tvm.tirx.shift_left, 5),
            ):
                x = tvm.tirx.bitwise_xor(x, op(x, tvm.tirx.const(by, "uint32")))
            return x

        return 6 / chain(shifted, "uint32", 100_000)

    def latency(self) -> float:
        """The cycles of an addition that waits for the one before."""
        return chain(lambda x: x + np.float32(1.5), "float32", 100_000) * self.clock

    def _vector(self, body: Callable[[Any, Any, int], Any], few: int, many: int) -> float:
        """The cycles of an operation on a vector: that of a body with many minus that with few."""
        times = []
        for count in (few, many):
            a, b = (te.placeholder((16_384,), name=name) for name in "ab")
            y = te.compute(a.shape, lambda i: body(a[i], b[i], count), name="y")  # noqa: B023
            times.append(seconds(call_of([y], [a, b])))
        operations = (many - few) * 16_384 / self.lanes
        return (times[1] - times[0]) * self.clock / operations

    @cached_property
    def operation(self) -> float:
        """The cycles of a product or a sum, of a vector."""

        def body(a: Any, b: Any, count: int) -> Any:
            value = a
            for _ in range(count):
                value = value * b + a
            return value

        return self._vector(body, 8, 16) / 2

    def division(self) -> float:
        """The operations that a quotient counts as."""
        quotients = lambda a, b, count: sum((a / (b + n) for n in range(1, count)), a / b)  # noqa: E731
        return self._vector(quotients, 4, 8) / self.operation - 2  # sums

    def function(self) -> float:
        """The operations that exp counts as."""
        shifted = lambda a, b, count: sum((te.exp(a + n) for n in range(1, count)), te.exp(b))  # noqa: E731
        return self._vector(shifted, 2, 6) / self.operation - 2  # sums

    def _bytes(self, size: int) -> float:
        """The cycles of reading a byte of an array of so many bytes."""
        count = size // 4 // 64 * 64
        x, k = te.placeholder((count,), name="x"), te.reduce_axis((0, count), "k")
        call = call_of([te.compute((1,), lambda _: te.sum(x[k], axis=k), name="y")], [x])
        return seconds(call) * self.clock / size

    @cached_property
    def near(self) -> float:
        """The cycles to read a byte in a core's own cache."""
        small, large = self.machine.cache_bytes // 4, self.machine.cache_bytes // 2
        return (self._bytes(large) * large - self._bytes(small) * small) / (large - small)

    def shared(self) -> float:
        """How many cycles more a byte of the shared cache takes."""
        size = min(4 * self.machine.cache_bytes, self.machine.last_cache_bytes // 2)
        return self._bytes(size) - self.near

    def memory(self) -> float:
        """How many cycles more a byte of memory takes."""
        return self._bytes(4 * self.machine.last_cache_bytes) - self.near

    def _moved(self, size: int, index: Callable[..., Any]) -> float:
        """The cycles of an element of a square matrix that is copied in another order."""
        x = te.placeholder((size, size), name="x")
        y = te.compute(x.shape, lambda i, j: x[index(i, j)] + np.float32(1), name="y")
        return seconds(call_of([y], [x])) * self.clock

    def moved(self, sizes: tuple[int, int], index: Callable[..., Any]) -> float:
        """The same for each element that the larger matrix has more."""
        small, large = (self._moved(size, index) for size in sizes)
        return (large - small) / (sizes[1] ** 2 - sizes[0] ** 2)

    def gathered(self) -> float:
        """The cycles of reading an element of the first cache at a place that is data."""
        times = []
        for count in (16_384, 65_536):
            x = te.placeholder((self.machine.first_cache_bytes // 8,), name="x")
            place = te.placeholder((count,), "int32", name="place")
            mask = (1 << (self.machine.first_cache_bytes // 8).bit_length() - 1) - 1
            y = te.compute(place.shape, lambda i: x[place[i] & mask], name="y")  # noqa: B023
            times.append(seconds(call_of([y], [x, place])))
        return (times[1] - times[0]) * self.clock / (65_536 - 16_384)

    def kernel_call(self) -> float:
        """The points of a kernel for which a loop over time that calls four is as fast as one nest
        of plain loops.
        """
        few, many = 32, 512
        nest = [self._step(count, sys.maxsize) for count in (few, many)]
        calls = [self._step(count, -1) for count in (few, many)]
        saved = ((nest[1] - nest[0]) - (calls[1] - calls[0])) / (many - few)
        return few + (calls[0] - nest[0]) / saved

    def _step(self, count: int, limit: int) -> float:
        """Seconds of a step of four stages of so many points, which calls kernels for more points
        than `limit`.
        """
        steps = 500
        first = te.placeholder((count,), name="h")

        def step(h: Any, _: Any) -> tuple[Any, None]:
            for _ in range(4):
                h = _mixed(h)
            return h, None

        with (  # no other rule writes the step as one function
            mock.patch.object(small_loop, "KERNEL_CALL", limit),
            mock.patch.object(row_loop, "MAX_NODES", -1),
            mock.patch.object(time_parts, "SHORT_LOOP", -1),
        ):
            last, _ = ad.scan(step, first, length=steps)
            return seconds(call_of([last], [first])) / steps

    def launch(self) -> float:
        """The cycles that a kernel on two threads takes longer than on one, without its work."""
        before = []
        for threads in (1, 2):
            times = []
            for count in (1 << 15, 1 << 16):
                x = te.placeholder((count,), name="x")
                y = te.compute(x.shape, lambda i: _exponentials(x[i]), name="y")  # noqa: B023
                times.append(seconds(call_of([y], [x], threads)))
            before.append(2 * times[0] - times[1])
        return (before[1] - before[0]) * self.clock

    def prices(self) -> Iterator[Price]:
        """All prices."""
        yield Price("clock", None, self.clock / 1e9, "GHz")
        yield Price("operation", None, self.operation, "cycles of a vector's product or sum")
        yield Price("LATENCY", cost.LATENCY, self.latency(), "cycles of an addition")
        yield Price("DIVISION", cost.DIVISION, self.division(), "operations")
        yield Price("CALL", cost.CALL, self.function(), "operations of exp")
        point = self.operation / self.lanes
        straight = lambda i, j: (i, j)  # noqa: E731
        turned = lambda i, j: (j, i)  # noqa: E731
        for where, sizes in (("second cache", (128, 256)), ("memory", (2048, 4096))):
            here = self.moved(sizes, straight) / point
            yield Price("STORE", cost.STORE, here, f"points, to move an element in the {where}")
        for where, sizes, factor in (("second cache", (128, 256), 1), ("beyond", (512, 1024), 2)):
            here = self.moved(sizes, turned)
            yield Price("TURNED", factor * cost.TURNED, here, f"cycles of an element, {where}")
        yield Price("NEAR_BYTE", cost.NEAR_BYTE, self.near, "cycles in a core's own cache")
        yield Price("SHARED_BYTE", cost.SHARED_BYTE, self.shared(), "cycles more than near")
        yield Price("MEMORY_BYTE", cost.MEMORY_BYTE, self.memory(), "cycles more than near")
        yield Price("gather", None, self.gathered(), "cycles of an element, first cache")
        yield Price("KERNEL_CALL", cost.KERNEL_CALL, self.kernel_call(), "points worth a call")
        if len(os.sched_getaffinity(0)) > 1:
            launch = self.launch()
            yield Price("LAUNCH_CYCLES", cost.LAUNCH_CYCLES, launch, "cycles to start two threads")
            yield Price("THREAD_CYCLES", cost.THREAD_CYCLES, 2 * launch, "cycles worth two threads")


def main() -> None:
    """Print the prices."""
    print(describe()["processor"])
    before, begin = _others(), time.perf_counter()
    print(f"{'price':14} {'cost.py':>9} {'here':>9}")
    for price in Here().prices():
        value = "" if price.value is None else f"{price.value:g}"
        print(f"{price.name:14} {value:>9} {price.here:>9.3g}  {price.unit}", flush=True)
    cores = (_others() - before) / (time.perf_counter() - begin)
    if cores > 0.1:
        print(f"other programs used {cores:.1f} cores: the costs of threads are too high")


def _others() -> float:
    """CPU seconds that other programs of the machine have used."""
    return (busy_seconds() or time.process_time()) - time.process_time()


if __name__ == "__main__":
    main()
