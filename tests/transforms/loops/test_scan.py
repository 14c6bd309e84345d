"""`scan` at its borders: lengths, containers, sizes, other transforms, what is refused."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
import tvm
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.transforms.loops.recurrences import CASES, D, each, times
from tvm_autodiff.graph.graph import topological

RNG = np.random.default_rng(0)


def inputs(*shapes: tuple, dtype: str = D) -> list[te.Tensor]:
    return [te.placeholder(shape, dtype, name=f"x{n}") for n, shape in enumerate(shapes)]


def arrays(tensors, dtype: str = D) -> list[np.ndarray]:
    return [RNG.uniform(-1, 1, [int(n) for n in t.shape]).astype(dtype) for t in tensors]


def cell(h, x):
    new = each(lambda h, x: te.tanh(h) * x + h, h, x)
    return new, new


def run_cell(h, xs):
    ys = []
    for x in xs:
        h = np.tanh(h) * x + h
        ys.append(h)
    return h, np.array(ys).reshape(xs.shape)


@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_lengths(length: int) -> None:
    h0, xs = inputs((3,), (length, 3))
    last, ys = ad.scan(cell, h0, xs)
    given = arrays([h0, xs])
    wanted = run_cell(*given)
    built = ad.build([h0, xs], [last, ys])(*given)
    evaluated = evaluate_graph([last, ys], zip([h0, xs], given, strict=True))
    for one, two, want in zip(evaluated, built, wanted, strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-12)
        np.testing.assert_allclose(two, want, rtol=1e-12)


@pytest.mark.parametrize("length", [0, 1, 2])
def test_gradients_of_short_loops(length: int) -> None:
    h0, xs = inputs((3,), (length, 3))
    last, _ = ad.scan(cell, h0, xs)
    bar = te.placeholder((3,), D, name="bar")
    given = arrays([h0, xs, bar])
    h, dh, want = given[0], given[2], np.zeros((length, 3))
    states = [h]
    for x in given[1]:
        states.append(np.tanh(states[-1]) * x + states[-1])
    for t in reversed(range(length)):
        want[t] = dh * np.tanh(states[t])
        dh = dh * (given[1][t] * (1 - np.tanh(states[t]) ** 2) + 1)
    gradient = list(ad.vjp(last, [h0, xs], bar))
    found = ad.build([h0, xs, bar], gradient)(*given)
    np.testing.assert_allclose(found[0], dh, rtol=1e-12)
    np.testing.assert_allclose(found[1], want, rtol=1e-12)


@pytest.mark.slow
def test_symbolic_sizes() -> None:
    """One program for all lengths, numbers of rows and sizes."""
    t, b, n = te.var("t"), te.var("b"), te.var("n")
    h0, xs, w = inputs((b, n), (t, b, n), (n, n))

    def step(h, x):
        new = each(lambda a, x: te.tanh(a) + x, times(w, h), x)
        return new, new

    last, ys = ad.scan(step, h0, xs)
    bar = te.placeholder((b, n), D, name="bar")
    program = ad.build([h0, xs, w, bar], [last, ys, *ad.vjp(last, [h0, w], bar)])
    for size in ((0, 2, 3), (1, 1, 1), (4, 2, 3)):
        shapes = [size[1:], size, (size[2], size[2]), size[1:]]
        given = [RNG.uniform(-1, 1, shape) for shape in shapes]
        found = program(*given)
        h, states = given[0], []
        for x in given[1]:
            states.append(h)
            h = np.tanh(h @ given[2].T) + x
        np.testing.assert_allclose(found[0], h, rtol=1e-12)
        dh, dw = given[3], np.zeros_like(given[2])
        for state in reversed(states):
            da = dh * (1 - np.tanh(state @ given[2].T) ** 2)
            dw += da.T @ state
            dh = da @ given[2]
        np.testing.assert_allclose(found[2], dh, rtol=1e-10)
        np.testing.assert_allclose(found[3], dw, rtol=1e-10, atol=1e-12)


def test_a_symbolic_length_that_is_given() -> None:
    n = te.var("n")
    x = te.placeholder((n,), D, name="x")
    start = te.placeholder((), D, name="start")
    last, _ = ad.scan(lambda s, _: (each(lambda s: s * 2.0, s), None), start, length=n)
    total = te.compute((n,), lambda i: x[i] + last())
    program = ad.build([x, start], total)
    for count in (0, 1, 3):
        np.testing.assert_array_equal(
            program(np.ones(count), np.float64(1)), np.full(count, 1 + 2.0**count)
        )


def test_tvm_alone_lowers_a_loop() -> None:
    case = CASES["nested"]
    given = inputs(*case.shapes)
    outputs = case.ours(*given)
    values = arrays(given)
    holders = [tvm.runtime.empty([int(n) for n in t.shape], D) for t in outputs]
    func = tvm.compile(te.create_prim_func([*given, *outputs]), target="llvm")
    func(*map(tvm.runtime.tensor, values), *holders)
    wanted = evaluate_graph(outputs, zip(given, values, strict=True))
    for holder, want in zip(holders, wanted, strict=True):
        np.testing.assert_allclose(holder.numpy(), want, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "nested", "integer carry", "HMM", "same sequence"])
def test_gradients_are_built(name: str) -> None:
    case = CASES[name]
    given = inputs(*case.shapes)
    outputs = case.ours(*given)
    bars = [te.placeholder(t.shape, D, name="bar") for t in outputs]
    gradient = list(ad.vjp(outputs, given, bars))
    values = [0.5 * array for array in arrays([*given, *bars])]
    found = ad.build([*given, *bars], gradient, cache=False)(*values)
    wanted = evaluate_graph(gradient, list(zip([*given, *bars], values, strict=True)))
    for one, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["gru", "nested", "two layers", "integer carry", "iir"])
def test_batches(name: str) -> None:
    """Every second input is batched; carries that meet one become so."""
    case = CASES[{"iir": "IIR filter"}.get(name, name)]
    given = inputs(*case.shapes)
    outputs = case.ours(*given)
    chosen = given[::2]
    batches = {t: te.placeholder((3, *t.shape), D, name=f"{t.op.name}s") for t in chosen}
    many = ad.vmap(outputs, batches)
    values, members = arrays(given), dict(zip(chosen, arrays(batches.values()), strict=True))
    rest = [(t, v) for t, v in zip(given, values, strict=True) if t not in batches]
    pairs = [(batches[t], members[t]) for t in chosen]
    found = evaluate_graph(many, rest + pairs)
    for place in range(3):
        here = rest + [(t, members[t][place]) for t in chosen]
        for one, want in zip(found, evaluate_graph(outputs, here), strict=True):
            np.testing.assert_allclose(one[place], want, rtol=1e-12, atol=1e-14)


def test_a_stacked_result_that_a_loop_inside_reads() -> None:
    h0, xs = inputs((3,), (4, 3))

    def step(h, x):
        y = each(lambda h, x: h * x, h, x)
        inner, _ = ad.scan(lambda s, _: (each(lambda s, y: te.sin(s) + y, s, y), None), y, length=2)
        return inner, y

    outputs = list(ad.scan(step, h0, xs))
    given = arrays([h0, xs])
    h, ys = given[0], []
    for x in given[1]:
        ys.append(h * x)
        h = np.sin(np.sin(ys[-1]) + ys[-1]) + ys[-1]
    found = ad.build([h0, xs], outputs, cache=False)(*given)
    np.testing.assert_allclose(found[0], h, rtol=1e-12)
    np.testing.assert_allclose(found[1], ys, rtol=1e-12)


def test_a_loop_without_carries_whose_results_have_no_tangent() -> None:
    [xs] = inputs((4, 3))
    _, ys = ad.scan(lambda _, x: (None, ad.stop_gradient(x)), None, xs)
    [tangent] = ad.jvp(ys, xs, te.placeholder(xs.shape, D, name="dot"))
    np.testing.assert_array_equal(evaluate_graph([tangent], [])[0], np.zeros((4, 3)))


def test_gradients_of_batches() -> None:
    """`vjp` of a batch is the batch of `vjp`."""
    case = CASES["rnn"]
    given = inputs(*case.shapes)
    [_, ys] = case.ours(*given)
    many = te.placeholder((3, *given[3].shape), D, name="many")
    [batch] = ad.vmap(ys, {given[3]: many})
    bar = te.placeholder(batch.shape, D, name="bar")
    one_bar = te.placeholder(ys.shape, D, name="one_bar")
    whole = list(ad.vjp(batch, [many, given[2]], bar))
    single = list(ad.vjp(ys, [given[3], given[2]], one_bar))
    values = arrays([*given, many, bar])
    found = evaluate_graph(whole, list(zip([*given, many, bar], values, strict=True)))
    parts = []
    for member in range(3):
        here = [*values[:3], values[4][member], values[5][member]]
        parts.append(evaluate_graph(single, list(zip([*given, one_bar], here, strict=True))))
    np.testing.assert_allclose(found[0], [part[0] for part in parts], rtol=1e-12)
    np.testing.assert_allclose(found[1], sum(part[1] for part in parts), rtol=1e-12)


@pytest.mark.parametrize("name", ["state space", "stiff chain", "Kalman filter"])
def test_jacobians(name: str) -> None:
    """In reverse mode, where cotangents have axes in front, and in forward mode."""
    case = CASES[name]
    given = inputs(*case.shapes)
    [y, *_] = case.ours(*given)
    backward = ad.differentiate(y, given).__iter__()
    values = arrays(given)
    pairs = list(zip(given, values, strict=True))
    forward = [ad.jacobian(y, x, mode="forward") for x in given]
    one = evaluate_graph(list(backward), pairs)
    two = evaluate_graph(forward, pairs)
    for left, right in zip(one, two, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-10, atol=1e-12)


def test_rules_and_marks_in_a_step() -> None:
    """A straight-through estimator, a stopped gradient and a checkpoint."""
    straight = ad.Rule(vjp=lambda outputs, inputs, cotangents: cotangents)

    def step(h, x):
        rounded = ad.with_rule(each(te.round, h), h, straight)
        kept = ad.checkpoint(each(lambda r, x: te.sin(r * x), rounded, x))
        new = each(lambda k, h: k + ad.stop_gradient(h), kept, h)
        return new, None

    h0, xs = inputs((2,), (3, 2))
    last, _ = ad.scan(step, h0, xs)
    bar = te.placeholder((2,), D, name="bar")
    gradient = list(ad.vjp(last, [h0, xs], bar))
    values = [array * 4 for array in arrays([h0, xs, bar])]
    h, states = values[0], []
    for x in values[1]:
        states.append(h)
        h = np.sin(np.round(h) * x) + h
    dh, dxs = values[2], []
    for h, x in zip(reversed(states), values[1][::-1], strict=True):
        d = dh * np.cos(np.round(h) * x)
        dxs.insert(0, d * np.round(h))
        dh = d * x
    for found in (
        evaluate_graph(gradient, list(zip([h0, xs, bar], values, strict=True))),
        ad.build([h0, xs, bar], gradient, cache=False)(*values),
    ):
        np.testing.assert_allclose(found[0], dh, rtol=1e-12)
        np.testing.assert_allclose(found[1], dxs, rtol=1e-12)


def test_the_size_of_a_program_does_not_depend_on_the_length() -> None:
    def stages(length: int) -> int:
        h0, xs = inputs((3,), (length, 3))
        last, _ = ad.scan(cell, h0, xs)
        bar = te.placeholder((3,), D, name="bar")
        return len(topological(list(ad.vjp(last, [h0, xs], bar))))

    assert stages(2) == stages(10**6)


def test_cost_counts_the_steps() -> None:
    h0, xs = inputs((3,), (100, 3))
    last, _ = ad.scan(lambda h, x: (each(lambda h, x: h * x, h, x), None), h0, xs)
    assert ad.estimate_cost(last).multiplications == 300


State = namedtuple("State", "position velocity")


def test_containers_come_back_as_they_are() -> None:
    [q, v, a] = inputs((2,), (2,), (4, 2))

    def step(carry, x):
        state, [count] = carry["state"], carry["list"]
        moved = State(
            each(lambda q, v: q + v, state.position, state.velocity),
            each(lambda v, a: v + a, state.velocity, x["a"]),
        )
        return {"state": moved, "list": [count]}, (None, {"q": moved.position})

    carry, ys = ad.scan(step, {"state": State(q, v), "list": [q]}, {"a": a})
    assert isinstance(carry["state"], State)
    assert ys[0] is None
    values = arrays([q, v, a])
    results = [carry["state"].velocity, ys[1]["q"], carry["list"][0]]
    found = evaluate_graph(results, list(zip([q, v, a], values, strict=True)))
    np.testing.assert_allclose(found[0], values[1] + values[2].sum(0))
    np.testing.assert_allclose(found[1][0], values[0] + values[1])
    np.testing.assert_array_equal(found[2], values[0])


def test_a_step_is_traced_once() -> None:
    calls = []

    def step(h, x):
        calls.append(h)
        return cell(h, x)

    h0, xs = inputs((3,), (100, 3))
    last, _ = ad.scan(step, h0, xs)
    ad.vjp(last, [h0, xs], te.placeholder((3,), D))
    assert len(calls) == 1


def bad(step, init, **options):
    return lambda: ad.scan(step, init, **options)


H, X, LONG = inputs((3,), (4, 3), (5, 3))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (bad(3, H, xs=X), "step must be a function, got int"),
        (bad(cell, H), "pass xs or length"),
        (bad(cell, H, xs=X, length=5), r"length has 5 steps and xs \(x1\) 4"),
        (bad(lambda h, x: (h, None), H, xs=[X, LONG]), r"xs\[0\] \(x1\) has 4 steps and xs\[1\]"),
        (bad(cell, H, xs=te.placeholder((), D, name="s")), "s has no axis"),
        (bad(lambda h, x: h, H, xs=X), r"must return a pair \(carry, y\), got Tensor"),
        (bad(lambda h, x: (h, h, h), H, xs=X), "got a tuple of 3"),
        (bad(lambda h, x: ([h], None), H, xs=X), r"has the form \[\*\], but init has \*"),
        (bad(lambda h, x: ({"b": h["a"]}, None), {"a": H}, xs=X), r"\{'b': \*\}.*\{'a': \*\}"),
        (
            bad(lambda h, x: (te.compute((2,), lambda i: h[i]), None), H, xs=X),
            r"float64\(3,\) in init \(x0\).*returns float64\(2,\)",
        ),
        (
            bad(lambda h, x: (te.compute((3,), lambda i: h[i].astype("float32")), None), H, xs=X),
            "float64.*returns float32",
        ),
        (bad(lambda h, x: (h, 1.0), H, xs=X), "the y of scan must be a te.Tensor, got float"),
        (bad(cell, 0.0, xs=X), "init must be a te.Tensor, got float"),
        (bad(cell, H, xs=X, length=2.5), "length must be an int"),
        (bad(cell, H, length=-1), "length is -1"),
        (bad(cell, H, xs=X, reverse=1), "reverse must be True or False"),
        (bad(cell, H, xs=X, checkpoint=0), "checkpoint must be None, a number k"),
        (bad(cell, H, xs=X, checkpoint="often"), "checkpoint must be None, a number k"),
    ],
)
def test_bad_input(call, words: str) -> None:
    with pytest.raises(ad.InvalidArgumentError, match=words):
        call()


def test_reads_outside_of_a_step_are_refused() -> None:
    with pytest.raises(ad.OutOfBoundsError):
        ad.scan(lambda h, x: (te.compute((3,), lambda i: h[i + 7]), None), H, X)


def test_an_opaque_stage_in_a_step_has_no_derivative() -> None:
    def step(h, x):
        def body(ins, outs):
            return tvm.tirx.BufferStore(outs[0], ins[0][0], [0])

        unknown = te.extern([(3,)], [h], body, name="unknown", dtype=[D])
        return each(lambda a: a, unknown), None

    last, _ = ad.scan(step, H, X)
    with pytest.raises(ad.NotDifferentiableError, match="unknown"):
        ad.vjp(last, H, te.placeholder((3,), D))
    with pytest.raises(ad.NotDifferentiableError, match="unknown"):
        ad.jvp(last, H, te.placeholder((3,), D))


MODES = {
    "reverse over reverse": lambda out, x, t: ad.differentiate(ad.differentiate(out, [x])[0], [x]),
    "forward over reverse": lambda out, x, t: ad.jvp(ad.differentiate(out, [x])[0], x, t),
    "reverse over forward": lambda out, x, t: ad.differentiate(ad.jvp(out, x, t)[0], [x]),
    "Hessian times vector": lambda out, x, t: ad.hvp(out, x, t),
}


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", [None, 2])
@pytest.mark.parametrize("mode", MODES)
def test_second_derivatives_of_loops_in_loops(mode: str, checkpoint: int | None) -> None:
    """s·p⁶ by p, twice: a loop inside is left whose only reader was left out of another one."""
    s, p, t = (te.placeholder((), D, name=name) for name in "spt")

    def inner(u, _):
        return te.compute((), lambda: u() * p(), name="u"), None

    def outer(c, _):
        return ad.scan(inner, c, length=3, checkpoint=checkpoint)[0], None

    out, _ = ad.scan(outer, s, length=2)
    [second] = MODES[mode](out, p, t)
    function = ad.build([s, p, t], second, cache=False)
    assert function(np.float64(2), np.float64(1.5), np.float64(1)) == 2 * 30 * 1.5**4
