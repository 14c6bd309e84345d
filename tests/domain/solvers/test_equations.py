"""solve_linear_equations: solutions, conditions on parameters, systems without solutions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tvm import te

from tvm_autodiff.domain import Domain, solve_linear_equations
from tvm_autodiff.domain.affine import Atoms
from tvm_autodiff.domain.forms import constant, substitute_linear
from tvm_autodiff.domain.solvers.equations import merge_parallel, solve_forms

b, c, i, j, k, n = (te.var(name) for name in "bcijkn")


def eq(left: Any, right: Any) -> Any:
    return (left + 0).equal(right)


BOX = {i: (0, 6), j: (-2, 7), k: (1, 4), b: (-3, 12), c: (0, 5)}
#: name → conditions, number of free variables
SOLVED: dict[str, tuple[list[Any], int]] = {
    "none": ([], 3),
    "unit": ([eq(i, b)], 2),
    "sum": ([eq(i + j, b)], 2),
    "common factor": ([eq(2 * i + 4 * j, b)], 2),
    "coprime": ([eq(2 * i + 3 * j + 5 * k, b)], 2),
    "negative": ([eq(-3 * i - 2 * j, b - 4)], 2),
    "two": ([eq(i + j, b), eq(i - j, c)], 1),
    "dependent": ([eq(i + j, b), eq(2 * i + 2 * j, 2 * b)], 2),
    "dependent on parameters": ([eq(i + j, b), eq(i + j, c)], 2),
    "three": ([eq(i + j, b), eq(j + k, c), eq(i + k, 3)], 0),
    "inequality beside": ([eq(i + j, b), i < k], 2),
    "division beside": ([eq(i + j, b), eq(k // 2, 1)], 2),
}


@pytest.mark.parametrize("name", SOLVED)
def test_solved(name: str) -> None:
    conditions, free = SOLVED[name]
    domain = Domain((i, j, k), BOX, tuple(conditions))
    transformation = solve_linear_equations(domain)
    assert len(transformation.new_domain.variables) == free
    total = sum(transformation.check(values) for values in domain.parameter_values())
    assert total > 0


UNSOLVABLE = {
    "parity": [eq(2 * i + 4 * j, 2 * b + 1)],
    "contradiction": [eq(i + j, b), eq(i + j, b + 1)],
    "constant": [eq(i - i, 1)],
    "crossing bounds": [eq(i + j, b), i - k > 2, i - k < 1],
}


@pytest.mark.parametrize("name", UNSOLVABLE)
def test_unsolvable_gives_the_empty_domain(name: str) -> None:
    domain = Domain((i, j, k), BOX, tuple(UNSOLVABLE[name]))
    assert solve_linear_equations(domain).new_domain.is_empty


def test_solvability_is_a_condition_on_parameters() -> None:
    domain = Domain((i,), {i: (0, 9), b: (0, 30)}, (eq(3 * i, b),))
    new = solve_linear_equations(domain).new_domain
    assert "b % 3 == 0" in [str(condition) for condition in new.conditions]


def test_symbolic_ranges() -> None:
    domain = Domain((i, j), {i: (0, n), j: (0, n), b: (0, n), n: (1, None)}, (eq(i + j, b),))
    transformation = solve_linear_equations(domain)
    for size in range(1, 4):
        for place in range(size):
            assert transformation.check({n: size, b: place}) == place + 1


rows = st.lists(st.lists(st.integers(-6, 6), min_size=5, max_size=5), min_size=1, max_size=3)


@settings(max_examples=300)
@given(rows, st.lists(st.integers(-3, 3), min_size=3, max_size=3))
def test_every_solution_has_its_free_values(table: list[list[int]], point: list[int]) -> None:
    """Equations through a known point: its free values give the point back."""
    atoms = Atoms()
    unknowns = [atoms.fresh() for _ in range(3)]
    parameters = [atoms.fresh() for _ in range(2)]
    outside = {parameters[0]: constant(2), parameters[1]: constant(-1)}
    equations = []
    for line in table:
        f = {s: x for s, x in zip([*unknowns, *parameters], line, strict=True) if x}
        at_point = {s: constant(x) for s, x in zip(unknowns, point, strict=True)}
        rest = substitute_linear(substitute_linear(f, at_point), outside).get(0, 0)
        equations.append({**f, 0: -rest} if rest else f)
    solution = solve_forms(atoms, unknowns, equations)
    assert solution is not None
    given_point = dict(zip(unknowns, (constant(x) for x in point), strict=True))
    free = {y: substitute_linear(solution.back[y], given_point) for y in solution.free}
    for s, x in zip(unknowns, point, strict=True):
        f = atoms.substitute(substitute_linear(solution.values[s], free), outside)
        assert f == constant(x)
    for f in solution.conditions:
        assert atoms.substitute(f, outside) == {}


PARALLEL: dict[str, tuple[list[dict[int, int]], Any]] = {
    "tightest": ([{1: 1, 0: 4}, {1: 1, 0: 2}], ([{1: 1, 0: 2}], [])),
    "opposite": ([{1: 1, 0: -2}, {1: -1, 0: 2}], ([], [{1: 1, 0: -2}])),
    "crossing": ([{1: 1, 0: -3}, {1: -1, 0: 2}], None),
    "constant": ([{0: 1}, {1: 1}], ([{1: 1}], [])),
    "false": ([{0: -1}], None),
}


@pytest.mark.parametrize("name", PARALLEL)
def test_merge_parallel(name: str) -> None:
    forms, expected = PARALLEL[name]
    assert merge_parallel(forms) == expected
