"""What leaves a loop over time, what stays, and that values do not change."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.transforms.loops.recurrences import CASES, D, each, total
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.kinds.kind import kind_of
from tvm_autodiff.graph.kinds.loop import Loop, loop_stage, step_of
from tvm_autodiff.graph.stage import reduction_of
from tvm_autodiff.schedule.rewrites.loops.hoisting import without_loop_invariants


def placeholders(**shapes: tuple) -> list[te.Tensor]:
    return [te.placeholder(shape, D, name=name) for name, shape in shapes.items()]


def loops_in(tensors) -> list[Loop]:
    kinds = [kind_of(op) for op in topological(tensors)]
    return [kind for kind in kinds if isinstance(kind, Loop)]


def sums_in(tensors) -> list[str]:
    """The names of the reductions, producers first."""
    return [op.name for op in topological(tensors) if reduction_of(op) is not None]


def product(w: te.Tensor, x: te.Tensor, name: str) -> te.Tensor:
    k = te.reduce_axis((0, w.shape[1]), "k")
    return te.compute((w.shape[0],), lambda i: te.sum(w[i, k] * x[k], axis=k), name=name)


def check_values(outputs, inputs, gain: int = 8) -> None:
    rng = np.random.default_rng(0)
    values = [rng.uniform(-0.5, 0.5, [int(n) for n in t.shape]) for t in inputs]
    pairs = list(zip(inputs, values, strict=True))
    moved = without_loop_invariants(outputs, gain)
    found, wanted = evaluate_graph(moved, pairs), evaluate_graph(outputs, pairs)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


def network(reverse: bool = False):
    h0, xs, w, u, v = placeholders(h0=(16,), xs=(5, 12), w=(16, 16), u=(16, 12), v=(10, 16))

    def cell(h, x):
        read, recurrent = product(u, x, "read"), product(w, h, "recurrent")
        new = each(lambda a, b: te.tanh(a + b), read, recurrent)
        return new, product(v, new, "written")

    return list(ad.scan(cell, h0, xs, reverse=reverse)), [h0, xs, w, u, v]


@pytest.mark.parametrize("reverse", [False, True])
def test_products_with_inputs_leave_before_and_those_of_results_after(reverse: bool) -> None:
    outputs, inputs = network(reverse)
    moved = without_loop_invariants(outputs)
    [loop] = loops_in(moved)
    assert sums_in(loop.step.outputs) == ["recurrent"]
    assert sums_in(moved) == ["read", "written"]
    assert {tuple(map(int, t.shape)) for t in moved} == {(16,), (5, 10)}
    check_values(outputs, inputs)


def test_the_gradient_of_a_result_enters_as_one_product() -> None:
    [_, ys], inputs = network()
    bar = te.placeholder(ys.shape, D, name="bar")
    gradient = list(ad.vjp(ys, inputs, bar))
    backward = loops_in(without_loop_invariants(gradient))[-1]
    assert backward.reverse
    assert len(sums_in(backward.step.outputs)) == 1  # by the recurrent weights
    check_values(gradient, [*inputs, bar])


def test_what_is_computed_from_a_product_leaves_with_it() -> None:
    h0, xs, u = placeholders(h0=(9,), xs=(4, 9), u=(9, 9))

    def cell(h, x):
        read = each(lambda a: te.exp(a) + 1.0, product(u, x, "read"))
        return each(lambda a, h: a * h, read, h), None

    outputs = [ad.scan(cell, h0, xs)[0]]
    [loop] = loops_in(without_loop_invariants(outputs))
    assert len(topological(loop.step.outputs)) == 1 + len(loop.step.inputs)
    check_values(outputs, [h0, xs, u])


def test_cheap_work_stays() -> None:
    """Neither arithmetic on elements nor a sum that reads as much as would be stored."""
    h0, xs, c = placeholders(h0=(16,), xs=(5, 16), c=(16,))

    def cell(h, x):
        scaled = each(lambda x, c: x * c, x, c)
        new = each(lambda h, s: h * 0.5 + s, h, scaled)
        return new, total(each(lambda n, c: n * c, new, c))

    outputs = list(ad.scan(cell, h0, xs))
    [loop] = loops_in(without_loop_invariants(outputs))
    assert len(loop.step.xs) == 1
    assert sums_in(loop.step.outputs) == ["total"]
    check_values(outputs, [h0, xs, c])


def test_a_product_of_the_carry_stays() -> None:
    outputs, _ = network()
    before = loops_in([outputs[0]])[0]
    again = loops_in(without_loop_invariants([without_loop_invariants(outputs)[0]]))[0]
    assert len(sums_in(before.step.outputs)) == 3
    assert sums_in(again.step.outputs) == ["recurrent"]


def test_what_is_the_same_at_all_times_is_computed_once() -> None:
    """Of whatever size; a step that was written as one has no such stages, a derived one may."""
    h0, w, v = placeholders(h0=(3,), w=(3, 3), v=(3,))
    h, inner_w, inner_v = placeholders(h=(3,), w=(3, 3), v=(3,))
    fixed = each(lambda a: te.exp(a), product(inner_w, inner_v, "fixed"))
    new = each(lambda h, f: h * 0.5 + f, h, fixed)
    step = step_of([h], [], [inner_w, inner_v], [new], [])
    outputs = loop_stage("loop", Loop(step, (h0,), (), (w, v), 4))
    moved = without_loop_invariants(outputs)
    [loop] = loops_in(moved)
    assert [op.name for op in topological(loop.step.outputs) if op.input_tensors] == ["e"]
    assert "fixed" in sums_in(moved)
    check_values(outputs, [h0, w, v])


def test_loops_in_loops() -> None:
    h0, xs, u = placeholders(h0=(9,), xs=(3, 4, 9), u=(9, 9))

    def row(h, x):
        def element(s, e):
            return each(lambda s, a: te.sin(s) + a, s, product(u, e, "read")), None

        return ad.scan(element, h, x)[0], None

    outputs = [ad.scan(row, h0, xs)[0]]
    [outer] = loops_in(without_loop_invariants(outputs))
    [inner] = loops_in(outer.step.outputs)
    assert sums_in(inner.step.outputs) == []
    check_values(outputs, [h0, xs, u])


def test_nothing_leaves_a_loop_that_is_to_keep_carries_only() -> None:
    h0, xs, u = placeholders(h0=(9,), xs=(4, 9), u=(9, 9))

    def cell(h, x):
        return each(lambda h, a: te.sin(h) + a, h, product(u, x, "read")), None

    outputs = [ad.scan(cell, h0, xs, checkpoint=1)[0]]
    [loop] = loops_in(without_loop_invariants(outputs))
    assert sums_in(loop.step.outputs) == ["read"]
    check_values(outputs, [h0, xs, u])


def test_symbolic_sizes() -> None:
    t, n = te.var("t"), te.var("n")
    h0, xs, u = placeholders(h0=(n,), xs=(t, n), u=(n, n))

    def cell(h, x):
        return each(lambda h, a: te.tanh(h + a), h, product(u, x, "read")), None

    outputs = [ad.scan(cell, h0, xs)[0]]
    [loop] = loops_in(without_loop_invariants(outputs))
    assert sums_in(loop.step.outputs) == []
    program = ad.build([h0, xs, u], outputs[0])
    rng = np.random.default_rng(0)
    for times_, size in ((0, 2), (3, 4)):
        given = [rng.standard_normal(s) for s in ((size,), (times_, size), (size, size))]
        want = given[0]
        for x in given[1]:
            want = np.tanh(want + given[2] @ x)
        np.testing.assert_allclose(program(*given), want, rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_values_of_recurrences_and_of_their_gradients(name: str) -> None:
    """With all work leaving that may."""
    case = CASES[name]
    inputs = [te.placeholder(s, D, name=f"x{n}") for n, s in enumerate(case.shapes)]
    outputs = case.ours(*inputs)
    bars = [te.placeholder(t.shape, D, name="bar") for t in outputs]
    gradient = list(ad.vjp(outputs, inputs, bars))
    check_values([*outputs, *gradient], [*inputs, *bars], gain=1)


def test_results_that_depend_on_no_carry_leave() -> None:
    """A copy of a sequence, arithmetic on one, and what is the same at all times."""
    h0, xs, c = placeholders(h0=(3,), xs=(4, 3), c=(3,))

    def cell(h, x):
        fixed = each(lambda c: c + 1.0, c)
        return each(lambda h, x: h * x, h, x), (x, each(lambda x: x * 2.0, x), h, fixed)

    last, ys = ad.scan(cell, h0, xs)
    outputs = [last, *ys]
    [loop] = loops_in(without_loop_invariants(outputs))
    assert len(loop.step.ys) == 1
    check_values(outputs, [h0, xs, c])


@pytest.mark.parametrize("length", [0, 1, 3])
def test_lengths_of_loops_that_work_has_left(length: int) -> None:
    h0, xs, u = placeholders(h0=(9,), xs=(length, 9), u=(9, 9))

    def cell(h, x):
        new = each(lambda h, a: te.tanh(h + a), h, product(u, x, "read"))
        return new, product(u, new, "written")

    outputs = list(ad.scan(cell, h0, xs))
    bar = te.placeholder(outputs[1].shape, D, name="bar")
    gradient = list(ad.vjp(outputs[1], [h0, xs, u], bar))
    rng = np.random.default_rng(0)
    inputs = [h0, xs, u, bar]
    values = [rng.standard_normal([int(n) for n in t.shape]) for t in inputs]
    found = ad.build(inputs, [*outputs, *gradient], cache=False)(*values)
    wanted = evaluate_graph([*outputs, *gradient], list(zip(inputs, values, strict=True)))
    for one, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-11, atol=1e-13)


def decays(inside):
    """A step that multiplies by ``exp(x_t[i]*f(a))``, where `inside` makes f from ``a[j]``."""
    h0, xs, a = placeholders(h0=(8, 6), xs=(5, 8), a=(6,))

    def step(h, x):
        body = lambda i, j: te.exp(x[i] * inside(a, i, j)) * h[i, j] + x[i]  # noqa: E731
        return te.compute((8, 6), body, name="new"), None

    return list(ad.scan(step, h0, xs)[:1]), [h0, xs, a]


#: case → (what a step computes, what has a stage outside of the loop)
INVARIANT = {
    "a function": (lambda a, i, j: -te.exp(a[j]), ["new_values"]),
    "two functions": (lambda a, i, j: te.exp(a[j]) * te.log(te.exp(a[0]) + 2.0), ["new_values"]),
    "a function of a place, too": (
        lambda a, i, j: te.sin(a[j] * i.astype(D)),
        ["new_values"],
    ),
    "in bounds under a condition only": (
        lambda a, i, j: te.if_then_else(j > 0, te.exp(a[j - 1]), 0.5),
        [],
    ),
    "cheap": (lambda a, i, j: a[j] * 2.0, []),
}


@pytest.mark.parametrize("name", INVARIANT)
def test_functions_that_no_step_changes_are_computed_once(name: str) -> None:
    inside, stages = INVARIANT[name]
    outputs, inputs = decays(inside)
    moved = without_loop_invariants(outputs)
    outside = [op.name for op in topological(moved) if "values" in op.name]
    assert outside == stages
    check_values(outputs, inputs)
    head = te.compute((8, 6), lambda i, j: te.const(1.5, D) - j.astype(D), name="head")
    check_values(list(ad.differentiate(outputs[0], inputs, head)), inputs)


def test_values_over_wide_axes_are_computed_once() -> None:
    size = tirx.IntImm("int64", 8)
    h0, xs, a = placeholders(h0=(8,), xs=(5, 8), a=(8,))

    def step(h, x):
        body = lambda i: te.tanh(h[i] * te.exp(a[(i + 3) % 8])) + x[i]  # noqa: E731
        return te.compute((size,), body, name="new"), None

    outputs = list(ad.scan(step, h0, xs)[:1])
    moved = without_loop_invariants(outputs)
    assert [op.name for op in topological(moved) if "values" in op.name] == ["new_values"]
    check_values(outputs, [h0, xs, a])


def test_one_stage_for_equal_values() -> None:
    """Stages of a step whose reads have changed stay ones that a step changes."""
    h0, xs, a = placeholders(h0=(8,), xs=(5, 8), a=(8,))

    def step(h, x):
        first = te.compute((8,), lambda i: te.tanh(h[i] * te.exp(a[i])) + x[i], name="first")
        return te.compute((8,), lambda k: te.tanh(first[k]) * te.exp(a[k]), name="second"), None

    outputs = list(ad.scan(step, h0, xs)[:1])
    moved = without_loop_invariants(outputs)
    assert [op.name for op in topological(moved) if "values" in op.name] == ["first_values"]
    [loop] = loops_in(moved)
    assert [op.name for op in topological(loop.step.news) if "values" in op.name] == [
        "first_values"
    ]
    check_values(outputs, [h0, xs, a])
