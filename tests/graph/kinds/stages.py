"""One stage of each kind, over inputs that compute stages make, and its value by numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from tvm import te, tirx

from tvm_autodiff.expr.nodes import load
from tvm_autodiff.graph.kinds.custom import Custom, Rule, custom_stage
from tvm_autodiff.graph.kinds.kind import Compute, Opaque, kind_of
from tvm_autodiff.graph.kinds.loop import Loop, loop_stage, step_of
from tvm_autodiff.graph.kinds.prefix_scan import Recurrence, Scan, scan_stage
from tvm_autodiff.graph.kinds.rewind import KeptLoop, Rewind, kept_stage, rewind_stage
from tvm_autodiff.graph.kinds.scatter_add import ScatterAdd, ScatterLayout, scatter_add_stage
from tvm_autodiff.graph.kinds.update_loops import UpdateLoops, update_stage
from tvm_autodiff.graph.stage import reduce_axis

D = "float64"
Array = np.ndarray


@dataclass(frozen=True)
class Example:
    """A stage of one kind that reads three tensors, and what it computes of their values.

    Attributes
    ----------
    make : callable
        From values (5, 3), positions (5,) and lengths (5,) to the outputs.
    value : callable
        The same on arrays.
    """

    kind: type
    make: Callable[[te.Tensor, te.Tensor, te.Tensor], list[te.Tensor]]
    value: Callable[[Array, Array, Array], list[Array]]


def _compute(x, p, n):
    k = te.reduce_axis((0, 3), "k")
    value = te.compute((5,), lambda i: te.sum(x[i, k] * p[i].astype(D), axis=k, where=k < n[i]))
    return [value]


def _compute_value(x, p, n):
    return [np.array([x[i, : n[i]].sum() * p[i] for i in range(5)])]


def _scan(x, p, n):
    state, element = tirx.Var("s", D), tirx.Var("e", D)
    step = Recurrence((state,), (element,), (state * 0.5 + element,), (tirx.const(1, D),))
    return scan_stage("S", Scan(step, (x,), (5,), (3,), False))


def _scan_value(x, p, n):
    states = np.empty((5, 3))
    state = np.ones(5)
    for k in range(3):
        states[:, k] = state
        state = state * 0.5 + x[:, k]
    return [states]


def _scatter(x, p, n):
    return [scatter_add_stage("A", [p], x, (4, 3), ScatterLayout.points_first((0, -1), 1))]


def _scatter_value(x, p, n):
    result = np.zeros((4, 3))
    for i in range(5):
        if 0 <= p[i] < 4:
            result[p[i]] += x[i]
    return [result]


def _updates(x, p, n):
    i = reduce_axis("i", 5)
    k = reduce_axis("k", load(n, [i.var]))
    place = (load(p, [i.var]), k.var)
    value = load(x, [i.var, k.var]) * 2.0
    return [update_stage("U", UpdateLoops((i, k), (i.var > 0,), place, value), (4, 3))]


def _updates_value(x, p, n):
    result = np.zeros((4, 3))
    for i in range(1, 5):
        for k in range(n[i]):
            if 0 <= p[i] < 4:
                result[p[i], k] += x[i, k] * 2.0
    return [result]


def _loop(x, p, n):
    """``s[j] ← s[4 - j]/2 + x[t]·scale``, begun with x, from its last row on; scale = p[0] + n[t]
    is the same for all elements of a step.
    """
    state, row = te.placeholder((5, 3), D, name="s"), te.placeholder((3,), D, name="e")
    places, size = te.placeholder((5,), "int32", name="q"), te.placeholder((), "int32", name="m")
    scale = te.compute((), lambda: (places[0] + size()).astype(D), name="scale")
    new = te.compute((5, 3), lambda j, i: state[4 - j, i] * 0.5 + row[i] * scale(), name="new")
    step = step_of([state], [row, size], [places], [new], [state])
    return loop_stage("L", Loop(step, (x,), (x, n), (p,), 5, True))


def _loop_value(x, p, n):
    state, before = x, np.empty((5, 5, 3))
    for t in reversed(range(5)):
        before[t] = state
        state = state[::-1] * 0.5 + x[t] * (p[0] + n[t])
    return [state, before]


def _kept(x, p, n):
    """The same with two of its states kept."""
    loop = kind_of(_loop(x, p, n)[0].op)
    return kept_stage("K", KeptLoop(loop, 2, (0,)))[:1]


def _halved(x, p):
    """``s[j] ← s[4 - j]/2 + x[t]·p``, begun with x, from its last row on."""
    state, row = te.placeholder((5, 3), D, name="s"), te.placeholder((3,), D, name="e")
    places = te.placeholder((5,), "int32", name="q")
    new = te.compute(
        (5, 3), lambda j, i: state[4 - j, i] * 0.5 + row[i] * places[j].astype(D), name="new"
    )
    return Loop(step_of([state], [row], [places], [new], []), (x,), (x,), (p,), 5, True)


@cache
def _states(x, p):
    """Those of `_halved` that are kept: the same ones for the same tensors."""
    return kept_stage("K", KeptLoop(_halved(x, p), 2, (0,)))[1:]


def _rewind(x, p, n):
    """``a[j] ← a[j]/2 + s[j]·x[t]``, back over the states s of `_halved` before each step."""
    state, row = te.placeholder((5, 3), D, name="s"), te.placeholder((3,), D, name="e")
    total, places = te.placeholder((5, 3), D, name="a"), te.placeholder((5,), "int32", name="q")
    new = te.compute((5, 3), lambda j, i: total[j, i] * 0.5 + state[j, i] * row[i], name="new")
    seen = te.compute((5,), lambda j: state[j, 0] * places[j].astype(D), name="seen")
    back = Loop(step_of([total], [state, row], [places], [new], [seen]), (x,), (x,), (p,), 5)
    return rewind_stage("R", Rewind(_halved(x, p), back, tuple(_states(x, p)), 2))[:1]


def _rewind_value(x, p, n):
    state, states = x, np.empty((5, 5, 3))
    for t in reversed(range(5)):
        states[t] = state
        state = state[::-1] * 0.5 + x[t] * p[:, None]
    total = x
    for t in range(5):
        total = total * 0.5 + states[t] * x[t]
    return [total]


RULE = Rule(vjp=lambda outputs, inputs, cotangents: list(cotangents))


def _custom(x, p, n):
    """The values of a tensor of floats and of one of integers."""
    return custom_stage("C", [x, p], [x, p], RULE)


def _custom_value(x, p, n):
    return [x, p]


def _opaque(x, p, n):
    """``O[i] = x[i, 0] + float64(p[i])``, in a loop nest of the user's."""

    def body(ins, outs):
        i = tirx.Var("i", "int32")
        value = ins[0][i, 0] + ins[1][i].astype(D)
        return tirx.For(i, 0, 5, tirx.ForKind.SERIAL, tirx.BufferStore(outs[0], value, [i]))

    return [te.extern([(5,)], [x, p], body, name="O", dtype=[D])]


