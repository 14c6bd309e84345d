"""Calls compiled functions on the heap of AddressSanitizer.

Run as ``python -m tests.schedule.sanitized_calls FILE``, a file of tasks (`save`), in a process
that AddressSanitizer's library is loaded into. For each task it prints ``begin``, the report of an
access outside of an array, of an intermediate or of a local array, or ``end`` and what came of it.
Nothing of the library is imported, since everything takes long in such a process.
"""

from __future__ import annotations

import mmap
import os
import pickle
import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tvm

Key = Hashable


@dataclass(frozen=True)
class Call:
    """A call of the function ``main`` of a file of LLVM IR.

    Attributes
    ----------
    code : Path
    inputs : tuple of Key
        The arrays that are read.
    outputs : dict
        The arrays that are made for what is written: shape and dtype by key.
    """

    code: Path
    inputs: tuple[Key, ...]
    outputs: dict[Key, tuple[tuple[int, ...], str]]


@dataclass(frozen=True)
class Task:
    """Rounds of calls: the arrays that are given, the calls, and what the arrays are to hold."""

    strips: list[tuple[dict[Key, np.ndarray], list[Call], list[tuple[Key, np.ndarray]]]] = field(
        default_factory=list
    )


def save(tasks: Mapping[str, Task], path: Path) -> Path:
    """Write tasks by name to a file."""
    path.write_bytes(pickle.dumps(dict(tasks)))
    return path


def run(task: Task) -> None:
    """Run all calls, and compare the results."""
    codes = {call.code for _, calls, _ in task.strips for call in calls}
    functions = {code: tvm.runtime.load_module(str(code))["main"] for code in codes}
    for given, calls, wanted in task.strips:
        found = dict(given)
        for call in calls:
            for key, (shape, dtype) in call.outputs.items():
                found[key] = np.full(shape, 77, dtype)
            functions[call.code](*(_given(found[key]) for key in (*call.inputs, *call.outputs)))
        for key, should in wanted:
            np.testing.assert_allclose(found[key], should, rtol=1e-4, atol=1e-4)


def _given(array: np.ndarray) -> Any:
    # numpy gives an empty array strides of zero, which are no layout to TVM
    return array if array.size else tvm.runtime.empty(array.shape, array.dtype.name)


def outcome(task: Task) -> str:
    """``right``, or what is wrong with the numbers or was raised."""
    try:
        run(task)
    except Exception as error:
        return f"wrong {error!r}".replace("\n", " ")[:2000]
    return "right"


def main(path: str) -> None:
    tasks: dict[str, Task] = pickle.loads(Path(path).read_bytes())
    names = list(tasks)
    begun = mmap.mmap(-1, 8)  # how many tasks were, by all processes
    while (first := _count(begun)) < len(names):
        child = os.fork()  # a wrong access ends it, and another one goes on with the next task
        if child == 0:
            for number, name in enumerate(names[first:], first + 1):
                begun[:] = number.to_bytes(8, "little")
                print("begin", name, flush=True)
                print("end", outcome(tasks[name]), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        assert _count(begun) > first, "a process ended before it did anything"


def _count(begun: mmap.mmap) -> int:
    return int.from_bytes(begun[:], "little")


if __name__ == "__main__":
    main(*sys.argv[1:])
