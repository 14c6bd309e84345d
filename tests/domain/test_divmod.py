"""eliminate_div_mod: quotients become variables with ranges, and the points stay the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from tvm import te, tirx

from tests.domain.systems import domains
from tvm_autodiff.domain import Domain, eliminate_div_mod
from tvm_autodiff.errors import UnsolvableError
from tvm_autodiff.expr.nodes import op_name
from tvm_autodiff.expr.rewrite import contains

b, i, j, n = (te.var(name) for name in "bijn")
three = tirx.const(3, "int32")


def eq(left: Any, right: Any) -> Any:
    return (left + 0).equal(right)


#: name → conditions, number of quotients
CASES: dict[str, tuple[list[Any], int]] = {
    "none": ([eq(i + j, b)], 0),
    "quotient": ([eq(i // 3, b)], 1),
    "remainder": ([eq(i % 3, b)], 1),
    "both": ([eq(i // 3, b), i % 3 < 2], 1),
    "of a sum": ([eq((2 * i - j) // 3, b)], 1),
    "nested": ([eq((i // 2 + j) % 3, b)], 2),
    "folds away": ([eq((6 * i + j) // 6, b)], 1),
    "of a parameter": ([eq(i, b // 2)], 0),
    "truncating": ([eq(tirx.truncdiv(i, three), b), tirx.truncmod(0 - i, three) > -2], 1),
    "in an inequality": ([i // 3 + j // 2 <= b], 2),
}


@pytest.mark.parametrize("name", CASES)
def test_quotients(name: str) -> None:
    conditions, quotients = CASES[name]
    domain = Domain((i, j), {i: (0, 9), j: (-3, 9), b: (-3, 8)}, tuple(conditions))
    transformation = eliminate_div_mod(domain)
    new = transformation.new_domain
    assert len(new.variables) == 2 + quotients
    own = {var.name for var in new.variables}
    for condition in new.conditions:
        assert not contains(
            condition,
            lambda node: (
                op_name(node) in ("floordiv", "floormod", "truncdiv", "truncmod")
                and any(name in str(node) for name in own)
            ),
        )
    for values in domain.parameter_values():
        transformation.check(values)


def test_unknown_sign_of_a_truncating_division_stays() -> None:
    domain = Domain((i,), {i: (-5, 11), b: (-2, 5)}, (eq(tirx.truncdiv(i, three), b),))
    transformation = eliminate_div_mod(domain)
    assert transformation.new_domain.variables == (i,)
    assert sum(transformation.check(values) for values in domain.parameter_values()) == 11


def test_unbounded_quotient_is_refused() -> None:
    with pytest.raises(UnsolvableError, match="no constant bounds"):
        eliminate_div_mod(Domain((i,), {i: (0, n)}, (eq(i // 3, 1),)))


@pytest.mark.slow
@settings(max_examples=200)
@given(domains())
def test_random_systems(domain: Domain) -> None:
    eliminate_div_mod(domain).check(next(domain.parameter_values()))
