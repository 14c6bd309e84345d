"""Cases of dense layers: a matrix product, a perceptron, an embedding into a dense layer."""

from __future__ import annotations

from dataclasses import replace

from tvm import te, topi

from .case import Case, Entry, Input
from .losses import jax_cross_entropy, te_cross_entropy, torch_cross_entropy


def matmul(n: int) -> Case:
    """Both gradients of a square product."""
    return Case(
        inputs={"a": Input((n, n)), "b": Input((n, n))},
        wrt=("a", "b"),
        head=Input((n, n)),
        derivative="pullback",
        te=topi.matmul,
        torch=lambda torch, a, b: a @ b,
        jax=lambda jax, a, b: a @ b,
        eager=lambda torch, a, b, head: (head @ b.T, a.T @ head),
        flop=4 * n**3,
    )


def mlp(batch: int, features: int, hidden: int, classes: int) -> Case:
    """A perceptron with one hidden layer, relu and cross entropy: the loss and four gradients."""

    def ours(x, labels, w1, b1, w2, b2):
        return te_cross_entropy(
            topi.nn.dense(topi.nn.relu(topi.nn.dense(x, w1, b1)), w2, b2), labels
        )

    def in_torch(torch, x, labels, w1, b1, w2, b2):
        linear = torch.nn.functional.linear
        return torch_cross_entropy(torch, linear(torch.relu(linear(x, w1, b1)), w2, b2), labels)

    def in_jax(jax, x, labels, w1, b1, w2, b2):
        return jax_cross_entropy(jax, jax.nn.relu(x @ w1.T + b1) @ w2.T + b2, labels)

    return Case(
        inputs={
            "x": Input((batch, features)),
            "labels": Input((batch,), below=classes),
            "w1": Input((hidden, features), features**-0.5),
            "b1": Input((hidden,), 0.1),
            "w2": Input((classes, hidden), hidden**-0.5),
            "b2": Input((classes,), 0.1),
        },
        wrt=("w1", "b1", "w2", "b2"),
        te=ours,
        torch=in_torch,
        jax=in_jax,
        flop=2 * batch * (2 * features * hidden + 3 * hidden * classes),
    )


def mlp_hvp(batch: int, features: int, hidden: int, classes: int) -> Case:
    """The Hessian of the perceptron's loss times one direction for each weight."""
    once = mlp(batch, features, hidden, classes)
    return replace(once, derivative="hvp", flop=None)


def mlp_per_example(batch: int, features: int, hidden: int, classes: int) -> Case:
    """The gradients of a perceptron's loss for each example of a batch."""

    def ours(x, label, w1, b1, w2, b2):
        f, h = te.reduce_axis((0, features), "f"), te.reduce_axis((0, hidden), "h")
        inner = te.compute((hidden,), lambda j: te.sum(w1[j, f] * x[f], axis=f), name="inner")
        active = te.compute((hidden,), lambda j: te.tanh(inner[j] + b1[j]), name="active")
        outer = te.compute((classes,), lambda c: te.sum(w2[c, h] * active[h], axis=h), name="outer")
        scores = te.compute((1, classes), lambda n, c: outer[c] + b2[c], name="scores")
        return te_cross_entropy(scores, te.compute((1,), lambda n: label(), name="labels"))

    def in_torch(torch, x, label, w1, b1, w2, b2):
        scores = w2 @ torch.tanh(w1 @ x + b1) + b2
        return torch_cross_entropy(torch, scores[None], label[None])

    def in_jax(jax, x, label, w1, b1, w2, b2):
        scores = w2 @ jax.numpy.tanh(w1 @ x + b1) + b2
        return jax_cross_entropy(jax, scores[None], label[None])

    once = mlp(batch, features, hidden, classes)
    return replace(
        once,
        te=ours,
        torch=in_torch,
        jax=in_jax,
        derivative="per-example",
        examples=("x", "labels"),
        flop=None,
    )


def embedding(rows: int, width: int, count: int, out: int) -> Case:
    """Rows of a table by index, into a dense layer: the gradients of table and weight."""

    def ours(table, index, w):
        k = te.reduce_axis((0, width), "k")
        taken = te.compute((count, width), lambda n, j: table[index[n], j], name="taken")
        return te.compute(
            (count, out), lambda n, j: te.sum(taken[n, k] * w[j, k], axis=k), name="dense"
        )

    return Case(
        inputs={
            "table": Input((rows, width)),
            "index": Input((count,), below=rows),
            "w": Input((out, width), width**-0.5),
        },
        wrt=("table", "w"),
        head=Input((count, out)),
        derivative="pullback",
        te=ours,
        torch=lambda torch, table, index, w: torch.nn.functional.linear(
            torch.nn.functional.embedding(index, table), w
        ),
        jax=lambda jax, table, index, w: table[index] @ w.T,
        flop=4 * count * width * out,
    )


ENTRIES = [
    Entry("matmul", "matmul 512x512x512", matmul, {"n": 512}, {"n": 37}, "sgemm"),
    Entry(
        "mlp",
        "MLP 64x784-256-10, cross entropy",
        mlp,
        {"batch": 64, "features": 784, "hidden": 256, "classes": 10},
        {"batch": 7, "features": 29, "hidden": 19, "classes": 5},
    ),
    Entry(
        "mlp-hvp",
        "MLP 64x784-256-10, Hessian times a direction",
        mlp_hvp,
        {"batch": 64, "features": 784, "hidden": 256, "classes": 10},
        {"batch": 7, "features": 29, "hidden": 19, "classes": 5},
    ),
    Entry(
        "mlp-per-example",
        "MLP 32x784-64-10, gradients of each example",
        mlp_per_example,
        {"batch": 32, "features": 784, "hidden": 64, "classes": 10},
        {"batch": 7, "features": 29, "hidden": 19, "classes": 5},
    ),
    Entry(
        "embedding",
        "embedding 5000x64, 2048 indices, dense 128",
        embedding,
        {"rows": 5000, "width": 64, "count": 2048, "out": 128},
        {"rows": 53, "width": 11, "count": 67, "out": 13},
    ),
]
