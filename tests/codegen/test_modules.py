"""What TVM tells of functions of symbolic sizes, or fails to."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te

from tvm_autodiff.codegen.modules import only_reshapes
from tvm_autodiff.codegen.stages.primfunc import stage_function
from tvm_autodiff.schedule.primitives import schedule_of, scheduled

n = te.var("n")


def copied(size: Any, fused: bool) -> Any:
    """``y[i, j, k] = x[i, j, k]``, where it is `fused` in one loop over i and j."""
    x = te.placeholder((3, 3, size), "int32", name="x")
    y = te.compute((3, 3, size), lambda i, j, k: x[i, j, k], name="y")
    function = stage_function([y.op], [y])
    schedule, [block] = schedule_of(function)
    if fused:
        schedule.fuse(*schedule.get_loops(block)[:2])
    return scheduled(schedule, function).func


@pytest.mark.parametrize(
    ("size", "fused", "known"),
    [
        (4, False, True),
        (4, True, True),
        (n, True, True),
        (n + 2, False, False),  # TVM's check raises
        (n + 2, True, False),
    ],
)
def test_copies_are_reshapes_where_tvm_can_tell(size: Any, fused: bool, known: bool) -> None:
    assert only_reshapes(copied(size, fused)) == known
