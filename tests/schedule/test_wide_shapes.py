"""Shapes of int64, as TVM's front ends give them, and mixed ones: right, by kernels of int32."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tvm_ffi
from tvm import te, topi
from tvm.tirx import IntImm, const

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tvm_autodiff.graph.kinds.custom import without_rules
from tvm_autodiff.schedule.cpu.rules import CPU_RULES
from tvm_autodiff.schedule.fusion.kernels import cut
from tvm_autodiff.schedule.machine import as_target, machine_of
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rule import apply_rules

#: shapes of the inputs, and a function of them
CASES = {
    "conv2d": ([(1, 3, 9, 9), (4, 3, 3, 3)], lambda x, w: topi.nn.conv2d_nchw(x, w, 1, 1, 1)),
    "conv2d-stride": (
        [(1, 3, 9, 9), (4, 3, 3, 3)],
        lambda x, w: topi.nn.conv2d_nchw(x, w, 2, 1, 1),
    ),
    "depthwise": (
        [(1, 4, 8, 8), (4, 1, 3, 3)],
        lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1),
    ),
    "max-pool": (
        [(1, 2, 9, 9)],
        lambda x: topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max"),
    ),
    "avg-pool": (
        [(1, 2, 9, 9)],
        lambda x: topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "avg"),
    ),
    "matmul": ([(12, 20), (20, 16)], topi.matmul),
    "softmax": ([(6, 20)], topi.nn.softmax),
    "layer-norm": (
        [(6, 20), (20,), (20,)],
        lambda x, g, b: topi.nn.layer_norm(x, g, b, [1], 1e-5),
    ),
    "reshape": ([(6, 20)], lambda x: topi.exp(topi.reshape(x, (8, 15)))),
    "transpose": ([(6, 20)], lambda x: topi.exp(topi.transpose(x))),
    "concatenate": ([(6, 20), (6, 3)], lambda x, y: topi.concatenate([x, y], 1)),
    "strided-slice": ([(6, 20)], lambda x: topi.strided_slice(x, [1, 2], [6, 19], [2, 3])),
    "argmax-free-max": ([(6, 20)], lambda x: topi.max(x, axis=1)),
    "cumulative": (
        [(4, 32)],
        lambda x: te.compute((4, 32), lambda i, j: _sum_up_to(x, i, j), name="cumulative"),
    ),
    "product": ([(4, 5)], lambda x: topi.prod(x, axis=1)),
}


def _sum_up_to(x, i, j):
    k = te.reduce_axis((0, x.shape[1]), "k")
    zero = 0.0
    return te.sum(te.if_then_else(k <= j, x[i, k], zero), axis=k)


def tensors(name, wide):
    """Inputs, output, head and gradients; `wide` tells for each dimension whether it is int64."""
    shapes, make = CASES[name]
    count = 0
    inputs = []
    for number, shape in enumerate(shapes):
        dims = []
        for dim in shape:
            dims.append(IntImm("int64", dim) if wide(count) else dim)
            count += 1
        inputs.append(te.placeholder(dims, name=f"x{number}"))
    output = make(*inputs)
    head = te.placeholder(output.shape, name="head")
    return [*inputs, head], [output, *ad.differentiate(output, inputs, head)]


WIDE = {"int64": lambda place: True, "mixed": lambda place: place % 2 == 0}


@pytest.mark.parametrize("dims", WIDE)
@pytest.mark.parametrize("name", CASES)
def test_right(name, dims):
    inputs, outputs = tensors(name, WIDE[dims])
    rng = np.random.default_rng(0)
    arrays = [rng.random([int(d) for d in t.shape]).astype("float32") for t in inputs]
    plain_inputs, plain = tensors(name, lambda place: False)
    want = evaluate_graph(plain, list(zip(plain_inputs, arrays, strict=True)))
    got = ad.build(inputs, outputs, cache=False)(*arrays)
    for have, should in zip(got, want, strict=True):
        np.testing.assert_allclose(have, should, rtol=1e-4, atol=1e-5)


def kernels_of(outputs):
    """The rule and the functions of each kernel."""
    machine = machine_of(as_target({"kind": "llvm", "mcpu": "x86-64-v3"}), 2)
    kernels, _ = cut(normal_form(without_rules(outputs)))  # as programs are built
    return [
        (one.rule, [launch.func for launch in one.launches])
        for kernel in kernels
        for one in apply_rules(kernel, machine, CPU_RULES)
    ]


@functools.cache
def narrow_kernels(name):
    return kernels_of(tensors(name, lambda place: False)[1])


@pytest.mark.parametrize("dims", WIDE)
@pytest.mark.parametrize("name", CASES)
def test_same_kernels_as_int32(name, dims):
    have = kernels_of(tensors(name, WIDE[dims])[1])
    want = narrow_kernels(name)
    assert [rule for rule, _ in have] == [rule for rule, _ in want]
    for (_, functions), (_, others) in zip(have, want, strict=True):
        assert all(map(tvm_ffi.structural_equal, functions, others))


@pytest.mark.parametrize("dims", WIDE)
@pytest.mark.parametrize("name", ["conv2d", "matmul", "max-pool", "reshape", "cumulative"])
def test_no_index_is_left_in_int64(name, dims):
    for tensor in normal_form(tensors(name, WIDE[dims])[1]):
        for axis in tensor.op.axis:
            assert str(axis.var.ty) == "int32"
        assert "int64" not in str(tensor.op.body)


def test_what_int32_does_not_hold_stays():
    rows = IntImm("int64", 3_000_000)
    x = te.placeholder((rows,), name="x")
    y = te.compute((rows,), lambda i: x[i * 4001 % 3_000_000], name="y")
    got = ad.build([x], [y], cache=False)(np.arange(3_000_000, dtype="float32"))[0]
    np.testing.assert_array_equal(got, np.arange(3_000_000) * 4001 % 3_000_000)


@pytest.mark.parametrize("low", ["int32", "int64"])
@pytest.mark.parametrize("size", ["int32", "int64"])
def test_ranges_of_two_types(low, size):
    """``te.reduce_axis((int64 0, int32 n))``, which TVM takes and does not lower."""
    n = te.var("n", size)
    x = te.placeholder((n,), "float64", name="x")
    k = te.reduce_axis((const(0, low), n), "k")
    y = te.compute((), lambda: te.sum(x[k] * x[n - 1 - k], axis=k), name="y")
    run = ad.build([x], [y, *ad.differentiate(y, [x])], cache=False)
    for count in (0, 1, 4):
        value, gradient = run(np.arange(1.0, count + 1))
        assert value == np.sum(np.arange(1.0, count + 1) * np.arange(count, 0.0, -1))
        np.testing.assert_array_equal(gradient, 2 * np.arange(count, 0.0, -1))
