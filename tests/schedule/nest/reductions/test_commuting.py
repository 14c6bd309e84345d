"""Whether reducers commute, by numbers."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from tvm_autodiff.graph.stage import reduction_of
from tvm_autodiff.schedule.nest.reductions.commuting import commutes

REDUCERS = {
    "sum": (1, lambda a, b: (a[0] + b[0],), True),
    "product": (1, lambda a, b: (b[0] * a[0],), True),
    "log-sum": (1, lambda a, b: (te.log(te.exp(a[0]) + te.exp(b[0])),), True),
    "sum and maximum": (2, lambda a, b: (a[0] + b[0], tirx.Max(a[1], b[1])), True),
    "greatest": (
        2,
        lambda a, b: tuple(tirx.Select(a[1] >= b[1], x, y) for x, y in zip(a, b, strict=True)),
        True,
    ),
    "quotients": (1, lambda a, b: (a[0] * b[0] / (a[0] + b[0]),), True),
    "the last": (1, lambda a, b: (b[0],), False),
    "affine maps": (2, lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), False),
    "quaternions": (
        4,
        lambda a, b: (
            a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
            a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
            a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
            a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
        ),
        False,
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("name", REDUCERS)
def test_by_numbers(name, dtype):
    count, combine, expected = REDUCERS[name]
    if dtype == "int32" and name in ("log-sum", "quotients"):
        pytest.skip("for floats")
    parts = (lambda a, b: combine((a,), (b,))[0]) if count == 1 else combine
    start = lambda *dtypes: tuple(tirx.const(0, t) for t in dtypes)  # noqa: E731
    reduce = te.comm_reducer(parts, start if count > 1 else (lambda t: tirx.const(0, t)))
    A, k = te.placeholder((8,), dtype, name="A"), te.reduce_axis((0, 8), "k")
    values = tuple(A[k] for _ in range(count))
    made = te.compute((), lambda: reduce(values if count > 1 else values[0], axis=k), name="W")
    op = made.op if count == 1 else made[0].op
    assert commutes(reduction_of(op).combiner) == expected
