"""No schedule reads or writes outside of an array: arrays touch pages that no one may read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import without_torch
from tests.schedule.guarded_programs import PROGRAMS

ROOT = Path(__file__).parents[2]


#: each program at both ends of its arrays, one after the other: a process builds it once
RUNS = [f"{name}/{place}" for name in PROGRAMS for place in ("end", "begin")]


def ended() -> dict[str, str]:
    """How each run ended; where one ends its process, another goes on with the next one."""
    found: dict[str, str] = {}
    while len(found) < len(RUNS):
        rest = [name for name in RUNS if name not in found]
        command = [sys.executable, "-m", "tests.schedule.guard_pages", *rest]
        pipes = {"capture_output": True, "text": True, "check": False}
        run = subprocess.run(command, cwd=ROOT, env=without_torch(), **pipes)
        begun = None
        for line in run.stdout.splitlines():
            verdict, name, *message = line.split(" ", 2)
            if verdict == "begin":
                begun = name
            elif name in RUNS:
                found[name] = " ".join([verdict, *message])
        if begun is None:
            raise AssertionError(run.stderr)
        found.setdefault(begun, f"the process ended: {run.stderr[-2000:]}")
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="pages are mapped by Linux' calls")
def test_programs_read_only_their_arrays() -> None:
    """One test of all: a process that starts again for each would build every program again."""
    assert {name: how for name, how in ended().items() if how != "right"} == {}
