"""Cases of whole networks: the one of the RFC's notebook, and a training step of LeNet."""

from __future__ import annotations

from tvm import te, topi

from .case import Case, Entry, Input
from .losses import jax_cross_entropy, te_cross_entropy, torch_cross_entropy


def _te_convolution(x, w, b, padding):
    product = topi.nn.conv2d_nchw(x, w, 1, padding, 1)
    return te.compute(
        product.shape, lambda n, f, i, j: te.max(product[n, f, i, j] + b[f], 0.0), name="convolved"
    )


def _te_max_pool(x):
    return topi.nn.pool2d(x, [2, 2], [2, 2], [1, 1], [0] * 4, "max")


def _te_dense(x, w, b):
    return topi.nn.relu(topi.nn.dense(x, w, b))


def _jax_convolution(jax, x, w, b, padding):
    product = jax.lax.conv_general_dilated(x, w, (1, 1), [(padding, padding)] * 2)
    return jax.nn.relu(product + b[:, None, None])


def _jax_max_pool(x):
    n, c, height, width = x.shape
    return x.reshape(n, c, height // 2, 2, width // 2, 2).max((3, 5))


def _parameters(*shapes: tuple[int, ...]) -> dict[str, Input]:
    """A weight for each shape, its first dimension that of the outputs, and a bias."""
    result = {}
    for number, shape in enumerate(shapes, 1):
        fan_in = 1
        for extent in shape[1:]:
            fan_in *= extent
        result[f"w{number}"] = Input(shape, fan_in**-0.5)
        result[f"b{number}"] = Input(shape[:1], 0.1)
    return result


def rfc_network(batch: int, size: int, first: int, second: int, hidden: int) -> Case:
    """Two convolutions, max pool, two dense layers, cross entropy: the loss and all gradients."""
    pooled = (size - 4) // 2

    def ours(x, labels, w1, b1, w2, b2, w3, b3, w4, b4):
        x = _te_convolution(_te_convolution(x, w1, b1, 0), w2, b2, 0)
        x = _te_dense(topi.nn.flatten(_te_max_pool(x)), w3, b3)
        return te_cross_entropy(topi.nn.dense(x, w4, b4), labels)

    def in_torch(torch, x, labels, w1, b1, w2, b2, w3, b3, w4, b4):
        functional = torch.nn.functional
        x = torch.relu(functional.conv2d(x, w1, b1))
        x = torch.relu(functional.conv2d(x, w2, b2))
        x = functional.max_pool2d(x, 2).flatten(1)
        x = torch.relu(functional.linear(x, w3, b3))
        return torch_cross_entropy(torch, functional.linear(x, w4, b4), labels)

    def in_jax(jax, x, labels, w1, b1, w2, b2, w3, b3, w4, b4):
        x = _jax_convolution(jax, _jax_convolution(jax, x, w1, b1, 0), w2, b2, 0)
        x = jax.nn.relu(_jax_max_pool(x).reshape(batch, -1) @ w3.T + b3)
        return jax_cross_entropy(jax, x @ w4.T + b4, labels)

    parameters = _parameters(
        (first, 1, 3, 3), (second, first, 3, 3), (hidden, second * pooled * pooled), (10, hidden)
    )
    inside = (size - 4) ** 2
    multiplications = (
        2 * first * 9 * (size - 2) ** 2
        + 3 * second * first * 9 * inside
        + 3 * hidden * second * pooled * pooled
        + 30 * hidden
    )
    return Case(
        inputs={
            "x": Input((batch, 1, size, size)),
            "labels": Input((batch,), below=10),
            **parameters,
        },
        wrt=tuple(parameters),
        te=ours,
        torch=in_torch,
        jax=in_jax,
        flop=2 * batch * multiplications,
    )


def lenet_step(batch: int, size: int, channels: int, wide: int, hidden: int, last: int) -> Case:
    """LeNet-5 with relu and max pools: forward, backward and new parameters."""
    half = size // 2
    quarter = (half - 4) // 2

    def ours(x, labels, w1, b1, w2, b2, w3, b3, w4, b4, w5, b5):
        x = _te_max_pool(_te_convolution(x, w1, b1, 2))
        x = _te_max_pool(_te_convolution(x, w2, b2, 0))
        x = _te_dense(_te_dense(topi.nn.flatten(x), w3, b3), w4, b4)
        return te_cross_entropy(topi.nn.dense(x, w5, b5), labels)

    def in_torch(torch, x, labels, w1, b1, w2, b2, w3, b3, w4, b4, w5, b5):
        functional = torch.nn.functional
        x = functional.max_pool2d(torch.relu(functional.conv2d(x, w1, b1, padding=2)), 2)
        x = functional.max_pool2d(torch.relu(functional.conv2d(x, w2, b2)), 2).flatten(1)
        x = torch.relu(functional.linear(x, w3, b3))
        x = torch.relu(functional.linear(x, w4, b4))
        return torch_cross_entropy(torch, functional.linear(x, w5, b5), labels)

    def in_jax(jax, x, labels, w1, b1, w2, b2, w3, b3, w4, b4, w5, b5):
        x = _jax_max_pool(_jax_convolution(jax, x, w1, b1, 2))
        x = _jax_max_pool(_jax_convolution(jax, x, w2, b2, 0)).reshape(batch, -1)
        x = jax.nn.relu(jax.nn.relu(x @ w3.T + b3) @ w4.T + b4)
        return jax_cross_entropy(jax, x @ w5.T + b5, labels)

    features = wide * quarter * quarter
    parameters = _parameters(
        (channels, 1, 5, 5),
        (wide, channels, 5, 5),
        (hidden, features),
        (last, hidden),
        (10, last),
    )
    multiplications = (
        2 * channels * 25 * size * size
        + 3 * wide * channels * 25 * (half - 4) ** 2
        + 3 * (hidden * features + last * hidden + 10 * last)
    )
    return Case(
        inputs={
            "x": Input((batch, 1, size, size)),
            "labels": Input((batch,), below=10),
            **parameters,
        },
        wrt=tuple(parameters),
        derivative="step",
        te=ours,
        torch=in_torch,
        jax=in_jax,
        flop=2 * batch * multiplications,
    )


ENTRIES = [
    Entry(
        "rfc-network",
        "the RFC's network, batch 32 of 28x28",
        rfc_network,
        {"batch": 32, "size": 28, "first": 32, "second": 64, "hidden": 128},
        {"batch": 3, "size": 12, "first": 3, "second": 5, "hidden": 7},
    ),
    Entry(
        "lenet-step",
        "LeNet training step, batch 64 of 28x28",
        lenet_step,
        {"batch": 64, "size": 28, "channels": 6, "wide": 16, "hidden": 120, "last": 84},
        {"batch": 3, "size": 16, "channels": 3, "wide": 5, "hidden": 11, "last": 7},
    ),
]
