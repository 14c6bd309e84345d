"""Subnormal numbers count as zero in kernels, on every thread, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

import tvm_autodiff as ad

LEAST = np.finfo("float32").smallest_normal


def program(kind, dtype="float32"):
    """Inputs, outputs, and whether the program runs on several threads."""
    n = te.var("n") if kind == "symbolic sizes" else 4096
    x = te.placeholder((n, 64), dtype, name="x")
    y = te.compute((n, 64), lambda i, j: x[i, j] * x[i, j] + x[i, j], name="y")
    k = te.reduce_axis((0, 64), "k")
    total = te.compute((n,), lambda i: te.sum(y[i, k] * 0.5, axis=k), name="total")
    return x, {"one kernel": [y], "two kernels": [y, total], "symbolic sizes": [y, total]}[kind]


def subnormal(dtype):
    least = float(np.finfo(dtype).smallest_normal)
    return np.resize(np.array([0.25 * least, 2 * least, -0.5 * least], dtype), (4096, 64))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["one kernel", "two kernels", "symbolic sizes"])
def test_they_are_zero_unless_math_is_exact(kind, threads, dtype):
    x, outputs = program(kind, dtype)
    given = subnormal(dtype)
    exact = given * given + given
    zero = np.where(np.abs(exact) < np.finfo(dtype).smallest_normal, 0, exact)
    assert (exact != zero).any()
    for exact_math, want in ((False, zero), (True, exact)):
        got = ad.build(x, outputs, exact_math=exact_math, num_threads=threads)(given)
        np.testing.assert_array_equal(got[0], want)


def test_float16_keeps_its_subnormal_numbers():
    x = te.placeholder((64,), "float16", name="x")
    y = te.compute((64,), lambda i: x[i] + x[i], name="y")
    given = np.full(64, 1e-6, "float16")
    np.testing.assert_array_equal(ad.build(x, y)(given), given + given)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_mode_of_the_caller_stays(threads):
    x, outputs = program("two kernels")
    ad.build(x, outputs, num_threads=threads)(subnormal("float32"))
    half = np.full(3, LEAST, "float32") * np.float32(0.5)
    assert (half > 0).all()


def test_the_mode_of_the_caller_stays_after_an_error():
    def refuse(*_):
        raise RuntimeError("refused")

    tvm.register_global_func("tests.refuses", refuse, override=True)
    x = te.placeholder((8,), name="x")
    body = lambda ins, outs: tvm.tirx.call_packed("tests.refuses", ins[0], outs[0])  # noqa: E731
    y = te.extern((8,), [x], body, name="y")
    function = ad.build(x, y)
    with pytest.raises(RuntimeError, match="refused"):
        function(np.ones(8, "float32"))
    assert np.float32(LEAST) * np.float32(0.5) > 0


#: first part of the triple → the instruction that sets the mode
INSTRUCTIONS = {"x86_64": "ldmxcsr", "aarch64": "msr\tfpcr", "riscv64": None}


@pytest.mark.parametrize("architecture", INSTRUCTIONS)
def test_by_architecture(architecture):
    x = te.placeholder((64,), name="x")
    target = {"kind": "llvm", "mtriple": f"{architecture}-linux-gnu"}
    function = ad.build(x, te.compute((64,), lambda i: x[i] * 2.0), target)
    code = function.source("asm").lower()
    found = [name for name in INSTRUCTIONS.values() if name is not None and name in code]
    assert found == [name for name in [INSTRUCTIONS[architecture]] if name is not None]
