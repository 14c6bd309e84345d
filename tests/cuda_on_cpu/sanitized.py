"""Runs tests whose kernels AddressSanitizer checks, in the place of the check of every access.

Run as ``python -m tests.cuda_on_cpu.sanitized tests/schedule/cuda``, with any arguments of pytest.
Red zones lie around arrays, arrays of shared memory and, as nothing else sees, those of a thread.
Races are not looked for. AddressSanitizer's library must be loaded in front of Python, hence the
process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from tests.cuda_on_cpu.compiler import WITH_ADDRESSES
from tests.processes import without_torch
from tests.schedule.test_sanitized import LIBRARIES


def environment() -> dict[str, str] | None:
    """What such a process is started with; None where gcc has no AddressSanitizer."""
    if LIBRARIES is None:
        return None
    return {
        **without_torch(),
        WITH_ADDRESSES: "1",
        "LD_PRELOAD": " ".join(LIBRARIES),
        # leaks are Python's and TVM's; a call goes on, so that it fails with what was found; equal
        # kernels of two libraries have one name
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=0:detect_odr_violation=0",
    }


def main(arguments: Sequence[str]) -> int:
    started = environment()
    if started is None:
        print("gcc's libasan is not there")
        return 1
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, env=started, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
