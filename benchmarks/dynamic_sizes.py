"""Constant sizes against a symbolic one: ``python benchmarks/dynamic_sizes.py [name ...]``.

Each program computes outputs and their gradients, and has one size that is symbolic: it is built
once for all values, and once for each value as a constant. A figure is the time of the constant
build over the time of the symbolic one, so 1 is the aim and 0.5 is half as fast. Both are called in
turns in one process, with results in arrays of the caller, and the median of a call counts.
``--profile`` adds the kernels of both builds at one size.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import te, topi

import tvm_autodiff as ad

SIZES = (1, 7, 64, 512)
SECONDS = 0.15  #: of calls for each program and size

#: inputs and outputs of a program for a size
Program = tuple[list[Any], list[Any]]


def with_gradients(output: Any, inputs: list[Any], wanted: list[Any]) -> Program:
    """The output and its gradients with respect to some inputs, by a cotangent of the output."""
    head = te.placeholder(output.shape, name="head")
    return [*inputs, head], [output, *ad.differentiate(output, wanted, head)]


def mlp(n: Any) -> Program:
    """Two layers ``relu(x·w + b)`` over a batch of n rows."""
    x = te.placeholder((n, 256), name="x")
    weights = [te.placeholder(shape, name="w") for shape in ((256, 512), (512, 64))]
    biases = [te.placeholder((w.shape[1],), name="b") for w in weights]
    y = x
    for w, b in zip(weights, biases, strict=True):
        y = topi.nn.relu(topi.add(topi.matmul(y, w), b))
    return with_gradients(y, [x, *weights, *biases], [*weights, *biases])


def cnn(n: Any) -> Program:
    """Two padded 3x3 convolutions, each with bias and relu, and the mean over places, of n images.
    """
    x = te.placeholder((n, 3, 16, 16), name="x")
    weights = [te.placeholder(s, name="w") for s in ((16, 3, 3, 3), (32, 16, 3, 3))]
    biases = [te.placeholder((w.shape[0], 1, 1), name="b") for w in weights]
    y = x
    for w, b in zip(weights, biases, strict=True):
        y = topi.nn.relu(topi.add(topi.nn.conv2d_nchw(y, w, 1, 1, 1), b))
    y = topi.sum(y, axis=[2, 3]) * te.const(1 / 256, "float32")
    return with_gradients(y, [x, *weights, *biases], [*weights, *biases])


def layer_norm(n: Any) -> Program:
    """Rows of 256 normalised, scaled and shifted."""
    x = te.placeholder((n, 256), name="x")
    scale, shift = (te.placeholder((256,), name=name) for name in ("scale", "shift"))
    mean = topi.sum(x, axis=1, keepdims=True) * te.const(1 / 256, "float32")
    apart = topi.subtract(x, mean)
    variance = topi.sum(topi.multiply(apart, apart), axis=1, keepdims=True)
    deviation = topi.rsqrt(variance * te.const(1 / 256, "float32") + te.const(1e-5, "float32"))
    y = topi.add(topi.multiply(topi.multiply(apart, deviation), scale), shift)
    return with_gradients(y, [x, scale, shift], [x, scale, shift])


def softmax(n: Any) -> Program:
    """The softmax of n rows of 200."""
    x = te.placeholder((n, 200), name="x")
    return with_gradients(topi.nn.softmax(x), [x], [x])


def elementwise(n: Any) -> Program:
    """A chain of elementwise functions over rows of 300, and a product with each row's number."""
    x, w = te.placeholder((n, 300), name="x"), te.placeholder((n, 1), name="w")
    y = topi.multiply(topi.sigmoid(x), topi.tanh(topi.multiply(x, w)))
    return with_gradients(y, [x, w], [x, w])


def attention(n: Any) -> Program:
    """Attention of 8 heads over n tokens: the size is in both products and in the rows between."""
    q, k, v = (te.placeholder((8, n, 32), name=name) for name in "qkv")
    scores = topi.nn.batch_matmul(q, k, transpose_b=True)
    p = topi.nn.softmax(scores * te.const(32**-0.5, "float32"))
    y = topi.nn.batch_matmul(p, v, transpose_b=False)
    return with_gradients(y, [q, k, v], [q, k, v])


