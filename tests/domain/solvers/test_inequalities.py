"""solve_linear_inequalities: loop nests over the bounds visit exactly the points of the domain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from tvm import te
from tvm.ir import Var

from tests.domain.systems import domains
from tvm_autodiff.domain import Domain, solve_linear_inequalities
from tvm_autodiff.domain.solvers.inequalities import VariableBounds, project
from tvm_autodiff.expr.integers.integer_functions import compile_integers
from tvm_autodiff.expr.rewrite import depends_on

b, i, j, k, n = (te.var(name) for name in "bijkn")


def nest(domain: Domain, bounds: VariableBounds, values: dict[Var, int]) -> set[tuple[int, ...]]:
    """The points that a loop nest with these bounds visits."""

    def visit(prefix: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        names = [*values, *domain.variables[: len(prefix)]]
        at = (*values.values(), *prefix)
        if len(prefix) == len(domain.variables):
            if all(compile_integers(list(bounds.conditions), names)(*at)):
                yield prefix
            return
        var = domain.variables[len(prefix)]
        lows = compile_integers(list(bounds.lower[var]), names)(*at)
        highs = compile_integers(list(bounds.upper[var]), names)(*at)
        for value in range(max(lows), min(highs) + 1):
            yield from visit((*prefix, value))

    return set() if bounds.is_empty else set(visit(()))


CASES: dict[str, tuple[Any, Any]] = {
    "box": ({i: (0, 3), j: (-1, 4)}, ()),
    "triangle": ({i: (0, 5), j: (0, 5)}, (i + j < 4,)),
    "diamond": ({i: (-4, 9), j: (-4, 9)}, (i + j <= 3, i + j >= -3, i - j <= 3, i - j >= -3)),
    "scaled": ({i: (0, 9), j: (0, 9)}, (2 * i + 3 * j <= 11, 3 * j - 2 * i >= -1)),
    "parameter": ({i: (0, 9), j: (0, 9), b: (0, 6)}, (i + 2 * j <= b, j >= b - 3)),
    "equation": ({i: (0, 9), j: (0, 9), b: (0, 6)}, ((i + j).equal(b),)),
    "empty": ({i: (0, 5), j: (0, 5)}, (i < j, j < i)),
    "only parameters": ({i: (0, 3), j: (0, 3), b: (0, 6)}, (b > 2,)),
    "not linear": ({i: (0, 4), j: (0, 4)}, ((i * j).equal(4),)),
}


@pytest.mark.parametrize("name", CASES)
def test_nest(name: str) -> None:
    ranges, conditions = CASES[name]
    domain = Domain((i, j), ranges, conditions)
    bounds = solve_linear_inequalities(domain)
    for values in domain.parameter_values():
        assert nest(domain, bounds, values) == set(domain.points(values))


def test_bounds_depend_on_earlier_variables_only() -> None:
    domain = Domain((i, j, k), dict.fromkeys((i, j, k), (0, 9)), (i + j + k <= 9, k >= i + 2 * j))
    bounds = solve_linear_inequalities(domain)
    assert not any(depends_on(e, [i, j, k]) for e in (*bounds.lower[i], *bounds.upper[i]))
    assert not any(depends_on(e, [j, k]) for e in (*bounds.lower[j], *bounds.upper[j]))


def test_symbolic_bounds() -> None:
    domain = Domain((i, j), {i: (0, n), j: (0, n)}, (i < j,))
    bounds = solve_linear_inequalities(domain)
    for size in range(1, 6):
        assert nest(domain, bounds, {n: size}) == set(domain.points({n: size}))


def test_growth_is_capped() -> None:
    """Twelve variables in sixty inequalities: the full elimination would make millions."""
    forms = [{v: (v * r) % 7 - 3 or 1 for v in range(1, 13)} | {0: r % 5} for r in range(1, 61)]
    levels = project(forms, list(range(1, 13)))
    assert levels is not None
    assert max(len(level) for level in levels) <= 60


@pytest.mark.slow
@settings(max_examples=200)
@given(domains())
def test_random_nests(domain: Domain) -> None:
    bounds = solve_linear_inequalities(domain)
    values = next(domain.parameter_values())
    assert nest(domain, bounds, values) == set(domain.points(values))
