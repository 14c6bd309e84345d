"""The cross entropy of scores [batch, classes] with integer labels, in each library."""

from __future__ import annotations

from typing import Any

from tvm import te, topi


def te_cross_entropy(scores: Any, labels: Any) -> Any:
    """The mean of -log(softmax(scores)[n, labels[n]]), of shape ()."""
    batch, classes = scores.shape
    logs = topi.nn.log_softmax(scores)
    n, k = te.reduce_axis((0, batch), "n"), te.reduce_axis((0, classes), "k")
    return te.compute(
        (),
        lambda: te.sum(te.if_then_else(labels[n] == k, -logs[n, k] / batch, 0.0), axis=[n, k]),
        name="loss",
    )


def torch_cross_entropy(torch: Any, scores: Any, labels: Any) -> Any:
    """The same in PyTorch."""
    return torch.nn.functional.cross_entropy(scores, labels)


def jax_cross_entropy(jax: Any, scores: Any, labels: Any) -> Any:
    """The same in JAX."""
    logs = jax.nn.log_softmax(scores)
    return -jax.numpy.take_along_axis(logs, labels[:, None], axis=1).mean()
