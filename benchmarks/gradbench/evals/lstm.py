"""lstm: a network with long short-term memory that predicts the next character, and its gradient.

All its matrices are diagonal, and there is no batch: a step is a few vectors of the size of a
character. Layers lie on top of one another within a step of a scan over the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from tvm import te

import tvm_autodiff as ad

from ...suite.case import Array, aligned
from ..evaluation import Eval, Function, Problem
from ..fields import InputError, array

GATES = 4  #: forget, in, out, change
EXTRA = 3  #: weights before the first layer, weights and biases after the last one


class Sizes(NamedTuple):
    """Layers, characters, bits of a character."""

    layers: int
    characters: int
    bits: int


def read(data: Any) -> Problem:
    """Parameters of the layers, parameters around them, the state, and the text."""
    extra = array(data, "extra_params", (EXTRA, None))
    bits = extra.shape[1]
    main = array(data, "main_params", (None, GATES * bits))
    sequence = array(data, "sequence", (None, bits))
    if not bits or not len(main) or len(main) % 2:
        raise InputError("'main_params' needs two rows for each layer, weights and biases")
    if len(sequence) < 2:
        raise InputError(f"'sequence' has {len(sequence)} rows, at least 2 are needed to predict")
    sizes = Sizes(len(main) // 2, len(sequence), bits)
    return Problem(sizes, [main, extra, array(data, "state", (len(main), bits)), sequence])


def layer(w: Any, bias: Any, x: Any, hidden: Any, cell: Any) -> tuple[Any, Any]:
    """The state of a layer after a step: hidden, cell."""

    def gate(number: int, source: Any, i: Any) -> Any:
        return source[i] * w[number, i] + bias[number, i]

    shape = x.shape
    forget = te.compute(shape, lambda i: te.sigmoid(gate(0, x, i)), name="forget")
    enter = te.compute(shape, lambda i: te.sigmoid(gate(1, hidden, i)), name="enter")
    leave = te.compute(shape, lambda i: te.sigmoid(gate(2, x, i)), name="leave")
    change = te.compute(shape, lambda i: te.tanh(gate(3, hidden, i)), name="change")
    new = te.compute(shape, lambda i: cell[i] * forget[i] + enter[i] * change[i], name="cell")
    return te.compute(shape, lambda i: leave[i] * te.tanh(new[i]), name="hidden"), new


def parts(sizes: Sizes, main: Any) -> list[Any]:
    """Weights and biases of the layers in turn, each ``[gate, bit]``."""

    def part(row: int) -> Any:
        return te.compute(
            (GATES, sizes.bits),
            lambda g, i: main[row, g * sizes.bits + i],
            name=f"{'biases' if row % 2 else 'weights'}{row // 2}",
        )

    return [part(row) for row in range(2 * sizes.layers)]


def loss(sizes: Sizes, main: Sequence[Any], extra: Any, state: Any, sequence: Any) -> Any:
    """The mean of what the characters lack to be certain, for the parts of the main parameters."""
    layers, characters, bits = sizes
    steps = characters - 1

    def row(number: int) -> Any:
        return te.compute((bits,), lambda i: state[number, i], name="state")

    def step(states: Any, x: Any) -> tuple[Any, Any]:
        x = te.compute((bits,), lambda i: x[i] * extra[0, i], name="below")
        after = []
        for number, held in enumerate(states):
            after.append(layer(*main[2 * number : 2 * number + 2], x, *held))
            x = after[-1][0]
        return tuple(after), x

    start = tuple((row(2 * number), row(2 * number + 1)) for number in range(layers))
    _, top = ad.scan(step, start, te.compute((steps, bits), lambda t, i: sequence[t, i], name="x"))
    j, t, i = (te.reduce_axis((0, n), name) for n, name in ((bits, "j"), (steps, "t"), (bits, "i")))
    predicted = te.compute(
        (steps, bits), lambda t, i: top[t, i] * extra[1, i] + extra[2, i], name="predicted"
    )
    total = te.compute((steps,), lambda t: te.sum(te.exp(predicted[t, j]), axis=j), name="total")
    lacks = te.compute(
        (),
        lambda: te.sum(
            sequence[t + 1, i] * (te.log(total[t] + 2.0) - predicted[t, i]), axis=[t, i]
        ),
        name="lacks",
    )
    return te.compute((), lambda: lacks() / float(steps * bits), name="loss")


def _inputs(sizes: Sizes) -> list[Any]:
    layers, characters, bits = sizes
    shapes = {
        "main": (2 * layers, GATES * bits),
        "extra": (EXTRA, bits),
        "state": (2 * layers, bits),
        "sequence": (characters, bits),
    }
    return [te.placeholder(shape, "float64", name=name) for name, shape in shapes.items()]


def objective(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """The loss."""
    main, *others = _inputs(sizes)
    return [main, *others], [loss(sizes, parts(sizes, main), *others)]


def jacobian(sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """The gradients of the parts of the main parameters, and of the parameters around the layers.

    Parts are separate inputs, so no gradient depends on the index of a row.
    """
    main, extra, *others = _inputs(sizes)
    inner = parts(sizes, main)
    found = ad.differentiate(loss(sizes, inner, extra, *others), [*inner, extra])
    return [main, extra, *others], list(found)


def _place(sizes: Sizes) -> list[Array]:
    """Arrays for the outputs of `jacobian`: the parts are the rows of one."""
    main = aligned(np.zeros((2 * sizes.layers, GATES * sizes.bits)))
    rows = [row.reshape(GATES, sizes.bits) for row in main]
    return [*rows, aligned(np.zeros((EXTRA, sizes.bits)))]


def _write_jacobian(sizes: Sizes, results: Sequence[Array]) -> list[float]:
    return [number for part in results for number in part.ravel().tolist()]


EVAL = Eval(
    read,
    {
        "objective": Function(objective, lambda sizes, results: float(results[0])),
        "jacobian": Function(jacobian, _write_jacobian, _place),
    },
)
