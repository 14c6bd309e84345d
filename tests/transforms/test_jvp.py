"""Forward mode: every gradient case, kinds of stages, dtypes, ties, overrides, and bad input."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.forward_mode import check_forward, check_second_order, directions
from tests.gradient_case import Case
from tests.gradients import (
    test_against_jax,
    test_index_maps,
    test_reducers,
    test_scalar_operators,
    test_user_reducers,
)
from tvm_autodiff.expr.nodes import is_float

SCALAR = [
    Case(name, [(5,), (5,)], test_scalar_operators.elementwise(function), 2, domain)
    for name, (function, domain) in test_scalar_operators.ROWS.items()
]
CASES = [*SCALAR, *test_index_maps.CASES, *test_reducers.CASES, *test_user_reducers.CASES]
TWICE = [case for case in CASES if case.order > 1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pushforward_is_the_slope_and_the_transpose_of_the_pullback(case: Case) -> None:
    check_forward(case)


@pytest.mark.parametrize("case", TWICE, ids=lambda case: case.name)
def test_forward_over_reverse_is_reverse_over_reverse(case: Case) -> None:
    check_second_order(case)


@pytest.mark.parametrize("both", test_against_jax.CASES, ids=lambda both: both.name)
def test_tangent_is_that_of_jax(both) -> None:
    case = Case(both.name, both.inputs, both.ours, domain=both.domain, dense=both.dense)
    placeholders, output = case.tensors()
    arrays = case.arrays()
    floats = [tensor for tensor in placeholders if is_float(tensor)]
    given = directions(floats, "t", 3)
    [tangent] = ad.jvp(output, floats, [t for t, _ in given])
    [found] = evaluate_graph(
        [tangent], [*zip(placeholders, arrays, strict=True), *given]
    )
    along = iter([v for _, v in given])
    moving = [
        jnp.asarray(next(along)) if is_float(tensor) else np.zeros(array.shape, jax.dtypes.float0)
        for tensor, array in zip(placeholders, arrays, strict=True)
    ]
    _, wanted = jax.jvp(jax.jit(both.theirs), [jnp.asarray(a) for a in arrays], moving)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)


F64 = "float64"




def run(tensors, pairs):
    return evaluate_graph(list(tensors), pairs)


# -- ties, and zeros of products ----------------------------------------------------------------


def reduced(reduce):
    def make(x):
        k = te.reduce_axis((0, int(x.shape[0])), "k")
        return te.compute((), lambda: reduce(x[k], axis=k), name="y")

    return make


@pytest.mark.parametrize(
    ("reduce", "x", "wanted"),
    [
        (te.max, [1.0, 3.0, 3.0, 2.0], [0.0, 1.0, 0.0, 0.0]),
        (te.min, [1.0, 1.0, 3.0, 1.0], [1.0, 0.0, 0.0, 0.0]),
        (test_reducers.product, [2.0, 0.0, 5.0, 1.0], [0.0, 10.0, 0.0, 0.0]),
        (test_reducers.product, [2.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]),
    ],
    ids=["max", "min", "one zero", "two zeros"],
)
@pytest.mark.parametrize("compiled", [False, True], ids=["evaluated", "compiled"])
def test_ties_and_zeros(reduce, x, wanted, compiled) -> None:
    tensor, dx = te.placeholder((4,), F64, name="x"), te.placeholder((4,), F64, name="dx")
    [tangent] = ad.jvp(reduced(reduce)(tensor), tensor, dx)
    evaluate = ad.build([tensor, dx], [tangent], cache=False) if compiled else None
    for place in range(4):
        unit = np.eye(4)[place]
        if evaluate is None:
            [found] = run([tangent], [(tensor, np.array(x)), (dx, unit)])
        else:
            [found] = evaluate(np.array(x), unit)
        assert float(found) == wanted[place]


# -- kinds of stages ----------------------------------------------------------------------------

PLACES = np.array([2, 0, 2, 5, 1], "int32")  # 5 is outside of the result
POINTERS = np.array([0, 2, 2, 5], "int32")


def scattered(x, places):
    return ad.scatter_add(te.compute((5,), lambda i: te.sin(x[i]), name="s"), places, (4,))


KINDS = {
    "scatter-add": Case("scatter-add", [(5,), PLACES], scattered),
    "gather": Case(
        "gather", [(6,), PLACES], lambda x, n: te.compute((5,), lambda i: te.exp(x[n[i]]))
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_stages(name: str) -> None:
    check_forward(KINDS[name])


@pytest.mark.parametrize("name", ["scatter-add"])
def test_second_derivatives_through_kinds(name: str) -> None:
    check_second_order(KINDS[name])


def test_loops_over_updates_move_with_their_values() -> None:
    """The gradient of a sum over rows between pointers adds updates in one loop over the rows."""
    values, pointers = te.placeholder((5,), F64, name="v"), te.placeholder((4,), "int32", name="p")
    x, columns = te.placeholder((3,), F64, name="x"), te.placeholder((5,), "int32", name="c")

    def row(i):
        k = te.reduce_axis((pointers[i], pointers[i + 1]), "k")
        return te.sum(values[k] * te.sin(x[columns[k]]), axis=k)

    y, head = te.compute((3,), row, name="y"), te.placeholder((3,), F64, name="head")
    [dx] = ad.differentiate(y, [x], head)
    rng = np.random.default_rng(0)
    pairs = [
        (values, rng.standard_normal(5)), (pointers, POINTERS), (x, rng.standard_normal(3)),
        (columns, np.array([0, 2, 1, 1, 0], "int32")), (head, rng.standard_normal(3)),
    ]  # fmt: skip
    given = directions([values, x, head], "t", 1)
    [moved] = ad.jvp(dx, [values, x, head], [t for t, _ in given])
    [found] = run([moved], [*pairs, *given])
    ends = []
    for step in (1e-6, -1e-6):
        shift = {id(t): step * v for t, (_, v) in zip([values, x, head], given, strict=True)}
        [end] = run([dx], [(t, a + shift.get(id(t), 0)) for t, a in pairs])
        ends.append(end)
    np.testing.assert_allclose(found, (ends[0] - ends[1]) / 2e-6, rtol=1e-7, atol=1e-9)


# -- dtypes, intermediate inputs, zeros, symbolic shapes -----------------------------------------


def test_tangents_keep_the_dtype_of_their_operand() -> None:
    """A float32 tangent beside a float16 factor is not rounded to float16 on the way."""
    x = te.placeholder((2,), "float32", name="x")
    half = te.placeholder((2,), "float16", name="half")
    y = te.compute((2,), lambda i: x[i] * half[i].astype("float32"), name="y")
    dx = te.placeholder((2,), "float32", name="dx")
    [tangent] = ad.jvp(y, x, dx)
    fine = np.array([1 + 2.0**-20, 1 - 2.0**-20], "float32")
    [found] = run([tangent], [(x, fine), (half, np.ones(2, "float16")), (dx, fine)])
    assert str(tangent.dtype) == "float32"
    np.testing.assert_array_equal(found, fine)


def test_an_intermediate_input_counts_as_independent() -> None:
    x, dx = te.placeholder((3,), F64, name="x"), te.placeholder((3,), F64, name="dx")
    s = te.compute((3,), lambda i: te.sin(x[i]), name="s")
    y = te.compute((3,), lambda i: s[i] * x[i], name="y")
    ds = te.placeholder((3,), F64, name="ds")
    [only, both] = [ad.jvp(y, [s], [ds])[0], ad.jvp(y, [s, x], [ds, dx])[0]]
    at, a, b = np.array([0.1, 0.5, 2.0]), np.array([1.0, 2.0, 3.0]), np.array([5.0, 6.0, 7.0])
    one, two = run([only, both], [(x, at), (ds, a), (dx, b)])
    np.testing.assert_allclose(one, a * at)
    np.testing.assert_allclose(two, a * at + np.sin(at) * b)


def test_outputs_that_depend_on_nothing_or_repeat() -> None:
    x, dx = te.placeholder((3,), F64, name="x"), te.placeholder((3,), F64, name="dx")
    other = te.compute((2,), lambda i: te.const(1.0, F64) * i, name="other")
    y = te.compute((3,), lambda i: 2.0 * x[i], name="y")
    function = ad.build([x, dx], ad.jvp([y, y, x, other], x, dx), cache=False)
    found = function(np.zeros(3), np.arange(3.0))
    for got, want in zip(found, ([0, 2, 4], [0, 2, 4], [0, 1, 2], [0, 0]), strict=True):
        np.testing.assert_array_equal(got, np.array(want, float))


def test_symbolic_shapes() -> None:
    n = te.var("n")
    x, dx = (te.placeholder((n,), F64, name=name) for name in ("x", "dx"))
    k = te.reduce_axis((0, n), "k")
    y = te.compute((), lambda: te.sum(x[k] * x[n - 1 - k], axis=k), name="y")
    function = ad.build([x, dx], ad.jvp(y, x, dx), cache=False)
    for size in (0, 1, 4):
        at, along = np.arange(1.0, size + 1), np.ones(size)
        assert float(np.squeeze(function(at, along))) == 2 * at.sum()


def test_tangents_are_differentiated_again() -> None:
    """Reverse over forward: the gradient of a directional derivative."""
    x, dx = te.placeholder((4,), F64, name="x"), te.placeholder((4,), F64, name="dx")
    k = te.reduce_axis((0, 4), "k")
    y = te.compute((), lambda: te.sum(te.exp(x[k]) * x[3 - k], axis=k), name="y")
    [slope] = ad.jvp(y, x, dx)
    ad.check_grads(slope, [x, dx])


# -- custom rules -------------------------------------------------------------------------------


def test_override_gives_the_tangent() -> None:
    x, dx = te.placeholder((3,), F64, name="x"), te.placeholder((3,), F64, name="dx")
    s = te.compute((3,), lambda i: te.sin(x[i]), name="s")
    y = te.compute((3,), lambda i: 2.0 * s[i], name="y")

    def rule(out, deps, tangents):
        assert out is s
        assert deps == [x]
        return te.compute((3,), lambda i: 10.0 * tangents[0][i], name="given")

    [tangent] = ad.jvp(y, x, dx, override={s: ([x], rule)})
    [found] = run([tangent], [(x, np.zeros(3)), (dx, np.arange(3.0))])
    np.testing.assert_array_equal(found, [0.0, 20.0, 40.0])


# -- bad input ----------------------------------------------------------------------------------

X = te.placeholder((3,), "float32", name="x")
Y = te.compute((3,), lambda i: X[i] * X[i], name="y")
DX = te.placeholder((3,), "float32", name="dx")
INTEGER = te.compute((3,), lambda i: te.round(X[i]).astype("int32"), name="integer")
WRONG = {
    "no output": (lambda: ad.jvp([], X, DX), "outputs is empty"),
    "an integer output": (lambda: ad.jvp(INTEGER, X, DX), "integer has dtype int32"),
    "an integer input": (lambda: ad.jvp(Y, [INTEGER], [DX]), "integer has dtype int32"),
    "no tangents": (lambda: ad.jvp(Y, X, []), r"1 inputs \(x\) and 0 tangents"),
    "None": (lambda: ad.jvp(Y, X, None), r"tangents\[0\] is None: pass the tangent of x"),
    "a shape": (
        lambda: ad.jvp(Y, X, te.placeholder((2,), "float32", name="t")),
        r"tangents\[0\] t has shape \(2,\) and dtype float32; x has shape \(3,\)",
    ),
    "a dtype": (lambda: ad.jvp(Y, X, te.placeholder((3,), F64, name="t")), "x has .* float32"),
    "an unknown keyword": (lambda: ad.jvp(Y, X, DX, overide={}), "override"),
    "an override that is no pair": (
        lambda: ad.jvp(Y, X, DX, override={Y: X}),
        r"override\[y\] must be a pair \(deps, f\) with f\(out, deps, tangents\)",
    ),
    "an override of another shape": (
        lambda: ad.jvp(Y, X, DX, override={Y: ([X], lambda out, deps, moving: INTEGER)}),
        r"override\[y\] returned integer of shape \(3,\) and dtype int32 as tangent of y",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(ad.AutodiffError, match=message):
        call()


def test_an_opaque_stage_without_a_rule() -> None:
    opaque = te.extern(
        (3,), [X], lambda ins, outs: tirx.call_packed("f", ins[0], outs[0]), name="opaque"
    )
    with pytest.raises(ad.NotDifferentiableError, match=r"override=\{opaque: \(\[x\], f\)\}"):
        ad.jvp(opaque, X, DX)


# -- cost ---------------------------------------------------------------------------------------

BARS = {case.name: case for case in test_index_maps.CASES + test_reducers.CASES}


@pytest.mark.parametrize("name", BARS)
def test_a_pushforward_costs_at_most_three_times_the_primal(name: str) -> None:
    placeholders, output = BARS[name].tensors()
    floats = [tensor for tensor in placeholders if is_float(tensor)]
    tangents = [t for t, _ in directions(floats, "t", 0)]
    primal = ad.estimate_cost([output]).iterations
    both = ad.estimate_cost([output, *ad.jvp(output, floats, tangents)]).iterations
    assert both - primal <= 3 * primal
