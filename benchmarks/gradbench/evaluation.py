"""What an eval is made of, and its functions compiled and run.

An eval reads its input into arrays, and has functions: programs of te for sizes, with what they
return written as JSON. Reading, compiling and writing are not timed, as the suite defines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_autodiff as ad

from ..suite.case import Array, aligned

Tensors = Sequence[Any]


@dataclass(frozen=True)
class Problem:
    """An input as arrays: what programs depend on, and the values of their inputs in order."""

    sizes: Hashable
    arrays: Sequence[Array]


@dataclass(frozen=True)
class Function:
    """A function of an eval.

    `program` takes the sizes and gives inputs and outputs; `write` takes the sizes and the arrays
    of the outputs and gives what the eval asks for. `place`, where it is there, gives arrays for
    the outputs that lie in the memory of larger ones.
    """

    program: Callable[[Any], tuple[Tensors, Tensors]]
    write: Callable[[Any, Sequence[Array]], Any]
    place: Callable[[Any], Sequence[Array]] | None = None


@dataclass(frozen=True)
class Eval:
    """A module of the suite: how its input is read, and its functions by name."""

    read: Callable[[Any], Problem]
    functions: Mapping[str, Function]


@dataclass(frozen=True)
class Timing:
    """How long a part took."""

    name: str
    nanoseconds: int


class Compiler:
    """The programs compiled so far, by function and sizes."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._built: dict[Hashable, ad.runtime.CompiledFunction] = {}

    def function(self, function: Function, sizes: Hashable) -> Callable[..., Any]:
        """The compiled program for these sizes."""
        key = (function, sizes)
        if key not in self._built:
            inputs, outputs = function.program(sizes)
            self._built[key] = ad.build(inputs, outputs, num_threads=self.threads)
        return self._built[key]

    def prepare(self, function: Function, problem: Problem) -> Callable[[], Sequence[Array]]:
        """Compile a function and run it once; returns a call that writes into the same arrays."""
        compiled = self.function(function, problem.sizes)
        arrays = list(problem.arrays)
        results = (
            [aligned(result) for result in compiled(*arrays)]
            if function.place is None
            else list(function.place(problem.sizes))
        )
        call = lambda: compiled(*arrays, out=results)  # noqa: E731
        call()
        return call


def run(
    call: Callable[[], Sequence[Array]], min_runs: int, min_seconds: float
) -> tuple[Sequence[Array], list[Timing]]:
    """Call until both bounds are reached; the last results, and a timing for each call."""
    timings: list[Timing] = []
    passed, results = 0, call
    while len(timings) < min_runs or passed < min_seconds * 1e9:
        begin = time.perf_counter_ns()
        results = call()
        timings.append(Timing("evaluate", time.perf_counter_ns() - begin))
        passed += timings[-1].nanoseconds
    return results, timings
