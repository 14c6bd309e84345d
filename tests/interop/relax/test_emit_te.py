"""`emit_te`, `differentiable` and `clean`: te functions in Relax, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx, topi

import tvm_autodiff as ad
from tests.interop.relax.checks import called, check_gradient, machine, weighted_sum
from tvm_autodiff.interop.relax import clean, differentiable, emit_te

R = relax.op
RNG = np.random.default_rng(0)


def param(name, shape, dtype="float64"):
    return relax.Var(name, relax.TensorType(shape, dtype))


def module_of(body, params):
    """A module whose ``main`` returns the sum of what a function emits."""
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(R.sum(body(builder, *params)))
        builder.emit_func_output(result)
    return builder.get()


def checked(body, params, arrays, prepare=lambda module: module):
    check_gradient(prepare(module_of(body, params)), arrays, 1e-7, 1e-3, finish=clean)


def softsign(x):
    return te.compute(x.shape, lambda *i: x(*i) / (1.0 + te.abs(x(*i))), name="softsign")


def banded(x, w, scale):
    k = te.reduce_axis((0, w.shape[0]), "k")
    width = x.shape[1] - w.shape[0] + 1
    return te.compute(
        (x.shape[0], width), lambda i, j: te.sum(x[i, j + k] * w[k] * scale, k), name="banded"
    )


def test_arguments_of_all_kinds():
    params = [param("x", (3, 6)), param("w", (4,))]
    arrays = [RNG.standard_normal((3, 6)), RNG.standard_normal(4)]
    checked(lambda b, x, w: emit_te(b, banded, x, w=w, scale=2.5), params, arrays)


def test_symbolic_sizes():
    n = tirx.Var("n", "int64")
    params = [param("x", (n, 6)), param("w", (4,))]

    def body(builder, x, w):
        return emit_te(builder, softsign, emit_te(builder, banded, x, w, 0.5))

    module = module_of(body, params)
    for size in (1, 5):
        arrays = [RNG.standard_normal((size, 6)), RNG.standard_normal(4)]
        check_gradient(module, arrays, 1e-7, 1e-3, finish=clean)


def test_a_list_of_arguments_and_several_results():
    def halves(tensors):
        left, right = tensors
        both = te.compute(left.shape, lambda i: left[i] * right[i], name="both")
        return [both, te.compute(left.shape, lambda i: both[i] + left[i], name="more")]

    def body(builder, x, y):
        pair = emit_te(builder, halves, [x, y])
        return builder.emit(R.multiply(pair[0], R.sin(pair[1])))

    arrays = [RNG.standard_normal(5), RNG.standard_normal(5)]
    checked(body, [param("x", (5,)), param("y", (5,))], arrays)


def test_a_size_that_no_argument_has():
    n = tirx.Var("n", "int64")

    def tiled(x, size):
        return te.compute((size, 3), lambda i, j: x[j] * te.sin(x[(i + j) % 3]), name="tiled")

    builder = relax.BlockBuilder()
    x, shape = param("x", (3,)), relax.Var("shape", relax.ShapeType([n]))
    with builder.function("main", [x, shape]):
        with builder.dataflow():
            result = builder.emit_output(R.sum(emit_te(builder, tiled, x, n)))
        builder.emit_func_output(result)
    adjoint = clean(relax.transform.Gradient("main", [x])(builder.get()))
    assert len(adjoint.functions) == 4


def test_integers_get_no_gradient():
    def picked(table, rows):
        return te.compute(
            (rows.shape[0],), lambda i: table[rows[i]] * table[rows[i]], name="picked"
        )

    arrays = [RNG.standard_normal(6), np.array([1, 4, 1, 0], "int64")]
    params = [param("table", (6,)), param("rows", (4,), "int64")]
    checked(lambda b, t, r: emit_te(b, picked, t, r), params, arrays)


def test_custom_rules_are_followed():
    @ad.custom_vjp
    def identity(x):
        return te.compute(x.shape, lambda i: x[i] * 1.0, name="same")

    @identity.defvjp
    def threefold(outputs, inputs, cotangents):
        [g] = cotangents
        return [te.compute(g.shape, lambda i: 3.0 * g[i], name="threefold")]

    module = module_of(lambda b, x: emit_te(b, lambda x: identity(x), x), [param("x", (4,))])
    adjoint = clean(relax.transform.Gradient("main")(module))
    [gradient] = called(machine(adjoint), "main_adjoint", [np.arange(4.0)])[1]
    np.testing.assert_array_equal(gradient.numpy(), np.full(4, 3.0))


def test_scans_and_scatters():
    def decayed(x, rows):
        start = te.compute((3,), lambda i: 0.0 * x[0, i], name="start")

        def step(state, row):
            new = te.compute((3,), lambda i: 0.5 * state[i] + te.sin(row[i]), name="new")
            return new, new

        _, states = ad.scan(step, start, x)
        return ad.segment_sum(states, rows, 4)

    arrays = [RNG.standard_normal((5, 3)), np.array([0, 2, 2, 3, 0], "int32")]
    params = [param("x", (5, 3)), param("rows", (5,), "int32")]
    checked(lambda b, x, r: emit_te(b, decayed, x, r), params, arrays)


def test_reducers_of_the_user():
    def smooth(x):
        combine = te.comm_reducer(
            lambda a, b: te.log(te.exp(a) + te.exp(b)), lambda dtype: tirx.const(-1e30, dtype)
        )
        k = te.reduce_axis((0, 4), "k")
        return te.compute((3,), lambda i: combine(x[i, k], axis=k), name="smooth")

    checked(lambda b, x: emit_te(b, smooth, x), [param("x", (3, 4))], [RNG.standard_normal((3, 4))])


def test_the_second_of_two_functions_with_a_name_has_its_own_rule():
    def with_factor(factor):
        @ad.custom_vjp
        def scaled(x):
            return te.compute(x.shape, lambda i: x[i], name="scaled")

        scaled.defvjp(
            lambda outputs, inputs, cotangents: [
                te.compute((2,), lambda i: factor * cotangents[0][i], name="g")
            ]
        )
        return lambda x: scaled(x)

    for factor in (2.0, 5.0):
        body = with_factor(factor)
        module = module_of(
            lambda b, x, body=body: emit_te(b, body, x, name="f"), [param("x", (2,))]
        )
        adjoint = clean(relax.transform.Gradient("main")(module))
        [gradient] = called(machine(adjoint), "main_adjoint", [np.ones(2)])[1]
        np.testing.assert_array_equal(gradient.numpy(), np.full(2, factor))


def test_a_module_read_from_text_is_differentiated():
    module = module_of(lambda b, x: emit_te(b, softsign, x), [param("x", (4,))])
    again = tvm.ir.load_json(tvm.ir.save_json(module))
    check_gradient(again, [RNG.standard_normal(4)], 1e-7, 1e-3, finish=clean)


def test_differentiable_reads_functions_back():
    arrays = [RNG.uniform(0.5, 1.0, (3, 4)), RNG.standard_normal(4)]

    def body(builder, x, w):
        rows = builder.emit_te(topi.nn.softmax, x)
        return builder.emit_te(topi.multiply, builder.emit_te(topi.log, rows), w)

    checked(body, [param("x", (3, 4)), param("w", (4,))], arrays, differentiable)


def test_differentiable_after_legalising():
    arrays = [RNG.standard_normal((3, 4))]
    module = weighted_sum(lambda x: R.nn.gelu(x), [param("x", (3, 4))])
    legal = differentiable(relax.transform.LegalizeOps()(module))
    check_gradient(legal, arrays, 1e-7, 1e-3, finish=clean)


def test_differentiable_takes_sizes_out_of_arguments():
    # `Gradient` itself looks for a binding of `n` in the second argument of reshape
    n = tirx.Var("n", "int64")

    def body(builder, x, w):
        flat = builder.emit(R.reshape(R.sin(x), (n * 6,)))
        flat = builder.emit(R.reshape(R.reshape(flat, (n, 3, 2)), (n * 3, 2)))
        return builder.emit(R.multiply(flat, R.broadcast_to(w, (n * 3, 2))))

    module = differentiable(module_of(body, [param("x", (n, 6)), param("w", (2,))]))
    assert "R.sin" in str(module)  # it stays an operator
    assert not any(name in str(module) for name in ("R.reshape", "R.broadcast_to"))
    for size in (1, 4):
        arrays = [RNG.standard_normal((size, 6)), RNG.standard_normal(2)]
        check_gradient(module, arrays, 1e-7, 1e-3, finish=clean)


def test_integer_results_are_passed_over():
    def body(builder, x):
        order = builder.emit_te(topi.argsort, x, dtype="int64")
        return builder.emit(R.multiply(x, R.astype(order, "float64")))

    arrays = [np.array([0.3, -0.5, 0.9, 0.1])]
    checked(body, [param("x", (4,))], arrays, differentiable)


def test_a_function_that_is_no_te_is_named():
    module = module_of(lambda b, x: b.emit_te(topi.sort, x), [param("x", (4,))])
    message = r"function sort has no gradient: block sort_cpu .*emit_te"
    with pytest.raises(ad.NotDifferentiableError, match=message):
        relax.transform.Gradient("main")(differentiable(module))


def test_clean_leaves_no_call_that_tvm_does_not_lower():
    module = module_of(lambda b, x: emit_te(b, softsign, x), [param("x", (4,))])
    module = module.with_attr("param_num", 1)
    assert "call_tir_with_grad" in str(module)
    assert "call_tir_with_grad" not in str(clean(module))
    assert int(clean(module).attrs["param_num"]) == 1
    value = called(machine(clean(module)), "main", [np.array([1.0, -1.0, 3.0, 0.0])])
    np.testing.assert_allclose(value.numpy(), 0.75)


@pytest.mark.parametrize("make", [clean, differentiable])
def test_passes_take_modules(make):
    with pytest.raises(ad.InvalidArgumentError, match="takes an IRModule, got int"):
        make(3)


def elsewhere(x):
    other = te.placeholder((4,), "float64", name="other")
    return te.compute((4,), lambda i: x[i] + other[i], name="sum")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x, "result 0 of f is the argument x itself: copy it"),
        (lambda x: 3, "f returns int for result 0"),
        (lambda x: [softsign(x), None], "f returns NoneType for result 1"),
        (elsewhere, "f reads the placeholder other, which is not one of its arguments"),
    ],
)
def test_wrong_functions(function, message):
    with pytest.raises(ad.InvalidArgumentError, match=message):
        module_of(lambda b, x: emit_te(b, function, x, name="f"), [param("x", (4,))])


@pytest.mark.parametrize(
    ("builder", "function", "arguments", "message"),
    [
        (None, softsign, [], "takes a relax.BlockBuilder first, got NoneType"),
        (relax.BlockBuilder(), 3, [], "takes a function of te tensors, got int"),
        (relax.BlockBuilder(), softsign, [np.ones(4)], "argument 0 is an array: .*relax.const"),
    ],
)
def test_wrong_arguments(builder, function, arguments, message):
    with pytest.raises(ad.InvalidArgumentError, match=message):
        emit_te(builder, function, *arguments)


def test_an_argument_without_a_shape():
    x = relax.Var("x", relax.TensorType(dtype="float64", ndim=1))
    expected = "argument 0 is not a tensor of known shape: x"
    with pytest.raises(ad.InvalidArgumentError, match=expected):
        module_of(lambda b, x: emit_te(b, softsign, x), [x])
