"""The time of ``import tvm_autodiff`` beyond ``import tvm``: ``python benchmarks/import_time.py``.

Medians over processes that take turns.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

CLOCK = "import time; begin = time.perf_counter(); import {}; print(time.perf_counter() - begin)"


def seconds(module: str) -> float:
    """The time of an import in a fresh process."""
    command = [sys.executable, "-c", CLOCK.format(module)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print the medians of both imports, and their difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=15)
    count = parser.parse_args().processes
    pairs = [(seconds("tvm"), seconds("tvm_autodiff")) for _ in range(count)]
    tvm, ours = (statistics.median(times) for times in zip(*pairs, strict=True))
    print(f"tvm {tvm:.3f} s, tvm_autodiff {ours:.3f} s: {ours - tvm:.3f} s more")


if __name__ == "__main__":
    main()
