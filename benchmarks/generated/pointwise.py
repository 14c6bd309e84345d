"""Families of elementwise work: chains with broadcasts, and losses."""

from __future__ import annotations

import functools
from random import Random
from typing import Any

from tvm import te, topi

from ..suite.case import Case, Input
from . import draws

UNARY = ("tanh", "sigmoid", "exp", "sin", "root", "relu")
BINARY = ("add", "multiply", "maximum", "subtract")


def draw_chain(rng: Random) -> dict[str, Any]:
    rank = rng.randint(2, 4)
    full = draws.shape(rng, rank, 2**13, 2**19)
    count = rng.randint(2, 4)
    others = [
        tuple(extent if rng.random() < 0.5 else 1 for extent in full) for _ in range(count - 1)
    ]
    return {
        "shapes": [full, *others],
        "steps": [(rng.choice(BINARY), rng.choice(UNARY)) for _ in others],
        "first": rng.choice(UNARY),
        "order": rng.sample(range(rank), rank) if rng.random() < 0.3 else None,
        "kind": draws.dtype(rng, narrow=False),
    }


def chain(
    shapes: list[tuple[int, ...]],
    steps: list[tuple[str, str]],
    first: str,
    order: list[int] | None,
    kind: str,
) -> Case:
    """A chain of functions of one tensor, with others broadcast to it; its axes may be permuted."""
    full = shapes[0]
    out = full if order is None else tuple(full[axis] for axis in order)

    def apply(name: str, functions: Any, x: Any) -> Any:
        if name == "exp":
            return functions.exp(x * 0.3)
        return functions.sqrt(x * x + 1.0) if name == "root" else getattr(functions, name)(x)

    def ours(x: Any, *others: Any) -> Any:
        topi_with_relu = _Named(topi, relu=topi.nn.relu)
        x = apply(first, topi_with_relu, x)
        for other, (binary, unary) in zip(others, steps, strict=True):
            x = apply(unary, topi_with_relu, getattr(topi, binary)(x, other))
        return x if order is None else topi.transpose(x, order)

    def in_torch(torch: Any, x: Any, *others: Any) -> Any:
        x = apply(first, torch, x)
        for other, (binary, unary) in zip(others, steps, strict=True):
            x = apply(unary, torch, getattr(torch, binary)(x, other))
        return x if order is None else x.permute(order).contiguous()

    def in_jax(jax: Any, x: Any, *others: Any) -> Any:
        functions = _Named(jax.numpy, relu=jax.nn.relu, sigmoid=jax.nn.sigmoid)
        x = apply(first, functions, x)
        for other, (binary, unary) in zip(others, steps, strict=True):
            x = apply(unary, functions, getattr(jax.numpy, binary)(x, other))
        return x if order is None else x.transpose(order)

    inputs = {f"x{n}": Input(shape, kind=kind) for n, shape in enumerate(shapes)}
    return draws.pullback(inputs, out, ours, in_torch, in_jax, kind)


class _Named:
    """The functions of a module, and some more by name."""

    def __init__(self, module: Any, **more: Any) -> None:
        self._module, self._more = module, more

    def __getattr__(self, name: str) -> Any:
        return self._more[name] if name in self._more else getattr(self._module, name)


def draw_loss(rng: Random) -> dict[str, Any]:
    return {
        "rows": draws.size(rng, 24, 500),
        "classes": draws.size(rng, 5, 800),
        "width": draws.size(rng, 8, 100),
        "form": rng.choice(["cross-entropy", "contrastive", "huber", "logistic", "hinge"]),
        "smoothing": rng.choice([0.0, 0.1]),
    }


def loss(rows: int, classes: int, width: int, form: str, smoothing: float) -> Case:
    """The value of a loss and its gradients."""
    make = _contrastive if form == "contrastive" else _of_scores
    if form == "contrastive":
        return make(rows, width)
    if form == "cross-entropy":
        return _cross_entropy(rows, classes, smoothing)
    return make(rows, classes, form)


def _gradient(inputs: dict[str, Input], te: Any, torch: Any, jax: Any) -> Case:
    wrt = tuple(name for name, spec in inputs.items() if spec.below is None)
    return Case(inputs=inputs, wrt=wrt, te=te, torch=torch, jax=jax, tolerance=5e-4)


def _total(body: Any, shape: tuple[int, ...]) -> Any:
    axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(shape)]
    return te.compute((), lambda: te.sum(body(*axes), axis=axes), name="loss")


