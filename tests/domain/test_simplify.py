"""simplify_domain: boxes of known size, bijections by brute force, agreement with islpy."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from tvm import te, tirx

from tests.domain.systems import bijection, domains, isl_bijection
from tests.processes import without_torch
from tvm_autodiff.domain import Domain, DomainTransformation, simplify_domain
from tvm_autodiff.errors import UnsolvableError
from tvm_autodiff.expr.integers.integer_functions import compile_integers
from tvm_autodiff.expr.rewrite import variables_of

a, b, c, i, j, k, l, m, n, p, q, x = map(te.var, "abcijklmnpqx")  # noqa: E741
b0, b1, b2 = (te.var(name) for name in ("b0", "b1", "b2"))


def eq(left: Any, right: Any) -> Any:
    return (left + 0).equal(right)


def three(*variables: Any) -> dict[Any, tuple[int, int]]:
    return dict.fromkeys(variables, (0, 5))


KLN = three(k, l, n)
FLAT = {n: (0, 30), k: (0, 6), l: (0, 5)}
ORDERS = {"kln": (k, l, n), "nlk": (n, l, k), "lnk": (l, n, k), "nkl": (n, k, l)}

#: name → variables, ranges, conditions, largest volume allowed, points (for the worst parameters)
BARS: dict[str, tuple[Any, Any, Any, int, int]] = {
    "k <= l": ((k, l, n), KLN, [k <= l], 125, 75),
    "k < l": ((k, l, n), KLN, [k < l], 80, 50),
    "k == l": ((k, l, n), KLN, [eq(k, l)], 25, 25),
    "k == l < n": ((k, l, n), KLN, [eq(k, l), l < n], 16, 10),
    "2l == k": ((k, l, n), KLN, [eq(2 * l, k)], 15, 15),
    "l - k < 2, 2n == k": ((k, l, n), KLN, [l - k < 2, eq(2 * n, k)], 15, 11),
    "l - k < 2, l >= k": ((k, l, n), KLN, [l - k < 2, l >= k], 50, 45),
    "negative": ((k, l), {k: (-10, 19), l: (-6, 12)}, [eq(2 * l, k)], 10, 10),
    "k + 3m == x": ((k, m), {k: (0, 3), m: (0, 4), x: (0, 12)}, [eq(k + 3 * m, x)], 1, 1),
    "rows": (
        (l, k),
        three(l, k),
        [tirx.floormod(l + k, 3) <= 1, tirx.floordiv(l + k, 3) <= 2],
        20,
        17,
    ),
    "pool": (
        (i, j, k, l),
        {i: (0, 8), j: (0, 8), k: (0, 3), l: (0, 3), b0: (0, 10), b1: (0, 10)},
        [eq(i + k, b0), eq(j + l, b1)],
        9,
        9,
    ),
    # places in 10x10 and 3x3 windows over them: 6400 pairs, of which 576 count; the RFC recorded a
    # box of 2916 for a domain of these sizes
    "pooling adjoint": (
        (i, j, k, l),
        {i: (0, 10), j: (0, 10), k: (0, 8), l: (0, 8)},
        [i >= k, i <= k + 2, j >= l, j <= l + 2],
        576,
        576,
    ),
    # conditions that remove values
    "k != 0 of two": ((k,), {k: (0, 2)}, [k != 0], 1, 1),
    "k != 0": ((k,), {k: (0, 5)}, [k != 0], 4, 4),
    "k != 0, k != 1": ((k,), {k: (0, 5)}, [k != 1, k != 0], 3, 3),
    "last one": ((k,), {k: (-2, 5)}, [k != 2], 4, 4),
    "not equal": ((k,), {k: (0, 2)}, [tirx.Not(eq(k, 1))], 1, 1),
    "k != 2 stays": ((k,), {k: (0, 5)}, [k != 2], 5, 4),
    "middle of three": ((k,), {k: (0, 3)}, [k != 1], 2, 2),
    "k <= l, k != l": ((k, l, n), KLN, [k <= l, k != l], 80, 50),
    "k // 2 != 0": ((k,), {k: (0, 6)}, [k // 2 != 0], 4, 4),
    "k % 2 != 1": ((k,), {k: (0, 6)}, [k % 2 != 1], 3, 3),
    "k % 3 != 0": ((k,), {k: (0, 6)}, [k % 3 != 0], 5, 4),
    "either end": ((k, l), three(k, l), [te.any(k < 1, k > 3), l != 0], 8, 8),
    "either end or a middle": ((k,), three(k), [te.any(k == 1, k == 2, k > 3)], 4, 3),
    "two conditions together": ((k,), {k: (0, 4)}, [k != 1, k != 2], 2, 2),
    **{
        f"k + 6l == n, {name}": (order, FLAT, [eq(k + 6 * l, n)], 30, 30)
        for name, order in ORDERS.items()
    },
    **{
        f"n // 6 == l, n % 6 == k, {name}": (order, FLAT, [eq(n // 6, l), eq(n % 6, k)], 30, 30)
        for name, order in ORDERS.items()
    },
}


@pytest.mark.parametrize("name", BARS)
def test_volume(name: str) -> None:
    variables, ranges, conditions, volume, points = BARS[name]
    domain = Domain(variables, ranges, tuple(conditions))
    transformation = simplify_domain(domain)
    assert bijection(transformation) == points
    assert points <= transformation.new_domain.volume() <= volume


BOX = {i: (0, 8), j: (0, 5), k: (0, 3)}

#: name → variables, ranges, conditions, old_to_new as text, conditions left as text
FORMS: dict[str, tuple[Any, Any, Any, dict[str, str], list[str]]] = {
    "transpose": (
        (i, j),
        {i: (0, 4), j: (0, 5), b0: (0, 5), b1: (0, 4)},
        [eq(j, b0), eq(i, b1)],
        {"i": "b1", "j": "b0"},
        [],
    ),
    "broadcast": ((i, j), {i: (0, 4), j: (0, 5), b: (0, 5)}, [eq(j, b)], {"i": "i", "j": "b"}, []),
    "slice": ((i,), {i: (0, 4), b: (0, 9)}, [eq(i + 3, b)], {"i": "b - 3"}, ["b >= 3", "b <= 6"]),
    "matmul": (
        (i, j, k),
        {**BOX, b0: (0, 8), b1: (0, 3)},
        [eq(i, b0), eq(k, b1)],
        {"i": "b0", "j": "j", "k": "b1"},
        [],
    ),
    "reverse": ((i,), {i: (0, 10), b: (0, 10)}, [eq(9 - i, b)], {"i": "9 - b"}, []),
    "diagonal": (
        (i,),
        {i: (0, 8), b0: (0, 8), b1: (0, 8)},
        [eq(i, b0), eq(i, b1)],
        {"i": "b0"},
        ["b1 == b0"],
    ),
    "twice": ((i,), {i: (0, 8), b: (0, 8)}, [eq(i, b), eq(i, b)], {"i": "b"}, []),
    "mixed radix": (
        (i, j),
        {i: (0, 8), j: (0, 5), b: (0, 40)},
        [eq(i * 5 + j, b)],
        {"i": "b // 5", "j": "b % 5"},
        [],
    ),
    "exchanged digits": (
        (a,),
        {a: (0, 96), b: (0, 96)},
        [eq(a % 8 * 12 + a // 8, b)],
        {"a": "(b * 11 + 11) // 12 * 95 - b * 87"},
        [],
    ),
    "shifts": ((a,), {a: (0, 50), b: (0, 50)}, [eq((a >> 2) * 4 + (a & 3), b)], {"a": "b"}, []),
    "flatten": (
        (a,),
        {a: (0, 50), b0: (0, 2), b1: (0, 5), b2: (0, 5)},
        [eq(a // 25, b0), eq((a % 25) // 5, b1), eq(a % 5, b2)],
        {"a": "b0 * 25 + b1 * 5 + b2"},
        [],
    ),
    "circular": (
        (i, j),
        {i: (0, 7), j: (0, 7), b: (0, 7)},
        [eq((i + j) % 7, b)],
        {"i": "i", "j": "(b + i * 6) % 7"},
        [],
    ),
    "stride 2": (
        (i, k),
        {i: (0, 8), k: (0, 3), b: (0, 17)},
        [eq(2 * i + k, b)],
        {"i": "b // 2 - t0", "k": "t0 * 2 + b % 2"},
        ["t0 <= b // 2", "b // 2 <= t0 + 7", "t0 * 2 + b % 2 <= 2"],
    ),
    "convolution": (
        (i, k),
        {i: (0, 10), k: (0, 3), b: (0, 10)},
        [eq(i + k - 1, b)],
        {"i": "b - k + 1", "k": "k"},
        ["k <= b + 1", "b <= k + 8"],
    ),
    "dilation 2 stride 2": (
        (i, k),
        {i: (0, 5), k: (0, 3), b: (0, 12)},
        [eq(2 * i + 2 * k - 2, b)],
        {"i": "b // 2 - k + 1", "k": "k"},
        ["b % 2 == 0", "k <= b // 2 + 1", "b // 2 <= k + 3"],
    ),
    "min": (
        (i, j),
        {i: (0, 8), j: (0, 8), b: (0, 8)},
        [eq(i, b), te.min(i, j) >= 6],
        {"i": "b", "j": "j + 6"},
        ["b >= 6"],
    ),
    "second of two": ((i, j), {i: (0, 2), j: (0, 2)}, [i != 0], {"i": "1", "j": "j"}, []),
    "neither end": ((i,), {i: (0, 8), b: (0, 3)}, [i != b, i != 7], {"i": "i"}, ["i != b"]),
    "other than a shift": (
        (i, j),
        {i: (0, 8), j: (0, 8), b: (0, 8)},
        [eq(i, j + 2), eq(j, b), i != 2],
        {"i": "b + 2", "j": "b"},
        ["b >= 1", "b <= 5"],
    ),
    # ``columns[p*3 + q, y//2*4 + x//2]`` of a padded image, folded: digits of the position alone
    "fold": (
        (i, j, p, q),
        {i: (0, 8), j: (0, 8), p: (0, 3), q: (0, 3), b: (0, 9), c: (0, 16)},
        [
            eq(3 * p + q, b),
            eq((i + 1 - p) // 2 * 4 + (j + 1 - q) // 2, c),
            *(eq((x + 1 - s) % 2, 0) for x, s in ((i, p), (j, q))),
            *(x + 1 >= s for x, s in ((i, p), (j, q))),
            *(x + 1 - s < 8 for x, s in ((i, p), (j, q))),
        ],
        {
            "i": "c // 4 * 2 + b // 3 - 1",
            "j": "c % 4 * 2 + b % 3 - 1",
            "p": "b // 3",
            "q": "b % 3",
        },
        ["c // 4 * 2 + b // 3 >= 1", "c % 4 * 2 + b % 3 >= 1"],
    ),
    # places in a flat array of rows: one equation for each digit
    "flat windows": (
        (i, j, k, l),
        {i: (0, 4), j: (0, 4), k: (0, 3), l: (0, 3), b: (0, 36)},
        [eq((i + k) * 6 + j + l, b)],
        {"i": "b // 6 - k", "j": "b % 6 - l", "k": "k", "l": "l"},
        ["k <= b // 6", "b // 6 <= k + 3", "l <= b % 6", "b % 6 <= l + 3"],
    ),
    "flat windows with a border": (
        (i, j, k, l),
        {i: (0, 4), j: (0, 4), k: (0, 3), l: (0, 3), b: (0, 16)},
        [eq((i + k - 1) * 4 + j + l - 1, b), j + l >= 1, j + l < 5],
        {"i": "b // 4 - k + 1", "j": "b % 4 - l + 1", "k": "k", "l": "l"},
        ["k <= b // 4 + 1", "b // 4 <= k + 2", "l <= b % 4 + 1", "b % 4 <= l + 2"],
    ),
    "three digits": (
        (i, j, k),
        {i: (0, 2), j: (0, 3), k: (-1, 4), b: (-1, 24)},
        [eq(i * 12 - j * 4 + 8 + k, b)],
        {"i": "(b + 1) // 12", "j": "((b + 1) // 4 * 2 + 2) % 3", "k": "(b + 1) % 4 - 1"},
        [],
    ),
    "wider than the rows": (
        (i, j),
        {i: (0, 4), j: (0, 6), b: (0, 24)},
        [eq(i * 4 + j, b)],
        {"i": "b // 4 - t0", "j": "t0 * 4 + b % 4"},
        ["t0 <= b // 4", "b // 4 <= t0 + 3", "t0 * 4 + b % 4 <= 5"],
    ),
    "clamp stays": (
        (i,),
        {i: (0, 8), b: (0, 6)},
        [eq(te.min(i, 5), b)],
        {"i": "i"},
        ["T.min(i, 5) == b"],
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_form(name: str) -> None:
    variables, ranges, conditions, values, left = FORMS[name]
    domain = Domain(variables, ranges, tuple(conditions))
    transformation = simplify_domain(domain)
    assert {var.name: str(e) for var, e in transformation.old_to_new.items()} == values
    assert [str(e) for e in transformation.new_domain.conditions] == left
    bijection(transformation)


EMPTY: dict[str, tuple[Any, Any, Any]] = {
    "parity": ((i,), {i: (0, 5), b: (0, 5)}, [eq(2 * i, 2 * b + 1)]),
    "contradiction": ((i,), {i: (0, 5)}, [i > 3, i < 3]),
    "outside": ((i,), {i: (0, 5), b: (9, 3)}, [eq(i, b)]),
    "no integer between": ((i, j), three(i, j), [3 * i - 3 * j >= 1, 3 * i - 3 * j <= 2]),
    "three together": ((i, j, k), three(i, j, k), [i < j, j < k, k < i]),
    "no range": ((i,), {i: (0, 0)}, []),
    "false": ((i,), {i: (0, 3)}, [tirx.const(False, "bool")]),
    "no value is left": ((i,), {i: (0, 2)}, [i != 0, i != 1]),
    "no square": ((i,), {i: (0, 9)}, [eq(i * i, 7)]),
    "two equations": ((i, j), three(i, j), [eq(i + j, 4), eq(2 * i + 2 * j, 9)]),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty(name: str) -> None:
    variables, ranges, conditions = EMPTY[name]
    transformation = simplify_domain(Domain(variables, ranges, tuple(conditions)))
    assert transformation.new_domain.is_empty
    assert transformation.new_domain.volume() == 0


#: name → variables, ranges, conditions, extents as text, conditions left as text
SYMBOLIC: dict[str, tuple[Any, Any, Any, list[str], list[str]]] = {
    "matmul": (
        (i, j),
        {i: (0, n), j: (0, m), b: (0, n)},
        [eq(i, b)],
        ["m"],
        [],
    ),
    "stride 2": (
        (i, k),
        {i: (0, n), k: (0, 3), b: (0, 2 * n + 1), n: (1, None)},
        [eq(2 * i + k, b)],
        ["2"],
        ["t0 <= b // 2", "b // 2 < n + t0", "t0 * 2 + b % 2 <= 2"],
    ),
    "same convolution": (
        (i, k),
        {i: (0, n), k: (0, 3), b: (0, n)},
        [eq(i + k - 1, b)],
        ["3"],
        ["k <= b + 1", "b + 2 <= n + k"],
    ),
    "long kernel": (
        (i, k),
        {i: (0, n), k: (0, m), b: (0, n + m - 1)},
        [eq(i + k, b)],
        ["m"],
        ["k <= b", "b < n + k"],
    ),
    "not the first": ((i,), {i: (0, n), b: (0, n)}, [i != 0, i != b], ["n - 1"], ["i + 1 != b"]),
    "not the last": ((i,), {i: (0, n), b: (0, n)}, [i != n - 1, i >= b], ["n - 1"], ["b <= i"]),
    "below the diagonal": (
        (i, j),
        {i: (0, n), j: (0, n), b: (0, n)},
        [eq(i, b), j <= i, j != i],
        ["n - 1"],
        ["j < b"],
    ),
    # at n = 64 there is no such row
    "kernel beyond 64": (
        (i, k),
        {i: (0, n - 99), k: (0, 100), b: (0, n)},
        [eq(i + k, b)],
        ["100"],
        ["k <= b", "b + 100 <= n + k"],
    ),
    "frames beyond 64": (
        (i, k),
        {i: (0, (n - 70) // 21 + 1), k: (0, 70), b: (0, n)},
        [eq(21 * i + k, b)],
        ["4"],
        [
            "t0 <= b // 21",
            "b // 21 + 4 <= t0 + (n + 14) // 21",
            "t0 * 21 + b % 21 <= 69",
        ],
    ),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic(name: str) -> None:
    variables, ranges, conditions, extents, left = SYMBOLIC[name]
    domain = Domain(variables, ranges, tuple(conditions))
    transformation = simplify_domain(domain)
    new = transformation.new_domain
    assert [str(new.extent(var)) for var in new.variables] == extents
    assert [str(e) for e in new.conditions] == left
    for rows in range(1, 5):
        for columns in range(1, 4):
            size = {n: rows, m: columns}
            size = {v: size[v] for v in domain.parameters if v in size}
            extent = compile_integers([ranges[b][1]], list(size))(*size.values())[0]
            for place in range(extent):
                bijection(transformation, {**size, b: place})


def test_conditions_beyond_linear_ones_bound_a_variable() -> None:
    transformation = simplify_domain(Domain((k,), {k: (-9, 20)}, (k * k < 7,)))
    assert transformation.new_domain.volume() == bijection(transformation) == 5


def test_data_dependent_condition_is_kept() -> None:
    table = te.placeholder((8,), "int32", name="table")
    ranges = {i: (0, 8), j: (0, 5), b: (0, 9), c: (0, 5)}
    new = simplify_domain(Domain((i, j), ranges, (eq(table[i], b), eq(j, c)))).new_domain
    assert [var.name for var in new.variables] == ["i"]
    assert len(new.conditions) == 1


@pytest.mark.parametrize(
    "index",
    [
        lambda k: tirx.Max(tirx.Min(tirx.FloorDiv(k, 2), b), 0),
        lambda k: tirx.Min(tirx.FloorDiv(k, 2) + b, 3) * b,
        lambda k: tirx.Select(tirx.FloorMod(2 * k, 2) < b, 1, b),
    ],
)
def test_variables_that_cancel_are_gone(index: Any) -> None:
    """``k // 2`` is 0 for k in [0, 2): what holds it must not name a variable of the old domain."""
    d = Domain((k, i), {k: (0, 2), i: (0, 4), b: (0, 4), c: (0, 9)}, (eq(index(k) + i * i, c),))
    t = simplify_domain(d)
    known = {v.name for v in (b, c)}
    new = list(t.new_domain.variables)
    for v in variables_of(list(t.new_domain.conditions)):
        assert v.name in known or any(v.same_as(w) for w in new)


