"""What work costs, and how much code is written: the prices that all rules compare by.

Times are cycles of one core. What the hardware determines is in `machine`.
"""

from __future__ import annotations

SYMBOLIC_SIZE = 64  #: what a symbolic extent counts as

#: points of a reduction, or nodes of an expression, that cost as much as to store an element and to
#: read it again
STORE = 8
CALL = 24.0  #: operations that an expensive function counts as
#: points in plain loops that take as long as to call a kernel by its address: Runge and Kutta's
#: method for Lotka and Volterra's equations, 4 kernels, takes 24 ns a step in loops and 50 ns by
#: calls for 128 points a kernel, 146 and 77 ns for 256 points
KERNEL_CALL = 128
MOVED_LINE = 1.0  #: to move a line from the second cache to the first ahead of its use, measured
TURNED = 0.5  #: to write an element in another order, in the cache; twice as much beyond
FAR_WRITE = 10.0  #: to write an element to another page than the one before
#: to load a byte and to transpose it: a moving average over one row of float32, which moves 12
#: bytes a step in two passes, takes 0.38 ns a step, four rows 0.8 ns
MOVED_BYTE = 0.09
#: to reach a byte of the cache that all cores share: with its scores there, attention of 32x128x64
#: with its gradient takes so much longer on Zen 5, at least
SHARED_BYTE = 0.03
MEMORY_BYTE = 0.1  #: and a byte of memory: the same for 8x512x64 and 4x2048x64
CALL_CYCLES = 250  #: of a kernel that a loop calls, without its work
MARGIN = 1.25  #: how much less an estimate has to be than one that is known better
SURE = 2.0  #: how much longer reads in place take at least than a copy that replaces them

MIN_LANES = 4  #: of a vector, below which single elements are as fast
#: the largest distance of elements that vectors are read or written with: LLVM shuffles as many
#: vectors into one
MAX_STRIDE = 4
#: turns of a loop below which LLVM unrolls it and makes vectors of neighbouring rows
#: (docs/internals/decisions.md)
SHORT_LOOP = 64
#: copies of a body that are written out: code and the time to compile it grow with them
MAX_COPIES = 16
MAX_PIECES = 5  #: pieces of an axis at most; each is a copy of the loop body
MAX_NODES = 1_500  #: expressions of a body with all of its copies
MAX_TREE = 400  #: nodes of a body that others are written into, sharing not counted
MAX_CHEAP_TREE = 40  #: nodes of a body that may be computed twice
MAX_ROW = 32_768  #: elements of a row of one tensor, which has to stay in cache
MAX_SEARCHED = 5  #: things of which all orders or subsets are tried: 541 orders take under 0.1 ms
