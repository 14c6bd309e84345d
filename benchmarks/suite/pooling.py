"""Cases of pooling: maxima over windows that meet, maxima over windows that overlap, averages."""

from __future__ import annotations

import functools

from tvm import topi

from .case import Case, Entry, Input


def max_pool(batch: int, channels: int, size: int, window: int, stride: int, padding: int) -> Case:
    """The gradient of a maximum over square windows."""
    out = (size + 2 * padding - window) // stride + 1

    def in_jax(jax, x):
        # slices are up to ten times as fast on a CPU as reduce_window and its gradient
        borders = ((0, 0), (0, 0), (padding, padding), (padding, padding))
        padded = jax.numpy.pad(x, borders, constant_values=-jax.numpy.inf)
        last = (out - 1) * stride + 1
        parts = [
            padded[:, :, row : row + last : stride, column : column + last : stride]
            for row in range(window)
            for column in range(window)
        ]
        return functools.reduce(jax.numpy.maximum, parts)

    return Case(
        inputs={"x": Input((batch, channels, size, size))},
        wrt=("x",),
        head=Input((batch, channels, out, out)),
        derivative="pullback",
        te=lambda x: topi.nn.pool2d(
            x, [window] * 2, [stride] * 2, [1, 1], [padding] * 4, "max", ceil_mode=False
        ),
        torch=lambda torch, x: torch.nn.functional.max_pool2d(x, window, stride, padding),
        jax=in_jax,
        channels_last=True,
    )


def average_pool_dense(batch: int, channels: int, size: int, out: int) -> Case:
    """Averages over 2x2 windows, flattened, into a dense layer: both gradients."""
    half = size // 2
    features = channels * half * half

    def ours(x, w):
        pooled = topi.nn.pool2d(x, [2, 2], [2, 2], [1, 1], [0] * 4, "avg")
        return topi.nn.dense(topi.nn.flatten(pooled), w)

    def in_torch(torch, x, w):
        functional = torch.nn.functional
        return functional.linear(functional.avg_pool2d(x, 2).flatten(1), w)

    def in_jax(jax, x, w):
        pooled = x.reshape(batch, channels, half, 2, half, 2).mean((3, 5))
        return pooled.reshape(batch, features) @ w.T

    return Case(
        inputs={
            "x": Input((batch, channels, size, size)),
            "w": Input((out, features), features**-0.5),
        },
        wrt=("x", "w"),
        head=Input((batch, out)),
        derivative="pullback",
        te=ours,
        torch=in_torch,
        jax=in_jax,
        flop=4 * batch * features * out,
    )


_FULL = {"batch": 16, "channels": 32, "size": 56}
_SMALL = {"batch": 2, "channels": 3, "size": 10}

ENTRIES = [
    Entry(
        "max-pool-2x2",
        "max pool 2x2/2 on 16x32x56x56",
        max_pool,
        {**_FULL, "window": 2, "stride": 2, "padding": 0},
        {**_SMALL, "window": 2, "stride": 2, "padding": 0},
        "copy",
    ),
    Entry(
        "max-pool-3x3",
        "max pool 3x3/2 padded on 16x32x56x56",
        max_pool,
        {**_FULL, "window": 3, "stride": 2, "padding": 1},
        {**_SMALL, "window": 3, "stride": 2, "padding": 1},
        "copy",
    ),
    Entry(
        "average-pool-dense",
        "average pool 2x2, flatten, dense: 64x32x14x14 to 128",
        average_pool_dense,
        {"batch": 64, "channels": 32, "size": 14, "out": 128},
        {"batch": 3, "channels": 5, "size": 6, "out": 7},
    ),
]
