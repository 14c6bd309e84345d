"""Short axes that choose between formulas: components as vectors, interleaved in registers."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from tests.machines import avx512
from tests.schedule import cases
from tests.schedule.test_rules import check, rules_of
from tvm_autodiff.schedule.cpu.interleaving import interleaving
from tvm_autodiff.schedule.declined import Declined
from tvm_autodiff.schedule.kernel import Kernel


def chosen(index, *values):
    """``values[index]`` as nested branches."""
    *first, last = values
    for number, value in reversed(list(enumerate(first))):
        last = te.if_then_else(index == number, value, last)
    return last


def stencil(rows, dtype="float32"):
    """Three neighbours, each another formula."""
    x = cases.placeholder("x", rows + 2, dtype=dtype)

    def entry(i, s):
        return chosen(s, x[i] * x[i + 1], x[i + 1] - x[i + 2], x[i + 2] + te.const(1, dtype))

    return [x], te.compute((rows, 3), entry, name="y")


def components(rows, count):
    """As many vectors of rows as components."""
    planes = [cases.placeholder(f"p{n}", rows) for n in range(count)]
    return planes, te.compute(
        (rows, count), lambda i, c: chosen(c, *(plane[i] for plane in planes)), name="y"
    )


def blocks(members, rows):
    """Two short axes, one of which only scales, behind two long ones."""
    u, v = cases.placeholder("u", members, rows), cases.placeholder("v", members, rows)

    def entry(m, i, a, b):
        return te.if_then_else(a == 0, u[m, i], v[m, i]) * (b + 1).astype("float32")

    return [u, v], te.compute((members, rows, 2, 3), entry, name="y")


def backwards(rows):
    """The order of memory is not that of the branches, and a part is the same in all."""
    u, w = cases.placeholder("u", rows), cases.placeholder("w", 4)
    return [u, w], te.compute(
        (rows, 4),
        lambda i, c: w[3 - c] * te.if_then_else(c >= 2, u[i] * u[i], te.exp(u[i])),
        name="y",
    )


def selected(rows):
    u = cases.placeholder("u", rows)
    small = lambda c: tirx.Select(c < 2, te.const(2.0), te.const(3.0))  # noqa: E731
    return [u], te.compute((rows, 4), lambda i, c: u[i] * small(c), name="y")


def bordered(rows):
    """Rows are cut where a branch on them changes."""
    u = cases.placeholder("u", rows)
    return [u], te.compute(
        (rows, 2), lambda i, c: chosen(c, te.if_then_else(i > 0, u[i - 1], 0.0), u[i]), name="y"
    )


def apart(rows, distance):
    """Neighbouring rows are read at a distance."""
    u = cases.placeholder("u", rows, distance)
    last = distance - 1
    return [u], te.compute((rows, 2), lambda i, c: chosen(c, u[i, 0], u[i, last]), name="y")


def directions(count, rows, width=40):
    """Rows of a first axis, each moved around by another distance."""
    u, w = cases.placeholder("u", count, rows, width), cases.placeholder("w", width)
    shift = lambda c: chosen(c, *range(count))  # noqa: E731

    def entry(c, i, j):
        return u[c, (i + shift(c)) % rows, (j - shift(c) + width) % width] * w[j]

    return [u, w], te.compute((count, rows, width), entry, name="y")


def thresholds(rows, classes):
    """Differences of neighbours along the short axis, which ends on both sides."""
    x, t = cases.placeholder("x", rows), cases.placeholder("t", classes - 1)
    one, zero = te.const(1.0, "float32"), te.const(0.0, "float32")
    gap = lambda i, c: (t[c] - x[i]) * (t[c] - x[i])  # noqa: E731

    def entry(i, c):
        above = te.if_then_else(c < classes - 1, gap(i, c), one)
        return above - te.if_then_else(c > 0, gap(i, c - 1), zero)

    return [x, t], te.compute((rows, classes), entry, name="y")


def padded(rows, width):
    """Rows between zeros, which are whole vectors."""
    x = cases.placeholder("x", rows, width - 2)
    inside = lambda j: te.all(j >= 1, j < width - 1)  # noqa: E731
    return te.compute(
        (rows, width), lambda i, j: te.if_then_else(inside(j), x[i, j - 1], 0.0), name="y"
    )


def masked(rows, count):
    """Data of a row choose between its components and zeros."""
    x, m = cases.placeholder("x", rows, count), cases.placeholder("m", rows)
    return [x, m], te.compute(
        (rows, count), lambda i, c: te.if_then_else(m[i] > 0.0, x[i, c], 0.0), name="y"
    )


TAKEN = {
    "a mask of rows": masked(100, 3),
    "one block": stencil(16),
    "blocks that overlap": stencil(1001),
    "one row more": stencil(17),
    "float64": stencil(100, "float64"),
    "int32": stencil(77, "int32"),
    "float16": stencil(70, "float16"),
    "two components": components(1000, 2),
    "five components": components(99, 5),
    "eight components": components(40, 8),
    "on threads": components(20_000, 3),
    "two short axes": blocks(3, 50),
    "other orders": backwards(333),
    "a select": selected(64),
    "a border of rows": bordered(65),
    "components side by side": apart(70, 3),
    "borders of the short axis": thresholds(70, 7),
    "a first axis": directions(3, 7),
    "a first axis of many pieces": directions(7, 11),
}


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name):
    assert rules_of(TAKEN[name][1]) == ["interleaving"]
    # products of float16 are float32 until they are stored; exp of our own is not the C library's
    check(TAKEN[name], tolerance=1e-6 if name == "other orders" else 0.0)


def waves(rows, width):
    """Expensive functions of neighbours that lie farther apart than vectors are read with."""
    u = cases.placeholder("u", rows, width)
    return [u], te.compute(
        (rows, 2), lambda i, c: chosen(c, te.sin(u[i, 0]), te.cos(u[i, width - 1])), name="y"
    )


@pytest.mark.parametrize("rows", [16, 100])
def test_expensive_functions_of_what_lies_apart(rows):
    assert rules_of(waves(rows, 20)[1]) == ["interleaving"]
    check(waves(rows, 20), tolerance=1e-6)


#: functions of the two numbers of a row and of an integer
IN_VECTORS = {
    "a reciprocal root": lambda u, v, q: te.rsqrt(1.0 + u * u) * v,
    "bits": lambda u, v, q: u * ((q >> 1) ^ (q & 6)).astype("float32"),
    "shifts and complements": lambda u, v, q: v * (~q | (q << 2)).astype("float32"),
    "what is no number": lambda u, v, q: tirx.Select(te.isnan(u / v), v, u),
    "what is finite": lambda u, v, q: tirx.Select(te.isfinite(u), v, u),
}


@pytest.mark.parametrize("name", IN_VECTORS)
def test_operators_that_have_vectors(name):
    u, v = cases.placeholder("u", 100), cases.placeholder("v", 100)
    q = te.placeholder((100,), "int32", name="q")
    value = lambda i: IN_VECTORS[name](u[i], v[i], q[i])  # noqa: E731
    y = te.compute((100, 2), lambda i, c: chosen(c, value(i), value(i) * u[i]), name="y")
    assert rules_of(y) == ["interleaving"]
    check(([u, v, q], y), tolerance=1e-6)


n = te.var("n")
SYMBOLIC = {
    "components": (components(n, 3), 0.0),
    "two short axes": (blocks(3, n), 0.0),
    "functions": (backwards(n), 1e-6),
    "functions of what lies apart": (waves(n, 20), 1e-6),
    "rows moved around": (directions(3, n), 0.0),
    "rows and columns moved around": (directions(3, n, n), 0.0),
    "columns moved around": (directions(3, 7, n), 0.0),
}


@pytest.mark.parametrize("rows", [0, 1, 7, 16, 40, 41])
@pytest.mark.parametrize("name", SYMBOLIC)
def test_rows_of_symbolic_number(name, rows):
    case, tolerance = SYMBOLIC[name]
    assert rules_of(case[1]) == ["interleaving"]
    check(case, {"n": rows}, tolerance=tolerance)


def guarded(rows):
    """A branch on data that guards a read."""
    u, at = cases.placeholder("u", rows), cases.placeholder("at", rows, dtype="int32")
    safe = lambda i: te.if_then_else(at[i] < rows, u[at[i]], 0.0)  # noqa: E731
    return te.compute((rows, 2), lambda i, c: chosen(c, safe(i), u[i]), name="y")


MACHINE = avx512()
LANES = MACHINE.lanes("float32")

DECLINED = {
    "it has no short axes that choose": lambda: te.compute(
        (64, 3), lambda i, c: cases.placeholder("x", 64, 3)[i, c], name="y"
    ),
    "it has fewer rows than a vector has lanes": lambda: stencil(7)[1],
    "it has no short axes that choose what is computed": lambda: te.compute(
        (3,), lambda c: chosen(c, 1.0, 2.0, 3.0), name="y"
    ),
    "vectors run along its last axis": lambda: padded(64, LANES),
    "it reads neighbours at places": lambda: guarded(64),
    "it reads neighbours at places that lie apart": lambda: apart(64, 16)[1],
}


@pytest.mark.parametrize("reason", DECLINED)
def test_declined(reason):
    declined = interleaving(Kernel(DECLINED[reason]().op), MACHINE)
    assert isinstance(declined, Declined)
    assert reason in declined.reason
