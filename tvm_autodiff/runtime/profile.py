"""Times the kernels of a compiled function.

A `Profile` has the median time, the schedule rule, and arithmetic and memory rates of each kernel,
and prints as a table. Launches are timed from outside, which adds up to a microsecond each.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..codegen.host.direct_calls import ALL_LAUNCHES, NO_LAUNCH
from .files.manifest import Launch


@dataclass(frozen=True)
class KernelTime:
    """One kernel of a program.

    Attributes
    ----------
    name : str
        The stages that it computes.
    rule : str
        The schedule rule that was applied.
    launches : int
        The number of functions that it consists of.
    seconds : float
        The median time of all of them.
    operations, traffic : int or None
        Floating point operations of all calls, and bytes read and written, counting each tensor
        once per call.
    reasons : tuple of str
        Why no faster schedule rule applies to the kernel; empty if one does.
    calls : int or None
        The number of calls: one, or the number of steps of a loop; None if it is symbolic.
    """

    name: str
    rule: str
    launches: int
    seconds: float
    operations: int | None
    traffic: int | None
    reasons: tuple[str, ...] = ()
    calls: int | None = 1

    @property
    def gflops(self) -> float | None:
        """10⁹ floating point operations per second."""
        return _rate(self.operations, self.seconds)

    @property
    def gbytes(self) -> float | None:
        """10⁹ bytes per second."""
        return _rate(self.traffic, self.seconds)


@dataclass(frozen=True)
class Profile:
    """Times of the kernels of one function, in order of execution.

    Attributes
    ----------
    kernels : tuple of KernelTime
    seconds : float
        The median time of a whole call without timers inside.

    As text it is a table with one line per kernel, followed by the kernels without a fast schedule
    rule and the reasons of the rules.
    """

    kernels: tuple[KernelTime, ...]
    seconds: float

    def __str__(self) -> str:
        total = sum(kernel.seconds for kernel in self.kernels) or 1.0
        header = ("µs", "share", "GFLOP/s", "GB/s", "rule", "kernel")
        rows = [header]
        rows += [
            (
                f"{kernel.seconds * 1e6:.1f}",
                f"{kernel.seconds / total:.0%}",
                _number(kernel.gflops),
                _number(kernel.gbytes),
                kernel.rule,
                kernel.name + _count(kernel.launches, "launches") + _count(kernel.calls, "calls"),
            )
            for kernel in self.kernels
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        rule = max(len(row[4]) for row in rows)
        lines = []
        for row in rows:
            numbers = "  ".join(cell.rjust(n) for cell, n in zip(row[:4], widths, strict=True))
            lines.append(f"{numbers}  {row[4]:{rule}}  {row[5]}")
        lines.append(f"{self.seconds * 1e6:.1f} µs for a whole call")
        for kernel in self.kernels:
            if kernel.reasons:
                lines.append(f"{kernel.rule} of {kernel.name}, as no faster rule applies:")
                lines += [f"  {reason}" for reason in kernel.reasons]
        return "\n".join(lines)


def _count(count: int | None, what: str) -> str:
    return "" if count == 1 else f" ({'any number of' if count is None else count} {what})"


def _rate(count: int | None, seconds: float) -> float | None:
    return None if count is None or seconds <= 0 else count / seconds / 1e9


def _number(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1f}"


def profile_of(
    function: Callable[..., Any],
    machine: Any,
    arguments: Sequence[Any],
    launches: Sequence[Launch],
    repeats: int,
    wait: Callable[[], Any] = lambda: None,
) -> Profile:
    """The profile of a raw function.

    Parameters
    ----------
    function
        The function, which takes the arguments.
    machine : relax.VirtualMachine or None
        A separate virtual machine of the same program, or None for a single kernel.
    arguments, launches, repeats
        The arguments of a call, its launches in order, and the number of calls.
    wait
        Waits until all started work is done.
    """
    function(*arguments)  # the first call compiles, and fills caches
    wait()
    whole = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function(*arguments)
        wait()
        whole.append(time.perf_counter() - begin)
    seconds = statistics.median(whole)
    if machine is None:
        return Profile(by_kernel(launches, [seconds]), seconds)
    timed = machine["main"]
    timed(*arguments)
    watch = _Watch([launch.name for launch in launches], wait)
    machine.set_instrument(watch)
    for _ in range(repeats):
        watch.position = 0
        timed(*arguments)
    # a launch that only renames its input is not a call: Relax reshapes instead
    medians = [statistics.median(t) if t else 0.0 for t in watch.times]
    return Profile(by_kernel(launches, medians), seconds)


def profile_of_launches(
    run: Callable[[int], Any], launches: Mapping[int, Launch], repeats: int
) -> Profile:
    """The profile of a function that calls its kernels itself.

    ``run(n)`` runs the launch with that number, and `ALL_LAUNCHES` runs all. The overhead of an
    empty call is subtracted.
    """
    numbers = [*launches, NO_LAUNCH, ALL_LAUNCHES]
    times: dict[int, list[float]] = {number: [] for number in numbers}
    run(ALL_LAUNCHES)  # the first call compiles, and fills caches
    for _ in range(repeats):
        for number in numbers:
            begin = time.perf_counter()
            run(number)
            times[number].append(time.perf_counter() - begin)
    medians = {number: statistics.median(spent) for number, spent in times.items()}
    alone = [max(medians[n] - medians[NO_LAUNCH], 0.0) for n in launches]
    return Profile(by_kernel(list(launches.values()), alone), medians[ALL_LAUNCHES])


class _Watch:
    """A hook that a virtual machine calls before and after each function."""

    def __init__(self, names: Sequence[str], wait: Callable[[], Any]) -> None:
        self._wait = wait
        self._order = tuple(names)
        self._names = frozenset(names)  # other functions of the machine allocate and check
        self.times: list[list[float]] = [[] for _ in names]
        self.position = 0
        self._begin = 0.0

    def __call__(self, _function: Any, name: str, before: bool, *_rest: Any) -> None:
        if name not in self._names:
            return
        if before:
            while self._order[self.position] != name:
                self.position += 1
            self._begin = time.perf_counter()
        else:
            self._wait()
            self.times[self.position].append(time.perf_counter() - self._begin)
            self.position += 1


def by_kernel(launches: Sequence[Launch], seconds: Sequence[float]) -> tuple[KernelTime, ...]:
    """Times of launches, summed for each kernel, in order of their first launches."""
    groups: dict[int, list[tuple[Launch, float]]] = {}
    for launch, spent in zip(launches, seconds, strict=True):
        groups.setdefault(launch.number, []).append((launch, spent))
    return tuple(
        _kernel([launch for launch, _ in rows], sum(spent for _, spent in rows))
        for rows in groups.values()
    )


def _kernel(launches: Sequence[Launch], seconds: float) -> KernelTime:
    """One kernel; packing before a loop is called less often than what runs in each step."""
    first = launches[0]
    counts = [launch.calls for launch in launches]
    calls = None if None in counts else max(count or 0 for count in counts)
    return KernelTime(
        first.kernel,
        first.rule,
        len(launches),
        seconds,
        _total([first.operations], [calls]),
        _total([launch.traffic for launch in launches], counts),
        first.reasons,
        calls,
    )


def _total(counts: Sequence[int | None], calls: Sequence[int | None]) -> int | None:
    if None in counts or None in calls:
        return None
    return sum((count or 0) * (times or 0) for count, times in zip(counts, calls, strict=True))