def test_unbounded_variable_is_refused() -> None:
    with pytest.raises(UnsolvableError, match="no bounds"):
        simplify_domain(Domain((i,), {i: (0, None)}, ()))


@pytest.mark.slow
@settings(max_examples=1000)
@given(domains())
def test_random_systems_by_brute_force(domain: Domain) -> None:
    bijection(simplify_domain(domain))


@pytest.mark.slow
@settings(max_examples=300)
@given(domains(truncating=False))
def test_random_systems_by_islpy(domain: Domain) -> None:
    isl_bijection(simplify_domain(domain))


@pytest.mark.parametrize("name", [*BARS, *FORMS])
def test_tables_by_islpy(name: str) -> None:
    variables, ranges, conditions, *_ = BARS.get(name) or FORMS[name]
    isl_bijection(simplify_domain(Domain(variables, ranges, tuple(conditions))))


def test_the_oracles_see_other_points_and_maps() -> None:
    """Domains of as many points, and maps that are no inverse of each other."""
    old = Domain((i,), {i: (0, 4)})
    wrong = {
        "other points": (Domain((k,), {k: (1, 4)}), {k: i + 0}, {i: k + 0}),
        "no inverse": (Domain((k,), {k: (0, 4)}), {k: 3 - i}, {i: k + 0}),
        "two to one": (Domain((k,), {k: (0, 4)}), {k: i // 2 * 2}, {i: k + 0}),
        "lost": (Domain((k,), {k: (0, 3)}), {k: i + 0}, {i: k + 0}),
    }
    for new, forth, back in wrong.values():
        transformation = DomainTransformation(new, old, forth, back)
        with pytest.raises(AssertionError):
            isl_bijection(transformation)
        with pytest.raises(AssertionError):
            bijection(transformation, {})


def printed() -> str:
    """The solutions of all tables."""
    lines = []
    for variables, ranges, conditions, *_ in [*BARS.values(), *FORMS.values()]:
        t = simplify_domain(Domain(variables, ranges, tuple(conditions)))
        maps = list(t.old_to_new.values()), list(t.new_to_old.items())
        lines.append(f"{t.new_domain.conditions} {maps}")
    return "\n".join(lines)


@pytest.mark.slow
def test_same_result_under_another_hash_seed() -> None:
    other = subprocess.run(
        [sys.executable, "-c", "from tests.domain import test_simplify as t; print(t.printed())"],
        env=without_torch(*sys.path, PYTHONHASHSEED="1"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert other.strip() == printed() != ""
