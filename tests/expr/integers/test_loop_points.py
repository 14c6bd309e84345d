"""Points of loop nests, beside loops that are run."""

from __future__ import annotations

import itertools

import pytest
from tvm import te

from tvm_autodiff.expr.integers.integer_functions import compile_integers
from tvm_autodiff.expr.integers.loop_points import loop_points

i, j, k, n = (te.var(name) for name in "ijkn")

NESTS = {
    "box": ([(i, 0, 4), (j, 0, 5)], []),
    "triangle": ([(i, 0, 4), (j, 0, i + 1)], []),
    "tetrahedron": ([(i, 0, 4), (j, 0, i + 1), (k, 0, j + 1)], []),
    "shifted": ([(i, 2, 4), (j, i, 3)], []),
    "condition": ([(i, 0, 6), (j, 0, 3)], [i + j < 5]),
    "two windows": ([(i, 0, 6), (j, 0, 6), (k, 0, 3), (n, 0, 3)], [i >= k, j >= n, i < 4 + k]),
    "on one loop": ([(i, 0, 6), (j, 0, 3)], [(i % 2).equal(0), j > 0]),
    "sometimes empty": ([(i, 0, 4), (j, 0, i - 2)], []),
    "empty": ([(i, 0, 0), (j, 0, 7)], []),
    "a late condition joins": ([(i, 0, 3), (j, 0, 4), (k, 0, 5)], [i + k > 2, j + k > 3]),
}


@pytest.mark.parametrize("name", NESTS)
def test_counts_every_point(name):
    loops, conditions = NESTS[name]
    variables = [var for var, _, _ in loops]
    count = 0
    for point in itertools.product(range(-1, 8), repeat=len(loops)):
        inside = all(
            low <= place < low + extent
            for place, (low, extent) in zip(
                point,
                (compile_integers([low, extent], variables)(*point) for _, low, extent in loops),
                strict=True,
            )
        )
        count += inside and all(compile_integers(conditions, variables)(*point))
    assert loop_points(loops, conditions) == count


def test_large_windows_are_counted_axis_by_axis():
    loops = [(i, 0, 1000), (j, 0, 1000), (k, 0, 3), (n, 0, 3)]
    conditions = [i + k >= 1, i + k < 1001, j + n >= 1, j + n < 1001]
    assert loop_points(loops, conditions) == 2998**2


@pytest.mark.parametrize(
    ("loops", "conditions"),
    [([(i, 0, n)], []), ([(i, 0, 4)], [i < n]), ([(i, 0, 10**6), (j, 0, i)], [])],
)
def test_unknown_or_too_many(loops, conditions):
    assert loop_points(loops, conditions) is None
