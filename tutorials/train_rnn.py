"""Train a recurrent network.

A gated recurrent unit (K. Cho et al., 2014) reads an image of a handwritten digit row by row, eight
pixels at a time, and predicts the digit after the last row. The recurrence is a `scan`: its step is
written once, and the gradient runs the loop backwards. Run it with
``python tutorials/train_rnn.py``. The data and the training loop are those of `train_digits.py`,
which needs the extra ``demo``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm
from train_digits import (
    CLASSES,
    PIXELS,
    Digits,
    batches,
    count_hits,
    cross_entropy,
    load_data,
    momentum_updates,
)
from tvm import te, topi

import tvm_autodiff as ad

HIDDEN = 64

# The weights: name → shape. The three gates (update, reset, candidate) share each tensor.
SHAPES = {
    "w": (PIXELS, 3 * HIDDEN),
    "u": (HIDDEN, 3 * HIDDEN),
    "b": (3 * HIDDEN,),
    "w_out": (CLASSES, HIDDEN),
    "b_out": (CLASSES,),
}


# 1. The model ------------------------------------------------------------------------------------


def network(images: te.Tensor, weights: Sequence[te.Tensor]) -> te.Tensor:
    """A score for each digit: images [n, 1, 8, 8] → scores [n, 10]."""
    w, u, b, w_out, b_out = weights
    batch = images.shape[0]
    rows = te.compute((PIXELS, batch, PIXELS), lambda t, n, x: images[n, 0, t, x], name="rows")
    start = te.compute((batch, HIDDEN), lambda n, j: te.const(0.0, "float32"), name="start")

    def step(state: te.Tensor, row: te.Tensor) -> tuple[te.Tensor, None]:
        # `row @ w` does not depend on the state: `build` makes it one product before the loop
        given, kept = topi.nn.matmul(row, w), topi.nn.matmul(state, u)

        def new(n: Any, j: Any) -> Any:
            update = te.sigmoid(given[n, j] + kept[n, j] + b[j])
            k, m = j + HIDDEN, j + 2 * HIDDEN
            reset = te.sigmoid(given[n, k] + kept[n, k] + b[k])
            candidate = te.tanh(given[n, m] + reset * kept[n, m] + b[m])
            return (1.0 - update) * candidate + update * state[n, j]

        return te.compute((batch, HIDDEN), new, name="state"), None

    state, _ = ad.scan(step, start, rows)
    return topi.nn.dense(state, w_out, b_out)


# 2. The gradient, and the step -------------------------------------------------------------------


def make_step(batch: int, momentum: float = 0.9) -> Any:
    """Compile ``step(images, labels, rate, *weights, *velocities)`` → ``[loss, hits]``, which
    overwrites the weights and velocities with the new ones.
    """
    images = te.placeholder((batch, 1, PIXELS, PIXELS), name="images")
    labels = te.placeholder((batch,), "int32", name="labels")
    rate = te.placeholder((), name="rate")
    weights = [te.placeholder(shape, name=name) for name, shape in SHAPES.items()]
    velocities = [te.placeholder(shape, name=f"v{name}") for name, shape in SHAPES.items()]

    scores = network(images, weights)
    loss = cross_entropy(scores, labels)
    gradients = ad.differentiate(loss, weights)

    return ad.build(
        [images, labels, rate, *weights, *velocities],
        [loss, count_hits(scores, labels)],
        updates=momentum_updates(weights, velocities, gradients, rate, momentum),
    )


def make_scores(count: int) -> Any:
    """Compile ``scores(images, *weights)``."""
    images = te.placeholder((count, 1, PIXELS, PIXELS), name="images")
    weights = [te.placeholder(shape, name=name) for name, shape in SHAPES.items()]
    return ad.build([images, *weights], network(images, weights))


# 3. The loop -------------------------------------------------------------------------------------


def start_weights(seed: int) -> list[np.ndarray]:
    """Normal weights of variance one over the number of inputs; biases are zero."""
    rng = np.random.default_rng(seed)
    scales = {"w": PIXELS, "u": HIDDEN, "w_out": HIDDEN}
    return [
        rng.normal(0, scales[name] ** -0.5, shape).astype("float32")
        if name in scales
        else np.zeros(shape, "float32")
        for name, shape in SHAPES.items()
    ]


def train(digits: Digits, *, epochs: int, batch: int, rate: float, seed: int) -> list[np.ndarray]:
    """The trained weights; the learning rate decreases linearly to zero."""
    step = make_step(batch)
    weights = start_weights(seed)
    velocities = [np.zeros_like(weight) for weight in weights]
    total, done = epochs * (len(digits.train_labels) // batch), 0
    with tqdm(total=total, unit="step", mininterval=0.5) as bar:
        for epoch in range(epochs):
            right = seen = 0
            for images, labels in batches(digits, batch, seed=seed + epoch):
                now = rate * (1 - done / total)
                loss, hits = step(images, labels, now, *weights, *velocities)
                right, seen, done = right + int(hits), seen + batch, done + 1
                bar.update()
            bar.set_postfix_str(f"loss {float(loss):.4f}, accuracy {right / seen:.2%}")
    return weights


def main() -> None:
    """Train, and print the test accuracy."""
    parser = argparse.ArgumentParser(description="Train a GRU on digits, read row by row.")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training images")
    parser.add_argument("--batch", type=int, default=32, help="images in a step")
    parser.add_argument("--rate", type=float, default=0.1, help="learning rate at the start")
    parser.add_argument("--seed", type=int, default=0, help="of the split, the weights, the order")
    options = parser.parse_args()
    digits = load_data(options.seed)
    print(f"{len(digits.train_labels)} images to learn from, {len(digits.test_labels)} to test on")
    begin = time.perf_counter()
    weights = train(
        digits, epochs=options.epochs, batch=options.batch, rate=options.rate, seed=options.seed
    )
    print(f"{time.perf_counter() - begin:.1f} s with compilation")
    scores = make_scores(len(digits.test_labels))(digits.test_images, *weights)
    right = float(np.mean(scores.argmax(axis=1) == digits.test_labels))
    print(f"Test accuracy: {right:.1%}")


if __name__ == "__main__":
    main()
