"""Batches: every gradient case and its gradients beside a loop over the members, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.forward_mode import directions
from tests.gradient_case import Case
from tests.gradients import test_index_maps, test_reducers, test_user_reducers
from tests.transforms.test_jvp import KINDS
from tvm_autodiff.expr.nodes import is_float
from tvm_autodiff.graph.stage import shape_of

CASES = [
    *test_index_maps.CASES,
    *test_reducers.CASES,
    *test_user_reducers.CASES,
    *KINDS.values(),
]
MEMBERS = 3


def check_batch(outputs, pairs, chosen) -> None:
    """Some of the inputs differ between members."""
    rng = np.random.default_rng(5)
    batches, values = {}, []
    for place in chosen:
        tensor, array = pairs[place]
        batch = te.placeholder((MEMBERS, *array.shape), str(tensor.dtype), name=f"b{place}")
        members = np.stack([array] * MEMBERS)
        if is_float(tensor):
            members = members + 0.1 * rng.standard_normal(members.shape)
        else:
            members[1:] = rng.permuted(members[1:], axis=-1) if array.ndim == 1 else members[1:]
        batches[tensor] = batch
        values.append((batch, members.astype(str(tensor.dtype))))
    found = evaluate_graph(ad.vmap(outputs, batches), [*pairs, *values])
    for member in range(MEMBERS):
        own = [
            (tensor, values[chosen.index(place)][1][member] if place in chosen else array)
            for place, (tensor, array) in enumerate(pairs)
        ]
        for got, want in zip(found, evaluate_graph(outputs, own), strict=True):
            scale = 1e-12 * (1 + np.abs(want).max(initial=0))
            np.testing.assert_allclose(got[member], want, rtol=1e-12, atol=scale)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_batch_is_a_loop_over_its_members(case: Case) -> None:
    placeholders, output = case.tensors()
    pairs = list(zip(placeholders, case.arrays(), strict=True))
    floats = [tensor for tensor in placeholders if is_float(tensor)]
    [head] = directions([output], "h", 2)
    with case.expecting():
        outputs = [output, *ad.gradient(output, floats, head[0])]
    every = [*range(len(pairs))]
    real = [place for place in every if is_float(pairs[place][0])]
    check_batch(outputs, [*pairs, head], real)
    if len(pairs) > 1:
        check_batch(outputs, [*pairs, head], [real[-1], len(pairs)])


@pytest.mark.parametrize("chosen", [[0], [1], [0, 1]], ids=["updates", "places", "both"])
def test_positions_and_updates_of_a_scatter(chosen) -> None:
    updates = te.placeholder((5, 2), "float64", name="u")
    places = te.placeholder((5,), "int32", name="p")
    out = ad.scatter_add(updates, places, (4, 2))
    pairs = [
        (updates, np.random.default_rng(0).standard_normal((5, 2))),
        (places, np.array([2, 0, 2, 5, 1], "int32")),
    ]
    check_batch([out], pairs, chosen)


def test_per_example_gradients_compiled() -> None:
    """``vmap(grad)`` of a symbolic number of examples, as one function."""
    n = te.var("n")
    x, w = te.placeholder((4,), "float64", name="x"), te.placeholder((4,), "float64", name="w")
    k = te.reduce_axis((0, 4), "k")
    y = te.compute((), lambda: te.sum(te.tanh(x[k] * w[k]), axis=k), name="y")
    [dw] = ad.differentiate(y, [w])
    xs = te.placeholder((n, 4), "float64", name="xs")
    run = ad.build([xs, w], ad.vmap([dw], {x: xs}), cache=False)
    rng = np.random.default_rng(1)
    weights = rng.standard_normal(4)
    for size in (0, 1, 5):
        rows = rng.standard_normal((size, 4))
        [found] = run(rows, weights)
        np.testing.assert_allclose(found, rows * (1 - np.tanh(rows * weights) ** 2), rtol=1e-12)


@pytest.mark.parametrize(("source", "target"), [(0, 0), (1, 0), (-1, 1), (0, -1)])
def test_axes(source: int, target: int) -> None:
    x = te.placeholder((4, 3), "float64", name="x")
    y = te.compute((3,), lambda i: x[0, i] + x[3, i], name="y")
    array = np.random.default_rng(0).standard_normal((2, 4, 3))
    moved = np.moveaxis(array, 0, source)
    xs = te.placeholder(moved.shape, "float64", name="xs")
    [found] = evaluate_graph(ad.vmap(y, {x: xs}, source, target), [(xs, moved)])
    np.testing.assert_array_equal(found, np.moveaxis(array[:, 0] + array[:, 3], 0, target))


def test_outputs_that_do_not_depend_on_the_batch_are_repeated() -> None:
    x, z = te.placeholder((3,), "float64", name="x"), te.placeholder((2,), "float64", name="z")
    y = te.compute((2,), lambda i: 2.0 * z[i], name="y")
    both = te.compute((3,), lambda i: x[i] + y[0], name="both")
    xs = te.placeholder((4, 3), "float64", name="xs")
    run = ad.build([xs, z], ad.vmap([both, y, x], {x: xs}), cache=False)
    rows, other = np.arange(12.0).reshape(4, 3), np.array([1.0, 2.0])
    one, two, three = run(rows, other)
    np.testing.assert_array_equal(one, rows + 2)
    np.testing.assert_array_equal(two, np.tile(2 * other, (4, 1)))
    np.testing.assert_array_equal(three, rows)


def test_a_batch_costs_as_much_as_its_members() -> None:
    for case in CASES:
        placeholders, output = case.tensors()
        floats = [tensor for tensor in placeholders if is_float(tensor)]
        batches = {t: te.placeholder((8, *t.shape), str(t.dtype), name="b") for t in floats}
        one = ad.estimate_cost([output]).iterations
        assert ad.estimate_cost(ad.vmap(output, batches)).iterations <= 8 * one, case.name


X = te.placeholder((3,), "float32", name="x")
Y = te.compute((3,), lambda i: X[i] * X[i], name="y")
OPAQUE = te.extern(
    (3,), [X], lambda ins, outs: tirx.call_packed("f", ins[0], outs[0]), name="opaque"
)


def batch(*shape, dtype="float32"):
    return te.placeholder(shape, dtype, name="xs")


WRONG = {
    "no batches": (lambda: ad.vmap(Y, {}), "batches must be a non-empty dictionary"),
    "a shape": (lambda: ad.vmap(Y, {X: batch(8, 4)}), r"xs has shape \(8, 4\).*must be \(3\)"),
    "a dtype": (lambda: ad.vmap(Y, {X: batch(8, 3, dtype="float64")}), "and dtype float32"),
    "an axis": (lambda: ad.vmap(Y, {X: batch(8, 3)}, 2), "in_axes of x is 2"),
    "an axis of the result": (lambda: ad.vmap(Y, {X: batch(8, 3)}, 0, -3), "out_axes is -3"),
    "a batch without axes": (lambda: ad.vmap(Y, {X: batch()}), "the batch has no axis"),
    "a tensor of elsewhere": (
        lambda: ad.vmap(Y, {te.placeholder((3,), name="z"): batch(8, 3)}),
        "z is not in the graph of y",
    ),
    "two sizes": (
        lambda: ad.vmap(
            te.compute((3,), lambda i: X[i] + Y[i]), {X: batch(8, 3), Y: batch(7, 3)}
        ),
        r"xs has \(8,\) members and xs \(7,\)",
    ),
    "an opaque stage": (lambda: ad.vmap(OPAQUE, {X: batch(8, 3)}), "opaque is opaque and reads x"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(ad.AutodiffError, match=message):
        call()


def test_an_input_that_a_derivative_does_not_depend_on():
    """The Hessian of a quadratic form by v holds q only."""
    q, v = te.placeholder((3,), name="q"), te.placeholder((3,), name="v")
    k = te.reduce_axis((0, 3), "k")
    energy = te.compute((), lambda: te.sum(te.cos(q[k]) * v[k] * v[k], axis=k), name="energy")
    [mass] = ad.vmap(ad.hessian(energy, v), {q: batch(8, 3)})
    with pytest.warns(ad.UnrelatedInputWarning, match="vmap: v is not in the graph"):
        [same] = ad.vmap(ad.hessian(energy, v), {q: batch(8, 3), v: batch(8, 3)})
    assert shape_of(same) == shape_of(mass) == (8, 3, 3)
