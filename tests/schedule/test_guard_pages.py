"""No schedule reads or writes outside of an array: arrays touch pages that no one may read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.processes import without_torch
from tests.schedule.guarded_programs import PROGRAMS, WRONG
from tests.schedule.symbolic_programs import SYMBOLIC

ROOT = Path(__file__).parents[2]


def at_both_ends(names: Iterable[str]) -> list[str]:
    """Each program at both ends of its arrays, one after the other: a process builds it once."""
    return [f"{name}/{place}" for name in names for place in ("end", "begin")]


def ended(runs: Sequence[str]) -> dict[str, str]:
    """How each run ended; where one ends its process, another goes on with the next one."""
    found: dict[str, str] = {}
    while len(found) < len(runs):
        rest = [name for name in runs if name not in found]
        command = [sys.executable, "-m", "tests.schedule.guard_pages", *rest]
        pipes = {"capture_output": True, "text": True, "check": False}
        run = subprocess.run(command, cwd=ROOT, env=without_torch(), **pipes)
        begun = None
        for line in run.stdout.splitlines():
            verdict, name, *message = line.split(" ", 2)
            if verdict == "begin":
                begun = name
            elif name in runs:
                found[name] = " ".join([verdict, *message])
        if begun is None:
            raise AssertionError(run.stderr)
        how = f"the process ended with code {run.returncode}"
        found.setdefault(begun, f"{how}: {run.stderr[-2000:]}")
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="pages are mapped by Linux' calls")
@pytest.mark.parametrize("programs", [PROGRAMS, SYMBOLIC], ids=["guarded", "symbolic"])
def test_programs_read_only_their_arrays(programs: Iterable[str]) -> None:
    """One test of all: a process that starts again for each would build every program again."""
    found = ended(at_both_ends(programs))
    assert {name: how for name, how in found.items() if how != "right"} == {}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="pages are mapped by Linux' calls")
def test_a_read_beside_an_array_ends_the_process() -> None:
    """By a signal, at the end of the array that it leaves; none leaves the other one."""
    met = {name for name, how in ended(at_both_ends(WRONG)).items() if "ended with code -11" in how}
    assert met == {f"{name}/{name}" for name in WRONG}
