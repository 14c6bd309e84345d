"""Programs whose reads are safe only behind a condition, or whose sizes are symbols.

`PROGRAMS` maps a name to a function that makes a `Program`. Its integer inputs are indices, drawn
from the range that `indices` gives for their name, and some of them lie outside of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import te, tirx, topi
from tvm.tirx import IntImm

import tvm_autodiff as ad

from .cases import axis, placeholder

Sizes = dict[str, int]


@dataclass(frozen=True)
class Program:
    """Inputs, outputs, and the values of the symbols in each call."""

    inputs: Sequence[Any]
    outputs: Sequence[Any]
    calls: Sequence[Sizes]
    indices: dict[str, tuple[int, int]] = field(default_factory=dict)


ROWS = ({"n": 3, "m": 7}, {"n": 5, "m": 40}, {"n": 0, "m": 4}, {"n": 1, "m": 1})
ONE = ({"n": 5}, {"n": 1}, {"n": 2}, {"n": 33})


def zero(dtype: str = "float32") -> Any:
    return tirx.const(0, dtype)


def symbols(*names: str, dtype: str = "int32") -> list[Any]:
    return [te.var(name, dtype) for name in names]


def guarded_rows(width: int, dtype: str = "int32") -> Program:
    n, m = symbols("n", "m", dtype=dtype)
    x, b, k = placeholder("x", n, width), placeholder("b", m), axis(width)
    s = te.compute(
        (m,), lambda i: te.sum(te.if_then_else(i < n, x[i, k], zero()), axis=k), name="s"
    )
    return Program([x, b], [te.compute((m,), lambda i: s[i] + b[i], name="t")], ROWS)


def padded_rows(width: int, before: int, after: int) -> Program:
    [n] = symbols("n")
    x = placeholder("x", n, width)
    p, k = topi.nn.pad(x, (before, 0), (after, 0)), axis(width)
    rows = te.compute((n + before + after,), lambda i: te.sum(p[i, k], axis=k), name="s")
    return Program([x], [rows], [*ONE, {"n": 0}])


def guarded_softmax(width: int) -> Program:
    n, m = symbols("n", "m")
    x = placeholder("x", n, width)
    y = te.compute((m, width), lambda i, j: te.if_then_else(i < n, x[i, j], zero()), name="padded")
    b = placeholder("b", m, width)
    return Program([x, b], [topi.nn.softmax(topi.add(y, b))], ROWS)


def slopes() -> Program:
    """Elements choose whether the parameter of their row is read; rows may be short."""
    n, m = symbols("n", "m")
    x, s = placeholder("x", n, m), placeholder("s", n)
    y = te.compute(
        (n, m),
        lambda i, j: te.if_then_else(x[i, j] > zero(), x[i, j], s[i] * x[i, j]),
        name="y",
    )
    sizes = (3, 1), (1, 7), (5, 8), (2, 37), (0, 4)
    calls = [{"n": rows, "m": columns} for rows, columns in sizes]
    return Program([x, s], [y], calls)


def first_rows(steps: int, batch: int, width: int) -> Program:
    """The first of the merged rows read another tensor, and a pass sums all of them."""
    h, e = placeholder("h", steps, batch, width), placeholder("e", steps, batch, width)
    s, f = placeholder("s", width), placeholder("f", batch, width)
    w = te.compute(h.shape, lambda t, b, m: h[t, b, m] + e[t, b, m], name="w")

    def body(t: Any, b: Any, m: Any) -> Any:
        return w[t, b, m] * s[m] + te.if_then_else(t.equal(0), f[b, m], zero())

    t, b = axis(steps), axis(batch)
    total = te.compute((width,), lambda m: te.sum(w[t, b, m] * e[t, b, m], axis=[t, b]), name="r")
    return Program([h, e, s, f], [te.compute(h.shape, body, name="g"), total], [{}])


def guarded_product(k: int) -> Program:
    n, m = symbols("n", "m")
    A, B, r = placeholder("A", n, k), placeholder("B", k, 48), axis(k)
    C = te.compute(
        (m, 48),
        lambda i, j: te.sum(te.if_then_else(i < n, A[i, r] * B[r, j], zero()), axis=r),
        name="C",
    )
    bias = placeholder("bias", m)
    return Program([A, B, bias], [te.compute((m, 48), lambda i, j: C[i, j] + bias[i])], ROWS)


def guarded_sum_of_products() -> Program:
    [n] = symbols("n")
    A, B, r = placeholder("A", 40, n), placeholder("B", n, 48), axis(64)
    C = te.compute(
        (40, 48),
        lambda i, j: te.sum(te.if_then_else(r < n, A[i, r] * B[r, j], zero()), axis=r),
        name="C",
    )
    return Program([A, B], [C], [{"n": 64}, {"n": 50}, {"n": 1}])


def stencil(ahead: int, *, select: bool = False) -> Program:
    [n] = symbols("n")
    x = placeholder("x", n)
    choose = tirx.Select if select else te.if_then_else
    y = te.compute(
        (n,),
        lambda i: (
            choose(i + ahead < n, x[i + ahead], zero()) + choose(i >= ahead, x[i - ahead], zero())
        ),
        name="y",
    )
    return Program([x], [y], [*ONE, {"n": 0}])


def blurred_rows(width: int) -> Program:
    [n] = symbols("n")
    x, k = placeholder("x", n, width), axis(3)
    body = lambda i, j: te.sum(  # noqa: E731
        te.if_then_else(te.all(i + k >= 1, i + k < n + 1), x[i + k - 1, j], zero()), axis=k
    )
    return Program([x], [te.compute((n, width), body, name="blurred")], ONE)


def looked_up(form: str) -> Program:
    n, m, r = symbols("n", "m", "r")
    x, place = placeholder("x", r, 24), placeholder("I", n, dtype="int32")

    def body(i: Any, j: Any) -> Any:
        here = te.all(i < n, place[i] >= 0, place[i] < r)
        if form == "nested":
            inner = te.if_then_else(te.all(place[i] >= 0, place[i] < r), x[place[i], j], zero())
            return te.if_then_else(i < n, inner, zero())
        if form == "select":
            return tirx.Select(here, x[place[i], j], zero())
        if form == "or":
            away = te.any(i >= n, place[i] < 0, place[i] >= r)
            return te.if_then_else(away, zero(), x[place[i], j])
        return te.if_then_else(here, x[place[i], j], zero())

    y = te.compute((m, 24), body, name="y")
    calls = [{**sizes, "r": 6} for sizes in ROWS]
    b = placeholder("b", m)
    squares = te.compute((m,), lambda i: b[i] * b[i], name="squares")
    return Program([x, place, b], [y, squares], calls, {"I": (-3, 9)})


def masked_lookup_sum() -> Program:
    n, m = symbols("n", "m")
    x, place, k = placeholder("x", n), placeholder("I", n, dtype="int32"), axis(96)
    body = lambda i: te.sum(  # noqa: E731
        te.if_then_else(te.all(k < n, place[k] == i), x[k], zero()), axis=k
    )
    b = placeholder("b", m)
    s = te.compute((m,), body, name="s")
    calls = [{"n": 96, "m": 5}, {"n": 7, "m": 9}, {"n": 1, "m": 1}]
    doubled = te.compute((m,), lambda i: b[i] * 2.0, name="doubled")
    return Program([x, place, b], [s, doubled], calls, {"I": (-2, 9)})


def masked_extreme() -> Program:
    """LLVM takes seconds for 64 points or more, whose kernel is the same."""
    n, m = symbols("n", "m")
    x, place, k = placeholder("x", n), placeholder("I", n, dtype="int32"), axis(48)

    def body(i: Any) -> Any:
        holds = te.all(k < n, place[k] == i)
        return te.max(te.if_then_else(holds, x[k], tirx.const(-9, "float32")), axis=k)

    b, best = placeholder("b", m), te.compute((m,), body, name="best")
    calls = [{"n": 48, "m": 5}, {"n": 7, "m": 9}, {"n": 1, "m": 1}]
    y = te.compute((m,), lambda i: best[i] * b[i], name="y")
    return Program([x, place, b], [y], calls, {"I": (-2, 9)})


def labelled_rows(width: int, summed: bool) -> Program:
    """Labels outside of a row mark rows that count for nothing."""
    [n] = symbols("n")
    x, label, k = placeholder("x", n, width), placeholder("I", n, dtype="int32"), axis(width)

    def term(i: Any, j: Any) -> Any:
        valid = te.all(label[i] >= 0, label[i] < width, label[i] != j)
        return te.if_then_else(valid, te.max(x[i, j] - x[i, label[i]] + 1.0, zero()), zero())

    body = (lambda i: te.sum(term(i, k), axis=k)) if summed else term
    shape = (n,) if summed else (n, width)
    calls = ({"n": 9}, {"n": 1}, {"n": 0})
    return Program([x, label], [te.compute(shape, body, name="y")], calls, {"I": (-2, width + 2)})


def factors_of_rows(width: int, form: str) -> Program:
    """Row sums of products with factors at data, which one vector needs for all of its lanes."""
    [n] = symbols("n")
    x, g, q = placeholder("x", n, width), placeholder("g", 5), placeholder("q", 5, width)
    place, k = placeholder("I", n, dtype="int32"), axis(width)

    def body(i: Any) -> Any:
        at = place[i]
        inside, outside = te.all(at >= 0, at < 5), te.any(at < 0, at >= 5)
        clamped = te.max(te.min(at, 4), 0)
        return {
            "all": lambda: te.if_then_else(inside, x[i, k] * g[at], zero()),
            "rows": lambda: te.if_then_else(inside, x[i, k] * q[at, k], zero()),
            "any": lambda: te.if_then_else(outside, x[i, k], x[i, k] + g[at]),
            "clamped": lambda: te.if_then_else(inside, x[i, k] * g[clamped], zero()),
            "select": lambda: tirx.Select(inside, x[i, k] * g[clamped], zero()),
            "one by one": lambda: te.if_then_else(
                at >= 0, te.if_then_else(at < 5, x[i, k] * g[at], x[i, k]), zero()
            ),
        }[form]()

    sums = te.compute((n,), lambda i: te.sum(body(i), axis=k), name="sums")
    most = te.compute((n,), lambda i: te.max(body(i), axis=k), name="most")
    calls = ({"n": 9}, {"n": 1}, {"n": 0}, {"n": 40})
    return Program([x, g, q, place], [sums, most], calls, {"I": (-2, 7)})


def windows_of_data(count: int) -> Program:
    """Rows that many bounds by data choose, whose products copy what they read at data."""
    sizes = {"x": (count, 17), "h": (64, 17), "w": (64,)}
    x, h, w = (placeholder(name, *shape, dtype="float64") for name, shape in sizes.items())
    place, e = placeholder("I", count, dtype="int32"), axis(count)

    def body(n: Any, f: Any) -> Any:
        inside = te.all(place[e] <= n, n < place[e] + 3)
        return te.sum(te.if_then_else(inside, x[e, f] * w[n], zero("float64")), axis=e)

    y = te.compute((64, 17), body, name="y")
    [dw] = ad.differentiate(y, [w], h)
    return Program([x, h, place, w], [dw], [{}], {"I": (-9, 70)})


def last_factor_of_rows(width: int) -> Program:
    """Rows beyond a size would read its last factor, which a clamp finds for all rows."""
    n, m = symbols("n", "m")
    x, g = placeholder("x", m, width, dtype="float64"), placeholder("g", n, dtype="float64")
    k, none = axis(width), zero("float64")
    last = lambda i: te.min(i, n - 1)  # noqa: E731
    s = te.compute(
        (m,),
        lambda i: te.sum(te.if_then_else(i < n, x[i, k] * g[last(i)], none), axis=k),
        name="s",
    )
    d = te.compute(
        (m, width), lambda i, j: te.if_then_else(i < n, s[i] * g[i], none), name="d"
    )
    return Program([x, g], [d], [*ROWS, {"n": 1, "m": 9}])


def wrapped() -> Program:
    n, m = symbols("n", "m")
    x, b = placeholder("x", n), placeholder("b", m)
    y = te.compute((m,), lambda i: te.if_then_else(n > 0, x[i % n], zero()) + b[i], name="y")
    return Program([x, b], [y], ROWS)


def joined(width: int) -> Program:
    n, m = symbols("n", "m")
    x, b = placeholder("x", n, width), placeholder("b", m, width)
    joined = te.compute(
        (n + m, width),
        lambda i, j: te.if_then_else(i < n, x[i, j], b[i - n, j]),
        name="joined",
    )
    k = axis(width)
    return Program(
        [x, b], [te.compute((n + m,), lambda i: te.sum(joined[i, k], axis=k), name="s")], ROWS
    )


def exclusive_sums(length: int) -> Program:
    x, k = placeholder("x", 12, length - 1), axis(length)
    y = te.compute(
        (12, length),
        lambda i, j: te.sum(te.if_then_else(k < j, x[i, k], zero()), axis=k),
        name="sums",
    )
    return Program([x], [y], [{}])


def turned(rows: int, columns: int) -> Program:
    x = placeholder("x", columns - 3, rows)
    y = te.compute(
        (rows, columns),
        lambda i, j: te.if_then_else(j < columns - 3, x[j, i], zero()),
        name="turned",
    )
    return Program([x], [y], [{}])


def pooled(size: int) -> Program:
    [n] = symbols("n")
    x = placeholder("x", n, 4, size, size)
    y = topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max")
    return with_gradient([x], y, [{"n": 1}, {"n": 3}])


def convolved(size: int) -> Program:
    [n] = symbols("n")
    x, w = placeholder("x", n, 3, size, size), placeholder("w", 8, 3, 3, 3)
    return with_gradient([x, w], topi.nn.conv2d_nchw(x, w, 1, 1, 1), [{"n": 1}, {"n": 2}])


def heavy_condition(levels: int) -> Program:
    """A kernel in statements that reads a value behind a conjunction many times."""
    n, m = symbols("n", "m")
    x, b = placeholder("x", n), placeholder("b", m)

    def body(i: Any) -> Any:
        value = x[i]
        for _ in range(levels):
            value = te.sin(value * value) + value
        return te.if_then_else(te.all(i < n, value > 0.5), b[i], -b[i])

    return Program([x, b], [te.compute((m,), body, name="y")], ROWS)


def classes_behind_conditions(length: int) -> Program:
    """Every second element depends on a value behind a conjunction."""
    x, b = placeholder("x", length), placeholder("b", 4 * length)

    def body(i: Any) -> Any:
        half = tirx.floordiv(i, 2)
        holds = te.all(half < length, x[half] * x[half] > 1.0)
        return te.if_then_else(holds, b[i], te.if_then_else(i % 2 == 0, -b[i], zero()))

    return Program([x, b], [te.compute((4 * length,), body, name="y")], [{}])


def rows_behind_conditions(width: int, choose: Callable = te.if_then_else) -> Program:
    """Two stages of a row need the same expensive value behind a conjunction."""
    x, b = placeholder("x", 12, width - 30), placeholder("b", 12, width)

    def masked(limit: float, name: str) -> Any:
        holds = lambda i, j: te.all(j < width - 30, te.exp(x[i, j]) > limit)  # noqa: E731
        return te.compute(
            (12, width), lambda i, j: choose(holds(i, j), b[i, j], zero()), name=name
        )

    above, k = masked(2.0, "above"), axis(width)
    total = te.compute((12,), lambda i: te.sum(above[i, k], axis=k), name="total")
    below = masked(0.3, "below")
    y = te.compute((12, width), lambda i, j: below[i, j] + total[i], name="y")
    return Program([x, b], [y], [{}])


def with_gradient(inputs: Sequence[Any], output: Any, calls: Sequence[Sizes]) -> Program:
    head = te.placeholder(output.shape, str(output.dtype), name="head")
    floats = [t for t in inputs if str(t.dtype).startswith("float")]
    return Program([*inputs, head], [output, *ad.differentiate(output, floats, head)], calls)


def gradient_of(program: Program) -> Program:
    derived = with_gradient(program.inputs, program.outputs[0], program.calls)
    return Program(derived.inputs, derived.outputs, derived.calls, program.indices)


def wide_shapes(rows: int, columns: int) -> Program:
    shape = [IntImm("int64", rows), IntImm("int64", columns)]
    x = te.placeholder(shape, "float32", name="x")
    y = te.compute(
        (IntImm("int64", rows + 5), shape[1]),
        lambda i, j: te.if_then_else(i < rows, x[i, j], zero()),
        name="y",
    )
    k = te.reduce_axis((IntImm("int64", 0), shape[1]), "k")
    return Program(
        [x], [te.compute((rows + 5,), lambda i: te.sum(y[i, k], axis=k), name="s")], [{}]
    )


def kept_states(size: int) -> Program:
    """A loop with a plan of checkpoints: one function, or calls of kernels if steps are large."""
    [n] = symbols("n")
    x, w, h = placeholder("x", n, size), placeholder("w", size, size), placeholder("h", size)

    def step(state: Any, row: Any) -> Any:
        k = axis(size)
        product = te.compute((size,), lambda i: te.sum(w[i, k] * state[k], axis=k), name="product")
        new = te.compute((size,), lambda i: te.tanh(product[i] * 0.1 + row[i]), name="new")
        return new, new

    _, states = ad.scan(step, h, x, checkpoint=ad.Recursive(3))
    bar = placeholder("bar", n, size)
    return Program([x, w, h, bar], list(ad.vjp(states, [x, w, h], bar)), [*ONE, {"n": 0}])


def rows_in_blocks(inner: int) -> Program:
    """A product of n rows; if `inner` is zero, its sums also have n terms."""
    [n] = symbols("n")
    width = inner or n
    a, b, k = placeholder("a", 2, n, width), placeholder("b", 2, width, 32), axis(width)
    y = te.compute((2, n, 32), lambda g, i, j: te.sum(a[g, i, k] * b[g, k, j], axis=k), name="y")
    return Program([a, b], [y], [{"n": size} for size in (0, 1, 2, 7, 12, 13, 29)])


def columns_in_panels(steps: int) -> Program:
    """Scores of n rows by n, and a window over time whose last vector ends with the array."""
    [n] = symbols("n")
    q, v, d = placeholder("q", 2, n, 32), placeholder("v", 2, n, 32), axis(32)
    x, w = placeholder("x", 8, n + steps - 1), placeholder("w", 16, 8, steps)
    c, r = axis(8), te.reduce_axis((0, steps), "r")
    s = te.compute((2, n, n), lambda g, i, j: te.sum(q[g, i, d] * v[g, j, d], axis=d), name="s")
    y = te.compute((16, n), lambda f, t: te.sum(x[c, t + r] * w[f, c, r], axis=[c, r]), name="y")
    return Program([q, v, x, w], [s, y], [{"n": size} for size in (0, 1, 7, 16, 17, 64, 100)])


def columns_over_time(steps: int) -> Program:
    """A convolution over time, whose gradient reads zeros around its cotangent."""
    [n] = symbols("n")
    x, w = placeholder("x", 8, n + steps - 1), placeholder("w", 16, 8, steps)
    c, r = axis(8), te.reduce_axis((0, steps), "r")
    y = te.compute((16, n), lambda f, t: te.sum(x[c, t + r] * w[f, c, r], axis=[c, r]), name="y")
    return Program([x, w], [y], [{"n": size} for size in (1, 7, 16, 64, 100)])


def turned_sizes() -> Program:
    """A transposition of two symbolic axes."""
    n, m = symbols("n", "m")
    x = placeholder("x", n, m)
    y = te.compute((m, n), lambda i, j: x[j, i] * 2.0, name="y")
    pairs = ((0, 3), (1, 1), (3, 5), (5, 17), (16, 16), (33, 4), (37, 53))
    return Program([x], [y], [{"n": rows, "m": columns} for rows, columns in pairs])


def column_strips(rows: int) -> Program:
    """Sums and largest values of columns, some of them read two places further on."""
    [n] = symbols("n")
    x, b, r = placeholder("x", rows, n + 2), placeholder("b", n), axis(rows)
    sums = te.compute((n,), lambda j: te.sum(x[r, j + 2], axis=r), name="sums")
    largest = te.compute((n,), lambda j: te.max(x[r, j], axis=r), name="largest")
    above = te.compute((n,), lambda j: largest[j] - b[j], name="above")
    return Program([x, b], [sums, above], [{"n": n} for n in (0, 1, 3, 5, 17, 63, 130)])


def long_rows() -> Program:
    """Rows of symbolic length in one fusion group."""
    [n] = symbols("n")
    x = placeholder("x", 5, n)
    return Program([x], [topi.nn.softmax(x)], [*ONE, {"n": 0}, {"n": 100}])


def windows_over_time() -> Program:
    """The largest of each 3 neighbours of a symbolic number of steps."""
    [n] = symbols("n")
    x, r = placeholder("x", 3, n + 2), axis(3)
    y = te.compute((3, n), lambda c, t: te.max(x[c, t + r], axis=r), name="y")
    return Program([x], [y], [{"n": n} for n in (0, 1, 3, 5, 15, 16, 17, 40)])


#: sizes of images: empty, shorter than borders, of less than a vector, and of several
IMAGES = [{"n": n, "m": m} for n, m in ((0, 3), (1, 1), (2, 17), (9, 16), (17, 40), (33, 5))]


def periodic_stencil() -> Program:
    """Neighbours along two symbolic sizes, beyond the ends of which the first ones follow."""
    n, m = symbols("n", "m")
    x = placeholder("x", n, m)

    def body(i: Any, j: Any) -> Any:
        return x[(i + 1) % n, j] + x[(i - 1) % n, j] * 2.0 + x[i, (j + 2) % m] - x[i, (j - 1) % m]

    return Program([x], [te.compute((n, m), body, name="y")], IMAGES)


def filtered_image(separable: bool) -> Program:
    """Windows around each point of an image of two symbolic sizes."""
    n, m = symbols("n", "m")
    x, w, p, q = placeholder("x", n, m), placeholder("w", 5, 5), axis(5), axis(5)

    def body(i: Any, j: Any) -> Any:
        a, b = i + p - 2, j + q - 2
        value = x[a, b] if separable else x[a, b] * w[p, q]
        inside = te.all(a >= 0, a < n, b >= 0, b < m)
        return te.sum(te.if_then_else(inside, value, zero()), axis=[p, q])

    inputs = [x] if separable else [x, w]
    return Program(inputs, [te.compute((n, m), body, name="y")], IMAGES)


PROGRAMS: dict[str, Callable[[], Program]] = {
    **{f"rows-{w}": lambda w=w: guarded_rows(w) for w in (1, 7, 100, 128, 1000)},
    "rows-int64": lambda: guarded_rows(100, "int64"),
    "padded-rows-after": lambda: padded_rows(100, 0, 3),
    "padded-rows-around": lambda: padded_rows(128, 2, 1),
    "softmax": lambda: guarded_softmax(40),
    "product": lambda: guarded_product(64),
    "sum-of-products": guarded_sum_of_products,
    "stencil": lambda: stencil(1),
    "stencil-far": lambda: stencil(20),
    "stencil-select": lambda: stencil(3, select=True),
    "blurred": lambda: blurred_rows(40),
    "lookup-all": lambda: looked_up("all"),
    "lookup-nested": lambda: looked_up("nested"),
    "lookup-select": lambda: looked_up("select"),
    "lookup-or": lambda: looked_up("or"),
    "masked-lookup-sum": masked_lookup_sum,
    "masked-extreme": masked_extreme,
    "gradient-masked-extreme": lambda: gradient_of(masked_extreme()),
    "labelled-rows": lambda: labelled_rows(40, summed=False),
    "labelled-row-sums": lambda: labelled_rows(40, summed=True),
    "gradient-labelled-rows": lambda: gradient_of(labelled_rows(40, summed=True)),
    **{
        f"factors-{form.replace(' ', '-')}": lambda form=form: factors_of_rows(64, form)
        for form in ("all", "rows", "any", "clamped", "select", "one by one")
    },
    "gradient-factors": lambda: gradient_of(factors_of_rows(64, "all")),
    "windows-of-data": lambda: windows_of_data(101),
    "last-factor": lambda: last_factor_of_rows(200),
    "wrapped": wrapped,
    "joined": lambda: joined(32),
    "exclusive-sums": lambda: exclusive_sums(40),
    "turned": lambda: turned(37, 53),
    "pooled": lambda: pooled(9),
    "convolved": lambda: convolved(10),
    "gradient-rows": lambda: gradient_of(guarded_rows(100)),
    "gradient-padded": lambda: gradient_of(padded_rows(100, 1, 2)),
    "gradient-stencil": lambda: gradient_of(stencil(2)),
    "gradient-lookup": lambda: gradient_of(looked_up("all")),
    "gradient-joined": lambda: gradient_of(joined(32)),
    "gradient-product": lambda: gradient_of(guarded_product(64)),
    "heavy-condition": lambda: heavy_condition(11),
    "classes-behind-conditions": lambda: classes_behind_conditions(21),
    "columns-in-panels": lambda: columns_in_panels(5),
    "gradient-columns": lambda: gradient_of(columns_over_time(5)),
    "column-strips": lambda: column_strips(9),
    "turned-sizes": turned_sizes,
    "windows-over-time": windows_over_time,
    "gradient-windows-over-time": lambda: gradient_of(windows_over_time()),
    "long-rows": long_rows,
    "gradient-long-rows": lambda: gradient_of(long_rows()),
    "slopes": slopes,
    "first-rows": lambda: first_rows(20, 4, 64),
    "rows-behind-conditions": lambda: rows_behind_conditions(100),
    "rows-behind-selects": lambda: rows_behind_conditions(100, tirx.Select),
    "kept-states": lambda: kept_states(3),
    "kept-states-called": lambda: kept_states(40),
    "rows-in-blocks": lambda: rows_in_blocks(40),
    "rows-in-blocks-summed": lambda: rows_in_blocks(0),
    "gradient-rows-in-blocks": lambda: gradient_of(rows_in_blocks(40)),
    "wide-shapes": lambda: wide_shapes(20, 100),
    "periodic-stencil": periodic_stencil,
    "gradient-periodic-stencil": lambda: gradient_of(periodic_stencil()),
    "filtered-image": lambda: filtered_image(False),
    "gradient-filtered-image": lambda: gradient_of(filtered_image(False)),
    "boxes-of-an-image": lambda: filtered_image(True),
}



def looked_up_outside(where: int) -> Program:
    """Data that no condition guards leads outside of an array of eight."""
    x, place = placeholder("x", 8), placeholder("I", 5, dtype="int32")
    y = te.compute((5,), lambda i: x[place[i]], name="y")
    return Program([x, place], [y], [{}], {"I": (where, where + 1)})


#: programs that read one element beyond an array, and one before: at the end of that name
WRONG: dict[str, Callable[[], Program]] = {
    "end": lambda: looked_up_outside(8),
    "begin": lambda: looked_up_outside(-1),
}

#: those that differ in a size only, or in the kind of a condition, or whose gradients hold all of
#: their kernels
_ALIKE = frozenset(
    ("rows-7", "rows-128", "rows-1000", "padded-rows-around", "stencil-far", "lookup-nested")
    + ("lookup-select", "gradient-padded", "gradient-product", "rows-behind-selects")
    + ("factors-rows", "factors-any", "factors-clamped", "factors-one-by-one")
    + ("kept-states-called", "rows-100", "joined", "long-rows", "rows-in-blocks")
)
#: one of each kind
DIFFERENT = [name for name in PROGRAMS if name not in _ALIKE]
