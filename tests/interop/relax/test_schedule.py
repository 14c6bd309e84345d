"""`schedule`: kernels of the library in modules of Relax, and what stays TVM's."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx, topi

import tvm_autodiff as ad
from tests.interop.relax.checks import called, machine
from tvm_autodiff.interop.relax import build, emit_te, explain, register_gradients, schedule

R = relax.op
RNG = np.random.default_rng(0)


def param(name, shape, dtype="float32"):
    return relax.Var(name, relax.TensorType(shape, dtype))


def module_of(body, params):
    """A module whose ``main`` returns what a function emits."""
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(builder, *params))
        builder.emit_func_output(result)
    return builder.get()


def flat(value):
    if isinstance(value, tvm.runtime.Tensor):
        return [value.numpy()]
    return [array for one in value for array in flat(one)]


def same_results(module, arrays, rtol=1e-5):
    """The text of `explain`; what the scheduled module computes is what TVM computes."""
    scheduled = schedule(module)
    assert relax.analysis.check_well_formed(scheduled)
    got, want = (flat(called(machine(one), "main", arrays)) for one in (scheduled, module))
    for left, right in zip(got, want, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_allclose(left, right, rtol=rtol, atol=rtol)
    return explain(scheduled)


def test_calls_become_one_program():
    def body(b, x, w):
        return R.nn.softmax(R.nn.relu(R.matmul(x, w)))

    arrays = [RNG.standard_normal(shape).astype("float32") for shape in ((8, 16), (16, 12))]
    text = same_results(module_of(body, [param("x", (8, 16)), param("w", (16, 12))]), arrays)
    assert text.startswith("main: ")
    assert text.splitlines()[0].endswith("for 3 calls")
    assert "left to TVM" not in text


def test_what_is_computed_twice_is_computed_once():
    def body(b, x):
        one, two = R.sin(R.nn.softmax(x)), R.cos(R.nn.softmax(x))
        return R.sum(R.multiply(one, two), 1)

    text = same_results(module_of(body, [param("x", (6, 9))]), [np.ones((6, 9), "float32")])
    assert text.count("\n") == 1  # one kernel


def test_symbolic_sizes():
    n = tirx.Var("n", "int64")
    module = module_of(
        lambda b, x, w: R.reshape(R.nn.relu(R.matmul(x, w)), (n * 3,)),
        [param("x", (n, 5)), param("w", (5, 3))],
    )
    for size in (1, 7):
        arrays = [RNG.standard_normal(shape).astype("float32") for shape in ((size, 5), (5, 3))]
        assert "left to TVM" not in same_results(module, arrays)


def test_an_input_of_twice_a_size():
    n = tirx.Var("n", "int64")

    def body(b, x):
        return R.tile(R.exp(x), (2, 1))

    module = module_of(
        lambda b, x, y: R.add(body(b, x), y), [param("x", (n, 3)), param("y", (2 * n, 3))]
    )
    arrays = [RNG.standard_normal(shape).astype("float32") for shape in ((4, 3), (8, 3))]
    assert "left to TVM" not in same_results(module, arrays)


def test_a_size_that_no_tensor_of_a_program_has():
    n = tirx.Var("n", "int64")

    def body(b, x, w):
        rows = b.emit(R.broadcast_to(R.exp(w), (n * 2, 3)))
        return R.reshape(rows, (n, 6))

    arrays = [RNG.standard_normal(shape).astype("float32") for shape in ((4, 2), (3,))]
    text = same_results(module_of(body, [param("x", (n, 2)), param("w", (3,))]), arrays)
    assert "left to TVM" not in text


def test_what_is_no_te_stays_between_kernels():
    def body(b, x):
        first = b.emit(R.exp(b.emit(R.multiply(x, x))))
        ordered = b.emit_te(topi.sort, first)
        return R.add(R.multiply(ordered, first), relax.const(1.0))

    text = same_results(
        module_of(body, [param("x", (9,))]), [RNG.standard_normal(9).astype("float32")]
    )
    assert "main: 2 kernels for 5 calls" in text
    assert "left to TVM: lv2: sort: block sort_cpu holds a Evaluate, which te does not make" in text


def test_several_results_and_an_argument_among_them():
    def body(b, x, y):
        both = b.emit(R.split(R.add(x, y), 2, 0))
        return relax.Tuple([both, relax.Tuple([x, b.emit(R.exp(both[1]))])])

    arrays = [RNG.standard_normal((4, 3)).astype("float32") for _ in range(2)]
    same_results(module_of(body, [param("x", (4, 3)), param("y", (4, 3))]), arrays)


def test_parameters_that_are_tuples():
    pair = relax.Var("pair", relax.TupleType([relax.TensorType((4,), "float32")] * 2))
    module = module_of(lambda b, p: R.add(R.exp(p[0]), p[1]), [pair])
    scheduled = machine(schedule(module))
    two = tuple(tvm.runtime.tensor(np.full(4, value, "float32")) for value in (0.0, 2.0))
    np.testing.assert_array_equal(scheduled["main"](two).numpy(), np.full(4, 3.0))


def test_constants():
    table = relax.const(np.arange(12, dtype="float32").reshape(4, 3))
    module = module_of(lambda b, x: R.matmul(R.exp(x), table), [param("x", (2, 4))])
    same_results(module, [RNG.standard_normal((2, 4)).astype("float32")])


@pytest.mark.slow
def test_emitted_te_and_its_gradient():
    register_gradients()

    def window(x):
        k = te.reduce_axis((0, 3), "k")
        return te.compute((4, 6), lambda i, j: te.max(x[i, j + k], axis=k), name="window")

    builder = relax.BlockBuilder()
    x = param("x", (4, 8))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(R.nn.gelu(emit_te(builder, window, x)))
            loss = builder.emit_output(R.sum(y))
        builder.emit_func_output(loss)
    adjoint = relax.transform.Gradient("main")(builder.get())
    scheduled = schedule(adjoint)
    assert "left to TVM" not in explain(scheduled)
    assert "call_tir_with_grad" not in str(scheduled)
    arrays = [RNG.standard_normal((4, 8)).astype("float32")]
    value, [gradient] = called(machine(scheduled), "main_adjoint", arrays)
    head = te.placeholder((4, 8), "float32", name="x")
    total = topi.sum(topi_gelu(window(head)))
    f = ad.build(head, [total, *ad.differentiate(total, [head])])
    want = f(*arrays)
    np.testing.assert_allclose(value.numpy(), want[0], rtol=1e-5)
    np.testing.assert_allclose(gradient.numpy(), want[1], rtol=1e-4, atol=1e-6)


def topi_gelu(x):
    half = tirx.const(0.5, "float32")
    return topi.multiply(
        x,
        topi.add(
            half, topi.multiply(topi.erf(topi.multiply(x, tirx.const(0.5**0.5, "float32"))), half)
        ),
    )


def test_functions_that_call_others_and_control_flow_stay():
    builder = relax.BlockBuilder()
    x, flag = param("x", (4,)), relax.Var("flag", relax.TensorType((), "bool"))
    with builder.function("main", [x, flag]):
        y = builder.emit(relax.If(flag, R.exp(x), R.negative(x)))
        builder.emit_func_output(y)
    module = builder.get()
    scheduled = schedule(module)
    assert explain(scheduled).startswith("main: 0 kernels for 0 calls")
    for flag, want in ((True, np.exp(2.0)), (False, -2.0)):
        arrays = [np.full(4, 2.0, "float32"), np.array(flag)]
        got = called(machine(scheduled), "main", arrays).numpy()
        np.testing.assert_allclose(got, np.full(4, want), rtol=1e-6)


def test_exact_math_and_threads():
    module = module_of(lambda b, x: R.tanh(x), [param("x", (64,))])
    exact = str(schedule(module, exact_math=True, num_threads=1))
    assert "tanhf" in exact
    assert "tanhf" not in str(schedule(module))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: schedule("module"), "schedule takes an IRModule, got str"),
        (lambda: explain(tvm.IRModule({})), "explain takes the module that schedule returns"),
        (lambda: schedule(tvm.IRModule({}), num_threads=0), "num_threads"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ad.InvalidArgumentError, match=message):
        call()


def test_scatters_of_derived_gradients():
    register_gradients()
    x, rows = param("x", (6, 5)), param("rows", (6, 3), "int64")
    module = module_of(lambda b, x, i: R.sum(R.exp(R.gather_elements(x, i, 1))), [x, rows])
    module = relax.transform.Gradient("main", [module["main"].params[0]])(module)
    scheduled = schedule(module)
    assert "left to TVM" not in explain(scheduled)
    arrays = [RNG.standard_normal((6, 5)).astype("float32"), RNG.integers(0, 5, (6, 3))]
    got, want = (
        flat(called(machine(one), "main_adjoint", arrays)[1])[0] for one in (scheduled, module)
    )
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_build_compiles_what_was_scheduled_and_what_was_not():
    module = module_of(lambda b, x: R.nn.softmax(x), [param("x", (3, 5))])
    array = RNG.standard_normal((3, 5)).astype("float32")
    want = called(machine(module), "main", [array]).numpy()
    for one in (module, schedule(module)):
        vm = relax.VirtualMachine(build(one), tvm.cpu())
        np.testing.assert_allclose(called(vm, "main", [array]).numpy(), want, rtol=1e-5)


def test_a_module_for_cuda_is_compiled_without_a_gpu():
    module = module_of(lambda b, x, w: R.nn.softmax(R.matmul(x, w)), MATRICES)
    scheduled = schedule(module, "cuda")
    assert "left to TVM" not in explain(scheduled)
    assert "blockIdx.x" in str(scheduled)
    build(scheduled, "cuda")


MATRICES = [param("x", (64, 32)), param("w", (32, 48))]
