"""How many vectors a round of a reduction has."""

from __future__ import annotations

import pytest

from tvm_autodiff.schedule.cpu.loops.strip_mining import vectors_of_strip

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
