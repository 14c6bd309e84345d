"""Inputs that nothing reads: they stay arguments, are checked, and tell sizes."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from tvm_autodiff import CallError, build, differentiate, load, lower, vjp

SIZE = 5


def tensor(*shape, name, dtype="float32"):
    return te.placeholder(shape, dtype, name=name)


def doubled(source, name="doubled"):
    return te.compute(source.shape, lambda *i: source(*i) * 2.0, name=name)


def total(source, name="total"):
    axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(source.shape)]
    return te.compute((), lambda: te.sum(source(*axes), axis=axes), name=name)


def symbol(name="n"):
    return te.var(name, "int64")


# Each program gives inputs and outputs; `VALUES` holds arrays by name, of n = SIZE.


def one_kernel():
    w = tensor(4, name="w")
    dead = [tensor(4, name="ints", dtype="int32"), tensor(2, name="flags", dtype="bool")]
    return [dead[0], w, dead[1]], doubled(w)


def several_kernels():
    w, dead = tensor(4, name="w"), tensor(name="seed", dtype="int64")
    first = total(w)
    return [dead, w], [first, te.compute((4,), lambda i: w[i] * first(), name="scaled")]


def nothing_is_read():
    return [tensor(4, name="w")], te.compute((3,), lambda i: tirx.const(1.5, "float32"), name="c")


def size_told_by_an_unread_input():
    n = symbol()
    return [tensor(n, name="x"), head := tensor(n + 3, name="head")], doubled(head)


def size_told_by_a_later_input():
    n = symbol()
    return [head := tensor(n + 3, name="head"), tensor(n, name="x")], [doubled(head), total(head)]


def size_of_the_output_alone():
    n = symbol()
    return [tensor(n, name="x")], te.compute((n + 1,), lambda i: i.astype("float32"), name="y")


def unread_of_a_computed_shape():
    n = symbol()
    return [x := tensor(n, name="x"), tensor(n + 3, name="head")], doubled(x)


def sizes_of_two_unread_inputs():
    n, m = symbol(), symbol("m")
    inputs = [tensor(n, name="x"), tensor(m, name="w", dtype="float32")]
    both = tensor(n * 2, m, name="both")
    return [*inputs, both], total(both)


def gradient_that_forgets_its_input():
    """The gradient of a sum of x does not read x, and needs its size."""
    n = symbol()
    x, head = tensor(n, name="x"), tensor(name="seed32")
    return [x, head], differentiate(total(x), x, head)[0]


def zeros_of_an_input():
    w, x, head = tensor(4, name="w"), tensor(SIZE, name="x"), tensor(name="seed32")
    return [w, x, head], list(vjp(total(x), [w, x], head))


def updates_beside_an_unread_input():
    state, dead = tensor(4, name="w"), tensor(2, name="flags", dtype="bool")
    new = te.compute((4,), lambda i: state[i] + 1.0, name="new")
    return [dead, state], total(state), {state: new}


def update_of_an_unread_input():
    n = symbol()
    state, x = tensor(n + 3, name="head"), tensor(n, name="x")
    new = te.compute((n + 3,), lambda i: i.astype("float32"), name="new")
    return [state, x], [], {state: new}


PROGRAMS = (
    one_kernel,
    several_kernels,
    nothing_is_read,
    size_told_by_an_unread_input,
    size_told_by_a_later_input,
    size_of_the_output_alone,
    unread_of_a_computed_shape,
    sizes_of_two_unread_inputs,
    gradient_that_forgets_its_input,
    zeros_of_an_input,
    updates_beside_an_unread_input,
    update_of_an_unread_input,
)

W, X, HEAD = (np.arange(1, size + 1, dtype="float32") for size in (4, SIZE, SIZE + 3))
BOTH = np.arange(8 * SIZE, dtype="float32").reshape(2 * SIZE, 4)
VALUES = {
    "w": W,
    "x": X,
    "head": HEAD,
    "both": BOTH,
    "ints": np.zeros(4, "int32"),
    "flags": np.zeros(2, "bool"),
    "seed": np.int64(3),
    "seed32": np.float32(3),
}

#: what a call returns, followed by the new values of updated inputs
EXPECTED = {
    one_kernel: [2 * W],
    several_kernels: [W.sum(), W * W.sum()],
    nothing_is_read: [np.full(3, 1.5)],
    size_told_by_an_unread_input: [2 * HEAD],
    size_told_by_a_later_input: [2 * HEAD, HEAD.sum()],
    size_of_the_output_alone: [np.arange(SIZE + 1)],
    unread_of_a_computed_shape: [2 * X],
    sizes_of_two_unread_inputs: [BOTH.sum()],
    gradient_that_forgets_its_input: [np.full(SIZE, 3)],
    zeros_of_an_input: [np.zeros(4), np.full(SIZE, 3)],
    updates_beside_an_unread_input: [W.sum(), W + 1],
    update_of_an_unread_input: [np.arange(SIZE + 3)],
}


def program(make):
    inputs, outputs, *updates = make()
    return inputs, outputs, updates[0] if updates else {}


def values_of(function):
    return [np.copy(VALUES[spec.name]) for spec in function.signature.inputs]


def called(function, updates):
    arrays = values_of(function)
    results = function(*arrays)
    results = list(results) if isinstance(results, list) else [results]
    names = [spec.name for spec in function.signature.inputs]
    return results + [arrays[names.index(old.op.name)] for old in updates]


def check(make, function, updates):
    for got, want in zip(called(function, updates), EXPECTED[make], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("make", PROGRAMS)
def test_it_stays_an_argument(make):
    inputs, outputs, updates = program(make)
    function = build(inputs, outputs, updates=updates, cache=False)
    assert [spec.name for spec in function.signature.inputs] == [t.op.name for t in inputs]
    check(make, function, updates)


@pytest.mark.parametrize(
    "make", [one_kernel, several_kernels, size_told_by_an_unread_input], ids=lambda f: f.__name__
)
def test_it_stays_one_in_files(make, tmp_path):
    inputs, outputs, updates = program(make)
    build(inputs, outputs, cache=tmp_path)
    cached = build(inputs, outputs, cache=tmp_path)
    cached.export(tmp_path / "program.so")
    for function in (cached, load(tmp_path / "program.so")):
        check(make, function, updates)


@pytest.mark.parametrize("make", PROGRAMS)
def test_it_stays_one_on_a_gpu(make):
    inputs, outputs, updates = program(make)
    function = build(inputs, outputs, "cuda", updates=updates, cache=False)
    assert [spec.name for spec in function.signature.inputs] == [t.op.name for t in inputs]


def test_one_kernel_is_lowered_to_one_function():
    module = lower(*one_kernel())
    assert [var.name_hint for var in module.get_global_vars()] == ["main"]
    dtypes = [str(param.ty.dtype) for param in module["main"].params]
    assert dtypes == ["int32", "float32", "bool", "float32"]


WRONG = {
    "shape": (one_kernel, "ints", np.zeros(3, "int32"), r"argument 'ints' must have shape \(4,\)"),
    "dtype": (one_kernel, "ints", np.zeros(4, "float32"), "argument 'ints' must have dtype int32"),
    "rank": (several_kernels, "seed", np.zeros(1, "int64"), "argument 'seed' must have rank 0"),
    "size": (size_told_by_an_unread_input, "x", X[1:], r"argument 'head' must have shape"),
    "computed size": (
        unread_of_a_computed_shape,
        "head",
        HEAD[1:],
        r"argument 'head' must have shape \(\(n \+ 3\),\)",
    ),
    "no array": (one_kernel, "flags", [True, False], "argument 'flags' must be an array"),
}


@pytest.mark.parametrize("name", WRONG)
def test_it_is_checked_at_the_call(name):
    make, argument, value, message = WRONG[name]
    inputs, outputs, _ = program(make)
    function = build(inputs, outputs, cache=False)
    arrays = values_of(function)
    arrays[[spec.name for spec in function.signature.inputs].index(argument)] = value
    with pytest.raises(CallError, match=message):
        function(*arrays)
