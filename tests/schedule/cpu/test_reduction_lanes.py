"""Reductions along which memory is not contiguous: parts of them are the lanes of vectors."""

from __future__ import annotations

import pytest
from tvm import te

from tests.machines import avx512
from tests.schedule import cases
from tests.schedule.test_rules import check
from tvm_autodiff.schedule.cpu.reduction import reduction
from tvm_autodiff.schedule.cpu.rules import CPU_RULES
from tvm_autodiff.schedule.fusion.kernels import separate
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rule import ReductionRule, apply_rules


def wrapped(rows, columns, shift, dtype="float32"):
    """``Y[i] = Σ_{j, k} X[j, k]·Z[j, (3*k + i)%n]``."""
    X = cases.placeholder("X", rows, columns, dtype=dtype)
    Z = cases.placeholder("Z", rows, shift, dtype=dtype)
    j, k = cases.axis(rows, "j"), cases.axis(columns, "k")
    body = lambda i: te.sum(X[j, k] * Z[j, (k * 3 + i) % shift], axis=[j, k])  # noqa: E731
    return [X, Z], te.compute((3,), body, name="Y")


def exponentials(n):
    """``Y = Σ_{k, i} exp(X[(3*i)%n, k])``."""
    X, k, i = cases.placeholder("X", n, 5), cases.axis(5, "k"), cases.axis(n, "i")
    body = lambda: te.sum(te.exp(X[(3 * i) % n, k] * 0.1), axis=[k, i])  # noqa: E731
    return [X], te.compute((), body, name="Y")


#: case, what its launches write with one thread
CASES = {
    "lanes": (wrapped(8, 64, 50), ["Y_part", "Y"]),
    "an extent that lanes do not divide": (wrapped(8, 63, 50), ["Y"]),
    "many points of such an extent": (
        wrapped(700, 63, 50),
        ["Y_most_part", "Y_most", "Y_rest", "Y"],
    ),
    "few points": (wrapped(2, 16, 50), ["Y"]),
    "int32": (wrapped(8, 64, 50, "int32"), ["Y_part", "Y"]),
}


def energies(n, reduce, scale):
    """``⊕_{i, j} |x[i, 0] - x[j, 1]|``, with an epilogue."""
    X = cases.placeholder("X", n, 2)
    i, j = cases.axis(n, "i"), cases.axis(n, "j")
    total = te.compute((), lambda: reduce(te.abs(X[i, 0] - X[j, 1]), axis=[i, j]), name="T")
    return [X], te.compute((), lambda: total() * scale + 1.0, name="Y")


@pytest.mark.parametrize("reduce", [te.sum, te.max], ids=["sum", "max"])
def test_odd_extents_with_an_epilogue(reduce):
    check(energies(257, reduce, 1e-3))


def test_few_points_of_expensive_functions():
    case = exponentials(251)
    assert names_of(case) == ["Y_most_part", "Y_most", "Y_rest", "Y"]
    check(case, tolerance=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_lanes(name):
    case, written = CASES[name]
    assert names_of(case) == written
    check(case)


def names_of(case):
    """What the launches of a case write."""
    [kernel] = separate(normal_form([case[1]]))[0]
    [found] = apply_rules(kernel, avx512(), (ReductionRule(reduction), *CPU_RULES))
    return [one.outputs[0].op.name for one in found.launches]
