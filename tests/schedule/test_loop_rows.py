"""Which loops run through all steps in blocks of rows: by what all rows read, and how often."""

from __future__ import annotations

import pytest
from tvm import te

from tests.machines import avx512
from tests.schedule import cases
from tvm_autodiff.graph.kinds.loop import Loop, step_of
from tvm_autodiff.schedule.loop_rows import rows_apart


@pytest.mark.parametrize(
    ("rows", "size", "threads", "apart"),
    [
        (4, 128, 2, True),  # the weights fit the cache of each core
        (32, 512, 2, True),  # they do not, but there is much to compute with each of them
        (4, 512, 2, False),  # each core would wait for weights that it uses twice
        (32, 1_500, 2, False),  # each core would read from main memory what two can read once
        (256, 512, 16, True),
        (256, 600, 16, False),  # 16 copies do not fit the cache that the cores share
    ],
)
def test_weights_decide_whether_rows_run_apart(
    rows: int, size: int, threads: int, apart: bool
) -> None:
    [state, weights], new = cases.matmul(rows, size, size)
    step = step_of([state], [], [weights], [new], [])
    init, given = te.placeholder((rows, size)), te.placeholder((size, size))
    loop = Loop(step, (init,), (), (given,), 100)
    assert (rows_apart(loop, avx512(threads)) is not None) == apart