def window(n: Any) -> Program:
    """A causal window of 9 steps over n + 8 steps of 32 channels: the last axis is symbolic."""
    x, w = te.placeholder((32, n + 8), name="x"), te.placeholder((32, 9), name="w")
    r = te.reduce_axis((0, 9), "r")
    y = te.compute((32, n), lambda c, t: te.sum(x[c, t + r] * w[c, r], axis=r), name="y")
    return with_gradients(y, [x, w], [x, w])


def embedding(n: Any) -> Program:
    """Rows of a table at n places that are data, times a matrix; the gradient scatters."""
    table, places = te.placeholder((500, 64), name="table"), te.placeholder((n,), "int32", "places")
    w = te.placeholder((64, 64), name="w")
    rows = te.compute((n, 64), lambda i, j: table[places[i], j], name="rows")
    return with_gradients(topi.matmul(rows, w), [table, places, w], [table, w])


def recurrent(n: Any) -> Program:
    """A recurrent cell with 48 units over 24 steps of 32 inputs, of n sequences."""
    xs, h0 = te.placeholder((24, n, 32), name="xs"), te.placeholder((n, 48), name="h0")
    w, u = te.placeholder((32, 48), name="w"), te.placeholder((48, 48), name="u")

    def cell(h: Any, x: Any) -> tuple[Any, None]:
        return topi.tanh(topi.add(topi.matmul(x, w), topi.matmul(h, u))), None

    last, _ = ad.scan(cell, h0, xs)
    return with_gradients(last, [xs, h0, w, u], [xs, h0, w, u])


def long_norm(n: Any) -> Program:
    """Layer norm of 128 rows of n + 1 numbers: the size is the axis of the sums."""
    rows, columns = 128, n + 1
    x = te.placeholder((rows, columns), name="x")
    scale, shift = (te.placeholder((columns,), name=name) for name in ("scale", "shift"))
    count = te.compute((), lambda: te.const(1, "float32") / (columns * te.const(1, "float32")))
    mean = topi.multiply(topi.sum(x, axis=1, keepdims=True), count)
    apart = topi.subtract(x, mean)
    variance = topi.multiply(topi.sum(topi.multiply(apart, apart), axis=1, keepdims=True), count)
    deviation = topi.rsqrt(variance + te.const(1e-5, "float32"))
    y = topi.add(topi.multiply(topi.multiply(apart, deviation), scale), shift)
    return with_gradients(y, [x, scale, shift], [x, scale, shift])


def long_softmax(n: Any) -> Program:
    """The softmax of 64 rows of n."""
    x = te.placeholder((64, n), name="x")
    return with_gradients(topi.nn.softmax(x), [x], [x])


def cross_entropy(n: Any) -> Program:
    """The mean cross entropy of 64 rows of n classes, of a target distribution."""
    x, target = te.placeholder((64, n), name="x"), te.placeholder((64, n), name="target")
    chosen = topi.multiply(topi.nn.log_softmax(x), target)
    loss = topi.sum(chosen, axis=[0, 1]) * te.const(-1 / 64, "float32")
    return [x, target], [loss, *ad.differentiate(loss, [x])]


def column_sums(n: Any) -> Program:
    """Sums and largest values of 256 numbers in each of n columns."""
    x = te.placeholder((256, n), name="x")
    return [x], [topi.sum(x, axis=0), topi.max(x, axis=0)]


def row_sums(n: Any) -> Program:
    """Sums and largest values of n numbers in each of 100 rows."""
    x = te.placeholder((100, n), name="x")
    return [x], [topi.sum(x, axis=1), topi.max(x, axis=1)]


def conv1d(n: Any) -> Program:
    """A padded convolution of 32 to 32 channels over n steps, with bias and relu."""
    x, w = te.placeholder((4, 32, n), name="x"), te.placeholder((32, 32, 5), name="w")
    b = te.placeholder((32, 1), name="b")
    y = topi.nn.relu(topi.add(topi.nn.conv1d_ncw(x, w, 1, "SAME", 1), b))
    return with_gradients(y, [x, w, b], [x, w, b])


def pool(n: Any) -> Program:
    """The largest of each 3 neighbours of n + 2 steps, of 4 by 32 channels."""
    x = te.placeholder((4, 32, n + 2), name="x")
    r = te.reduce_axis((0, 3), "r")
    y = te.compute((4, 32, n), lambda b, c, t: te.max(x[b, c, t + r], axis=r), name="y")
    return with_gradients(y, [x], [x])


