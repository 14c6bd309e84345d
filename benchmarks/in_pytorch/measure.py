"""Seconds of each way of a case: a process for each, rounds in turn, results against float64.

Threads of PyTorch and of this library look for work for a while after a call. A process therefore
rests before it says that its round is over.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

CASES = ("bilateral", "forces", "examples")
ROUND_SECONDS, REST_SECONDS = 0.3, 0.25


@dataclass(frozen=True)
class Time:
    """What one way took: the least seconds of a call, or the error that it raised."""

    seconds: float | None = None
    first: float | None = None  #: seconds until the first answer
    error: float | None = None  #: largest difference from float64 over the largest element
    raised: str = ""


def measure(name: str, rounds: int, threads: int) -> tuple[str, dict[str, Time]]:
    """The title of a case, and the time of each of its ways."""
    context = multiprocessing.get_context("spawn")
    case = import_module(f"benchmarks.in_pytorch.{name}").CASE
    workers = {}
    for way in case.ways:
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(there, name, way, threads))
        process.start()
        workers[way] = process, here
        here.recv()  # one compiles at a time
    best: dict[str, float] = {}
    for _ in range(rounds):
        for way, (_, pipe) in workers.items():
            pipe.send(True)
            seconds = pipe.recv()
            if seconds is not None:
                best[way] = min(best.get(way, seconds), seconds)
    times = {}
    for way, (process, pipe) in workers.items():
        pipe.send(False)
        first, error, raised = pipe.recv()
        times[way] = Time(best.get(way), first, error, raised)
        process.join()
    return case.title, times


def serve(pipe: Connection, name: str, way: str, threads: int) -> None:
    """Run one way whenever asked for a round."""
    import torch
    from torch._dynamo.exc import Unsupported

    torch.set_num_threads(threads)
    case = import_module(f"benchmarks.in_pytorch.{name}").CASE
    exact = case.ways[case.reference]()(*case.inputs(torch.float64))
    step, inputs = case.ways[way](), case.inputs(torch.float32)
    begin = time.perf_counter()
    try:
        found, raised = step(*inputs), ""
    except Unsupported as error:  # what torch.compile cannot do is a result here
        found, raised = None, str(error).splitlines()[0]
    first = time.perf_counter() - begin
    time.sleep(REST_SECONDS)
    pipe.send(True)
    while pipe.recv():
        pipe.send(None if raised else _round(step, inputs))
    pipe.send((first, None if raised else largest_error(found, exact), raised))


def _round(step: Any, inputs: Sequence[Any]) -> float:
    step(*inputs)
    best, end = float("inf"), time.perf_counter() + ROUND_SECONDS
    while time.perf_counter() < end:
        begin = time.perf_counter()
        step(*inputs)
        best = min(best, time.perf_counter() - begin)
    time.sleep(REST_SECONDS)
    return best


def largest_error(found: Sequence[Any], exact: Sequence[Any]) -> float:
    """The largest difference of any result, over the largest element of that result."""
    pairs = [(a.detach().double(), b.detach()) for a, b in zip(found, exact, strict=True)]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
