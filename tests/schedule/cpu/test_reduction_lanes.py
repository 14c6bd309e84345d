"""Reductions along which memory is not contiguous: parts of them are the lanes of vectors, or
results are, whose elements are gathered.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.machines import avx512
from tests.schedule import cases
from tests.schedule.test_rules import check
from tvm_autodiff.schedule.cpu.reduction import gathered_columns, reduction
from tvm_autodiff.schedule.cpu.rules import CPU_RULES
from tvm_autodiff.schedule.fusion.kernels import separate
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rule import ReductionRule, apply_rules

F = "float32"


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


def phases(rows, columns, reduce=te.sum, dtype="float32"):
    """``Y[j, b] = ⊕_i X[i, j]*Z[i, min(2*j//3 + b, m - 1)]``."""
    X = cases.placeholder("X", rows, columns, dtype=dtype)
    Z = cases.placeholder("Z", rows, columns, dtype=dtype)
    i = cases.axis(rows, "i")
    place = lambda j, b: te.min(j * 2 // 3 + b, columns - 1)  # noqa: E731
    body = lambda j, b: reduce(X[i, j] * Z[i, place(j, b)], axis=i)  # noqa: E731
    return [X, Z], te.compute((columns, 6), body, name="Y")


def overlaps(frames, taps, dtype="float32"):
    """``Y[i] = Σ_k if i + k < 8*frames then X[i + k]*H[(i + k)//8, k] else 0``."""
    X = cases.placeholder("X", frames * 8, dtype=dtype)
    H, k = cases.placeholder("H", frames, taps, dtype=dtype), cases.axis(taps, "k")

    def body(i):
        value = X[i + k] * H[(i + k) // 8, k]
        return te.sum(te.if_then_else(i + k < frames * 8, value, 0.0), axis=k)

    return [X, H], te.compute((frames * 8,), body, name="Y")


def sines(rows, terms):
    """``Y[t] = Σ_{k<6} Z[i[t], k]*sin(k*X[t])``."""
    X, Z = cases.placeholder("X", rows), cases.placeholder("Z", 20, terms)
    place, k = cases.placeholder("I", rows, dtype="int32"), cases.axis(terms, "k")
    body = lambda t: te.sum(Z[place[t] % 20, k] * te.sin(k.astype(F) * X[t]), axis=k)  # noqa: E731
    return [X, Z, place], te.compute((rows,), body, name="Y")


def pooled(size, window, stride, pair):
    """The sum of each window of a few images, or its greatest number with its place."""
    X, n = cases.placeholder("X", 5, size, size), (size - window) // stride + 1
    k, m = cases.axis(window, "k"), cases.axis(window, "m")
    read = lambda b, i, j: X[b, i * stride + k, j * stride + m]  # noqa: E731
    if not pair:
        return [X], te.compute((5, n, n), lambda *at: te.sum(read(*at), axis=[k, m]), name="Y")

    def better(x, y):
        first = x[1] >= y[1]
        return tirx.Select(first, x[0], y[0]), tirx.Select(first, x[1], y[1])

    largest = te.comm_reducer(
        better, lambda t, u: (tirx.const(-1, t), te.min_value(u)), name="largest"
    )
    place = lambda *at: largest((k.var * window + m.var, read(*at)), axis=[k, m])  # noqa: E731
    winner = te.compute((5, n, n), place, name="W")
    return [X], te.compute((5, n, n), lambda *at: winner[1](*at) * 1.0, name="Y")


def taps(points, count):
    """``Y[i] = Σ_k w(X[i] - k)*I[floor(X[i]) + k, clamped]``, w = 1 - |t| within 1 and 0 beyond."""
    X, image, k = cases.placeholder("X", points), cases.placeholder("I", 20), cases.axis(count, "k")

    def body(i):
        place = te.floor(X[i]).astype("int32") + k
        far = te.abs(X[i] - place.astype(F))
        weight = te.if_then_else(far < 1.0, 1.0 - far, tirx.const(0, F))
        return te.sum(weight * image[te.max(te.min(place, 19), 0)], axis=k)

    return [X, image], te.compute((points,), body, name="Y")


#: case, and whether vectors are gathered along the results
GATHERED = {
    "pairs of a window": (pooled(22, 7, 2, True), True),
    "sums of a window": (pooled(22, 7, 2, False), True),
    "columns beside a gather": (phases(400, 40), True),
    "a maximum": (phases(400, 40, te.max), True),
    "float64": (phases(400, 40, dtype="float64"), True),
    "a condition at the end": (overlaps(30, 65), True),
    "a function": (sines(200, 6), True),
    "few columns": (phases(5, 40), False),
    "few terms with conditions": (taps(200, 4), True),
    "gathered along both": (wrapped(8, 64, 50), False),
}


@pytest.mark.parametrize("name", GATHERED)
def test_gathered_results(name):
    case, expected = GATHERED[name]
    kernel = separate(normal_form([case[1]]))[0][0]
    assert (gathered_columns(kernel, avx512(), False) is not None) is expected
    check(case, tolerance=1e-6)


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


def test_a_part_of_a_loop_without_points_is_empty():
    """A remainder rounds down: ``(4 - n)%16`` is 15 for n = 5."""
    n = te.var("n")
    x, size = te.placeholder((5, 4), name="x"), te.placeholder((n,), name="size")
    extents = {"i": 5, "j": 3, "k": n - 1, "t": 4 - n}
    i, j, _, t = axes = [te.reduce_axis((0, extent), name) for name, extent in extents.items()]

    def body():
        return te.sum(te.if_then_else(te.all(j * 2 < n, t <= 3), x[i, j + 1], 0.0), axis=axes)

    function = ad.build([x, size], te.compute((), body, name="y"), num_threads=1, cache=False)
    ones = np.ones((5, 4), "float32")
    for length, want in ((1, 0), (2, 5 * 1 * 1 * 2), (3, 5 * 2 * 2 * 1), (4, 0), (5, 0), (9, 0)):
        assert function(ones, np.ones(length, "float32")) == want
