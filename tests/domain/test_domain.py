"""Domain and DomainTransformation: points, parameters, composition, what a check finds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from tvm import te, tirx

from tests.domain.systems import domains, isl_points
from tvm_autodiff.domain import (
    Domain,
    DomainTransformation,
    eliminate_div_mod,
    simplify_domain,
    solve_linear_equations,
)
from tvm_autodiff.errors import InvalidArgumentError, UnsolvableError

b, i, j, n = (te.var(name) for name in "bijn")


def test_points_and_volume() -> None:
    domain = Domain((i, j), {i: (1, 3), j: (0, i)}, (j < 2,))
    assert list(domain.points()) == [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1)]
    assert Domain((i,), {i: (0, 2 * n)}).volume({n: 3}) == 6
    assert Domain((i,), {i: (0, -2)}).volume() == 0


def test_parameters_in_order_of_occurrence() -> None:
    domain = Domain((i,), {i: (0, n), b: (0, 3)}, ((i + j).equal(b),))
    assert [var.name for var in domain.parameters] == ["b", "n", "j"]


def test_lazy_equality_is_accepted() -> None:
    assert list(Domain((i,), {i: (0, 5)}, (i + 0 == 3,)).points()) == [(3,)]


def test_bad_domains() -> None:
    with pytest.raises(InvalidArgumentError, match="no range"):
        Domain((i,), {})
    with pytest.raises(InvalidArgumentError, match="twice"):
        Domain((i, i), {i: (0, 3)})
    x = te.var("x", "float32")
    with pytest.raises(InvalidArgumentError, match="int32 or int64"):
        Domain((x,), {x: (0, 3)})
    with pytest.raises(UnsolvableError, match="no upper bound"):
        list(Domain((i,), {i: (0, None)}).points())
    with pytest.raises(UnsolvableError, match="no constant range"):
        list(Domain((i,), {i: (0, n)}).parameter_values())


def test_check_finds_what_is_no_bijection() -> None:
    k = te.var("k")
    old = Domain((i,), {i: (0, 4)})
    wrong = {
        "lost": (Domain((k,), {k: (0, 3)}), {k: i + 0}, {i: k + 0}),
        "invented": (Domain((k,), {k: (0, 5)}), {k: i + 0}, {i: k + 0}),
        "shifted": (Domain((k,), {k: (0, 4)}), {k: i + 0}, {i: k + 1}),
        "twice": (Domain((k,), {k: (0, 4)}), {k: i // 2}, {i: k + 0}),
    }
    for new, forward, back in wrong.values():
        with pytest.raises(AssertionError, match="point"):
            DomainTransformation(new, old, forward, back).check()


def test_empty_keeps_the_parameters() -> None:
    domain = Domain((i,), {i: (0, 3), b: (0, 4)}, (i > b,))
    empty = DomainTransformation.empty(domain)
    assert empty.new_domain.is_empty
    assert list(empty.new_domain.points({b: 1})) == []
    assert set(empty.old_to_new) == {i}


def test_steps_compose() -> None:
    domain = Domain(
        (i, j),
        {i: (0, 9), j: (0, 7), b: (0, 6)},
        ((i % 3 + j).equal(b), tirx.floordiv(i, 3) <= 1),
    )
    first = eliminate_div_mod(domain)
    second = solve_linear_equations(first.new_domain)
    third = simplify_domain(second.new_domain)
    whole = first.then(second).then(third)
    direct = simplify_domain(domain)
    for values in domain.parameter_values():
        assert whole.check(values) == direct.check(values)


@pytest.mark.slow
@settings(max_examples=150)
@given(domains())
def test_points_agree_with_islpy(domain: Domain) -> None:
    if any("T." in str(condition) for condition in domain.conditions):
        return  # truncating division is not in isl's language
    values = next(domain.parameter_values())
    assert isl_points(domain, values) == set(domain.points(values))
