"""`build_vjp`: values of both passes, budgets, checkpoints, symbolic sizes, order 2, bad input."""

from __future__ import annotations

from functools import cache, reduce

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.partition.programs import CASES, Case, D
from tvm_autodiff.partition import VjpFunctions


def plain(value):
    return value


def built(case: Case, mark=plain, **options) -> VjpFunctions:
    tensors = case.tensors()
    return ad.build_vjp(tensors, case.make(mark, *tensors), cache=False, **options)


@cache
def of_case(name: str) -> VjpFunctions:
    """What `built` makes of a case, for all tests that call it."""
    return built(CASES[name])


def cotangents_of(values) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.uniform(-1, 1, np.shape(value)) for value in values]


@cache
def by_jax(name: str, marked: bool):
    """Outputs and adjoints of JAX, of layers under `jax.checkpoint` where they are marked."""
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    case = CASES[name]

    def function(*arrays):
        return case.jax(jax.checkpoint if marked else plain, jax.numpy, *arrays)

    values, pull = jax.vjp(jax.jit(function), *case.arrays())
    return values, pull([jax.numpy.asarray(c) for c in cotangents_of(values)])


def agrees(functions: VjpFunctions, name: str, marked: bool = False) -> int:
    """The number of bytes that were kept, after both passes gave what JAX gives."""
    arrays = CASES[name].arrays()
    values, residuals = functions.forward(*arrays)
    wanted_values, wanted = by_jax(name, marked)
    for found, value in zip(values, wanted_values, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-10, atol=1e-12)
    adjoints = functions.backward(residuals, *cotangents_of(values))
    for found, value in zip(adjoints, wanted, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-10, atol=1e-12)
    return sum(r.nbytes for r in residuals if not any(r is array for array in arrays))


@pytest.mark.parametrize("name", CASES)
def test_both_passes_agree_with_jax(name: str) -> None:
    functions = of_case(name)
    assert agrees(functions, name) == functions.residuals.kept_bytes


