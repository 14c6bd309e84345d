"""A residual network in te, for benchmarks and tests.

It has strided convolutions, batch normalisation written out, relu, pooling, a dense layer and a
loss. The images are small because the benchmark measures differentiation, not the kernels.
"""

from __future__ import annotations

from typing import Any

from tvm import te, topi

BATCH, CLASSES = 2, 10


class Network:
    """Builds layers and collects their weights."""

    def __init__(self) -> None:
        self.weights: list[Any] = []

    def weight(self, name: str, *shape: int) -> Any:
        """A new weight."""
        self.weights.append(te.placeholder(shape, name=f"{name}{len(self.weights)}"))
        return self.weights[-1]

    def convolution(self, x: Any, channels: int, kernel: int, stride: int) -> Any:
        """A normalised convolution whose padding keeps the size, up to the stride."""
        kernels = self.weight("kernel", channels, int(x.shape[1]), kernel, kernel)
        return self.normalisation(topi.nn.conv2d(x, kernels, stride, kernel // 2, 1))

    def normalisation(self, x: Any) -> Any:
        """``(x - mean) / sqrt(variance + ε) · scale + shift`` with the statistics of the batch."""
        batch, channels, height, width = (int(extent) for extent in x.shape)
        scale, shift = self.weight("scale", channels), self.weight("shift", channels)
        count = float(batch * height * width)
        mean = topi.divide(topi.sum(x, axis=(0, 2, 3)), count)
        centred = te.compute(x.shape, lambda n, c, i, j: x[n, c, i, j] - mean[c], name="centred")
        variance = topi.divide(topi.sum(topi.multiply(centred, centred), axis=(0, 2, 3)), count)
        return te.compute(
            x.shape,
            lambda n, c, i, j: (
                centred[n, c, i, j] * te.rsqrt(variance[c] + 1e-5) * scale[c] + shift[c]
            ),
            name="normalised",
        )

    def block(self, x: Any, channels: int, stride: int) -> Any:
        """relu(two convolutions + shortcut); the shortcut is a convolution where shapes differ."""
        inner = topi.nn.relu(self.convolution(x, channels, 3, stride))
        inner = self.convolution(inner, channels, 3, 1)
        same = stride == 1 and int(x.shape[1]) == channels
        return topi.nn.relu(
            topi.add(inner, x if same else self.convolution(x, channels, 1, stride))
        )


def residual_network(layers: int, size: int = 16) -> tuple[Any, list[Any]]:
    """The loss of a residual network and its weights.

    Parameters
    ----------
    layers : int
        Convolutions on the longest path plus the dense layer: even, at least 8.
    size : int
        Height and width of the images.
    """
    blocks = (layers - 2) // 2
    network = Network()
    x = te.placeholder((BATCH, 3, size, size), name="images")
    x = topi.nn.relu(network.convolution(x, 8, 3, 1))
    x = topi.nn.pool2d(x, [2, 2], [2, 2], [1, 1], [0, 0, 0, 0], "max")
    for group, channels in enumerate((8, 12, 16)):
        first, last = blocks * group // 3, blocks * (group + 1) // 3
        for number in range(first, last):
            x = network.block(x, channels, 2 if group and number == first else 1)
    x = topi.nn.flatten(topi.nn.global_pool(x, "avg"))
    x = topi.nn.dense(x, network.weight("dense", CLASSES, int(x.shape[1])))
    scores = topi.nn.log_softmax(x)
    labels = te.placeholder((BATCH, CLASSES), name="labels")
    n, c = te.reduce_axis((0, BATCH), "n"), te.reduce_axis((0, CLASSES), "c")
    loss = te.compute((), lambda: te.sum(-scores[n, c] * labels[n, c], axis=[n, c]), name="loss")
    return loss, network.weights