def columns(n: Any) -> Program:
    """A product of 128 by 256 weights with n columns."""
    w, x = te.placeholder((128, 256), name="w"), te.placeholder((256, n), name="x")
    return with_gradients(topi.matmul(w, x), [w, x], [w, x])


def distances(n: Any) -> Program:
    """Squared distances of n points of 16 numbers to 100 others, and the least of each."""
    x, y = te.placeholder((n, 16), name="x"), te.placeholder((100, 16), name="y")
    k = te.reduce_axis((0, 16), "k")

    def squared(i: Any, j: Any) -> Any:
        return te.sum((x[i, k] - y[j, k]) * (x[i, k] - y[j, k]), axis=k)

    d = te.compute((n, 100), squared, name="d")
    return with_gradients(d, [x, y], [x, y])


PROGRAMS: dict[str, Callable[[Any], Program]] = {
    made.__name__: made
    for made in (
        *(mlp, cnn, layer_norm, softmax, elementwise, attention, window, embedding),
        *(recurrent, long_norm, long_softmax, cross_entropy, column_sums, row_sums),
        *(conv1d, pool, columns, distances),
    )
}


def arrays_for(tensors: Sequence[Any]) -> list[np.ndarray]:
    """Random arrays for the tensors of constant shape."""
    rng = np.random.default_rng(0)
    found = []
    for tensor in tensors:
        shape = [int(extent) for extent in tensor.shape]
        if tensor.dtype == "int32":
            found.append(rng.integers(0, 500, shape, dtype="int32"))
        else:
            found.append(rng.standard_normal(shape).astype(str(tensor.dtype)))
    return found


def compared(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """The median seconds of a call of each, called in turns."""
    begin = time.perf_counter()
    for call in calls:
        call()
    rounds = max(5, min(2000, int(SECONDS / max(1e-6, time.perf_counter() - begin))))
    times: list[list[float]] = [[] for _ in calls]
    gc.disable()
    for _ in range(rounds):
        for call, seconds in zip(calls, times, strict=True):
            begin = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begin)
    gc.enable()
    return [statistics.median(seconds) for seconds in times]


def figures(name: str, threads: int | None, profile: int | None) -> list[tuple[float, float]]:
    """Seconds of the constant and of the symbolic build for each size."""
    symbolic = ad.build(*PROGRAMS[name](te.var("n")), num_threads=threads, cache=False)
    found = []
    for size in SIZES if profile is None else (profile,):
        inputs, outputs = PROGRAMS[name](size)
        constant = ad.build(inputs, outputs, num_threads=threads, cache=False)
        arrays = arrays_for(inputs)
        results = [[np.empty_like(a) for a in constant(*arrays)] for _ in range(2)]

        def call(function: Any, out: Any, arrays: Any = arrays) -> Callable[[], Any]:
            return lambda: function(*arrays, out=out)

        found.append(compared([call(constant, results[0]), call(symbolic, results[1])]))
        for one, other in zip(*results, strict=True):
            # of sums that cancel, what rounding leaves is a part of the largest ones
            rounding = np.finfo("float32").eps * np.abs(one).max()
            np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3 + 4 * rounding)
        if profile is not None:
            print(constant.profile(*arrays), symbolic.profile(*arrays), sep="\n")
    return [(one, other) for one, other in found]


def geometric_mean(values: Sequence[float]) -> float:
    """``(Π values)^(1/count)``."""
    return math.exp(statistics.fmean(map(math.log, values)))


def main() -> None:
    """Print a line for each program and size, and geometric means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PROGRAMS)}; all if none is given")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--profile", type=int, metavar="SIZE")
    options = parser.parse_args()
    with open("/proc/cpuinfo", encoding="utf8") as info:
        print(next((line.split(":")[1].strip() for line in info if "model name" in line), "?"))
    print(f"{'':12}" + "".join(f"{f'n = {size}':>24}" for size in SIZES) + "    mean")
    every: list[float] = []
    for name in options.names or PROGRAMS:
        found = figures(name, options.threads, options.profile)
        ratios = [constant / symbolic for constant, symbolic in found]
        every += ratios
        cells = "".join(
            f"{f'{one * 1e6:.0f} / {other * 1e6:.0f} µs':>18}{one / other:6.2f}"
            for one, other in found
        )
        print(f"{name:12}{cells}{geometric_mean(ratios):8.2f}", flush=True)
    print(f"geometric mean of constant over symbolic time: {geometric_mean(every):.2f}")


if __name__ == "__main__":
    main()