def _cross_entropy(rows: int, classes: int, smoothing: float) -> Case:
    def ours(x: Any, labels: Any) -> Any:
        logs = topi.nn.log_softmax(x)
        hit = (1.0 - smoothing) / rows
        picked = _total(lambda i: logs[i, labels[i]] * -hit, (rows,))
        if not smoothing:
            return picked
        spread = smoothing / (rows * classes)
        rest = _total(lambda i, j: logs[i, j] * -spread, (rows, classes))
        return topi.add(picked, rest)

    def in_torch(torch: Any, x: Any, labels: Any) -> Any:
        return torch.nn.functional.cross_entropy(x, labels, label_smoothing=smoothing)

    def in_jax(jax: Any, x: Any, labels: Any) -> Any:
        logs = jax.nn.log_softmax(x)
        picked = -jax.numpy.take_along_axis(logs, labels[:, None], 1).mean()
        return (1.0 - smoothing) * picked - smoothing * logs.mean() if smoothing else picked

    inputs = {"x": Input((rows, classes)), "labels": Input((rows,), below=classes)}
    return _gradient(inputs, ours, in_torch, in_jax)


def _contrastive(rows: int, width: int) -> Case:
    scale = 5.0

    def ours(a: Any, b: Any) -> Any:
        def unit(x: Any) -> Any:
            return x * topi.rsqrt(topi.sum(x * x, axis=1, keepdims=True) + 1e-6)

        scores = topi.matmul(unit(a), unit(b), transp_b=True)
        logs = topi.nn.log_softmax(topi.multiply(scores, scale))
        return _total(lambda i: logs[i, i] * (-1.0 / rows), (rows,))

    def in_torch(torch: Any, a: Any, b: Any) -> Any:
        def unit(x: Any) -> Any:
            return x * torch.rsqrt((x * x).sum(1, keepdim=True) + 1e-6)

        scores = unit(a) @ unit(b).T * scale
        return torch.nn.functional.cross_entropy(scores, torch.arange(rows))

    def in_jax(jax: Any, a: Any, b: Any) -> Any:
        def unit(x: Any) -> Any:
            return x * jax.lax.rsqrt((x * x).sum(1, keepdims=True) + 1e-6)

        logs = jax.nn.log_softmax(unit(a) @ unit(b).T * scale)
        return -jax.numpy.diagonal(logs).mean()

    inputs = {"a": Input((rows, width)), "b": Input((rows, width))}
    return _gradient(inputs, ours, in_torch, in_jax)


def _of_scores(rows: int, classes: int, form: str) -> Case:
    """The mean of a function of scores x + w and targets y; w belongs to a column."""
    share = 1.0 / (rows * classes)

    def term(absolute: Any, largest: Any, exp: Any, log: Any, x: Any, y: Any) -> Any:
        if form == "hinge":
            margin = largest(1.0 - x * y)
            return margin * margin
        if form == "logistic":  # log(1 + exp(-xy)), which does not overflow
            z = x * y
            return largest(-z) + log(exp(-absolute(z)) + 1.0)
        return absolute(x - y)

    def ours(x: Any, w: Any, y: Any) -> Any:
        def element(i: Any, j: Any) -> Any:
            score = x[i, j] + w[j]
            if form == "huber":
                d = score - y[i, j]
                return te.if_then_else(te.abs(d) < 1.0, d * d * 0.5, te.abs(d) - 0.5) * share
            largest = lambda value: te.max(value, 0.0)  # noqa: E731
            return term(te.abs, largest, te.exp, te.log, score, y[i, j]) * share

        return _total(element, (rows, classes))

    def in_torch(torch: Any, x: Any, w: Any, y: Any) -> Any:
        functional = torch.nn.functional
        if form == "huber":
            return functional.huber_loss(x + w, y)
        if form == "logistic":
            return functional.softplus(-(x + w) * y).mean()
        return term(torch.abs, torch.relu, torch.exp, torch.log, x + w, y).mean()

    def in_jax(jax: Any, x: Any, w: Any, y: Any) -> Any:
        numpy = jax.numpy
        if form == "huber":
            d = x + w - y
            return numpy.where(abs(d) < 1.0, d * d * 0.5, abs(d) - 0.5).mean()
        if form == "logistic":
            return jax.nn.softplus(-(x + w) * y).mean()
        largest = functools.partial(numpy.maximum, 0.0)
        return term(numpy.abs, largest, numpy.exp, numpy.log, x + w, y).mean()

    shape = (rows, classes)
    inputs = {"x": Input(shape), "w": Input((classes,)), "y": Input(shape)}
    return _gradient(inputs, ours, in_torch, in_jax)


FAMILIES = {"chain": (draw_chain, chain), "loss": (draw_loss, loss)}
