"""Loops whose number of steps depends on data: refused; with a bound and a masked carry."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.transforms.loops.recurrences import D


def halved(x, _):
    return te.compute((), lambda: x() / 2.0, name="half"), None


def test_a_length_that_is_data_is_refused() -> None:
    x, n = te.placeholder((), D, name="x"), te.placeholder((2,), "int32", name="n")
    scalar = te.placeholder((), "int32", name="scalar")
    for length in (n[0], n[0] + 1, scalar, lambda x: x > 1.0):
        with pytest.raises(ad.InvalidArgumentError, match=r"depends on data, .*if_then_else"):
            ad.scan(halved, x, length=length)


@pytest.mark.parametrize("plan", [None, 5, ad.Recursive(3)])
def test_a_masked_carry_stops_where_the_condition_fails(plan: object) -> None:
    """Newton's iteration for a root: as many steps as a while loop takes, and the derivative of
    these steps.
    """
    a = te.placeholder((4,), D, name="a")

    def newton(state, _):
        x, steps = state

        def goes(i):
            return x[i] * x[i] - a[i] > 1e-3

        new = te.compute((4,), lambda i: te.if_then_else(goes(i), (x[i] + a[i] / x[i]) / 2, x[i]))
        more = te.compute((4,), lambda i: te.if_then_else(goes(i), steps[i] + 1, steps[i]))
        return (new, more), None

    first = te.compute((4,), lambda i: a[i] + 1.0, name="first")
    none = te.compute((4,), lambda i: te.const(0, "int32"), name="none")
    (root, steps), _ = ad.scan(newton, (first, none), length=25, checkpoint=plan)
    ones = te.compute((4,), lambda i: te.const(1.0, D), name="ones")
    program = ad.build(a, [root, steps, *ad.vjp(root, [a], ones)], cache=False)
    numbers = np.array([2.0, 9.0, 100.0, 1e4])
    found, counts, slopes = program(numbers)
    for number, one, count, slope in zip(numbers, found, counts, slopes, strict=True):
        x, dx, taken = number + 1.0, 1.0, 0
        while x * x - number > 1e-3:
            x, dx = (x + number / x) / 2, (dx + 1 / x - number * dx / x**2) / 2
            taken += 1
        np.testing.assert_allclose([one, slope], [x, dx], rtol=1e-12)
        assert count == taken
    assert len(set(counts.tolist())) == 4
