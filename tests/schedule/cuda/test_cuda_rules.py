"""Every CUDA schedule computes what an evaluation in numpy gives, and writes every element once.

The loops over threads run as plain loops on the CPU (`serial`), so no GPU is needed; small integers
make every order of summation give the same float.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.schedule import cases
from tests.schedule.cuda.serial import gpu, rules_of, run, scheduled, writes
from tests.schedule.heavy_bodies import BODIES, X
from tests.schedule.test_rules import CONTRACTIONS, ELEMENTWISE, REDUCTIONS, arrays_for, expected
from tvm_autodiff.codegen.passes.launches import lowered
from tvm_autodiff.schedule.cuda.rules import CUDA_RULES
from tvm_autodiff.schedule.cuda.verify import problem_of

FALLBACK = CUDA_RULES[-1:]


def check(case, sizes=None, tolerance=0.0, rules=CUDA_RULES):
    inputs, output = case
    arrays = arrays_for(inputs, sizes or {})
    got = run(inputs, output, arrays, rules)
    want = expected(inputs, output, arrays)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def place_of_maximum(n, k, axis):
    A = te.placeholder((n, k), name="A")
    return [A], topi.argmax(A, axis)


def own_reducer(n, k):
    A, r = te.placeholder((n, k), name="A"), te.reduce_axis((0, k), "k")
    add_both = te.comm_reducer(lambda x, y: x + y + x * y, lambda t: tvm.tirx.const(0, t))
    return [A], te.compute((n,), lambda i: add_both(A[i, r], axis=r), name="O")


def grouped(wrt=None):
    x = te.placeholder((2, 8, 10, 10), name="x")
    w = te.placeholder((16, 4, 3, 3), name="w")
    out = topi.nn.group_conv2d_nchw(x, w, 1, 0, 1, 2)
    if wrt is None:
        return [x, w], out
    head = te.placeholder(out.shape, name="head")
    return [[x, w][1 - wrt], head], ad.differentiate(out, [[x, w][wrt]], head)[0]


def depthwise_weight_gradient(batch, channels, size):
    x = te.placeholder((batch, channels, size, size), name="x")
    w = te.placeholder((channels, 1, 3, 3), name="w")
    out = topi.nn.depthwise_conv2d_nchw(x, w, 1, 0, 1)
    head = te.placeholder(out.shape, name="head")
    return [x, head], ad.differentiate(out, [w], head)[0]


def embedding_gradient(rows, width, count, dtype="float32", index="int32"):
    E = te.placeholder((rows, width), dtype, name="E")
    index = te.placeholder((count,), index, name="index")
    out = te.compute((count, width), lambda i, j: E[index[i], j] * E[index[i], j], name="out")
    H = te.placeholder((count, width), dtype, name="H")
    return [E, index, H], ad.differentiate(out, [E], H)[0]


def squares_scattered(table, places, head):
    """What `embedding_gradient` is."""
    gradient = np.zeros_like(table)
    np.add.at(gradient, places, 2 * table[places] * head)
    return gradient


#: what each rule is for: name, kernel, the rules that take its kernels
RULES = {
    "map": (cases.broadcast(130, 200), ["elementwise"]),
    "wide map": (cases.broadcast(1024, 1024), ["elementwise"]),
    "stencil": (cases.shifted(13, 29), ["elementwise"]),
    "small transpose": (cases.transposed(37, 50), ["elementwise"]),
    "transpose": (cases.transposed(300, 257), ["transposition"]),
    "transpose of four": (cases.transposed(16, 3, 32, 40), ["transposition"]),
    "matmul": (cases.matmul(97, 101, 103, "tt"), ["contraction"]),
    "matmul of whole tiles": (cases.matmul(128, 128, 64), ["contraction"]),
    "matmul in parts": (cases.matmul(16, 16, 4096, "nt"), ["contraction"]),
    "narrow matmul": (cases.matmul(64, 10, 128, "nt"), ["contraction"]),
    "long rows of few outputs": (cases.matmul(3, 5, 7000), ["reduction"]),
    "dense relu": (cases.dense_relu(64, 72, 56), ["contraction"]),
    "batched": (cases.batched(4, 24, 32, 48), ["contraction"]),
    "abcd,cdef": (cases.four_index(8), ["contraction"]),
    "mttkrp": (cases.mttkrp(24, 18, 20, 16), ["contraction"]),
    "conv": (cases.conv(2, 8, 12, 16), ["elementwise", "contraction"]),
    "conv, dilated": (cases.conv(2, 8, 13, 16, dilation=2), ["elementwise", "contraction"]),
    "conv input gradient": (cases.conv_input_gradient(2, 8, 12, 8), ["contraction"]),
    "conv weight gradient": (cases.conv_weight_gradient(2, 16, 12, 8), ["contraction"]),
    "grouped conv": (grouped(), ["contraction"]),
    "grouped conv input gradient": (grouped(0), ["contraction"]),
    "grouped conv weight gradient": (grouped(1), ["contraction"]),
    "depthwise weight gradient": (depthwise_weight_gradient(8, 24, 58), ["window_sums"]),
    "small depthwise weight gradient": (depthwise_weight_gradient(2, 4, 12), ["reduction"]),
    "triangular": (cases.triangular(67), ["contraction"]),
    "long triangular": (cases.triangular(300), ["contraction"]),
    "flipped": (cases.flipped(48), ["contraction"]),
    "float64 matmul": (cases.matmul(64, 48, 64, "nt", "float64"), ["contraction"]),
    "float16 matmul": (cases.matmul(64, 48, 64, "nt", "float16"), ["contraction"]),
    "integer matmul": (cases.matmul(64, 48, 64, "nt", "int32"), ["contraction"]),
    "few rows of a matmul": (cases.matmul(5, 96, 9000), ["contraction"]),
    "few columns of a matmul": (cases.matmul(700, 3, 600, "nt"), ["contraction"]),
    "tiny matmul": (cases.matmul(3, 5, 7), ["fallback"]),
    "rows": (cases.rows(70, 300), ["reduction"]),
    "few rows": (cases.rows(5, 1000), ["reduction"]),
    "row maxima": (cases.rows(65, 130, te.max), ["reduction"]),
    "short rows": (cases.rows(5, 31), ["fallback"]),
    "row epilogue": (cases.row_epilogue(70, 300), ["reduction"]),
    "columns": (cases.columns(5000, 48), ["reduction"]),
    "column maxima": (cases.columns(129, 64, te.max), ["reduction"]),
    "total of a prime": (cases.total(100_003), ["reduction"]),
    "channel sums": (cases.channel_sum(16, 24, 56), ["reduction"]),
    "argmax": (place_of_maximum(37, 150, 1), ["library_chain"]),
    "argmax of columns": (place_of_maximum(350, 37, 0), ["reduction", "elementwise"]),
    "argmax of all": (place_of_maximum(37, 150, None), ["reduction", "elementwise"]),
    "user-made reducer": (own_reducer(37, 150), ["any_reducer"]),
    "distance": (cases.distance(19, 23, 17), ["fallback"]),
    "pool": (cases.pool(2, 12, 2, 2), ["fallback"]),
    "scatter": (embedding_gradient(50, 8, 20), ["elementwise", "scatter"]),
    "scatter at int64": (embedding_gradient(50, 8, 20, index="int64"), ["elementwise", "scatter"]),
    "scatter of one column": (embedding_gradient(3, 1, 5000), ["elementwise", "scatter"]),
    "scatter, a thread a slice": (embedding_gradient(4, 40_000, 6), ["elementwise", "scatter"]),
}


@pytest.mark.parametrize("name", RULES)
def test_rule(name):
    case, rules = RULES[name]
    assert rules_of(case[1]) == rules
    inputs, output = case
    arrays = arrays_for(inputs, {})
    arrays = [
        np.abs(a) % 3 if a.dtype in (np.int32, np.int64) and a.ndim == 1 else a for a in arrays
    ]
    # loops of statements are interpreted one by one: too slow for a large scatter
    oracle = squares_scattered if "scatter" in rules else lambda *_: expected(*case, arrays)
    np.testing.assert_array_equal(run(inputs, output, arrays), oracle(*arrays))


@pytest.mark.parametrize("name", RULES)
def test_every_element_is_written_once(name):
    for launch, rule in scheduled(RULES[name][0][1]):
        assert problem_of(launch.func, gpu()) is None
        if rule != "scatter":
            for count in writes(launch, {}):
                np.testing.assert_array_equal(count, np.ones_like(count))


#: a few of each kind: odd, prime and small sizes, other layouts
SAMPLES = {
    **{name: CONTRACTIONS[name] for name in list(CONTRACTIONS)[1::3]},
    **{name: REDUCTIONS[name] for name in list(REDUCTIONS)[::4]},
    **{name: ELEMENTWISE[name] for name in list(ELEMENTWISE)[2::2]},
}


@pytest.mark.parametrize("name", SAMPLES)
def test_kernel(name):
    check(SAMPLES[name])


@pytest.mark.parametrize("size", [(1, 1, 1), (17, 33, 65), (97, 31, 101)])
@pytest.mark.parametrize("form", ["nn", "nt", "tn"])
def test_matmul(size, form):
    check(cases.matmul(*size, form))


@pytest.mark.parametrize("name", ["matmul", "rows", "argmax", "conv", "transpose", "scatter"])
def test_fallback_takes_everything(name):
    inputs, output = RULES[name][0]
    arrays = [np.abs(a) if a.dtype == np.int32 else a for a in arrays_for(inputs, {})]
    got = run(inputs, output, arrays, FALLBACK)
    np.testing.assert_array_equal(got, expected(inputs, output, arrays))


SYMBOLIC = {
    "matmul": (lambda n: cases.matmul(n, 48, 64, "nt"), "library_matmul"),
    "rows": (lambda n: cases.rows(n, 100), "reduction"),
    "columns": (lambda n: cases.columns(n, 48), "reduction"),
}


@pytest.mark.parametrize("name", SYMBOLIC)
@pytest.mark.parametrize("n", [0, 1, 6, 64, 3001])
def test_symbolic(name, n):
    make, rule = SYMBOLIC[name]
    inputs, output = make(te.var("n"))
    assert rules_of(output) == [rule]
    if name == "columns" and n == 0:
        pytest.skip("plain loops leave out what threads begin with: see the next test")
    arrays = arrays_for(inputs, {"n": n})
    a, *rest = arrays
    want = {"matmul": lambda: a @ rest[0].T, "rows": lambda: a.sum(1), "columns": lambda: a.sum(0)}
    # for a CPU, TVM compiles the products with literal sizes only
    got = run(inputs, output, arrays, literal=name == "matmul")
    np.testing.assert_array_equal(got, want[name]())


def test_both_operands_stay_inside_of_their_tensors():
    (first, _), *_ = scheduled(cases.matmul(5, 96, 9000)[1])  # 128 parts of 71
    fetches = [line for line in str(first.func).splitlines() if "if_then_else" in line]
    assert len(fetches) == 2
    assert all("v_b * 71 + v_k < 9000" in line for line in fetches)


def test_threads_begin_with_the_identity():
    [(launch, _)] = scheduled(cases.columns(te.var("n"), 48)[1])
    text = str(lowered(launch.func))
    begin, loop = text.index("in_thread_R_local[0] = T.float32(0.0)"), text.index("for k_0 in")
    assert begin < loop


def layer_norm(n, m):
    x, g, b = (te.placeholder(s, name=t) for t, s in [("x", (n, m)), ("g", (m,)), ("b", (m,))])
    return [x, g, b], topi.nn.layer_norm(x, g, b, [1])


def log_softmax(n, k):
    A = te.placeholder((n, k), name="A")
    return [A], topi.nn.log_softmax(A)


#: chains of row reductions, and the rules that take them
CHAINS = {
    "softmax": (cases.softmax(33, 70), ["library_chain"]),
    "softmax of a prime": (cases.softmax(3, 1031), ["library_chain"]),
    "log softmax": (log_softmax(33, 70), ["library_chain"]),
    "layer norm": (layer_norm(16, 96), ["library_chain"]),
    "softmax of two long rows": (cases.softmax(2, 20_011), None),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chain(name):
    (inputs, output), rules = CHAINS[name]
    found = rules_of(output)
    assert found == rules if rules else "library_chain" not in found
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([int(d) for d in t.shape]).astype("float32") for t in inputs]
    want = ad.build(inputs, output, exact_math=True)(*arrays)
    np.testing.assert_allclose(run(inputs, output, arrays), want, rtol=1e-5, atol=1e-5)
    for launch, _ in scheduled(output):
        assert problem_of(launch.func, gpu()) is None
        for count in writes(launch, {}):
            np.testing.assert_array_equal(count, np.ones_like(count))


def test_shape_one_and_empty():
    for shape in [(1,), (1, 1), (), (0, 3)]:
        A = te.placeholder(shape, name="A")
        out = te.compute(shape, lambda *i: A(*i) + 1.0, name="out")  # noqa: B023
        np.testing.assert_array_equal(run(A, out, [np.ones(shape, "float32")]), np.full(shape, 2))


EMPTY = {
    "softmax of no rows": (cases.softmax(0, 5), (0, 5)),
    "product over nothing": (cases.matmul(3, 4, 0, "nt"), (3, 4)),
    "row sums of nothing": (cases.rows(3, 0), (3,)),
    "no columns": (cases.columns(70, 0), (0,)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty(name):
    (inputs, output), shape = EMPTY[name]
    arrays = [np.ones([int(d) for d in t.shape], "float32") for t in inputs]
    np.testing.assert_array_equal(run(inputs, output, arrays), np.zeros(shape))


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("shape", [(9,), (3, 3), (1,)])
def test_too_large(name, shape):
    """Statements of bounded size, an element for each thread, however TVM would walk the body."""

    def body(*axes):
        return BODIES[name](axes[0] if len(axes) == 1 else 3 * axes[0] + axes[1])

    stage = te.compute(shape, body, name="stage")
    [(launch, rule)] = scheduled(stage)
    assert rule == "fallback"
    assert max(map(len, str(launch.func).splitlines())) < 1_000
    data = np.random.default_rng(0).uniform(-1, 1, 48)
    [found] = run([X], [stage], [data])
    [wanted] = evaluate_graph([stage], [(X, data)])
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_opaque_stages():
    A = te.placeholder((300,), name="A")
    double = te.extern(
        (300,), [A], lambda i, o: _doubling(i[0], o[0]), name="double", dtype="float32"
    )
    values = np.arange(300, dtype="float32")
    np.testing.assert_array_equal(run(A, double, [values]), 2 * values)
    calls = te.extern(
        (300,),
        [A],
        lambda i, o: tvm.tirx.Evaluate(tvm.tirx.call_packed("function", i[0], o[0])),
        name="calls",
        dtype="float32",
    )
    with pytest.raises(ad.LoweringError, match=r"stage calls is a te.extern .* of the host"):
        ad.build(A, calls, target="cuda")


def _doubling(source, result):
    i = tvm.tirx.Var("i", "int32")
    store = tvm.tirx.BufferStore(result, source[i] * tvm.tirx.const(2, "float32"), [i])
    parallel = tvm.tirx.ForKind.PARALLEL
    return tvm.tirx.For(i, tvm.tirx.const(0), tvm.tirx.const(300), parallel, store)
