"""The process of one library: prepares cases and runs rounds on request.

It reads ("prepare", module, case, small), ("run", calls) or ("stop",) from a pipe and replies with
`Ready`, `Round` or `Failure`. Between messages it waits on the pipe.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from .case import Array

#: library and way of using it → (module with `prepare` and `answers`, mode)
LIBRARIES = {
    "ours": ("ours", ""),
    "ours.new": ("ours", "new"),
    "torch": ("pytorch", "eager"),
    "torch.compile": ("pytorch", "autograd"),
    "torch.func": ("pytorch", "functional"),
    "jax": ("with_jax", "jit"),
    "reference": ("with_jax", "reference"),
    "torch.reference": ("pytorch", "reference"),
}
WARM_UP = 3  # calls before those that count, in each round


@dataclass(frozen=True)
class Ready:
    """A compiled case: seconds until the first answer and of a later call, and the answers."""

    first: float
    call: float
    answers: list[Array]


@dataclass(frozen=True)
class Round:
    """Seconds of each call, and the CPU seconds that this process has used in total."""

    times: list[float]
    used: float


@dataclass(frozen=True)
class Failure:
    """Why a library has no time: the first line of the error, and the traceback."""

    reason: str
    trace: str


def serve(library: str, threads: int, pipe: Connection) -> None:
    """Answer messages until one says "stop"."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    module, mode = LIBRARIES[library]
    call: Callable[[], Any] = lambda: None  # noqa: E731
    while True:
        command, *details = pipe.recv()
        if command == "stop":
            return
        try:
            if command == "prepare":
                call = lambda: None  # noqa: E731  (the memory of the last case)
                call, reply = _prepare(module, mode, threads, *details)
            else:
                times = _times(call, *details)
                settle()
                reply = Round(times, time.process_time())
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            reply = Failure(f"{type(error).__name__}: {lines[0]}", traceback.format_exc())
        pipe.send(reply)


def settle() -> None:
    """Wait until the threads of this process are idle: pools spin for up to 0.2 s after a call."""
    for _ in range(100):
        before = time.process_time()
        time.sleep(0.01)
        if time.process_time() - before < 0.001:
            return


def _end_with_parent() -> None:
    # a process that compiles does not look at its pipe
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _prepare(
    module: str, mode: str, threads: int, source: str, name: str, small: bool
) -> tuple[Callable[[], Any], Ready]:
    # a library is imported before the clock starts
    library = importlib.import_module(f".{module}", __package__)
    library.warm()
    case = importlib.import_module(source).entry(name).case(small)
    arrays = case.arrays(name)
    begin = time.perf_counter()
    call = library.prepare(case, arrays, threads, mode)
    results = call()
    first = time.perf_counter() - begin
    answers = library.answers(results)
    seconds = min(_times(call, 3))
    settle()
    return call, Ready(first, seconds, answers)


def _times(call: Callable[[], Any], calls: int) -> list[float]:
    for _ in range(WARM_UP):
        call()
    times = []
    gc.disable()
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    gc.enable()
    return times
