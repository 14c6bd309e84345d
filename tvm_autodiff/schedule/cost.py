"""What work costs, and how much code is written: the prices that all rules compare by.

Times are cycles of one core, or of a multiprocessor. What the hardware is stands in `machine`.
`python benchmarks/calibrate.py` measures the prices on a machine and prints them beside these; what
it found, and which differ, is in docs/internals/performance.md. What passes after lowering decide
by, too, is defined in `codegen`.
"""

from __future__ import annotations

from ..codegen.host.host_cpu import USUAL_CACHES
from ..codegen.passes.small_launches import CALL, LARGE_SIZE, SYMBOLIC_SIZE, THREAD_CYCLES

__all__ = ["CALL", "LARGE_SIZE", "SYMBOLIC_SIZE", "THREAD_CYCLES"]

#: points of a reduction, or nodes of an expression, that cost as much as to store an element and to
#: read it again
STORE = 8
DIVISION = 8.0  #: operations that a quotient or a root counts as
LATENCY = 4  #: until the result of an addition is there, and as many vectors hide it
#: to call a kernel by its address, and as many points in plain loops: Runge and Kutta's method for
#: Lotka and Volterra's equations, 4 kernels, takes 24 ns a step in loops and 50 ns by calls for 128
#: points a kernel, 146 and 77 ns for 256 points
KERNEL_CALL = 128
#: to start a function and to wait for its threads, or a kernel of a GPU, and what is not worth one:
#: 1 to 2 µs
LAUNCH_CYCLES = 4_000
TURNED = 0.5  #: to write an element in another order, in the cache; twice as much beyond
#: to read a byte of a core's own cache beyond the first one, as `calibrate.py` measures
NEAR_BYTE = 0.037
#: to reach a byte of the cache that all cores share: with its scores there, attention of 32x128x64
#: with its gradient takes so much longer on Zen 5, at least
SHARED_BYTE = 0.03
MEMORY_BYTE = 0.09  #: and a byte of memory, as `calibrate.py` measures
MARGIN = 1.25  #: how much less an estimate has to be than one that is known better

MAX_TASKS = 16  #: of a thread: the others may wait for one of so many
MIN_LANES = 4  #: of a vector, below which single elements are as fast
#: the largest distance of elements that vectors are read or written with: LLVM shuffles as many
#: vectors into one. Sums of rows of K sines, 4,585 rows on AVX-512: K of 8 takes 15 µs so and 25
#: along the rows, K of 12 28 and 40, but 12 numbers without a function 15 and 14
MAX_STRIDE = 8
#: turns of a loop below which LLVM unrolls it and makes vectors of neighbouring rows
#: (docs/internals/decisions.md)
SHORT_LOOP = 64
#: copies of a body that are written out: code and the time to compile it grow with them
MAX_COPIES = 16
MAX_PIECES = 5  #: pieces of an axis at most; each is a copy of the loop body
MAX_NODES = 1_500  #: expressions of a body with all of its copies
MAX_SYMBOLS = 2  #: of a program that is planned for some sizes, too: each is a plan to build
#: bytes of a table of constants, which a core's own cache is to hold on usual machines
MAX_CONSTANT = USUAL_CACHES[1].size
MAX_SEARCHED = 5  #: things of which all orders or subsets are tried: 541 orders take under 0.1 ms


def is_even(count: int, threads: int) -> bool:
    """Whether equal tasks keep all threads busy but for one part in `MAX_TASKS`."""
    most = -(-count // threads)
    return MAX_TASKS * (most * threads - count) <= count


def enough_tasks(count: int, threads: int) -> bool:
    """Whether equal tasks are a fair share for every thread: several for each, or many."""
    return count >= 2 * threads and (count % threads == 0 or count >= MAX_TASKS * threads)