@pytest.mark.parametrize("name", CASES)
def test_both_passes_agree_with_differentiate(name: str) -> None:
    case = CASES[name]
    tensors, arrays = case.tensors(), case.arrays()
    outputs = case.make(plain, *tensors)
    forward, backward = of_case(name)
    values, residuals = forward(*arrays)
    heads = [te.placeholder(o.shape, D, f"head{n}") for n, o in enumerate(outputs)]
    given = cotangents_of(values)
    pairs = list(zip([*tensors, *heads], [*arrays, *given], strict=True))
    wanted = evaluate_graph(list(ad.vjp(outputs, tensors, heads)), pairs)
    for found, value in zip(backward(residuals, *given), wanted, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_budget_is_exceeded_and_more_bytes_are_never_more_work(name: str) -> None:
    """All budgets that matter are planned for; the tightest and one between are run."""
    from tvm_autodiff.partition.choice import choose
    from tvm_autodiff.partition.joint import Sizes, joint

    case = CASES[name]
    tensors = case.tensors()
    outputs = case.make(plain, *tensors)
    heads = [te.placeholder(o.shape, D, f"head{n}") for n, o in enumerate(outputs)]
    program = joint(outputs, list(ad.vjp(outputs, tensors, heads)), heads, Sizes({}))
    most = choose(program, Sizes({}), 10**9)
    assert most.iterations == 0
    before = None
    for budget in np.linspace(0, most.kept_bytes, 12, dtype=int):
        found = choose(program, Sizes({}), int(budget))
        assert found.kept_bytes <= budget
        assert found.exact
        assert before is None or found.iterations <= before
        before = found.iterations
    assert before == 0
    for budget in (0, most.kept_bytes // 2):
        functions = built(case, memory_budget=budget)
        assert agrees(functions, name) == functions.residuals.kept_bytes <= budget


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("budget", [None, 100_000])
def test_a_checkpoint_is_never_kept(name: str, budget: int | None) -> None:
    marks = []

    def mark(tensor):
        marks.append(tensor)
        return ad.checkpoint(tensor)

    functions = built(CASES[name], mark, memory_budget=budget)
    names = {tensor.op.name for tensor in marks}
    kept = {tensor.op.name for tensor in functions.residuals.of("kept")}
    again = {tensor.op.name for tensor in functions.residuals.of("recomputed")}
    assert names
    assert again & names
    assert not kept & (names | {f"{name}_checkpoint" for name in names})
    agrees(functions, name, marked=True)


@pytest.mark.parametrize("marked", [False, True])
def test_order_2(marked: bool) -> None:
    """The passes of a gradient: its pullback is a Hessian times a vector."""
    x, v = te.placeholder((6,), D, "x"), np.linspace(-1, 1, 6)
    t = te.compute((6,), lambda i: te.exp(x[i]) * x[5 - i], "t")
    t = ad.checkpoint(t) if marked else t
    k = te.reduce_axis((0, 6), "k")
    y = te.compute((), lambda: te.sum(te.sin(t[k]) * t[k], axis=k), "y")
    [gradient] = ad.differentiate(y, x)
    functions = ad.build_vjp(x, gradient, x, cache=False)
    at = np.linspace(0.1, 0.9, 6)
    value, residuals = functions.forward(at)
    [wanted, hessian] = evaluate_graph([gradient, ad.hessian(y, x)], [(x, at)])
    np.testing.assert_allclose(value, wanted, rtol=1e-12)
    np.testing.assert_allclose(functions.backward(residuals, v), hessian @ v, rtol=1e-10)
    if marked:
        assert not {"t", "t_again"} & {t.op.name for t in functions.residuals.of("kept")}


def test_the_backward_program_is_differentiated_again() -> None:
    """What a bridge does for a second order: the vjp of the backward pass by all that it reads."""
    case, functions = CASES["mlp"], of_case("mlp")
    program = functions.backward.program
    second = ad.build_vjp(program.inputs, program.outputs, cache=False)
    arrays = case.arrays()
    values, residuals = functions.forward(*arrays)
    heads = cotangents_of(values)
    adjoints, more = second.forward(*residuals, *heads)
    for found, value in zip(adjoints, functions.backward(residuals, *heads), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-12)
    pulled = second.backward(more, *adjoints)
    step = 1e-6
    for number, (given, found) in enumerate(zip([*residuals, *heads], pulled, strict=True)):
        move = np.random.default_rng(number).uniform(-1, 1, np.shape(given))
        ends = []
        for sign in (1, -1):
            moved = [*residuals, *heads]
            moved[number] = given + sign * step * move
            ends.append(functions.backward.function(*moved))
        slope = sum(
            float(np.sum(a * (high - low))) for a, high, low in zip(adjoints, *ends, strict=True)
        )
        np.testing.assert_allclose(np.sum(found * move), slope / (2 * step), rtol=1e-6, atol=1e-8)


def test_what_the_time_model_keeps() -> None:
    """Cheap arithmetic on what is read anyway is computed again; a product of matrices is kept."""
    functions = of_case("mlp")
    assert [t.op.name for t in functions.residuals.of("kept")] == ["h0", "h1"]
    x = te.placeholder((50,), D, "x")
    doubled = te.compute((50,), lambda i: x[i] * 2.0 + 1.0, "doubled")
    k = te.reduce_axis((0, 50), "k")
    y = te.compute((), lambda: te.sum(doubled[k] * x[k], axis=k), "y")
    residuals = ad.build_vjp(x, y, cache=False).residuals
    assert [(r.kind, r.tensor.op.name) for r in residuals.rows] == [
        ("input", "x"),
        ("recomputed", "doubled"),
    ]


def test_several_outputs_and_an_output_that_is_a_residual() -> None:
    x = te.placeholder((4,), D, "x")
    y = te.compute((4,), lambda i: te.exp(x[i]), "y")
    z = te.compute((4,), lambda i: y[i] * y[3 - i], "z")
    place = te.compute((4,), lambda i: i * 2, "place")
    functions = ad.build_vjp(x, [y, x, z, z, place], cache=False)
    at = np.linspace(0, 1, 4)
    values, residuals = functions.forward(at)
    assert len(values) == 5
    np.testing.assert_array_equal(values[1], at)
    np.testing.assert_array_equal(values[2], values[3])
    assert any(residual is values[0] for residual in residuals)
    heads = cotangents_of(values[:4])
    [found] = functions.backward(residuals, *heads, None)
    both = heads[2] + heads[3]
    wanted = heads[1] + np.exp(at) * (heads[0] + (both + both[::-1]) * np.exp(at[::-1]))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_symbolic_sizes_are_told_by_inputs() -> None:
    """The backward pass of a sum reads no input, but needs the size that only the input tells."""
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((n, m), D, "x")
    k = te.reduce_axis((0, m), "k")
    y = te.compute((n,), lambda i: te.sum(x[i, k], axis=k), "y")
    functions = ad.build_vjp(x, y, x, cache=False)
    at = np.ones((3, 5))
    _, residuals = functions.forward(at)
    head = np.arange(3.0)
    found = functions.backward(residuals, head)
    np.testing.assert_array_equal(found, np.tile(head[:, None], (1, 5)))
    assert residuals[0] is at
    assert functions.residuals.kept_bytes == 0


@pytest.mark.slow
def test_a_budget_for_symbolic_sizes() -> None:
    n = te.var("n")
    x = te.placeholder((n,), D, "x")
    t = te.compute((n,), lambda i: te.exp(x[i]), "t")
    u = te.compute((n,), lambda i: te.sin(t[i]) * t[i], "u")
    with pytest.raises(ad.InvalidArgumentError, match=r"t has a symbolic shape.*sizes="):
        ad.build_vjp(x, u, x, memory_budget=100)
    assert "count as 64" in ad.build_vjp(x, u, x, cache=False).explain()
    at = np.linspace(0, 1, 10)
    for budget, kept in ((79, 0), (80, 80)):
        functions = ad.build_vjp(x, u, x, memory_budget=budget, sizes={"n": 10}, cache=False)
        assert functions.residuals.kept_bytes == kept
        _, residuals = functions.forward(at)
        t_at = np.exp(at)
        np.testing.assert_allclose(
            functions.backward(residuals, np.ones(10)),
            (np.cos(t_at) * t_at + np.sin(t_at)) * t_at,
            rtol=1e-12,
        )


def test_opaque_stages_are_kept_or_computed_again() -> None:
    """A scatter, and the place of a maximum, on the way."""
    x = te.placeholder((8,), D, "x")
    at = te.placeholder((8,), "int32", "at")
    squares = te.compute((8,), lambda i: x[i] * x[i], "squares")
    added = ad.scatter_add(squares, at, (3,))
    y = te.compute((3,), lambda i: te.exp(added[i]) * added[2 - i], "y")
    places = np.array([0, 2, 1, 1, 0, 2, 2, 0], "int32")
    values = np.linspace(-1, 1, 8)
    heads = np.array([1.0, -2.0, 0.5])
    results = []
    for budget in (None, 0, 10**6):
        functions = ad.build_vjp([x, at], y, x, memory_budget=budget, cache=False)
        _, residuals = functions.forward(values, places)
        results.append(functions.backward(residuals, heads))
    sums = np.bincount(places, values**2)
    by_sum = heads * np.exp(sums) * sums[::-1] + (heads * np.exp(sums))[::-1]
    for found in results:
        np.testing.assert_allclose(found, by_sum[places] * 2 * values, rtol=1e-12)


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("budget", [None, 0])
def test_a_custom_rule_is_what_the_backward_pass_does(marked: bool, budget: int | None) -> None:
    """Its outputs may be kept, its stages are computed again: the rule is not found by them."""

    @ad.custom_vjp
    def root(a):
        def better(y):
            return te.compute(a.shape, lambda i: 0.5 * (y[i] + a[i] / y[i]), "y")

        return reduce(lambda y, _: better(y), range(6), a)

    @root.defvjp
    def tripled(outputs, inputs, cotangents):
        [y], [g] = outputs, cotangents
        return [te.compute(y.shape, lambda i: 3.0 * g[i] / (2.0 * y[i]), "da")]

    x = te.placeholder((5,), D, "x")
    r = root(x)
    r = ad.checkpoint(r) if marked else r
    z = te.compute((5,), lambda i: te.exp(r[i]) * r[4 - i], "z")
    forward, backward = ad.build_vjp(x, z, x, memory_budget=budget, cache=False)
    at, head = np.linspace(1, 2, 5), np.linspace(-1, 1, 5)
    value, residuals = forward(at)
    y = np.sqrt(at)
    np.testing.assert_allclose(value, np.exp(y) * y[::-1], rtol=1e-12)
    by_y = head * np.exp(y) * y[::-1] + (head * np.exp(y))[::-1]
    np.testing.assert_allclose(backward(residuals, head), 3 * by_y / (2 * y), rtol=1e-12)


def test_names_and_texts() -> None:
    functions = built(CASES["attention"], memory_budget=0)
    assert "the least for 0 bytes" in functions.explain()
    assert "recomputed" in functions.explain()
    assert "passed on" in functions.explain()
    arrays = dict(zip("qkv", CASES["attention"].arrays(), strict=True))
    values, _ = functions.forward(**arrays)
    assert len(values) == 2


X = te.placeholder((3,), D, "x")
Y = te.compute((3,), lambda i: te.exp(X[i]), "y")
N = te.compute((3,), lambda i: i, "n")
SIZED = te.placeholder((te.var("n"),), D, "sized")
SIZED_Y = te.compute(SIZED.shape, lambda i: te.exp(SIZED[i]), "sized_y")
BAD = {
    "a negative budget": (lambda: ad.build_vjp(X, Y, memory_budget=-1), "the minimum is 0"),
    "a share": (lambda: ad.build_vjp(X, Y, memory_budget=0.5), "number of bytes, got 0.5"),
    "no output": (lambda: ad.build_vjp(X, []), "outputs is empty"),
    "no float output": (lambda: ad.build_vjp(X, N), "n has dtype int32"),
    "nothing to differentiate by": (
        lambda: ad.build_vjp(te.placeholder((3,), "int32", "i"), Y), "no input is floating point",
    ),
    "sizes": (lambda: ad.build_vjp(X, Y, sizes=[3]), "sizes must be a dictionary"),
    "a size": (lambda: ad.build_vjp(X, Y, sizes={"n": "m"}), "names of symbolic sizes"),
    "a size of another name": (
        lambda: ad.build_vjp(SIZED, SIZED_Y, sizes={"m": 3}), "no input has a symbolic size 'm'",
    ),
    "a negative size": (
        lambda: ad.build_vjp(SIZED, SIZED_Y, sizes={"n": -3}), "n is a size of dtype int32.*-3",
    ),
    "a size that its dtype cannot hold": (
        lambda: ad.build_vjp(SIZED, SIZED_Y, sizes={"n": 2**31}), "dtype int32.*2147483648",
    ),
    "a missing input": (
        lambda: ad.build_vjp([], Y, X), "x is read by the outputs but is not among the inputs",
    ),
    "a mark on nothing": (lambda: ad.checkpoint("x"), "takes a te.Tensor or an expression"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    call, message = BAD[name]
    with pytest.raises(ad.AutodiffError, match=message):
        call()


def test_bad_calls() -> None:
    forward, backward = ad.build_vjp(X, [Y, N], cache=False)
    _, residuals = forward(np.ones(3))
    one = np.ones(3)
    with pytest.raises(ad.CallError, match=r"returns 1 arrays \(y\), but got 2"):
        backward([*residuals, one], one, None)
    for wrong in (None, 3, one):
        with pytest.raises(ad.CallError, match="residuals must be what the forward pass returned"):
            backward(wrong, one, None)
    with pytest.raises(ad.CallError, match="there are 2 outputs"):
        backward(residuals, one)
    with pytest.raises(ad.CallError, match="cotangent of y is None: pass zeros"):
        backward(residuals, None, None)
    with pytest.raises(ad.CallError, match="n is not floating point"):
        backward(residuals, one, one)
    with pytest.raises(ad.CallError):
        backward(residuals, np.ones(4), None)
