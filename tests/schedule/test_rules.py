"""Every schedule gives what an evaluation in numpy gives, bit for bit on data that sums exactly."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tests.evaluate import evaluate_graph
from tests.machines import avx512
from tests.schedule import cases
from tvm_autodiff.compile import build
from tvm_autodiff.schedule.cpu.rules import CPU_RULES
from tvm_autodiff.schedule.fusion.kernels import cut
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rule import apply_rules


def arrays_for(inputs, sizes, seed=0):
    """Small integers: every order of summation gives the same float."""
    rng = np.random.default_rng(seed)
    arrays = []
    for tensor in inputs:
        shape = [int(d) if hasattr(d, "value") else sizes[d.name] for d in tensor.shape]
        arrays.append(rng.integers(-2, 3, shape).astype(str(tensor.dtype)))
    return arrays


def expected(inputs, output, arrays):
    """What an evaluation in numpy gives for the output, of symbolic sizes too."""
    dims = [(dim, size) for t, a in zip(inputs, arrays, strict=True) for dim, size in shaped(t, a)]
    sizes = {dim: size for dim, size in dims if not hasattr(dim, "value")}
    [value] = evaluate_graph([output], list(zip(inputs, arrays, strict=True)), sizes)
    return value


def shaped(tensor, array):
    return zip(tensor.shape, array.shape, strict=True)


def rules_of(output):
    """The rule that takes each kernel."""
    machine = avx512(2)
    kernels, _ = cut(normal_form([output]))
    return [one.rule for kernel in kernels for one in apply_rules(kernel, machine, CPU_RULES)]


def check(case, sizes=None, threads=(1, None), tolerance=0.0):
    inputs, output = case
    arrays = arrays_for(inputs, sizes or {})
    want = expected(inputs, output, arrays)
    for count in threads:
        got = build(inputs, output, num_threads=count)(*arrays)
        if tolerance:
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(got, want)


SIZES = [(1, 1, 1), (1, 16, 64), (16, 1, 64), (3, 5, 7), (17, 33, 65), (64, 64, 64), (97, 31, 101)]


@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("size", SIZES)
def test_matmul(size, form):
    check(cases.matmul(*size, form))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
@pytest.mark.parametrize("size", [(5, 7, 9), (33, 48, 40)])
def test_matmul_dtypes(size, dtype):
    check(cases.matmul(*size, "nt", dtype))


CONTRACTIONS = {
    "dense relu": cases.dense_relu(33, 40, 64),
    "dense relu, odd": cases.dense_relu(13, 10, 57),
    "batched": cases.batched(4, 24, 32, 48),
    "batched, odd": cases.batched(3, 7, 19, 23),
    "abcd,cdef": cases.four_index(6),
    "abcd,cdef of 16": cases.four_index(8),
    "mttkrp": cases.mttkrp(12, 9, 10, 16),
    "conv": cases.conv(2, 5, 12, 8),
    "conv of 8": cases.conv(3, 4, 8, 16),
    "conv, prime": cases.conv(2, 3, 11, 7),
    "conv, stride 2": cases.conv(2, 4, 12, 8, stride=2),
    "conv, dilation 2": cases.conv(2, 4, 12, 8, dilation=2),
    "conv 1x1": cases.conv(2, 8, 9, 8, k=1),
    "conv input gradient": cases.conv_input_gradient(2, 5, 12, 8),
    "conv input gradient, prime": cases.conv_input_gradient(1, 3, 13, 7),
    "conv input gradient, stride 2": cases.strided_input_gradient(2, 4, 12, 8),
    "conv weight gradient": cases.conv_weight_gradient(2, 16, 12, 8),
    "conv weight gradient, prime": cases.conv_weight_gradient(3, 5, 11, 7),
    "triangular": cases.triangular(33),
    "flipped": cases.flipped(24),
    "distance": cases.distance(19, 23, 17),
    "one outside": cases.ones_outside(40, 64, 16),
}


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_contraction(name):
    check(CONTRACTIONS[name])


@pytest.mark.slow
def test_large_contractions_are_split_for_the_cache():
    inputs, output = cases.conv_weight_gradient(8, 32, 32, 32)
    head, x = arrays_for(inputs, {})
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    got = build(inputs, output)(head, x)
    for p, q in np.ndindex(3, 3):
        window = padded[:, :, p : p + 32, q : q + 32]
        want = np.tensordot(head, window, axes=[(0, 2, 3), (0, 2, 3)])
        np.testing.assert_array_equal(got[:, :, p, q], want)


REDUCTIONS = {
    **{f"rows of {k}": cases.rows(5, k) for k in (1, 7, 16, 31, 64, 100, 257, 1000)},
    "many rows": cases.rows(700, 70),
    "row maxima": cases.rows(65, 130, te.max),
    "row minima": cases.rows(65, 33, te.min),
    **{f"columns of {n}": cases.columns(37, n) for n in (1, 7, 16, 48, 64, 100)},
    "long columns": cases.columns(5000, 48),
    "column maxima": cases.columns(129, 64, te.max),
    "total": cases.total(1000),
    "total of a prime": cases.total(100_003),
    "total of a cube": cases.total(40, 50, 60),
    "bias gradient": cases.channel_sum(8, 16, 16),
    "bias gradient, odd": cases.channel_sum(3, 5, 7),
    "row epilogue": cases.row_epilogue(70, 300),
    "row epilogue with a tail": cases.row_epilogue(3, 1037),
    "float64 rows": cases.rows(9, 77, dtype="float64"),
    "float16 rows": cases.rows(9, 77, dtype="float16"),
    "pool": cases.pool(2, 12, 2, 2),
    "padded pool": cases.pool(2, 13, 3, 2),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name):
    check(REDUCTIONS[name])


ELEMENTWISE = {
    "transpose": cases.transposed(37, 50),
    "large transpose": cases.transposed(300, 257),
    "transpose of three": cases.transposed(5, 20, 33),
    "shifted": cases.shifted(13, 29),
    "large shifted": cases.shifted(200, 300),
    "reshaped": cases.reshaped(6, 35),
    "broadcast": cases.broadcast(130, 200),
    "positions": cases.positions(9, 11),
    "large positions": cases.positions(150, 170),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name):
    check(ELEMENTWISE[name])


def test_softmax():
    check(cases.softmax(33, 70), tolerance=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 6, 64])
@pytest.mark.parametrize(
    "case",
    [
        lambda n: cases.matmul(n, 48, 64, "nt"),
        lambda n: cases.rows(n, 100),
        lambda n: cases.columns(n, 48),
    ],
    ids=["matmul", "rows", "columns"],
)
def test_symbolic(case, n):
    check(case(te.var("n")), {"n": n})


RULES = [
    (cases.matmul(64, 64, 64, "tt"), ["contraction"]),
    (cases.dense_relu(64, 64, 64), ["contraction"]),
    (cases.conv(2, 8, 12, 8), ["windows", "contraction"]),
    (cases.conv_input_gradient(2, 8, 12, 8), ["contraction"]),
    (cases.conv_weight_gradient(2, 16, 12, 8), ["contraction"]),
    (cases.matmul(te.var("n"), 64, 64), ["contraction"]),
    (cases.distance(9, 11, 17), ["rows"]),
    (cases.distance(192, 160, 17), ["contraction"]),
    (cases.ones_outside(40, 64, 16), ["contraction"]),
    (cases.rows(70, 300), ["rows"]),
    (cases.row_epilogue(70, 300), ["rows"]),
    (cases.columns(70, 96), ["rows"]),
    (cases.columns(70, 48), ["reduction"]),
    (cases.transposed(30, 40), ["transposition"]),
]


@pytest.mark.parametrize(("case", "rules"), RULES)
def test_which_rule_applies(case, rules):
    assert rules_of(case[1]) == rules