def _opaque_value(x, p, n):
    return [x[:, 0] + p]


EXAMPLES = {
    example.kind.__name__: example
    for example in (
        Example(Compute, _compute, _compute_value),
        Example(Scan, _scan, _scan_value),
        Example(ScatterAdd, _scatter, _scatter_value),
        Example(UpdateLoops, _updates, _updates_value),
        Example(Loop, _loop, _loop_value),
        Example(KeptLoop, _kept, lambda x, p, n: _loop_value(x, p, n)[:1]),
        Example(Rewind, _rewind, _rewind_value),
        Example(Custom, _custom, _custom_value),
        Example(Opaque, _opaque, _opaque_value),
    )
}


def inputs() -> list[te.Tensor]:
    """Values, positions and lengths."""
    return [
        te.placeholder((5, 3), D, name="x"),
        te.placeholder((5,), "int32", name="p"),
        te.placeholder((5,), "int32", name="n"),
    ]


def arrays() -> list[Array]:
    """Of the inputs; a position lies outside of the result, two are equal."""
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal((5, 3)),
        np.array([2, 0, 2, 5, 3], "int32"),
        np.array([3, 1, 0, 2, 3], "int32"),
    ]


def graph(example: Example, given: list[te.Tensor]) -> list[te.Tensor]:
    """The stage between stages that rewrites change: shifted copies and unused axes before it,
    a stage that reads it behind it.
    """
    x, p, n = given
    copied = te.compute((5, 3), lambda i, k: x[4 - i, k], name="copied")
    back = te.compute((5, 3), lambda i, k: copied[4 - i, k] * 3.0, name="back")
    wide = te.compute((5, 2), lambda i, _: p[i] * 1, name="wide")
    place = te.compute((5,), lambda i: wide[i, 1], name="place")
    outputs = example.make(back, place, n)
    [first, *_] = outputs
    return [te.compute(first.shape, lambda *i: first(*i) + 1.0, name="after"), *outputs]
