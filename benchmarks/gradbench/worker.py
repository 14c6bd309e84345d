"""The process of one library in the comparison: prepares a function of an eval, then times calls.

Messages arrive over a pipe. The reply to a workload is `Prepared`, the reply to a number of calls
is a list of seconds, and either can be a `Failure`. A call ends when its results are available.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from .inputs import draw

Call = Callable[[], Any]


@dataclass(frozen=True)
class Prepared:
    """Seconds until the first result and of a later call, and a sample of the results."""

    first: float
    call: float
    sample: np.ndarray


@dataclass(frozen=True)
class Failure:
    """Why a library has no time."""

    reason: str


def serve(library: str, cpus: list[int], pipe: Connection) -> None:
    """Answer messages until None: a workload to prepare, or a number of calls to time."""
    os.sched_setaffinity(0, cpus)
    if library == "jax":
        one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ["XLA_FLAGS"] = one if len(cpus) == 1 else ""
    call: Call = lambda: None  # noqa: E731
    while (message := pipe.recv()) is not None:
        try:
            if isinstance(message, int):
                reply: Any = [_seconds(call) for _ in range(message)]
            else:
                call, reply = _prepare(library, len(cpus), *message)
        except Exception as error:  # what a library cannot do is a result, too
            reply = Failure(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
        pipe.send(reply)


def _prepare(
    library: str, threads: int, module: str, function: str, arguments: tuple[int, ...]
) -> tuple[Call, Prepared]:
    data = draw(module, arguments)
    make = _ours if library == "ours" else _peer(library)
    begin = time.perf_counter()
    call = make(threads, module, function, data)
    results = call()
    first = time.perf_counter() - begin
    sample = _sample(whole([np.asarray(part) for part in results]))
    again = _seconds(call)
    if again < 1.0:
        again = min(again, *(_seconds(call) for _ in range(2)))
    return call, Prepared(first, again, sample)


def _ours(threads: int, module: str, function: str, data: Any) -> Call:
    from .evals import EVALS
    from .evaluation import Compiler

    problem = EVALS[module].read(data)
    declared = EVALS[module].functions[function]
    return Compiler(threads).prepare(declared, problem)


def _peer(library: str) -> Callable[..., Call]:
    from .peers import prepare

    return lambda *arguments: prepare(library, *arguments)


def whole(parts: list[np.ndarray]) -> list[np.ndarray]:
    """The parts, flattened; those that are views of the same array are joined."""
    groups: list[list[np.ndarray]] = []
    for part in parts:
        of_same = [g for g in groups if part.base is not None and g[0].base is part.base]
        if of_same:
            of_same[0].append(part)
        else:
            groups.append([part])
    return [np.concatenate([np.ravel(part) for part in group]) for group in groups]


def _sample(parts: list[np.ndarray], most: int = 4000) -> np.ndarray:
    """A sample of the results: the sum of each part, and elements spread over it."""
    chosen = []
    for part in parts:
        numbers = np.ravel(part).astype("float64")
        chosen += [numbers.sum(keepdims=True), numbers[:: max(len(numbers) // most, 1)]]
    return np.concatenate(chosen)


def _seconds(call: Call) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
