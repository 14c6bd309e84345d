"""Quotients of sizes by names: equal ones share a name, and no value changes."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te

from tests.evaluate import evaluate
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.schedule.nest.quotient_names import QuotientNames

i, n, m = te.var("i"), te.var("n"), te.var("m")
data = te.placeholder((9,), "int32", "data")

#: name → expressions; how many names they have, and how many quotients are left
CASES: dict[str, tuple[list[Any], int, int]] = {
    "one of a size": ([n // 2 + i], 1, 0),
    "equal ones": ([n // 2 + i, n // 2 * 2], 1, 0),
    "a whole number apart": ([(n + 3) // 2, (n + 1) // 2, (n - 5) // 2 + i], 1, 0),
    "half a number apart": ([(n + 1) // 2, n // 2], 2, 0),
    "terms in another order": ([(n + m) // 3, (m + n + 6) // 3], 1, 0),
    "other divisors": ([n // 2, n // 3], 2, 0),
    "a quotient and a remainder": ([n // 4, n % 4], 2, 0),
    "remainders": ([(n + 9) % 4, (n + 1) % 4], 1, 0),
    "one of another": ([(n // 2 + 3) // 2, n // 2], 2, 0),
    "of the loop": ([(i + n) // 2, i % 3], 0, 2),
    "inside of one of the loop": ([(i + n // 2) // 2], 1, 1),
    "by a size": ([n // m], 0, 1),
    "of data": ([data[0] // 2], 0, 1),
}


def quotients(exprs: list[Any]) -> int:
    return sum(op_name(node) in ("floordiv", "floormod") for node in postorder(exprs))


@pytest.mark.parametrize("name", CASES)
def test_names_and_what_they_stand_for(name: str) -> None:
    exprs, count, left = CASES[name]
    names = QuotientNames(i)
    named = names.of(exprs)
    assert len(names.variables) == count
    assert quotients(named) == left
    whole = names.whole(named)
    if name == "of data":
        return
    for size in (0, 1, 5, 12):
        values = {i: 7, n: size, m: 4}
        assert [evaluate(e, values) for e in whole] == [evaluate(e, values) for e in exprs]
