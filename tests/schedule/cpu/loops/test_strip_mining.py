"""How many vectors a round of a reduction has, and what is left of a row."""

from __future__ import annotations

from typing import Any

import pytest

from tvm_autodiff.codegen.loop_nest import Statement, local, store
from tvm_autodiff.schedule.cpu.loops.strip_mining import strips, vectors_of_strip

#: extent, lanes, sums in the loop, nodes of the body → vectors
ROUNDS = [
    ((1000, 16, 1, 10), 4),
    ((1000, 16, 0, 10), 1),
    ((1000, 16, 2, 10), 2),
    ((1000, 16, 5, 10), 1),
    ((40, 16, 1, 10), 2),
    # a body that takes longer than a sum needs no others beside it
    ((1000, 16, 1, 700), 2),
    ((1000, 16, 1, 2000), 1),
]


@pytest.mark.parametrize(("given", "vectors"), ROUNDS)
def test_vectors_of_a_round(given, vectors):
    assert vectors_of_strip(*given) == vectors


@pytest.mark.parametrize(
    ("extent", "halved", "widths"),
    [
        (23, False, [16, 7]),
        (23, True, [16, 4, 2, 1]),
        (7, True, [4, 2, 1]),
        (48, True, [32, 16]),
        (32, False, [32]),
    ],
)
def test_what_is_left_of_a_row(extent: int, halved: bool, widths: list[int]) -> None:
    found: list[int] = []

    def group(base: Any, groups: int, width: int) -> Statement:
        found.append(groups * width)
        return store(local("t", [1], "int32"), base, [base])

    strips(extent, 16, 2, "int32", group, halved=halved)
    assert found == widths
