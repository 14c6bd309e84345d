"""The time of ``import tvm_autodiff`` after ``import tvm``, and of what a first gradient loads.

``python benchmarks/import_time.py``: medians over processes.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

CODE = """
from time import perf_counter as now
begin = now()
import tvm
tvm_loaded = now()
import tvm_autodiff
ours_loaded = now()
tvm_autodiff.differentiate
gradient_loaded = now()
tvm_autodiff.build
times = begin, tvm_loaded, ours_loaded, gradient_loaded, now()
print(*(after - before for before, after in zip(times, times[1:])))
"""
PARTS = ("import tvm", "import tvm_autodiff", "differentiate is loaded", "build is loaded")


def seconds() -> list[float]:
    """The times of the parts in a fresh process."""
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=15)
    count = parser.parse_args().processes
    times = zip(*(seconds() for _ in range(count)), strict=True)
    for part, found in zip(PARTS, times, strict=True):
        print(f"{statistics.median(found):.3f} s  {part}")


if __name__ == "__main__":
    main()
