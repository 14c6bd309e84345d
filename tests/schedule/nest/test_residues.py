"""Numbers of neighbours that are written together: in one class, quotients move at cuts only."""

from __future__ import annotations

import pytest
from tvm import te

from tvm_autodiff.expr.integers.integer_functions import compile_integers
from tvm_autodiff.graph.stage import axis_range
from tvm_autodiff.schedule.nest.residues import in_classes, moduli_of

A = [te.reduce_axis((0, 24), "i"), te.reduce_axis((0, 1024), "j")]
i, j = (axis.var for axis in A)
WIDE = i.astype("int64")
n = te.reduce_axis((0, te.var("n")), "n")
data = te.placeholder((24,), "int32", name="data")

MODULI = [
    ([i + j], [1, 1]),
    ([i // 2 % 3, (i + 1) % 24], [6, 1]),
    ([i // 2 + i // 3 % 2], [6, 1]),
    ([j % 12 // 2], [1, 12]),
    ([(i + 3) % 24 // 2], [2, 1]),
    ([(j * 2 + k) % 1024 for k in range(4)], [1, 1]),
    ([(j * 2) % 4, j % 2], [1, 2]),
    ([(j // 2 + 511) % 512], [1, 2]),
    ([j // 3 % 128], [1, 3]),
    ([(i * 1024 + j) // 1024], [1, 1]),
    ([(i + j) // 7], None),
    ([(i + j) % 1024], [1, 1]),
    ([(i * 43 + j) % 1024], None),
    ([(j * 2 + i) % 1024], None),
    ([data[i] // 2], None),
    ([data[i] + j // 2], [1, 2]),
    ([(WIDE * 2 + j // 600) // 2 + te.var("n", "int64")], [1, 1]),
]


@pytest.mark.parametrize(("values", "moduli"), MODULI, ids=str)
def test_moduli(values, moduli):
    assert moduli_of(values, A) == moduli


def test_quotients_of_outer_axes_do_not_vary_in_a_vector():
    k = te.reduce_axis((0, 3), "k")
    assert moduli_of([(i + k.var) % 24 * 1024 + j // 2], [A[0], k, A[1]]) == [1, 1, 2]
    assert moduli_of([(i + k.var) % 24 * 1024 + j], [A[1], A[0], k]) is None


SIZE = te.var("m")


@pytest.mark.parametrize(
    ("value", "moduli"),
    [
        (n.var // 2, [2]),
        (n.var // 2 + (n.var + 1) % 3, [6]),
        ((n.var * 2 + 1) // 4, [2]),
        (SIZE // 2 + n.var, [1]),
        (n.var % SIZE, None),
        ((n.var + SIZE) // 2, None),
    ],
    ids=str,
)
def test_an_axis_of_symbolic_extent_is_cut_nowhere(value, moduli):
    assert moduli_of([value], [n]) == moduli


@pytest.mark.parametrize("moduli", [(1, 1), (6, 1), (5, 4)])
def test_classes_have_the_values_of_their_axes(moduli):
    value = i // 2 % 3 * 1024 + (j + 3) % 8 + i // 3
    classes = in_classes([value], A, moduli)
    before = compile_integers([value], [i, j])
    after = compile_integers(classes.values, [*classes.quotients, *classes.residues])
    for a in range(axis_range(A[0])[1]):
        for b in range(0, 1024, 37):
            (p, r), (q, s) = (divmod(*pair) for pair in zip((a, b), moduli, strict=True))
            assert after(p, q, r, s) == before(a, b)
