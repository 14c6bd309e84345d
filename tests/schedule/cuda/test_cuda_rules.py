"""Every CUDA schedule computes what an evaluation in numpy gives, and does nothing wrong.

The generated CUDA C runs on the CPU (`tests.cuda_on_cpu`), so no GPU is needed; small integers make
every order of summation give the same float.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, topi

import tvm_autodiff as ad
from tests.cuda_on_cpu.checking import Case, check, groups
from tests.schedule import cases
from tests.schedule.cuda.scheduled import kernels_of, problems_of, rules_of, scheduled
from tests.schedule.heavy_bodies import BODIES, X
from tests.schedule.test_rules import CONTRACTIONS, ELEMENTWISE, REDUCTIONS, arrays_for
from tvm_autodiff.schedule.cuda.rules import CUDA_RULES

pytestmark = pytest.mark.slow


def exact(case, *sizes, **options):
    """A case whose results are whole numbers: a call for each of some sizes."""
    inputs, output = case
    calls = [arrays_for(inputs, each) for each in sizes or ({},)]
    return Case(inputs, [output], calls, **options)


def place_of_maximum(n, k, axis):
    A = te.placeholder((n, k), name="A")
    return [A], topi.argmax(A, axis)


def own_reducer(n, k):
    A, r = te.placeholder((n, k), name="A"), te.reduce_axis((0, k), "k")
    add_both = te.comm_reducer(lambda x, y: x + y + x * y, lambda t: tvm.tirx.const(0, t))
    return [A], te.compute((n,), lambda i: add_both(A[i, r], axis=r), name="O")


def body(value, reducer=te.sum, dtype="float32", sizes=(43, 37, 51)):
    """``⊕_k value(a[i, k], b[j, k], i, j, k)``."""
    n, m, width = sizes
    a, b = (te.placeholder((s, width), dtype, name=t) for s, t in [(n, "a"), (m, "b")])
    k = te.reduce_axis((0, width), "k")
    out = te.compute((n, m), lambda i, j: reducer(value(a[i, k], b[j, k], i, j, k), axis=k))
    return [a, b], out


def weighted(n, m, width):
    v = te.placeholder((width,), name="v")
    a, b = (te.placeholder(s, name=t) for s, t in [((n, width), "a"), ((width, m), "b")])
    k = te.reduce_axis((0, width), "k")
    value = lambda i, j: te.sum(v[k] * te.max(a[i, k] + b[k, j], 0.0), axis=k)  # noqa: E731
    return [v, a, b], te.compute((n, m), value, name="scores")


def signs(n, m, width):
    """``Σ_j (x[i, k] < c[j, k] ? -1 : 1) * h[i, j]``, as in gradients of distances."""
    x, c = (te.placeholder((s, width), name=t) for s, t in [(n, "x"), (m, "c")])
    h, j = te.placeholder((n, m), name="h"), te.reduce_axis((0, m), "j")
    value = lambda i, k: tvm.tirx.Select(x[i, k] < c[j, k], -h[i, j], h[i, j])  # noqa: E731
    return [x, c, h], te.compute((n, width), lambda i, k: te.sum(value(i, k), axis=j), name="dx")


def nearest(n, m, width):
    """For each i and j the k of the least ``|a[i, k] - b[k, j]|``."""
    a, b = (te.placeholder(s, name=t) for s, t in [((n, width), "a"), ((width, m), "b")])
    k = te.reduce_axis((0, width), "k")
    argmin = te.comm_reducer(
        lambda x, y: tuple(tvm.tirx.Select(x[1] <= y[1], p, q) for p, q in zip(x, y, strict=True)),
        lambda i, t: (tvm.tirx.const(-1, i), tvm.te.max_value(t)),
    )
    pairs = te.compute(
        (n, m), lambda i, j: argmin((k, te.abs(a[i, k] - b[k, j])), axis=k), name="pairs"
    )
    return [a, b], pairs[0]


def batched_max_plus(batch, n, m, width):
    a, b = (te.placeholder((batch, s, width), name=t) for s, t in [(n, "a"), (m, "b")])
    k = te.reduce_axis((0, width), "k")
    shape = (batch, n, m)
    return [a, b], te.compute(shape, lambda q, i, j: te.max(a[q, i, k] + b[q, j, k], axis=k))


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


def prefix(shape, axis, counts, reducer=te.sum):
    """A reduction of the elements along an axis that count for each of them."""
    A, k = te.placeholder(shape, name="A"), te.reduce_axis((0, shape[axis]), "k")
    identity = 0.0 if reducer is te.sum else float(te.min_value("float32").value)

    def body(*indices):
        place = [*indices[:axis], k, *indices[axis + 1 :]]
        inside = counts(k, indices[axis])
        return reducer(te.if_then_else(inside, A(*place), te.const(identity, "float32")), axis=k)

    return [A], te.compute(shape, body, name="P")


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
    "cumulative sum": (prefix((5, 300), 1, lambda k, i: k <= i), ["prefix_reduction"]),
    "exclusive sums from the end": (prefix((3, 257), 1, lambda k, i: k > i), ["prefix_reduction"]),
    "sums down columns": (prefix((2, 70, 40), 1, lambda k, i: k < i), ["prefix_reduction"]),
    "maxima up columns": (prefix((45, 33), 0, lambda k, i: k >= i, te.max), ["prefix_reduction"]),
    "argmax": (place_of_maximum(37, 150, 1), ["fused_rows"]),
    "argmax of columns": (place_of_maximum(350, 37, 0), ["reduction", "elementwise"]),
    "argmax of all": (place_of_maximum(37, 150, None), ["reduction", "elementwise"]),
    "user-made reducer": (own_reducer(37, 150), ["reduction"]),
    "small distance": (cases.distance(19, 23, 17), ["fallback"]),
    "distance": (cases.distance(43, 37, 50), ["contraction"]),
    "max-plus": (body(lambda a, b, i, j, k: a + b, te.max), ["contraction"]),
    "body with a guard": (
        body(lambda a, b, i, j, k: te.if_then_else(i + k < j + 30, te.abs(a - b), 1)),
        ["contraction"],
    ),
    "body of narrow integers": (
        body(lambda a, b, i, j, k: te.max(a, b).astype("int32"), dtype="int8"),
        ["contraction"],
    ),
    "gradient of a distance": (signs(43, 37, 47), ["contraction"]),
    "three operands": (weighted(41, 45, 53), ["contraction"]),
    "nearest": (nearest(43, 37, 51), ["contraction"]),
    "batch of max-plus": (batched_max_plus(3, 20, 24, 61), ["contraction"]),
    "pool": (cases.pool(2, 12, 2, 2), ["fallback"]),
    "scatter": (embedding_gradient(50, 8, 20), ["elementwise", "scatter"]),
    "scatter at int64": (embedding_gradient(50, 8, 20, index="int64"), ["elementwise", "scatter"]),
    "scatter of one column": (embedding_gradient(3, 1, 5000), ["elementwise", "scatter"]),
    "scatter, a thread a slice": (embedding_gradient(4, 40_000, 6), ["elementwise", "scatter"]),
}


@pytest.mark.parametrize("name", RULES)
def test_rules_that_take_the_kernels(name):
    (_, output), rules = RULES[name]
    kernels = kernels_of(output)
    assert [one.rule for one in kernels] == rules
    assert problems_of(kernels) == []


def case_of(name, **options):
    """The case of a rule, its places in range."""
    (inputs, output), rules = RULES[name]
    arrays = [
        np.abs(a) % 3 if a.dtype in (np.int32, np.int64) and a.ndim == 1 else a
        for a in arrays_for(inputs, {})
    ]
    # loops of statements are interpreted one by one: too slow for a large scatter
    wanted = (lambda *given: [squares_scattered(*given)]) if "scatter" in rules else None
    return Case(inputs, [output], [arrays], wanted=wanted, **options)


@pytest.mark.parametrize("names", groups(RULES, 32))
def test_rules(names):
    check({name: case_of(name) for name in names}, sources=True)


#: a few of each kind: odd, prime and small sizes, other layouts
SAMPLES = {
    **{name: CONTRACTIONS[name] for name in list(CONTRACTIONS)[1::3]},
    **{name: REDUCTIONS[name] for name in list(REDUCTIONS)[::4]},
    **{name: ELEMENTWISE[name] for name in list(ELEMENTWISE)[2::2]},
}


SIZES = [(1, 1, 1), (17, 33, 65), (97, 31, 101)]
SAMPLES |= {
    f"matmul {form} of {size}": cases.matmul(*size, form)
    for size in SIZES
    for form in ("nn", "nt", "tn")
}


@pytest.mark.parametrize("names", groups(SAMPLES, 24))
def test_kernels(names):
    check({name: exact(SAMPLES[name]) for name in names})


def test_fallback_takes_everything():
    names = ["matmul", "rows", "argmax", "conv", "transpose", "scatter"]
    check({name: case_of(name, rules=CUDA_RULES[-1:]) for name in names})


SYMBOLIC = {
    "matmul": (lambda n: cases.matmul(n, 48, 64, "nt"), "contraction"),
    "max-plus": (lambda n: body(lambda a, b, *_: a + b, te.max, sizes=(n, 70, 33)), "contraction"),
    "distances over n": (
        lambda n: body(lambda a, b, *_: (a - b) * (a - b), sizes=(30, 40, n)),
        "contraction",
    ),
    "rows": (lambda n: cases.rows(n, 100), "reduction"),
    "columns": (lambda n: cases.columns(n, 48), "reduction"),
    "prefix": (lambda n: prefix((n, 40), 1, lambda k, i: k <= i), "prefix_reduction"),
    "prefix over n": (lambda n: prefix((3, n), 1, lambda k, i: k >= i), "prefix_reduction"),
    "prefix up n rows": (lambda n: prefix((n, 5), 0, lambda k, i: k < i), "prefix_reduction"),
}


def test_symbolic_sizes():
    found = {}
    for name, (make, rule) in SYMBOLIC.items():
        inputs, output = make(te.var("n"))
        assert rules_of(output) == [rule]
        found[name] = exact((inputs, output), *({"n": n} for n in (0, 1, 6, 64, 3001)))
    check(found)


def test_both_operands_stay_inside_of_their_tensors():
    (first, _), *_ = scheduled(cases.matmul(5, 96, 9000)[1])  # 128 parts of 71
    fetches = [line for line in str(first.func).splitlines() if "if_then_else" in line]
    assert len(fetches) == 2
    assert all("9000" in line for line in fetches), fetches


def layer_norm(n, m):
    x, g, b = (te.placeholder(s, name=t) for t, s in [("x", (n, m)), ("g", (m,)), ("b", (m,))])
    return [x, g, b], topi.nn.layer_norm(x, g, b, [1])


def log_softmax(n, k):
    A = te.placeholder((n, k), name="A")
    return [A], topi.nn.log_softmax(A)


#: chains of row reductions, and the rules that take them
CHAINS = {
    "softmax": (cases.softmax(33, 70), ["fused_rows"]),
    "softmax of a prime": (cases.softmax(3, 1031), ["fused_rows"]),
    "log softmax": (log_softmax(33, 70), ["fused_rows"]),
    "layer norm": (layer_norm(16, 96), ["fused_rows"]),
    "softmax of two long rows": (cases.softmax(2, 20_011), []),
}


def test_chains():
    found = {}
    rng = np.random.default_rng(0)
    for name, ((inputs, output), rules) in CHAINS.items():
        kernels = kernels_of(output)
        names = [one.rule for one in kernels]
        assert names == rules if rules else "fused_rows" not in names
        assert problems_of(kernels) == []
        arrays = [rng.standard_normal([int(d) for d in t.shape]).astype("float32") for t in inputs]
        found[name] = Case(inputs, [output], [arrays], 1e-5)
    check(found)


def columns_of_one(n, width):
    """The sums of one column of several: a block has more threads than there are results."""
    A, r = te.placeholder((n, width), name="A"), te.reduce_axis((0, n), "r")
    return [A], te.compute((1,), lambda j: te.sum(A[r, j], axis=r), name="O")


def test_a_single_result_is_written_by_one_thread():
    """The others of its block have nothing to sum, and once wrote that."""
    check(
        {
            "a row": exact(cases.rows(1, 48)),
            "a short total": exact(cases.total(100)),
            "a column": exact(columns_of_one(200, 7)),
            "two rows": exact(cases.rows(2, 48)),
        }
    )


def plus_one(shape):
    A = te.placeholder(shape, name="A")
    return [A], te.compute(shape, lambda *i: A(*i) + 1.0, name="out")


EMPTY = {
    "softmax of no rows": cases.softmax(0, 5),
    "product over nothing": cases.matmul(3, 4, 0, "nt"),
    "row sums of nothing": cases.rows(3, 0),
    "no columns": cases.columns(70, 0),
    **{f"map of {shape}": plus_one(shape) for shape in [(1,), (1, 1), (), (0, 3)]},
}


def test_empty_and_single():
    check({name: exact(case) for name, case in EMPTY.items()})


def too_large(name, shape):
    def body(*axes):
        return BODIES[name](axes[0] if len(axes) == 1 else 3 * axes[0] + axes[1])

    return te.compute(shape, body, name="stage")


SHAPES = [(9,), (3, 3), (1,)]
LARGE = {name: (name, SHAPES[number % 3]) for number, name in enumerate(BODIES)}


def test_too_large():
    """Statements of bounded size, an element for each thread, however TVM would walk the body."""
    data = np.random.default_rng(0).uniform(-1, 1, 48)
    found = {}
    for name, case in LARGE.items():
        stage = too_large(*case)
        [(launch, rule)] = scheduled(stage)
        assert rule == "fallback"
        assert max(map(len, str(launch.func).splitlines())) < 1_000
        found[name] = Case([X], [stage], [[data]], 1e-12)
    check(found)


def test_opaque_stages():
    A = te.placeholder((300,), name="A")
    double = te.extern(
        (300,), [A], lambda i, o: _doubling(i[0], o[0]), name="double", dtype="float32"
    )
    check({"doubled": exact(([A], double))})
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
