"""Train a network on handwritten digits.

A convolutional network in te and topi, its gradient from `differentiate`, and momentum SGD in te
are compiled into one function, the training step. Read the file from top to bottom. Run it with
``make demo``, or ``python tutorials/train_digits.py --help``. It needs the extra ``demo``
(scikit-learn, matplotlib, tqdm). If PyTorch is installed, it also measures a step of the same
network there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from step_time import print_step_time
from tqdm import tqdm
from tvm import te, topi

import tvm_autodiff as ad

CLASSES = 10
PIXELS = 8

# The weights: name → shape. A convolution's are [output channels, input channels, height, width].
SHAPES = {
    "w1": (16, 1, 3, 3),
    "b1": (16,),
    "w2": (32, 16, 3, 3),
    "b2": (32,),
    "w3": (64, 32 * 4 * 4),
    "b3": (64,),
    "w4": (CLASSES, 64),
    "b4": (CLASSES,),
}


# 1. The model ------------------------------------------------------------------------------------
#
# Tensor expressions are descriptions: `te.compute` defines one element of a tensor, and topi is
# TVM's library of such definitions. Nothing is computed until `build` has compiled them.


def placeholders(prefix: str = "") -> list[te.Tensor]:
    """One input tensor for each of the weights."""
    return [te.placeholder(shape, name=prefix + name) for name, shape in SHAPES.items()]


def convolution(images: te.Tensor, weight: te.Tensor, bias: te.Tensor) -> te.Tensor:
    """A 3x3 convolution that keeps height and width: [n, c, 8, 8] → [n, filters, 8, 8]."""
    product = topi.nn.conv2d(images, weight, strides=1, padding=1, dilation=1)
    return te.compute(
        product.shape, lambda n, f, y, x: product[n, f, y, x] + bias[f], name="convolved"
    )


def network(images: te.Tensor, weights: Sequence[te.Tensor]) -> te.Tensor:
    """A score for each digit: images [n, 1, 8, 8] → scores [n, 10]."""
    w1, b1, w2, b2, w3, b3, w4, b4 = weights
    hidden = topi.nn.relu(convolution(images, w1, b1))  # [n, 16, 8, 8]
    hidden = topi.nn.relu(convolution(hidden, w2, b2))  # [n, 32, 8, 8]
    hidden = topi.nn.pool2d(hidden, [2, 2], [2, 2], [1, 1], [0, 0, 0, 0], "max")  # [n, 32, 4, 4]
    hidden = topi.nn.flatten(hidden)  # [n, 512]
    hidden = topi.nn.relu(topi.nn.dense(hidden, w3, b3))  # [n, 64]
    return topi.nn.dense(hidden, w4, b4)  # [n, 10]


def cross_entropy(scores: te.Tensor, labels: te.Tensor) -> te.Tensor:
    """The mean of -log(probability of the right digit), a tensor of shape ()."""
    batch, _ = scores.shape
    logs = topi.nn.log_softmax(scores)
    n = te.reduce_axis((0, batch), "n")
    k = te.reduce_axis((0, CLASSES), "k")
    return te.compute(
        (),
        lambda: te.sum(te.if_then_else(labels[n] == k, -logs[n, k] / batch, 0.0), axis=[n, k]),
        name="loss",
    )


def count_hits(scores: te.Tensor, labels: te.Tensor) -> te.Tensor:
    """How many images have their highest score at the right digit, a tensor of shape ()."""
    guess = topi.argmax(scores, axis=1)
    n = te.reduce_axis((0, scores.shape[0]), "n")
    return te.compute(
        (), lambda: te.sum(te.if_then_else(guess[n] == labels[n], 1, 0), axis=n), name="hits"
    )


# 2. The gradient, and the step -------------------------------------------------------------------


def elementwise(rule: Callable[..., Any], *tensors: te.Tensor) -> te.Tensor:
    """A tensor whose elements are `rule` of the elements of some tensors of one shape."""
    first = tensors[0]
    return te.compute(
        first.shape,
        lambda *place: rule(*(tensor(*place) for tensor in tensors)),
        name=f"new_{first.op.name}",
    )


def momentum_updates(
    weights: Sequence[te.Tensor],
    velocities: Sequence[te.Tensor],
    gradients: Sequence[te.Tensor],
    rate: te.Tensor,
    momentum: float,
) -> dict[te.Tensor, te.Tensor]:
    """The new weights and velocities of momentum SGD."""
    new_velocities = [
        elementwise(lambda v, g: momentum * v + g, v, g)
        for v, g in zip(velocities, gradients, strict=True)
    ]
    new_weights = [
        elementwise(lambda w, v: w - rate() * v, w, v)
        for w, v in zip(weights, new_velocities, strict=True)
    ]
    return dict(zip([*weights, *velocities], [*new_weights, *new_velocities], strict=True))


def make_step(batch: int, momentum: float, num_threads: int | None = None) -> Any:
    """Compile one step of training: forward, backward and the new weights in a single function.

    ``step(images, labels, rate, *weights, *velocities)`` returns ``[loss, hits]`` and overwrites
    the weights and velocities with the new ones.
    """
    images = te.placeholder((batch, 1, PIXELS, PIXELS), name="images")
    labels = te.placeholder((batch,), "int32", name="labels")
    rate = te.placeholder((), name="rate")
    weights = placeholders()
    velocities = placeholders("v")

    scores = network(images, weights)
    loss = cross_entropy(scores, labels)

    # The gradients are tensor expressions as well, so the optimiser is written in te, too, and
    # everything is compiled together.
    gradients = ad.differentiate(loss, weights)

    return ad.build(
        [images, labels, rate, *weights, *velocities],
        [loss, count_hits(scores, labels)],
        # all expressions read the old values
        updates=momentum_updates(weights, velocities, gradients, rate, momentum),
        num_threads=num_threads,
    )


def make_predict(count: int) -> Any:
    """Compile ``predict(images, *weights)``: the probabilities [count, 10], by topi's softmax."""
    images = te.placeholder((count, 1, PIXELS, PIXELS), name="images")
    weights = placeholders()
    return ad.build([images, *weights], topi.nn.softmax(network(images, weights)))


