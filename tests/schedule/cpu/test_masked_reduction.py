"""Reductions over masks, such as the maxima of segments: answers of an evaluation in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from tests.schedule.test_rules import expected, rules_of
from tvm_autodiff import build, differentiate
from tvm_autodiff.expr.build import compare

N, E = 260, 60  # results, elements


def mask(index: Any, n: Any) -> Any:
    return compare("eq", index, n)


def segments(
    reducer: Any = te.max,
    other: float = -1e9,
    dtype: str = "float32",
    index: str = "int32",
    value: Callable[[Any, Any], Any] = lambda v, e: v[e],
    holds: Callable[[Any, Any, Any], Any] = lambda d, e, n: mask(d(e), n),
    size: Any = E,
) -> Any:
    """``out[n] = ⊕_e if d[e] == n then value(e) else other``."""
    d, v = (te.placeholder((size,), kind, name) for kind, name in ((index, "d"), (dtype, "v")))
    e = te.reduce_axis((0, size), "e")
    constant = tirx.const(other, dtype)

    def body(n: Any) -> Any:
        return reducer(te.if_then_else(holds(d, e, n), value(v, e), constant), axis=e)

    return [d, v], te.compute((N,), body, name="M")


def rows(order: str, reducer: Any = te.max, index: str = "e") -> Any:
    """Segments of rows: `order` has the axes of the result, `index` those of the place."""
    sizes = {"n": N, "f": 19, "b": 3, "e": E}
    d = te.placeholder([sizes[axis] for axis in index], "int32", "d")
    values = "".join(axis for axis in order if axis != "n") + "e"
    v = te.placeholder([sizes[axis] for axis in values], name="v")
    e = te.reduce_axis((0, E), "e")

    def body(*axes: Any) -> Any:
        here = {**dict(zip(order, axes, strict=True)), "e": e}
        holds = mask(d(*(here[axis] for axis in index)), here["n"])
        read = v(*(here[axis] for axis in values))
        return reducer(te.if_then_else(holds, read, tirx.const(-5.0, "float32")), axis=e)

    return [d, v], te.compute([sizes[axis] for axis in order], body, name="M")


def twice() -> Any:
    """Two reduce axes, and a mask that holds in parts."""
    d, v = te.placeholder((6, 10), "int32", "d"), te.placeholder((6, 10), name="v")
    a, b = te.reduce_axis((0, 6), "a"), te.reduce_axis((0, 10), "b")

    def body(n: Any) -> Any:
        holds = te.all(a + b < 12, mask(d(a, b), n), v[a, b] > -1.5)
        return te.min(te.if_then_else(holds, v[a, b], tirx.const(1.0, "float32")), axis=[a, b])

    return [d, v], te.compute((N,), body, name="M")


def epilogue(case: Any) -> Any:
    inputs, output = case
    return inputs, te.compute(output.shape, lambda *i: output(*i) * 2.0 + 1.0, name="E")


def gradient(case: Any) -> Any:
    inputs, output = case
    head = te.placeholder(output.shape, output.dtype, "head")
    return [*inputs, head], differentiate(output, inputs[1:], head)[0]


def places(other: float) -> Any:
    """The first places of maxima as users may write them: the second of two results."""
    d, v = te.placeholder((E,), "int32", "d"), te.placeholder((E,), name="v")
    pair = te.comm_reducer(
        lambda x, y: tuple(
            tirx.Select(tirx.any(x[0] > y[0], tirx.all(x[0].equal(y[0]), x[1] <= y[1])), a, b)
            for a, b in zip(x, y, strict=True)
        ),
        lambda a, b: (te.min_value(a), tirx.const(-1, b)),
    )
    e = te.reduce_axis((0, E), "e")
    constant = tirx.const(other, "float32")
    found = te.compute(
        (N,),
        lambda n: pair((te.if_then_else(mask(d(e), n), v[e], constant), e), axis=e),
        name="P",
    )
    return [d, v], found[1]


PRODUCT = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype))


def normalised() -> Any:
    """The sum of exponentials of each segment, beside its maximum, by a user's reducer."""
    reducer = te.comm_reducer(
        lambda a, b: (
            te.max(a[0], b[0]),
            a[1] * te.exp(a[0] - te.max(a[0], b[0])) + b[1] * te.exp(b[0] - te.max(a[0], b[0])),
        ),
        lambda a, b: (tirx.const(-90, a), tirx.const(0, b)),
    )
    d, v = te.placeholder((E,), "int32", "d"), te.placeholder((E,), name="v")
    e = te.reduce_axis((0, E), "e")

    def body(n: Any) -> Any:
        parts = ((v[e], -90.0), (tirx.const(1.0, "float32"), 0.0))
        return reducer(
            [te.if_then_else(mask(d(e), n), a, tirx.const(b, "float32")) for a, b in parts], axis=e
        )

    return [d, v], te.compute((N,), body, name="M")[1]


