"""Processes that check random programs: one that crashes or does not end is a failure of its seed.

A worker is forked from a server that has imported everything once. Limits are of CPU time, so that
a busy machine fails nothing.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import psutil

from tests.processes import collected_seldom, without_torch

LIMIT = 120.0  #: CPU seconds for one task
_PATIENCE = 20.0  #: times the limit, in seconds of the clock: for what waits without working
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.random_programs.preloaded"])


@dataclass(frozen=True)
class Outcome:
    """What came of a task, whose `perform` lists complaints: none where all is right."""

    task: Any
    complaints: list[str]
    seconds: float = 0.0  #: of CPU time


def _serve(connection: Any) -> None:
    collected_seldom()
    while True:
        connection.send(connection.recv().perform())


class Worker:
    """A process that takes one task after the other, and is replaced when it is lost."""

    def __init__(self, limit: float = LIMIT) -> None:
        self.limit = limit
        self.process: Any = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        self.connection, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_serve, args=(theirs,), daemon=True)
        with mock.patch.dict(os.environ, without_torch()):  # of the server, which the first starts
            self.process.start()
        theirs.close()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None

    def begin(self, task: Any) -> None:
        if self.process is None or not self.process.is_alive():
            self.start()
        self.task, self.waited = task, 0.0
        self.started = self.seconds()
        self.connection.send(task)

    def seconds(self) -> float:
        try:
            times = psutil.Process(self.process.pid).cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return times.user + times.system

    def poll(self, seconds: float) -> Outcome | None:
        """What came of the task, if it has ended within `seconds`."""
        try:
            if self.connection.poll(seconds):
                complaints = self.connection.recv()
                return Outcome(self.task, complaints, self.seconds() - self.started)
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode
            self.process = None
            return Outcome(self.task, [f"{self.task}: the process ended with code {code}"])
        self.waited += seconds
        used = self.seconds() - self.started
        if used > self.limit or self.waited > _PATIENCE * self.limit:
            self.stop()
            return Outcome(self.task, [f"{self.task}: not done after {used:.0f} CPU seconds"], used)
        return None

    def run(self, task: Any) -> Outcome:
        self.begin(task)
        while True:
            outcome = self.poll(0.5)
            if outcome is not None:
                return outcome


def run_all(tasks: Sequence[Any], count: int, limit: float = LIMIT) -> Iterator[Outcome]:
    """Outcomes of tasks, in the order in which they end."""
    workers = [Worker(limit) for _ in range(max(1, min(count, len(tasks))))]
    pending, busy = iter(tasks), []
    try:
        for worker in workers:
            task = next(pending, None)
            if task is not None:
                worker.begin(task)
                busy.append(worker)
        while busy:
            for worker in list(busy):
                outcome = worker.poll(0.05)
                if outcome is None:
                    continue
                yield outcome
                task = next(pending, None)
                if task is None:
                    busy.remove(worker)
                else:
                    worker.begin(task)
    finally:
        for worker in workers:
            worker.stop()


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
