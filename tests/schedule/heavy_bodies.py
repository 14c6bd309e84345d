"""Bodies that are small as graphs, and endless as TVM's passes walk them."""

from __future__ import annotations

from tvm import te, tirx

X = te.placeholder((48,), "float64", name="X")


def times(n, start, step):
    value = start
    for t in range(n):
        value = step(value, t)
    return value


def choices(i, n=9):
    """An index of n nested choices, each of which occurs three times in the next."""
    index = times(n, i, lambda j, t: tirx.Select(j < t + 2, j + 1, j - 1))
    return tirx.Max(tirx.Min(index, 40), 0)


def clamps(i, n=9):
    return times(n, i, lambda j, t: te.max(te.min((j * 2 + t) // 3 + tirx.FloorMod(j, 5), 40), 0))


def winner(i, n=5):
    def step(pair, t):
        value, place = pair
        new = X[i + t]
        wins = tirx.Or(value < new, tirx.And(tirx.EQ(value, new), place <= t))
        return tirx.Select(wins, new, value), tirx.Select(wins, t, place)

    return times(n, (X[i], tirx.const(0, "int32")), step)[0]


def guarded(i, n=5):
    """Reads under guards that no other branch has: outside of them they are out of bounds."""
    return times(
        n,
        tirx.const(0.5, "float64"),
        lambda v, t: te.if_then_else(
            i * 9 - 4 * t >= 0,
            te.if_then_else(i * 9 - 4 * t < 48, v * v + X[i * 9 - 4 * t], v + v * v),
            te.if_then_else(i > 40, X[i * 9 - 4 * t], v * 0.5),
        ),
    )


def doublings(i, n=11):
    return times(n, X[i], lambda v, t: te.sin(v * v) + v)


def by_select(i, n=9):
    return times(
        n,
        X[i],
        lambda v, t: tirx.Select(te.all(i - t >= 0, i - t < 48), v * X[i - t] + v, v - v * v),
    )


K, L = te.reduce_axis((1, 4), "k"), te.reduce_axis((0, 3), "l")
BODIES = {
    "choices": lambda i: X[choices(i)],
    "clamps": lambda i: X[clamps(i)] * X[i],
    "winner": lambda i: winner(i),
    "guarded": lambda i: guarded(i),
    "doublings": lambda i: doublings(i),
    "by select": lambda i: by_select(i),
    "choices, sum": lambda i: te.sum(X[choices(i + K)] * X[K], axis=K),
    "choices, max": lambda i: te.max(X[choices(i - K + L)] * X[L + K], axis=[K, L]),
    "doublings, sum": lambda i: te.sum(doublings(i + K, 11), axis=[K, L]),
    "guarded, min": lambda i: te.min(guarded(i + K, 5), axis=K),
}