def gradient_of_one_layer(batch: int = 32) -> str:
    """What `show` prints for the gradient of the second convolution alone.

    The gradient of the input, `dx`, is a sum over the 32 filters and the 3x3 elements of the
    kernel, with a guard at the border. The gradient of the weights, `dw2`, is a sum over the images
    of the batch and their 8x8 pixels. Neither sum has a term that is always zero.
    """
    inputs = te.placeholder((batch, 16, PIXELS, PIXELS), name="x")
    weight = te.placeholder(SHAPES["w2"], name="w2")
    output = topi.nn.conv2d(inputs, weight, strides=1, padding=1, dilation=1)
    head = te.placeholder(output.shape, name="head")  # the cotangent of the output
    return ad.show(list(ad.differentiate(output, [inputs, weight], head)))


# 3. The data -------------------------------------------------------------------------------------


@dataclass
class Digits:
    """Images float32 [n, 1, 8, 8] in 0 to 1 and labels int32 [n], in two parts."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load_data(seed: int) -> Digits:
    """The 1,797 handwritten digits that scikit-learn ships, 80 % to learn and 20 % to test."""
    digits = load_digits()
    images = np.asarray(digits.images / 16, "float32")[:, None]
    labels = np.asarray(digits.target, "int32")
    order = np.random.default_rng(seed).permutation(len(labels))
    train, test = np.split(order, [len(labels) * 8 // 10])
    return Digits(images[train], labels[train], images[test], labels[test])


def start_weights(seed: int) -> list[np.ndarray]:
    """Normal weights that keep the size of signals (He et al. 2015), and small biases."""
    rng = np.random.default_rng(seed)
    weights = []
    for shape in SHAPES.values():
        inputs = int(np.prod(shape[1:]))
        scale = np.sqrt(2 / inputs) if len(shape) > 1 else 0.01
        weights.append(rng.normal(0, scale, shape).astype("float32"))
    return weights


def batches(digits: Digits, batch: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """One epoch: full batches in random order."""
    order = np.random.default_rng(seed).permutation(len(digits.train_labels))
    for start in range(0, len(order) - batch + 1, batch):
        chosen = order[start : start + batch]
        yield digits.train_images[chosen], digits.train_labels[chosen]


# 4. The loop -------------------------------------------------------------------------------------


@dataclass
class History:
    """Results of a training run: curves, the last weights, probabilities of the test images."""

    losses: list[float] = field(default_factory=list)  # one a step
    train_accuracy: list[float] = field(default_factory=list)  # one an epoch
    test_accuracy: list[float] = field(default_factory=list)  # one an epoch
    weights: list[np.ndarray] = field(default_factory=list)
    probabilities: np.ndarray = field(default_factory=lambda: np.zeros((0, CLASSES)))


def train(
    step: Any,
    predict: Any,
    digits: Digits,
    *,
    epochs: int,
    batch: int,
    rate: float,
    seed: int,
    progress: bool = True,
) -> History:
    """Train from random weights; the learning rate decreases linearly to zero."""
    history = History()
    state = start_weights(seed)
    state += [np.zeros_like(weight) for weight in state]

    total = epochs * (len(digits.train_labels) // batch)
    with tqdm(total=total, unit="step", disable=not progress, mininterval=0.5) as bar:
        for epoch in range(epochs):
            right = seen = 0
            for images, labels in batches(digits, batch, seed=seed + epoch):
                now = rate * (1 - len(history.losses) / total)
                loss, hits = step(images, labels, now, *state)
                right, seen = right + int(hits), seen + batch
                history.losses.append(float(loss))
                bar.update()
            history.weights = state[: len(SHAPES)]
            history.probabilities = predict(digits.test_images, *history.weights)
            guess = history.probabilities.argmax(axis=1)
            history.train_accuracy.append(right / seen)
            history.test_accuracy.append(float(np.mean(guess == digits.test_labels)))
            bar.set_postfix_str(
                f"loss {history.losses[-1]:.4f}, accuracy {history.train_accuracy[-1]:.2%}, "
                f"on test images {history.test_accuracy[-1]:.2%}"
            )
    return history


# 5. The results ----------------------------------------------------------------------------------


def picture(history: History, digits: Digits) -> Figure:
    """The curves, and predictions for test images with the least certain ones first."""
    curves = Figure(figsize=(11, 7), layout="constrained")
    upper, lower = curves.subfigures(2, 1, height_ratios=[1.2, 1])

    left, right = upper.subplots(1, 2)
    epochs = np.arange(1, len(history.test_accuracy) + 1)
    steps = np.arange(1, len(history.losses) + 1) * len(epochs) / len(history.losses)
    left.semilogy(steps, history.losses, lw=0.5, alpha=0.4, label="one step")
    means = [part.mean() for part in np.array_split(np.array(history.losses), len(epochs))]
    left.semilogy(epochs, means, "o-", ms=3, label="mean of the steps of an epoch")
    left.set(xlabel="epoch", ylabel="cross entropy", title="Loss of the training images")
    left.legend()
    for accuracy, label in (
        (history.train_accuracy, "training images, during the epoch"),
        (history.test_accuracy, "test images, after the epoch"),
    ):
        right.plot(epochs, accuracy, "o-", ms=3, label=label)
    right.set(xlabel="epoch", ylabel="share that is right", title="Accuracy")
    right.legend(loc="lower right")

    guesses = history.probabilities.argmax(axis=1)
    certainty = history.probabilities.max(axis=1)
    wrong = guesses != digits.test_labels
    order = np.lexsort((certainty, ~wrong))  # wrong predictions first, then the least certain
    for axes, n in zip(lower.subplots(2, 10).flat, order, strict=False):
        axes.imshow(digits.test_images[n, 0], cmap="gray_r", vmin=0, vmax=1)
        text = f"predicted {guesses[n]} ({certainty[n]:.0%})\nlabel {digits.test_labels[n]}"
        axes.set_title(text, size=8, color="C3" if wrong[n] else "k")
        axes.set_axis_off()
    lower.suptitle(
        f"Test images: {wrong.sum()} of {len(wrong)} predictions are wrong (red); "
        "the others here are the least certain"
    )
    return curves


def main() -> None:
    """Train, and print and draw the results."""
    parser = argparse.ArgumentParser(
        description="Train a convolutional network on handwritten digits with tvm_autodiff.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training images")
    parser.add_argument("--batch", type=int, default=32, help="images in a step")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate at the start")
    parser.add_argument("--momentum", type=float, default=0.9, help="share of the old velocity")
    parser.add_argument("--seed", type=int, default=0, help="of the split, the weights, the order")
    parser.add_argument("--threads", type=int, help="CPU threads; all if not given")
    parser.add_argument("--out", type=Path, default=Path("out/train_digits.png"), help="picture")
    arguments = parser.parse_args()

    digits = load_data(arguments.seed)
    if arguments.epochs < 1:
        parser.error("--epochs must be at least 1")
    if not 1 <= arguments.batch <= len(digits.train_labels):
        parser.error(f"--batch must be from 1 to {len(digits.train_labels)}, the training images")
    print(f"{len(digits.train_labels)} images to learn from, {len(digits.test_labels)} to test on")
    print("\nThe gradient of one layer, the second convolution:\n")
    print(gradient_of_one_layer(arguments.batch))

    begin = time.perf_counter()
    step = make_step(arguments.batch, arguments.momentum, arguments.threads)
    predict = make_predict(len(digits.test_labels))
    compiled = time.perf_counter()
    how = "loaded from the cache of builds" if step.from_cache else "compiled"
    print(f"\nDifferentiated and {how} in {compiled - begin:.1f} s\n", flush=True)

    history = train(
        step,
        predict,
        digits,
        epochs=arguments.epochs,
        batch=arguments.batch,
        rate=arguments.rate,
        seed=arguments.seed,
    )
    seconds = time.perf_counter() - compiled
    print(f"\nTest accuracy: {history.test_accuracy[-1]:.2%}")
    print(f"{len(history.losses)} steps in {seconds:.1f} s")

    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    picture(history, digits).savefig(arguments.out, dpi=110)
    print(f"Curves and predictions: {arguments.out}")
    images, labels = next(batches(digits, arguments.batch, arguments.seed))
    print_step_time(step, images, labels, history.weights)


if __name__ == "__main__":
    main()