LEAST = float(np.finfo(np.float32).min)
CASES = {
    "maxima": segments(),
    "of identities": segments(other=LEAST),
    "of infinities": segments(other=-np.inf),
    "other elements are larger": segments(other=0.5),
    "minima": segments(te.min, 1e9),
    "products": segments(PRODUCT, 1.0),
    "float64": segments(dtype="float64"),
    "float16": segments(dtype="float16", other=-100.0),
    "int64 places": segments(index="int64", holds=lambda d, e, n: mask(d(e), n.astype("int64"))),
    "narrow places": segments(index="uint8", holds=lambda d, e, n: mask(d(e).astype("int32"), n)),
    "shifted": segments(holds=lambda d, e, n: mask(d(e) * 3 - 1, n)),
    "a condition": segments(holds=lambda d, e, n: te.all(mask(d(e), n), e % 3 != 1)),
    "on the result": segments(holds=lambda d, e, n: te.all(mask(d(e), n), n % 3 != 1)),
    "before": segments(holds=lambda d, e, n: te.all(e >= 2, mask(d(e - 2), n))),
    "functions": segments(value=lambda v, e: te.exp(v[e]) * 0.0 + v[e]),
    "an epilogue": epilogue(segments()),
    "rows": rows("nf"),
    "columns": rows("fn"),
    "batches": rows("bnf", index="be"),
    "two axes": twice(),
    "the gradient": gradient(segments()),
    "of larger others": gradient(segments(other=0.5)),
    "of rows": gradient(rows("nf")),
    "of batches": gradient(rows("bnf", index="be")),
    "places": places(-1e9),
    "places of larger others": places(0.5),
    "places of identities": places(LEAST),
    "several values": normalised(),
}


def arrays(inputs: Any, pattern: str, size: int = E) -> list[np.ndarray]:
    """Few values, so that there are ties; places that no result has, and one for all or many."""
    rng = np.random.default_rng(0)
    made = []
    for tensor in inputs:
        shape = [int(d) if hasattr(d, "value") else size for d in tensor.shape]
        found = rng.integers(-2, 3, shape).astype(str(tensor.dtype))
        if tensor.op.name == "d":
            low = 0 if str(tensor.dtype).startswith("u") else -3
            found = rng.integers(low, N + 3, shape).astype(str(tensor.dtype))
            if pattern == "one":
                found[...] = 7
            elif pattern == "first":
                found[..., : shape[-1] // 2] = 7
            elif pattern == "few":
                found = found // 40
        made.append(found)
    return made


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    inputs, output = CASES[name]
    functions = [build(inputs, output, num_threads=threads) for threads in (1, 2)]
    for pattern in ("random", "one", "first", "few"):
        given = arrays(inputs, pattern)
        want = expected(inputs, output, given)
        for function in functions:
            rtol = 1e-5 if name == "several values" else 0
            np.testing.assert_allclose(function(*given), want, rtol=rtol)
    assert "masked_reduction" in rules_of(output)


@pytest.mark.parametrize("size", [0, 1, 33])
def test_symbolic_sizes(size: int) -> None:
    inputs, output = segments(other=0.5, size=te.var("size"))
    built = build(inputs, output)
    for pattern in ("random", "one"):
        given = arrays(inputs, pattern, size)
        np.testing.assert_array_equal(built(*given), expected(inputs, output, given))


def test_symbolic_results() -> None:
    n, e = te.var("n"), te.reduce_axis((0, E), "e")
    d, v = te.placeholder((E,), "int32", "d"), te.placeholder((E,), name="v")
    like = te.placeholder((n,), name="like")
    output = te.compute(
        (n,), lambda i: te.max(te.if_then_else(mask(d(e), i), v[e], -1.0), axis=e), name="M"
    )
    given = [*arrays([d, v], "few"), np.zeros(9, "float32")]
    got = build([d, v, like], output)(*given)
    np.testing.assert_array_equal(got, expected([d, v, like], output, given))


def test_a_result_that_wraps() -> None:
    """``uint8(n)`` is one number for two results: each element belongs to both."""
    inputs, output = segments(index="uint8", holds=lambda d, e, n: mask(d(e), n.astype("uint8")))
    given = arrays(inputs, "random")
    given[0] %= 9
    np.testing.assert_array_equal(build(inputs, output)(*given), expected(inputs, output, given))
    assert (expected(inputs, output, given)[256:] > -1e9).any()


#: what keeps the loops over all pairs
DENSE = {
    "few results": lambda n, d, v, e: te.if_then_else(mask(d(e), n), v[e], -1e9),
    "others that differ": lambda n, d, v, e: te.if_then_else(mask(d(e), n), v[e], v[e] - 9.0),
    "no data": lambda n, d, v, e: te.if_then_else(mask(e.var, n), v[e], -1e9),
    "one of several": lambda n, d, v, e: te.if_then_else(
        te.any(mask(d(e), n), mask(d(e), n + 1)), v[e], -1e9
    ),
    "sums": None,
}


@pytest.mark.parametrize("name", DENSE)
def test_dense(name: str) -> None:
    body = DENSE[name]
    if body is None:
        inputs, output = segments(te.sum, 1.0)
    else:
        d, v = te.placeholder((E,), "int32", "d"), te.placeholder((E,), name="v")
        e = te.reduce_axis((0, E), "e")
        count = 4 if name == "few results" else N
        output = te.compute((count,), lambda n: te.max(body(n, d, v, e), axis=e), name="M")
        inputs = [d, v]
    assert "masked_reduction" not in rules_of(output)
    given = arrays(inputs, "few")
    np.testing.assert_array_equal(build(inputs, output)(*given), expected(inputs, output, given))
