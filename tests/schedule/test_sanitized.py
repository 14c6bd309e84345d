"""Scheduled functions access nothing but their arrays: AddressSanitizer looks at every access.

Guard pages (`test_guard_pages`) see what lies behind the arrays of a call; here there are red zones
around what lies between the launches and around local arrays, too. The runtime library is gcc's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tests.processes import without_torch
from tests.schedule.checked_accesses import UncheckedAccessError, with_checks
from tests.schedule.guarded_programs import PROGRAMS
from tests.schedule.sanitized import FINE, TASKS, WRONG
from tests.schedule.sanitized_calls import Task, save

ROOT = Path(__file__).parents[2]


def libraries() -> list[str] | None:
    """What a process with AddressSanitizer loads first; None where gcc does not have it.

    The library looks for C++'s functions when it is loaded, which Python does not bring.
    """
    gcc = shutil.which("gcc")
    if sys.platform != "linux" or gcc is None:
        return None
    found = [
        subprocess.run(
            [gcc, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    return found if all(Path(path).is_file() for path in found) else None


LIBRARIES = libraries()
needs_sanitizer = pytest.mark.skipif(LIBRARIES is None, reason="gcc's libasan is not there")


def tasks_in(folder: Path) -> dict[str, Task]:
    """All tasks, their code in folders of their own."""
    made = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a dense fallback is to stay inside, too
        for name, make in TASKS.items():
            own = folder / name.replace("/", "-")
            own.mkdir()
            made[name] = make(own)
    return made


def reports(tasks: Path) -> dict[str, str]:
    """What was printed for each task of a file."""
    environment = {
        **without_torch(),
        "LD_PRELOAD": " ".join(LIBRARIES or []),
        # leaks are Python's and TVM's; the wider a red zone, the further away a read is seen
        "ASAN_OPTIONS": "detect_leaks=0:redzone=256:quarantine_size_mb=16",
    }
    command = [sys.executable, "-m", "tests.schedule.sanitized_calls", str(tasks)]
    run = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-2000:]
    parts = f"\n{run.stdout}".split("\nbegin ")[1:]
    return {name: text.strip() for name, text in (part.split("\n", 1) for part in parts)}


@pytest.mark.slow
@needs_sanitizer
def test_launches_access_only_their_arrays_and_wrong_ones_are_seen(tmp_path: Path) -> None:
    """In one process: starting it takes as long as many programs."""
    found = reports(save(tasks_in(tmp_path), tmp_path / "tasks"))
    right = [*PROGRAMS, *FINE]
    assert {name: found[name] for name in right} == dict.fromkeys(right, "end right")
    seen = {
        name: "ERROR: AddressSanitizer" in found[name] and "\nend " not in found[name]
        for name in WRONG
    }
    assert seen == dict.fromkeys(WRONG, True)


@pytest.mark.parametrize(
    ("line", "checks"),
    [
        ("  %3 = load <3 x i32>, ptr %p, align 4, !tbaa !7", [("load", "%p", 12)]),
        ("  %3 = load i1, ptr gep (i8, ptr @g), align 1", [("load", "gep (i8, ptr @g)", 1)]),
        ("  store <2 x float> <float 1.0, float 2.0>, ptr %7, align 8", [("store", "%7", 8)]),
        ("  store ptr %a, ptr %b, align 8", [("store", "%b", 8)]),
        ("  %4 = atomicrmw fadd ptr %p, double %x monotonic, align 8", [("store", "%p", 8)]),
        ('  call void @f(ptr @.str) ; "load this"', []),
        ("  %5 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr %p)", None),
        ("  %6 = load { i32, i32 }, ptr %p, align 4", None),
    ],
)
def test_checks_in_front_of_accesses(line: str, checks: list | None) -> None:
    """Each access gets one; what is not understood is an error, not left unchecked."""
    if checks is None:
        with pytest.raises(UncheckedAccessError):
            with_checks(line)
        return
    lines = with_checks(line).split("\n")
    want = []
    for kind, address, size in checks:
        want.append(f"  %address.0 = ptrtoint ptr {address} to i64")
        want.append(f"  call void @__asan_{kind}N(i64 %address.0, i64 {size})")
    assert lines[: len(checks) * 2 + 1] == [*want, line]
