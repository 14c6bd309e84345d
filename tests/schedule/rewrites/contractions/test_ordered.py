"""Sums of products in the cheapest order: equal values, recorded costs, and what stays as it is."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.schedule.cost import STORE
from tvm_autodiff.schedule.rewrites.contractions import order as order_module
from tvm_autodiff.schedule.rewrites.contractions.order import cheapest_order
from tvm_autodiff.schedule.rewrites.contractions.ordered import with_ordered_contractions
from tvm_autodiff.schedule.rewrites.contractions.terms import contractions_of


def axes(**extents):
    return [te.reduce_axis((0, extent), name) for name, extent in extents.items()]


def arrays(*shapes):
    names = "abcdefg"
    return [te.placeholder(s, "float64", name=names[n]) for n, s in enumerate(shapes)]


def chain():
    a, b, c, d = inputs = arrays((6, 9), (9, 8), (8, 7), (7, 5))
    k, n, m = axes(k=9, n=8, m=7)

    def body(i, j):
        return te.sum(a[i, k] * b[k, n] * c[n, m] * d[m, j], axis=[k, n, m])

    return inputs, te.compute((6, 5), body, name="y")


def two_matrices():
    x, w, y = inputs = arrays((6, 30), (30, 3), (3, 7))
    i, j = axes(i=30, j=3)

    def body(b, o):
        return te.sum(x[b, i] * w[i, j] * y[j, o], axis=[i, j])

    return inputs, te.compute((6, 7), body, name="y")


def one_factor_first():
    h, p = inputs = arrays((16, 20, 20), (24, 24))
    f, y, x = axes(f=16, y=20, x=20)

    def body(r, s):
        return te.sum(h[f, y, x] * p[y + r, x + s], axis=[f, y, x])

    return inputs, te.compute((5, 5), body, name="y")


def invariant_factors():
    a, u, v, w = inputs = arrays((30, 40), (30,), (40,), (20,))
    k, n = axes(k=30, n=40)

    def body(i):
        return te.sum(w[i] * u[k] * a[k, n] * v[n] * 3.0, axis=[k, n])

    return inputs, te.compute((20,), body, name="y")


def terms():
    x, u, v, w = inputs = arrays((24, 24), (24,), (24,), (24,))
    [k] = axes(k=24)

    def body(i, j):
        return te.sum(w[k] * x[k, j] * u[i] * v[j] - w[i] * u[k] * v[j] * x[k, j], axis=k)

    return inputs, te.compute((24, 24), body, name="y")


def guarded():
    a, b, c = inputs = arrays((12, 9), (12, 10), (10, 11))
    k, n = axes(k=12, n=10)

    def body(i, j):
        value = te.if_then_else(te.all(i + k >= 3, i + k < 12), a[i + k - 3, 2] * b[k, n], 0.0)
        return te.sum(value * c[n, j], axis=[k, n])

    return inputs, te.compute((8, 11), body, name="y")


def many_axes():  # four factors, six sums
    h, x, a, b = inputs = arrays((3, 5, 4, 6), (3, 4, 5, 6), (3, 5, 4, 2), (2, 6, 6))
    s, p, q, e, f, v = axes(s=3, p=4, q=5, e=5, f=6, v=2)

    def body(i, o):
        value = h[s, e, p, o] * x[s, p, q, f] * a[s, q, i, v] * b[v, f, i]
        return te.sum(value, axis=[s, p, q, e, f, v])

    return inputs, te.compute((4, 6), body, name="y")


def divided():
    a, b, s = inputs = arrays((12, 9), (9, 11), (12,))
    [k] = axes(k=9)

    def body(i, j):
        divisor = te.if_then_else(s[i] > 0.0, te.const(4.0, "float64"), 0.5)  # quotients are exact
        return te.sum(a[i, k] * b[k, j] / divisor, axis=k)

    return inputs, te.compute((12, 11), body, name="y")


def condition_of_results():
    a, s = inputs = arrays((12, 9), (12,))
    [k] = axes(k=9)

    def body(i, j):
        return te.sum(te.if_then_else(s[i] > j, a[i, k] * a[i, k], 0.0), axis=k)

    return inputs, te.compute((12, 11), body, name="y")


def condition_of_no_factor():
    a, b, z = inputs = arrays((12, 20), (20, 9), (12, 9))
    k, n = axes(k=20, n=9)

    def body(i):
        return te.sum(te.if_then_else(z[i, n] > 0.0, a[i, k] * b[k, n], 0.0), axis=[k, n])

    return inputs, te.compute((12,), body, name="y")


def divisor_under_a_condition():
    a, b, z = inputs = arrays((12, 40), (40, 30), (12, 30))
    k, n = axes(k=40, n=30)

    def body(i):
        zero_or_two = te.min(te.max(z[i, n], 0.0), 1.0) * 2.0
        quotient = a[i, k] * b[k, n] / zero_or_two
        return te.sum(te.if_then_else(z[i, n] > 0.0, quotient, 0.0), axis=[k, n])

    return inputs, te.compute((12,), body, name="y")


def shared_over_a_part_of_the_axes():
    """Both terms begin with the sum of the condition over n, and one of them sums over k, too."""
    g, x, z = inputs = arrays((3, 2), (18, 3), (18,))
    k, n = axes(k=3, n=16)

    def body(i, j):
        holds = te.all(g[k, i] > 0.0, n >= i)
        return te.sum(te.if_then_else(holds, x[j, k] - z[j], 0.0), axis=[k, n])

    return inputs, te.compute((2, 18), body, name="y")


def a_loop_that_cancels():
    """The condition names n, on which it does not depend."""
    g, x, z = inputs = arrays((3,), (18, 40), (18,))
    k, n = axes(k=3, n=40)

    def body(j):
        holds = g[k] > z[j - n * 2 + n * 2]
        return te.sum(te.if_then_else(holds, x[j, n], 0.0), axis=[k, n])

    return inputs, te.compute((18,), body, name="y")


def choice_by_data():
    """The condition depends on two of three loops: it is looked at after the product."""
    u, h, b = inputs = arrays((12,), (12, 20), (12, 20))
    j, k = axes(j=20, k=12)

    def body(i):
        choice = tirx.Select(u[i] > u[k], h[i, j] * b[k, j], te.const(0, "float64"))
        other = tirx.Select(u[i] <= u[k], h[k, j] * b[i, j], te.const(0, "float64"))
        return te.sum(choice + other, axis=[j, k])

    return inputs, te.compute((12,), body, name="y")


#: name → (program, multiplications as written, and after)
CASES = {
    "a choice by data": (choice_by_data, 2 * 12 * 240, 2 * 12 * 240),
    "chain": (chain, 6 * 5 * 504 * 3, 6 * 9 * 8 + 6 * 8 * 7 + 6 * 7 * 5),
    "two matrices": (two_matrices, 6 * 7 * 90 * 2, 6 * 90 + 6 * 7 * 3),
    "one factor first": (one_factor_first, 25 * 6400, 25 * 400),
    "invariant factors": (invariant_factors, 20 * 1200 * 4, 2 * 1200 + 40),
    "terms": (terms, 24**3 * 6, 4 * 24**2 + 24**2 * 4),
    "guarded": (guarded, 8 * 11 * 120 * 2, 8 * 12 * 10 + 8 * 10 * 11),
    "many axes": (many_axes, 24 * 3600 * 3, 48 * 60 * 2 + 24 * 12),
    "divided": (divided, 12 * 11 * 9 * 2, 12 * 11 * (9 + 1)),
    "condition of results": (condition_of_results, 12 * 11 * 9, 12 * 9),
    "condition of no factor": (condition_of_no_factor, 12 * 180, 12 * 180),
    "a loop that cancels": (a_loop_that_cancels, 18 * 120 * 2, 18 * 40),
    "shared over a part of the axes": (shared_over_a_part_of_the_axes, 0, 2 * 18 * 4),
    "divisor under a condition": (divisor_under_a_condition, 12 * 1200 * 3, 12 * 30 * (40 + 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_equal_values_with_fewer_multiplications(name):
    program, written, fewer = CASES[name]
    inputs, y = program()
    [ordered] = with_ordered_contractions([y])
    rng = np.random.default_rng(0)
    # integers: sums in any order are equal to the last bit
    given = {x: rng.integers(-4, 5, [int(n) for n in x.shape]).astype("float64") for x in inputs}
    [want], [got] = evaluate_graph([y], given), evaluate_graph([ordered], given)
    np.testing.assert_array_equal(got, want)
    assert np.abs(want).sum() > 0
    assert ad.estimate_cost(y).multiplications == written
    assert ad.estimate_cost(ordered).multiplications <= fewer


@pytest.mark.parametrize("name", CASES)
def test_every_gradient_compiled(name):
    inputs, y = CASES[name][0]()
    head = te.placeholder(y.shape, "float64", name="head")
    gradients = ad.differentiate(y, inputs, head)
    rng = np.random.default_rng(1)
    every = (*inputs, head)
    given = {t: rng.integers(-3, 4, [int(n) for n in t.shape]).astype("float64") for t in every}
    want = evaluate_graph([y, *gradients], given)
    got = ad.build([*inputs, head], [y, *gradients])(*given.values())
    for ours, exact in zip(got, want, strict=True):
        np.testing.assert_array_equal(ours, exact)


def test_terms_of_equal_factors_are_one():
    a, b, s = arrays((30, 40), (30, 40), (30,))
    [k] = axes(k=40)

    def terms_with(scales):
        def body(i, j):
            first = a[i, k] * b[j, k] * s[i] * scales[0]
            second = s[i] * a[i, k] * scales[2] * b[j, k]
            return te.sum(first - b[j, k] * a[i, k] * s[i] * scales[1] + second, axis=k)

        return contractions_of(te.compute((30, 30), body, name="y").op)

    [term] = terms_with((2.0, 1.0, 3.0))
    assert [float(part.value) for part in term.scale] == [4.0]
    [whole] = with_ordered_contractions([term.op.output(0)])
    assert ad.estimate_cost(whole).multiplications == 30 * 30 * 40 * 3
    [term] = terms_with((2.0, 4.0, 3.0))
    assert term.scale == ()
    assert len(terms_with((2.0, 5.0, 3.0))) == 3  # what is infinite has no difference


def test_neither_of_two_comparisons_holds_for_nan():
    u, h, b = inputs = arrays((12,), (12, 20), (12, 20))
    j, k = axes(j=20, k=12)

    def body(i):
        zero = te.const(0, "float64")
        return te.sum(tirx.Select(u[i] < u[k], zero, h[i, j] * b[k, j]), axis=[j, k])

    y = te.compute((12,), body, name="y")
    rng = np.random.default_rng(0)
    given = [rng.random([int(n) for n in t.shape]) for t in inputs]
    given[0][3] = np.nan
    below = given[0][:, None] < given[0]
    want = np.where(below, 0.0, given[1] @ given[2].T).sum(1)
    np.testing.assert_allclose(ad.build(inputs, y, cache=False)(*given), want, rtol=1e-12)


def test_exact_math_keeps_the_order():
    inputs, y = chain()
    counts = [
        len(ad.build(inputs, y, exact_math=exact).profile(*zeros(inputs)).kernels)
        for exact in (False, True)
    ]
    assert counts == [3, 1]


def zeros(inputs):
    return [np.zeros([int(n) for n in x.shape]) for x in inputs]


def matmul():
    a, b = arrays((20, 30), (30, 40))
    [k] = axes(k=30)
    return te.compute((20, 40), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="y")


def scaled_matmul():
    a, b, w = arrays((20, 30), (30, 40), (30,))
    [k] = axes(k=30)
    return te.compute((20, 40), lambda i, j: te.sum(a[i, k] * w[k] * b[k, j], axis=k), name="y")


def mttkrp():  # the sum over k alone would be as long, and have a result for each j
    a, b, c = arrays((20, 30, 40), (30, 16), (40, 16))
    k, j = axes(k=40, j=30)

    def body(i, r):
        return te.sum(a[i, j, k] * b[j, r] * c[k, r], axis=[k, j])

    return te.compute((20, 16), body, name="y")


def maximum():
    a, b, c = arrays((20, 30), (30, 40), (40, 20))
    k, n = axes(k=30, n=40)

    def body(i, j):
        return te.max(a[i, k] * b[k, n] * c[n, j], axis=[k, n])

    return te.compute((20, 20), body, name="y")


def integers():
    a = te.placeholder((20, 30), "int32", name="a")
    b = te.placeholder((30, 40), "int32", name="b")
    k, n = axes(k=30, n=40)
    return te.compute((20,), lambda i: te.sum(a[i, k] * b[k, n], axis=[k, n]), name="y")


def ragged():
    lengths = te.placeholder((20,), "int32", name="lengths")
    a, b, c = arrays((20, 30), (30, 40), (40, 20))
    k, n = te.reduce_axis((0, lengths[0]), "k"), te.reduce_axis((0, 40), "n")

    def body(i, j):
        return te.sum(a[i, k] * b[k, n] * c[n, j], axis=[k, n])

    return te.compute((20, 20), body, name="y")


@pytest.mark.parametrize("program", [matmul, scaled_matmul, mttkrp, maximum, integers, ragged])
def test_what_stays(program):
    y = program()
    [same] = with_ordered_contractions([y])
    assert same.same_as(y)


def test_symbolic_sizes():
    size = te.var("size")
    a, b, c = arrays((size, 9), (9, size), (size, 4))
    k, n = te.reduce_axis((0, 9), "k"), te.reduce_axis((0, size), "n")

    def body(i, j):
        return te.sum(a[i, k] * b[k, n] * c[n, j], axis=[k, n])

    function = ad.build([a, b, c], te.compute((size, 4), body, name="y"))
    assert len(function.profile(np.ones((5, 9)), np.ones((9, 5)), np.ones((5, 4))).kernels) == 2
    rng = np.random.default_rng(2)
    for rows in (0, 1, 5, 16):
        shapes = (rows, 9), (9, rows), (rows, 4)
        given = [rng.integers(-4, 5, shape).astype("float64") for shape in shapes]
        np.testing.assert_array_equal(function(*given), given[0] @ given[1] @ given[2])


@dataclass
class Exhaustive:
    """The least cost, by trying every set of factors whose product some axes end with.

    Factors that depend on other variables than those with the axes are multiplied later. Those that
    a sum changes are multiplied in pairs, with the fewest products of all loops of the result.
    """

    kept: frozenset[int]
    extents: dict[int, int]

    def cost(self, factors: tuple[frozenset[int], ...]) -> float:
        together = self.operations(factors, self.kept)
        best = float(together)
        for count in range(1, len(factors) + 1):
            for chosen in itertools.combinations(range(len(factors)), count):
                bucket = [factors[n] for n in chosen]
                rest = [f for n, f in enumerate(factors) if n not in chosen]
                here = frozenset().union(*bucket)
                inside = here - self.kept - frozenset().union(*rest)
                needed = frozenset().union(*(f for f in bucket if f & inside))
                if not inside or not rest or needed != here:
                    continue
                left = here - inside
                stored = 0 if left == self.kept else STORE * self.points(left)
                step = self.operations(bucket, left) + stored
                if step < best:
                    best = min(best, step + self.cost((*rest, left)))
        return best

    def operations(self, factors: Any, kept: frozenset[int]) -> int:
        inside = [factor & kept for factor in factors if not factor <= kept]
        each = products_of_all_loops(inside, kept)
        return max(1, each) * self.points(kept.union(*factors))

    def points(self, variables: Any) -> int:
        return math.prod(self.extents[v] for v in variables)


def products_of_all_loops(factors: list[frozenset[int]], kept: frozenset[int]) -> int:
    if len(factors) < 2:
        return 0
    counts = []
    for a, b in itertools.combinations(range(len(factors)), 2):
        both = factors[a] | factors[b]
        rest = [factor for n, factor in enumerate(factors) if n not in (a, b)]
        counts.append((both == kept) + products_of_all_loops([*rest, both], kept))
    return min(counts)


def price(order, factors, kept, extents):
    """The operations of an order and what it stores, counted from its eliminations."""
    count = Exhaustive(kept, extents)
    left, total, known = dict(enumerate(factors)), 0, len(factors)
    for one in order:
        parts = [left.pop(number) for number in one.factors]
        new = frozenset().union(*parts) - one.axes
        stored = 0 if new == kept else STORE * count.points(new)
        total += count.operations(parts, new) + stored
        left[known] = new
        known += 1
    return total + count.operations(list(left.values()), kept)


def test_no_order_is_cheaper():
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(150):
        count = int(rng.integers(3, 6))
        extents = {v: int(rng.integers(2, 30)) for v in range(count)}
        factors = [
            frozenset(rng.choice(count, int(rng.integers(1, 4)), replace=False).tolist())
            for _ in range(int(rng.integers(2, 5)))
        ]
        used = sorted(frozenset().union(*factors))
        kept = frozenset(used[: int(rng.integers(0, len(used)))])
        order = cheapest_order(factors, kept, extents).eliminations
        if not order:
            continue
        found += 1
        least = Exhaustive(kept, extents).cost(tuple(factors))
        assert price(order, factors, kept, extents) == least
    assert found > 30


@pytest.mark.parametrize(
    "others",
    [
        [frozenset()] * 30,
        [frozenset({1})] * 30,
        [frozenset({1}), frozenset({2})] * 15,
        [frozenset(pair) for pair in itertools.combinations(range(1, 8), 2)],
    ],
    ids=["numbers", "rows", "rows and columns", "pairs of loops"],
)
def test_many_factors_that_a_sum_does_not_change(others, monkeypatch):
    """Not all of their subsets are tried."""
    price_of, calls = order_module.multiplications, []

    def counting(*args):
        calls.append(args)
        assert len(calls) < 100_000
        return price_of(*args)

    monkeypatch.setattr(order_module, "multiplications", counting)
    kept = frozenset().union({1}, *others)
    summed = [frozenset({0, *kept}), frozenset({0})]
    order = cheapest_order([*summed, *others], kept, dict.fromkeys(range(8), 10))
    assert order.cost <= order.together


def test_ids_decide_nothing():
    """Ids of variables are addresses, which differ between processes."""
    chain = [(0, 1), (1, 2), (2, 3)]
    orders = []
    for ids in itertools.permutations(range(4)):
        factors = [frozenset((ids[a], ids[b])) for a, b in chain]
        extents = {ids[n]: 10 for n in range(4)}  # in the order of the loops
        order = cheapest_order(factors, frozenset((ids[0], ids[3])), extents)
        orders.append([one.factors for one in order.eliminations])
    assert all(order == orders[0] for order in orders)


@pytest.mark.parametrize(
    "factor",
    [
        lambda i, q, b: b[i % q],
        lambda i, q, b: b[q - 1],
        lambda i, q, b: 1.0 / q.astype("float64"),
    ],
    ids=["remainder", "last", "reciprocal"],
)
def test_factors_of_empty_sums_are_not_evaluated(factor):
    """They divide by zero or read outside where the loop that they leave has no steps."""
    n, q = te.var("n"), te.var("q")
    a, b = arrays((n,), (q,))
    [k] = axes(k=q)
    y = te.compute((n,), lambda i: te.sum(a[i] * factor(i, q, b) * b[k], axis=k), name="y")
    [changed] = with_ordered_contractions([y])
    assert "y[i] = if q > 0 " in str(ad.show(changed))
    ones = np.ones(3)
    function = ad.build([a, b], y, cache=False)
    np.testing.assert_array_equal(function(ones, ones[:0]), np.zeros(3))
    np.testing.assert_array_equal(function(ones, ones[:2]) > 0, np.full(3, True))


def test_reads_at_data_have_no_conditions_if_nothing_protects_them():
    index = te.placeholder((8,), "int32", name="index")
    a, b, c = arrays((9, 20), (8, 20), (20,))
    k, n = axes(k=8, n=20)
    y = te.compute((5,), lambda i: te.sum(a[index[k], n] * b[k, n] * c[i], axis=[k, n]), name="y")
    [ordered] = with_ordered_contractions([y])
    assert not ordered.same_as(y)
    assert "if" not in str(ad.show(ordered))


def test_a_divisor_stays_under_conditions_of_the_sum():
    a, b, count = arrays((6, 9), (9, 7), (6,))
    [k] = axes(k=9)

    def body(i, j):
        inside = k.var.astype("float64") < count[i]
        return te.sum(te.if_then_else(inside, a[i, k] * b[k, j] / count[i], 0.0), axis=k)

    y = te.compute((6, 7), body, name="y")
    ones = np.ones((6, 9)), np.ones((9, 7)), np.arange(6.0)
    [got] = evaluate_graph(
        with_ordered_contractions([y]), dict(zip((a, b, count), ones, strict=True))
    )
    np.testing.assert_allclose(got, np.sign(np.arange(6.0))[:, None] + np.zeros((6, 7)))


@pytest.mark.parametrize("divides", [False, True])
def test_a_condition_of_no_factor_protects_reads_at_data(divides):
    """Where it does not hold, the position is outside of the tensor."""
    rows, columns, places = 200, 40, 150
    x, w, c = arrays((30, columns), (rows, columns), (rows, places))
    at = te.placeholder((places,), "int32", name="at")
    k, j = axes(k=places, j=columns)

    def body(i):
        value = x[at[k], j] * w[i, j] / (c[i, k] if divides else 1.0)
        return te.sum(te.if_then_else(c[i, k] > 0.0, value, 0.0), axis=[k, j])

    function = ad.build([x, w, c, at], te.compute((rows,), body, name="y"), cache=False)
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((30, columns)), rng.standard_normal((rows, columns))
    chosen = rng.integers(0, 2, (rows, places)) * 2.0
    position = rng.integers(0, 30, places).astype("int32")
    chosen[:, ::3], position[::3] = 0.0, 1 << 28
    read = a[np.where(position < 30, position, 0)]
    weights = chosen / 4 if divides else chosen / 2
    want = ((weights @ read) * b).sum(axis=1)
    np.testing.assert_allclose(function(a, b, chosen, position), want, rtol=1e-10, atol=1e-12)
