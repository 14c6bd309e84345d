"""The audit of kernels for a GPU counts what threads touch: neighbours, strides, guards, sums."""

from __future__ import annotations

import pytest
from tvm import te

from benchmarks._cuda_accesses import iterations_of, launches_of, patterns_of
from tests.schedule import cases
from tests.schedule.cuda.scheduled import scheduled
from tvm_autodiff.schedule.cuda.rules import CUDA_RULES

pytestmark = pytest.mark.slow

FALLBACK = CUDA_RULES[-1:]


def patterns(output, rules=CUDA_RULES):
    """The launch of a program of one kernel, and its reads and writes by tensor."""
    [(launch, _)] = scheduled(output, rules)
    [found] = launches_of(launch.func)
    return found, {p.access.writes: p for p in patterns_of(found)}


def copied(index, shape=(1024, 1024)):
    A = te.placeholder(shape, name="A")
    return te.compute((1024, 512), lambda i, j: A[index(i, j)], name="B")


#: what a warp reads at a time, in sectors of 32 bytes and in those it needs
READS = {
    "neighbours": (lambda i, j: (i, j), 4, 4),
    "every second": (lambda i, j: (i, j * 2), 8, 4),
    "one a row": (lambda i, j: (j, i), 32, 4),
    "the same for all": (lambda i, j: (i, 0), 1, 1),
}


@pytest.mark.parametrize("name", READS)
def test_sectors(name):
    index, sectors, ideal = READS[name]
    _, found = patterns(copied(index), FALLBACK)
    assert (found[False].sectors, found[False].ideal) == (sectors, ideal)
    assert (found[True].sectors, found[True].each) == (4, 1)


def test_transposition_reads_neighbours():
    launch, found = patterns(cases.transposed(320, 256)[1])
    assert launch.shared
    assert found[False].sectors == found[True].sectors == 4


def test_rows_of_a_thread_and_of_a_warp():
    _, inputs = cases.rows(64, 256)
    slow, alone = patterns(inputs, FALLBACK)
    assert (slow.extent("threadIdx") * slow.extent("blockIdx"), alone[False].each) == (64, 256)
    assert alone[False].sectors == 32
    fast, together = patterns(inputs)
    assert fast.extent("threadIdx") * fast.extent("blockIdx") >= 64 * 32
    assert together[False].each <= 8
    assert together[False].sectors == 4


def test_guards_keep_threads_from_reading():
    A = te.placeholder((4096,), name="A")
    body = lambda i: te.if_then_else(i % 2 == 0, A[i // 2], 0.0)  # noqa: E731
    _, found = patterns(te.compute((8192,), body, name="B"))
    assert found[False].sectors == 2  # 16 of 32 threads read


def test_window_is_read_once_a_block():
    launch, found = patterns(cases.pool(2, 56, 3, 1)[1], FALLBACK)
    read = found[False]
    assert 8 < read.each < 9  # less at the borders
    # far fewer different sectors than are asked for
    asked = read.each * read.sectors * launch.extent("threadIdx") / 32
    assert read.block_sectors * 4 < asked


def test_arithmetic_is_counted_by_iterations():
    [(launch, _)] = scheduled(cases.rows(64, 256)[1], FALLBACK)
    [found] = launches_of(launch.func)
    threads = found.extent("threadIdx") * found.extent("blockIdx")
    total = sum(iterations_of(loops, found) * n for loops, n in found.arithmetic) * threads
    assert total == 64 * 256
